"""The long check: what `.ci/run` leaves out, with new seeds each day. `make nightly` runs it.

    python -m tests.nightly                                     # the seed is the date
    python -m tests.nightly --seed 20261128 --share 0.2 torture oracle

A part has one or more steps, and a step is a command that a person can type. A step that fails does not stop the
others. The list at the end has all steps, and for each failed step the command that repeats it.

The outputs of the steps and the state of the run are kept in `build/nightly`. Another run on the same commit goes on
after the last step that ended, with the same seed. Where a file differs from the commit, each run begins anew.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tests.oracle.driver import NEWEST, OLDER_VERSIONS, VERSIONS
from tests.torture.__main__ import PARTS as TORTURE_PARTS

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "build" / "nightly"
STATE = "state.json"
CHANGED = " with changes"

LOGS = 200
"""Random logs for each version of Kafka, at a share of 1."""
DIRECTORIES = 3_000
"""Damaged directories, of which Kafka's manager of the logs and `doctor` have to say the same, at a share of 1."""
MOST_LOGS = 10_000
"""Seeds of logs are consecutive. Those of two days or two versions are so far apart."""
EXAMPLES = 100
"""Examples for each property, at a share of 1."""
TORTURE_SHARE = 0.05
"""How much of each part of the torture run, at a share of 1."""
OTHERS = {
    "dependencies": ("oldest", "newest"),
    "brokers": ("broker-check",),
    "cluster": ("cluster-check",),
    "browser": ("report-check",),
    "release": ("wheel-test ORACLE_LOGS=50", "release RELEASE_OPTIONS=--check"),
    "replicas": ("replica-fixtures",),
    "coverage": ("coverage",),
    "mutants": ("mutants",),
}
"""Parts without a seed, with the targets of the Makefile."""
NEEDED = ("mvn", "javac", "strace", "chromium", "debootstrap", "skopeo", "qemu-aarch64-static")
"""Programs that the steps need, apart from those of `make test`."""
NOT_INHERITED = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "SEED", "SHARE", "PARTS")
"""What `make nightly` gives its children, and whoever types the command of a step does not have."""
LIMIT_S = 3600
"""A step that takes longer hangs. At a share above 1 the limit is so many times higher."""
GRACE_S = 10
"""Time for a step to remove its files after Ctrl-C."""
LAST_LINES = 40
"""Lines of a failed step's output that are printed."""


@dataclass(frozen=True, slots=True)
class Step:
    """A command of a part. The name is unique, and that of the file with the output."""

    part: str
    name: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a step ended: its exit code, or None for a step that took too long."""

    code: int | None
    seconds: float

    def __str__(self) -> str:
        how = {0: "passed", None: "took too long"}.get(self.code, f"failed with {self.code}")
        return f"{how}, {self.seconds:.0f} s"


@dataclass(slots=True, kw_only=True)
class Night:
    """One run on one commit: how each step ended that has run, by its name."""

    commit: str
    seed: int
    share: float
    ended: dict[str, Ended] = field(default_factory=dict)

    def steps(self, parts: Sequence[str] = ()) -> list[Step]:
        """Return the steps of some parts, by default of all."""
        return [step for step in steps(seed=self.seed, share=self.share) if not parts or step.part in parts]

    def save(self, path: Path) -> None:
        """Write the run to a file that `load` reads."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Night | None:
        """Return what `save` has written, or None."""
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            return cls(**fields | {"ended": {name: Ended(**ended) for name, ended in fields["ended"].items()}})
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None


def steps(*, seed: int, share: float) -> list[Step]:
    """Return all steps."""

    def count(number: int) -> int:
        return max(1, round(number * share))

    def torture(part: str) -> str:
        return f'make torture TORTURE="{part} --share {min(1.0, TORTURE_SHARE * share):.4g} --seed {seed}"'

    found = [
        Step("properties", "properties", f"make properties EXAMPLES={count(EXAMPLES)} SEED={seed}"),
        Step("slow", "slow", "make slow"),
    ]
    versions = (*VERSIONS, *OLDER_VERSIONS)
    for place, version in enumerate(versions):
        first = (seed * len(versions) + place) * MOST_LOGS
        chosen = "" if version == NEWEST else f"KAFKA={version} "
        command = f"make oracle {chosen}ORACLE_LOGS={min(count(LOGS), MOST_LOGS)} SEED={first}"
        found.append(Step("oracle", f"oracle-{version}", command))
    first, directories = seed * MOST_LOGS, min(count(DIRECTORIES), MOST_LOGS)
    found.append(Step("starts", "starts", f'make starts STARTS="--seed {first} --directories {directories}"'))
    found.append(Step("starts", "broker-starts", f'make broker-starts STARTS="--seed {seed}"'))
    found += [Step("torture", f"torture-{part}", torture(part)) for part in TORTURE_PARTS]
    for part, targets in OTHERS.items():
        found += [Step(part, target.split()[0], f"make {target}") for target in targets]
    return found


