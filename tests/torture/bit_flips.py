"""Every bit of a small transactional log is flipped, and every number of its checkpoints replaced: then it is cleaned.

A flip is *detected* if the cleaning refuses and changes nothing. It is *harmless* if the cleaning loses none of the
records that a consumer of the sound log ends with, and changes nothing that a consumer of the flipped log sees. Files
that steer later cleanings are judged over ROUNDS cleanings, each past the retention of tombstones, while the log grows.
Everything else is *harmful*. A cleaner checkpoint that is ahead of the truth contradicts nothing. What Kafka's own
cleaner makes of it too, a deleted key that comes back, is counted as *a limit*.

The consumer is `tests.support.consumer_view`, which shares no code with kcompact, and for one flip in SAMPLE also
Kafka's own loader. `python -m tests.torture.bit_flips FILE BIT` cleans the log with one flip and prints what happened.
"""

from __future__ import annotations

import multiprocessing
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from kcompact.cleaner.round import clean_log_dir
from kcompact.errors import KcompactError, UnexpectedError
from kcompact.format.checkpoint import CLEANER_OFFSET_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT
from kcompact.plan.options import PlanOptions
from tests.oracle.real_kafka import KafkaError, RealKafka
from tests.support import log_writer, txn_log
from tests.support.consumer_view import View, view
from tests.torture.tally import Tally

SAMPLE = 25
PROCESSES = 2
SETTINGS = {"cleanup.policy": "compact", **txn_log.SPEC.settings}
ROUNDS = 3
_ONE_ROUND = (".log", ".index", ".timeindex")
"""The files that a broker would not let grow, or would write again, while they are damaged."""
_CHECKPOINTS = (CLEANER_OFFSET_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT, *txn_log.CHECKPOINTS)


class Flip(NamedTuple):
    """A changed file: another content, and the words that name the change in a failure."""

    file: str
    what: str
    content: bytes

    @property
    def kind(self) -> str:
        """The kind of file: its suffix, or its whole name."""
        path = Path(self.file)
        return path.suffix if path.stem.isdigit() else path.name


class Outcome(NamedTuple):
    """What happened to the log with a flip."""

    changed: Flip
    verdict: str
    failure: str


