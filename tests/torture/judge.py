"""Kafka's own loader and reader as the judge of a log directory: is every record there once, and nothing else?

    with Judge(original, scratch) as judge:
        problems = judge.problems(files)        # the data of the files of a log directory

The views of a reader before anything happened are compared with those after the state was loaded, as after a clean
shutdown and as after an unclean one. Nothing here uses kcompact's own reading.
"""

from __future__ import annotations

import itertools
import os
import shutil
import struct
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tests.oracle.real_kafka import Json, KafkaError, RealKafka, Record
from tests.support.copies import read_files
from tests.torture import scene
from tests.torture.recorded import Files

IGNORED = (".kcompact-", ".lock")
"""A broker does not read what begins so."""
SAME = ("log_end_offset", "last_stable_offset", "producers")
RECOVERY_POINTS = "recovery-point-offset-checkpoint"


@dataclass(frozen=True, slots=True)
class _View:
    """What a broker finds in a partition and a reader reads from it."""

    fields: Json
    records: tuple[Record, ...]
    committed: tuple[Record, ...]

    def latest(self, start: int) -> dict[bytes | None, Record]:
        """Return the latest committed record of each key, where it is at or after an offset."""
        found = {record.key: record for record in self.committed}
        return {key: record for key, record in found.items() if record.offset >= start}


class Judge:
    """A running Kafka and the views of the original; a context manager.

    The work is done below `scratch`. `only` names the one partition that is loaded.
    """

    def __init__(self, original: Path, scratch: Path, *, only: str | None = None) -> None:
        self.loads = 0
        self._kafka = RealKafka()
        self._only = only
        self._work = tempfile.TemporaryDirectory(prefix="judge-", dir=scratch)
        self._known: dict[tuple[frozenset[tuple[str, bytes]], frozenset[int], tuple[bool, ...]], list[str]] = {}
        self._place = Path(self._work.name) / "loaded"
        files = read_files(original)
        self._original = {is_clean: self._loaded(visible(files), is_clean) for is_clean in (True, False)}
        self._txn_indexes = {
            data: files.get(path.replace(".log", ".txnindex"), b"") for path, data in files.items() if ".log" in path
        }
        self._ends = {name: max(log_bases(files, name)) for name in (scene.ORDERS, scene.PRICES)}

    def __enter__(self) -> Judge:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kafka.close()
        self._work.cleanup()

    @property
    def states(self) -> int:
        """How many different states were loaded, each in both modes."""
        return len(self._known)

    def refuses(self, state: Path) -> bool:
        """Return whether a broker does not start on a directory, because a directory in it is no partition."""
        shutil.rmtree(self._place, ignore_errors=True)
        shutil.copytree(state, self._place)
        try:
            self._kafka.load(self._place, config=scene.CONFIG, now_ms=scene.NOW_MS, in_place=True, strict=True)
        except KafkaError:
            return True
        return False

    def problems(
        self, files: Files, log_starts: Collection[int] = (0,), modes: tuple[bool, ...] = (True, False)
    ) -> list[str]:
        """Return what is wrong after a broker has loaded the state, in each mode. States that are known cost nothing.

        `log_starts` are the offsets at which `orders-0` may start, where retention may have deleted segments.
        `modes`: with the clean-shutdown marker, and without.
        """
        seen = visible(files)
        key = (frozenset(seen.items()), frozenset(log_starts), modes)
        if key not in self._known:
            self._known[key] = [
                f"{'with' if is_clean else 'without'} the clean-shutdown marker: {problem}"
                for is_clean in modes
                for problem in self._problems(seen, is_clean, key[1])
            ]
        return self._known[key]

    def _loaded(self, files: Files, is_clean: bool) -> dict[str, _View]:
        """Load a state, which stays until the next load, and read all of it."""
        # Without the recovery points all of the log is checked, not only what comes after them.
        self._write(files if is_clean else {path: data for path, data in files.items() if path != RECOVERY_POINTS})
        self.loads += 1
        reply = self._kafka.load(
            self._place,
            config=scene.CONFIG,
            now_ms=scene.NOW_MS,
            isolation="both",
            in_place=True,
            clean_shutdown=is_clean,
            only=self._only,
        )
        return {
            name: _View(fields, tuple(fields.pop("records")), tuple(fields.pop("committed_records")))
            for name, fields in reply["partitions"].items()
        }

    def _write(self, files: Files) -> None:
        shutil.rmtree(self._place, ignore_errors=True)
        for directory in sorted({os.path.dirname(path) for path in files}):  # noqa: PTH120
            (self._place / directory).mkdir(parents=True, exist_ok=True)
        for path, data in files.items():
            with open(f"{self._place}/{path}", "wb") as file:
                file.write(data)

    def _problems(self, files: Files, is_clean: bool, log_starts: frozenset[int]) -> Iterator[str]:
        try:
            views = self._loaded(files, is_clean)
        except KafkaError as error:
            yield f"does not load: {error}"
            return
        original = self._original[is_clean]
        if views.keys() != original.keys():
            yield f"has {sorted(views)}, not {sorted(original)}"
            return
        for name, view in views.items():
            starts = log_starts if name == scene.ORDERS else frozenset({0})
            for problem in _differences(original[name], view, starts, self._ends[name]):
                yield f"{name}: {problem}"
            for problem in _segment_problems(self._place / name):
                yield f"{name}: {problem}"
            # After an unclean shutdown a broker makes all indexes anew.
            for log in sorted((self._place / name).glob("*.log")) if is_clean else ():
                if self._txn_indexes.get(log.read_bytes()) and not log.with_suffix(".txnindex").exists():
                    yield f"{name}: {log.name} stands without its .txnindex"


