"""What stops Spark before it starts, what a worker without memory reports, and a Java process that is gone."""

from __future__ import annotations

import os
import pwd
import threading
import time
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
from py4j.protocol import Py4JNetworkError

from kcompact.engine.spark import executor, master
from kcompact.engine.spark.tasks import Report, WholeTask
from kcompact.errors import NotEnoughMemoryError, RefusedError
from kcompact.host.access import user_name
from kcompact.wording import of_the_command_line


def nobody(number: int) -> pwd.struct_passwd:
    raise KeyError(f"getpwuid(): uid not found: {number}")


def test_a_user_id_without_a_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert user_name() == pwd.getpwuid(os.getuid()).pw_name
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.setattr(os, "getuid", lambda: 1_000_680_000)
    assert user_name() is None
    with pytest.raises(RefusedError) as raised, of_the_command_line():
        master.check_prerequisites("local[1]", {})
    assert raised.value.exit_code == 4
    with of_the_command_line():
        assert str(raised.value) == (
            "Spark: the user id 1000680000 has no entry in the list of users (/etc/passwd), and Spark needs one\n"
            "--engine in-process gives the same result without Spark. Or add an entry for this user."
        )


def without_memory(*_: Any) -> Any:
    raise MemoryError


def test_a_task_without_memory_has_it_as_its_result() -> None:
    task = WholeTask(token="1", work=without_memory, argument=None, memory_bytes=1, is_on_other_machines=False)
    assert isinstance(task.run(), NotEnoughMemoryError)


def test_a_task_without_memory_reports_it() -> None:
    class Accumulator(list[Any]):
        add = list.extend

        @property
        def value(self) -> list[Any]:
            return list(self)

    report = Report(Accumulator(), None)
    with report.errors_reported():
        without_memory()
    with pytest.raises(NotEnoughMemoryError):
        report.check()


def test_a_job_is_waited_for_that_does_not_know_yet_that_java_is_gone() -> None:
    gone = Mock(side_effect=Py4JNetworkError("the Java process has ended"))
    job = threading.Thread(target=time.sleep, args=[0.3], daemon=True)
    job.start()
    executor._cancel(Mock(cancelJobGroup=gone, statusTracker=gone), "job", partial(executor._has_ended, job))
    assert not job.is_alive()
