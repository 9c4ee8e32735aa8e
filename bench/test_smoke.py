"""The benchmark from end to end, with the real Kafka, on logs of a megabyte."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench import __main__ as command
from bench import cases, logs, many, results, runner, shapes
from bench.cases import Case, LogSpec
from bench.shapes import Wanted
from tests.oracle import driver, real_kafka
from tests.support.command_line import environment

pytestmark = pytest.mark.oracle

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def bench(tmp_path: Path) -> runner.Bench:
    driver.build()
    return runner.Bench(
        cache=tmp_path / "logs",
        work=tmp_path / "work",
        kcompact=[sys.executable, "-m", "kcompact"],
        environment=environment(),
    )


def test_every_engine_on_a_plain_log(bench: runner.Bench) -> None:
    spec = LogSpec(records=9000, value_bytes=91, keys=1500)
    case = Case(name="tiny", log=spec, engines=cases.ENGINES, runs=1, goals=shapes.goals_of(Wanted(size="10MB")))
    rows = {row.engine: row for row in results.rows(bench.measure(case))}
    assert tuple(rows) == cases.ENGINES
    assert all(row.wall_s > 0 for row in rows.values())
    kafka, spark = rows[cases.KAFKA], rows[cases.SPARK]
    assert kafka.cpu_s
    assert kafka.peak_bytes
    assert kafka.clean_s
    assert spark.ratio == pytest.approx(spark.wall_s / kafka.wall_s)
    assert [str(goal) for goal, _ in spark.goals] == ["≤ 3 s"]


@pytest.mark.parametrize(
    "spec",
    [
        LogSpec(records=9000, value_bytes=91, keys=3000, codec="zstd"),
        LogSpec(records=9000, value_bytes=91, keys=0, codec="lz4"),
        LogSpec(records=9000, clean_records=6000, value_bytes=91, keys=2000),
        LogSpec(records=9000, base_records=6000, value_bytes=50, tail_value_bytes=91, keys=1000),
        LogSpec(records=900, value_bytes=33, keys=300, batch_records=1, transaction_records=3, abort_every=5),
        LogSpec(records=900, value_bytes=0, keys=300, values="none"),
        LogSpec(records=90, value_bytes=102_400, keys=30, codec="zstd", values="half"),
        LogSpec(records=900, value_bytes=91, keys=300, partitions=3),
        LogSpec(records=900, value_bytes=91, keys=300, magic=0, codec="gzip"),
        LogSpec(records=900, value_bytes=91, keys=300, magic=1),
    ],
    ids=lambda spec: spec.name,
)
def test_other_logs(bench: runner.Bench, spec: LogSpec) -> None:
    engines = (cases.KAFKA, cases.IN_PROCESS)
    result = bench.measure(Case(name="tiny", log=spec, engines=engines, runs=1))
    assert [run.records_written for run in result.runs] == [result.runs[0].records_written] * 2
    assert len(result.floor_s) == 1


def test_the_log_beside_and_numbers_of_cores(bench: runner.Bench) -> None:
    spec = LogSpec(records=900, value_bytes=33, keys=300, batch_records=1, transaction_records=100)
    case = Case(name="tiny", log=spec, engines=(cases.IN_PROCESS,), runs=1, beside=replace(spec, transaction_records=0))
    (row,) = results.rows(bench.measure(case))
    assert row.beside
    case = Case(name="tiny", log=spec, engines=(cases.KAFKA, cases.IN_PROCESS), runs=1, cores=(1, 2), linked=True)
    rows = results.rows(bench.measure(case))
    assert [(row.engine, row.cores) for row in rows] == [(engine, cores) for engine in case.engines for cores in (1, 2)]
    assert all(row.one_core and row.efficiency and row.ratio for row in rows if row.engine == cases.IN_PROCESS)


def test_the_generator_does_what_it_is_asked(bench: runner.Bench) -> None:
    spec = LogSpec(records=9000, value_bytes=91, keys=900)
    source = logs.build(spec, bench.cache)
    assert logs.source_bytes(source) == pytest.approx(9000 * 117, rel=0.01)
    again = logs.build(spec, bench.cache / "again")
    random_id = {"prices-0/partition.metadata": ""}
    assert logs.fingerprint(again) | random_id == logs.fingerprint(source) | random_id
    with real_kafka.RealKafka() as kafka:
        (segment, _) = sorted((source / "prices-0").glob("*.log"))
        batches = kafka.records(segment)["batches"]
    assert len({record.key for batch in batches for record in batch["records"]}) == 900
    assert sum(len(batch["records"]) for batch in batches) == 9000
    assert max(batch["size_bytes"] for batch in batches) <= 16_384


def test_a_small_offset_map_makes_kafka_take_several_passes(bench: runner.Bench) -> None:
    spec = LogSpec(records=9000, value_bytes=91, keys=0)
    narrow = runner.Bench(
        cache=bench.cache,
        work=bench.work,
        kcompact=bench.kcompact,
        environment=bench.environment,
        dedupe_buffer_bytes=24 * 4000,  # at most 3600 keys at a load factor of 0.9
    )
    result = narrow.measure(Case(name="unique", log=spec, engines=(cases.KAFKA, cases.IN_PROCESS), runs=1))
    kafka, ours = result.runs
    assert kafka.passes == 3
    assert ours.passes == 1


def test_a_wrong_result_is_found(bench: runner.Bench, tmp_path: Path) -> None:
    spoiler = tmp_path / "spoiler.py"
    spoiler.write_text(
        "import runpy, sys\nfrom pathlib import Path\n"
        "try:\n    runpy.run_module('kcompact', run_name='__main__')\n"
        "finally:\n    file = Path(sys.argv[-1], 'prices-0', '0' * 20 + '.log')\n"
        "    file.write_bytes(file.read_bytes()[:-1] + b'?')\n",
        encoding="utf-8",
    )
    wrong = runner.Bench(
        cache=bench.cache,
        work=bench.work,
        kcompact=[sys.executable, str(spoiler)],
        environment=bench.environment,
    )
    spec = LogSpec(records=9000, value_bytes=91, keys=900)
    with pytest.raises(runner.WrongResultError, match="in-process, run 1 left something else than Kafka"):
        wrong.measure(Case(name="tiny", log=spec, engines=(cases.KAFKA, cases.IN_PROCESS), runs=1))


@pytest.mark.parametrize("name", shapes.LISTED)
def test_lists_of_records(bench: runner.Bench, name: str) -> None:
    case = shapes.listed_case(name, shapes.Options(runs=1))
    few = replace(case, log=replace(case.log, records=100, partitions=min(3, case.log.partitions)))
    tool, ours = results.rows(bench.measure(few))
    assert (tool.engine, ours.engine) == cases.LISTS
    assert ours.cpu_ratio
    assert [goal.of for goal, _ in ours.goals] == ["cpu_ratio"]


@pytest.mark.parametrize("name", shapes.COMPARED)
def test_replicas(bench: runner.Bench, name: str) -> None:
    case = shapes.compared_case(name, shapes.Options(runs=1))
    few = replace(case, log=replace(case.log, records=300, keys=30))
    keys, compare = results.rows(bench.measure(few))
    assert (keys.engine, compare.engine) == cases.REPLICAS
    assert compare.cpu_ratio
    assert [goal.of for goal, _ in compare.goals] == ["cpu_ratio"]


@pytest.mark.parametrize("name", many.SHAPES)
def test_many_partitions(bench: runner.Bench, name: str) -> None:
    engines = cases.MANY if name == "many-small" else (cases.KAFKA_WARM, cases.IN_PROCESS)
    case = shapes.many_case(name, shapes.Options(runs=1, engines=engines))
    result = bench.measure(replace(case, log=replace(case.log, partitions=3, records=min(case.log.records, 9000))))
    rows = {row.engine: row for row in results.rows(result)}
    assert set(rows) == set(engines)
    ours = rows[cases.IN_PROCESS]
    assert ours.ratio
    assert ours.cpu_ratio
    assert ours.checkpoint_s
    assert ours.operations["fsyncs"] > 1
    assert not any(row.operations.get("fsyncs") for row in rows.values() if row.engine not in cases.CLEANS)


def test_many_segments(bench: runner.Bench) -> None:
    engines = (cases.KAFKA_WARM, cases.IN_PROCESS)
    case = shapes.many_case("few-segments", shapes.Options(runs=1, engines=engines, quick=True))
    result = bench.measure(case)
    assert len(list(logs.build(case.log, bench.cache).glob("*/*.log"))) == case.log.segments + 1
    (ours,) = (row for row in results.rows(result) if row.engine == cases.IN_PROCESS)
    assert ours.further_cpu_s
    assert ours.operations["renames"] > 1  # No segment is joined with another one.


@pytest.mark.parametrize("query", ["keys", "all"])
def test_a_query_of_spark(bench: runner.Bench, query: str) -> None:
    options = shapes.Options(runs=1, quick=True, shapes=["source-lz4"])
    (case,) = (case for case in shapes.chosen(options) if case.query == query)
    parquet, ours = results.rows(bench.measure(replace(case, log=replace(case.log, records=900))))
    assert (parquet.engine, ours.engine) == cases.ASKED
    assert parquet.cpu_s
    assert ours.cpu_ratio
    ((columns, rows),) = results.tables([parquet, ours])
    assert "CPU x Parquet" in columns
    assert len(rows) == 2


def test_what_only_reads_must_not_write(bench: runner.Bench, tmp_path: Path) -> None:
    writer = tmp_path / "writer.py"
    writer.write_text(
        "import sys\nfrom pathlib import Path\nPath(sys.argv[-1], 'prices-0', 'note').touch()\n", encoding="utf-8"
    )
    writing = runner.Bench(
        cache=bench.cache,
        work=bench.work,
        kcompact=[sys.executable, str(writer)],
        environment=bench.environment,
    )
    spec = LogSpec(records=100, value_bytes=91, keys=0)
    with pytest.raises(runner.WrongResultError, match="plan changed"):
        writing.measure(Case(name="tiny", log=spec, engines=(cases.PLAN,), runs=1))


def test_the_command_saves_table_runs_and_plot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(shapes.SIZES, "10MB", shapes.Size(records=9000, value_bytes=91))
    directories = [f"--{name}={tmp_path / name}" for name in ("output", "cache", "work")]
    words = ["bench", "--sizes=10MB", "--runs=1", "--engines=kafka,in-process,plan", *directories]
    monkeypatch.setattr(sys, "argv", words)
    assert command.main() == 0
    assert "10MB none 10%  in-process" in capsys.readouterr().out
    saved = json.loads((tmp_path / "output" / "bench.json").read_text(encoding="utf-8"))
    (case,) = saved["cases"]
    assert [run["engine"] for run in case["runs"]] == ["kafka", "in-process", "plan"]
    assert saved["machine"]["java"]
    assert "| 10MB none 10% | in-process | 1 |" in (tmp_path / "output" / "bench.md").read_text(encoding="utf-8")
    assert (tmp_path / "output" / "bench.svg").read_text(encoding="utf-8").startswith("<svg")
    assert not (tmp_path / "work").exists()
