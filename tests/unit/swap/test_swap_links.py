"""Root works only in the directories that it has opened, wherever their names lead by now."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

import pytest

from kcompact.clean.staged_files import StagingDirectory
from kcompact.errors import KcompactError, LogChangedError, RefusedError
from kcompact.swap.attributes import carry_over
from kcompact.swap.open_directory import OpenDirectory
from kcompact.swap.replace import replace_segments
from kcompact.swap.staging import create_staging
from tests.support import swapped_links
from tests.support.crash import Scene, log_of
from tests.support.swapped_links import attacked_at, make_scene, state_of, swap_for_link, swapping

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root works in directories of others")


@needs_root
@pytest.mark.parametrize(
    ("attack", "numbers"),
    [
        ("clean, staging", (24, *range(44, 60, 2), 70, 130)),
        ("clean, partition", (3, 22, 75, 140)),
        ("clean, log directory", (30, 110)),
        ("recovery, staging", (20, 50)),
        ("recovery, log directory", (10, 60)),
        ("retention, log directory", (20, 31)),
        ("copy of a partition, marker", (40, 90, 140)),
        ("copy of a partition, output", (2, 60)),
        ("copy of a log directory, marker", (60, 150)),
    ],
)
def test_nothing_is_changed_where_a_link_leads(attack: str, numbers: tuple[int, ...], tmp_path: Path) -> None:
    for number in numbers:
        assert attacked_at(attack, number, tmp_path / str(number)) == (True, "")


@needs_root
def test_a_thread_that_swaps_all_the_time(tmp_path: Path) -> None:
    scene = make_scene(tmp_path)
    before = state_of(scene.elsewhere)
    _, target = swapped_links.ATTACKS["clean, staging"]
    with swapping(lambda: target(scene), scene.elsewhere) as turns:
        for _ in range(5):
            with contextlib.suppress(KcompactError, OSError):
                swapped_links.clean(scene, lambda: None)
    assert turns
    assert state_of(scene.elsewhere) == before


def test_another_staging_directory_is_not_written_to(tmp_path: Path) -> None:
    made, elsewhere = tmp_path / "made", tmp_path / "elsewhere"
    made.mkdir()
    elsewhere.mkdir()
    with OpenDirectory(made) as held:
        staging = StagingDirectory.of(made, held.fd())
        with staging.opened() as fd:
            assert os.path.samestat(os.fstat(fd), made.stat())
        swap_for_link(made, elsewhere)
        with pytest.raises(LogChangedError, match="no longer the directory"), staging.opened():
            pass
        made.unlink()
        made.mkdir()
        with pytest.raises(LogChangedError, match="no longer the directory"), staging.opened():
            pass


def link_to_it(path: Path) -> None:
    os.link(path, path.with_name("second-name"))


def rewrite(path: Path) -> None:
    """Other bytes of the same length, and the old times."""
    status = path.stat()
    path.write_bytes(bytes(status.st_size))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def replace_it(path: Path) -> None:
    status, content = path.stat(), path.read_bytes()
    path.unlink()
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def put_a_link(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


@pytest.mark.parametrize("touch", [link_to_it, rewrite, replace_it, put_a_link, lambda path: path.chmod(0o666)])
def test_a_staged_file_that_was_touched_after_it_was_handed_over(scene: Scene, touch: swapped_links.Touch) -> None:
    complete = carry_over(scene.directory, scene.staging, scene.cleaned[0])
    touch(scene.directory / scene.staging / scene.cleaned[0].files[0].staged_as)
    before = {path.name: path.read_bytes() for path in scene.directory.glob("0*")}
    with pytest.raises(KcompactError, match=r"changed or replaced after kcompact had written it|now it is missing"):
        replace_segments(scene.directory, scene.staging, scene.cleaned[0], lambda: None, complete=complete)
    assert {path.name: path.read_bytes() for path in scene.directory.glob("0*")} == before


def test_a_foreign_file_in_the_place_of_a_staged_one_is_not_given_away(scene: Scene, tmp_path: Path) -> None:
    staged = scene.directory / scene.staging / scene.cleaned[0].files[0].staged_as
    foreign = tmp_path / "foreign"
    staged.rename(foreign)
    os.link(foreign, staged)
    foreign.chmod(0o600)
    (scene.directory / log_of(0)).chmod(0o644)
    with pytest.raises(LogChangedError, match="has a second name"):
        carry_over(scene.directory, scene.staging, scene.cleaned[0])
    assert stat.S_IMODE(foreign.stat().st_mode) == 0o600


@needs_root
def test_a_file_of_another_user_is_not_given_away(scene: Scene) -> None:
    staged = scene.directory / scene.staging / scene.cleaned[0].files[0].staged_as
    os.chown(staged, 4321, 4321)
    with pytest.raises(LogChangedError, match="belongs to another user"):
        carry_over(scene.directory, scene.staging, scene.cleaned[0])
    assert staged.stat().st_uid == 4321


def test_a_staging_directory_that_is_replaced_at_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    really = os.mkdir

    def mkdir(name: str, mode: int, *, dir_fd: int) -> None:
        really(name, mode, dir_fd=dir_fd)
        swap_for_link(scene.directory / name, scene.log_dir)

    monkeypatch.setattr(os, "mkdir", mkdir)
    with pytest.raises(LogChangedError, match="was replaced as soon as"):
        create_staging(scene.directory)


@needs_root
def test_the_rights_of_a_program_are_not_copied(scene: Scene) -> None:
    (scene.directory / log_of(0)).chmod(0o6755)
    carry_over(scene.directory, scene.staging, scene.cleaned[0])
    staged = scene.directory / scene.staging / scene.cleaned[0].files[0].staged_as
    assert stat.S_IMODE(staged.stat().st_mode) == 0o755


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("elsewhere"), Path.mkdir])
def test_a_model_that_is_not_a_file_is_refused(scene: Scene, make: swapped_links.Touch) -> None:
    (scene.directory / log_of(0)).unlink()
    make(scene.directory / log_of(0))
    with pytest.raises(RefusedError, match="cannot be copied to the new file"):
        carry_over(scene.directory, scene.staging, scene.cleaned[0])