PARTS = tuple(dict.fromkeys(step.part for step in steps(seed=0, share=1)))


def begin(path: Path, *, commit: str, seed: int | None, share: float, parts: Sequence[str] = ()) -> Night:
    """Return the run that goes on, or a new one.

    A run goes on that has the same commit and share, and the seed if one is given, while a step of the parts has not
    ended in it. A commit that ends with CHANGED is never the same.
    """
    old = Night.load(path)
    if old and not commit.endswith(CHANGED) and (old.commit, old.share) == (commit, share) and seed in (None, old.seed):
        goes_on = any(step.name not in old.ended for step in old.steps(parts))
        if goes_on:
            return old
    return Night(commit=commit, seed=int(f"{datetime.now(UTC):%Y%m%d}") if seed is None else seed, share=share)


def commit_here() -> str:
    """Return the commit that is checked out, with CHANGED behind it if a file differs from it."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()

    return git("rev-parse", "HEAD") + (CHANGED if git("status", "--porcelain") else "")


def run(step: Step, log: Path, limit_s: float) -> Ended:
    """Run a step with its output in a file, and end all its processes with it."""
    started = time.monotonic()
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            ["sh", "-c", step.command],
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if name not in NOT_INHERITED},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(limit_s)
        except BaseException as problem:
            _end(process, signal.SIGINT)
            if not isinstance(problem, subprocess.TimeoutExpired):
                raise
            code = None
        finally:
            _end(process, signal.SIGKILL)
    return Ended(code=code, seconds=time.monotonic() - started)


def _end(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    """Send a signal to all processes of a step, and give the step time to end."""
    with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, how)
        process.wait(GRACE_S)


def run_all(night: Night, chosen: Iterable[Step], kept: Path) -> None:
    """Run the steps that have not ended yet, and keep the run after each."""
    for step in chosen:
        if step.name in night.ended:
            continue
        print(f"\n=== {step.name}: {step.command}", flush=True)
        log = kept / f"{step.name}.log"
        ended = night.ended[step.name] = run(step, log, LIMIT_S * max(1.0, night.share))
        night.save(kept / STATE)
        last = log.read_text(encoding="utf-8", errors="replace").splitlines()[-1 if ended.code == 0 else -LAST_LINES :]
        print("\n".join([*last, f"=== {step.name}: {ended}"]), flush=True)


def summary(night: Night, chosen: Sequence[Step]) -> str:
    """Return a line for each step, and the command that repeats each step that has not passed."""
    width = max(len(step.name) for step in chosen)
    lines = [f"commit {night.commit}, seed {night.seed}, share {night.share:g}"]
    for step in chosen:
        lines.append(f"{step.name:{width}}  {night.ended[step.name]}")
        if night.ended[step.name].code != 0:
            lines.append(f"{'':{width}}  to repeat: {step.command}")
    whole = sum(night.ended[step.name].seconds for step in chosen)
    failed = sum(night.ended[step.name].code != 0 for step in chosen)
    return "\n".join([*lines, f"{len(chosen) - failed} passed, {failed} failed", f"{whole:.0f} s in all"])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.nightly", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"default: all of {', '.join(PARTS)}")
    parser.add_argument("--seed", type=int, help="default: the date, as 20261128")
    parser.add_argument("--share", type=float, default=1.0, help="how much of what is random is run")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    if missing := [program for program in NEEDED if not shutil.which(program)]:
        parser.error(f"{', '.join(missing)} not found: on Debian `.ci/tools all` installs what is missing")
    KEPT.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # So the step ends, too.
    night = begin(KEPT / STATE, commit=commit_here(), seed=options.seed, share=options.share, parts=options.parts)
    chosen = night.steps(options.parts)
    print(f"commit {night.commit}, seed {night.seed}, share {night.share:g}, {len(chosen)} steps")
    if night.ended:
        print(f"goes on after {len(night.ended)} steps that have ended on this commit")
    run_all(night, chosen, KEPT)
    print(f"\n{summary(night, chosen)}")
    return int(any(night.ended[step.name].code != 0 for step in chosen))


if __name__ == "__main__":
    sys.exit(main())
