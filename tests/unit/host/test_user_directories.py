"""The user's directories: private, and never made or reached through what belongs to another user."""

from __future__ import annotations

import errno
import os
import pwd
import tempfile
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from kcompact.bucket import scratch
from kcompact.engine.spark.scratch import private_directory, sweep_scratch
from kcompact.errors import RefusedError
from kcompact.host import user_directories
from kcompact.host.user_directories import cache_directory, state_directory
from kcompact.kernels.build import linked

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give directories away")


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """This user's home by the list of users, and another directory that HOME names."""
    own, other = tmp_path / "own", tmp_path / "other"
    for home in (own, other):
        home.mkdir(mode=0o700)
    monkeypatch.setattr(pwd, "getpwuid", lambda number: SimpleNamespace(pw_dir=str(own)))
    for variable in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(variable, raising=False)
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
    assert state_directory() == home / ".local" / "state" / "kcompact"


def test_the_variables_of_xdg_come_first(homes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    _, home = homes
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "c"))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "s"))
    assert (cache_directory(), state_directory()) == (home / "c" / "kcompact", home / "s" / "kcompact")


@pytest.mark.parametrize("variable", ["HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"])
def test_a_home_that_does_not_exist_is_not_made(
    variable: str, homes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, home = homes
    before = sorted(home.parent.rglob("*"))
    monkeypatch.setenv(variable, str(home / "none" / "there"))
    found = [state_directory() if variable == "XDG_STATE_HOME" else cache_directory()]
    found += [state_directory()] if variable == "HOME" else []
    assert set(found) == {None}
    assert sorted(home.parent.rglob("*")) == before


@pytest.mark.parametrize("name", ["meta.properties", "recovery-point-offset-checkpoint"])
def test_nothing_is_made_in_a_log_directory(name: str, homes: tuple[Path, Path]) -> None:
    """A broker does not start beside `.cache`, which is not the name of a partition."""
    _, home = homes
    (home / name).touch()
    assert (cache_directory(), state_directory()) == (None, None)
    assert [path.name for path in home.iterdir()] == [name]


def test_own_links_are_followed(homes: tuple[Path, Path]) -> None:
    _, home = homes
    (home / "elsewhere").mkdir(mode=0o700)
    (home / ".cache").symlink_to("elsewhere")
    assert cache_directory() == home / "elsewhere" / "kcompact"


def test_links_in_a_circle_lead_nowhere(homes: tuple[Path, Path]) -> None:
    _, home = homes
    (home / ".cache").symlink_to("other")
    (home / "other").symlink_to(".cache")
    assert cache_directory() is None


@needs_root
@pytest.mark.parametrize("planted", [".cache", ".local", ".local/state"])
@pytest.mark.parametrize("variable", [False, True])
def test_root_follows_no_link_of_another_user(
    planted: str, variable: bool, homes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link leads to a directory of root, in which a broker does not start beside a directory `kcompact`."""
    own, other = homes
    logs = own / "logs"
    logs.mkdir(mode=0o700)
    link = other / planted
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(logs)
    os.chown(link, 1234, 1234, follow_symlinks=False)
    if variable:
        monkeypatch.setenv("XDG_CACHE_HOME", str(other / ".cache"))
        monkeypatch.setenv("XDG_STATE_HOME", str(other / ".local" / "state"))
    assert cache_directory() == (own if planted == ".cache" else other) / ".cache" / "kcompact"
    assert state_directory() == (other if planted == ".cache" else own) / ".local" / "state" / "kcompact"
    assert list(logs.iterdir()) == []


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


def test_a_user_whom_nobody_lists_has_only_what_a_variable_names(
    homes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers run under any number."""

    def nobody(number: int) -> object:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.delenv("HOME")
    assert (cache_directory(), state_directory()) == (None, None)
    _, other = homes
    monkeypatch.setenv("XDG_STATE_HOME", str(other))
    assert state_directory() == other / "kcompact"


def test_without_a_temporary_directory_the_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    with pytest.raises(RefusedError) as raised:
        user_directories.temporary_directory()
    assert raised.value.exit_code == 4
    assert str(raised.value) == (
        "TMPDIR: No usable temporary directory found in ['/tmp']\nSet TMPDIR to a directory that can be written to."
    )
    assert sweep_scratch() == (), "nothing to remove is no failure"
    for needs_it in (partial(linked, b""), lambda: private_directory(None).__enter__(), scratch_of_a_bucket):
        with pytest.raises(RefusedError, match="Set TMPDIR"):
            needs_it()
    monkeypatch.undo()
    assert user_directories.temporary_directory() == tempfile.gettempdir()


def scratch_of_a_bucket() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scratch, "_ROOT", {})
        patch.setattr(scratch, "_PLACE", {})
        scratch.scratch_directory()
