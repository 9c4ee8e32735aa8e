"""From runs to figures: medians, paired ratios, the table, and the machine they were measured on."""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import os
import platform
import shlex
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench import many
from bench.cases import ASKED, ENGINES, IN_PROCESS, KAFKA_WARM, LISTS, MANY, REFERENCES, REPLICAS, SPARK, Goal
from bench.operations import KINDS
from bench.runner import Measured, Run
from tests.oracle import real_kafka

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (
    "kcompact",
    "pyspark",
    "numpy",
    "lz4",
    "xxhash",
    "zstandard",
    "deflate",
    "cramjam",
    "python-snappy",
    "crc32c",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The figures of one engine in one case: medians over its runs.

    `ratio` is to Kafka on as many cores, `cpu_ratio` the same of processor time, `floor` to the floor, `beside` to the
    same engine on the case's other log, `one_core` to the same engine on one core.

    Of many `parts`, which are partitions or segments, also: `part_cpu_s`, the processor time by their number;
    `further_cpu_s`, the same without the processor time for one part alone; `operations`, the system calls for each
    further part by kind; `checkpoint_s`, what checkpoint files take for each part.
    """

    case: str
    engine: str
    cores: int | None
    runs: int
    wall_s: float
    fastest_s: float
    slowest_s: float
    clean_s: float | None
    cpu_s: float | None
    peak_bytes: float | None
    bytes_per_s: float
    bytes_per_cpu_s: float | None
    records_per_s: float
    waits: float | None
    ratio: float | None
    cpu_ratio: float | None
    beside: float | None
    one_core: float | None
    floor: float | None
    passes: int | None
    goals: tuple[tuple[Goal, float], ...]
    parts: int = 1
    has_many: bool = False
    choosing_s: float | None = None
    part_cpu_s: float | None = None
    further_cpu_s: float | None = None
    checkpoint_s: float | None = None
    operations: Mapping[str, float] = field(default_factory=dict)

    @property
    def efficiency(self) -> float | None:
        """What share of its cores an engine makes use of: 1 where n cores take 1/n of the time of one."""
        return 1 / (self.one_core * self.cores) if self.one_core and self.cores else None


def paired_ratio(
    runs: Iterable[Run], others: Iterable[Run], time_s: Callable[[Run], float | None] = lambda run: run.wall_s
) -> float | None:
    """Return the median of the ratios of times within a round, wall times by default; None where no round has both."""
    times = {run.round: time_s(run) for run in others}
    pairs = [(time_s(run), times.get(run.round)) for run in runs]
    return _median(own / other if own and other else None for own, other in pairs)


def rows(result: Measured) -> list[Row]:
    """Return a row for each engine and number of cores that ran, in the order in which `cases` names them."""
    ran = {(run.engine, run.cores) for run in result.runs if not run.beside}
    return [
        _row(result, engine, cores)
        for engine in dict.fromkeys((*ENGINES, *LISTS, *REPLICAS, *MANY, *ASKED))
        for cores in sorted((cores for name, cores in ran if name == engine), key=lambda cores: cores or 0)
    ]


def _row(result: Measured, engine: str, cores: int | None) -> Row:
    def runs_of(name: str, number: int | None, *, beside: bool = False) -> list[Run]:
        return [run for run in result.runs if (run.engine, run.cores, run.beside) == (name, number, beside)]

    runs, kafka = runs_of(engine, cores), REFERENCES.get(engine, result.case.reference)
    wall_s = median(run.wall_s for run in runs)
    cpu_s = _median(run.cpu_s for run in runs)
    figures: dict[str, Any] = {
        "wall_s": wall_s,
        "peak_bytes": _median(run.peak_bytes for run in runs),
        "bytes_per_cpu_s": result.source_bytes / cpu_s if cpu_s else None,
        "ratio": None if engine == kafka else paired_ratio(runs, runs_of(kafka, cores)),
        "cpu_ratio": None if engine == kafka else paired_ratio(runs, runs_of(kafka, cores), lambda run: run.cpu_s),
        "beside": paired_ratio(runs, runs_of(engine, cores, beside=True)),
        "one_core": paired_ratio(runs, runs_of(engine, 1)) if cores else None,
        **(_of_many(result, engine, cpu_s) if result.case.has_many else {}),
    }
    measured = figures | dict(figures.get("operations", {}))
    goals = [goal for goal in result.case.goals if (goal.engine, goal.cores) == (engine, cores)]
    return Row(
        case=result.case.name,
        engine=engine,
        cores=cores,
        runs=len(runs),
        fastest_s=min(run.wall_s for run in runs),
        slowest_s=max(run.wall_s for run in runs),
        clean_s=_median(run.clean_s for run in runs),
        cpu_s=cpu_s,
        bytes_per_s=result.source_bytes / wall_s,
        records_per_s=result.records / wall_s,
        waits=_median(run.waits for run in runs),
        floor=_to_floor(runs, result.floor_s),
        passes=runs[0].passes,
        goals=tuple((goal, value) for goal in goals if (value := measured.get(goal.of)) is not None),
        choosing_s=_median(run.choosing_s for run in runs),
        **figures,
    )


def _of_many(result: Measured, engine: str, cpu_s: float | None) -> dict[str, Any]:
    parts = result.case.log.parts
    alone_s = 0.0 if engine == KAFKA_WARM else result.alone_cpu_s.get(engine)  # A warm Kafka has started before.
    others = parts if engine == KAFKA_WARM else parts - 1
    return {
        "parts": parts,
        "has_many": True,
        "part_cpu_s": cpu_s / parts if cpu_s is not None else None,
        "further_cpu_s": (cpu_s - alone_s) / others if cpu_s is not None and alone_s is not None and others else None,
        "checkpoint_s": result.checkpoint_s.get(engine),
        "operations": result.operations.get(engine, {}),
    }


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _to_floor(runs: Sequence[Run], floor_s: Sequence[float]) -> float | None:
    return median(run.wall_s / floor_s[run.round] for run in runs) if floor_s else None


def others_share(result: Measured) -> float:
    """Return what share of the processors other processes took while the case was measured."""
    known = [(run.others_cpu_s, run.wall_s) for run in result.runs if run.others_cpu_s is not None]
    wall_s = sum(wall for _, wall in known)
    return sum(others for others, _ in known) / (wall_s * len(os.sched_getaffinity(0))) if known else 0.0


# -- the tables --------------------

Columns = Mapping[str, Callable[[Row], str]]

_NAMED: Columns = {"case": lambda row: row.case, "engine": lambda row: row.engine}
_TIMED: Columns = {
    "runs": lambda row: str(row.runs),
    "wall s": lambda row: _figure(row.wall_s, 2),
    "min-max": lambda row: f"{row.fastest_s:.2f}-{row.slowest_s:.2f}",
}
_USED: Columns = {
    "CPU s": lambda row: _figure(row.cpu_s, 2),
    "k waits": lambda row: _figure(row.waits, 1, 1e3),
    "peak MB": lambda row: _figure(row.peak_bytes, 0, 1e6),
}


def _operations(kind: str) -> Callable[[Row], str]:
    return lambda row: _figure(row.operations.get(kind), 0)


COLUMNS: Columns = {
    **_NAMED,
    **_TIMED,
    "alone s": lambda row: _figure(row.clean_s, 2),
    **_USED,
    "MB/s": lambda row: _figure(row.bytes_per_s, 0, 1e6),
    "k records/s": lambda row: _figure(row.records_per_s, 0, 1e3),
    "x Kafka": lambda row: _figure(row.ratio, 2),
    "x floor": lambda row: _figure(row.floor, 1),
    "passes": lambda row: "" if row.passes is None else str(row.passes),
    "goal": lambda row: _goals(row),
}

SCALING_COLUMNS: Columns = {
    **_NAMED,
    "cores": lambda row: str(row.cores),
    **_TIMED,
    **_USED,
    "x one core": lambda row: _figure(row.one_core, 2),
    "efficiency": lambda row: _figure(row.efficiency, 2),
    "x Kafka": lambda row: _figure(row.ratio, 2),
    "goal": lambda row: _goals(row),
}

MANY_COLUMNS: Columns = {
    **_NAMED,
    **_TIMED,
    "CPU s": _USED["CPU s"],
    "peak MB": _USED["peak MB"],
    "CPU ms of one": lambda row: _figure(row.part_cpu_s, 2, 1e-3),
    "further": lambda row: _figure(row.further_cpu_s, 2, 1e-3),
    "checkpoints": lambda row: _figure(row.checkpoint_s, 2, 1e-3),
    "x Kafka": COLUMNS["x Kafka"],
    "CPU x Kafka": lambda row: _figure(row.cpu_ratio, 2),
    **{kind: _operations(kind) for kind in KINDS},
    "goal": COLUMNS["goal"],
}

QUERY_COLUMNS: Columns = {
    **_NAMED,
    **_TIMED,
    "CPU s": _USED["CPU s"],
    "CPU x Parquet": MANY_COLUMNS["CPU x Kafka"],
    "goal": COLUMNS["goal"],
}

LEFT = {"case", "engine", "goal"}


def _goals(row: Row) -> str:
    said = []
    for goal, value in row.goals:
        # The other figures stand in columns of their own.
        figure = f"{value:.2f}, " if goal.of == "beside" or (goal.of == "cpu_ratio" and not _has_cpu_ratio(row)) else ""
        said.append(f"{goal}: {figure}{'met' if goal.is_met(value) else 'MISSED'}")
    return "; ".join(said)


def _has_cpu_ratio(row: Row) -> bool:
    """Return whether the table of a row has a column for the ratio of processor times."""
    return row.has_many or row.engine in ASKED


def _figure(value: float | None, digits: int, unit: float = 1) -> str:
    return "" if value is None else f"{value / unit:,.{digits}f}"


def tables(every: Sequence[Row]) -> list[tuple[Columns, list[Row]]]:
    """Return the tables that these rows make, where they are not empty: the main one, and those of special cases."""
    all_tables = [
        (COLUMNS, [row for row in every if row.cores is None and not _has_cpu_ratio(row)]),
        (SCALING_COLUMNS, [row for row in every if row.cores is not None]),
        (MANY_COLUMNS, [row for row in every if row.has_many]),
        (QUERY_COLUMNS, [row for row in every if row.engine in ASKED]),
    ]
    return [(columns, of_table) for columns, of_table in all_tables if of_table]


def plain_table(columns: Columns, of_table: Sequence[Row]) -> str:
    """Return rows below titles, in columns; words to the left, figures to the right."""
    table = [list(columns), *([cell(row) for cell in columns.values()] for row in of_table)]
    widths = [max(len(line[column]) for line in table) for column in range(len(columns))]
    text = []
    for line in table:
        padded = [
            cell.ljust(width) if title in LEFT else cell.rjust(width)
            for cell, width, title in zip(line, widths, columns, strict=True)
        ]
        text.append("  ".join(padded).rstrip())
    return "\n".join(text) + "\n"


def markdown_table(columns: Columns, of_table: Sequence[Row]) -> str:
    """Return the same as a table in Markdown."""
    rule = ["---" if title in LEFT else "--:" for title in columns]
    lines = [list(columns), rule, *([cell(row) for cell in columns.values()] for row in of_table)]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def extremes(every: Sequence[Row]) -> list[str]:
    """Return a line for each of kcompact's cleaners: its best and its worst ratio to Kafka, and on which log."""
    lines = []
    for engine in (IN_PROCESS, SPARK):
        found = [(row.ratio, row.case) for row in every if row.engine == engine and not row.cores and row.ratio]
        if found:
            (best, good), (worst, bad) = min(found), max(found)
            lines.append(f"{engine}, x Kafka: best {best:.2f} ({good}), worst {worst:.2f} ({bad})")
    return lines


def growth(every: Sequence[Row]) -> list[str]:
    """Return a line for each engine that ran on few parts and on many: what a part costs more of many.

    The cost of a part is `further_cpu_s`: the start of a command counts for neither.
    """
    lines = []
    for grown in many.GROWTHS:
        few_rows, most_rows = (
            [row for row in every if row.case.endswith(f", {name}")] for name in (grown.few, grown.most)
        )
        for few, most in itertools.product(few_rows, most_rows):
            few_s, most_s = few.further_cpu_s or 0, most.further_cpu_s or 0
            if few.engine == most.engine and min(few_s, most_s) > 0:
                times = most_s / few_s
                line = f"{few.engine}, a {grown.part} of {most.parts:,} by one of {few.parts:,}: {times:.2f}"
                if few.engine in many.GROWING and most.parts == grown.most_parts:
                    line += f" (goal: ≤ {grown.limit}, {'met' if times <= grown.limit else 'MISSED'})"
                lines.append(line)
    return lines


# -- the machine --------------------


def machine(work: Path, kcompact: Sequence[str]) -> dict[str, str]:
    """Return what the figures depend on besides the code: processor, memory, disk, versions."""
    memory_kib = int(_field("/proc/meminfo", "MemTotal").split()[0])
    found = {
        "processor": _field("/proc/cpuinfo", "model name") or platform.machine(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory_kib / (1 << 20):.1f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "disk": _disk(work),
        "java": _first_line([real_kafka.java(), "-version"]),
        "python": platform.python_version(),
        "kcompact": _first_line([*kcompact, "--version"]),
        "commit": _commit(),
    }
    for package in PACKAGES[1:]:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def _field(path: str, name: str) -> str:
    for line in Path(path).read_text(encoding="utf-8", errors="replace").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def _disk(directory: Path) -> str:
    """Return file system and device below a directory: the mount whose name is the longest one that fits."""
    best, found = "", "unknown"
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        words = line.split()
        mount, kind, device = words[4], words[words.index("-") + 1], words[words.index("-") + 2]
        if directory.resolve().is_relative_to(mount) and len(mount) >= len(best):
            best, found = mount, f"{kind} on {device}"
    return found


def _first_line(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    said = (done.stdout + done.stderr).strip().splitlines()
    return said[0] if said else f"{shlex.join(command)} said nothing"


def _commit() -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    changed = subprocess.run(
        ["git", "-C", str(ROOT), "status", "--porcelain"], capture_output=True, text=True, check=False
    ).stdout
    return (done.stdout.strip() or "unknown") + (" with changes" if changed.strip() else "")


# -- what is saved --------------------


def about_case(result: Measured) -> str:
    """Return a line about the log of a case and about how undisturbed the machine was."""
    text = f"{result.case.name}: {result.source_bytes / 1e6:,.1f} MB, {result.records:,} records"
    if result.floor_s:
        text += f", to {result.result_bytes / 1e6:,.1f} MB; floor {median(result.floor_s):.3f} s"
    return f"{text}; other processes took {others_share(result):.0%} of the processors"


def save(directory: Path, results: Sequence[Measured], about: dict[str, str], command: Sequence[str]) -> None:
    """Write `bench.md` and `bench.json`: the table, and every run with the machine."""
    directory.mkdir(parents=True, exist_ok=True)
    every = [row for result in results for row in rows(result)]
    told = "\n".join(markdown_table(*table) for table in tables(every))
    ratios = "".join(f"- {line}\n" for line in (*extremes(every), *growth(every)))
    logs = "".join(f"- {about_case(result)}\n" for result in results)
    said = "".join(f"- {name}: {value}\n" for name, value in about.items())
    page = "\n".join([f"`{shlex.join(command)}`\n", told, *([ratios] if ratios else []), logs, said])
    (directory / "bench.md").write_text(page, encoding="utf-8")
    document = {
        "command": list(command),
        "machine": about,
        "cases": [asdict(result) | {"rows": [asdict(row) for row in rows(result)]} for result in results],
    }
    (directory / "bench.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
