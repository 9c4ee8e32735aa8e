"""The class-data archive: when it is used, and who makes it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kcompact.engine.spark import class_archive
from kcompact.engine.spark.class_archive import ClassArchive
from kcompact.engine.spark.pyspark_private import JOB_SUCCEEDED
from tests.support.patience import becomes
from tests.support.spark_runs import environment, script


def found(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, *, jar: bytes = b"jar") -> ClassArchive:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    jars = [tmp_path / "one.jar"]
    if not jars[0].exists() or jars[0].read_bytes() != jar:
        jars[0].write_bytes(jar)
    return class_archive.find_archive(Path(sys.executable), jars, ["-option"], scratch=tmp_path)


def written(one: ClassArchive, content: bytes = b"classes", *, classes: int = 100) -> Path:
    assert one.directory is not None
    unnamed = one.directory / "unnamed"
    unnamed.write_bytes(content)
    unnamed.chmod(0o600)
    return unnamed.rename(one.directory / f"spark-{one.key}-{classes}-{class_archive._checksum(unnamed)}.jsa")


def test_archive_is_used_when_it_is_sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    none = found(tmp_path, tmp_path / "cache", monkeypatch)
    assert none.is_wanted
    assert none.options() == [f"-XX:DumpLoadedClassList={tmp_path}/classes"]
    file = written(none)
    one = found(tmp_path, tmp_path / "cache", monkeypatch)
    assert (one.file, one.is_wanted, one.is_sound()) == (file, False, True)
    assert one.options() == [
        "-Xshare:auto",
        f"-XX:SharedArchiveFile={file}",
        f"-XX:DumpLoadedClassList={tmp_path}/classes",
    ]
    assert found(tmp_path, tmp_path / "cache", monkeypatch, jar=b"another").file is None
    assert (tmp_path / "cache" / "kcompact").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("damage", [b"", b"class", b"klasses", b"classes and more"])
def test_archive_that_is_damaged_is_removed(damage: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(found(tmp_path, tmp_path, monkeypatch))
    file.write_bytes(damage)
    one = found(tmp_path, tmp_path, monkeypatch)
    assert not one.is_sound()
    assert not file.exists()
    assert found(tmp_path, tmp_path, monkeypatch).is_wanted


def test_archive_that_others_could_write_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(found(tmp_path, tmp_path, monkeypatch))
    directory = file.parent

    def is_used() -> bool:
        return found(tmp_path, tmp_path, monkeypatch).file is not None

    assert is_used()
    for path, mode in ((file, 0o620), (file, 0o602), (directory, 0o770), (directory, 0o705), (tmp_path, 0o777)):
        before = path.stat().st_mode
        path.chmod(mode)
        assert not is_used(), f"{path} {mode:o}"
        path.chmod(before)
    assert is_used()
    elsewhere = file.rename(directory / "elsewhere")
    file.symlink_to(elsewhere)
    assert not is_used()


@pytest.mark.parametrize("home", ["/proc/nonexistent/home", "/proc/self"])
def test_no_archive_without_a_directory_for_it(home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "mkdir", denied)
    one = found(tmp_path, Path(home), monkeypatch)
    assert (one.is_wanted, one.options()) == (False, [])
    one.make_in_background()


def denied(*_: Any, **__: Any) -> None:
    raise PermissionError(13, "Permission denied")


def test_two_do_not_make_the_same_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = found(tmp_path, tmp_path, monkeypatch)
    directory = one.directory
    assert directory is not None
    list_classes(tmp_path, 1)
    stale = directory / "making-0.jsa"
    stale.touch()
    # This "Java" cannot make one: that is noted, and not tried again on the same day.
    one.make_in_background()
    failed = directory / f"spark-{one.key}.failed"
    assert becomes(failed.exists)
    assert becomes(lambda: not list(directory.glob("making-*")))
    again = found(tmp_path, tmp_path, monkeypatch)
    assert (again.is_wanted, again.options()) == (False, [])
    yesterday = time.time() - 86_401
    os.utime(failed, (yesterday, yesterday))
    assert found(tmp_path, tmp_path, monkeypatch).is_wanted


def list_classes(directory: Path, count: int, *, has_succeeded: bool = True) -> None:
    """Write a list of so many classes, as a JVM that was killed leaves it."""
    last = JOB_SUCCEEDED if has_succeeded else b"org/apache/spark/Other"
    lines = [b"# a comment", *(b"java/lang/Object%d id: %d" % (n, n) for n in range(count - 1)), last + b" id: 0"]
    lines += [b"@lambda-proxy java/lang/Object0 run", b"half a li"]
    (directory / "classes").write_bytes(b"\n".join(lines))


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The commands that would make an archive."""
    commands: list[Any] = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: commands.append(command))
    return commands


