"""Runs the stages on Spark: an executor over a SparkContext, and a private SparkContext for it.

    with spark_context("local[*]") as sc:
        result = clean_partition(plan, OnSpark(sc=sc), lock=lock)

In: jobs and tasks of `clean`, a master, Spark settings. Out: their results, and progress.
Imports: `errors`, `host`, `kernels`, `clean`, `engine.in_process`.

    executor          runs the stages as Spark jobs: what the driver does
    tasks             what the workers run, and the values that travel
    task_queue        hands the work of several threads out as tasks
    context           a private SparkContext: its settings, its environment, its end
    master            the forms of a master URL, and what Spark needs before it can start
    java              finds a Java that runs
    java_errors       says in a few lines what went wrong in Java
    jvm               starts the JVM, connects to it, ends it
    class_archive     the class-data archive, with which Spark starts in half the time
    worker_pool       starts the Python workers while the JVM starts
    worker_python     whether the Python of the workers has kcompact
    scratch           private directories that are removed when no process uses them
    pyspark_private   every private name of PySpark that is used

Each name is imported at its first use, so a JVM can be started before PySpark is imported.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kcompact.engine.spark.context import SparkStart, spark_context, spark_start
    from kcompact.engine.spark.executor import OnSpark, queue_of
    from kcompact.engine.spark.java import find_java
    from kcompact.engine.spark.master import check_prerequisites

__all__ = ["OnSpark", "SparkStart", "check_prerequisites", "find_java", "queue_of", "spark_context", "spark_start"]

_MODULES = {
    "OnSpark": "executor",
    "SparkStart": "context",
    "check_prerequisites": "master",
    "find_java": "java",
    "queue_of": "executor",
    "spark_context": "context",
    "spark_start": "context",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
