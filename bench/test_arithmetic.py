"""The benchmark's own arithmetic: cases, goals, medians of paired runs, tables, the plot."""

from __future__ import annotations

import math
import os
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bench import __main__ as command
from bench import cases, logs, many, operations, plot, results, runner, scale_out, shapes
from bench.cases import (
    COMPARE,
    DUMP_LOG,
    IN_PROCESS,
    KAFKA,
    KAFKA_WARM,
    LIST,
    PLAN,
    SPARK,
    Goal,
    LogSpec,
    keys_for,
    order,
)
from bench.runner import Measured, Run
from bench.shapes import Wanted


@pytest.mark.parametrize("percent", [1, 10, 33, 50, 90, 99])
@pytest.mark.parametrize("records", [1000, 10_000_000])
def test_so_many_keys_leave_that_share(percent: int, records: int) -> None:
    keys = keys_for(records, percent)
    survivors = keys * -math.expm1(-records / keys)
    assert survivors / records == pytest.approx(percent / 100, rel=0.01)


def test_all_survive_when_each_record_has_its_own_key() -> None:
    assert keys_for(1000, 100) == 0
    with pytest.raises(ValueError, match="cannot survive"):
        keys_for(1000, 0)


def test_engines_take_turns_in_both_directions() -> None:
    assert order("abc", 0) == ["a", "b", "c"]
    assert order("abc", 1) == ["c", "b", "a"]
    assert order("abc", 2) == ["a", "b", "c"]


def test_the_cache_tells_logs_apart() -> None:
    spec = LogSpec(records=10, value_bytes=20, keys=3)
    others = [
        spec,
        *(replace(spec, records=11), replace(spec, value_bytes=21), replace(spec, keys=0), replace(spec, codec="lz4")),
        *(replace(spec, clean_records=5), replace(spec, values="fixed"), replace(spec, seed=2)),
        *(replace(spec, batch_records=5), replace(spec, transaction_records=5), replace(spec, abort_every=5)),
        *(replace(spec, base_records=5), replace(spec, tail_value_bytes=5)),
        *(replace(spec, magic=1), replace(spec, partitions=2), replace(spec, segments=2)),
    ]
    assert len({other.name for other in others}) == len(others)


def test_a_log_is_cleaned_after_its_last_record_and_while_its_producer_counts() -> None:
    spec = LogSpec(records=85_000, value_bytes=91, keys=0)
    assert spec.last_timestamp_ms == cases.START_MS + 8499
    assert 0 < spec.now_ms - spec.last_timestamp_ms < 86_400_000


def chosen(**changed: Any) -> list[cases.Case]:
    return shapes.chosen(shapes.Options(**changed))


def test_the_usual_cases() -> None:
    names = [case.name for case in chosen()]
    assert names[:2] == ["10MB none 10%", "117MB none 10%"] == [case.name for case in chosen(quick=True)]
    assert len(set(names)) == len(names)
    assert names[-7] == "10GB none, only read"
    assert names[-4] == "117MB none, small-partitions listed"
    assert names[-1] == "none, replicas-transactional"


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (
            {"sizes": ["10MB", "117MB"], "codecs": ["none", "zstd"], "survive": [50]},
            ["10MB none 50%", "10MB zstd 50%", "117MB none 50%", "117MB zstd 50%"],
        ),
        (
            {"sizes": ["10MB"], "shapes": ["plain", "clean-and-dirty"], "survive": [10, 50]},
            ["10MB none 10%", "10MB none 50%", "10MB none clean-and-dirty"],
        ),
        ({"batches": [1, 10], "codecs": ["gzip"]}, ["117MB gzip 10% 1 a batch", "117MB gzip 10% 10 a batch"]),
        ({"batches": [1, 10], "shapes": ["one-record"]}, ["180MB none 10% one-record"]),
        ({"shapes": ["listing"]}, ["10GB none, only read"]),
        ({"shapes": ["binary-records"]}, ["117MB none, binary-records listed"]),
        ({"shapes": ["unique"]}, ["60 M unique keys"]),
        (
            {"quick": True, "large": True, "large_records": 10**6},
            ["10MB none 10%", "117MB none 10%", "1 M unique keys"],
        ),
        ({"shapes": ["article"]}, ["the article's log"]),
        ({"shapes": ["article"], "article_scale": 0.1}, ["the article's log, 0.1 of it"]),
        (
            {"shapes": ["many-10MB", "very-many-small"]},
            ["300 partitions, many-10MB", "5,000 partitions, very-many-small"],
        ),
        ({"shapes": ["many-10MB"], "quick": True}, ["6 partitions, many-10MB"]),
        ({"shapes": [*many.IN_SEGMENTS]}, ["250 segments, few-segments", "2,000 segments, many-segments"]),
        ({"shapes": ["many-segments"], "quick": True}, ["40 segments, many-segments"]),
    ],
)
def test_options_choose_cases(options: dict[str, Any], names: list[str]) -> None:
    assert [case.name for case in chosen(**options)] == names


