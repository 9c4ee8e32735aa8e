"""`plan.partition`: the plan of a directory, its high watermark, and the partitions that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from kcompact.config.layers import topic_config
from kcompact.config.settings import Override
from kcompact.errors import RefusedError
from kcompact.format.names import TopicPartition
from kcompact.log.directory import LogDir
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.partition import NO_HIGH_WATERMARK, plan_partition, refusal
from kcompact.plan.verdict import Reason
from kcompact.remarks import Note, RemarkCode
from tests.support import log_dsl, log_writer
from tests.support.log_writer import DEFAULT_TIME

ORDERS = TopicPartition("orders", 0)
ONE = "log\n0: a=1\n1: b=1"
AS_LOG_END = Note.of(RemarkCode.NO_HIGH_WATERMARKS)


def written(log_dir: Path, *, name: str = "orders-0") -> Path:
    return log_writer.write(log_dsl.parse(ONE.replace("log", f"log name={name}", 1)), log_dir)


def plan_of(directory: Path, **settings: str) -> CleanPlan:
    overrides = [Override(name=name.replace("_", "."), value=value) for name, value in settings.items()]
    config = topic_config("orders", overrides=[Override(name="cleanup.policy", value="compact"), *overrides])
    return plan_partition(directory, config, now_ms=DEFAULT_TIME)


@pytest.mark.parametrize(
    ("checkpoint", "given", "use_log_end", "expected", "notes"),
    [
        (None, None, False, 2, (AS_LOG_END,)),
        (None, None, True, 2, ()),
        (None, 1, False, 1, ()),
        ({ORDERS: 1}, None, False, 1, ()),
        ({ORDERS: 1}, None, True, 2, ()),
        ({ORDERS: 1}, 2, False, 2, ()),
        ({TopicPartition("other", 0): 1}, None, False, 0, (NO_HIGH_WATERMARK,)),
        ({TopicPartition("other", 0): 1}, None, True, 2, ()),
    ],
)
def test_the_high_watermark(
    checkpoint: dict[TopicPartition, int] | None,
    given: int | None,
    use_log_end: bool,
    expected: int,
    notes: tuple[Note, ...],
    tmp_path: Path,
) -> None:
    directory = written(tmp_path)
    plan = plan_partition(
        directory,
        topic_config("orders"),
        now_ms=DEFAULT_TIME,
        log_dir=LogDir(path=tmp_path, high_watermarks=checkpoint),
        high_watermark=given,
        use_log_end=use_log_end,
    )
    assert (plan.high_watermark, plan.log.notes) == (expected, notes)


def test_tiered_topics_are_not_eligible(tmp_path: Path) -> None:
    plan = plan_of(written(tmp_path), remote_storage_enable="true")
    assert (plan.eligible, plan.reason) == (False, Reason.NOT_A_PARTITION)
    assert isinstance(refusal(plan), RefusedError)


def test_a_metadata_log_has_no_high_watermark_on_disk(tmp_path: Path) -> None:
    directory = written(tmp_path, name="__cluster_metadata-0")
    checkpoint = {TopicPartition("orders", 0): 1}
    plan = plan_partition(
        directory,
        topic_config("__cluster_metadata"),
        now_ms=DEFAULT_TIME,
        log_dir=LogDir(path=tmp_path, high_watermarks=checkpoint, is_log_dir=True, is_clean_shutdown=True),
    )
    assert plan.high_watermark == plan.log.log_end_offset > plan.log.log_start_offset
    assert plan.log.notes == (Note.of(RemarkCode.NO_QUORUM_HIGH_WATERMARK),)


def test_no_option_makes_a_metadata_log_eligible(tmp_path: Path) -> None:
    plan = plan_of(written(tmp_path, name="__cluster_metadata-0"))
    problem = refusal(plan)
    assert problem is not None
    assert "--include-internal" not in str(problem)
