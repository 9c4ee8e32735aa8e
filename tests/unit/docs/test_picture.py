"""The picture of a session shows what kcompact prints now. `make picture` draws it anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures import picture


@pytest.mark.long
def test_the_picture_shows_what_kcompact_prints(tmp_path: Path) -> None:
    drawn = picture.PICTURE.read_text(encoding="utf-8")
    # The version of rich decides about the drawing, so only the text is compared.
    assert picture.lines_of(drawn) == picture.lines_of(picture.drawn(picture.session(tmp_path)))
    assert str(picture.ROOT) not in drawn
    assert "url(http" not in drawn