def test_engines_follow_the_shape_unless_they_are_given() -> None:
    plain, transactional = chosen(shapes=["plain", "transactional"])
    assert plain.engines == cases.ENGINES
    assert transactional.engines == (KAFKA, SPARK, IN_PROCESS)
    (given,) = chosen(shapes=["partitions"], engines=[KAFKA, IN_PROCESS])
    assert given.engines == (KAFKA, IN_PROCESS)


def test_every_shape_takes_up_what_its_size_says() -> None:
    for case in chosen(shapes=list(shapes.SHAPES), sizes=["117MB"]):
        if case.log.batch_records != 1 and case.log.clean_records == 0:
            assert case.log.estimated_bytes == pytest.approx(117e6, rel=0.08), case.name


def test_a_log_of_one_record_batches_has_as_many_records_as_the_transactional_one() -> None:
    plain, transactional = chosen(shapes=["one-record", "transactional"])
    assert plain.log.records == transactional.log.records == 1_500_000
    assert transactional.beside == plain.log


def test_old_formats_have_no_zstd() -> None:
    with pytest.raises(ValueError, match="magic 1 has no zstd"):
        chosen(shapes=["magic-1"], codecs=["zstd"])


def test_the_articles_log_has_the_sizes_of_the_article() -> None:
    (case,) = chosen(shapes=["article"])
    log = case.log
    assert log.estimated_bytes == pytest.approx(25.7068e9, rel=0.01)
    assert (log.records - log.base_records) * (log.tail_value_bytes + 27) == pytest.approx(12.4053e9, rel=0.01)
    tail_keys = log.keys * -math.expm1(-(log.records - log.base_records) / log.keys)
    assert tail_keys < 0.9 * logs.DEDUPE_BUFFER_BYTES / 24
    assert case.disk_bytes < 1.1 * log.estimated_bytes


def test_scaling_has_a_turn_for_each_number_of_cores() -> None:
    assert shapes.numbers_of_cores(1) == [1]
    assert shapes.numbers_of_cores(2) == [1, 2]
    assert shapes.numbers_of_cores(12) == [1, 2, 4, 8, 12]
    (case,) = chosen(scaling=True, sizes=["10MB"], codecs=["zstd"])
    assert set(case.engines) == {KAFKA, SPARK, IN_PROCESS}
    assert case.turns(1) == case.turns(0)[::-1]
    assert {turn.cores for turn in case.turns(0)} == set(shapes.numbers_of_cores(len(os.sched_getaffinity(0))))


def test_a_case_without_room_is_refused_before_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage(NamedTuple):
        free: int

    planned = chosen(shapes=["article"])
    monkeypatch.setattr("shutil.disk_usage", lambda directory: Usage(free=50 * 10**9))
    with pytest.raises(SystemExit, match=r"has 50.0 GB free; these cases need about 51\.\d GB"):
        command.refuse_without_room(planned, tmp_path)
    (tmp_path / planned[0].log.name).mkdir()  # built before
    command.refuse_without_room(planned, tmp_path)


