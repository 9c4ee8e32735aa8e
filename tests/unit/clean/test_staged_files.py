"""`clean.staged_files`: new files only, short writes, and a disk that is full or fails."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kcompact.clean.staged_files import create
from kcompact.errors import KcompactError, NotEnoughSpaceError, StorageError
from tests.support.parts import joined, parts_of
from tests.support.staging import staging_at


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (errno.ENOSPC, NotEnoughSpaceError),
        (errno.EDQUOT, NotEnoughSpaceError),
        (errno.EFBIG, NotEnoughSpaceError),
        (errno.EIO, StorageError),
    ],
)
@pytest.mark.parametrize("call", ["writev", "fsync", "open"])
def test_errors_of_the_disk(
    source: Path, staging: Path, monkeypatch: pytest.MonkeyPatch, code: int, error: type[KcompactError], call: str
) -> None:
    really = os.open

    def fail(*arguments: object, **options: object) -> int:
        if call == "open" and not int(arguments[1]) & os.O_CREAT:  # type: ignore[call-overload]
            return really(*arguments, **options)  # type: ignore[arg-type]
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(error) as stopped:
        parts_of(source, staging)
    assert type(stopped.value) is error
    assert str(staging) in str(stopped.value)


@pytest.mark.parametrize(("code", "error"), [(errno.EDQUOT, NotEnoughSpaceError), (errno.EIO, StorageError)])
def test_a_new_file_that_cannot_be_closed(
    source: Path, staging: Path, monkeypatch: pytest.MonkeyPatch, code: int, error: type[KcompactError]
) -> None:
    """NFS reports a full quota as late as this."""
    really = os.close

    def fail(descriptor: int) -> None:
        is_new = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
        really(descriptor)
        if is_new:
            raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "close", fail)
    with pytest.raises(error, match=f"close: {os.strerror(code)}"):
        parts_of(source, staging)


def test_a_short_write_is_gone_on_with(source: Path, staging: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = joined(staging, parts_of(source, staging))
    really = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: really(descriptor, bytes(data[:3])))
    for number, taken in enumerate((0, 3, 100)):
        monkeypatch.setattr(
            os, "writev", lambda descriptor, pieces, taken=taken: really(descriptor, b"".join(pieces)[:taken])
        )
        other = staging / f"other-{number}"
        other.mkdir()
        assert joined(other, parts_of(source, other, 2)) == whole


FULL = """
import os, resource, signal, sys
from pathlib import Path
from kcompact.clean import staged_files
from kcompact.errors import NotEnoughSpaceError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
path = Path(sys.argv[1]) / "file"
descriptor = staged_files.create(path, dir_fd=os.open(path.parent, os.O_RDONLY))
try:
    staged_files.write_all(descriptor, bytes(250), path=path)
except NotEnoughSpaceError as full:
    assert full.needed_bytes == 150, full.needed_bytes
    sys.exit(full.exit_code)
"""


def test_a_limit_of_the_operating_system(staging: Path) -> None:
    assert resource.RLIMIT_FSIZE
    assert signal.SIGXFSZ
    done = subprocess.run([sys.executable, "-c", FULL, str(staging)], check=False, cwd=Path(__file__).parents[3])
    assert done.returncode == NotEnoughSpaceError.exit_code
    assert (staging / "file").stat().st_size == 100


def test_a_file_that_is_there_is_not_written_over(staging: Path) -> None:
    (staging / "file").write_bytes(b"x")
    (staging / "link").symlink_to(staging / "nowhere")
    with staging_at(staging).opened() as dir_fd:
        for name in ("file", "link"):
            with pytest.raises(StorageError, match="File exists"):
                create(staging / name, dir_fd=dir_fd)
    assert not (staging / "nowhere").exists()


def open_files() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


@pytest.fixture
def descriptors() -> Iterator[None]:
    before = open_files()
    yield
    assert open_files() <= before


@pytest.mark.usefixtures("descriptors")
def test_a_failure_leaves_no_file_open(source: Path, staging: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: list[bytes]) -> int:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", full)
        with pytest.raises(NotEnoughSpaceError):
            parts_of(source, staging)
