"""Compare kcompact with Kafka's own cleaner on many odd logs.

    python -m tests.oracle.run --logs 2000 --seed 1 --jobs 2      # the seeds 1 to 2000
    python -m tests.oracle.run --kafka 4.0.2                      # the cleaner of another version of Kafka, since 2.8
    python -m tests.oracle.run --replay tests/oracle/failures/17/spec.json

Each job has its own JVM. A log that differs is made as small as it can be and still differ, and written to
`tests/oracle/failures/<seed>/spec.json`; moved to `tests/oracle/cases/`, it is a test. Ends with 1 if any log differs.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import queue
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.oracle.chains import Outcome, compare
from tests.oracle.driver import NEWEST, build
from tests.oracle.followers import follower_spec
from tests.oracle.odd_logs import odd_spec
from tests.oracle.older_kafka import PASSED_OVER
from tests.oracle.real_kafka import Json, RealKafka
from tests.oracle.shrink import shrink
from tests.support.machine_code import switched
from tests.support.releases import likeness_of

FAILURES = Path(__file__).parent / "failures"
MEMORY = Path("/dev/shm")
"""Where there is a file system in memory: each log is written, synced and copied many times."""
SHRINKING_S = 60.0
FOLLOWER_EVERY = 4
READABLE_EVERY = 3
"""One log in so many is cleaned by the readable definition, the others on the kernels."""


@dataclass(slots=True)
class Result:
    """What one job found for one seed."""

    seed: int
    outcome: Outcome
    written_to: Path | None = None


@dataclass(slots=True)
class Totals:
    """What all jobs found."""

    logs: int = 0
    failed: list[int] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, result: Result) -> None:
        self.logs += 1
        self.counts += result.outcome.counts
        if result.outcome.differences:
            self.failed.append(result.seed)


def run_safely(kafka: RealKafka, spec: Json, scratch: Path) -> Outcome:
    """Compare one log; whatever is raised on the way counts as a difference."""
    try:
        return compare(kafka, spec, scratch)
    except Exception as problem:
        return Outcome(differences=[f"raised: {type(problem).__name__}: {problem}"])


def scratch_directory() -> tempfile.TemporaryDirectory[str]:
    """Return a new directory, in memory where that is possible."""
    directory = MEMORY if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) else None
    return tempfile.TemporaryDirectory(prefix="kcompact-oracle-", dir=directory)


def spec_of(seed: int) -> Json:
    """Return the spec of a seed: every fourth log is that of a follower."""
    return follower_spec(seed) if seed % FOLLOWER_EVERY == 0 else odd_spec(seed)


def work(seeds: Iterable[int], version: str) -> Iterator[Result]:
    """Compare the logs of these seeds with a version of Kafka, in one JVM."""
    with scratch_directory() as scratch, RealKafka(version) as kafka:
        tempfile.tempdir = scratch
        for seed in seeds:
            spec = spec_of(seed)
            with switched(compiled=seed % READABLE_EVERY != 0):
                result = Result(seed, run_safely(kafka, spec, Path(scratch)))
            if result.outcome.differences:
                result.written_to = write_failure(kafka, spec, result.outcome, Path(scratch))
            yield result


def write_failure(kafka: RealKafka, spec: Json, outcome: Outcome, scratch: Path) -> Path:
    """Make a differing log small and write it down; return where."""

    def differs(candidate: Json) -> list[str]:
        return run_safely(kafka, candidate, scratch).differences

    small, found = shrink(spec, outcome.differences, differs, seconds=SHRINKING_S)
    directory = FAILURES / str(spec["seed"])
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "spec.json"
    path.write_text(json.dumps({"differences": found, **small}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def _job(first: int, end: int, step: int, version: str, results: multiprocessing.Queue[Result | None]) -> None:
    try:
        for result in work(range(first, end, step), version):
            results.put(result)
    finally:
        results.put(None)


def run_all(first: int, end: int, jobs: int, version: str = NEWEST) -> Totals:
    """Compare the logs of the seeds [first, end) in `jobs` processes, with progress on stderr."""
    results: multiprocessing.Queue[Result | None] = multiprocessing.Queue()
    workers = [
        multiprocessing.Process(target=_job, args=(first + number, end, jobs, version, results))
        for number in range(jobs)
    ]
    for worker in workers:
        worker.start()
    totals, running = Totals(), jobs
    started = shown = time.monotonic()
    while running:
        try:
            result = results.get(timeout=10 * SHRINKING_S)
        except queue.Empty:
            raise SystemExit("a job died, or hangs") from None
        if result is None:
            running -= 1
            continue
        totals.add(result)
        if result.outcome.differences:
            report(result, version)
        if time.monotonic() - shown > 10:
            shown = time.monotonic()
            rate = totals.logs / (shown - started)
            done = f"{totals.logs} of {end - first} logs"
            print(f"{done}, {rate:.1f} a second, {len(totals.failed)} differ", file=sys.stderr)
    for worker in workers:
        worker.join()
    if any(worker.exitcode for worker in workers):
        raise SystemExit("a job died")
    return totals


def report(result: Result, version: str) -> None:
    """Print what differs, and how to see it again."""
    print(f"\nseed {result.seed} differs:", file=sys.stderr)
    for line in result.outcome.differences[:6]:
        print(f"  {line[:600]}", file=sys.stderr)
    if result.written_to:
        shown = os.path.relpath(result.written_to)
        print(f"  replay: python -m tests.oracle.run --kafka {version} --replay {shown}", file=sys.stderr)


def replay(path: Path, version: str) -> Totals:
    """Compare one written spec."""
    spec = json.loads(path.read_text(encoding="utf-8"))
    totals = Totals()
    with scratch_directory() as scratch, RealKafka(version) as kafka:
        tempfile.tempdir = scratch
        outcome = compare(kafka, spec, Path(scratch))
    totals.add(Result(spec["seed"], outcome))
    for line in outcome.differences:
        print(line, file=sys.stderr)
    return totals


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="compare kcompact with Kafka's cleaner on odd logs")
    parser.add_argument("--logs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--kafka", default=NEWEST, metavar="VERSION", help="the version of Kafka")
    parser.add_argument("--replay", type=Path, metavar="SPEC", help="run one written spec instead")
    parser.add_argument("--counts", action="store_true", help="also print what was covered")
    arguments = parser.parse_args()
    build(arguments.kafka)
    if arguments.replay:
        totals = replay(arguments.replay, arguments.kafka)
    else:
        totals = run_all(arguments.seed, arguments.seed + arguments.logs, arguments.jobs, arguments.kafka)
    if arguments.counts:
        for name, count in totals.counts.items():
            print(f"{count:>9,} {name}", file=sys.stderr)
    different = len(totals.failed)
    equal = totals.logs - different
    rounds = totals.counts["rounds"]
    print(f"Kafka {arguments.kafka}: {totals.logs} logs, {rounds} rounds, {equal} equal, {different} different")
    if compared := likeness_of(arguments.kafka).told:
        print(f"Compared with this version: {compared}.")
        for name in sorted(name for name in totals.counts if name.startswith(PASSED_OVER)):
            print(f"{totals.counts[name]:>9,} {name}")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
