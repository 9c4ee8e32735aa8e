"""Damaged files of every kind, read in every way: no crash, no run above a second, bounded memory, nothing changed.

PARTS has the number of mutants of each kind; together they are a million. Each runs in a child process with a limit on
its memory. A mutant that ends its process (a read outside an array, an endless loop, too much memory) is found by its
number, which the child writes down before it begins.

`python -m tests.torture.hostile_bytes PART SEED NUMBER` repeats one mutant in this process.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import resource
import signal
import struct
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.support.hostile import Hostile
from tests.torture.tally import Tally

PARTS = {
    "batches": 600_000,
    "indexes": 90_000,
    "txn_indexes": 60_000,
    "snapshots": 60_000,
    "checkpoints": 50_000,
    "small_files": 30_000,
    "settings": 20_000,
    "manifests": 25_000,
    "metadata_records": 40_000,
    "journals": 8_000,
    "splits": 10_000,
    "metadata_logs": 4_000,
    "directories": 2_000,
    "commands": 1_000,
}
PROCESSES = 2
LONGEST_S = 10.0
STUCK_S = 60
"""A mutant that takes this much processor time ends its process."""
MORE_BYTES = 1 << 30
"""How far the address space may grow, and the resident memory after the first mutants of a process."""
_PROGRESS = struct.Struct("qq")


def run(*, share: float, seed: int) -> Tally:
    """Try `share` of each part."""
    tally = Tally()
    work = [
        (part, first, min(int(count * share), first + piece))
        for part, count in PARTS.items()
        for piece in [max(1, -(-int(count * share) // PROCESSES))]
        for first in range(0, int(count * share), piece)
    ]
    for worker in [_Worker(seed, work[number::PROCESSES]) for number in range(PROCESSES)]:
        worker.join(tally)
    return tally


class _Worker:
    """A process that runs ranges of mutants, and a successor behind each mutant that ended its process."""

    def __init__(self, seed: int, work: list[tuple[str, int, int]]) -> None:
        self._seed, self._work = seed, work
        self._progress = mmap.mmap(-1, _PROGRESS.size)
        self._results = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._child = self._begin(0, None)

    def _begin(self, number: int, first: int | None) -> int:
        child = os.fork()
        if not child:
            code = 1
            try:
                self._run(number, first)
                code = 0
            finally:
                os._exit(code)
        return child

    def _run(self, number: int, first: int | None) -> None:
        memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
        with tempfile.TemporaryDirectory(dir=memory) as scratch:
            hostile = Hostile(self._seed, Path(scratch))
            warm_up(hostile)
            used_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
            resource.setrlimit(resource.RLIMIT_AS, (used_bytes + MORE_BYTES, used_bytes + MORE_BYTES))
            for at in range(number, len(self._work)):
                part, start, end = self._work[at]
                start = start if first is None else first
                first = None
                self._run_part(hostile, at, part, start, end)

    def _run_part(self, hostile: Hostile, at: int, part: str, start: int, end: int) -> None:
        counts: Counter[str] = Counter()
        for mutant in range(start, end):
            _PROGRESS.pack_into(self._progress, 0, at, mutant)
            signal.setitimer(signal.ITIMER_PROF, STUCK_S)
            verdict, problem = tried(hostile, part, self._seed, mutant)
            counts[verdict] += 1
            if problem:
                self._write({"failure": f"{part} {self._seed} {mutant}: {problem}"})
        signal.setitimer(signal.ITIMER_PROF, 0)
        self._write({"counts": {f"{verdict} {part}": count for verdict, count in counts.items()}})

    def _write(self, line: object) -> None:
        print(json.dumps(line), file=self._results, flush=True)

    def join(self, tally: Tally) -> None:
        """Wait for the process, start it again behind a mutant that ended it, and count the results."""
        while (code := os.waitstatus_to_exitcode(os.waitpid(self._child, 0)[1])) != 0:
            at, mutant = _PROGRESS.unpack_from(self._progress)
            part, _, end = self._work[at]
            tally.fail(f"{part} {self._seed} {mutant}: the process ended with {code}")
            self._child = self._begin(at, mutant + 1) if mutant + 1 < end else self._begin(at + 1, None)
        self._results.seek(0)
        for line in map(json.loads, self._results):
            for outcome, count in line.get("counts", {}).items():
                tally.count(outcome, count)
            if "failure" in line:
                tally.fail(line["failure"])


def warm_up(hostile: Hostile) -> None:
    """Run some mutants of each part: what is imported and compiled at first use does not count."""
    for part in PARTS:
        for mutant in range(12 if part == "commands" else 3):
            tried(hostile, part, -1, mutant)


def tried(hostile: Hostile, part: str, seed: int, mutant: int) -> tuple[str, str]:
    """Return the verdict on one mutant, and what is wrong."""
    chance = random.Random(f"{part} {seed} {mutant}")
    resident, started = _resident_bytes(), time.process_time()
    verdict, problem = "failed", ""
    try:
        verdict = getattr(hostile, part)(chance)
    except Exception as error:
        problem = f"{type(error).__name__}: {str(error)[:600]}"
    taken_s = time.process_time() - started
    if taken_s > LONGEST_S:
        problem = problem or f"took {taken_s:.1f} s"
    if _resident_bytes() - resident > MORE_BYTES // 4:
        problem = problem or f"needed {(_resident_bytes() - resident) >> 20} MiB"
    return verdict, problem


def _resident_bytes() -> int:
    """Return the greatest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(part: str, seed: int, mutant: int) -> None:
    """Repeat one mutant, with a traceback if it fails."""
    with tempfile.TemporaryDirectory() as scratch:
        chance = random.Random(f"{part} {seed} {mutant}")
        print(getattr(Hostile(seed, Path(scratch)), part)(chance))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