def run(*, share: float, seed: int) -> Tally:
    """Try `share` of all flips, chosen by `seed`, and all other numbers of the checkpoints."""
    tally, outcomes = Tally(), []
    with tempfile.TemporaryDirectory(dir=_memory()) as scratch:
        sound = sound_log(Path(scratch) / "sound")
        bits = list(flips(sound))
        chosen = random.Random(seed).sample(bits, round(share * len(bits))) + list(other_numbers(sound))
        with multiprocessing.get_context("fork").Pool(PROCESSES, _start, (scratch,)) as pool:
            for outcome in pool.imap_unordered(_outcome, chosen, chunksize=16):
                outcomes.append(outcome)
        with RealKafka() as kafka:
            _count(tally, outcomes, kafka, Path(scratch))
            _load_with_kafka(tally, kafka, Path(scratch), random.Random(seed).sample(chosen, len(chosen) // SAMPLE))
    return tally


def _count(tally: Tally, outcomes: Sequence[Outcome], kafka: RealKafka, scratch: Path) -> None:
    """Count the outcomes by kind of file; a harmful checkpoint of the cleaner is a failure unless Kafka acts alike."""
    for changed, verdict, failure in outcomes:
        if verdict == "harmful" and changed.kind == CLEANER_OFFSET_CHECKPOINT and _is_as_kafka(kafka, scratch, changed):
            tally.count(f"a limit, as Kafka: {changed.kind} ahead of the truth")
            continue
        tally.count(f"{verdict} {changed.kind}")
        if failure:
            tally.fail(failure)


def _memory() -> str | None:
    """Return a directory in memory, where a cleaning does not wait for a disk; None if there is none."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def sound_log(log_dir: Path) -> Path:
    """Write the log without any flip; return its log directory."""
    log_writer.write(txn_log.SPEC, log_dir)
    for name, content in txn_log.CHECKPOINTS.items():
        (log_dir / name).write_bytes(content)
    return log_dir


def flips(sound: Path) -> Iterator[Flip]:
    """Yield every single-bit flip of every file."""
    for path in sorted(sound.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            for bit in range(8 * len(data)):
                yield flip(sound, str(path.relative_to(sound)), bit)


def flip(sound: Path, file: str, bit: int) -> Flip:
    """Return one flip."""
    content = bytearray((sound / file).read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    return Flip(file, f"bit {bit}", bytes(content))


def other_numbers(sound: Path) -> Iterator[Flip]:
    """Yield the checkpoints of the log directory with every other offset up to beyond the log's end."""
    name = f"{txn_log.PARTITION.topic} {txn_log.PARTITION.partition} "
    for file in _CHECKPOINTS:
        lines = (sound / file).read_text().splitlines()[2:]
        others = [line for line in lines if not line.startswith(name)]
        for offset in range(txn_log.END_OFFSET + 4):
            entries = [*others, f"{name}{offset}"]
            text = "\n".join(["0", str(len(entries)), *entries, ""])
            yield Flip(file, f"offset {offset}", text.encode())


_scratch = Path()
_sound = Path()
_expected: list[View] = []


def _start(scratch: str) -> None:
    """Prepare a process: what a consumer of the sound log sees before each cleaning."""
    global _scratch, _sound
    _scratch, _sound = Path(tempfile.mkdtemp(dir=scratch)), Path(scratch) / "sound"
    grown = _scratch / "grown"
    shutil.copytree(_sound, grown)
    for number in range(ROUNDS):
        if number:
            txn_log.go_on(grown, number)
        _expected.append(view(grown, grown / txn_log.SPEC.name))


def _outcome(changed: Flip) -> Outcome:
    log_dir, control = _scratch / "flipped", _scratch / "control"
    for copy in (log_dir, control):
        _copy_with(changed, _sound, copy)
    rounds = 1 if changed.kind in _ONE_ROUND else ROUNDS
    verdict, problem = judge(log_dir, control, _expected[:rounds])
    for copy in (log_dir, control):
        shutil.rmtree(copy)
    failure = f"{verdict}: {changed.file}, {changed.what}: {problem}" if problem else ""
    return Outcome(changed, verdict, failure)


def _copy_with(changed: Flip, sound: Path, log_dir: Path) -> None:
    shutil.copytree(sound, log_dir)
    (log_dir / changed.file).write_bytes(changed.content)


def judge(log_dir: Path, control: Path, expected: Sequence[View]) -> tuple[str, str]:
    """Clean a log directory once for each expected view; return the verdict, and what is wrong.

    `control` is a copy that grows in the same way and is never cleaned.
    """
    directory, untouched = log_dir / txn_log.SPEC.name, control / txn_log.SPEC.name
    for number, sound in enumerate(expected):
        if number:
            txn_log.go_on(log_dir, number)
            txn_log.go_on(control, number)
        before = _contents(log_dir)
        refused = _clean(log_dir, txn_log.NOW + 2 * number * txn_log.RETENTION)
        if isinstance(refused, UnexpectedError):
            return "crashed", repr(refused.__cause__)
        if refused is not None:
            is_changed = _contents(log_dir) != before
            return ("harmful", f"refused, and yet changed: {refused}") if is_changed else ("detected", "")
        seen, found = view(control, untouched), view(log_dir, directory)
        needed = {(offset, key, value) for key, (offset, value) in sound.latest.items()}
        if lost := needed - found.records:
            return "harmful", f"cleaning {number + 1} lost {sorted(lost)}"
        if found.latest != seen.latest:
            changes = sorted(found.latest.items() ^ seen.latest.items())
            return "harmful", f"cleaning {number + 1} changed what a consumer sees: {changes}"
        if found.problem and not seen.problem:
            return "harmful", f"not readable afterwards: {found.problem}"
    return "harmless", ""


def _clean(log_dir: Path, now_ms: int) -> KcompactError | None:
    """Clean; return the error, None if the log was cleaned or needed no cleaning."""
    try:
        result = clean_log_dir(log_dir, SETTINGS, plan_options=PlanOptions(now_ms=now_ms), engine="in-process")
    except KcompactError as problem:
        return problem
    except Exception as problem:
        return UnexpectedError(problem)
    return next((outcome.error for outcome in result.partitions if outcome.error is not None), None)


def _contents(log_dir: Path) -> dict[str, bytes]:
    files = (path for path in log_dir.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(log_dir)): path.read_bytes() for path in files}


def _is_as_kafka(kafka: RealKafka, scratch: Path, changed: Flip) -> bool:
    """Return whether Kafka's cleaner leaves the same to a consumer, after each cleaning."""
    ours, theirs = scratch / "ours", scratch / "theirs"
    same = []
    for copy in (ours, theirs):
        _copy_with(changed, scratch / "sound", copy)
    for number in range(ROUNDS):
        now_ms = txn_log.NOW + 2 * number * txn_log.RETENTION
        for copy in (ours, theirs) if number else ():
            txn_log.go_on(copy, number)
        _clean(ours, now_ms)
        kafka.clean(theirs, config=SETTINGS, now_ms=now_ms, turns=0, high_watermark="checkpoint")
        same.append(view(ours, ours / txn_log.SPEC.name).latest == view(theirs, theirs / txn_log.SPEC.name).latest)
    for copy in (ours, theirs):
        shutil.rmtree(copy)
    return all(same)


def _load_with_kafka(tally: Tally, kafka: RealKafka, scratch: Path, chosen: Sequence[Flip]) -> None:
    """Compare what Kafka's own loader serves before and after the cleaning, of the logs that it loads before."""
    for number, changed in enumerate(chosen):
        log_dir = scratch / f"kafka-{number}"
        _copy_with(changed, scratch / "sound", log_dir)
        before = _served(kafka, log_dir)
        if before is not None and _clean(log_dir, txn_log.NOW) is None:
            after = _served(kafka, log_dir)
            tally.count("loaded alike by Kafka")
            if after != before:
                tally.fail(f"{changed.file}, {changed.what}: Kafka serves {after} after the cleaning, not {before}")
        shutil.rmtree(log_dir)


def _served(kafka: RealKafka, log_dir: Path) -> dict[bytes, bytes] | None:
    """Return the latest committed value of each key that a broker serves; None if it does not load or read the log."""
    try:
        reply = kafka.load(
            log_dir, config=SETTINGS, now_ms=txn_log.NOW, isolation="read_committed", high_watermark="checkpoint"
        )
        records = reply["partitions"][txn_log.SPEC.name]["records"]
    except (KafkaError, KeyError):
        return None
    latest = {record.key: record.value for record in records}
    return {key: value for key, value in latest.items() if value is not None}


def main(file: str, change: str) -> None:
    """Clean the log with one flip, given by its bit, or with one other `offset=N`; print the verdict."""
    with tempfile.TemporaryDirectory(dir=_memory()) as scratch:
        sound = sound_log(Path(scratch) / "sound")
        if change.startswith("offset="):
            what = change.replace("=", " ")
            changed = next(one for one in other_numbers(sound) if (one.file, one.what) == (file, what))
        else:
            changed = flip(sound, file, int(change))
        _start(scratch)
        print(*_expected, _outcome(changed), sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
