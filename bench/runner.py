"""Runs a case: each engine in turn, round after round, on copies of the same log."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from bench import cases, checkpoints, logs, measured, operations
from bench.cases import Case, LogSpec, Turn

WARM_UP_RECORDS = 1_000_000
WARM_UP_PARTITIONS = 1000
"""As many as Kafka cleans at most to warm up: a partition costs it 20 ms or more, however small it is."""
MOST_WARM_UPS = 8
UNREAD = (*cases.LISTS, *cases.REPLICAS, cases.DOCTOR, cases.REPORT)
"""Those whose output tells nothing about their work."""
MEMORY_SHARE = 0.3
"""Of the memory that is free, what a log may take up before the cached original has to leave the page cache."""


class WrongResultError(Exception):
    """An engine's result is not what Kafka's cleaner left, or a command that only reads wrote something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One measured run of a `Turn`.

    `clean_s` is the cleaning alone, as the engine itself reports it, if it does. A warm Kafka has only been measured
    from inside: its memory is that of the warming up as well, and is left out. `choosing_s` is the part of `clean_s` in
    which Kafka's manager chooses the next log.
    """

    engine: str
    round: int
    wall_s: float
    cores: int | None = None
    beside: bool = False
    cpu_s: float | None = None
    peak_bytes: int | None = None
    peak_resident_bytes: int | None = None
    processes: int | None = None
    lingered_s: float | None = None
    others_cpu_s: float | None = None
    waits: int | None = None
    preemptions: int | None = None
    clean_s: float | None = None
    choosing_s: float | None = None
    passes: int | None = None
    records_read: int | None = None
    records_written: int | None = None


@dataclass(slots=True, kw_only=True)
class Measured:
    """A case and what came of it; `floor_s` has a figure for each round.

    `operations` are the system calls for each partition, by engine and kind, `checkpoint_s` the processor time for each
    partition that reading and writing checkpoint files takes, and `alone_cpu_s` the processor time for a log directory
    of one partition. They are only known of a case that has many partitions, or many segments: then they are those of a
    segment.
    """

    case: Case
    source_bytes: int = 0
    result_bytes: int = 0
    records: int = 0
    runs: list[Run] = field(default_factory=list)
    floor_s: list[float] = field(default_factory=list)
    operations: dict[str, dict[str, float]] = field(default_factory=dict)
    checkpoint_s: dict[str, float] = field(default_factory=dict)
    alone_cpu_s: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Where logs are kept, and how the engines are started."""

    cache: Path
    work: Path
    kcompact: Sequence[str]
    environment: Mapping[str, str]
    dedupe_buffer_bytes: int = logs.DEDUPE_BUFFER_BYTES

    def prime(self, engines: Sequence[str]) -> None:
        """Run the cleaners once on small logs, unmeasured: the first run ever compiles kernels and archives classes.

        A list uses the same kernels, but compiles none for a small log.
        """
        reads = (cases.LIST, *cases.REPLICAS)
        wanted = {cases.IN_PROCESS if engine in reads else engine for engine in engines}
        cleaners = [engine for engine in (cases.KAFKA, cases.SPARK, cases.IN_PROCESS) if engine in wanted]
        for engine, codec in product(cleaners, ("none", "lz4")):
            spec = LogSpec(records=10_000, value_bytes=91, keys=1000, codec=codec)
            case = Case(name="first", log=spec, engines=(), runs=1)
            self._turn(Turn(engine), 0, case, logs.build(spec, self.cache))

    def measure(self, case: Case) -> Measured:
        """Run a case to its end and return its figures. Raises `WrongResultError` and `CommandFailedError`."""
        if case.query:
            return self._ask(case)
        source = {False: logs.build(case.log, self.cache)}
        if case.beside:
            source[True] = logs.build(case.beside, self.cache)
        records = case.log.records * case.log.partitions
        result = Measured(case=case, source_bytes=logs.source_bytes(source[False]), records=records)
        left: dict[Run, dict[str, str]] = {}
        for number in range(case.runs):
            for turn in case.turns(number):
                run = self._turn(turn, number, case, source[turn.beside])
                result.runs.append(run)
                if turn.engine in cases.CLEANS and not turn.beside:
                    log_dir = self._work_directory(turn.engine)
                    left[run] = logs.fingerprint(log_dir)
                    result.result_bytes = logs.source_bytes(log_dir)
                    result.records = run.records_read or result.records
                self._tidy()
                _say(case, run)
            if result.result_bytes:
                result.floor_s.append(self._floor(source[False], result.result_bytes))
            _compare(case, left)
        if case.has_many:
            self._count(result, source[False])
        return result

    def _ask(self, case: Case) -> Measured:
        """Measure a query of Spark, all its rounds in one session."""
        source = logs.build(case.log, self.cache)
        logs.read_into_memory(source)
        self._tidy()
        self.work.mkdir(parents=True)
        directories = [str(source), str(source.with_name(f"{source.name}-parquet"))]
        command = [sys.executable, "-m", "bench.spark_session", *directories]
        environment = dict(self.environment) | {"PYTHONPATH": str(Path(__file__).resolve().parents[1])}
        options = ["--query", case.query, "--runs", str(case.runs)]
        used = measured.run([*command, *options], cwd=self.work, env=environment)
        self._tidy()
        others = used.others_cpu_s / used.wall_s  # Known of the whole session only.
        runs = [Run(**run, others_cpu_s=others * run["wall_s"]) for run in json.loads(used.output)]
        for run in runs:
            _say(case, run)
        return Measured(case=case, source_bytes=logs.source_bytes(source), records=case.log.records, runs=runs)

    def _count(self, result: Measured, source: Path) -> None:
        """Count the system calls for each partition, and measure what does not depend on their number."""
        case = result.case
        alone = logs.build(case.log.one_part, self.cache)
        for engine in case.engines:
            if engine == cases.KAFKA_WARM:
                continue
            counts = {}
            for directory in (source, alone):
                log_dir = self._prepared(engine, directory)
                counts[directory] = operations.count(
                    self._command(engine, case.log, log_dir), cwd=self.work, env=self.environment
                )
            others = max(1, case.log.parts - 1)
            more = {kind: counts[source][kind] - counts[alone][kind] for kind in operations.KINDS}
            result.operations[engine] = {kind: count / others for kind, count in more.items()}
            result.alone_cpu_s[engine] = self._turn(Turn(engine), 0, case, alone).cpu_s or 0
            if engine in (cases.IN_PROCESS, cases.PLAN):
                command = self._command(engine, case.log, self._prepared(engine, source))
                used_s = checkpoints.measure(command, self.kcompact, cwd=self.work, env=self.environment)
                result.checkpoint_s[engine] = used_s / case.log.parts
        self._tidy()

    def _prepared(self, engine: str, source: Path) -> Path:
        """Return the log directory that an engine gets: a copy of its own if it cleans."""
        self._tidy()
        self.work.mkdir(parents=True, exist_ok=True)
        if engine not in cases.CLEANS:
            return source
        log_dir = self._work_directory(engine)
        self._copy(source, log_dir)
        return log_dir

    def _turn(self, turn: Turn, number: int, case: Case, source: Path) -> Run:
        self._tidy()
        self.work.mkdir(parents=True, exist_ok=True)
        engine, spec = turn.engine, case.log
        if engine == cases.KAFKA_WARM:
            return self._warm_kafka(number, spec, source)
        log_dir = source
        if engine in cases.CLEANS:
            log_dir = self._work_directory(engine)
            self._copy(source, log_dir, linked=case.linked)
        before = logs.stamp(source)
        command = self._command(engine, spec, log_dir)
        os.sync()  # What was written before must not be written back while we measure.
        _prepare_page_cache(log_dir)
        used = measured.run(
            command,
            cwd=self.work,
            env=self.environment,
            cores=turn.cores,
            keeps_output=engine not in UNREAD,
        )
        if logs.stamp(source) != before:
            raise WrongResultError(f"{engine} changed {source}")
        fields = {} if engine in UNREAD else _reported(engine, used.output)
        return Run(
            engine=engine,
            round=number,
            cores=turn.cores,
            beside=turn.beside,
            wall_s=used.wall_s,
            cpu_s=used.cpu_s,
            peak_bytes=used.peak_bytes,
            peak_resident_bytes=used.peak_resident_bytes,
            processes=used.processes,
            lingered_s=used.lingered_s,
            others_cpu_s=used.others_cpu_s,
            waits=used.waits,
            preemptions=used.preemptions,
            **fields,
        )

    def _warm_kafka(self, number: int, spec: LogSpec, source: Path) -> Run:
        warm_spec, count = warm_up(spec)
        warm_source = logs.build(warm_spec, self.cache)
        warm = [self.work / f"warm-up-{n}" for n in range(count)]
        log_dir = self._work_directory(cases.KAFKA_WARM)
        for target in warm:
            self._copy(warm_source, target)
        self._copy(source, log_dir)
        os.sync()
        logs.read_into_memory(log_dir)
        command = [*self._kafka(spec, log_dir), "--warm", ",".join(map(str, warm))]
        output = measured.run(command, cwd=self.work, env=self.environment).output
        reply = json.loads(output)
        wall_s = (reply["open_ms"] + reply["clean_ms"] + reply["close_ms"]) / 1000
        cpu_s, choosing_s = reply["cpu_ms"] / 1000, reply["choosing_ms"] / 1000
        return Run(
            engine=cases.KAFKA_WARM,
            round=number,
            wall_s=wall_s,
            cpu_s=cpu_s,
            choosing_s=choosing_s,
            **_of_kafka(output),
        )

    def _copy(self, source: Path, target: Path, *, linked: bool = False) -> None:
        if linked:
            logs.link(source, target)
            return
        logs.copy(source, target)
        if logs.source_bytes(source) > MEMORY_SHARE * _free_memory_bytes():
            logs.drop_from_memory(source)

    def _work_directory(self, engine: str) -> Path:
        return self.work / f"log-{engine}"

    def _tidy(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)

    def _command(self, engine: str, spec: LogSpec, log_dir: Path) -> list[str]:
        match engine:
            case cases.KAFKA:
                return self._kafka(spec, log_dir)
            case cases.DUMP_LOG:
                return logs.dump_log_command(log_dir)
            case cases.LIST:
                return [*self.kcompact, "records", "--print-data", str(log_dir)]
            case cases.DOCTOR:
                return [*self.kcompact, "doctor", *logs.config_arguments(spec), "--now", str(spec.now_ms), str(log_dir)]
            case cases.REPORT:
                page = ["-o", str(self.work / "report.html")]
                words = ["report", *logs.config_arguments(spec), "--now", str(spec.now_ms), *page]
                return [*self.kcompact, *words, str(log_dir)]
            case cases.KEYS | cases.COMPARE:
                replica = self._replica(spec, log_dir)
                return [*self.kcompact, engine, "--engine", "in-process", "--json", str(log_dir), str(replica)]
        return self._kcompact(engine, spec, log_dir)

    def _kafka(self, spec: LogSpec, log_dir: Path) -> list[str]:
        buffer_bytes = self.dedupe_buffer_bytes
        command = logs.java_command("CleanLog", dedupe_buffer_bytes=buffer_bytes)
        options = ["--log-dir", str(log_dir), "--now-ms", str(spec.now_ms), "--dedupe-buffer-bytes", str(buffer_bytes)]
        return [*command, *options, *logs.config_arguments(spec)]

    def _kcompact(self, engine: str, spec: LogSpec, log_dir: Path) -> list[str]:
        words = {
            cases.SPARK: ["clean", "--engine", "spark", "--yes"],
            cases.IN_PROCESS: ["clean", "--engine", "in-process", "--yes"],
            cases.DRY_RUN: ["clean", "--dry-run"],
            cases.INSPECT: ["inspect"],
            cases.PLAN: ["plan"],
            cases.VERIFY: ["verify"],
        }[engine]
        return [*self.kcompact, *words, "--json", *logs.config_arguments(spec), "--now", str(spec.now_ms), str(log_dir)]

    def _replica(self, spec: LogSpec, log_dir: Path) -> Path:
        """Return a cleaned copy of a log, made if the cache lacks it."""
        target = log_dir.with_name(f"{log_dir.name}-replica")
        if not target.is_dir():
            unfinished = self.work / "replica"
            logs.copy(log_dir, unfinished)
            measured.run(self._kcompact(cases.IN_PROCESS, spec, unfinished), cwd=self.work, env=self.environment)
            unfinished.rename(target)
        logs.read_into_memory(target)
        return target

    def _floor(self, source: Path, result_bytes: int) -> float:
        self._tidy()
        self.work.mkdir(parents=True)
        os.sync()
        _prepare_page_cache(source)
        options = [str(source), str(result_bytes), str(self.work / "written")]
        environment = dict(self.environment) | {"PYTHONPATH": str(Path(__file__).resolve().parents[1])}
        command = [sys.executable, "-m", "bench.floor", *options]
        reply = json.loads(measured.run(command, cwd=self.work, env=environment).output)
        self._tidy()
        return float(reply["total_s"])


