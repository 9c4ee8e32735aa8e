"""The user's cache directory: private, and never made in the home directory of another user."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest

from kcompact.host.user_cache import cache_directory

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give directories away")


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """This user's home by the list of users, and another directory that HOME names."""
    own, other = tmp_path / "own", tmp_path / "other"
    for home in (own, other):
        home.mkdir(mode=0o700)
    monkeypatch.setattr(pwd, "getpwuid", lambda number: SimpleNamespace(pw_dir=str(own)))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(other))
    monkeypatch.setattr(os, "lstat", trusting(tmp_path))
    return own, other


def trusting(root: Path) -> object:
    """Return an `lstat` for which the directories above `root` are this user's alone, as those above a home are."""
    real = os.lstat

    def lstat(path: Path) -> os.stat_result:
        status = real(path)
        if Path(path) in (root, *root.parents):
            return os.stat_result((status.st_mode & ~0o022, *status[1:4], os.geteuid(), *status[5:]))
        return status

    return lstat


def test_home_is_used_if_it_is_this_users(homes: tuple[Path, Path]) -> None:
    _, home = homes
    assert cache_directory() == home / ".cache" / "kcompact"


@needs_root
@pytest.mark.parametrize("variable", ["HOME", "XDG_CACHE_HOME"])
@pytest.mark.parametrize("exists", [False, True])
def test_root_makes_nothing_in_the_home_of_another_user(
    variable: str, exists: bool, homes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = homes
    monkeypatch.setenv(variable, str(other))
    if exists:
        (other / ".cache" / "kcompact").mkdir(mode=0o700, parents=True)
        (other / "kcompact").mkdir(mode=0o700)
    before = sorted(other.rglob("*"))
    for path in (other, *before):
        os.chown(path, 1234, 1234)
    assert cache_directory() == own / ".cache" / "kcompact"
    assert sorted(other.rglob("*")) == before


@needs_root
def test_without_a_home_of_its_own_there_is_no_cache(homes: tuple[Path, Path]) -> None:
    for home in homes:
        os.chown(home, 1234, 1234)
    assert cache_directory() is None
    assert [list(home.iterdir()) for home in homes] == [[], []]
