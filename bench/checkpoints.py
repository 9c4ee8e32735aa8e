"""How much processor time kcompact takes for checkpoint files: `python -m bench.checkpoints REPORT ARGUMENTS…`.

Runs kcompact with these arguments in this process and writes into the file REPORT the processor time, in seconds, of
all calls into the modules that read and write checkpoint files, in whatever thread they are made.
"""

from __future__ import annotations

import functools
import importlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

from bench.measured import CommandFailedError

MODULES = ("kcompact.format.checkpoint", "kcompact.swap.checkpoint")
"""In the order in which they import each other."""


class _Calls(threading.local):
    """Whether this thread is inside of a measured call: only the outermost counts."""

    is_inside = False


_calls = _Calls()
_used_s: list[float] = []


def measure(command: Sequence[str], kcompact: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> float:
    """Return the seconds that a command of kcompact takes for checkpoint files. Raises CommandFailedError."""
    report = cwd / "checkpoints.json"
    arguments = command[len(kcompact) :]
    program = [sys.executable, "-m", "bench.checkpoints", str(report), *arguments]
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(
        program, cwd=cwd, env={**env, "PYTHONPATH": str(root)}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise CommandFailedError(f"{' '.join(program)}\n{done.stdout[-1000:]}{done.stderr[-3000:]}")
    return float(json.loads(report.read_text(encoding="utf-8"))["used_s"])


def watch() -> None:
    """Let each public function of the modules add up its time. Who imports a function by name must come later."""
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        owners = [module, *(found for found in vars(module).values() if isinstance(found, type))]
        for owner in owners:
            for name, function in list(vars(owner).items()):
                # Private functions have a public caller, and a clock in each of their many calls would take long.
                if isinstance(function, FunctionType) and function.__module__ == module_name and name[0] != "_":
                    setattr(owner, name, _timed(function))


def _timed(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def timed(*arguments: Any, **named: Any) -> Any:
        if _calls.is_inside:
            return function(*arguments, **named)
        _calls.is_inside = True
        started = time.thread_time()
        try:
            return function(*arguments, **named)
        finally:
            _used_s.append(time.thread_time() - started)
            _calls.is_inside = False

    return timed


def main() -> None:
    report, *arguments = sys.argv[1:]
    watch()
    from kcompact.cli.app import main as run  # imports functions of the modules by name

    try:
        run(arguments, prog_name="kcompact")
    finally:
        Path(report).write_text(json.dumps({"used_s": sum(_used_s)}), encoding="utf-8")


if __name__ == "__main__":
    main()