def test_a_clean_and_dirty_log_takes_up_what_its_size_says() -> None:
    (case,) = chosen(sizes=["1.2GB"], shapes=["clean-and-dirty"])
    log = case.log
    kept = log.keys * -math.expm1(-log.clean_records / log.keys)
    on_disk = kept + log.records - log.clean_records
    assert on_disk / shapes.SIZES["1.2GB"].records == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize(
    ("goal", "said", "good", "bad"),
    [
        (Goal(engine=SPARK, of="ratio", limit=0.5), "≤ 0.5 x Kafka", 0.5, 0.51),
        (Goal(engine="verify", of="bytes_per_cpu_s", limit=1e9, at_least=True), "≥ 1 GB/s a core", 1.1e9, 0.9e9),
        (Goal(engine=SPARK, of="peak_bytes", limit=400e6), "≤ 400 MB", 399e6, 401e6),
        (Goal(engine=SPARK, of="peak_bytes", limit=2e9), "≤ 2 GB", 2e9, 2.1e9),
        (Goal(engine=SPARK, of="wall_s", limit=60), "≤ 60 s", 59.9, 60.1),
        (Goal(engine=LIST, of="cpu_ratio", limit=0.5), "≤ 0.5 x Kafka's CPU s", 0.5, 0.51),
        (Goal(engine=COMPARE, of="cpu_ratio", limit=1.5), "≤ 1.5 x the CPU s of keys", 1.5, 1.51),
        (Goal(engine=SPARK, of="one_core", limit=0.6, cores=2), "≤ 0.6 x one core", 0.6, 0.61),
        (Goal(engine=SPARK, of="beside", limit=1.5), "≤ 1.5 x the same without transactions", 1.5, 1.6),
    ],
)
def test_goals(goal: Goal, said: str, good: float, bad: float) -> None:
    assert str(goal) == said
    assert goal.is_met(good)
    assert not goal.is_met(bad)


def goals_of(**wanted: Any) -> list[str]:
    return [f"{goal.engine} {goal}" for goal in shapes.goals_of(Wanted(**wanted))]


def test_the_stricter_goals_are_of_logs_of_which_a_tenth_survives() -> None:
    strict = ["spark ≤ 0.32 x Kafka", "in-process ≤ 0.13 x Kafka"]
    assert goals_of(size="1.2GB") == goals_of(size="1.2GB", shape="half-compressible") == strict
    assert goals_of(size="1.2GB", survive=50) == ["spark ≤ 0.5 x Kafka", "in-process ≤ 0.25 x Kafka"]
    assert goals_of(size="1.2GB", codec="zstd") == ["spark ≤ 0.6 x Kafka", "in-process ≤ 0.4 x Kafka"]
    assert goals_of(size="1.2GB", codec="zstd", shape="half-compressible")[1] == "in-process ≤ 0.28 x Kafka"
    assert goals_of(size="1.2GB", batch_records=10) == goals_of(size="1.2GB", shape="tombstones") == []


def run(engine: str, number: int, wall_s: float, **fields: object) -> Run:
    return Run(engine=engine, round=number, wall_s=wall_s, **fields)  # type: ignore[arg-type]


RUNS = [
    *(run(KAFKA, 0, 10, cpu_s=12.0, peak_bytes=300), run(SPARK, 0, 5, cpu_s=8.0, peak_bytes=500)),
    *(run(SPARK, 1, 4, cpu_s=6.0, peak_bytes=700), run(KAFKA, 1, 20, cpu_s=14.0, peak_bytes=200)),
    *(run(KAFKA, 2, 40, cpu_s=13.0, peak_bytes=100), run(SPARK, 2, 16, cpu_s=7.0, peak_bytes=600)),
    run(KAFKA_WARM, 0, 9),
]


def test_ratios_are_of_runs_in_one_round() -> None:
    kafka, warm, spark = ([run for run in RUNS if run.engine == name] for name in (KAFKA, KAFKA_WARM, SPARK))
    assert results.paired_ratio(spark, kafka) == 0.4  # of 0.5, 0.2, 0.4; that of the medians is 0.25
    assert results.paired_ratio(warm, kafka) == 0.9  # of the only round that has it
    assert results.paired_ratio([], kafka) is None


