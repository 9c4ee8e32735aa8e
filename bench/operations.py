"""Counts the system calls of a command and of all that it starts, by kind, with strace."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.measured import CommandFailedError

KINDS = {
    "stats": ("stat", "lstat", "fstat", "newfstatat", "statx"),
    "opens": ("open", "openat", "openat2"),
    "lists": ("getdents64",),
    "reads": ("read", "pread64", "preadv", "preadv2"),
    "writes": ("write", "pwrite64", "pwritev", "pwritev2", "copy_file_range", "sendfile"),
    "fsyncs": ("fsync", "fdatasync", "sync_file_range", "syncfs"),
    "renames": ("rename", "renameat", "renameat2"),
    "unlinks": ("unlink", "unlinkat", "rmdir"),
}


def count(command: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None) -> dict[str, int]:
    """Return how many system calls of each of KINDS a command makes, failed ones too.

    Raises CommandFailedError.
    """
    summary = cwd / "system-calls.txt"
    calls = ",".join(f"?{name}" for names in KINDS.values() for name in names)  # ?: not every processor has each.
    traced = ["strace", "--seccomp-bpf", "-f", "-c", "-U", "name,calls", "-o", str(summary), "-e", f"trace={calls}"]
    done = subprocess.run(
        [*traced, *command], cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise CommandFailedError(f"{' '.join(command)}\n{done.stdout[-1000:]}{done.stderr[-3000:]}")
    return by_kind(summary.read_text(encoding="utf-8"))


def by_kind(summary: str) -> dict[str, int]:
    """Return the sums over each of KINDS of the table that strace prints: a name and a number in each line."""
    words = [line.split() for line in summary.splitlines()]
    calls = {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and pair[1].isdigit()}
    return {kind: sum(calls.get(name, 0) for name in names) for kind, names in KINDS.items()}
