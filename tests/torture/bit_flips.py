"""Every bit of a small transactional log is flipped, and every number of its checkpoints replaced: then it is cleaned.

A flip is *detected* if the cleaning refuses and changes nothing. It is *harmless* if the cleaning loses none of the
records that a consumer of the sound log ends with, and changes nothing that a consumer of the flipped log sees, also
after a second cleaning past the retention of tombstones. Everything else is *harmful*. The consumer is
`tests.support.consumer_view`, which shares no code with kcompact, and for one flip in SAMPLE also Kafka's own loader.

`python -m tests.torture.bit_flips FILE BIT` cleans the log with one flip in this process and prints what happened.
"""

from __future__ import annotations

import multiprocessing
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kcompact.cleaner.round import clean_log_dir
from kcompact.errors import KcompactError, UnexpectedError
from kcompact.format.checkpoint import REPLICATION_OFFSET_CHECKPOINT
from kcompact.plan.options import PlanOptions
from tests.oracle.real_kafka import KafkaError, RealKafka
from tests.support import log_writer, txn_log
from tests.support.consumer_view import View, view
from tests.torture.tally import Tally

SAMPLE = 25
PROCESSES = 2
SETTINGS = {"cleanup.policy": "compact", **txn_log.SPEC.settings}
LATER_MS = txn_log.NOW + 2 * txn_log.RETENTION
_CHECKPOINTS = ("cleaner-offset-checkpoint", REPLICATION_OFFSET_CHECKPOINT, *txn_log.CHECKPOINTS)


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
    """What happened to the log with a flip; `sampled` is the directory, for Kafka, if it was cleaned."""

    kind: str
    verdict: str
    failure: str


def run(*, share: float, seed: int) -> Tally:
    """Try `share` of all flips, chosen by `seed`, and all other numbers of the checkpoints."""
    tally = Tally()
    with tempfile.TemporaryDirectory(dir=_memory()) as scratch:
        sound = sound_log(Path(scratch) / "sound")
        bits = list(flips(sound))
        chosen = random.Random(seed).sample(bits, round(share * len(bits))) + list(other_numbers(sound))
        with multiprocessing.get_context("fork").Pool(PROCESSES, _start, (scratch,)) as pool:
            for outcome in pool.imap_unordered(_outcome, chosen, chunksize=16):
                tally.count(f"{outcome.verdict} {outcome.kind}")
                if outcome.failure:
                    tally.fail(outcome.failure)
        _load_with_kafka(tally, Path(scratch), sound, random.Random(seed).sample(chosen, len(chosen) // SAMPLE))
    return tally


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
_before: View


def _start(scratch: str) -> None:
    global _scratch, _sound, _before
    _scratch, _sound = Path(tempfile.mkdtemp(dir=scratch)), Path(scratch) / "sound"
    _before = view(_sound, _sound / txn_log.SPEC.name)


def _outcome(changed: Flip) -> Outcome:
    log_dir = _scratch / "flipped"
    _copy_with(changed, _sound, log_dir)
    verdict, problem = judge(log_dir, _before)
    shutil.rmtree(log_dir)
    failure = f"{verdict}: {changed.file}, {changed.what}: {problem}" if problem else ""
    return Outcome(changed.kind, verdict, failure)


def _copy_with(changed: Flip, sound: Path, log_dir: Path) -> None:
    shutil.copytree(sound, log_dir)
    (log_dir / changed.file).write_bytes(changed.content)


def judge(log_dir: Path, sound: View) -> tuple[str, str]:
    """Clean a log directory twice; return the verdict, and what is wrong."""
    directory = log_dir / txn_log.SPEC.name
    before, contents = view(log_dir, directory), _contents(log_dir)
    needed = {(offset, key, value) for key, (offset, value) in sound.latest.items()}
    verdict = "harmless"
    for now_ms in (txn_log.NOW, LATER_MS):
        refused = _clean(log_dir, now_ms)
        if isinstance(refused, UnexpectedError):
            return "crashed", repr(refused.__cause__)
        if refused is not None:
            if verdict == "harmless" and now_ms == LATER_MS:
                break  # The first cleaning was judged already.
            if _contents(log_dir) != contents:
                return "harmful", f"refused, and yet changed: {refused}"
            return "detected", ""
        after = view(log_dir, directory)
        if lost := needed - after.records:
            return "harmful", f"lost {sorted(lost)}"
        if after.latest != before.latest:
            return "harmful", f"a consumer saw {before.latest} before, now {after.latest}"
        if after.problem and not before.problem:
            return "harmful", f"not readable afterwards: {after.problem}"
    return verdict, ""


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


def _load_with_kafka(tally: Tally, scratch: Path, sound: Path, chosen: list[Flip]) -> None:
    """Compare what Kafka's own loader serves before and after the cleaning, of the logs that it loads before."""
    with RealKafka() as kafka:
        for number, changed in enumerate(chosen):
            log_dir = scratch / f"kafka-{number}"
            _copy_with(changed, sound, log_dir)
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
        log_dir = Path(scratch) / "flipped"
        _copy_with(changed, sound, log_dir)
        print(_before, view(log_dir, log_dir / txn_log.SPEC.name), *judge(log_dir, _before), sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
