"""The benchmark's own arithmetic: cases, goals, medians of paired runs, tables, the plot."""

from __future__ import annotations

import math
import os
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

from tests.bench import cases, plot, results
from tests.bench.cases import IN_PROCESS, KAFKA, KAFKA_WARM, SPARK, Goal, LogSpec, keys_for, order
from tests.bench.runner import Measured, Run


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
    ]
    assert len({other.name for other in others}) == len(others)


def test_a_log_is_cleaned_after_its_last_record_and_while_its_producer_counts() -> None:
    spec = LogSpec(records=85_000, value_bytes=91, keys=0)
    assert spec.last_timestamp_ms == cases.START_MS + 8499
    assert 0 < spec.now_ms - spec.last_timestamp_ms < 86_400_000


def chosen(**changed: object) -> list[cases.Case]:
    options: dict[str, object] = {
        "quick": False,
        "sizes": [],
        "codecs": [],
        "survive": [],
        "scenarios": [],
        "engines": cases.ENGINES,
        "runs": 5,
        "seed": 1,
        "large_records": 0,
    }
    return cases.chosen(**(options | changed))  # type: ignore[arg-type]


def test_the_usual_cases() -> None:
    names = [case.name for case in chosen()]
    assert names[:2] == ["10MB none 10%", "117MB none 10%"] == [case.name for case in chosen(quick=True)]
    assert len(set(names)) == len(names)
    assert names[-1] == "10GB none, only read"


def test_options_make_combinations() -> None:
    names = [case.name for case in chosen(sizes=["10MB", "117MB"], codecs=["none", "zstd"], survive=[50])]
    assert names == ["10MB none 50%", "10MB zstd 50%", "117MB none 50%", "117MB zstd 50%"]
    names = [case.name for case in chosen(sizes=["10MB"], scenarios=["dirty", "clean-and-dirty"])]
    assert names == ["10MB none 10%", "10MB none clean-and-dirty"]
    assert [case.name for case in chosen(scenarios=["listing"])] == ["10GB none, only read"]
    (large,) = chosen(scenarios=["unique"], large_records=60_000_000)
    assert large.name == "60 M unique keys"
    assert large.engines == (KAFKA, SPARK, IN_PROCESS)


def test_a_clean_and_dirty_log_takes_up_what_its_size_says() -> None:
    (case,) = chosen(sizes=["1.2GB"], scenarios=["clean-and-dirty"])
    log = case.log
    kept = log.keys * -math.expm1(-log.clean_records / log.keys)
    on_disk = kept + log.records - log.clean_records
    assert on_disk / cases.SIZES["1.2GB"].records == pytest.approx(1, rel=0.05)


def test_goals() -> None:
    at_most = Goal(engine=SPARK, of="ratio", limit=0.5)
    at_least = Goal(engine="verify", of="bytes_per_cpu_s", limit=1e9, at_least=True)
    assert str(at_most) == "≤ 0.5 x Kafka"
    assert str(at_least) == "≥ 1 GB/s a core"
    assert at_most.is_met(0.5)
    assert not at_most.is_met(0.51)
    assert at_least.is_met(1.1e9)
    assert not at_least.is_met(0.9e9)


def run(engine: str, number: int, wall_s: float, **fields: object) -> Run:
    return Run(engine=engine, round=number, wall_s=wall_s, **fields)  # type: ignore[arg-type]


RUNS = [
    *(run(KAFKA, 0, 10, cpu_s=12.0, peak_bytes=300), run(SPARK, 0, 5, cpu_s=8.0, peak_bytes=500)),
    *(run(SPARK, 1, 4, cpu_s=6.0, peak_bytes=700), run(KAFKA, 1, 20, cpu_s=14.0, peak_bytes=200)),
    *(run(KAFKA, 2, 40, cpu_s=13.0, peak_bytes=100), run(SPARK, 2, 16, cpu_s=7.0, peak_bytes=600)),
    run(KAFKA_WARM, 0, 9),
]


def test_ratios_are_of_runs_in_one_round() -> None:
    assert results.paired_ratio(RUNS, SPARK, KAFKA) == 0.4  # of 0.5, 0.2, 0.4; that of the medians is 0.25
    assert results.paired_ratio(RUNS, KAFKA_WARM, KAFKA) == 0.9  # of the only round that has it
    assert results.paired_ratio(RUNS, IN_PROCESS, KAFKA) is None


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
    assert [(str(goal), is_met) for goal, is_met in spark.goals] == [("≤ 0.5 x Kafka", True)]
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
    lines = [results.cells(row) for row in results.rows(measured())]
    plain = results.plain_table(lines).splitlines()
    assert len(plain) == 4
    assert plain[3].split()[-6:] == ["4.0", "≤", "0.5", "x", "Kafka:", "met"]
    markdown = results.markdown_table(lines).splitlines()
    assert {line.count("|") for line in markdown} == {len(results.TITLES) + 1}


def test_the_plot_draws_each_row_to_scale() -> None:
    drawn = ElementTree.fromstring(plot.svg(results.rows(measured())))
    bars = [float(bar.attrib["width"]) for bar in drawn.iter("{http://www.w3.org/2000/svg}rect") if "y" in bar.attrib]
    assert bars[0] / bars[2] == pytest.approx(20 / 5, rel=0.01)
    texts = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert "5.00 s, 0.40 x Kafka" in texts
