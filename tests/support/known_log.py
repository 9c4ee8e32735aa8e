"""A partition whose every record is known: it grows and is truncated as by a broker, and is compared with its files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from kcompact.format.batch import Record, build
from kcompact.format.checkpoint import LOG_START_OFFSET_CHECKPOINT, build_offset_checkpoint, parse_offset_checkpoint
from kcompact.format.names import TopicPartition
from tests.support import log_writer
from tests.support.consumer_view import read_batches, view
from tests.support.log_writer import DEFAULT_TIME, LogSpec, SegmentSpec


@dataclass(eq=False)
class KnownLog:
    """`old` are the records of all segments but the active one, which begins at `base`. `start` is the log start."""

    log_dir: Path
    name: str
    old: list[Record] = field(default_factory=list)
    active: list[Record] = field(default_factory=list)
    base: int = 0
    start: int = 0

    @staticmethod
    def written(log_dir: Path, name: str) -> KnownLog:
        """Write a new log with two closed segments."""
        log = KnownLog(log_dir, name)
        log_writer.write(LogSpec(segments=(SegmentSpec(base_offset=0),), name=name, start=0), log_dir)
        log.change(0, "abA")
        log.change(0, "bca")
        return log

    @property
    def directory(self) -> Path:
        return self.log_dir / self.name

    @property
    def partition(self) -> TopicPartition:
        partition = TopicPartition.parse(self.name)
        assert partition is not None
        return partition

    @property
    def end(self) -> int:
        return self.active[-1].offset + 1 if self.active else self.base

    def change(self, kept: int, keys: str, *, deletes: bool = False) -> None:
        """Keep so many records of the active segment, add one for each key, and roll: one is active then.

        A capital letter adds a tombstone. `deletes` moves the log start to the active segment.
        """
        self.active = self.active[:kept]
        for key in keys:
            value = None if key.isupper() else f"{self.name} {self.end}".encode()
            self.active.append(Record(self.end, DEFAULT_TIME + self.end, key.lower().encode(), value))
        self._write_active()
        self.old, self.base = [*self.old, *self.active], self.end
        self.active = [Record(self.base, DEFAULT_TIME + self.base, b"d", b"active")]
        self._write_active()
        if deletes:
            self.start = self.base
            path = self.log_dir / LOG_START_OFFSET_CHECKPOINT
            present = parse_offset_checkpoint(path.read_bytes(), file=path.name)
            path.write_bytes(build_offset_checkpoint({**present, self.partition: self.start}))

    def _write_active(self) -> None:
        log_writer.write_segment(self.directory, self.base, [build([record]) for record in self.active])

    def check(self) -> None:
        """Require the newest value of each key, no record that was never there, and the same log end."""
        found, records = view(self.log_dir, self.directory), [*self.old, *self.active]
        newest = {each.key: (each.offset, each.value) for each in records if each.offset >= self.start}
        assert found.problem == ""
        assert found.latest == {key: each for key, each in newest.items() if each[1] is not None}
        assert found.records <= {(each.offset, each.key, each.value) for each in records}
        assert max(batch.last_offset for batch in read_batches(self.directory)) + 1 == self.end
