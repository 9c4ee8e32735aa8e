"""The logs of the benchmark: built once with Kafka's own code and cached, copied for each run, compared afterwards."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.cases import LogSpec
from kcompact.format.checkpoint import CLEANER_OFFSET_CHECKPOINT, parse_offset_checkpoint
from kcompact.format.codec import Codec, decompress
from tests.oracle import driver, real_kafka

TOPIC = "prices"

JVM_OPTIONS = (
    "-server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35 "
    "-XX:+ExplicitGCInvokesConcurrent -XX:MaxInlineLevel=15 -Djava.awt.headless=true"
).split()
"""The options of `kafka-run-class.sh`, with which `kafka-server-start.sh` starts a broker."""

BROKER_HEAP_BYTES = 1 << 30
DEDUPE_BUFFER_BYTES = 128 << 20
COPY_BYTES = 16 << 20
NOT_COMPARED = {".lock", ".kafka_cleanshutdown", "meta.properties"}

OFFSET_AND_LENGTH = struct.Struct(">qi")
MAGIC_AT = 4  # after offset and length, in every format
HEADER = struct.Struct(">IbIhiqqqhii")
"""The rest of the header of a batch of magic 2: leader epoch, magic, crc, attributes, last offset delta, base and
largest timestamp, producer id and epoch, base sequence, number of records."""
OLD_HEADERS = {0: struct.Struct(">Ibb"), 1: struct.Struct(">Ibbq")}
"""The same of a record of magic 0 or 1, or of compressed ones in one: crc, magic, attributes, timestamp."""
OLD_LENGTHS = 8  # of the key, which compressed records have none of, and of the value
CODEC_BITS = 7


def java_command(program: str, *, dedupe_buffer_bytes: int = DEDUPE_BUFFER_BYTES) -> list[str]:
    """Return the command of a benchmark program in a JVM with a broker's heap, or more for a larger buffer."""
    heap = BROKER_HEAP_BYTES + max(0, dedupe_buffer_bytes - DEDUPE_BUFFER_BYTES)
    sizes = [f"-Xms{heap >> 20}m", f"-Xmx{heap >> 20}m"]
    return [real_kafka.java(), *JVM_OPTIONS, *sizes, "-cp", driver.class_path(), f"kcompact.bench.{program}"]


def dump_log_command(log_dir: Path) -> list[str]:
    """Return the command that `kafka-dump-log.sh` runs, with its heap, to list all records of a log directory.

    One argument names all files, so it has short names: the command runs in the log directory.
    """
    files = [path.relative_to(log_dir) for path in sorted(log_dir.glob("*/*.log")) if path.stat().st_size]
    tool = ["-Xmx256M", "-cp", driver.class_path(), "org.apache.kafka.tools.DumpLogSegments"]
    options = ["--deep-iteration", "--print-data-log", "--files", ",".join(map(str, files))]
    return ["env", "-C", str(log_dir), real_kafka.java(), *JVM_OPTIONS, *tool, *options]


def config_arguments(spec: LogSpec) -> list[str]:
    """Return the topic's settings, as the Java programs and kcompact take them."""
    return [word for name, value in spec.config.items() for word in ("--config", f"{name}={value}")]


