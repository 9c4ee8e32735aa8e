"""Runs one command and returns its wall time, processor time and memory, of all its processes together.

    used = run(["kcompact", "clean", ...], cwd=scratch)
    used.wall_s, used.cpu_s, used.peak_bytes

A process of its own measures each command: this file, run as a program. Processor time is the kernel's account, as
`wait4` gives it: exact to the end of each process. The measuring process inherits each process whose parent ends
first, such as a Python worker whose JVM stops. So every process is counted, and none is left running. (A child whose
parent ignores SIGCHLD would escape; no program measured here ignores it.)

Memory is looked at every 20 ms: the proportional set size, in which a page that several processes share counts once.
Adding that up costs the kernel a millisecond or so, so it is only done when the resident sizes, which are never less
and cost nothing to read, allow a new peak at all, and for a twentieth of the time at most.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SAMPLE_EVERY_S = 0.02
SHARE_OF_TIME = float(os.environ.get("KCOMPACT_BENCH_SHARE_OF_TIME", "0.05"))
"""The most of the time that is spent on adding up memory."""

MAY_LINGER_S = float(os.environ.get("KCOMPACT_BENCH_MAY_LINGER_S", "60"))
"""How long what a command started may go on when the command itself has ended."""

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PR_SET_CHILD_SUBREAPER = 36


class CommandFailedError(Exception):
    """A command that should have succeeded did not; the message has the end of what it said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """What one command took. Times in seconds; `peak_resident_bytes` counts shared pages once for each process.

    `others_cpu_s` is what all other processes of the machine took meanwhile: where it is much, the times mean little.
    `waits` is how often a thread gave its processor away because it had to wait, `preemptions` how often it lost it.
    """

    wall_s: float
    cpu_s: float
    peak_bytes: int
    peak_resident_bytes: int
    processes: int
    lingered_s: float
    others_cpu_s: float
    waits: int
    preemptions: int
    output: str


def run(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 3600,
    cores: int | None = None,
    keeps_output: bool = True,
) -> Used:
    """Run a command to its end and return what it took; its standard output is in `output`, if it is kept.

    All its processes are bound to so many `cores`, if given. `cwd` keeps what it printed. Raises `CommandFailedError`
    on another exit code than 0, when it takes longer than `timeout_s`, or when it leaves processes running.
    """
    report = cwd / "used.json"
    parent = [sys.executable, "-P", __file__, str(report), str(timeout_s), str(cores or 0), *command]
    kept = cwd / "stdout.txt" if keeps_output else Path(os.devnull)
    with open(kept, "wb") as out, open(cwd / "stderr.txt", "wb") as err:
        done = subprocess.run(parent, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, check=False)
    output = kept.read_text(encoding="utf-8", errors="replace")
    if done.returncode != 0:
        problem = (cwd / "stderr.txt").read_text(encoding="utf-8", errors="replace")
        raise CommandFailedError(f"{shlex.join(command)}\n{output[-1000:]}{problem[-3000:]}")
    return Used(**json.loads(report.read_text(encoding="utf-8")), output=output)


def main() -> None:
    """Measure the command of the arguments; write the result into the file that the first argument names."""
    report, timeout_s, cores, *command = sys.argv[1:]
    used = _measure(command, timeout_s=float(timeout_s), cores=int(cores))
    Path(report).write_text(json.dumps(used), encoding="utf-8")


