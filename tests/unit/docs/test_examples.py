"""The well-known examples of `docs/examples.md` as facts, and what the other pages say about the code."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kcompact
from fixtures import checkout
from kcompact.format.index import OFFSET_ENTRY_BYTES
from kcompact.log.producer_state import load_producers
from kcompact.plan.clean_plan import dirtiest_first
from tests.support import examples
from tests.support.command_line import environment

ROOT = Path(__file__).parents[3]
NOW_MS = 1_704_103_200_000  # 2024-01-01T10:00Z


def config(topic: str, **settings: str) -> kcompact.TopicConfig:
    """Return the configuration of a compacted topic; `_` stands for a dot."""
    named = {"cleanup_policy": "compact", **settings}
    overrides = [kcompact.Override(name=name.replace("_", "."), value=value) for name, value in named.items()]
    return kcompact.topic_config(topic, overrides=overrides)


def plan_of(directory: Path, now_ms: int = NOW_MS, **settings: str) -> kcompact.CleanPlan:
    return kcompact.plan_partition(directory, config(directory.name.rpartition("-")[0], **settings), now_ms=now_ms)


def clean(directory: Path, now_ms: int = NOW_MS, **settings: str) -> kcompact.CleanResult:
    with kcompact.log_dir_lock(directory.parent) as lock:
        return kcompact.clean_partition(plan_of(directory, now_ms, **settings), kcompact.InProcess(), lock=lock)


def offsets(directory: Path) -> dict[int, list[int]]:
    """Return the offsets of the records in each segment."""
    return {
        segment.base_offset: [
            record.offset
            for batch in kcompact.batches(directory / segment.log_name)
            for record in kcompact.read_records(batch, file="")
        ]
        for segment in kcompact.read_log(directory).segments
    }


# The examples


def test_fruit_prices_first_cleaning(tmp_path: Path) -> None:
    written = checkout.copy_directory("fruit-prices", "before", tmp_path / "kafka") / "fruit-prices-0"
    built = examples.build("fruit-prices", tmp_path / "built") / "fruit-prices-0"
    for directory, now_ms in ((written, 1_700_608_460_000), (built, NOW_MS)):
        assert plan_of(directory, now_ms).cleanable_ratio == 1.0
        result = clean(directory, now_ms)
        assert (result.end_offset, result.stats.map_keys) == (4, 2)
        assert offsets(directory) == {0: [2, 3], 4: [4]}
        assert plan_of(directory, now_ms).cleanable_ratio == 0.0


def test_fruit_prices_second_cleaning(tmp_path: Path) -> None:
    directory = checkout.copy_directory("fruit-prices", "before-2", tmp_path / "kafka") / "fruit-prices-0"
    result = clean(directory, 1_701_216_860_000)
    assert (result.end_offset, result.stats.map_keys) == (8, 3)
    assert offsets(directory) == {0: [4, 6, 7], 8: [8]}


def test_a_lone_copy_stays_cleanable(tmp_path: Path) -> None:
    directory = examples.build("fruit-prices", tmp_path / "built") / "fruit-prices-0"
    clean(directory)
    assert (directory.parent / "cleaner-offset-checkpoint").exists()
    again = plan_of(directory)
    assert not again.log.log_dir.is_log_dir
    assert again.reason is kcompact.Reason.ACTIVE_ONLY
    assert again.first_dirty_offset == 4


@pytest.mark.parametrize(("moment", "ratio"), [("before", 0.25), ("before-2", 48768 / 96768), ("after-2", 0.0)])
def test_the_dirty_ratio_three_times(moment: str, ratio: float, tmp_path: Path) -> None:
    directory = checkout.copy_directory("dirty-ratio", moment, tmp_path / "logs") / "ratio-0"
    plan = plan_of(directory, segment_bytes="32768")
    assert plan.cleanable_ratio == ratio
    assert plan.eligible == (ratio > 0.5)


LISTINGS = {
    "another-topic": {
        188679: (22711925, 992, 1488, None),
        2639225: (1176762, 2072, 3120, 102),
        2641367: (1406491, 2456, 3696, 102),
        2643940: (2169167, 3736, 5616, 102),
        2647746: (6589951, 10485760, 10485756, 102),
    },
    "my-topic": {
        11131187: (1073740950, 1802632, 2703720, None),
        12291610: (1073741407, 1806376, 2709444, 10),
        13374640: (386077722, 10485760, 10485756, 10),
    },
}


@pytest.mark.parametrize("name", LISTINGS)
def test_a_listing_has_its_sizes(name: str, tmp_path: Path) -> None:
    (directory,) = kcompact.find_partitions([examples.build(name, tmp_path / "logs")])
    for base_offset, sizes in LISTINGS[name].items():
        for suffix, size_bytes in zip(("log", "index", "timeindex", "snapshot"), sizes, strict=True):
            path = directory / f"{base_offset:020d}.{suffix}"
            assert (path.stat().st_size if path.exists() else None) == size_bytes, path.name
    used_bytes = sum(path.stat().st_blocks * 512 for path in directory.iterdir())
    assert used_bytes < 64 << 20, "the files have holes"


def test_the_ratio_of_the_listing(tmp_path: Path) -> None:
    (directory,) = kcompact.find_partitions([examples.build("another-topic", tmp_path / "logs")])
    plan = plan_of(directory, segment_bytes="53687088")
    assert (plan.cleanable_bytes, plan.clean_bytes) == (4752420, 22711925)
    assert round(plan.cleanable_ratio, 2) == 0.17
    assert plan.reason is kcompact.Reason.BELOW_RATIO
    assert plan.log.log_end_offset == max(plan.log.snapshots) == 2649416
    clean_segment, dirty_segment, *_ = plan.log.segments
    assert clean_segment.size_bytes // (clean_segment.index_bytes // OFFSET_ENTRY_BYTES) == 183160
    assert dirty_segment.size_bytes // (dirty_segment.index_bytes // OFFSET_ENTRY_BYTES) == 4543


def test_the_snapshot_at_the_log_end_is_the_state_of_the_producers(tmp_path: Path) -> None:
    (directory,) = kcompact.find_partitions([examples.build("another-topic", tmp_path / "logs")])
    state = load_producers(kcompact.read_log(directory), now_ms=1, expiration_ms=86_400_000)
    assert sorted(state) == [1000, 1001]


def test_five_editions(tmp_path: Path) -> None:
    directory = examples.build("editions", tmp_path / "logs") / "editions-0"
    assert clean(directory).end_offset == 6
    assert offsets(directory) == {1: [2, 4, 5], 6: []}


def test_why_not(tmp_path: Path) -> None:
    logs = examples.build("why-not", tmp_path / "logs")
    settings: dict[str, dict[str, Any]] = {
        "deleted": {"cleanup_policy": "delete"},
        "too-young": {"min_compaction_lag_ms": "3600000"},
        "overdue": {"max_compaction_lag_ms": "1800000"},
    }
    plans = [
        plan_of(directory, **settings.get(directory.name.removesuffix("-0"), {}))
        for directory in kcompact.find_partitions([logs])
    ]
    assert {plan.log.topic_partition.topic: plan.reason.value for plan in plans} == {
        "no-roll": "active-only",
        "below-ratio": "below-ratio",
        "newest-active": "active-only",
        "too-young": "min-compaction-lag",
        "hanging": "open-transaction",
        "unreplicated": "high-watermark",
        "deleted": "policy-delete",
        "caught-up": "nothing-dirty",
        "nothing": "empty",
        "tombstone": "active-only",
        "overdue": "max-compaction-lag",
        "waiting": "dirty-ratio",
        "busy": "dirty-ratio",
    }
    eligible = [plan.log.topic_partition.topic for plan in dirtiest_first(plans) if plan.eligible]
    assert eligible == ["busy", "waiting", "overdue"]


def test_every_reason_is_explained() -> None:
    page = (ROOT / "docs" / "why.md").read_text(encoding="utf-8")
    assert [reason.value for reason in kcompact.Reason if reason.value not in page] == []


# What the pages say of the code


def test_rules_name_what_is_there() -> None:
    page = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in page.splitlines() if line.count("|") == 5 and not line.startswith("|---")]
    named = {name for row in rows for name in re.findall(r"`([a-z_.]+(?:\.\w+)+)`", row[3])}
    assert len(named) > 20
    for name in sorted(named):
        module, found = _module(name)
        for attribute in name.removeprefix(module).strip(".").split("."):
            assert hasattr(found, attribute), name
            found = getattr(found, attribute)
    fixtures_named = {
        word
        for row in rows
        for part in re.findall(r"fixtures? ((?:`[\w-]+`(?:, )?)+)", row[4])
        for word in part.split("`")
    }
    assert {word for word in fixtures_named if re.match(r"\w", word)} <= set(checkout.names())


def _module(name: str) -> tuple[str, object]:
    """Return the longest beginning of a dotted name that is a module or a package, and the module."""
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        path = ROOT / "kcompact" / Path(*parts[:length])
        if path.with_suffix(".py").exists() or (path / "__init__.py").exists():
            module = ".".join(parts[:length])
            return module, importlib.import_module(f"kcompact.{module}")
    raise AssertionError(f"docs/rules.md names {name}, and no module of kcompact has that name")


def _is_module(path: Path) -> bool:
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def test_the_public_names() -> None:
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    for name in kcompact.__all__:
        assert getattr(kcompact, name) is not None
        assert name in page, name
    assert set(kcompact.__all__) <= set(dir(kcompact))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = kcompact.nothing


def test_importing_kcompact_loads_nothing() -> None:
    code = (
        "import sys, kcompact; print([name for name in ('numpy', 'pyspark', 'click', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    assert done.stdout.strip() == "[]"
