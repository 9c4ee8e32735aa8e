"""From runs to figures: medians, paired ratios, the table, and the machine they were measured on."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shlex
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.cases import ENGINES, KAFKA, Goal
from tests.bench.runner import Measured, Run
from tests.oracle import real_kafka

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("kcompact", "pyspark", "numpy", "numba", "lz4", "xxhash", "zstandard", "cramjam", "python-snappy", "crc32c")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The figures of one engine in one case: medians over its runs. `ratio` is to Kafka, `floor` to the floor."""

    case: str
    engine: str
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
    ratio: float | None
    floor: float | None
    passes: int | None
    goals: tuple[tuple[Goal, bool], ...]


def paired_ratio(runs: Sequence[Run], engine: str, other: str) -> float | None:
    """Return the median of the ratios of wall times within a round, or None where no round has both."""
    times = {(run.engine, run.round): run.wall_s for run in runs}
    ratios = [
        wall_s / times[other, number]
        for (name, number), wall_s in times.items()
        if name == engine and (other, number) in times
    ]
    return median(ratios) if ratios else None


def rows(result: Measured) -> list[Row]:
    """Return a row for each engine that ran, in the order of `cases.ENGINES`."""
    return [_row(result, engine) for engine in ENGINES if any(run.engine == engine for run in result.runs)]


def _row(result: Measured, engine: str) -> Row:
    runs = [run for run in result.runs if run.engine == engine]
    wall_s = median(run.wall_s for run in runs)
    cpu_s = _median(run.cpu_s for run in runs)
    figures: dict[str, Any] = {
        "wall_s": wall_s,
        "peak_bytes": _median(run.peak_bytes for run in runs),
        "bytes_per_cpu_s": result.source_bytes / cpu_s if cpu_s else None,
        "ratio": None if engine == KAFKA else paired_ratio(result.runs, engine, KAFKA),
    }
    goals = [goal for goal in result.case.goals if goal.engine == engine and figures[goal.of] is not None]
    return Row(
        case=result.case.name,
        engine=engine,
        runs=len(runs),
        fastest_s=min(run.wall_s for run in runs),
        slowest_s=max(run.wall_s for run in runs),
        clean_s=_median(run.clean_s for run in runs),
        cpu_s=cpu_s,
        bytes_per_s=result.source_bytes / wall_s,
        records_per_s=result.records / wall_s,
        floor=_to_floor(runs, result.floor_s),
        passes=runs[0].passes,
        goals=tuple((goal, goal.is_met(figures[goal.of])) for goal in goals),
        **figures,
    )


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


# -- the table --------------------

TITLES = (
    *("case", "engine", "runs", "wall s", "min-max", "alone s", "CPU s", "peak MB", "MB/s", "k records/s"),
    *("x Kafka", "x floor", "passes", "goal"),
)
LEFT = {"case", "engine", "goal"}


def cells(row: Row) -> list[str]:
    """Return the cells of a row, under `TITLES`."""
    goals = "; ".join(f"{goal}: {'met' if is_met else 'MISSED'}" for goal, is_met in row.goals)
    return [
        row.case,
        row.engine,
        str(row.runs),
        _figure(row.wall_s, 2),
        f"{row.fastest_s:.2f}-{row.slowest_s:.2f}",
        _figure(row.clean_s, 2),
        _figure(row.cpu_s, 2),
        _figure(row.peak_bytes, 0, 1e6),
        _figure(row.bytes_per_s, 0, 1e6),
        _figure(row.records_per_s, 0, 1e3),
        _figure(row.ratio, 2),
        _figure(row.floor, 1),
        "" if row.passes is None else str(row.passes),
        goals,
    ]


def _figure(value: float | None, digits: int, unit: float = 1) -> str:
    return "" if value is None else f"{value / unit:,.{digits}f}"


def plain_table(lines: Sequence[Sequence[str]]) -> str:
    """Return rows of cells below `TITLES`, in columns; words to the left, figures to the right."""
    table = [list(TITLES), *map(list, lines)]
    widths = [max(len(line[column]) for line in table) for column in range(len(TITLES))]
    text = []
    for line in table:
        padded = [
            cell.ljust(width) if title in LEFT else cell.rjust(width)
            for cell, width, title in zip(line, widths, TITLES, strict=True)
        ]
        text.append("  ".join(padded).rstrip())
    return "\n".join(text) + "\n"


def markdown_table(lines: Sequence[Sequence[str]]) -> str:
    """Return the same as a table in Markdown."""
    rule = ["---" if title in LEFT else "--:" for title in TITLES]
    return "".join("| " + " | ".join(line) + " |\n" for line in [TITLES, rule, *lines])


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
    lines = [cells(row) for row in every]
    said = "".join(f"- {name}: {value}\n" for name, value in about.items())
    logs = "".join(f"- {about_case(result)}\n" for result in results)
    page = f"`{shlex.join(command)}`\n\n{markdown_table(lines)}\n{logs}\n{said}"
    (directory / "bench.md").write_text(page, encoding="utf-8")
    document = {
        "command": list(command),
        "machine": about,
        "cases": [asdict(result) | {"rows": [asdict(row) for row in rows(result)]} for result in results],
    }
    (directory / "bench.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