def _measure(command: Sequence[str], *, timeout_s: float, cores: int) -> dict[str, float]:
    _inherit_orphans()
    busy_s = _busy_s()
    started = time.perf_counter()
    process = _start(command, cores)
    sampler = _Sampler(process.pid)
    alarm = threading.Timer(timeout_s, process.kill)
    alarm.start()
    _, status, usage = os.wait4(process.pid, 0)
    ended = time.perf_counter()
    alarm.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    orphans, all_ended = _reap_orphans(sampler)
    usages = [usage, *orphans]
    lingered_s = time.perf_counter() - ended
    sampler.stop()
    busy_s = _busy_s() - busy_s
    own = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = sum(one.ru_utime + one.ru_stime for one in usages)
    if process.returncode != 0:
        sys.exit(f"ended with {process.returncode}")
    if not all_ended:
        sys.exit("left processes running")
    return {
        "wall_s": ended - started,
        "cpu_s": cpu_s,
        "peak_bytes": sampler.peak_bytes,
        "peak_resident_bytes": sampler.peak_resident_bytes,
        "processes": len(sampler.members),
        "lingered_s": lingered_s,
        "others_cpu_s": max(0.0, busy_s - cpu_s - own.ru_utime - own.ru_stime),
        "waits": sum(one.ru_nvcsw for one in usages),
        "preemptions": sum(one.ru_nivcsw for one in usages),
    }


def _start(command: Sequence[str], cores: int) -> subprocess.Popen[bytes]:
    """Start the command on the first so many cores, or on all; this process itself stays on all."""
    allowed = os.sched_getaffinity(0)
    if cores:
        os.sched_setaffinity(0, sorted(allowed)[:cores])
    try:
        return subprocess.Popen(command)
    finally:
        os.sched_setaffinity(0, allowed)


def _busy_s() -> float:
    """Return how long all processors together have been busy since the machine started, or taken from it."""
    user, nice, system, _, _, irq, softirq, steal, *_ = map(int, _read("/proc/stat").splitlines()[0].split()[1:])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _inherit_orphans() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def _reap_orphans(sampler: _Sampler) -> tuple[list[resource.struct_rusage], bool]:
    """Wait for what the command left behind; return what it used, and whether all of it ended by itself."""
    usages: list[resource.struct_rusage] = []
    killed = False
    deadline = time.monotonic() + MAY_LINGER_S
    while True:
        try:
            pid, _, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return usages, not killed
        if pid != 0:
            usages.append(usage)
        elif time.monotonic() < deadline or killed:
            time.sleep(0.002)
        else:
            killed = True
            sampler.stop()
            sampler.adopt()
            for member in sampler.members:
                if _parent(member) != 0:
                    os.kill(member, signal.SIGKILL)


@dataclass(slots=True)
class _Sampler:
    """Watches a process and all it starts, from a thread, until it is stopped."""

    root: int
    members: set[int] = field(init=False)
    peak_bytes: int = 0
    peak_resident_bytes: int = 0
    _strangers: set[int] = field(default_factory=set)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.members = {self.root}
        self._thread = threading.Thread(target=self._measure, name="memory", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _measure(self) -> None:
        next_sum = 0.0
        while not self._stopped.wait(SAMPLE_EVERY_S):
            self.adopt()
            resident = sum(_resident_bytes(pid) for pid in self.members)
            self.peak_resident_bytes = max(self.peak_resident_bytes, resident)
            started = time.perf_counter()
            if resident > self.peak_bytes and started >= next_sum:
                self.peak_bytes = max(self.peak_bytes, sum(_proportional_bytes(pid) for pid in self.members))
                ended = time.perf_counter()
                next_sum = ended + (ended - started) / SHARE_OF_TIME

    def adopt(self) -> None:
        """Look at processes that were not there before: whose parent is ours, or who fell to us, is ours."""
        there = {int(name) for name in os.listdir("/proc") if name.isdigit()} - {os.getpid()}  # noqa: PTH208
        self._strangers &= there
        unknown = there - self.members - self._strangers
        parents = {pid: _parent(pid) for pid in unknown}
        while ours := {pid for pid in unknown if parents[pid] in self.members or parents[pid] == os.getpid()}:
            self.members |= ours
            unknown -= ours
        self._strangers |= unknown


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:  # It has ended.
        return ""


def _parent(pid: int) -> int:
    """Return a process's parent, or 0 if there is no such process."""
    words = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return int(words[1]) if words else 0


def _resident_bytes(pid: int) -> int:
    words = _read(f"/proc/{pid}/statm").split()
    return int(words[1]) * PAGE_BYTES if words else 0


def _proportional_bytes(pid: int) -> int:
    for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


if __name__ == "__main__":
    main()