def measured() -> Measured:
    (case,) = chosen(sizes=["1.2GB"])
    return Measured(
        case=case, source_bytes=1000, result_bytes=100, records=50, runs=list(RUNS), floor_s=[1.0, 2.0, 4.0]
    )


def test_a_row_has_medians() -> None:
    kafka, warm, spark = results.rows(measured())
    assert (kafka.engine, warm.engine, spark.engine) == (KAFKA, KAFKA_WARM, SPARK)
    assert (spark.wall_s, spark.fastest_s, spark.slowest_s) == (5, 4, 16)
    assert (spark.cpu_s, spark.peak_bytes, spark.runs) == (7, 600, 3)
    assert (spark.bytes_per_s, spark.records_per_s, spark.bytes_per_cpu_s) == (200, 10, 1000 / 7)
    assert (spark.ratio, spark.floor) == (0.4, 4)  # of 5, 2, 4
    assert [(str(goal), value) for goal, value in spark.goals] == [("≤ 0.32 x Kafka", 0.4)]
    assert (warm.cpu_s, warm.peak_bytes, warm.ratio, warm.goals) == (None, None, 0.9, ())
    assert kafka.ratio is None


def test_without_kafka_nothing_is_compared_with_it() -> None:
    alone = measured()
    alone.runs = [one for one in RUNS if one.engine == SPARK]
    (spark,) = results.rows(alone)
    assert spark.ratio is None
    assert spark.goals == ()


def test_what_others_took_is_told() -> None:
    result = measured()
    result.runs = [run(KAFKA, 0, 10, others_cpu_s=1.0), run(SPARK, 0, 5, others_cpu_s=2.0), run(KAFKA_WARM, 0, 9)]
    assert results.others_share(result) == pytest.approx(3 / 15 / len(os.sched_getaffinity(0)))
    assert results.others_share(replace(result, runs=[])) == 0


def test_tables_have_a_cell_for_each_title() -> None:
    every = results.rows(measured())
    ((columns, of_table),) = results.tables(every)
    assert of_table == every
    plain = results.plain_table(columns, of_table).splitlines()
    assert len(plain) == 4
    assert plain[3].split()[-6:] == ["4.0", "≤", "0.32", "x", "Kafka:", "MISSED"]
    markdown = results.markdown_table(columns, of_table).splitlines()
    assert {line.count("|") for line in markdown} == {len(columns) + 1}


def test_the_best_and_the_worst_ratio_are_told_with_their_logs() -> None:
    (spark,) = (row for row in results.rows(measured()) if row.engine == SPARK)
    every = [spark, replace(spark, case="slow", ratio=1.6), replace(spark, case="fast", ratio=0.06)]
    assert results.extremes(every) == ["spark, x Kafka: best 0.06 (fast), worst 1.60 (slow)"]


def scaled() -> Measured:
    (case,) = chosen(scaling=True, sizes=["10MB"])
    runs = [run(IN_PROCESS, 0, 10, cores=1), run(IN_PROCESS, 0, 5.5, cores=2), run(KAFKA, 0, 11, cores=2)]
    return Measured(case=case, source_bytes=1000, records=50, runs=runs)


def test_scaling_is_to_one_core_and_to_kafka_on_as_many() -> None:
    kafka, one, two = results.rows(scaled())
    assert (one.one_core, one.efficiency, one.ratio, one.goals) == (1, 1, None, ())
    assert (two.one_core, two.ratio) == (0.55, 0.5)
    assert two.efficiency == pytest.approx(1 / 1.1)
    assert [goal.is_met(value) for goal, value in two.goals] == [True]
    assert kafka.one_core is None
    ((columns, of_table),) = results.tables([kafka, one, two])
    assert columns is results.SCALING_COLUMNS
    assert "≤ 0.6 x one core: met" in results.plain_table(columns, of_table)


