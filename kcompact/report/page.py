"""The page as HTML: one file with its style sheet and its figures, without scripts, that loads nothing.

jinja2 escapes every text. Only `drawing` makes markup. The content security policy of the page forbids scripts and
every request, in case that a text got around that.
"""

from __future__ import annotations

from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from kcompact.report.file import MARK
from kcompact.report.parts import PageView


def rendered(page: PageView) -> str:
    """Return the page as HTML."""
    environment = Environment(
        autoescape=True,
        loader=FunctionLoader(_resource),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.get_template("page.html")
    return template.render(page=page, mark=Markup(MARK), style=Markup(_resource("page.css")))


def _resource(name: str) -> str:
    return files("kcompact.report").joinpath(name).read_text(encoding="utf-8")
