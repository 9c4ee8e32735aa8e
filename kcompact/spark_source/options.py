"""The options of `spark.read.format("kafka-log")`, read once from their texts and checked."""

from __future__ import annotations

import glob
import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from kcompact.bucket.path import require_local_path
from kcompact.errors import ConfigError, RefusedError
from kcompact.format.names import MAX_OFFSET
from kcompact.plan.discovery import find_partitions
from kcompact.plan.options import PlanOptions
from kcompact.plan.selection import Selection
from kcompact.questions.record_filter import RecordFilter
from kcompact.readable import closest, shown
from kcompact.spark_source.columns import BATCH_COLUMNS, RECORD_COLUMNS, Columns
from kcompact.spark_source.damage import DAMAGE_COLUMNS
from kcompact.values import dataclass


class View(StrEnum):
    """What the rows are."""

    RECORDS = "records"
    """Every record in the files, markers too: what `kcompact records` lists."""
    COMMITTED = "committed"
    """What a consumer with `isolation.level=read_committed` receives."""
    LATEST = "latest"
    """The latest record of each key, as `kcompact records --latest`."""
    BATCHES = "batches"
    """A row for each batch: what `kcompact inspect --batches` lists."""
    DAMAGE = "damage"
    """A row for each part of a log that the other views leave out with `failOnDamage=false`."""

    @property
    def columns(self) -> Columns:
        """All columns of the view by name, in their order."""
        if self is View.DAMAGE:
            return DAMAGE_COLUMNS
        return BATCH_COLUMNS if self is View.BATCHES else RECORD_COLUMNS


NAMES = (
    *("path", "paths", "view", "columns", "topic", "startingOffset", "endingOffset", "startingTimestamp"),
    *("endingTimestamp", "failOnDamage", "highWatermark", "memoryBytes", "minPartitions", "pushFilters"),
)
_FILE = "file:/"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What is read, and how.

    `columns` are those of the rows, in this order. `bounds` are the offsets and times of the records. A task may hold
    `memory_bytes`; None: its part of the machine's memory. There are at least `min_partitions` tasks if there is enough
    to divide; None: as many as the size and the processors of this machine suggest.
    """

    paths: tuple[str, ...]
    view: View
    columns: tuple[str, ...]
    topics: tuple[str, ...] = ()
    bounds: RecordFilter
    fails_on_damage: bool = True
    high_watermark: int | None = None
    use_log_end: bool = False
    memory_bytes: int | None = None
    min_partitions: int | None = None
    pushes_filters: bool = False

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> SourceOptions:
        """Return the options that these texts name; a name may be in any case. Raises ConfigError."""
        given = {_known(name): text for name, text in texts.items()}
        view = _one_of(given, "view", tuple(View), View.RECORDS)
        mark = given.get("highWatermark", "")
        return cls(
            paths=_paths(given),
            view=View(view),
            columns=_columns(given.get("columns"), View(view)),
            topics=_words(given.get("topic", "")),
            bounds=RecordFilter(
                from_offset=_bound(given, "startingOffset"),
                until_offset=_bound(given, "endingOffset"),
                since_ms=_number(given, "startingTimestamp"),
                until_ms=_number(given, "endingTimestamp"),
            ),
            fails_on_damage=_truth(given, "failOnDamage", default=True) and view != View.DAMAGE,
            high_watermark=None if mark.lower() == "leo" else _number(given, "highWatermark"),
            use_log_end=mark.lower() == "leo",
            memory_bytes=_number(given, "memoryBytes", least=1),
            min_partitions=_number(given, "minPartitions", least=1),
            pushes_filters=_truth(given, "pushFilters", default=False),
        )

    def plan_options(self, now_ms: int) -> PlanOptions:
        """Return how partitions are planned, for the views that depend on transactions."""
        return PlanOptions(
            now_ms=now_ms, by_clock=True, high_watermark=self.high_watermark, use_log_end=self.use_log_end
        )

    def directories(self) -> list[Path]:
        """Return the partition directories that the paths name, each once, in order of path, topic and partition.

        Raises RefusedError for a path that is no partition and no log directory, and for a pattern without a match.
        """
        paths = [path for text in self.paths for path in _matches(text)]
        partitions = find_partitions(paths, topics=self.topics)
        if not partitions:
            raise Selection(self.topics).no_match(Path(paths[0]), find_partitions(paths))
        return partitions


def _known(name: str) -> str:
    """Return an option's name as it is documented. Raises ConfigError for an unknown one."""
    for known in NAMES:
        if name.lower() == known.lower():
            return known
    meant = closest(name.lower(), [known.lower() for known in NAMES])
    hint = f"did you mean {_known(meant)}?" if meant else f"the options are {', '.join(sorted(NAMES[2:]))}"
    raise ConfigError(path=f"option {shown(name)}", problem=f"kafka-log has no such option; {hint}")


def _paths(given: Mapping[str, str]) -> tuple[str, ...]:
    """Return the paths of `load`, which Spark passes as `path`, or as a list in JSON."""
    texts = (*([given["path"]] if "path" in given else []), *json.loads(given.get("paths", "[]")))
    if not texts:
        raise ConfigError(path="load()", problem="no path: pass a partition directory, a log directory or a pattern")
    return texts


def _matches(text: str) -> Sequence[str]:
    """Return the directories that a path or a pattern names; `file:` may stand before it, as everywhere in Spark.

    Raises RefusedError for none, ConfigError for a path that is not local.
    """
    path = "/" + text.removeprefix(_FILE).lstrip("/") if text.startswith(_FILE) else text
    require_local_path(path)
    if not glob.has_magic(path) or Path(path).is_dir():
        return [path]
    paths = sorted(each for each in glob.glob(path, recursive=True) if Path(each).is_dir())  # noqa: PTH207 - absolute
    if not paths:
        raise RefusedError(path=text, problem="no directory matches this pattern")
    return paths


def _columns(text: str | None, view: View) -> tuple[str, ...]:
    if text is None:
        return tuple(view.columns)
    known = {name.lower(): name for name in view.columns}
    columns = []
    for name in _words(text):
        if name.lower() not in known:
            meant = closest(name.lower(), known)
            hint = f"did you mean {known[meant]}?" if meant else f"there are {', '.join(view.columns)}"
            raise ConfigError(path="option columns", problem=f"the view {view} has no column {name}; {hint}")
        columns.append(known[name.lower()])
    if not columns or len(set(columns)) < len(columns):
        problem = "names no column" if not columns else f"'{text}' names a column twice"
        raise ConfigError(path="option columns", problem=problem)
    return tuple(columns)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _one_of(given: Mapping[str, str], name: str, values: Sequence[str], default: str) -> str:
    value = given.get(name, default).strip().lower()
    if value not in values:
        raise ConfigError(path=f"option {name}", problem=f"'{given[name]}' is none of {', '.join(values)}")
    return value


def _truth(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    return _one_of(given, name, ("true", "false"), str(default).lower()) == "true"


def _bound(given: Mapping[str, str], name: str) -> int | None:
    """Return an offset. `earliest` and `latest` are no bound, as for Spark's own Kafka source."""
    no_bound = "earliest" if name == "startingOffset" else "latest"
    return None if given.get(name, "").strip().lower() == no_bound else _number(given, name)


def _number(given: Mapping[str, str], name: str, *, least: int = 0) -> int | None:
    if name not in given:
        return None
    try:
        value = int(given[name].strip())
    except ValueError:
        value = least - 1
    if not least <= value <= MAX_OFFSET:
        raise ConfigError(path=f"option {name}", problem=f"'{given[name]}' is not a whole number from {least} on")
    return value
