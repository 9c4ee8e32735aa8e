"""The machine code of the kernels on its way from Spark's driver to a worker; starts no JVM."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kcompact import kernels
from kcompact.clean.executor import CLEANING
from kcompact.clean.job import CleanJob
from kcompact.engine.spark.executor import _Shipped, _shipped
from kcompact.host.throttle import Throttle
from kcompact.kernels import load
from tests.support import machine_code
from tests.support.jobs import JOB
from tests.support.machine_code import Compiler


def job(*, compiled: bool) -> CleanJob:
    return replace(
        JOB,
        upper_bound_offset=0,
        compiled=compiled,
    )


def test_spark_ships_the_drivers_code_with_the_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler = Compiler(machine_code.object_file())
    monkeypatch.setattr(load, "compiled_elsewhere", compiler)
    monkeypatch.setattr(load, "_process", load._Process())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    shipped = _shipped(job(compiled=True), Throttle(None), CLEANING)
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/cache")
    machine_code.forget()
    assert _Shipped.opened(shipped).job == job(compiled=True)
    assert kernels.is_compiled()
    assert compiler.calls == 1
    # A job without kernels needs none on the driver either.
    machine_code.forget()
    assert _Shipped.opened(_shipped(job(compiled=False), Throttle(None), CLEANING)).job == job(compiled=False)
    assert load._process.kernels is None
