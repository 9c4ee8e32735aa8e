"""Inspect and compact Kafka partition directories with no broker running.

This module has the public names. Each is imported at its first use, so `import kcompact` is fast. `docs/python.md`
shows how to use them.
"""

from __future__ import annotations

from importlib import import_module

__version__ = "0.1.0"

TYPE_CHECKING = False  # Not from `typing`: `python -m` would import it from the current directory.
if TYPE_CHECKING:
    from typing import Any

    from kcompact.cleaner.cleaning import CleanOptions as CleanOptions
    from kcompact.cleaner.engines import EngineOptions as EngineOptions
    from kcompact.cleaner.journal import read_journal as read_journal
    from kcompact.cleaner.outcome import CleanResult as CleanResult
    from kcompact.cleaner.outcome import PartitionOutcome as PartitionOutcome
    from kcompact.cleaner.outcome import RoundResult as RoundResult
    from kcompact.cleaner.outcome import Status as Status
    from kcompact.cleaner.partition import clean_partition as clean_partition
    from kcompact.cleaner.round import clean_log_dir as clean_log_dir
    from kcompact.cleaner.service import Cleaner as Cleaner
    from kcompact.config.broker_config import BrokerConfig as BrokerConfig
    from kcompact.config.client.settings import ClientConfig as ClientConfig
    from kcompact.config.layers import topic_config as topic_config
    from kcompact.config.server_properties import read_broker_config as read_broker_config
    from kcompact.config.settings import Override as Override
    from kcompact.config.settings import TopicConfig as TopicConfig
    from kcompact.config.topic_configs import read_topic_configs as read_topic_configs
    from kcompact.engine.in_process import InProcess as InProcess
    from kcompact.errors import KcompactError as KcompactError
    from kcompact.format.batch import read_records as read_records
    from kcompact.format.names import TopicPartition as TopicPartition
    from kcompact.log.directory import PartitionLog as PartitionLog
    from kcompact.log.directory import read_log as read_log
    from kcompact.log.lock import log_dir_lock as log_dir_lock
    from kcompact.log.segment_reader import batches as batches
    from kcompact.plan.clean_plan import CleanPlan as CleanPlan
    from kcompact.plan.discovery import find_partitions as find_partitions
    from kcompact.plan.options import PlanOptions as PlanOptions
    from kcompact.plan.partition import plan_partition as plan_partition
    from kcompact.plan.verdict import Reason as Reason
    from kcompact.questions.verify.log import findings as findings
    from kcompact.release import release_of as release_of
    from kcompact.stages.executor import RoundProgress as RoundProgress
    from kcompact.swap.recovery.interrupted_round import recover as recover

_MODULES = {
    "BrokerConfig": "config.broker_config",
    "CleanOptions": "cleaner.cleaning",
    "CleanPlan": "plan.clean_plan",
    "CleanResult": "cleaner.outcome",
    "Cleaner": "cleaner.service",
    "ClientConfig": "config.client.settings",
    "EngineOptions": "cleaner.engines",
    "InProcess": "engine.in_process",
    "KcompactError": "errors",
    "Override": "config.settings",
    "PartitionLog": "log.directory",
    "PartitionOutcome": "cleaner.outcome",
    "PlanOptions": "plan.options",
    "Reason": "plan.verdict",
    "RoundProgress": "stages.executor",
    "RoundResult": "cleaner.outcome",
    "Status": "cleaner.outcome",
    "TopicConfig": "config.settings",
    "TopicPartition": "format.names",
    "batches": "log.segment_reader",
    "clean_log_dir": "cleaner.round",
    "clean_partition": "cleaner.partition",
    "find_partitions": "plan.discovery",
    "findings": "questions.verify.log",
    "log_dir_lock": "log.lock",
    "plan_partition": "plan.partition",
    "read_broker_config": "config.server_properties",
    "read_journal": "cleaner.journal",
    "read_log": "log.directory",
    "read_records": "format.batch",
    "read_topic_configs": "config.topic_configs",
    "recover": "swap.recovery.interrupted_round",
    "release_of": "release",
    "topic_config": "config.layers",
}
"""The module that defines each public name."""

__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'kcompact' has no attribute '{name}'")
    value = getattr(import_module(f"kcompact.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
