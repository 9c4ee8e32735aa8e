"""What a broker keeps of a log directory and of a partition directory when it starts; a copy takes the same."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from kcompact.bucket.mirror import MIRROR
from kcompact.config.metadata_log import METADATA_DIRECTORY
from kcompact.errors import KcompactError, LogChangedError, RefusedError, is_forbidden
from kcompact.format.checkpoint import (
    LEADER_EPOCH_CHECKPOINT,
    OFFSET_CHECKPOINTS,
)
from kcompact.format.names import (
    BOOTSTRAP_CHECKPOINT,
    REMOTE_INDEX_CACHE,
    DirectoryKind,
    Suffix,
    Temporary,
    log_name,
    parse_directory,
    parse_file_name,
    parse_metadata_snapshot_name,
)
from kcompact.format.properties import CLEAN_SHUTDOWN_FILE, META_PROPERTIES, PARTITION_METADATA
from kcompact.log.directory import PartitionLog
from kcompact.log.files import FileIdentity, require_regular
from kcompact.log.lock import LOCK_NAME
from kcompact.swap.open_directory import OpenDirectory
from kcompact.swap.steps import DELETED, SWAP
from kcompact.values import dataclass

LOG_DIR_FILES = (
    *OFFSET_CHECKPOINTS,
    BOOTSTRAP_CHECKPOINT,
    CLEAN_SHUTDOWN_FILE,
    META_PROPERTIES,
)
"""The files of a log directory, in the order in which a copy writes them: `meta.properties` last."""

_METADATA_SHARE = 256
"""The file system describes 1 byte in this many: at worst ext4 has 12 bytes for each fragment of 4 KiB."""
_QUORUM_STATE = "quorum-state"
_DELETED = "marked for deletion: a broker deletes it when it starts"
_UNFINISHED = "an unfinished write"
_FOREIGN = "not a file of Kafka"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotCopied:
    """A file or directory of the source that a copy leaves out. `name` is relative to the log directory."""

    name: str
    size_bytes: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionContents:
    """The files of a partition directory that a copy takes, and the names that it leaves out."""

    files: tuple[FileIdentity, ...]
    left_out: tuple[NotCopied, ...]

    def space_bytes(self, block_bytes: int) -> int:
        """Return the space that a copy takes on a file system with blocks of this size: the files and the directory.

        The last block of a file, and that of an empty one, counts as a whole one.
        """
        size_bytes = sum(file.size_bytes for file in self.files)
        return with_metadata(size_bytes) + (len(self.files) + 1) * block_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirContents:
    """A log directory: its partitions, its `-future` and `-stray` directories, its files, and what a copy leaves out.

    `left_out` has what the partitions leave out too.
    """

    partitions: tuple[str, ...]
    set_aside: tuple[str, ...]
    files: tuple[FileIdentity, ...]
    left_out: tuple[NotCopied, ...]


def read_partition_contents(directory: Path) -> PartitionContents:
    """Return what a broker keeps of a partition directory, whatever the kind of the directory.

    Raises RefusedError if the directory is a link or cannot be opened, or if one of these files is not a regular file;
    StorageError.
    Rule: LogLoader.removeTempFilesAndCollectSwapFiles, LogLoader.loadSegmentFiles.
    """
    files, left_out = [], []
    is_metadata = directory.name == METADATA_DIRECTORY
    MIRROR.require(directory)
    with OpenDirectory(directory) as opened:
        present = opened.names()
        for name in sorted(present):
            status = opened.status(name)
            if status is None:
                continue
            reason = _why_left_out(name, present, is_metadata=is_metadata)
            if reason is None:
                require_regular(directory / name, status)
                files.append(FileIdentity.of(name, status))
            else:
                left_out.append(_left_out(directory / name, f"{directory.name}/{name}", reason))
    return PartitionContents(files=tuple(files), left_out=tuple(left_out))


def contents_of(log: PartitionLog) -> PartitionContents:
    """Return what a copy takes of a partition. Raises as `read_partition_contents`.

    Beside a running broker it is the part of each file that the log has. Snapshots above the log end are left out, and
    the files that the broker's cleaner is writing.
    """
    present = read_partition_contents(log.directory)
    if not log.log_dir.is_running:
        return present
    files = {file.name: file for segment in log.segments for file in segment.files}
    files |= {file.name: file for offset, file in log.snapshots.items() if offset <= log.log_end_offset}
    files |= {file.name: file for file in present.files if parse_file_name(file.name) is None}
    return PartitionContents(files=tuple(files[name] for name in sorted(files)), left_out=present.left_out)


def _why_left_out(name: str, present: Collection[str], *, is_metadata: bool) -> str | None:
    parsed = parse_file_name(name)
    if parsed is not None and parsed.temporary is not Temporary.DELETED:
        log = log_name(parsed.base_offset)
        is_index = parsed.suffix not in (Suffix.LOG, Suffix.SNAPSHOT)
        if is_index and parsed.temporary is Temporary.NO and log not in present and log + SWAP not in present:
            return "an index without its .log: a broker deletes it when it starts"
        return None
    if name in (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA):
        return None
    if is_metadata and (name == _QUORUM_STATE or parse_metadata_snapshot_name(name) is not None):
        return None
    if name.endswith(DELETED):
        return _DELETED
    return _UNFINISHED if name.endswith((".tmp", ".part")) else _FOREIGN


def read_log_dir_contents(log_dir: Path) -> LogDirContents:
    """Return what a broker keeps of a log directory.

    A broker deletes `-delete` directories. It continues to fill a `-future` directory, and it leaves a `-stray` one to
    the operator. Raises RefusedError if the log directory cannot be opened or one of its files is not a regular file,
    StorageError.
    Rule: LogManager.loadLogs, LogManager.loadLog.
    """
    partitions, set_aside, files, left_out = [], [], [], []
    with OpenDirectory(log_dir, follow=True) as opened:
        for name in sorted(opened.names() - {LOCK_NAME}):
            status, parsed = opened.status(name), parse_directory(name)
            if status is None:
                continue
            is_directory = stat.S_ISDIR(status.st_mode)
            if parsed is not None and parsed.kind is DirectoryKind.PARTITION and not stat.S_ISREG(status.st_mode):
                partitions.append(name)
            elif is_directory and parsed is not None and parsed.kind is not DirectoryKind.DELETE:
                set_aside.append(name)
            elif name in LOG_DIR_FILES:
                require_regular(log_dir / name, status)
                files.append(FileIdentity.of(name, status))
            else:
                left_out.append(_left_out(log_dir / name, name, _why_not_kept(name, is_directory=is_directory)))
    for name in (*partitions, *set_aside):
        with suppress(KcompactError):  # A directory that cannot be read cannot be copied either; that is its error.
            left_out += read_partition_contents(log_dir / name).left_out
    return LogDirContents(
        partitions=tuple(partitions), set_aside=tuple(set_aside), files=tuple(files), left_out=tuple(left_out)
    )


def require_regular_files(log_dir: Path) -> None:
    """Raise RefusedError if one of the files that a log directory's partitions share is not a regular file."""
    with OpenDirectory(log_dir, follow=True) as opened:
        for name in LOG_DIR_FILES:
            status = opened.status(name)
            if status is not None:
                require_regular(log_dir / name, status)