def test_the_log_beside_counts_for_nothing_but_its_ratio() -> None:
    (case,) = chosen(shapes=["transactional"])
    runs = [run(IN_PROCESS, 0, 1.2, peak_bytes=300e6), run(IN_PROCESS, 0, 1.0, beside=True, peak_bytes=900e6)]
    (row,) = results.rows(Measured(case=case, source_bytes=1000, records=50, runs=runs))
    assert (row.wall_s, row.beside, row.peak_bytes) == (1.2, 1.2, 300e6)
    line = results.plain_table(results.COLUMNS, [row])
    assert "≤ 1.5 x the same without transactions: 1.20, met; ≤ 400 MB: met" in line


def test_a_list_is_compared_with_kafkas_tool_by_processor_time() -> None:
    (case,) = chosen(shapes=["binary-records"])
    runs = [run(DUMP_LOG, 0, 8, cpu_s=10.0), run(LIST, 0, 2, cpu_s=1.5)]
    tool, ours = results.rows(Measured(case=case, source_bytes=1000, records=50, runs=runs))
    assert (tool.ratio, tool.cpu_ratio, tool.goals) == (None, None, ())
    assert (ours.ratio, ours.cpu_ratio) == (0.25, 0.15)
    assert "≤ 0.5 x Kafka's CPU s: 0.15, met" in results.plain_table(results.COLUMNS, [ours])


def of_many(name: str, number: int) -> Measured:
    """Return what came of a case: Kafka takes 30 ms of processors for a partition, a command 0.5 s and 10 ms."""
    (case,) = chosen(shapes=[name])
    parts = case.log.parts
    kafka = run(KAFKA_WARM, 0, number * 0.03, cpu_s=parts * 0.03, choosing_s=1.0)
    ours = [run(engine, 0, parts * 0.01, cpu_s=0.5 + parts * 0.01) for engine in (IN_PROCESS, PLAN)]
    return Measured(
        case=case,
        source_bytes=1000,
        records=50,
        runs=[kafka, *ours],
        operations={IN_PROCESS: {"stats": 90.0, "opens": 61.0}, PLAN: {"stats": 18.0}},
        checkpoint_s={IN_PROCESS: 0.001},
        alone_cpu_s={IN_PROCESS: 0.51, PLAN: 0.51},
    )


def test_many_partitions_are_compared_with_a_warm_kafka() -> None:
    result = of_many("many-1MB", 1000)
    assert [turn.engine for turn in result.case.turns(1)] == [*reversed(cases.MANY)]
    kafka, ours, plan = results.rows(result)
    assert (kafka.part_cpu_s, kafka.further_cpu_s, kafka.cpu_ratio, kafka.choosing_s) == (0.03, 0.03, None, 1.0)
    assert ours.part_cpu_s == pytest.approx(0.0105)
    assert ours.cpu_ratio == pytest.approx(0.35)
    assert ours.further_cpu_s == pytest.approx(0.01)
    ((columns, of_table),) = results.tables([kafka, ours, plan])
    assert columns is results.MANY_COLUMNS
    said = results.plain_table(columns, of_table)
    assert "≤ 0.5 x Kafka's CPU s: met; ≤ 100 stats a partition: met; ≤ 60 opens a partition: MISSED" in said
    assert "≤ 2 ms a partition: MISSED" in said


def test_what_a_partition_costs_more_among_many() -> None:
    every = [
        row
        for name, number in (("very-many-small", 5000), ("many-small", 1000), ("many-1MB", 1000))
        for row in results.rows(of_many(name, number))
    ]
    assert results.growth(every)[1] == "in-process, a partition of 5,000 by one of 1,000: 1.00 (goal: ≤ 1.1, met)"
    slower = [replace(row, further_cpu_s=0.012) if row.parts == many.MOST else row for row in every]
    assert "plan, a partition of 5,000 by one of 1,000: 1.20 (goal: ≤ 1.1, MISSED)" in results.growth(slower)
    assert results.growth([row for row in every if row.parts != many.MOST]) == []


