"""A model of a disk that loses power: which states a swap can leave, and what a broker loads from each.

Each change of a directory since its last sync may be lost, independently of the others. A file whose data was not
synced has all of it, half of it, zeros, or nothing.
"""

from __future__ import annotations

import itertools
import math
import os
import random
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kcompact.swap import manifest
from kcompact.swap.steps import Remove, RemoveDir, Rename, Step, SyncDir
from tests.support import crash
from tests.support.crash import PARTITION, Scene


@dataclass(frozen=True)
class File:
    """A file of the model: its segment (`old 100`, `new 0`), its suffix, and for a log its records."""

    owner: str
    suffix: str
    records: tuple[crash.Record, ...] = ()


Names = Mapping[str, File]
Tree = dict[str, tuple[File, bytes]]
"""A state of the disk: each file and its data by its path."""


@dataclass(frozen=True)
class Create:
    """A new, empty file or directory."""

    name: str
    is_directory: bool = False


@dataclass(frozen=True)
class Write:
    """A file has other data than before."""

    name: str
    data: bytes


@dataclass(frozen=True)
class SyncFile:
    """The data of a file is on the disk. Its name need not be."""

    name: str


DIRECTORY = "directory"
"""The suffix of a `File` that is a directory."""


Change = tuple[str | None, str | None, File]
"""In one directory: the name that disappears, the name that appears, the file."""