def warm_up(spec: LogSpec) -> tuple[LogSpec, int]:
    """Return the log that Kafka cleans to warm up, and how often: a million records where that does not take too long.

    It has the partitions of `spec`, or the first of them if these are enough.
    """
    partitions = min(spec.partitions, WARM_UP_PARTITIONS, -(-WARM_UP_RECORDS // spec.records))
    enough = -(-WARM_UP_RECORDS // (spec.records * partitions))
    return replace(spec, partitions=partitions), min(MOST_WARM_UPS, enough, WARM_UP_PARTITIONS // partitions)


def _prepare_page_cache(log_dir: Path) -> None:
    """Read a log into memory, since some of it may have been dropped. One that has no room there is read cold."""
    if logs.source_bytes(log_dir) < _free_memory_bytes():
        logs.read_into_memory(log_dir)
    else:
        logs.drop_from_memory(log_dir)


def _reported(engine: str, output: str) -> dict[str, Any]:
    """Return the fields of a `Run` that an engine reports itself."""
    return _of_kafka(output) if engine == cases.KAFKA else _of_kcompact(engine, output)


def _of_kafka(output: str) -> dict[str, Any]:
    reply = json.loads(output)
    last = {one["partition"]: one for one in reply["passes"]}.values()
    return {
        "clean_s": reply["clean_ms"] / 1000,
        "passes": len(reply["passes"]),
        "records_read": sum(one["messages_read"] for one in last),
        "records_written": sum(one["messages_written"] for one in last),
    }


def _of_kcompact(engine: str, output: str) -> dict[str, Any]:
    partitions = json.loads(output)["partitions"]
    if engine not in (cases.SPARK, cases.IN_PROCESS, cases.DRY_RUN):
        return {}
    expected = "dry-run" if engine == cases.DRY_RUN else "cleaned"
    for partition in partitions:
        if partition["status"] != expected:
            raise WrongResultError(f"{engine}: {partition['status']}, not {expected}: {partition}")
    return {
        "clean_s": sum(partition["elapsed_s"] for partition in partitions),
        "passes": len(partitions),
        "records_read": sum(partition["messages_read"] for partition in partitions),
        "records_written": sum(partition["messages_written"] for partition in partitions),
    }


def _name(run: Run) -> str:
    on = f" on {cases.cores_in_words(run.cores)}" if run.cores else ""
    return f"{run.engine}{on}, run {run.round + 1}"


def _compare(case: Case, left: Mapping[Run, dict[str, str]]) -> None:
    """Hold each result so far against Kafka's first."""
    kafkas = next((found for run, found in left.items() if run.engine == case.reference), None)
    if kafkas is None:
        return
    for run, found in left.items():
        if different := logs.differences(found, kafkas):
            raise WrongResultError(
                "\n  ".join([f"{case.name}: {_name(run)} left something else than Kafka", *different])
            )


def _free_memory_bytes() -> int:
    with open("/proc/meminfo", encoding="ascii") as file:
        fields = dict(line.split(":") for line in file)
    return int(fields["MemAvailable"].split()[0]) * 1024


def _say(case: Case, run: Run) -> None:
    peak = f", {run.peak_bytes / 1e6:6,.0f} MB" if run.peak_bytes is not None else ""
    cpu = f", {run.cpu_s:7.2f} s of processors" if run.cpu_s is not None else ""
    how = f" on {cases.cores_in_words(run.cores)}" if run.cores else ", without transactions" if run.beside else ""
    print(f"  {case.name}{how}: {run.round + 1} {run.engine:<11}{run.wall_s:8.2f} s{cpu}{peak}", flush=True)