def test_what_a_segment_costs_more_among_many() -> None:
    every = [row for name in many.IN_SEGMENTS for row in results.rows(of_many(name, 1))]
    assert results.growth(every)[1] == "in-process, a segment of 2,000 by one of 250: 1.00 (goal: ≤ 1.2, met)"


def test_a_log_in_segments_has_a_segment_size_of_its_own() -> None:
    log = many.IN_SEGMENTS["few-segments"]
    assert log.parts == 250
    assert log.one_part.records == many.SMALL_RECORDS
    assert int(log.config["internal.segment.bytes"]) == pytest.approx(1.1 * log.one_part.estimated_bytes, rel=0.001)
    assert log.one_part.config == cases.CONFIG


def test_kafka_warms_up_on_a_million_records_or_a_thousand_partitions() -> None:
    def warm_up(records: int, partitions: int) -> tuple[int, int]:
        spec, count = runner.warm_up(LogSpec(records=records, value_bytes=91, keys=0, partitions=partitions))
        return spec.partitions, count

    assert warm_up(85_000, 1) == (1, 8)
    assert warm_up(10_000_000, 1) == (1, 1)
    assert warm_up(85_500, 300) == (12, 1)
    assert warm_up(170, 5000) == (1000, 1)
    assert warm_up(170, 200) == (200, 5)


def test_system_calls_are_counted_by_kind() -> None:
    summary = "syscall calls\n---------------- ---------\nnewfstatat 20\nfstat 3\nopenat 7\nfsync 1\n-- --\ntotal 31\n"
    counted = operations.by_kind(summary)
    assert {kind: count for kind, count in counted.items() if count} == {"stats": 23, "opens": 7, "fsyncs": 1}


SVG = "{http://www.w3.org/2000/svg}"


def test_the_plots_draw_each_row_to_scale() -> None:
    drawn = {
        name: ElementTree.fromstring(text)
        for name, text in plot.plots([*results.rows(measured()), *results.rows(scaled())]).items()
    }
    widths = {
        name: [float(bar.attrib["width"]) for bar in plot.iter(f"{SVG}rect") if "y" in bar.attrib]
        for name, plot in drawn.items()
    }
    texts = {name: [text.text for text in plot.iter(f"{SVG}text")] for name, plot in drawn.items()}
    assert widths["bench"][0] / widths["bench"][2] == pytest.approx(20 / 5, rel=0.01)
    assert "5.00 s, 0.40 x Kafka" in texts["bench"]
    assert len(widths["ratios"]) == 1
    assert widths["scaling"][0] / widths["scaling"][1] == pytest.approx(1 / 0.55, rel=0.01)
    assert "5.50 s, efficiency 0.91" in texts["scaling"]


def test_each_engine_has_a_colour() -> None:
    engines = {*cases.ENGINES, *cases.LISTS, *cases.REPLICAS, *cases.MANY, *cases.ASKED}
    assert set(plot.COLOURS) == engines


def test_plots_without_rows_are_left_out() -> None:
    assert set(plot.plots(results.rows(scaled()))) == {"scaling"}


@pytest.mark.parametrize(
    ("slots", "driver_s", "at_least_s", "at_most_s"),
    [
        (1, 0.0, 1000 * 3.1, 1000 * 3.1),
        (10, 0.0, 100 * 3.1, 100 * 3.1),
        (10, 0.01, 100 * 3.1, 100 * 3.1 + 1),
        (1000, 0.0, 3.1, 3.1),
        (1000, 0.01, 10.0, 14.0),  # The driver is the limit.
    ],
)
def test_a_round_of_tasks_of_equal_length(slots: int, driver_s: float, at_least_s: float, at_most_s: float) -> None:
    terms = scale_out.Terms(task_s=3.0, spark_s=0.1, before_s=driver_s / 2, after_s=driver_s / 2)
    took_s = scale_out.makespan_s(terms, partitions=1000, slots=slots)
    assert at_least_s - 1e-6 <= took_s <= at_most_s + 1e-6
