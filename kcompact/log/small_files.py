"""What is wrong with the small files of a partition that a cleaning writes again, or that it has to understand."""

from __future__ import annotations

from kcompact.errors import CorruptDataError, UnsupportedError
from kcompact.format.checkpoint import LEADER_EPOCH_CHECKPOINT, parse_leader_epochs
from kcompact.format.properties import PARTITION_METADATA, parse_partition_metadata
from kcompact.log.directory import PartitionLog


def small_file_problems(log: PartitionLog) -> list[CorruptDataError | UnsupportedError]:
    """Return the damage of `leader-epoch-checkpoint` and `partition.metadata`, and an unknown version of theirs.

    Raises RefusedError, StorageError.
    """
    problems: list[CorruptDataError | UnsupportedError] = []
    parsers = {LEADER_EPOCH_CHECKPOINT: parse_leader_epochs, PARTITION_METADATA: parse_partition_metadata}
    for name, parse in parsers.items():
        file = log.file(name)
        if file.exists():
            try:
                parse(file.read(), file=str(file))
            except (CorruptDataError, UnsupportedError) as problem:
                problems.append(problem)
    return problems
