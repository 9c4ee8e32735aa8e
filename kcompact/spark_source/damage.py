"""The parts of logs that cannot be read, as rows: what a query with `failOnDamage=false` leaves out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kcompact.spark_source.columns import ColumnType

if TYPE_CHECKING:
    from kcompact.log.past_damage import Unreadable
    from kcompact.spark_source.columns import RunSegment


class Damage(NamedTuple):
    """A part of a segment that cannot be read."""

    part: Unreadable
    place: RunSegment


def damage_row(damage: Damage, names: Sequence[str]) -> Any:
    """Return a part as a `pyarrow.RecordBatch` of one row with these columns."""
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([DAMAGE_COLUMNS[name].array(damage) for name in names], list(names))


def _one(type_name: str, value: Callable[[Damage], Any]) -> Callable[[Damage], Any]:
    """Return what makes a value an array."""

    def array(damage: Damage) -> Any:
        import pyarrow as pa

        return pa.array([value(damage)], getattr(pa, type_name)())

    return array


DAMAGE_COLUMNS = {
    "topic": ColumnType("string", _one("string", lambda damage: damage.place.partition.topic)),
    "partition": ColumnType("int", _one("int32", lambda damage: damage.place.partition.partition)),
    "segment": ColumnType("bigint", _one("int64", lambda damage: damage.place.segment)),
    "position": ColumnType("bigint", _one("int64", lambda damage: damage.part.position)),
    "size": ColumnType("bigint", _one("int64", lambda damage: damage.part.size_bytes)),
    "offset": ColumnType("bigint", _one("int64", lambda damage: damage.part.problem.offset)),
    "problem": ColumnType("string", _one("string", lambda damage: damage.part.problem.problem)),
    "isGivenUp": ColumnType("boolean", _one("bool_", lambda damage: damage.part.is_given_up)),
}
"""The columns of the view of damage. `offset` is null where no header can be read there."""