def _differences(original: _View, view: _View, log_starts: frozenset[int], active: int) -> Iterator[str]:
    """Yield what a reader may not see; `active` is the base offset of the active segment, which nobody changes."""
    start = view.fields["log_start_offset"]
    if start not in log_starts:
        yield f"the log starts at {start}"
    for name in SAME:
        if view.fields[name] != original.fields[name]:
            yield f"{name} was {original.fields[name]}, is {view.fields[name]}"
    for kind, before, after in (
        ("", original.records, view.records),
        ("committed ", original.committed, view.committed),
    ):
        offsets = [record.offset for record in after]
        if any(later <= earlier for earlier, later in itertools.pairwise(offsets)):
            yield f"{kind}offsets do not rise: {offsets}"
        if invented := set(after) - set(before):
            yield f"{kind}records that were not there: {sorted(record.offset for record in invented)}"
        if [record for record in after if record.offset >= active] != [
            record for record in before if record.offset >= active
        ]:
            yield f"{kind}records of the active segment differ"
    expected, found = original.latest(start), view.latest(start)
    if expected != found:
        wrong = sorted({key or b"" for key in expected.keys() | found.keys() if expected.get(key) != found.get(key)})
        yield f"the latest committed records differ of {wrong}"


def _segment_problems(directory: Path) -> Iterator[str]:
    """Yield the logs of a loaded partition that overlap, and the indexes that do not lead to batches of their log."""
    previous = -1
    for log in sorted(directory.glob("*.log")):
        base, batches = int(log.stem), _batches(log.read_bytes())
        if base <= previous:
            yield f"the log of {base} begins before the previous one ends, at {previous}"
        previous = max(batches.values(), default=base)
        for offset, position in _entries(log.with_suffix(".index"), ">ii"):
            if position and batches.get(position) != base + offset:
                yield f"the index of {base} leads from {base + offset} to {position}, where no such batch is"
        for timestamp, offset in _entries(log.with_suffix(".timeindex"), ">qi"):
            if timestamp > 0 and base + offset > previous:
                yield f"the time index of {base} has offset {base + offset}, the log ends at {previous}"


def _entries(path: Path, layout: str) -> Iterator[tuple[int, int]]:
    """Yield the whole entries of an index."""
    data = path.read_bytes() if path.exists() else b""
    size = struct.calcsize(layout)
    yield from struct.iter_unpack(layout, data[: len(data) // size * size])


def _batches(data: bytes) -> dict[int, int]:
    """Return the last offset of each batch of a log by its position. Layout: KIP-98."""
    found, position = {}, 0
    while position + 27 <= len(data):
        base, length = struct.unpack_from(">qi", data, position)
        found[position] = base + struct.unpack_from(">i", data, position + 23)[0]
        position += 12 + max(length, 0)
    return found


def checkpoint_problems(files: Files) -> Iterator[str]:
    """Yield what is wrong with the cleaner's checkpoint: malformed, or ahead of a log whose old segments are there."""
    if scene.CHECKPOINT_NAME not in files:
        return
    try:
        version, count, *lines = files[scene.CHECKPOINT_NAME].decode().splitlines()
        entries = {f"{topic}-{number}": int(end) for topic, number, end in map(str.split, lines)}
    except ValueError:
        version = count = ""
    if version != "0" or count != str(len(lines)):
        yield f"the checkpoint is malformed: {files[scene.CHECKPOINT_NAME]!r}"
        return
    for name, end in entries.items():
        old = {base for base in log_bases(files, name) if base < end} - scene.CLEANED_BASES[name]
        if old:
            yield f"{name}: the checkpoint is {end}, and old segments are still there: {sorted(old)}"


def log_bases(files: Files, name: str) -> list[int]:
    """Return the base offsets of the logs of a partition."""
    return sorted(int(Path(path).stem) for path in files if path.startswith(f"{name}/0") and path.endswith(".log"))


def visible(files: Files) -> Files:
    """Return the files that a broker reads."""
    return {path: data for path, data in files.items() if not any(part.startswith(IGNORED) for part in path.split("/"))}
