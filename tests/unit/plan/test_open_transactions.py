"""`plan --explain` asks `__transaction_state` who ends the transaction that holds a log back, and when."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kcompact.format.batch import Record, build
from kcompact.log.directory import PartitionLog, read_log
from kcompact.plan import transactions
from tests.support import log_dsl, log_writer
from tests.support.command_line import flip, kcompact
from tests.support.coordinator_keys import transaction_key, transaction_value

LOG = "00000000000000000000.log"
HELD = "0: a=1 a=2(pid=7 txn)\n2: b=1\n3: b=3\nsnapshot 4: pid=7 last=1 seq=0 open=1"
"""The transaction was written at 9:00 and begins in the first of two closed segments."""
AS_BEFORE = "; kafka-transactions.sh find-hanging, then abort"
UNKNOWN = f"; transactional.id unknown{AS_BEFORE}"
KEY = transaction_key("payments")
ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_ABORT = 1, 2, 3, 5
NO_TIMEOUT = 2**31 - 1


def state(status: int = ONGOING, **changed: Any) -> bytes:
    given: dict[str, Any] = {"producer_id": 7, "epoch": 0, "partitions": {"clicks": [3], "orders": [1, 0]}}
    times = {"start_ms": log_dsl.time_of("08:59"), "timeout_ms": 3_600_000}
    return transaction_value(status=status, **(given | times | changed))


def write_states(log_dir: Path, *states: tuple[bytes, bytes | None], partition: int = 0) -> Path:
    """Write a batch for each record, as a coordinator does, and return the log."""
    directory = log_dir / f"__transaction_state-{partition}"
    directory.mkdir()
    batches = [build([Record(offset, 5, key, value)]) for offset, (key, value) in enumerate(states)]
    (directory / LOG).write_bytes(b"".join(batches))
    return directory / LOG


def write_log(log_dir: Path, text: str = HELD, name: str = "orders-0") -> Path:
    return log_writer.write(log_dsl.parse(f"log name={name} now=10:00\n{text}"), log_dir)


def sentence(*directories: Path, now: str = "10:00") -> str:
    """Return what `plan --explain` says of the last stable offset of the first partition."""
    arguments = ("--config", "cleanup.policy=compact", "--now", f"2024-01-01T{now}Z")
    ran = kcompact("plan", "--explain", "--json", *arguments, *directories)
    (entry,) = [each for each in ran.json["partitions"] if each["topic"] == "orders"]
    (found,) = [each for each in entry["explain"]["conditions"] if each["name"] == "last-stable-offset"]
    return str(found["explanation"])


DECIDED = "; transactional.id payments; its coordinator has decided to"
TIMEOUT = "; transactional.id payments; transaction.timeout.ms 3600000 has passed at 2024-01-01T09:59:00.001Z, so its "


@pytest.mark.parametrize(
    ("value", "now", "said"),
    [
        (
            state(),
            "09:59:00",
            "; transactional.id payments; unless its producer ends it, its coordinator aborts it from "
            "2024-01-01T09:59:00.001Z on, by transaction.timeout.ms 3600000",
        ),
        (state(), "09:59:00.001", f"{TIMEOUT}coordinator aborts it as soon as it runs"),
        (
            state(timeout_ms=NO_TIMEOUT),
            "10:00:00",
            "; transactional.id payments; it has no timeout, so only its producer ends it",
        ),
        (
            state(PREPARE_COMMIT),
            "10:00:00",
            f"{DECIDED} commit it, and writes the marker as soon as it runs",
        ),
        (
            state(PREPARE_ABORT, epoch=2),
            "10:00:00",
            f"{DECIDED} abort it, and writes the marker as soon as it runs",
        ),
    ],
    ids=["before-timeout", "after-timeout", "no-timeout", "prepare-commit", "prepare-abort-of-next-epoch"],
)
def test_a_coordinator_that_has_the_transaction(value: bytes, now: str, said: str, tmp_path: Path) -> None:
    log = write_log(tmp_path)
    write_states(tmp_path, (transaction_key("other"), state(producer_id=8)), partition=3)
    write_states(tmp_path, (KEY, state(COMPLETE_ABORT)), (KEY, value), partition=17)
    assert sentence(log, now=now).endswith(f"last record 2024-01-01T09:00:00Z{said}")


@pytest.mark.parametrize(
    ("value", "hangs"),
    [(None, True), (state(), False), (state(timeout_ms=NO_TIMEOUT), False), (state(epoch=1), True)],
    ids=["no-state", "ongoing", "no-timeout", "next-epoch"],
)
def test_doctor_calls_hanging_what_no_coordinator_ends(value: bytes | None, hangs: bool, tmp_path: Path) -> None:
    write_log(tmp_path)
    write_states(tmp_path, *([] if value is None else [(KEY, value)]))
    ran = kcompact("doctor", "--json", "--config", "cleanup.policy=compact", "--now", "2024-01-01T10:00:00Z", tmp_path)
    assert ("hanging-transaction" in {each["finding"] for each in ran.json["findings"]}) == hangs


@pytest.mark.parametrize(
    "value",
    [
        state(COMPLETE_ABORT, partitions={}),
        state(epoch=1),
        state(PREPARE_COMMIT, epoch=-1),
        state(partitions={"orders": [1], "clicks": [0]}),
    ],
    ids=["ended", "next-epoch", "epoch-before", "other-partitions"],
)
def test_a_coordinator_that_does_not_have_it(value: bytes, tmp_path: Path) -> None:
    log = write_log(tmp_path)
    write_states(tmp_path, (KEY, state()), (KEY, value))
    named = "; transactional.id payments, whose state does not have it; "
    assert sentence(log).endswith(f"{named}kafka-transactions.sh find-hanging, then abort")
    assert sentence(log, now="09:10").endswith(
        f"{named}not longer ago than transaction.max.timeout.ms, so its producer or coordinator may still end it"
    )


@pytest.mark.parametrize(
    "states",
    [
        [],
        [(KEY, state(producer_id=8))],
        [(KEY, state()), (KEY, None)],
        [(KEY, state()), (KEY, state(producer_id=8))],
        [(KEY, state()), (KEY, b"\0\x63" + state()[2:])],
        [(KEY, state()[:-1])],
        [(KEY, b"")],
        [(b"\0\x63" + KEY[2:], state())],
    ],
    ids=["empty", "other-producer", "tombstone", "new-producer", "version-99", "cut", "no-version", "type-99"],
)
def test_an_unknown_producer(states: Sequence[tuple[bytes, bytes | None]], tmp_path: Path) -> None:
    log = write_log(tmp_path)
    assert sentence(log).endswith(UNKNOWN)
    write_states(tmp_path, *states)
    assert sentence(log).endswith(UNKNOWN)


def test_damage_and_locked_files_are_no_error(tmp_path: Path) -> None:
    log = write_log(tmp_path)
    path = write_states(tmp_path, (KEY, state()), (KEY, state(COMPLETE_ABORT)))
    flip(path, path.stat().st_size - 1)
    assert sentence(log).endswith(UNKNOWN)
    path.unlink()
    os.mkfifo(path)
    assert sentence(log).endswith(UNKNOWN)
    path.unlink()
    assert sentence(log).endswith(UNKNOWN)


def test_the_state_beside_another_log_directory_does_not_count(tmp_path: Path) -> None:
    log = write_log(tmp_path / "logs")
    (tmp_path / "other").mkdir()
    write_states(tmp_path / "other", (KEY, state()))
    assert sentence(log).endswith(UNKNOWN)


def test_names_cannot_control_a_terminal(tmp_path: Path) -> None:
    log = write_log(tmp_path)
    write_states(tmp_path, (transaction_key("a\x1b[31m\nb"), state()))
    assert r"transactional.id a\x1b[31m\x0ab; " in sentence(log)


def test_states_are_read_once_and_only_for_what_is_held_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log with a transaction that began in the active segment is not held back."""
    read: list[str] = []

    def counted(directory: Path, **options: Any) -> PartitionLog:
        read.append(directory.name)
        return read_log(directory, **options)

    monkeypatch.setattr(transactions, "read_log", counted)
    begun = write_log(tmp_path, "0: a=1\n1: a=2\n2: b=1(pid=7 txn)\nsnapshot 3: pid=7 last=2 seq=0 open=2")
    write_states(tmp_path, (KEY, state()))
    assert "a transaction is open from offset 2" in sentence(begun)
    assert AS_BEFORE in sentence(begun)
    assert read == []
    held = [write_log(tmp_path, HELD, name) for name in ("clicks-3", "clicks-4")]
    write_states(tmp_path, (KEY, state(producer_id=8)), partition=1)
    kcompact("plan", "--explain", "--config", "cleanup.policy=compact", "--now", "2024-01-01T10:00:00Z", begun, *held)
    assert read == ["__transaction_state-0", "__transaction_state-1"]