@pytest.mark.parametrize(
    ("archived", "listed", "has_succeeded", "is_made"),
    [
        (None, 5, True, True),
        (None, 5, False, False),  # It was stopped, or failed, before a job had ended.
        (100, 125, True, True),
        (100, 500, False, False),
        (100, 124, True, False),
        (100, 100, True, False),
        (100, 5, True, False),
    ],
)
def test_an_archive_is_made_after_a_job_that_ended_well_and_anew_if_it_lacks_many_classes(
    archived: int | None,
    listed: int,
    has_succeeded: bool,
    is_made: bool,
    tmp_path: Path,
    started: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if archived is not None:
        written(found(tmp_path, tmp_path, monkeypatch), classes=archived)
    one = found(tmp_path, tmp_path, monkeypatch)
    list_classes(tmp_path, listed, has_succeeded=has_succeeded)
    one.make_in_background()
    assert bool(started) == is_made
    assert len(list((tmp_path / "kcompact").glob("making-*"))) == is_made


def test_without_a_list_nothing_is_made(tmp_path: Path, started: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    found(tmp_path, tmp_path, monkeypatch).make_in_background()
    assert started == []


def test_the_largest_archive_is_used_also_when_a_larger_one_could_not_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    none = found(tmp_path, tmp_path, monkeypatch)
    assert none.directory is not None
    written(none, b"small", classes=99)
    large = written(none, b"large", classes=1000)
    (none.directory / f"spark-{none.key}-00000000.jsa").touch()
    assert found(tmp_path, tmp_path, monkeypatch).file == large
    (none.directory / f"spark-{none.key}.failed").touch()
    one = found(tmp_path, tmp_path, monkeypatch)
    assert one.options() == ["-Xshare:auto", f"-XX:SharedArchiveFile={large}"]


def test_a_larger_archive_takes_the_place_of_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    none = found(tmp_path, tmp_path, monkeypatch)
    directory = none.directory
    assert directory is not None
    for classes in (10, 20):
        written(none, b"%d" % classes, classes=classes)
    (tmp_path / "classes").write_bytes(b"# a comment\n" + b"java/lang/Object id: 0\n" * 30)

    def dump(command: list[str], **_: Any) -> None:
        made = next(Path(part.partition("=")[2]) for part in command if part.startswith("-XX:SharedArchiveFile="))
        made.write_bytes(b"made")

    monkeypatch.setattr(subprocess, "run", dump)
    class_archive._make("java", "", none.key, directory, tmp_path / "classes")
    (file,) = directory.glob("spark-*.jsa")
    assert found(tmp_path, tmp_path, monkeypatch).file == file
    assert file.name.startswith(f"spark-{none.key}-30-")


ARCHIVED = """
from kcompact.engine.spark import spark_start
from tests.support.patience import becomes
cache = Path(sys.argv[1]) / "kcompact"

def run(is_first, has_job=True):
    with spark_start("local[1]") as start, start.context() as sc:
        assert start.is_first == is_first
        assert not has_job or sc.parallelize(range(4), 2).sum() == 6
        return any("/kcompact/spark-" in Path(f"/proc/{pid}/maps").read_text() for pid in process_tree())

assert not run(True, has_job=False)
assert not list(cache.glob("making-*")) + list(cache.glob("spark-*"))
assert not run(True)
assert becomes(lambda: not list(cache.glob("making-*.*")))
(file,) = cache.glob("spark-*.jsa")
assert file.stat().st_mode & 0o777 == 0o600
assert run(False)
assert not list(cache.glob("making-*.*")), "it has most classes of this run"
content = bytearray(file.read_bytes())
content[len(content) // 2] ^= 1
file.write_bytes(content)
assert not run(False)
assert not file.exists()
"""


@pytest.mark.spark
@pytest.mark.slow
def test_archive_is_made_after_the_first_run_and_quickens_the_next(tmp_path: Path) -> None:
    done = subprocess.run(
        script(ARCHIVED, str(tmp_path)),
        env=environment(tmp_path, XDG_CACHE_HOME=str(tmp_path)),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
