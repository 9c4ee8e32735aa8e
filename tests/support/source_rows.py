"""What the data source of Spark reads, without Spark: planned, sent through pickle, read, as rows of Python."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kcompact.spark_source.options import SourceOptions
from kcompact.spark_source.planning import read_tasks
from kcompact.spark_source.reading import rows_of
from kcompact.spark_source.tasks import ReadTask

Row = dict[str, Any]


def tasks_of(*paths: Path | str, **options: str) -> list[ReadTask]:
    """Return the tasks of a query, as a worker receives them."""
    texts = {"path": str(paths[0]), **options}
    if len(paths) > 1:
        texts = {"paths": "[" + ",".join(f'"{path}"' for path in paths) + "]", **options}
    chosen = SourceOptions.of(texts)
    tasks: list[ReadTask] = pickle.loads(pickle.dumps(read_tasks(chosen, chosen.bounds, chosen.directories())))
    return tasks


def rows(tasks: Sequence[ReadTask]) -> list[Row]:
    """Return the rows of some tasks, in order."""
    return [row for task in tasks for batch in rows_of(task) for row in batch.to_pylist()]


def rows_in(*paths: Path | str, **options: str) -> list[Row]:
    """Return the rows of a query, in order."""
    return rows(tasks_of(*paths, **options))
