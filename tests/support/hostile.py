"""What reads bytes in kcompact, called with damaged ones: one function for each kind of file.

Each function makes one mutant from a `random.Random`, reads it in every way that there is, and returns "read" or
"refused". It raises what must not happen: any exception that is no KcompactError, and AssertionError where two readers
of the same bytes differ or a file changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from kcompact.clean import split_kernels
from kcompact.clean.job import SplitSummary
from kcompact.clean.offset_map import KeyCollector
from kcompact.clean.scan import read_split
from kcompact.clean.staged_files import CleanedSegment, StagedFile
from kcompact.clean.write import _clean_split
from kcompact.cleaner.copies import _resumed
from kcompact.cli.output.dump import LineForm, header_fields, line
from kcompact.config.broker_config import check_broker_properties
from kcompact.config.layers import topic_config
from kcompact.config.metadata_log import ORIGIN, dynamic_config, read_cluster_metadata
from kcompact.config.settings import Override, TopicOverrides, parse_override
from kcompact.errors import CorruptCheckpointError, KcompactError, UnexpectedError
from kcompact.format import index, properties, sealed_json
from kcompact.format.batch import parse_batches, read_records
from kcompact.format.checkpoint import parse_leader_epochs, parse_offset_checkpoint
from kcompact.format.messages.cluster_metadata import read_record
from kcompact.format.names import TopicPartition
from kcompact.format.producer_snapshot import parse_snapshot
from kcompact.log.directory import read_log
from kcompact.log.files import FileIdentity, LogFile
from kcompact.log.inflate import Buffers
from kcompact.log.markers import read_marker
from kcompact.log.transactions import PackedTable
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.partition import plan_partition
from kcompact.questions.verify import log as verify
from kcompact.stages.job import Split
from kcompact.swap import manifest
from kcompact.swap.copy import Output
from kcompact.swap.copy.marker import CopyMarker, FinishedDirectory, Subject
from kcompact.swap.identity import PartitionIdentity
from tests.support import log_writer, metadata_log, mutants, txn_log
from tests.support.both_readers import Readers, definition
from tests.support.command_line import kcompact
from tests.support.index_entries import aborted_txns, offset_entries, time_entries
from tests.support.jobs import JOB
from tests.support.machine_code import switched
from tests.support.metadata_records import build_record
from tests.support.mutants import Batches, any_damage, damaged_json, damaged_text, shuffled_entries
from tests.support.sealed import with_checksum

READ, REFUSED = "read", "refused"
LOG_NAME = f"{0:020d}.log"


class Hostile:
    """The mutants of one process; `seed` chooses the sound bytes, `scratch` is a directory in memory."""

    def __init__(self, seed: int, scratch: Path) -> None:
        chance = random.Random(f"{seed} pool")
        self.scratch = scratch
        self.pool = Batches(chance)
        self.template = log_writer.write(txn_log.SPEC, scratch / "template").parent
        for name, content in txn_log.CHECKPOINTS.items():
            (self.template / name).write_bytes(content)
        self._buffers = Buffers()

    @cached_property
    def readers(self) -> Readers:
        """The readers with their guarded arrays."""
        return Readers()

    # Batches

    def batches(self, chance: random.Random) -> str:
        """Batches, by the definitions and by the kernels."""
        data = self.pool.several(chance)
        by_kernels = self.readers.by_kernels(data)
        try:
            expected = self.readers.by_definition(data)
        except KcompactError:
            assert by_kernels is None, "the kernels read what the definition refuses"
            return REFUSED
        if by_kernels is None:
            assert any(one.header.magic < 2 for one in parse_batches(data, file="")), "the kernels refuse it"
        else:
            assert by_kernels == expected, "other contents"
        path = self.scratch / LOG_NAME
        path.write_bytes(data)  # The checksums of old formats are read from the file again.
        form = LineForm(label="", file=LogFile.at(path), print_data=True)
        for one in parse_batches(data, file=""):
            line(header_fields(one.header, one.position, is_valid=True))
            with contextlib.suppress(KcompactError):
                if one.header.is_control:
                    read_marker(one, file="")
                for record in read_records(one, file=""):
                    form.record_line(one.header, one.position, record)
        return READ

    def splits(self, chance: random.Random) -> str:
        """Batches in a file, scanned and filtered by the definitions and by the kernels."""
        data = self.pool.several(chance)
        path = self.scratch / LOG_NAME
        path.write_bytes(data)
        job = replace(
            JOB,
            directory=str(self.scratch),
            upper_bound_offset=1 << 40,
            first_dirty_offset=chance.choice((0, 40, 1 << 32)),
            now_ms=mutants.T + chance.choice((-5, 0, 10**9)),
            delete_retention_ms=chance.choice((0, 1000, 2**63 - 1)),
        )
        split = Split(
            log=LogFile.at(path),
            start_position=0,
            end_position=len(data),
            base_offset=0,
            end_offset=1 << 62,
            check_index=False,
        )
        readable, compiled = KeyCollector(1, 1 << 20), KeyCollector(1, 1 << 20)
        summary = split_kernels.scan_split(job, split, compiled, self._buffers)
        try:
            expected = read_split(job, split, readable)
        except KcompactError:
            assert summary is None, "the kernels scan what the definition refuses"
            return REFUSED
        if summary is None:
            assert any(one.header.magic < 2 for one in parse_batches(data, file="")), "the kernels refuse it"
            return READ
        assert _comparable(summary) == _comparable(expected), "another summary"
        assert list(compiled.finish()) == list(readable.finish()), "other keys"
        survivors = np.frombuffer(bytearray(chance.randbytes(summary.records // 8 + 1)), np.uint8)
        found = split_kernels.filter_split(job, split, survivors, summary.unkeyed_or_tombstones, self._buffers)
        assert found is not None
        ours = _or_refused(lambda: b"".join(piece for run in found for piece in run.pieces))
        expected_bytes = _or_refused(
            lambda: b"".join(piece for run in _clean_split(job, split, survivors) for piece in run.pieces)
        )
        assert ours == expected_bytes, "other bytes are written"
        if ours is not None:
            definition(ours)
            assert len(ours) <= summary.most_bytes, "more bytes than the scan has said"
        return REFUSED if ours is None else READ

    # Indexes and snapshots

    def indexes(self, chance: random.Random) -> str:
        """An `.index` or a `.timeindex`, strictly and tolerantly, and the same as entry by entry."""
        is_offsets = chance.random() < 0.5
        entry_bytes = index.OFFSET_ENTRY_BYTES if is_offsets else index.TIME_ENTRY_BYTES
        parse: Callable[..., Any] = index.parse_offset_index if is_offsets else index.parse_time_index
        count = chance.choice((0, 1, 2, 5, 20))
        steps = [chance.choice((1, 1, 7, 1 << 16)) for _ in range(count)]
        rising = [(sum(steps[:at]) + 1, at * 100 + 60) for at in range(count)]
        build: Callable[..., bytes] = index.build_offset_index if is_offsets else index.build_time_index
        data = build(rising)
        data = shuffled_entries(chance, data, entry_bytes) if chance.random() < 0.6 else any_damage(chance, data)
        base_offset = chance.choice((0, 0, 9, 2**63 - 1, 2**63 - 2**31))
        parse(data, base_offset=base_offset, file="", tolerant=True)
        found = _or_refused(lambda: list(parse(data, base_offset=base_offset, file="")))
        definition = offset_entries if is_offsets else time_entries
        expected = _or_refused(lambda: definition(data, base_offset=base_offset, file=""))
        assert found == expected, f"{found}, not {expected}"
        if found is not None and is_offsets:
            index.lookup(found, base_offset + 5, base_offset=base_offset)
        elif found is not None:
            index.last_time_entry(found, base_offset=base_offset)
        return REFUSED if found is None else READ

    def txn_indexes(self, chance: random.Random) -> str:
        """A `.txnindex`, and the same entry by entry."""
        count = chance.choice((0, 1, 2, 5))
        entries = [struct.pack(">hqqqq", 0, 7, at * 10, at * 10 + 5, at * 10 + 6) for at in range(count)]
        data = b"".join(entries)
        data = shuffled_entries(chance, data, 34) if chance.random() < 0.6 else any_damage(chance, data)
        base_offset = chance.choice((0, 9))
        found = _or_refused(lambda: list(index.parse_txn_index(data, base_offset=base_offset, file="")))
        expected = _or_refused(lambda: aborted_txns(data, base_offset=base_offset, file=""))
        assert found == expected, f"{found}, not {expected}"
        return REFUSED if found is None else READ

    def snapshots(self, chance: random.Random) -> str:
        """A `.snapshot`, most with a right checksum and count."""
        data = bytearray(any_damage(chance, self._file(f"{19:020d}.snapshot")))
        if chance.random() < 0.8 and len(data) >= 10:
            if chance.random() < 0.7:
                data = data[: 10 + (len(data) - 10) // 46 * 46]
                struct.pack_into(">i", data, 6, (len(data) - 10) // 46)
            struct.pack_into(">I", data, 2, _crc32c(bytes(data[6:])))
        return _verdict(lambda: parse_snapshot(bytes(data), file=""))

    def _file(self, name: str) -> bytes:
        return (self.template / txn_log.SPEC.name / name).read_bytes()

    # Text

    def checkpoints(self, chance: random.Random) -> str:
        """An offset checkpoint or leader epochs."""
        if chance.random() < 0.5:
            data = damaged_text(chance, b"0\n3\norders 0 42\norders 1 7\nclicks-eu 11 9000000000\n")
            return _verdict(lambda: parse_offset_checkpoint(data, file=""))
        data = damaged_text(chance, b"0\n2\n0 0\n3 120\n")
        return _verdict(lambda: parse_leader_epochs(data, file=""))

    def small_files(self, chance: random.Random) -> str:
        """`partition.metadata`, `meta.properties`."""
        if chance.random() < 0.5:
            data = damaged_text(chance, b"version: 0\ntopic_id: QNLMCLnWRESZK_ap_Xld8w")
            return _verdict(lambda: properties.parse_partition_metadata(data, file=""))
        data = damaged_text(
            chance, b"#\ncluster.id=4L6g3nShT-eMCtK--X86sw\nnode.id = 1\nversion:1\nbroker.id=1\na=b\\\n c\n"
        )
        return _verdict(lambda: properties.parse_meta_properties(data, file=""))

    def settings(self, chance: random.Random) -> str:
        """`server.properties` and overrides, as far as the configuration of a topic."""
        data = damaged_text(chance, _SERVER_PROPERTIES)
        words = damaged_text(chance, chance.choice(_OVERRIDES)).decode("utf-8", "replace")

        def configure() -> None:
            found = properties.parse_java_properties(data, file="")
            check_broker_properties(found, file="server.properties")
            topic_config("orders", broker_properties=found)
            override = parse_override(words)
            topic_config("orders", broker_properties=found, overrides=[override])
            topic_config("orders", overrides=[Override(name=override.name, value=chance.choice(list(found.values())))])

        return _verdict(configure)

    # JSON

    def manifests(self, chance: random.Random) -> str:
        """A manifest of a swap. Its caller expects the errors of a JSON parser."""
        data = _damaged_document(chance, _MANIFEST)
        try:
            found = manifest.decode(data)
        except (ValueError, RecursionError):
            return REFUSED
        manifest.encode(found)
        return READ

    def journals(self, chance: random.Random) -> str:
        """The subject and the record of an unfinished copy. Files, recipe and offsets are only compared."""
        marker = self.scratch / ".kcompact-copy"
        marker.mkdir(exist_ok=True)
        (marker / "copy.json").write_bytes(_damaged_document(chance, _SUBJECT_JSON))
        (marker / "0.json").write_bytes(_damaged_document(chance, _RECORD_JSON))
        journal = CopyMarker(self.scratch, _SUBJECT)
        try:
            subject, records = journal.read_subject(), journal.records()
        except CorruptCheckpointError:
            return REFUSED
        for record in records.values():
            with contextlib.suppress(CorruptCheckpointError):
                str(_resumed(self._plan, record.outcome, Output(self.scratch / "out", [])))
        return READ if subject == _SUBJECT else REFUSED

    @cached_property
    def _plan(self) -> CleanPlan:
        return plan_partition(self.template / txn_log.SPEC.name, txn_log.SPEC.config, now_ms=txn_log.NOW)

    # Metadata

    def metadata_records(self, chance: random.Random) -> str:
        """One record of a metadata log."""
        data = any_damage(chance, build_record(chance.choice(_METADATA)))
        return _verdict(lambda: read_record(data, file="", position=0, offset=0))

    def metadata_logs(self, chance: random.Random) -> str:
        """A metadata log with a snapshot, as far as the configuration of a topic."""
        log_dir = self.scratch / "metadata"
        log = metadata_log.batches(_METADATA, start=5)
        snapshot = metadata_log.snapshot(_METADATA[:3])
        files = {metadata_log.log(5): log, f"{5:020d}-{1:010d}.checkpoint": snapshot}
        name = chance.choice(list(files))
        files[name] = _damaged_log(chance, files[name])
        if log_dir.exists():
            shutil.rmtree(log_dir)
        metadata_log.write(log_dir, files, clean=chance.random() < 0.5)

        def configure() -> None:
            found = read_cluster_metadata(log_dir)
            for topic, known in found.topics.items() if found else ():
                assert found is not None
                own = TopicOverrides(values=known.overrides, origin=ORIGIN)
                topic_config(topic, own=own, dynamic=dynamic_config(found, node_id=1))

        with unchanged(log_dir):
            return _verdict(configure)

    # Directories

    def directories(self, chance: random.Random) -> str:
        """A partition directory with a damaged file: planned, and verified by the definitions and the kernels."""
        with self._damaged_log_dir(chance) as directory:
            now_ms = txn_log.NOW
            verdict = _verdict(lambda: plan_partition(directory, txn_log.SPEC.config, now_ms=now_ms))
            found = []
            for compiled in (False, True):
                with switched(compiled=compiled):
                    found.append(_or_refused(lambda: verify.verify_log(read_log(directory))))
            assert repr(found[0]) == repr(found[1]), f"findings differ: {found}"
        return verdict

    def commands(self, chance: random.Random) -> str:
        """A whole command on a log directory with a damaged file, or on the damaged file alone."""
        with self._damaged_log_dir(chance) as directory:
            files = [path for path in directory.parent.rglob("*") if path.is_file()]
            compact = ("--config", "cleanup.policy=compact", "--now", str(txn_log.NOW))
            command: tuple[str | Path, ...] = chance.choice(
                (
                    ("verify", directory),
                    ("inspect", directory.parent),
                    ("inspect", "--json", directory),
                    ("inspect", "--batches", directory),
                    ("records", "--print-data", "--json", directory),
                    ("verify", chance.choice(files)),
                    ("inspect", chance.choice(files)),
                    ("plan", *compact, directory.parent),
                    ("plan", *compact, "--json", "--force", directory),
                    ("plan", "--broker-config", chance.choice(files), "--now", str(txn_log.NOW), directory),
                    ("clean", "--dry-run", "--engine", "in-process", *compact, directory.parent),
                    ("clean", "--dry-run", "--rebuild-indexes", "--engine", "in-process", *compact, directory),
                )
            )
            ran = kcompact(*command)
            words = " ".join(str(word) for word in command)
            assert ran.code in (0, 2, 3, 4, 6), f"{words}: exit {ran.code}: {ran.err[-500:]}"
            assert UnexpectedError.__name__ not in ran.err, ran.err
            assert "Traceback" not in ran.err, ran.err
        return READ if ran.code == 0 else REFUSED

    @contextlib.contextmanager
    def _damaged_log_dir(self, chance: random.Random) -> Iterator[Path]:
        """Give a partition directory in which one file is damaged, and look whether anything changes."""
        log_dir = self.scratch / "log-dir"
        shutil.copytree(self.template, log_dir)
        try:
            files = sorted(path for path in log_dir.rglob("*") if path.is_file())
            path = chance.choice([*files, *log_dir.rglob("*.log"), *log_dir.rglob("*.log")])
            path.write_bytes(_damaged_file(chance, path))
            with unchanged(log_dir):
                yield log_dir / txn_log.SPEC.name
        finally:
            shutil.rmtree(log_dir)


# Damage by the kind of the file


def _damaged_file(chance: random.Random, path: Path) -> bytes:
    data = path.read_bytes()
    if path.suffix == ".log":
        return _damaged_log(chance, data)
    entry_bytes = {".index": 8, ".timeindex": 12, ".txnindex": 34}.get(path.suffix)
    if entry_bytes is not None and chance.random() < 0.5:
        return shuffled_entries(chance, data, entry_bytes)
    if path.suffix == ".snapshot":
        changed = bytearray(any_damage(chance, data)[: len(data)].ljust(len(data), b"\0"))
        struct.pack_into(">I", changed, 2, _crc32c(bytes(changed[6:])))
        return bytes(changed)
    return any_damage(chance, data) if entry_bytes is not None else damaged_text(chance, data)


def _damaged_log(chance: random.Random, data: bytes) -> bytes:
    """Return the batches of a file with one of them damaged, or exchanged, repeated or cut off."""
    found = [bytes(one.data) for one in parse_batches(data, file="")]
    at = chance.randrange(len(found))
    kind = chance.randrange(8)
    if kind == 0:
        found.insert(at, chance.choice(found))
    elif kind == 1:
        chance.shuffle(found)
    elif kind == 2:
        del found[at]
    elif kind == 3:
        return any_damage(chance, data)
    else:
        found[at] = chance.choice(mutants.BATCH_DAMAGE)(chance, found[at])
    return b"".join(found)


def _damaged_document(chance: random.Random, document: object) -> bytes:
    """Return a damaged document; mostly with the right checksum, so that what is behind the checksum is tried."""
    content = _damaged_json(chance, document)
    return content if chance.random() < 0.1 else with_checksum(content)


def _damaged_json(chance: random.Random, document: object) -> bytes:
    kind = chance.random()
    if kind < 0.02:
        return chance.choice((b"[", b'{"a":')) * 100_000
    if kind < 0.05:
        return json.dumps(document).replace("1", "1" * 5_000, 1).encode()
    if kind < 0.25:
        return any_damage(chance, json.dumps(document).encode())
    for _ in range(chance.choice((1, 1, 2))):
        document = damaged_json(chance, document)
    return json.dumps(document).encode()


# Verdicts


def _verdict(read: Callable[[], object]) -> str:
    try:
        read()
    except UnexpectedError:
        raise
    except KcompactError:
        return REFUSED
    return READ


def _comparable(summary: SplitSummary) -> tuple[object, ...]:
    """Return what both ways of scanning must agree on: all but an upper bound, and the table unpacked."""
    unpacked = summary.transactional.table.tolist()
    return (*summary._replace(most_bytes=0, transactional=PackedTable((), ())), unpacked)


def _or_refused(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except KcompactError:
        return None


@contextlib.contextmanager
def unchanged(directory: Path) -> Iterator[None]:
    """Raise AssertionError if a file below is changed, added or removed in the block; `.lock` does not count."""
    before = _states(directory)
    yield
    after = _states(directory)
    assert after == before, f"changed on the disk: {sorted(set(before.items()) ^ set(after.items()))}"


def _states(directory: Path) -> dict[str, tuple[str, int]]:
    found = {}
    for folder, _, names in os.walk(directory):
        for name in names:
            path = Path(folder, name)
            if name != ".lock":
                found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns
    return found


def _crc32c(data: bytes) -> int:
    import crc32c

    return int(crc32c.crc32c(data))


# Sound documents

_SERVER_PROPERTIES = b"""# a broker
log.cleaner.min.cleanable.ratio=0.5
log.cleaner.delete.retention.ms = 86400000
log.cleaner.min.compaction.lag.ms:0
log.segment.bytes 1073741824
log.cleanup.policy=compact,delete
log.index.interval.bytes=4096
log.retention.hours=168
producer.id.expiration.ms=86400000
compression.type=producer
"""
_OVERRIDES = (
    b"orders:cleanup.policy=compact",
    b"min.cleanable.dirty.ratio=0.5",
    b"delete.retention.ms=86400000",
    b"segment.bytes=1048576",
    b"log.cleaner.max.compaction.lag.ms=1",
)
_MANIFEST = sealed_json.unsealed(
    manifest.encode(
        manifest.Manifest(
            identity=PartitionIdentity(topic_partition=TopicPartition("orders", 0)),
            end_offset=19,
            pid=1,
            groups=tuple(
                CleanedSegment(
                    base_offset=base,
                    files=(StagedFile(name=f"{base:020d}.log", staged_as=f"{base}-x.log", size_bytes=9, crc32c=7),),
                    replaces=(
                        FileIdentity(name=f"{base:020d}.log", device=1, inode=2, size_bytes=3, mtime_ns=4),
                        FileIdentity(name=f"{base + 9:020d}.log", device=1, inode=5, size_bytes=3, mtime_ns=4),
                    ),
                )
                for base in (0, 17)
            ),
        )
    )
)
_SUBJECT = Subject(is_whole=True, directories=["/logs/orders-0"], log_dirs={"/logs": None})
_SUBJECT_JSON = {
    "version": 3,
    "is_whole": True,
    "directories": ["/logs/orders-0"],
    "log_dirs": {"/logs": None},
}
_RECORD_JSON = {
    field: {
        "name": "orders-0",
        "recipe": {"now_ms": 1},
        "outcome": {"status": "copied"},
        "offsets": {"cleaner-offset-checkpoint": 3},
        "source": [["a", 1, 2], ["b", 3, 4]],
        "copy": [["a", 1, 2]],
    }[field]
    for field in FinishedDirectory.__dataclass_fields__
}
_METADATA = [
    *metadata_log.topic("orders", metadata_log.ORDERS, cleanup_policy="compact", min_compaction_lag_ms="0"),
    *metadata_log.topic("users", metadata_log.USERS, segment_bytes="1048576"),
    metadata_log.of_broker("1", "log.cleaner.min.cleanable.ratio", "0.2"),
    metadata_log.of_broker("", "log.retention.ms", "1000"),
]
