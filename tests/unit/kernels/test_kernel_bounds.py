"""No kernel reads or writes outside of its arrays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kcompact import kernels
from kcompact.kernels import (
    COLUMNS,
    FULL,
    Table,
)


def guarded(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.support.guarded_kernels", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("seed", "rounds"), [(1, 150), *(pytest.param(seed, 1500, marks=pytest.mark.slow) for seed in range(1, 6))]
)
def test_no_kernel_leaves_its_arrays(seed: int, rounds: int) -> None:
    done = guarded("fuzz", seed, rounds)
    assert done.returncode == 0, (done.returncode, done.stderr)
    accepted, scanned = map(int, done.stdout.split())
    assert rounds // 3 < accepted < rounds  # It gets beyond the headers, and not always.
    assert rounds // 20 < scanned < accepted


@pytest.mark.long
@pytest.mark.parametrize("where", ["over", "under"])
def test_the_guard_would_notice(where: str) -> None:
    assert guarded(where, 1).returncode == -11


def test_hop_without_room() -> None:
    table: Table = np.empty((0, COLUMNS), np.int64)
    assert kernels.scan_headers(0, 0, 100, 100, np.empty(64, np.uint8), table) == (0, 0, FULL)
