"""The data source as PySpark calls it, without a JVM: schema, reader, tasks, rows."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StringType, StructField, StructType

from kcompact.errors import ConfigError, RefusedError, UnsupportedError
from kcompact.spark_source.source import KafkaLogSource, LogReader
from tests.support import log_dsl, log_writer
from tests.support.source_rows import rows_in

COLUMNS = ("offset", "key")
"""Of a schema only the names are looked at."""


def source(path: Path, **options: str) -> KafkaLogSource:
    return KafkaLogSource({"path": str(path), "columns": ",".join(COLUMNS), **options})


def schema(*names: str) -> StructType:
    return StructType([StructField(name, StringType()) for name in names])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return log_writer.write(log_dsl.parse("log\n0: a=1 b=2\n4: c=~\n"), tmp_path)


def test_spark_gets_the_rows_of_each_task(log: Path) -> None:
    assert KafkaLogSource.name() == "kafka-log"
    assert source(log).schema() == "`offset` bigint, `key` binary"
    reader = source(log).reader(schema(*COLUMNS))
    assert isinstance(reader, LogReader)
    found = [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]
    assert found == rows_in(log, columns=",".join(COLUMNS))
    assert [row["offset"] for row in found] == [0, 1, 4]


def test_without_a_task_there_is_no_row(log: Path) -> None:
    reader = source(log, startingOffset="1", endingOffset="1").reader(schema(*COLUMNS))
    assert list(reader.partitions()) == []
    assert list(reader.read(InputPartition(None))) == []


def test_errors_come_without_the_stack_below(tmp_path: Path, log: Path) -> None:
    with pytest.raises(ConfigError):
        source(log).reader(schema("offset"))
    with pytest.raises(RefusedError) as missing:
        source(tmp_path / "missing").schema()
    assert [frame.name for frame in traceback.extract_tb(missing.tb)][1:] == ["called"]


def test_a_stream_is_refused(log: Path) -> None:
    reader = source(log).streamReader(schema(*COLUMNS))
    with pytest.raises(UnsupportedError, match=r"as a batch, not as a stream\nUse spark\.read\.format"):
        reader.initialOffset()
    assert list(reader.read(InputPartition(None))) == []


def test_without_pyarrow_the_load_says_what_to_install(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UnsupportedError) as raised:
        source(log).schema()
    assert str(raised.value) == (
        f"kafka-log: {sys.executable}, the Python of Spark's workers, has no pyarrow\n"
        "Install kcompact for it with both extras: pip install 'kcompact[spark,arrow]'"
    )
