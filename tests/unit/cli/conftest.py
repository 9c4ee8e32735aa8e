"""What all tests of commands share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from tests.support.few_processes import no_other_process


@pytest.fixture(autouse=True)
def alone(request: pytest.FixtureRequest, no_sync: None) -> Iterator[None]:
    """Let commands in this process see no other one, and not wait for the disk."""
    with nullcontext() if "among_others" in request.fixturenames else no_other_process():
        yield


@pytest.fixture
def among_others() -> None:
    """Let commands see the other processes all the same."""


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures take most of the time, and say nothing new in these tests."""
    pytest.importorskip("jinja2")
    from markupsafe import Markup

    from kcompact.report import drawing

    def figure(_: str, title: str, description: str, *__: object, **___: object) -> drawing.Figure:
        return drawing.Figure(title=title, description=description, wide=Markup(), narrow=Markup())

    monkeypatch.setattr(drawing, "figure", figure)
