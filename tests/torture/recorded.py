"""What a run does to the disk, as values, and the disk that loses power after any of them.

    recording = record(log_dir, lambda: scene.clean(log_dir))
    for number, disk in recording.disks():
        for tree in disk.trees(limit, chance): ...

The operations are those that a whole run makes, not those that it plans. `tests.support.power_loss` is the disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kcompact.swap.steps import Remove, RemoveDir, Rename, SyncDir
from tests.support.copies import read_files
from tests.support.power_loss import DIRECTORY, Create, Disk, SyncFile, Tree, Write
from tests.torture.system_calls import Call, observed

Operation = Create | Write | SyncFile | Rename | Remove | RemoveDir | SyncDir
Files = dict[str, bytes]
"""The data of the files of a log directory by their paths."""

WRITES = {"write", "writev", "pwrite", "pwritev", "ftruncate", "truncate", "copy_file_range", "sendfile"}
ATTRIBUTES = {"chmod", "fchmod", "chown", "fchown", "lchown", "utime", "setxattr", "removexattr", "posix_fallocate"}


@dataclass(frozen=True, slots=True)
class Recording:
    """The files and directories before a run, and its operations.

    `times` are the times of all files that there ever were, by their data: in a state of the disk a file has the time
    that the run has given to it.
    """

    files: Files
    directories: tuple[str, ...]
    operations: tuple[Operation, ...]
    times: Mapping[bytes, int]

    def disks(self) -> Iterator[tuple[int, Disk]]:
        """Yield the disk before each operation and after the last, with the number of operations done."""
        disk = Disk.holding(self.files, self.directories)
        yield 0, disk
        for number, operation in enumerate(self.operations, 1):
            disk.do(operation)
            yield number, disk

    def with_operations(self, operations: Iterator[Operation] | list[Operation]) -> Recording:
        """Return the recording of another run."""
        return replace(self, operations=tuple(operations))


def record(log_dir: Path, run: Callable[[], object]) -> Recording:
    """Run, and return what that did to the log directory, on which everything counts as synced before."""
    root = log_dir.resolve()
    files, directories = read_files(root), tuple(read_directories(root))
    operations: list[Operation] = []
    present: set[str] = set()
    times: dict[bytes, int] = {data: (root / path).stat().st_mtime_ns for path, data in files.items()}

    def before(call: Call) -> None:
        if call.name == "open" and Path(call.path).exists():
            present.add(call.path)

    def after(call: Call) -> None:
        operations.extend(_operations(call, root, is_new=call.path not in present))
        path = Path(call.path)
        if path.is_file():
            times[path.read_bytes()] = path.stat().st_mtime_ns

    with observed([root], before, after):
        run()
    return Recording(files, directories, tuple(operations), times)


def _operations(call: Call, root: Path, *, is_new: bool) -> Iterator[Operation]:
    path = Path(call.path)
    name, target = (
        str(each.relative_to(root)) if each != root else "" for each in (path, Path(call.target or call.path))
    )
    match call.name:
        case "open":
            yield Create(name) if is_new else Write(name, path.read_bytes())
        case "mkdir":
            yield Create(name, is_directory=True)
        case "rename" | "replace":
            yield Rename(name, target)
        case "unlink" | "remove":
            yield Remove(name)
        case "rmdir":
            yield RemoveDir(name)
        case "fsync" | "fdatasync":
            yield SyncDir(name) if path.is_dir() else SyncFile(name)
        case write if write in WRITES:
            yield Write(name, path.read_bytes())
        case other:
            assert other in ATTRIBUTES, call


# --- Trees ----------------------------------------------------------------------------------------------


def read_directories(root: Path) -> list[str]:
    """Return the directories below a directory, each after the one that it is in."""
    return [str(path.relative_to(root)) for path in sorted(root.rglob("*")) if path.is_dir()]


def files_of(tree: Tree) -> Files:
    """Return the files of a state of the disk."""
    return {path: data for path, (file, data) in tree.items() if file.suffix != DIRECTORY}


class Store:
    """Creates directories that are states of a disk, from hard links: an inode is the same file in all of them."""

    def __init__(self, recording: Recording, source: Path, place: Path) -> None:
        self._place = place
        self._times = recording.times
        self._known: dict[tuple[str, bytes], Path] = {}
        place.mkdir()
        for path, data in recording.files.items():
            self._known[path, data] = source / path

    def create(self, tree: Tree, root: Path) -> None:
        """Create the state as a directory."""
        root.mkdir()
        for path, (file, data) in tree.items():
            if file.suffix == DIRECTORY:
                (root / path).mkdir(mode=0o700)
            else:
                os.link(self._stored(file.owner.partition(" ")[2], data), root / path)

    def _stored(self, name: str, data: bytes) -> Path:
        if (name, data) not in self._known:
            path = self._place / str(len(self._known))
            path.write_bytes(data)
            if data in self._times:
                os.utime(path, ns=(self._times[data], self._times[data]))
            self._known[name, data] = path
        return self._known[name, data]

    def is_unchanged(self) -> bool:
        """Return whether no run has written into a file that was there before."""
        return all(path.read_bytes() == data for (_, data), path in self._known.items())
