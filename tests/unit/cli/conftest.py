"""What all tests of commands share."""

from __future__ import annotations

import pytest


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures take most of the time, and say nothing new in these tests."""
    pytest.importorskip("jinja2")
    from markupsafe import Markup

    from kcompact.report import drawing

    def figure(_: str, title: str, description: str, *__: object, **___: object) -> drawing.Figure:
        return drawing.Figure(title=title, description=description, wide=Markup(), narrow=Markup())

    monkeypatch.setattr(drawing, "figure", figure)
