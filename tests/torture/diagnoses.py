"""Log directories with random faults: where `doctor --verify` finds nothing that stops, a cleaning is not refused.

The directories are those that real brokers have left, with one to three files changed: cut, grown, flipped, deleted,
renamed, replaced by a directory or a link, or copied elsewhere. `doctor` never fails itself and changes nothing.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import tempfile
from pathlib import Path

from fixtures import checkout
from tests.support.command_line import digest, kcompact
from tests.torture.tally import Tally

RUNS = 1_000
FIXTURES = ("broker", "transactions", "several-partitions")
COMPACT = ("--config", "cleanup.policy=compact")
CLEAN = ("clean", "--dry-run", "--force", "--engine", "in-process", "--include-internal", "--json", *COMPACT)


def run(*, share: float, seed: int) -> Tally:
    """Examine a share of RUNS changed directories."""
    tally = Tally()
    for number in range(max(1, int(RUNS * share))):
        with tempfile.TemporaryDirectory(prefix="kcompact-torture-") as scratch:
            name = f"{seed}-{number}"
            rng, log_dir = random.Random(name), Path(scratch) / "logs"
            checkout.copy_directory(rng.choice(FIXTURES), "before", log_dir)
            changes = [_changed(log_dir, rng) for _ in range(rng.randint(1, 3))]
            _examine(log_dir, f"{name}: {', '.join(changes)}", tally)
    return tally


def _examine(log_dir: Path, name: str, tally: Tally) -> None:
    before = digest(log_dir)
    quick = kcompact("doctor", "--json", *COMPACT, log_dir)
    found = kcompact("doctor", "--verify", "--json", *COMPACT, log_dir)
    if digest(log_dir) != before:
        tally.fail(f"{name}: the directory was changed")
    for ran in (quick, found):
        if not ran.out or "unexpected error" in ran.err:
            tally.fail(f"{name}: {ran.err}")
            return
    cleaned = kcompact(*CLEAN, log_dir)
    if found.code == 0 and cleaned.code != 0:
        tally.fail(f"{name}: nothing found, but refused with {cleaned.code}: {cleaned.err}")
    elif found.code == 0:
        tally.count("clean")
    else:
        tally.count("found" if quick.code else "found by reading")


def _changed(log_dir: Path, rng: random.Random) -> str:
    """Change one file, and return how."""
    file = rng.choice(sorted(path for path in log_dir.rglob("*") if path.is_file()))
    content = file.read_bytes()
    what = rng.choice(("flip", "cut", "grow", "delete", "rename", "directory", "link", "copy"))
    match what:
        case "flip" if content:
            position = rng.randrange(len(content))
            flipped = content[position] ^ rng.randrange(1, 256)
            file.write_bytes(content[:position] + bytes((flipped,)) + content[position + 1 :])
        case "cut":
            file.write_bytes(content[: rng.randint(0, len(content))])
        case "grow":
            file.write_bytes(content + rng.choice((bytes(50), rng.randbytes(30))))
        case "rename":
            file.rename(file.with_name(rng.choice((f"{file.name}.swap", f"{file.name}.deleted", f"x{file.name}"))))
        case "copy":
            target = rng.choice(sorted(path for path in log_dir.rglob("*") if path.is_dir()))
            with contextlib.suppress(shutil.SameFileError):
                shutil.copy(file, target / file.name)
        case "delete" | "directory" | "link":
            file.unlink()
            if what == "directory":
                file.mkdir()
            elif what == "link":
                file.symlink_to("/nowhere")
    return f"{what} {file.relative_to(log_dir)}"
