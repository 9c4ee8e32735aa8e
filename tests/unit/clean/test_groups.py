"""`clean.groups`: what the groups of a plan read, count and replace."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from kcompact.clean.groups import map_bytes, write_groups
from kcompact.cleaner import partition as cleaner
from kcompact.cleaner.cleaning import CleanOptions
from kcompact.engine.in_process import InProcess
from kcompact.log.lock import log_dir_lock
from kcompact.plan.partition import plan_partition
from tests.support import log_dsl, log_writer
from tests.support.stages import THREE, plan_of, prepared
from tests.support.staging import staging_at


def test_map_bytes_start_where_the_index_leads(tmp_path: Path) -> None:
    spec = replace(log_dsl.parse(THREE), checkpoint=3)
    plan = plan_of(spec, tmp_path / "logs")
    sizes = [len(data) for segment in spec.segments[:2] for data in segment.batches]
    # Batches of 69 bytes: the third and the fifth have index entries, the one at or below offset 3 is the third.
    assert map_bytes(plan) == sum(sizes[2:])


def test_a_dry_run_counts_what_the_run_counts(tmp_path: Path) -> None:
    # The index that says where the map begins is another one after the run.
    directory = log_writer.write(replace(log_dsl.parse(THREE), checkpoint=3), tmp_path / "logs")
    plan = plan_partition(directory, log_dsl.parse(THREE).config, now_ms=log_dsl.parse(THREE).now_ms)
    with log_dir_lock(directory.parent) as lock:
        dry = cleaner.clean_partition(plan, InProcess(), lock=None, options=CleanOptions(dry_run=True))
        assert cleaner.clean_partition(plan, InProcess(), lock=lock).stats == dry.stats


def test_snapshots_of_the_bases_that_disappear_go_with_them(tmp_path: Path) -> None:
    text = THREE.replace("5: a=2\n", "5: a=2 g=1\n") + "\n8: h=1\nsnapshot 3:\nsnapshot 5:\nsnapshot 6:\nsnapshot 8:"
    cleaning = prepared(text.replace("6: f=1", "7: f=1"), tmp_path / "logs")
    with tempfile.TemporaryDirectory() as staging:
        (segment,) = write_groups(cleaning, [0], staging_at(staging)).segments
    names = {file.name.lstrip("0") for file in segment.replaces if file.name.endswith(".snapshot")}
    assert names == {"3.snapshot", "5.snapshot", "6.snapshot"}
