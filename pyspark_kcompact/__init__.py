"""Lets Spark find the format `kafka-log`: PySpark looks for a `DefaultSource` in packages named `pyspark_*`."""

from kcompact.spark_source.source import KafkaLogSource as DefaultSource

__all__ = ["DefaultSource"]
