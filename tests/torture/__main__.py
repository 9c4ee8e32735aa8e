"""Runs the parts of the torture run and prints a line for each. Exits with 1 if anything failed."""

from __future__ import annotations

import argparse
import importlib
import sys
import time

PARTS = (
    "kills",
    "way_back",
    "power_loss",
    "mutants",
    "io_errors",
    "hostile_bytes",
    "bit_flips",
    "own_files",
    "reader_agreement",
    "races",
    "brokers",
    "copies",
    "foreign",
    "links",
    "diagnoses",
    "buckets",
    "spark_kills",
)
"""Modules with a function `run(*, share, seed)` that returns a `Tally`."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"default: all of {', '.join(PARTS)}")
    parser.add_argument("--share", type=float, default=1.0, help="how much of each part is run, 0.1 in CI")
    parser.add_argument("--seed", type=int, default=1, help="chooses what is run of a share, and what is random")
    options = parser.parse_args()
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    has_failed = False
    for part in options.parts or PARTS:
        started = time.monotonic()
        tally = importlib.import_module(f"tests.torture.{part}").run(share=options.share, seed=options.seed)
        print(f"{part:17} {time.monotonic() - started:5.0f} s  {tally}", flush=True)
        for failure in tally.failures[:20]:
            print(f"  {failure}", flush=True)
        if tally.failures:
            print(f"  To repeat: python -m tests.torture {part} --share {options.share} --seed {options.seed}")
            has_failed = True
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main())
