"""Logs as a data source of Spark: `spark.read.format("kafka-log").load("/copy/orders-*")`.

    import kcompact.spark_source    # registers the format with the Spark session that runs

In: partition and log directories, options. Out: batches of Arrow, for Spark's own workers.
Imports: `errors`, `host`, `format`, `kernels`, `log`, `plan`, `inspect`, `clean`, `keys`, `export`, `engine`.

    source            what PySpark calls: schema, reader, tasks
    options           the options of a query
    planning          divides the logs among tasks
    tasks             what a task reads
    committed         where the view of committed records begins and ends, and what was aborted
    reading           reads a task
    latest            the latest record of each key of whole partitions
    columns           the columns, their types, and how a run of records becomes Arrow
    damage            the same of a part that cannot be read
    pushed_filters    what Spark's filters exclude

Spark finds the format without an import where kcompact is installed for its Python: through `pyspark_kcompact`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcompact.errors import UnsupportedError
from kcompact.host.installation import how_to_add

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


def register(spark: SparkSession | None = None) -> None:
    """Make `kafka-log` a format of a Spark session, by default of the active one, if there is one.

    Raises UnsupportedError without PySpark, and for a session whose workers have a Python without kcompact or pyarrow.
    """
    try:
        from pyspark.errors import AnalysisException
        from pyspark.sql import SparkSession

        from kcompact.engine.spark.worker_python import check_workers
        from kcompact.spark_source.source import KafkaLogSource
    except ImportError as problem:
        why = f"the format kafka-log needs PySpark and pyarrow ({problem}): {how_to_add('spark,arrow')}"
        raise UnsupportedError(path="kafka-log", problem=why) from None
    session = spark or SparkSession.getActiveSession()
    if session is None:
        return
    context = _context_of(session)
    if context is not None:
        check_workers(context, path="kafka-log", needs_arrow=True)
    try:
        session.dataSource.register(KafkaLogSource)
    except AnalysisException as problem:
        # PySpark 4.0 does not register again what it has found by itself.
        if problem.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def _context_of(session: SparkSession) -> SparkContext | None:
    """Return the context of a session, None for one of Spark Connect, whose workers are elsewhere."""
    from pyspark.errors import PySparkException

    try:
        return session.sparkContext
    except (PySparkException, AttributeError):
        return None


# Spark's own workers import this package too. They have no session.
register()
