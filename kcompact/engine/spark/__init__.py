"""The stages on Spark: an executor over a SparkContext, and a private SparkContext to run it on.

    with spark_context("local[*]") as sc:
        cleaning = stages.prepare_clean(plan, OnSpark(sc=sc))

Each name is imported at its first use. So a JVM can be started before PySpark is imported.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kcompact.engine.spark.context import SparkStart, spark_context, spark_start
    from kcompact.engine.spark.executor import OnSpark
    from kcompact.engine.spark.jvm import find_java

__all__ = ["OnSpark", "SparkStart", "find_java", "spark_context", "spark_start"]

_MODULE = {
    "OnSpark": "executor",
    "SparkStart": "context",
    "find_java": "jvm",
    "spark_context": "context",
    "spark_start": "context",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE[name]}"), name)
