"""Figures as they stand in the page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HOSTILE = "$x^{</text><script>alert(1)</script>\x00\x1b]0;\u202e 日本"


@pytest.mark.long
def test_a_figure_has_only_text_and_the_colours_of_the_page() -> None:
    from kcompact.report import drawing

    def draw(axes: Axes, is_narrow: bool) -> None:
        axes.bar([1, 2], [3_000_000, 5_000_000], color=drawing.DIRTY)
        axes.plot([1, 2], [1, 2], color=drawing.ACCENT, marker="v")
        drawing.size_axis(axes.yaxis)
        drawing.label(axes, 1, 1, HOSTILE)

    first, second = (drawing.figure("a", HOSTILE, "described", draw) for _ in range(2))
    assert first == second
    for svg in (first.wide, first.narrow):
        root = ElementTree.fromstring(svg)
        assert {element.tag for element in root.iter()} <= {
            *("svg", "title", "desc", "g", "path", "text", "defs", "clipPath", "rect", "use"),
        }
        assert not re.search(r"#[0-9a-f]{6}\b|https?:|<script|font-family|<style", svg)
        assert "url(#fill-dirty)" in svg
        assert "var(--accent)" in svg
        texts = [element.text or "" for element in root.iter("text")]
        assert any(text.endswith(" MiB") for text in texts)
        assert "$x^{</text><script>alert(1)</script>\\x00\\x1b]0;\\u202e 日本" in texts
        ids = [element.get("id") for element in root.iter() if element.get("id")]
        assert len(ids) == len(set(ids))
    assert not set(re.findall(r' id="([^"]+)"', first.wide)) & set(re.findall(r' id="([^"]+)"', first.narrow))