@dataclass
class Disk:
    """Directories: their synced names, and the changes since, of which a power cut may lose any.

    `current` are all files by their paths. `data` is what a file has now, `unsynced` what it had at its last sync, for
    files that were written since. The data of the files of a scene does not matter.
    """

    certain: dict[str, dict[str, File]]
    pending: dict[str, list[Change]]
    current: dict[str, File]
    kinds: dict[str, set[str]]
    data: dict[File, bytes] = field(default_factory=dict)
    unsynced: dict[File, bytes] = field(default_factory=dict)

    @staticmethod
    def of(scene: Scene) -> Disk:
        certain: dict[str, dict[str, File]] = {"": {}, scene.staging: {}}
        for base, records in crash.SEGMENTS.items():
            for path in scene.directory.glob(f"{base:020d}.*"):
                kept = tuple(records) if path.suffix == ".log" else ()
                certain[""][path.name] = File(f"old {base}", path.suffix, kept)
        for cleaned in scene.cleaned:
            bases = sorted({int(file.name[:20]) for file in cleaned.replaces})
            for staged in cleaned.files:
                suffix = Path(staged.name).suffix
                kept = tuple(crash.survivors(bases)) if suffix == ".log" else ()
                certain[scene.staging][staged.staged_as] = File(f"new {cleaned.base_offset}", suffix, kept)
        current = {
            f"{directory}/{name}".lstrip("/"): file
            for directory, names in certain.items()
            for name, file in names.items()
        }
        kinds: dict[str, set[str]] = {}
        for file in current.values():
            kinds.setdefault(file.owner, set()).add(file.suffix)
        return Disk(certain, {"": [], scene.staging: []}, current, kinds)

    @staticmethod
    def holding(files: Mapping[str, bytes], directories: Sequence[str]) -> Disk:
        """Return a disk with synced files in directories; the empty path is the directory that holds all others."""
        disk = Disk({"": {}}, {"": []}, {}, {})
        for path in sorted(directories):
            disk.do(Create(path, is_directory=True))
        for path, data in files.items():
            disk.do(Create(path))
            disk.do(Write(path, data))
            disk.do(SyncFile(path))
        for path in ("", *directories):
            disk.do(SyncDir(path))
        return disk

    def do(self, step: Step | Create | Write | SyncFile) -> None:
        match step:
            case Create(name, is_directory):
                directory, leaf = split(name)
                file = File(f"{len(self.data)} {name}", DIRECTORY if is_directory else Path(name).suffix)
                self.current[name], self.data[file] = file, b""
                self.pending[directory].append((None, leaf, file))
                if is_directory:
                    self.certain[name], self.pending[name] = {}, []
            case Write(name, data):
                file = self.current[name]
                self.unsynced.setdefault(file, self.data[file])
                self.data[file] = data
            case SyncFile(name):
                self.unsynced.pop(self.current[name], None)
            case Rename(source, target):
                file = self.current.pop(source)
                self.current[target] = file
                (here, name), (there, other) = split(source), split(target)
                if here == there:
                    self.pending[here].append((name, other, file))
                else:  # The two directories reach the disk independently.
                    self.pending[here].append((name, None, file))
                    self.pending[there].append((None, other, file))
            case Remove(name):
                directory, leaf = split(name)
                self.pending[directory].append((leaf, None, self.current.pop(name)))
            case SyncDir(name):
                self.certain[name] = persist(self.certain[name], self.pending[name])
                self.pending[name] = []
            case RemoveDir(name):
                if name in self.current:
                    directory, leaf = split(name)
                    self.pending[directory].append((leaf, None, self.current.pop(name)))

    def trees(self, limit: int, chance: random.Random) -> Iterator[Tree]:
        """Yield what a power cut can leave now: all trees if there are no more than `limit`, else `limit` of them.

        Of more, those come first that lack or have a single change, then others at random. Some can be the same.
        """
        changes = [(directory, number) for directory in self.pending for number in range(len(self.pending[directory]))]
        contents = self._contents()
        if self.is_enumerated(limit):
            masks: Iterable[int] = range(2 ** len(changes))
            chosen = [dict(zip(contents, each, strict=True)) for each in itertools.product(*contents.values())]
        else:
            whole = 2 ** len(changes) - 1
            singles = [1 << number for number in range(len(changes))]
            masks = [0, whole, *singles, *(whole ^ single for single in singles)]
            masks += [chance.getrandbits(len(changes)) for _ in range(limit - len(masks))]
            chosen = []
        for mask in masks:
            kept = {change for number, change in enumerate(changes) if mask >> number & 1}
            for data in chosen or [{file: chance.choice(each) for file, each in contents.items()}]:
                yield dict(self._tree("", kept, data))

    def is_enumerated(self, limit: int) -> bool:
        """Return whether there are no more states than this now."""
        states = 2 ** sum(map(len, self.pending.values())) * math.prod(map(len, self._contents().values()))
        return bool(states <= limit)

    def _contents(self) -> dict[File, list[bytes]]:
        """Return what each file that is not synced can have."""
        return {
            file: sorted({self.data[file], *partial_data(self.data[file], self.unsynced[file])})
            for file in self.current.values()
            if file in self.unsynced
        }

    def _tree(
        self, directory: str, kept: Container[tuple[str, int]], data: Mapping[File, bytes]
    ) -> Iterator[tuple[str, tuple[File, bytes]]]:
        changes = [change for number, change in enumerate(self.pending[directory]) if (directory, number) in kept]
        for name, file in persist(self.certain[directory], changes).items():
            path = f"{directory}/{name}".lstrip("/")
            yield path, (file, data.get(file, self.data[file]))
            if file.suffix == DIRECTORY:
                yield from self._tree(path, kept, data)

    def after_power_cuts(self, directory: str, limit: int, chance: random.Random) -> Iterator[dict[str, File]]:
        """Yield the directory for each subset of the pending changes, or for `limit` subsets at random."""
        changes = self.pending[directory]
        if 2 ** len(changes) <= limit:
            masks: Iterator[int] = iter(range(2 ** len(changes)))
        else:
            masks = (chance.getrandbits(len(changes)) for _ in range(limit))
        for mask in masks:
            kept = [change for number, change in enumerate(changes) if mask >> number & 1]
            yield persist(self.certain[directory], kept)


