"""What a command took, on commands of which we know it; and what counts as the same result."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from fixtures.checkout import copy_directory
from kcompact.format.batch import Record, build
from kcompact.format.codec import Codec
from kcompact.format.names import index_name
from tests.bench import logs, measured
from tests.support import log_writer
from tests.support.log_writer import LogSpec, SegmentSpec

BURN = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n"
HOLD = "import time\nheld = bytearray(b'x') * (64 << 20)\ntime.sleep(1.5)\n"


def python(program: str, cwd: Path) -> measured.Used:
    return measured.run([sys.executable, "-c", program], cwd=cwd, timeout_s=30)


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
def test_memory_of_all_processes_together(tmp_path: Path) -> None:
    program = (
        f"import subprocess, sys\nchild = subprocess.Popen([sys.executable, '-c', '''{HOLD}'''])\n{HOLD}child.wait()"
    )
    alone, both = python(HOLD, tmp_path), python(program, tmp_path)
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
    spec = LogSpec(name=logs.PARTITION, segments=(segment,), checkpoint=20, files={index_name(0): index}, lone=True)
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
        assert line.startswith("00000000000000000000.log: ")


def test_of_a_compressed_log_the_indexes_are_not_compared_but_must_be_there(tmp_path: Path) -> None:
    one = logs.fingerprint(write_partition(tmp_path / "a", Codec.ZSTD, b"x", index=b"12345678"))
    other = logs.fingerprint(write_partition(tmp_path / "b", Codec.ZSTD, b"x"))
    assert logs.differences(other, one) == []
    (tmp_path / "b" / logs.PARTITION / "00000000000000000000.index").unlink()
    assert logs.differences(logs.fingerprint(tmp_path / "b"), one) == [
        "00000000000000000000.index: missing; Kafka: index"
    ]


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
