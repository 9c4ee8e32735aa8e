"""Spark's workers must run the driver's kcompact; starts no JVM."""

from __future__ import annotations

from typing import Any

import pytest

from kcompact import __version__
from kcompact.clean.scan import CLEANING
from kcompact.engine.seals import opened, sealed
from kcompact.engine.spark.tasks import (
    Package,
    Shipped,
    WholeTask,
    check_worker,
    run_whole_tasks,
    ship,
)
from kcompact.errors import EngineError
from kcompact.host.throttle import Throttle
from kcompact.kernels.machine_code import library_sha256
from tests.support.jobs import JOB


class Added:
    """An accumulator."""

    def __init__(self, values: list[tuple[int, bytes]]) -> None:
        self.add = values.extend


SAME = Package(__version__, library_sha256())


def test_a_worker_with_the_drivers_package() -> None:
    assert Package.of_this_process() == SAME
    check_worker(SAME)


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        (Package("99.0", library_sha256()), "the driver has kcompact 99.0 with machine code "),
        (Package(__version__, "0" * 64), f"the driver has kcompact {__version__} with machine code 000000000000"),
        (Package("99.0", None), "the driver has kcompact 99.0 with no machine code"),
    ],
)
def test_a_worker_with_another_package_is_refused(
    driver: Package, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EngineError, match=f"a worker has kcompact {__version__} with .*, {expected}") as raised:
        check_worker(driver)
    assert "Install the same kcompact on the driver and on all workers." in str(raised.value)
    # Both kinds of jobs ask.
    monkeypatch.setattr(Package, "of_this_process", classmethod(lambda _: driver))
    with pytest.raises(EngineError, match=expected):
        Shipped.opened(ship(JOB, Throttle(None), CLEANING))
    results: list[tuple[int, bytes]] = []
    task = WholeTask("token", print, None, None, is_on_other_machines=False)
    assert list(run_whole_tasks(sealed(driver), Added(results), [[(7, sealed(task))]])) == []
    ((number, result),) = results
    token, problem = opened(result, source="a worker")
    assert (number, token) == (7, None)
    assert expected in str(problem)


def test_another_package_is_refused_before_anything_of_its_job_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unreadable:
        def __reduce__(self) -> tuple[object, ...]:
            return (_of_another_version, ())

    monkeypatch.setattr(Package, "of_this_process", classmethod(lambda _: Package("99.0", library_sha256())))
    unreadable: Any = Unreadable()
    data = ship(unreadable, Throttle(None), CLEANING)
    with pytest.raises(EngineError, match=r"the driver has kcompact 99\.0"):
        Shipped.opened(data)


def test_a_package_that_says_more_of_itself_is_another_one() -> None:
    later = sealed((("99.0", library_sha256(), "more"), sealed(None)))
    with pytest.raises(EngineError, match=r"the driver has kcompact 99\.0"):
        Shipped.opened(later)


def _of_another_version() -> None:
    raise AttributeError("a class that only another version has")
