"""A cleaning without special settings, for tests that call the stages themselves."""

from __future__ import annotations

import pytest

from kcompact.clean.job import CleanJob
from kcompact.stages.sizing import Sizing

JOB = CleanJob(
    directory="",
    first_dirty_offset=0,
    upper_bound_offset=100,
    high_watermark=100,
    now_ms=0,
    delete_retention_ms=0,
    keep_tombstones=False,
    last_records={},
    hash_key=bytes(16),
    bucket_count=1,
)
"""Tests replace the fields that matter to them: `replace(JOB, now_ms=NOW)`."""


def limit_keys(monkeypatch: pytest.MonkeyPatch, *, keys_bytes: int, buckets: int) -> None:
    """Let each task hold so few bytes of keys, whatever memory there is."""
    monkeypatch.setattr(Sizing, "_keys_bytes", lambda *_: keys_bytes)
    monkeypatch.setattr(Sizing, "_bucket_count", lambda *_: buckets)
