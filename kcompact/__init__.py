"""Inspect and compact Kafka partition directories with no broker running.

The public names; each is imported when it is first asked for, so that `import kcompact` costs nothing. How to use them:
`docs/python.md`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kcompact.cleaner import CleanOptions as CleanOptions
    from kcompact.cleaner import CleanResult as CleanResult
    from kcompact.cleaner import Status as Status
    from kcompact.cleaner import clean as clean
    from kcompact.config import Override as Override
    from kcompact.config import TopicConfig as TopicConfig
    from kcompact.config import topic_config as topic_config
    from kcompact.errors import KcompactError as KcompactError
    from kcompact.format.batch import read_records as read_records
    from kcompact.in_process import InProcess as InProcess
    from kcompact.lock import log_dir_lock as log_dir_lock
    from kcompact.log import PartitionLog as PartitionLog
    from kcompact.log import batches as batches
    from kcompact.log import read_log as read_log
    from kcompact.partitions import find_partitions as find_partitions
    from kcompact.partitions import plan_partition as plan_partition
    from kcompact.plan import CleanPlan as CleanPlan
    from kcompact.plan import Reason as Reason
    from kcompact.survey import findings as findings
    from kcompact.swap import recover as recover

_HOMES = {
    "CleanOptions": "cleaner",
    "CleanPlan": "plan",
    "CleanResult": "cleaner",
    "InProcess": "in_process",
    "KcompactError": "errors",
    "Override": "config",
    "PartitionLog": "log",
    "Reason": "plan",
    "Status": "cleaner",
    "TopicConfig": "config",
    "batches": "log",
    "clean": "cleaner",
    "find_partitions": "partitions",
    "findings": "survey",
    "log_dir_lock": "lock",
    "plan_partition": "partitions",
    "read_log": "log",
    "read_records": "format.batch",
    "recover": "swap",
    "topic_config": "config",
}
"""Each public name, and the module that defines it."""

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'kcompact' has no attribute '{name}'")
    value = getattr(import_module(f"kcompact.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
