"""The data source as PySpark calls it: a schema, a reader, its tasks.

Spark makes a `KafkaLogSource` in a Python process beside its driver. `reader.partitions` runs there too; `reader.read`
runs in the Python workers.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from kcompact.errors import ConfigError, KcompactError, UnsupportedError

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from kcompact.spark_source.options import SourceOptions
    from kcompact.spark_source.pushed_filters import PushedFilters

FORMAT = "kafka-log"

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _with_short_trace(method: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Let errors of kcompact leave a method without the stack below it: Spark prints what is left of it."""

    @wraps(method)
    def called(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        try:
            return method(*arguments, **named)
        except KcompactError as problem:
            error = problem
        raise error.with_traceback(None) from None

    return called


@cache
def _spare_collections() -> None:
    """Exempt the modules of this worker from the garbage collector, once for each process.

    PySpark's worker collects all garbage after every task, which takes 20 ms with these modules.
    """
    gc.collect()
    gc.freeze()


class KafkaLogSource(DataSource):  # type: ignore[misc]  # PySpark is not checked.
    """The records and batches of partition directories, as `spark.read.format("kafka-log")`."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    @_with_short_trace
    def schema(self) -> str:
        """Return the columns. Raises ConfigError for a wrong option, RefusedError for a path that is no log.

        Raises UnsupportedError without pyarrow: Spark would end the worker without a message later.
        """
        from kcompact.engine.spark.worker_python import require_arrow
        from kcompact.spark_source.columns import schema_text

        require_arrow(FORMAT)

        _spare_collections()
        options = self._checked()
        options.directories()
        return schema_text(options.view.columns, options.columns)

    @_with_short_trace
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader. Raises ConfigError for a schema of the user's own: the option `columns` chooses."""
        options = self._checked()
        if tuple(schema.fieldNames()) != options.columns:
            problem = "kafka-log has its own schema; choose columns with the option columns"
            raise ConfigError(path="schema()", problem=problem)
        return FilteringReader(options) if options.pushes_filters else LogReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return a reader that refuses: Spark asks for one only when a streaming query starts."""
        return NoStreamReader()

    def _checked(self) -> SourceOptions:
        from kcompact.spark_source.options import SourceOptions

        return SourceOptions.of(self.options)


class NoStreamReader(DataSourceStreamReader):  # type: ignore[misc]  # PySpark is not checked.
    """Refuses the first question of a streaming query. PySpark would hide an error of `streamReader` itself."""

    @_with_short_trace
    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Raise UnsupportedError."""
        hint = 'Use spark.read.format("kafka-log") instead of spark.readStream.'
        raise UnsupportedError(path=FORMAT, problem="a log is read as a batch, not as a stream", hint=hint)

    def latestOffset(self, *arguments: Any) -> dict[str, int]:  # noqa: N802
        """Raise UnsupportedError: Spark 4.0 asks this first, and later releases with arguments."""
        return self.initialOffset()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield nothing: there is no partition without a first offset."""
        yield from ()


class LogReader(DataSourceReader):  # type: ignore[misc]  # PySpark is not checked.
    """Divides the logs among tasks, and reads them."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._pushed: PushedFilters | None = None

    @_with_short_trace
    def partitions(self) -> list[InputPartition]:
        """Return a value for each task. Raises KcompactError."""
        from kcompact.spark_source.planning import read_tasks

        _spare_collections()
        directories, bounds = self._options.directories(), self._options.bounds
        if self._pushed is not None:
            directories, bounds = self._pushed.narrowed(directories, bounds)
        return [InputPartition(task) for task in read_tasks(self._options, bounds, directories)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of a task as `pyarrow.RecordBatch`. Raises KcompactError."""
        if partition.value is None:  # There is no task. Spark then makes one without a value.
            return
        from kcompact.spark_source.reading import rows_of

        _spare_collections()
        rows = rows_of(partition.value)
        following = _with_short_trace(lambda: next(rows, None))
        while (batch := following()) is not None:
            yield batch


class FilteringReader(LogReader):
    """A reader that leaves out what Spark's filters exclude. PySpark 4.1 and newer pass them.

    All filters are returned, so Spark applies them too: here they only spare work.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Take over what can spare work, and return all filters."""
        from kcompact.spark_source.pushed_filters import PushedFilters

        self._pushed = PushedFilters.of(filters)
        return filters
