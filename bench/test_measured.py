"""What a command took, on commands of which we know it; and what counts as the same result."""

from __future__ import annotations

import os
import shutil
import struct
import sys
import zlib
from pathlib import Path

import pytest

from bench import logs, measured
from fixtures.checkout import copy_directory
from kcompact.format.batch import Record, build
from kcompact.format.codec import Codec, compress
from kcompact.format.names import index_name, log_name
from tests.support import log_writer
from tests.support.log_writer import LogSpec, SegmentSpec

PARTITION = "prices-0"
BURN = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n"
HOLD = "held = bytearray(b'x') * (64 << 20)\n"
SEEN = """
import os, pathlib, time
def waits():
    states = [each.read_text() for each in pathlib.Path("/proc", str(os.getppid()), "task").glob("*/status")]
    return sum(int(state.rpartition("nonvoluntary")[0].split()[-1]) for state in states)
end = waits() + 20
while waits() < end:
    time.sleep(0.02)
"""
"""Waits until the measuring process has looked several times: it waits before each look."""


def python(program: str, cwd: Path) -> measured.Used:
    return measured.run([sys.executable, "-c", program], cwd=cwd, timeout_s=30)


def test_a_command_and_its_children_are_bound_to_so_many_cores(tmp_path: Path) -> None:
    program = "import os, subprocess, sys\nprint(len(os.sched_getaffinity(0)), flush=True)\n"
    program += f"subprocess.run([sys.executable, '-c', {program!r}])"
    command = [sys.executable, "-c", program]
    assert measured.run(command, cwd=tmp_path, timeout_s=30, cores=1).output == "1\n1\n"
    every = len(os.sched_getaffinity(0))
    assert measured.run(command, cwd=tmp_path, timeout_s=30).output == f"{every}\n{every}\n"


def test_waiting_is_counted(tmp_path: Path) -> None:
    # A few are over before the process has begun to wait.
    used = python("import time\nfor _ in range(400): time.sleep(0.0001)", tmp_path)
    assert used.waits >= 300


@pytest.mark.long
def test_wall_time_and_processor_time(tmp_path: Path) -> None:
    used = python(f"{BURN}time.sleep(0.4)\nprint('done')", tmp_path)
    assert used.wall_s >= 0.7
    assert 0.3 <= used.cpu_s < used.wall_s
    assert used.output == "done\n"


