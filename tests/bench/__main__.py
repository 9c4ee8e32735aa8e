"""`python -m tests.bench`: kcompact against Kafka's own cleaner, on logs that Kafka's own code wrote.

See docs/bench.md.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.bench import cases, logs, plot, results
from tests.bench.measured import CommandFailedError
from tests.bench.runner import Bench, Measured, WrongResultError
from tests.oracle import real_kafka

ROOT = Path(__file__).resolve().parents[2]
LARGE_RECORDS = 60_000_000
SCENARIOS = (cases.DIRTY, cases.CLEAN_AND_DIRTY, cases.LISTING, cases.UNIQUE)


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench", description=__doc__.splitlines()[0] if __doc__ else None
    )
    chosen = parser.add_argument_group("cases", "without any of the first four, a usual list")
    chosen.add_argument(
        "--sizes", type=_words(cases.SIZES), default=[], metavar="NAME,…", help=f"{', '.join(cases.SIZES)}"
    )
    chosen.add_argument(
        "--codecs", type=_words(cases.CODECS), default=[], metavar="NAME,…", help=", ".join(cases.CODECS)
    )
    chosen.add_argument(
        "--survive", type=_percents, default=[], metavar="PERCENT,…", help="how much is kept: 10,50,100"
    )
    chosen.add_argument("--scenario", type=_words(SCENARIOS), default=[], metavar="NAME,…", help=", ".join(SCENARIOS))
    chosen.add_argument("--quick", action="store_true", help="of the usual list only 10 MB and 117 MB")
    chosen.add_argument("--large", action="store_true", help=f"also {LARGE_RECORDS:,} unique keys, once")
    chosen.add_argument("--large-records", type=int, metavar="N", help="that many instead; implies --large")
    chosen.add_argument("--seed", type=int, default=1, help="of keys and values (default: 1)")
    how = parser.add_argument_group("measuring")
    how.add_argument("--runs", type=int, default=5, help="rounds of each case (default: 5)")
    how.add_argument("--large-runs", type=int, default=1, help="rounds of --large (default: 1)")
    how.add_argument("--engines", type=_words(cases.ENGINES), default=list(cases.ENGINES), metavar="NAME,…")
    how.add_argument(
        "--kcompact", type=shlex.split, metavar="COMMAND", help="how kcompact is started (default: this one)"
    )
    how.add_argument(
        "--dedupe-buffer-bytes", type=int, default=logs.DEDUPE_BUFFER_BYTES, help="Kafka's (default: 128 MiB)"
    )
    where = parser.add_argument_group("directories")
    where.add_argument("--output", type=Path, default=ROOT / ".bench" / "results", help="bench.md, .json and .svg")
    where.add_argument("--cache", type=Path, default=ROOT / ".bench" / "logs", help="where built logs are kept")
    where.add_argument("--work", type=Path, default=ROOT / ".bench" / "work", help="where copies are cleaned")
    return parser


def main() -> int:
    wanted = parser().parse_args()
    large_records = wanted.large_records or (LARGE_RECORDS if wanted.large or cases.UNIQUE in wanted.scenario else 0)
    planned = cases.chosen(
        quick=wanted.quick,
        sizes=wanted.sizes,
        codecs=wanted.codecs,
        survive=wanted.survive,
        scenarios=wanted.scenario,
        engines=wanted.engines,
        runs=wanted.runs,
        seed=wanted.seed,
        large_records=large_records,
        large_runs=wanted.large_runs,
    )
    real_kafka.build()
    wanted.cache.mkdir(parents=True, exist_ok=True)
    refuse_without_room(planned, wanted.cache.resolve())
    environment = dict(os.environ)
    if wanted.kcompact is None:
        wanted.kcompact = [sys.executable, "-m", "kcompact"]
        environment["PYTHONPATH"] = str(ROOT)
    bench = Bench(
        cache=wanted.cache.resolve(),
        work=wanted.work.resolve(),
        kcompact=wanted.kcompact,
        environment=environment,
        dedupe_buffer_bytes=wanted.dedupe_buffer_bytes,
    )
    about = results.machine(bench.cache, wanted.kcompact)
    print("".join(f"{name}: {value}\n" for name, value in about.items()), end="", flush=True)
    started = time.monotonic()
    measured: list[Measured] = []
    try:
        bench.prime([name for name in cases.ENGINES if any(name in case.engines for case in planned)])
        for number, case in enumerate(planned, 1):
            print(f"[{number}/{len(planned)}, {time.monotonic() - started:.0f} s] {case.name}", flush=True)
            measured.append(bench.measure(case))
            _report(measured, about, wanted.output)
    except (WrongResultError, CommandFailedError) as error:
        print(f"\n{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(bench.work, ignore_errors=True)
    lines = [results.cells(row) for result in measured for row in results.rows(result)]
    print(f"\n{results.plain_table(lines)}")
    print("\n".join(results.about_case(result) for result in measured))
    print(f"\n{time.monotonic() - started:.0f} s; saved in {wanted.output}")
    return 0


def _report(measured: list[Measured], about: dict[str, str], output: Path) -> None:
    """Save what there is after each case: a later one may fail."""
    results.save(output, measured, about, ["python", "-m", "tests.bench", *sys.argv[1:]])
    drawn = plot.svg([row for result in measured for row in results.rows(result)])
    (output / "bench.svg").write_text(drawn, encoding="utf-8")


def refuse_without_room(planned: list[cases.Case], cache: Path) -> None:
    """Exit when the logs that are not built yet, and the copies of the largest, do not fit on the disk."""
    missing = {case.log.name: case.log.estimated_bytes for case in planned if not (cache / case.log.name).is_dir()}
    copied = [case.log.estimated_bytes for case in planned if set(case.engines) & set(cases.CLEANS)]
    needed = sum(missing.values()) + 3 * max(copied, default=0)
    free = shutil.disk_usage(cache).free
    if free < needed:
        sys.exit(f"{cache} has {free / 1e9:.1f} GB free; these cases need about {needed / 1e9:.1f} GB")


def _words(known: Iterable[str]) -> Callable[[str], list[str]]:
    names = list(known)

    def parse(text: str) -> list[str]:
        found = text.split(",")
        for name in found:
            if name not in names:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(names)}")
        return found

    return parse


def _percents(text: str) -> list[int]:
    found = [int(word) for word in text.split(",")]
    if not all(0 < percent <= 100 for percent in found):
        raise argparse.ArgumentTypeError("between 1 and 100")
    return found


if __name__ == "__main__":
    sys.exit(main())
