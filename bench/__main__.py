"""`python -m bench`: kcompact against Kafka's own cleaner, on logs that Kafka's own code wrote.

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

from bench import cases, logs, many, plot, queries, results, shapes
from bench.measured import CommandFailedError
from bench.runner import Bench, Measured, WrongResultError
from tests.oracle import driver

ROOT = Path(__file__).resolve().parents[1]
ALL = "all"
ENGINES = (*cases.ENGINES, *cases.LISTS, *cases.REPLICAS, cases.DOCTOR, cases.REPORT)


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0] if __doc__ else None)
    listed = parser.add_argument_group("lists of cases", "without any of these, the usual list")
    listed.add_argument(
        "--quick", action="store_true", help="of the usual list only 10 MB and 117 MB; a fiftieth of many"
    )
    listed.add_argument("--goals", action="store_true", help="the logs of the goals, each engine that cleans")
    listed.add_argument("--scaling", action="store_true", help="each cleaner on 1, 2, 4 … all cores, for each codec")
    listed.add_argument("--large", action="store_true", help=f"also {shapes.UNIQUE_RECORDS:,} unique keys, once")
    chosen = parser.add_argument_group("cases", "instead of a list, each combination of these")
    chosen.add_argument("--sizes", type=_words(shapes.SIZES), default=[], metavar="NAME,…", help=_list(shapes.SIZES))
    chosen.add_argument("--codecs", type=_words(shapes.CODECS), default=[], metavar="NAME,…", help=_list(shapes.CODECS))
    chosen.add_argument("--survive", type=_numbers(100), default=[], metavar="PERCENT,…", help="how much: 10,50,100")
    chosen.add_argument("--batches", type=_numbers(5000), default=[], metavar="N,…", help="records a batch: 1,10")
    chosen.add_argument(
        "--shapes",
        type=_shapes,
        default=[],
        metavar="NAME,…",
        help=f"{_list(shapes.SHAPES)}, {_list(shapes.FIXED_SHAPES)}, {many.ALL}: those with many partitions, "
        f"{many.SEGMENTS}: those in many segments, {queries.ALL}: those that Spark queries, "
        f"{ALL}: those that take less long",
    )
    chosen.add_argument("--large-records", type=int, metavar="N", help="so many unique keys; implies --large")
    chosen.add_argument("--article-scale", type=float, default=1.0, metavar="F", help="a part of its log: 0.1")
    chosen.add_argument("--seed", type=int, default=1, help="of keys and values (default: 1)")
    how = parser.add_argument_group("measuring")
    how.add_argument("--runs", type=int, default=5, help="rounds of each case (default: 5)")
    how.add_argument("--large-runs", type=int, default=1, help="rounds of unique and article (default: 1)")
    how.add_argument("--engines", type=_words(ENGINES), default=[], metavar="NAME,…", help=_list(ENGINES))
    how.add_argument(
        "--kcompact", type=shlex.split, metavar="COMMAND", help="how kcompact is started (default: this one)"
    )
    how.add_argument(
        "--dedupe-buffer-bytes", type=int, default=logs.DEDUPE_BUFFER_BYTES, help="Kafka's (default: 128 MiB)"
    )
    where = parser.add_argument_group("directories")
    where.add_argument("--output", type=Path, default=ROOT / ".bench" / "results", help="bench.md, .json, .svg")
    where.add_argument("--cache", type=Path, default=ROOT / ".bench" / "logs", help="where built logs are kept")
    where.add_argument("--work", type=Path, default=ROOT / ".bench" / "work", help="where copies are cleaned")
    return parser


def main() -> int:
    wanted = parser().parse_args()
    try:
        planned = shapes.chosen(_options(wanted))
    except ValueError as error:
        parser().error(str(error))
    driver.build()
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
        bench.prime([name for name in ENGINES if any(name in case.engines for case in planned)])
        for number, case in enumerate(planned, 1):
            print(f"[{number}/{len(planned)}, {time.monotonic() - started:.0f} s] {case.name}", flush=True)
            measured.append(bench.measure(case))
            _report(measured, about, wanted.output)
    except (WrongResultError, CommandFailedError) as error:
        print(f"\n{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(bench.work, ignore_errors=True)
    every = [row for result in measured for row in results.rows(result)]
    print("\n" + "\n".join(results.plain_table(*table) for table in results.tables(every)))
    print("\n".join([*results.extremes(every), *results.growth(every), *map(results.about_case, measured)]))
    print(f"\n{time.monotonic() - started:.0f} s; saved in {wanted.output}")
    return 0


def _options(wanted: argparse.Namespace) -> shapes.Options:
    return shapes.Options(
        quick=wanted.quick,
        goals=wanted.goals,
        scaling=wanted.scaling,
        large=wanted.large or wanted.large_records is not None,
        sizes=wanted.sizes,
        codecs=wanted.codecs,
        survive=wanted.survive,
        batches=wanted.batches,
        shapes=wanted.shapes,
        engines=wanted.engines,
        runs=wanted.runs,
        large_runs=wanted.large_runs,
        large_records=wanted.large_records or shapes.UNIQUE_RECORDS,
        article_scale=wanted.article_scale,
        seed=wanted.seed,
    )


def _report(measured: list[Measured], about: dict[str, str], output: Path) -> None:
    """Save what there is after each case: a later one may fail."""
    results.save(output, measured, about, ["python", "-m", "bench", *sys.argv[1:]])
    every = [row for result in measured for row in results.rows(result)]
    for name, drawn in plot.plots(every).items():
        (output / f"{name}.svg").write_text(drawn, encoding="utf-8")


def refuse_without_room(planned: list[cases.Case], cache: Path) -> None:
    """Exit when the logs that are not built yet, and what the largest case writes beside its log, do not fit."""
    specs = [spec for case in planned for spec in (case.log, case.beside) if spec]
    missing = {spec.name: spec.estimated_bytes for spec in specs if not (cache / spec.name).is_dir()}
    needed = sum(missing.values()) + max((case.disk_bytes for case in planned), default=0)
    free = shutil.disk_usage(cache).free
    if free < needed:
        sys.exit(f"{cache} has {free / 1e9:.1f} GB free; these cases need about {needed / 1e9:.1f} GB")


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)


def _words(known: Iterable[str]) -> Callable[[str], list[str]]:
    names = list(known)

    def parse(text: str) -> list[str]:
        found = text.split(",")
        for name in found:
            if name not in names:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {_list(names)}")
        return found

    return parse


def _shapes(text: str) -> list[str]:
    if text == ALL:
        return [*shapes.SHAPES, shapes.LISTING, *shapes.LISTED]
    groups = {many.ALL: many.SHAPES, many.SEGMENTS: many.IN_SEGMENTS, queries.ALL: queries.SHAPES}
    found = _words([*shapes.SHAPES, *shapes.FIXED_SHAPES, *groups])(text)
    return [name for word in found for name in groups.get(word, [word])]


def _numbers(most: int) -> Callable[[str], list[int]]:
    def parse(text: str) -> list[int]:
        found = [int(word) for word in text.split(",")]
        if not all(0 < number <= most for number in found):
            raise argparse.ArgumentTypeError(f"between 1 and {most}")
        return found

    return parse


if __name__ == "__main__":
    sys.exit(main())
