"""The data source on a real Spark: registered, planned, read by its Python workers, and its errors."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import Row

import kcompact
from fixtures import checkout
from kcompact.engine.spark import OnSpark
from kcompact.errors import RefusedError
from kcompact.format.batch import Record, build
from tests.support.command_line import ROOT
from tests.support.source_rows import rows_in
from tests.support.spark_runs import SPARK

pytestmark = [*SPARK, pytest.mark.long, pytest.mark.filterwarnings("ignore::FutureWarning")]

LOGS = ROOT / "fixtures" / "logs"
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def spark(on_spark: OnSpark) -> Any:
    """A session on the Spark of the tests, with the format registered."""
    from pyspark.sql import SparkSession

    from kcompact.spark_source import register

    logging.getLogger("py4j").setLevel(logging.ERROR)
    session = SparkSession(on_spark.sc)
    on_spark.sc.setLogLevel("OFF")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.shuffle.partitions", "2")
    register(session)
    return session


def load(spark: Any, *paths: Path | str, **options: str) -> Any:
    named = [str(path) for path in paths]
    return spark.read.format("kafka-log").options(**options).load(named if len(named) > 1 else named[0])


def plain(value: Any) -> Any:
    """A row of Spark as `source_rows` has it: dictionaries, also for headers, and bytes, also on PySpark 4.0."""
    if isinstance(value, Row):
        return plain(value.asDict())
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return bytes(value) if isinstance(value, bytearray) else value


def comparable(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(
        json.dumps(row, default=lambda value: str(value).replace("+00:00", ""), sort_keys=True) for row in rows
    )


@pytest.mark.parametrize("view", ["records", "committed", "latest", "batches"])
@pytest.mark.parametrize(
    "name",
    [
        "transactions/before-5",
        *(pytest.param(f"{name}/before", marks=pytest.mark.slow) for name in ("several-partitions", "legacy", "mixed")),
    ],
)
def test_spark_has_the_rows_of_one_process(view: str, name: str, spark: Any) -> None:
    found = [plain(row) for row in load(spark, LOGS / name, view=view).collect()]
    assert comparable(found) == comparable(rows_in(LOGS / name, view=view))


def test_counts_of_sql_over_several_paths(spark: Any) -> None:
    load(spark, f"{LOGS}/lz4/before", f"{LOGS}/several-partitions/before/orders-*").createOrReplaceTempView("logs")
    found = spark.sql("SELECT topic, count(*) AS n, sum(length(value)) AS v FROM logs GROUP BY topic").collect()
    expected: dict[str, tuple[int, int]] = {}
    for row in rows_in(f"{LOGS}/lz4/before", f"{LOGS}/several-partitions/before/orders-*"):
        count, size = expected.get(row["topic"], (0, 0))
        expected[row["topic"]] = count + 1, size + len(row["value"] or b"")
    assert {row.topic: (row.n, row.v) for row in found} == expected


@pytest.mark.slow
def test_thousands_of_partitions_in_one_load(spark: Any, tmp_path: Path) -> None:
    for number in range(2000):
        directory = tmp_path / f"many-{number}"
        directory.mkdir()
        (directory / f"{0:020}.log").write_bytes(build([Record(0, 1, b"%d" % number, b"v", ())]))
    found = load(spark, tmp_path, columns="partition,offset")
    assert found.distinct().count() == 2000
    assert found.rdd.getNumPartitions() <= 4


@pytest.mark.parametrize(
    ("path", "options", "words"),
    [
        ("missing", {}, "missing: no such directory"),
        ("fruit-prices/before", {"columns": "kye"}, "the view records has no column kye; did you mean key?"),
        ("fruit-prices/before", {"offset": "7"}, "option offset: kafka-log has no such option"),
    ],
)
def test_a_wrong_query_fails_at_its_load(path: str, options: dict[str, str], words: str, spark: Any) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException) as problem:
        load(spark, LOGS / path, **options)
    assert words in str(problem.value)
    assert len(str(problem.value).splitlines()) < 10


def test_a_stream_is_refused_in_one_sentence(spark: Any, tmp_path: Path) -> None:
    stream = spark.readStream.format("kafka-log").load(str(LOGS / "fruit-prices" / "before"))
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(Exception, match="a log is read as a batch, not as a stream") as raised:
        query.awaitTermination(60)
    assert "UnboundLocalError" not in str(raised.value)


def test_times_out_of_reach_are_in_their_own_column(spark: Any, tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    times = [0, 9 * 10**15 + 1, (1 << 63) - 1, -(1 << 62)]
    for number, time_ms in enumerate(times):  # A batch for each: within one, differences must fit.
        (directory / f"{number:020}.log").write_bytes(build([Record(number, time_ms, b"k", b"v")]))
    rows = load(spark, directory).selectExpr("offset", "timestamp IS NULL", "timestampMs").orderBy("offset").collect()
    assert [tuple(row) for row in rows] == [(number, number > 0, time_ms) for number, time_ms in enumerate(times)]
    for where in ("timestamp < '2100-01-01'", "timestamp IS NOT NULL", "timestampMs = 0"):
        assert load(spark, directory).where(where).count() == 1


def test_damage_names_file_position_and_offset(spark: Any, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    directory = checkout.copy_directory("fruit-prices", "before", tmp_path / "logs") / "fruit-prices-0"
    log = directory / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(bytes(data))
    with pytest.raises(PySparkException, match=r"00000000000000000000\.log, position \d+, offset 3: checksum 0x"):
        load(spark, directory).collect()
    found = load(spark, directory, failOnDamage="false", columns="offset").collect()
    assert [row.offset for row in found] == [0, 1, 2, 4]


def test_filters_are_pushed_where_they_are_asked_for(spark: Any) -> None:
    path = LOGS / "several-partitions/before"
    where = "topic = 'orders' AND partition IN (1, 2) AND offset >= 3 AND timestamp < timestamp'2100-01-01'"
    expected = comparable([row for number in (1, 2) for row in rows_in(path / f"orders-{number}", startingOffset="3")])
    assert expected
    spark.conf.set(PUSHDOWN, "true")
    try:
        assert comparable([plain(row) for row in load(spark, path).where(where).collect()]) == expected
        pushed = load(spark, path, pushFilters="true").where(where)
        assert comparable([plain(row) for row in pushed.collect()]) == expected
    finally:
        spark.conf.unset(PUSHDOWN)


@pytest.mark.slow
@pytest.mark.skipif(pyspark.__version__ < "4.1", reason="PySpark 4.0 pushes no filters")
def test_pyspark_mixes_up_the_filters_of_two_uses_of_a_source(spark: Any) -> None:
    """The reason why filters are not pushed by default. Where this test fails, PySpark is mended: push them always."""
    path = LOGS / "several-partitions/before/orders-1"
    spark.conf.set(PUSHDOWN, "true")
    try:
        once = load(spark, path)
        union = once.where("offset < 2").union(once.where("offset >= 2"))
        assert union.count() == once.count() == len(rows_in(path))
        pushed = load(spark, path, pushFilters="true")
        mixed = pushed.where("offset < 2").union(pushed.where("offset >= 2"))
        assert mixed.count() < len(rows_in(path))
    finally:
        spark.conf.unset(PUSHDOWN)


# Cleaning on the session of the caller


@pytest.mark.parametrize("of", ["session", "context"])
def test_a_round_runs_on_the_session_of_the_caller(of: str, spark: Any, tmp_path: Path) -> None:
    logs, copy = (checkout.copy_directory("fruit-prices", "before", tmp_path / name) for name in ("logs", "copy"))
    options = kcompact.PlanOptions(now_ms=1_700_608_460_000)
    given = spark if of == "session" else spark.sparkContext
    result = kcompact.clean_log_dir(logs, {"cleanup.policy": "compact"}, plan_options=options, engine=OnSpark(given))
    kcompact.clean_log_dir(copy, {"cleanup.policy": "compact"}, plan_options=options, engine="in-process")
    (outcome,) = result.partitions
    assert outcome.result is not None
    assert outcome.result.engine == "spark"
    for path in sorted(copy.rglob("*.log")):
        assert (logs / path.relative_to(copy)).read_bytes() == path.read_bytes(), path
    assert spark.range(3).count() == 3


def test_a_session_without_a_context_is_refused() -> None:
    class Remote:
        sparkContext = None  # noqa: N815

    with pytest.raises(RefusedError, match="a Remote without a SparkContext"):
        OnSpark(Remote())