def partial_data(data: bytes, synced: bytes) -> tuple[bytes, ...]:
    """Return what a file can have whose data was not synced, but for the data itself."""
    return synced, data[: len(data) // 2], bytes(len(data)), b""


def split(name: str) -> tuple[str, str]:
    directory, _, leaf = name.rpartition("/")
    return directory, leaf


def persist(names: Names, changes: Sequence[Change]) -> dict[str, File]:
    """Apply changes of which earlier ones may be missing: a file ends up under the last name that was kept."""
    result = dict(names)
    for gone, new, file in changes:
        for name in [name for name, other in result.items() if other is file and (new or name == gone)]:
            del result[name]
        if new is not None:
            result[new] = file
    return result


def load(names: Names) -> dict[str, File]:
    """Return the files after a broker's start. Rule: LogLoader.load, passes 1 to 4."""
    files = {name: file for name, file in names.items() if not name.endswith(".deleted")}
    bases = {name: int(name[:20]) for name in files}
    guard = min((bases[name] for name in files if name.endswith(".cleaned")), default=None)
    files = {
        name: file
        for name, file in files.items()
        if not name.endswith(".cleaned") and not (name.endswith(".swap") and guard is not None and bases[name] >= guard)
    }
    low, high = 2**63, -1
    for name in [name for name in files if name.endswith(".log.swap")]:
        base = bases[name]
        low = min(low, base)
        high = max(high, max((offset + 1 for offset, _, _ in files[name].records), default=base))
        for suffix in (".index", ".timeindex"):  # LogSegment.open creates missing indexes, padded.
            files.setdefault(f"{base:020d}{suffix}.swap", File("padded", suffix))
    files = {name: file for name, file in files.items() if name.endswith(".swap") or not low <= int(name[:20]) < high}
    for name in [name for name in files if name.endswith(".swap")]:
        files[name.removesuffix(".swap")] = files.pop(name)
    return {name: file for name, file in files.items() if f"{name[:20]}.log" in files}


def faults(names: Names, view: Mapping[str, str], kinds: Mapping[str, set[str]]) -> set[str]:
    """Return what is wrong with a loaded log: nothing, or some of lost, doubled, wrong index, missing index."""
    logs = sorted(name for name in names if name.endswith(".log"))
    records = [record for name in logs for record in names[name].records]
    offsets = [offset for offset, _, _ in records]
    found = set()
    if any(later <= earlier for earlier, later in itertools.pairwise(offsets)):
        found.add("doubled")
    if {key: value for _, key, value in sorted(records)} != view:
        found.add("lost")
    for log in logs:
        for suffix in (".index", ".timeindex", ".txnindex"):
            index = names.get(log.removesuffix(".log") + suffix)
            if index is None:  # The loader does not notice a missing .txnindex.
                found |= {"missing index"} if suffix in kinds[names[log].owner] else set()
            elif index.owner not in (names[log].owner, "padded"):
                found.add("wrong index")
    return found


def make_real(scene: Scene, partition: Names, staged: Names, source: Path, log_dir: Path) -> Scene:
    """Create the directory that a state of the model describes, by hard links to the files of the scene at `source`."""
    state = scene.moved(log_dir)
    (state.directory / state.staging).mkdir(parents=True, mode=0o700)
    original = source / str(PARTITION)
    origin = {}
    for base in crash.SEGMENTS:
        origin.update({(f"old {base}", path.suffix): path for path in original.glob(f"{base:020d}.*")})
    for cleaned in scene.cleaned:
        for staged_file in cleaned.files:
            key = (f"new {cleaned.base_offset}", Path(staged_file.name).suffix)
            origin[key] = original / scene.staging / staged_file.staged_as
    for folder, names in ((state.directory, partition), (state.directory / state.staging, staged)):
        for name, model in names.items():
            os.link(origin[model.owner, model.suffix], folder / name)
    os.link(original / scene.staging / manifest.NAME, state.directory / state.staging / manifest.NAME)
    for name in ("leader-epoch-checkpoint", "partition.metadata"):
        os.link(original / name, state.directory / name)
    os.link(source / "cleaner-offset-checkpoint", log_dir / "cleaner-offset-checkpoint")
    return state
