"""Many command lines for one start of Python.

`forked` runs each in a process that a warm Python forks: it has its own state, but loads what is loaded no more. For
tests that need a process for its exit code, its descriptors or its modules, but no fresh interpreter.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.support.command_line import environment

_SERVE = """
import gc, json, os, sys, tempfile

def open_for(stdout):
    if stdout == GONE:
        reader, writer = os.pipe()
        os.close(reader)
        return writer
    return os.open(stdout, os.O_WRONLY)

GONE = "a reader who has left"
gc.collect()
gc.freeze()  # Else each process at its end looks at, and so copies, all that the warm one has loaded.
for run in json.load(sys.stdin):
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if not child:
            os.dup2(open_for(run["stdout"]) if run["stdout"] else out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.chdir(run["cwd"])
            os.environ.update(run["variables"])
            sys.argv[1:] = run["arguments"]
            break
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out.seek(0)
        err.seek(0)
        print(json.dumps([code, out.read().decode(), err.read().decode()]), flush=True)
else:
    sys.exit()
"""
GONE = "a reader who has left"
"""For `Run.stdout`: a pipe that nobody reads."""
MAIN = "from kcompact.__main__ import main\n"
READING = f"{MAIN}import kcompact.cli.app, kcompact.questions.contents, kcompact.plan.partition\n"
"""What `plan` and `inspect` load."""
CHANGING = (
    f"{READING}import kcompact.cleaner.round, kcompact.questions.verify.log, kcompact.questions.keys, rich.progress\n"
)
"""What most commands load."""
RUN = "main()\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A command line, with what its process has of its own. `stdout` is a file, `GONE`, or empty to be returned."""

    arguments: Sequence[str | Path]
    variables: Mapping[str, str] = field(default_factory=dict)
    cwd: Path = Path("/")
    stdout: str = ""


def forked(
    runs: Sequence[Run], *, warm: str = CHANGING, program: str = RUN, **variables: str
) -> list[subprocess.CompletedProcess[str]]:
    """Run `warm` once, then for each run `program` in a process forked from there; return what each left."""
    described = json.dumps([asdict(run) for run in runs], default=os.fspath)
    served = subprocess.run(
        [sys.executable, "-c", warm + _SERVE + program],
        input=described,
        capture_output=True,
        text=True,
        check=True,
        env={**environment(), **variables},
    )
    left = [json.loads(line) for line in served.stdout.splitlines()]
    assert len(left) == len(runs), served.stderr
    return [
        subprocess.CompletedProcess([*map(str, run.arguments)], code, out, err)
        for run, (code, out, err) in zip(runs, left, strict=True)
    ]
