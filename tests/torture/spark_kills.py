"""Kills the processes of a cleaning on Spark at random times, and fills the disk of Spark's own files.

After a worker, the worker pool or the JVM has died, the run ends by itself: the partition is untouched, or wholly
cleaned. After the driver has died, its other processes end by themselves. The next run cleans the partition, whatever
was killed, and afterwards no process, no staging directory and no temporary file is left.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.support.command_line import command, digest, environment
from tests.support.disk_in_memory import disk_in_memory
from tests.support.patience import PATIENCE_S, becomes
from tests.support.spark_runs import content, left_behind, processes_of, write_partition
from tests.torture.tally import Tally

KILLS = 30
SMALL_DISKS = ("8k", "64k", "200k")
"""Sizes of a disk that is too small for the files of a cleaning."""
LOG_BYTES = 8 << 20
"""A partition that is one task."""
LARGE_BYTES = 80 << 20
"""A partition that is cleaned in stages, whose keys pass through files."""
OPTIONS = (
    *("clean", "--master", "local[2]", "--high-watermark", "leo", "--now", "2024-01-01T10:00:00Z"),
    *("--config", "cleanup.policy=compact", "--config", "segment.bytes=3000000"),
)
SLOWLY = ("--max-bytes-per-second", "6m")
"""A limit that makes the tasks take some seconds."""
VICTIMS = ("worker", "worker", "jvm", "driver", "worker pool", "driver")


class Stage(NamedTuple):
    """The directories of the runs: an uncleaned log, the same log cleaned, and the temporary directory of the runs.

    `lifetimes` are the seconds that each victim lived in a run without a kill.
    """

    template: Path
    cleaned: Path
    temporary: Path
    lifetimes: dict[str, float]


def run(*, share: float, seed: int) -> Tally:
    """Kill processes of so many runs, and fill some disks."""
    tally = Tally()
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="kcompact-torture-") as scratch:
        stage = _prepared(Path(scratch))
        for number in range(max(1, round(KILLS * share))):
            victim = VICTIMS[number % len(VICTIMS)]
            _kill_one(tally, stage, victim, chance.random(), f"seed {seed}, kill {number} ({victim})")
        large = Path(scratch) / "large"
        write_partition(large / "orders-0", total_bytes=LARGE_BYTES, segments=8, value_bytes=4000)
        for size in SMALL_DISKS[: max(1, round(len(SMALL_DISKS) * share))]:
            _fill_disk(tally, stage._replace(template=large), size)
    return tally


def _prepared(scratch: Path) -> Stage:
    """Write the log, and clean a copy of it without a kill: the result to expect, and how long it takes."""
    template, cleaned, temporary = scratch / "template", scratch / "cleaned", scratch / "tmp"
    temporary.mkdir()
    write_partition(template / "orders-0", total_bytes=LOG_BYTES, segments=8, value_bytes=400)
    shutil.copytree(template, cleaned)
    stage = Stage(template, cleaned, temporary, {})
    running = _begun(stage, cleaned, *SLOWLY)
    seen: dict[str, list[float]] = {victim: [] for victim in VICTIMS}
    while running.poll() is None:
        for victim, times in seen.items():
            if _pids(running, victim, stage):
                times.append(time.monotonic())
        time.sleep(0.01)
    done = _ended(running)
    assert done.returncode == 0, done.stderr
    assert becomes(lambda: not processes_of(temporary)), "the class archive is not finished"
    assert all(seen.values()), f"never seen: {[victim for victim, times in seen.items() if not times]}"
    return stage._replace(lifetimes={victim: times[-1] - times[0] for victim, times in seen.items()})


def _kill_one(tally: Tally, stage: Stage, victim: str, moment: float, name: str) -> None:
    log_dir = stage.template.parent / "logs"
    shutil.copytree(stage.template, log_dir)
    before = digest(log_dir)
    running = _begun(stage, log_dir, *SLOWLY)
    killed = _killed(running, victim, moment, stage)
    done = _ended(running)
    outcome = "driver" if done.returncode == -signal.SIGKILL else f"exit code {done.returncode}"
    tally.count(f"killed {victim}: {outcome}" if killed else f"{victim} had ended")
    if not becomes(lambda: not processes_of(stage.temporary)):
        tally.fail(f"{name}: processes run on: {processes_of(stage.temporary)}")
    if "Traceback" in done.stderr:
        tally.fail(f"{name}: a traceback: {done.stderr[-500:]}")
    if victim != "driver":
        is_whole = content(log_dir) == content(stage.cleaned)
        is_untouched = digest(log_dir) == before
        if not (is_whole if done.returncode == 0 else is_untouched) or left_behind(log_dir):
            tally.fail(f"{name}: exit code {done.returncode}, but whole {is_whole}, untouched {is_untouched}")
    _run_again(tally, stage, log_dir, name)
    shutil.rmtree(log_dir)


def _run_again(tally: Tally, stage: Stage, log_dir: Path, name: str) -> None:
    """The next run finishes what the killed one began, and removes what it has left."""
    again = _ended(_begun(stage, log_dir))
    if again.returncode != 0 or content(log_dir) != content(stage.cleaned) or left_behind(log_dir):
        tally.fail(f"{name}: the next run ended with {again.returncode}: {again.stderr[-500:]} {left_behind(log_dir)}")
    if any(stage.temporary.iterdir()):  # The next run had nothing to clean, so it did not start Spark.
        other = stage.template.parent / "other"
        shutil.copytree(stage.template, other)
        _ended(_begun(stage, other))
        shutil.rmtree(other)
    if left := sorted(str(path.relative_to(stage.temporary)) for path in stage.temporary.iterdir()):
        tally.fail(f"{name}: left in the temporary directory: {left}")


def _fill_disk(tally: Tally, stage: Stage, size: str) -> None:
    log_dir = stage.template.parent / "logs"
    shutil.copytree(stage.template, log_dir)
    before = digest(log_dir)
    with disk_in_memory(stage.template.parent / "small", size) as disk:
        done = _ended(_begun(stage, log_dir, "--spark-conf", f"spark.local.dir={disk}"))
        tally.count(f"small disk: exit code {done.returncode}")
        if done.returncode != 7 or digest(log_dir) != before or any(disk.iterdir()):
            tally.fail(f"disk of {size}: exit code {done.returncode}: {done.stderr[-500:]}")
    shutil.rmtree(log_dir)


# Processes


def _begun(stage: Stage, log_dir: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*OPTIONS, *options, log_dir),
        env={**environment(), "TMPDIR": str(stage.temporary)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


class Done(NamedTuple):
    """How a run has ended. `returncode` is None if it did not end in time."""

    returncode: int | None
    stderr: str


def _ended(running: subprocess.Popen[str]) -> Done:
    with running:
        try:
            _, stderr = running.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            running.kill()
            return Done(None, "it did not end")
    return Done(running.returncode, stderr)


def _killed(running: subprocess.Popen[str], victim: str, moment: float, stage: Stage) -> bool:
    """Kill one process of a run at some moment of its life, between 0 and 1; return False if it had ended."""
    becomes(lambda: _pids(running, victim, stage) or running.poll() is not None)
    deadline = time.monotonic() + moment * stage.lifetimes[victim]
    while time.monotonic() < deadline and running.poll() is None:
        time.sleep(0.005)
    pids = _pids(running, victim, stage)
    for pid in pids[:1]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(pids)


def _pids(running: subprocess.Popen[str], victim: str, stage: Stage) -> list[int]:
    """Return the running processes of a run that are such a victim."""
    if victim == "driver":
        return [running.pid] if running.poll() is None else []
    found = processes_of(stage.temporary)
    words = {pid: _command_of(pid) for pid in found}
    if victim == "jvm":
        return [pid for pid in found if "PythonGatewayServer" in words[pid]]
    pools = [pid for pid in found if "--wait-for-daemon" in words[pid]]
    are_workers = victim == "worker"
    return [pid for pid in pools if (_parent_of(pid) in pools) == are_workers]


def _command_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def _parent_of(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0
