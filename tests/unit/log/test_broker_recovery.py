"""`log.broker_recovery`: what a broker keeps of the segments from the recovery point on, and what is damage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kcompact.format.names import log_name
from kcompact.log.broker_recovery import first_recovered
from kcompact.log.directory import PartitionLog, read_log
from tests.support import log_dsl, log_writer

TEXT = "log unclean recovery={recovery}\n0: a=1 b=1\n2: a=2 b=2\n4: a=3 b=3 c=3\n7: a=4"
BATCH = 70


def recovered(log_dir: Path, harm: Callable[[Path], None], *, recovery: int = 4) -> PartitionLog:
    directory = log_writer.write(log_dsl.parse(TEXT.format(recovery=recovery)), log_dir)
    harm(directory)
    return read_log(directory, as_recovered=True)


def change(base_offset: int, at: int, *, value: int | None = None) -> Callable[[Path], None]:
    """Return a harm: alter the byte at a position of a log, or give it a value."""

    def harm(directory: Path) -> None:
        path = directory / log_name(base_offset)
        data = bytearray(path.read_bytes())
        data[at] = data[at] ^ 1 if value is None else value
        path.write_bytes(bytes(data))

    return harm


def cut(base_offset: int, size_bytes: int, tail: bytes = b"") -> Callable[[Path], None]:
    """Return a harm: keep so many bytes of a log, and append others."""

    def harm(directory: Path) -> None:
        path = directory / log_name(base_offset)
        path.write_bytes(path.read_bytes()[:size_bytes] + tail)

    return harm


def spoil_indexes(directory: Path) -> None:
    for base in (4, 7):
        for suffix in (".index", ".timeindex", ".txnindex"):
            (directory / log_name(base)).with_suffix(suffix).write_bytes(b"\xff" * 7)


@pytest.mark.parametrize(
    ("harm", "sizes", "log_end"),
    [
        (lambda directory: None, [2, 2, 3, 1], 8),
        (spoil_indexes, [2, 2, 3, 1], 8),
        (cut(7, 0), [2, 2, 3, 0], 7),
        (cut(7, 69), [2, 2, 3, 0], 7),
        (cut(7, 5), [2, 2, 3, 0], 7),
        (cut(7, 70, bytes(4096)), [2, 2, 3, 1], 8),
        (cut(7, 70, b"\x01" * 16), [2, 2, 3, 1], 8),
        (change(7, 69), [2, 2, 3, 0], 7),
        (change(7, 8), [2, 2, 3, 0], 7),  # The length: a batch of 16 MiB.
        (change(7, 11, value=13), [2, 2, 3, 0], 7),  # A batch of 25 bytes.
        (change(4, BATCH + 30), [2, 2, 1], 5),  # The broker deletes segment 7.
        (cut(4, 2 * BATCH + 60), [2, 2, 2], 6),
        (cut(4, 0), [2, 2, 0, 1], 8),  # Ends with a whole batch: nothing to cut.
    ],
)
def test_what_a_broker_keeps(tmp_path: Path, harm: Callable[[Path], None], sizes: list[int], log_end: int) -> None:
    log = recovered(tmp_path, harm)
    assert (log.damage, log.recovered_from, log.log_end_offset) == ((), 4, log_end)
    assert [segment.size_bytes // BATCH for segment in log.segments] == sizes
    assert all(segment.size_bytes % BATCH == 0 for segment in log.segments)
    assert [len(segment.files) for segment in log.segments if segment.base_offset >= 4] == [1] * (len(sizes) - 2)


@pytest.mark.parametrize(
    ("harm", "recovery", "problem"),
    [
        (change(7, 7), 4, "offset 6"),  # No checksum covers the offset.
        (change(4, BATCH + 7, value=4), 4, "base offset 4 after offset 4"),
        (change(7, 16, value=3), 4, "magic"),
        (cut(7, 0), 8, "was flushed up to offset 8, but the log now ends at offset 7"),
        (change(4, BATCH + 30), 6, "was flushed up to offset 6, but the log now ends at offset 5"),
    ],
)
def test_what_is_no_torn_end_is_damage(
    tmp_path: Path, harm: Callable[[Path], None], recovery: int, problem: str
) -> None:
    log = recovered(tmp_path, harm, recovery=recovery)
    assert [problem in str(damage) for damage in log.damage] == [True], log.damage


def test_a_log_start_above_the_end_is_damage(tmp_path: Path) -> None:
    directory = log_writer.write(log_dsl.parse("log unclean recovery=0 start=9\n0: a=1\n1: a=2"), tmp_path)
    (damage,) = read_log(directory, as_recovered=True).damage
    assert "deletes every segment" in str(damage)


@pytest.mark.parametrize(("recovery_point", "first"), [(0, 10), (10, 10), (19, 10), (20, 20), (99, 30)])
def test_the_first_recovered_segment_contains_the_recovery_point(recovery_point: int, first: int) -> None:
    assert first_recovered([10, 20, 30], recovery_point) == first


def test_the_notes_say_what_goes(tmp_path: Path) -> None:
    notes = [note.text for note in recovered(tmp_path, change(4, BATCH + 30)).notes]
    assert "reads 2 segments again, from offset 4 on" in notes[0]
    assert "torn end at position 70 (checksum" in notes[1]
    assert notes[1].endswith("the broker cuts off 140 bytes, from offset 5 on, and deletes 1 later segment")


def test_a_clean_shutdown_needs_no_recovery(tmp_path: Path) -> None:
    directory = log_writer.write(log_dsl.parse("log recovery=0\n0: a=1\n1: a=2"), tmp_path)
    log = read_log(directory, as_recovered=True)
    assert (log.recovered_from, log.needs_recovery, log.notes) == (None, False, ())
