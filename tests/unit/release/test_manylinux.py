from __future__ import annotations

from pathlib import Path

import pytest

from release import manylinux

WHEEL = Path("kcompact-1.0-py3-none-manylinux_2_17_x86_64.whl")
SAID = (
    '{wheel} is consistent with the following platform tag: "{tag}". The wheel requires no external shared libraries!'
)


def said(tag: str) -> str:
    return SAID.format(wheel=WHEEL, tag=tag)


@pytest.mark.parametrize("tag", ["manylinux_2_17_x86_64", "manylinux_2_5_x86_64"])
def test_a_tag_that_is_as_old_as_the_one_in_the_name_is_enough(tag: str) -> None:
    assert manylinux.check(WHEEL, said(tag)) == tag


@pytest.mark.parametrize(
    "tag", ["manylinux_2_28_x86_64", "manylinux_3_0_x86_64", "manylinux_2_5_aarch64", "linux_x86_64"]
)
def test_another_tag_is_refused(tag: str) -> None:
    with pytest.raises(SystemExit, match=f"auditwheel finds {tag}, which is not the tag in the name"):
        manylinux.check(WHEEL, said(tag))


def test_a_name_without_a_tag_is_refused() -> None:
    with pytest.raises(SystemExit, match="which is not the tag in the name"):
        manylinux.check(Path("kcompact-1.0-py3-none-any.whl"), said("manylinux_2_5_x86_64"))


def test_other_words_of_auditwheel_are_refused() -> None:
    with pytest.raises(SystemExit, match="auditwheel names no platform tag: it is fine"):
        manylinux.check(WHEEL, "it is fine")