def build(spec: LogSpec, cache: Path) -> Path:
    """Return the log directory of `spec`, built if the cache lacks it."""
    target = cache / spec.name
    if target.is_dir():
        return target
    unfinished = cache / f"{spec.name}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    command = [*java_command("BuildLog"), "--log-dir", str(unfinished), "--topic", TOPIC, *spec.arguments]
    done = subprocess.run([*command, *config_arguments(spec)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"building {spec.name} failed:\n{done.stderr}{done.stdout}")
    report = json.loads(done.stdout)
    print(f"  built {spec.name}: {report['size_bytes'] / 1e6:,.0f} MB in {report['wall_ms'] / 1000:.1f} s", flush=True)
    unfinished.rename(target)
    return target


def source_bytes(log_dir: Path) -> int:
    """Return the size of all `.log` files."""
    return sum(path.stat().st_size for path in log_dir.glob("*/*.log"))


def copy(source: Path, target: Path) -> None:
    """Copy a log directory with its file times: every byte is written, no extent is shared with the original."""
    shutil.copytree(source, target, copy_function=_copy_file)


def link(source: Path, target: Path) -> None:
    """Copy a log directory, but link the closed `.log` files, which a cleaner reads, replaces and never changes."""
    active = {max(partition.glob("*.log")) for partition in source.iterdir() if partition.is_dir()}

    def linked_or_copied(file: str, copied: str) -> str:
        if file.endswith(".log") and Path(file) not in active:
            os.link(file, copied)
            return copied
        return _copy_file(file, copied)

    shutil.copytree(source, target, copy_function=linked_or_copied)


def _copy_file(source: str, target: str) -> str:
    with open(source, "rb", buffering=0) as read, open(target, "wb", buffering=0) as write:
        while piece := read.read(COPY_BYTES):
            write.write(piece)
    shutil.copystat(source, target)
    return target


def drop_from_memory(directory: Path) -> None:
    """Let the kernel forget the pages of a directory's files, so that others have room."""
    for path in _files(directory):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def read_into_memory(directory: Path) -> None:
    """Read every file once, so that it is in the page cache if it fits."""
    buffer = bytearray(COPY_BYTES)
    for path in _files(directory):
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def stamp(directory: Path) -> dict[str, tuple[int, int]]:
    """Return size and modification time of each file; a command that only reads leaves them as they are."""
    return {
        str(path.relative_to(directory)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in _files(directory)
        if path.name != ".lock"
    }


def fingerprint(log_dir: Path) -> dict[str, str]:
    """Return what a cleaning left, comparable over cleaners: a value for each file and each checkpoint.

    Uncompressed files stand for their bytes. Of a `.log` with a compressed batch each header counts, but for length and
    checksum, and the inflated records, since the compressed bytes depend on the library; its indexes are only named,
    since they depend on those bytes.
    """
    found = {}
    for partition in sorted(path for path in log_dir.iterdir() if path.is_dir()):
        compressed = {path.stem for path in partition.glob("*.log") if any(batch.codec for batch in _batches(path))}
        for path in sorted(partition.iterdir()):
            if path.name in NOT_COMPARED:
                continue
            name = f"{partition.name}/{path.name}"
            if path.stem not in compressed or path.suffix == ".snapshot":
                found[name] = f"{path.stat().st_size} bytes, {_sha256(path)}"
            else:
                found[name] = _contents(path) if path.suffix == ".log" else "index"
    checkpoint = log_dir / CLEANER_OFFSET_CHECKPOINT
    entries = parse_offset_checkpoint(checkpoint.read_bytes(), file=str(checkpoint)) if checkpoint.exists() else {}
    return found | {f"checkpoint of {name}": str(offset) for name, offset in entries.items()}


def differences(found: dict[str, str], theirs: dict[str, str]) -> list[str]:
    """Return a line for each file that differs between two fingerprints."""
    return [
        f"{name}: {found.get(name, 'missing')}; Kafka: {theirs.get(name, 'missing')}"
        for name in sorted(found.keys() | theirs.keys())
        if found.get(name) != theirs.get(name)
    ]


def _files(directory: Path) -> Iterator[Path]:
    return (path for path in sorted(directory.rglob("*")) if path.is_file())


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _Batch(NamedTuple):
    """A batch as it is stored: its header without length and checksum, and its records."""

    header: tuple[int, ...]
    magic: int
    codec: Codec
    stored: bytes


def _batches(path: Path) -> Iterator[_Batch]:
    """Yield each batch; kcompact, which is measured, is not used for it."""
    with open(path, "rb", buffering=1 << 20) as file:
        while start := file.read(OFFSET_AND_LENGTH.size):
            base_offset, length = OFFSET_AND_LENGTH.unpack(start)
            rest = file.read(length)
            magic = rest[MAGIC_AT]
            if magic in OLD_HEADERS:
                yield _old_batch(base_offset, magic, rest)
            else:
                leader_epoch, _, _, *fields = HEADER.unpack_from(rest)
                header = (base_offset, leader_epoch, magic, *fields)
                yield _Batch(header, magic, Codec(fields[0] & CODEC_BITS), rest[HEADER.size :])


def _old_batch(offset: int, magic: int, rest: bytes) -> _Batch:
    """Return a record of magic 0 or 1: where its value is compressed, only that, since there is no key then."""
    layout = OLD_HEADERS[magic]
    _, _, attributes, *timestamp = layout.unpack_from(rest)
    codec = Codec(attributes & CODEC_BITS)
    stored = rest[layout.size :]
    return _Batch((offset, magic, attributes, *timestamp), magic, codec, stored[OLD_LENGTHS:] if codec else stored)


def _contents(path: Path) -> str:
    digest = hashlib.sha256()
    count = 0
    for header, magic, codec, stored in _batches(path):
        digest.update(repr(header).encode())
        # An empty batch keeps its codec and has nothing to inflate.
        digest.update(decompress(codec, stored, file=str(path), magic=magic) if stored else b"")
        count += 1
    return f"{count} batches, {digest.hexdigest()}"
