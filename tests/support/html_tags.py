"""The tags and the text of an HTML page."""

from __future__ import annotations

from html.parser import HTMLParser


class Tags(HTMLParser):
    """The tags of a page, and its text without figures and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._silent = 0
        self.feed(page)
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        self._silent += tag in ("svg", "style")

    def handle_endtag(self, tag: str) -> None:
        self._silent -= tag in ("svg", "style")

    def handle_data(self, content: str) -> None:
        self.text += "" if self._silent else f"{content} "