def _why_not_kept(name: str, *, is_directory: bool) -> str:
    if not is_directory:
        return _UNFINISHED if name.endswith(".tmp") else _FOREIGN
    if parse_directory(name) is not None:
        return _DELETED
    if name == REMOTE_INDEX_CACHE:
        return "a cache of tiered storage: a broker fills it again"
    return "not a directory of Kafka: a broker does not start while it is there"


def _left_out(path: Path, name: str, reason: str) -> NotCopied:
    return NotCopied(name=name, size_bytes=size_bytes_of(path), reason=reason)


def with_metadata(size_bytes: int) -> int:
    """Return the size of content with what a file system needs to describe it."""
    return size_bytes + size_bytes // _METADATA_SHARE


def size_bytes_of(path: Path) -> int:
    """Return the size of a file, or of all files below a directory; 0 if it is gone. Links are not followed."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return 0
    if not stat.S_ISDIR(status.st_mode):
        return status.st_size
    return sum(size_bytes_of(Path(parent) / name) for parent, _, names in os.walk(path) for name in names)


# --- Changes while it is copied -------------------------------------------------------------------------


def require_same_files(source: Path, files: Sequence[FileIdentity]) -> None:
    """Raise LogChangedError if a copy of the directory would take other files now."""
    with raised_as_changes():
        now = read_partition_contents(source).files
    if now != files:
        raise changed_error(source, files, now)


_CHANGED = "was changed or replaced while it was copied"


@contextmanager
def raised_as_changes() -> Iterator[None]:
    """Raise a RefusedError of the block as a LogChangedError: before the copying the same files were accepted.

    A directory that may no longer be opened keeps its own error.
    """
    try:
        yield
    except RefusedError as problem:
        if isinstance(problem.__cause__, OSError) and is_forbidden(problem.__cause__):
            raise
        raise LogChangedError(path=problem.path, problem=_CHANGED) from None


def changed_error(directory: Path, before: Sequence[FileIdentity], now: Sequence[FileIdentity]) -> LogChangedError:
    """Return the error for a directory whose files have changed while it was copied. It names the first of them."""
    name = min(file.name for file in {*before} ^ {*now})
    return LogChangedError(path=directory / name, problem=_CHANGED)
