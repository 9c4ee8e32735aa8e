"""`clean.prepare`: the scan stops between splits if its progress raises."""

from __future__ import annotations

from pathlib import Path

import pytest

from kcompact.clean.executor import Progress
from kcompact.clean.prepare import prepare_clean
from kcompact.engine.in_process import InProcess
from kcompact.errors import KcompactError
from tests.support import log_dsl
from tests.support.stages import THREE, plan_of

pytestmark = pytest.mark.usefixtures("no_sync")


def test_progress_can_stop_the_scan_between_splits(tmp_path: Path) -> None:
    class Stop(Progress):
        def check(self) -> None:
            raise KcompactError("stopped")

    spec = log_dsl.parse(THREE)
    with pytest.raises(KcompactError, match="stopped"):
        prepare_clean(plan_of(spec, tmp_path / "logs"), InProcess(progress=Stop()))
