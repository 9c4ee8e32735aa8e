"""Copies of partitions and of log directories as they are, without a cleaning."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kcompact.log.directory import PartitionLog, read_log
from kcompact.swap.copy import Output


def names(directory: Path) -> list[str]:
    """Return the names in a directory, in order."""
    return sorted(path.name for path in directory.iterdir())


def read_files(root: Path) -> dict[str, bytes]:
    """Return the data of all files below a directory."""
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def made_by(log: PartitionLog, output: Output, recipe: str) -> Any:
    """Return what an earlier run has recorded of the same copy."""
    return output.finished(log, {"recipe": recipe}, checkpoint_offset=log.checkpoint_offset)


def copy_one(log: PartitionLog, output: Output, recipe: str = "") -> None:
    """Copy a partition as it is, unless an earlier run has."""
    if made_by(log, output, recipe) is None:
        with output.partition(log, checkpoint_offset=log.checkpoint_offset, recipe={"recipe": recipe}) as unfinished:
            unfinished.fill()
            unfinished.outcome = {"made": recipe}


def copy_alone(log: PartitionLog, path: Path, act: Callable[[], object] = lambda: None) -> None:
    """Copy one partition, call `act` before the copy gets its name, and finish."""
    with Output(path, [log.directory]) as output:
        with output.partition(log, checkpoint_offset=600) as unfinished:
            unfinished.fill()
            act()
        output.finish()


def copy_log_dir(log_dir: Path, path: Path, only: tuple[str, ...] = ("__cluster_metadata-0", "inventory-0")) -> Any:
    """Copy the partitions of a log directory as they are, and finish; return the report."""
    with Output(path, log_dir=log_dir) as output:
        for name in only:
            copy_one(read_log(log_dir / name), output)
        return output.finish()


def dies_in_child(number: int, act: Callable[[], Any]) -> bool:
    """Run in a child that ends without any cleanup before its sync of this number; return whether it ended there."""
    child = os.fork()
    if not child:
        left = iter(range(number - 1, -1, -1))
        real = os.fsync

        def fsync(fd: Any) -> None:
            if next(left) == 0:
                os._exit(99)
            real(fd)

        os.fsync = fsync
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 99)
    return code == 99
