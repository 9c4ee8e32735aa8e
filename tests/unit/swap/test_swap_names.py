"""Names as long as Kafka allows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kcompact.cleaner.cleaning import Cleaning, CleanOptions
from kcompact.cleaner.outcome import Status
from kcompact.cleaner.partition import clean_partition, perform
from kcompact.engine.in_process import InProcess
from kcompact.log.lock import log_dir_lock
from kcompact.plan.partition import plan_partition
from kcompact.swap.copy import Output
from tests.support import log_dsl, log_writer
from tests.support.command_line import DIRTY

LONGEST = f"{'t' * 249}-10000"
"""A directory's name has at most 255 characters."""


@pytest.mark.parametrize("how", ["in place", "alone", "whole"])
def test_the_longest_name(how: str, tmp_path: Path) -> None:
    spec = replace(log_dsl.parse(DIRTY), name=LONGEST)
    directory = log_writer.write(spec, tmp_path / "data")
    plan = plan_partition(directory, spec.config, now_ms=spec.now_ms, force=True)
    out = tmp_path / "out"
    if how == "in place":
        with log_dir_lock(directory.parent) as lock:
            assert clean_partition(plan, InProcess(), lock=lock).status is Status.CLEANED
        return
    options = CleanOptions(output=out)
    if how == "whole":
        with Output(out, log_dir=directory.parent) as output:
            perform(Cleaning(plan=plan, executor=InProcess(), lock=None, options=options, output=output))
            assert output.finish().is_finished
    else:
        clean_partition(plan, InProcess(), lock=None, options=options)
    assert sorted(path.name for path in (out / LONGEST).glob("*.log")) == [f"{0:020d}.log", f"{6:020d}.log"]
