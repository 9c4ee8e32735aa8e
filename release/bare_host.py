"""A host that has a C library and nothing else: no shell, no users, no /proc, no /dev, no network.

It is a directory, into which a child changes its root before it becomes a command. Needs root.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

USER = 1001
"""The user of bare hosts, and its group. No list of users has it."""
_CLONE_NEWNET = 0x40000000
_C = ctypes.CDLL(None, use_errno=True)
Finished: TypeAlias = "subprocess.CompletedProcess[str]"
_EMPTY: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """What a command has used: time of processors, and the most memory at one time."""

    cpu_s: float
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BareHost:
    """The directory that becomes `/`, the environment variables of its commands, and what each command begins with."""

    root: Path
    env: Mapping[str, str] = field(default_factory=dict)
    starter: tuple[str, ...] = ()

    def run(self, command: Sequence[str], *, cwd: str, env: Mapping[str, str] = _EMPTY) -> Finished:
        """Run a command as a user with a number and no name, without a network. Paths are those of this host."""
        command = [*self.starter, *command]
        return subprocess.run(
            command,
            executable=command[0],
            env={**self.env, **env},
            preexec_fn=lambda: self._enter(cwd),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def run_measured(self, command: Sequence[str], *, cwd: str) -> Used:
        """Run a command in the same way; what it writes is lost, but for errors. Raises CalledProcessError.

        The memory is at least that of the process that calls this: Linux counts what a child has before it becomes the
        command.
        """
        process = subprocess.Popen(
            command,
            executable=command[0],
            env=dict(self.env),
            preexec_fn=lambda: self._enter(cwd),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        return Used(cpu_s=usage.ru_utime + usage.ru_stime, memory_bytes=usage.ru_maxrss << 10)

    def _enter(self, cwd: str) -> None:
        if _C.unshare(_CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "no network of its own")
        os.chroot(self.root)
        os.chdir(cwd)
        os.setgroups([])
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)


def give_away(tree: Path) -> None:
    """Make a tree belong to the user of bare hosts."""
    for path in [tree, *tree.rglob("*")]:
        os.chown(path, USER, USER)


@contextmanager
def read_only(root: Path, *, except_for: Path) -> Iterator[None]:
    """Make all files below a directory read-only, but not those of one directory in it, for a while."""
    mounts = [["--bind", str(root), str(root)], ["--bind", str(except_for), str(except_for)]]
    mounts += [["-o", "remount,bind,ro", str(root)]]
    made = 0
    try:
        for mount in mounts:
            subprocess.run(["mount", *mount], check=True)
            made += mount[0] == "--bind"
        yield
    finally:
        for target in (except_for, root)[2 - made :]:
            subprocess.run(["umount", str(target)], check=True)
