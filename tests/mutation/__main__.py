"""Try the mutants of the lists: `make mutants` runs it.

python -m tests.mutation                     # all rooms
python -m tests.mutation search round_end       # some of them
python -m tests.mutation --draw --seed 7     # draw others in place of those that no longer apply
"""

from __future__ import annotations

import argparse
import os
import queue
import random
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutation.listed import ROOMS, ROOT, Listed, candidates, read, write

LEAST_FOUND = 0.9
"""The part of the mutants, those without equivalents, that has to be found."""
LEAST_LIMIT_S = 30.0
"""A mutant whose tests take so much longer, and five times as long, runs for ever, and is found by that."""
OPTIONS = ["-q", "-x", "-o", "addopts=", "-p", "no:randomly", "-p", "no:cacheprovider", "--hypothesis-profile=first"]
OPTIONS += ["-m", "not slow and not spark and not oracle"]
NOT_COPIED = shutil.ignore_patterns(".git", ".venv*", "build", "__pycache__", ".*_cache", ".hypothesis", "target")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help=", ".join(ROOMS))
    parser.add_argument("--draw", action="store_true", help="draw mutants in place of those that no longer apply")
    parser.add_argument("--seed", type=int, default=1, help="for --draw")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    rooms = options.rooms or list(ROOMS)
    if options.draw:
        for room in rooms:
            draw(room, options.seed)
        return 0
    return max([try_room(room, options.workers) for room in rooms])


def draw(room: str, seed: int) -> None:
    """Fill the list of a room up, with mutants that a seed chooses."""
    listed = read(room)[0]
    others = sorted(set(candidates(room)) - {each.mutant for each in listed}, key=str)
    wanted = ROOMS[room].count - len(listed)
    drawn = random.Random(f"{room} {seed}").sample(others, wanted)
    write(room, [*listed, *map(Listed, drawn)])
    print(f"{room}: {wanted} drawn")


def try_room(room: str, workers: int) -> int:
    """Run the tests of a room on each of its mutants; print what lives, and return 1 if that is too much."""
    listed, lost = read(room)
    for text in lost:
        print(f"{room}: no longer applies:\n{text}", file=sys.stderr)
    tried = [each for each in listed if not each.reason]
    with tempfile.TemporaryDirectory(prefix="kcompact-mutation-") as scratch:
        trees: queue.Queue[Path] = queue.Queue()
        for number in range(workers):
            shutil.copytree(ROOT, tree := Path(scratch, str(number)), ignore=NOT_COPIED, symlinks=True)
            trees.put(tree)
        began = time.monotonic()
        if problem := failure(room, Path(scratch, "0"), limit_s=None):
            print(f"{room}: its tests fail without a mutant:\n{problem}", file=sys.stderr)
            return 1
        limit_s = LEAST_LIMIT_S + 5 * (time.monotonic() - began)

        def is_found(each: Listed) -> bool:
            tree = trees.get()
            path = tree / each.mutant.path
            source = path.read_text(encoding="utf-8")
            path.write_text(each.mutant.applied(source), encoding="utf-8")
            try:
                return bool(failure(room, tree, limit_s))
            finally:
                path.write_text(source, encoding="utf-8")
                trees.put(tree)

        with ThreadPoolExecutor(workers) as pool:
            found = 0
            for each, was_found in zip(tried, pool.map(is_found, tried), strict=True):
                found += was_found
                if not was_found:
                    print(f"{each}\n", flush=True)
    equivalent = len(listed) - len(tried)
    print(f"{room}: {found} of {len(tried)} mutants found, {equivalent} equivalent, {len(lost)} lost", flush=True)
    return int(bool(lost) or found < LEAST_FOUND * len(tried))


def failure(room: str, tree: Path, limit_s: float | None) -> str:
    """Return what the tests of a room print where one fails, or "" where all pass."""
    command = [sys.executable, "-m", "pytest", *OPTIONS, *ROOMS[room].tests]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ended = subprocess.run(
            command,
            cwd=tree,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit_s,
            text=True,
        )
    except subprocess.TimeoutExpired:
        return f"more than {limit_s:.0f} s"
    return ended.stdout[-2000:] if ended.returncode else ""


if __name__ == "__main__":
    sys.exit(main())