@pytest.mark.long
def test_children_count(tmp_path: Path) -> None:
    used = python(f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', '''{BURN}'''])", tmp_path)
    assert used.cpu_s >= 0.3
    assert used.processes == 2


@pytest.mark.long
def test_an_orphan_in_a_session_of_its_own_counts_and_is_waited_for(tmp_path: Path) -> None:
    started = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', '''{BURN}'''], start_new_session=True)"
    used = python(f"import warnings\nwarnings.simplefilter('ignore')\n{started}\nsys.stdout.flush()", tmp_path)
    assert used.cpu_s >= 0.3
    assert used.lingered_s > 0


@pytest.mark.long
def test_memory_of_all_processes_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KCOMPACT_BENCH_SHARE_OF_TIME", "1000")  # However long a look takes, the next one follows.
    child = f"import sys\n{HOLD}print(flush=True)\nsys.stdin.read()"
    program = (
        "import subprocess, sys\npipes = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE}\n"
        f"child = subprocess.Popen([sys.executable, '-c', '''{child!s}'''], **pipes)\n"
        f"{HOLD}child.stdout.readline()\n{SEEN}child.communicate()"
    )
    alone, both = python(HOLD + SEEN, tmp_path), python(program, tmp_path)
    assert 64 << 20 < alone.peak_bytes < 90 << 20
    assert 128 << 20 < both.peak_bytes < 160 << 20
    assert both.peak_bytes <= both.peak_resident_bytes


def test_a_failure_is_told_with_what_was_said(tmp_path: Path) -> None:
    with pytest.raises(measured.CommandFailedError, match="no such thing"):
        python("import sys\nsys.exit('no such thing')", tmp_path)


@pytest.mark.long
def test_what_goes_on_afterwards_is_ended_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KCOMPACT_BENCH_MAY_LINGER_S", "0.2")
    program = "import os, time\nif os.fork() == 0:\n    time.sleep(60)"
    with pytest.raises(measured.CommandFailedError, match="left processes running"):
        python(program, tmp_path)


def write_partition(log_dir: Path, codec: Codec, value: bytes, *, index: bytes = b"") -> Path:
    """Write a partition of one batch, its checkpoint, and these bytes as its `.index`; return the log directory."""
    records = [Record(n, 1000 + n, b"key-%d" % n, value * 50, ()) for n in range(20)]
    segment = SegmentSpec(base_offset=0, batches=(build(records, codec=codec),))
    spec = LogSpec(name=PARTITION, segments=(segment,), checkpoint=20, files={index_name(0): index}, lone=True)
    log_writer.write(spec, log_dir)
    return log_dir


def test_the_same_result_has_the_same_fingerprint(tmp_path: Path) -> None:
    first = logs.fingerprint(write_partition(tmp_path / "a", Codec.NONE, b"x"))
    assert logs.differences(logs.fingerprint(write_partition(tmp_path / "b", Codec.NONE, b"x")), first) == []
    assert first["checkpoint of prices-0"] == "20"


def test_another_value_makes_another_fingerprint(tmp_path: Path) -> None:
    for codec in (Codec.NONE, Codec.LZ4, Codec.ZSTD):
        one = logs.fingerprint(write_partition(tmp_path / f"a{codec}", codec, b"x"))
        other = logs.fingerprint(write_partition(tmp_path / f"b{codec}", codec, b"y"))
        (line,) = logs.differences(other, one)
        assert line.startswith("prices-0/00000000000000000000.log: ")


def test_of_a_compressed_log_the_indexes_are_not_compared_but_must_be_there(tmp_path: Path) -> None:
    one = logs.fingerprint(write_partition(tmp_path / "a", Codec.ZSTD, b"x", index=b"12345678"))
    other = logs.fingerprint(write_partition(tmp_path / "b", Codec.ZSTD, b"x"))
    assert logs.differences(other, one) == []
    (tmp_path / "b" / PARTITION / "00000000000000000000.index").unlink()
    assert logs.differences(logs.fingerprint(tmp_path / "b"), one) == [
        "prices-0/00000000000000000000.index: missing; Kafka: index"
    ]


def write_old(log_dir: Path, *, magic: int, value: bytes, codec: Codec) -> Path:
    """Write a partition of one record of an old format, compressed or not; return the log directory."""
    (log_dir / PARTITION).mkdir(parents=True)
    timestamp = struct.pack(">q", 1000) if magic else b""
    stored = compress(codec, value * 50)
    fields = struct.pack(">bb", magic, codec) + timestamp + struct.pack(">ii", -1, len(stored)) + stored
    message = struct.pack(">I", zlib.crc32(fields)) + fields
    (log_dir / PARTITION / log_name(0)).write_bytes(struct.pack(">qi", 7, len(message)) + message)
    return log_dir


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_old_formats_are_compared_by_what_they_hold(tmp_path: Path, magic: int, codec: Codec) -> None:
    one = logs.fingerprint(write_old(tmp_path / "a", magic=magic, value=b"x", codec=codec))
    same = logs.fingerprint(write_old(tmp_path / "b", magic=magic, value=b"x", codec=codec))
    other = logs.fingerprint(write_old(tmp_path / "c", magic=magic, value=b"y", codec=codec))
    assert logs.differences(same, one) == []
    assert len(logs.differences(other, one)) == 1


def test_a_missing_partition_differs(tmp_path: Path) -> None:
    one = write_partition(tmp_path / "a", Codec.NONE, b"x")
    shutil.copytree(one / PARTITION, one / "prices-1")
    other = logs.fingerprint(write_partition(tmp_path / "b", Codec.NONE, b"x"))
    assert all(line.startswith("prices-1/") for line in logs.differences(other, logs.fingerprint(one)))
    assert logs.differences(other, logs.fingerprint(one))


def test_a_linked_copy_shares_the_closed_logs_and_nothing_else(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / PARTITION).mkdir(parents=True)
    names = [log_name(0), index_name(0), log_name(5), index_name(5)]
    for name in names:
        (source / PARTITION / name).write_bytes(name.encode())
    logs.link(source, tmp_path / "copy")
    shared = [name for name in names if (tmp_path / "copy" / PARTITION / name).stat().st_nlink > 1]
    assert shared == [log_name(0)]
    assert logs.stamp(tmp_path / "copy") == logs.stamp(source)


def test_a_missing_file_and_another_checkpoint_differ(tmp_path: Path) -> None:
    one = logs.fingerprint(write_partition(tmp_path / "a", Codec.NONE, b"x"))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    (tmp_path / "b" / "cleaner-offset-checkpoint").write_text("0\n1\nprices 0 19\n", encoding="ascii")
    assert logs.differences(logs.fingerprint(tmp_path / "b"), one) == ["checkpoint of prices-0: 19; Kafka: 20"]


def test_a_copy_is_the_same_and_shares_nothing(tmp_path: Path) -> None:
    source = copy_directory("fruit-prices", "before", tmp_path / "source")
    logs.copy(source, tmp_path / "copy")
    assert logs.stamp(tmp_path / "copy") == logs.stamp(source)
    for path in source.rglob("*"):
        if path.is_file():
            copied = tmp_path / "copy" / path.relative_to(source)
            assert copied.read_bytes() == path.read_bytes()
            assert copied.stat().st_ino != path.stat().st_ino
