"""What the messages of errors do with names that contain ends of lines and control characters."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest

from kcompact import errors
from kcompact.errors import KcompactError, StorageError
from kcompact.exit_codes import ExitCode, gravest_exit_code
from kcompact.host import access

HOSTILE = "/logs/x\nall is well\x1b[2J"
PROBLEM = OSError(errno.EIO, os.strerror(errno.EIO), HOSTILE)
STORAGE = StorageError(path=HOSTILE, problem=PROBLEM)

NAMING = [
    *(
        each(file=HOSTILE, problem=HOSTILE)
        for each in (
            errors.CorruptDataError,
            errors.CorruptBatchError,
            errors.CorruptIndexError,
            errors.CorruptTransactionIndexError,
            errors.CorruptCheckpointError,
        )
    ),
    *(
        each(path=HOSTILE, problem=HOSTILE)
        for each in (
            errors.RefusedError,
            errors.UnsupportedError,
            errors.StaleReplicaError,
            errors.OtherTopicError,
            errors.PolicyUnknownError,
            errors.ConfigError,
            errors.LogChangedError,
            errors.RecoveryNeededError,
        )
    ),
    STORAGE,
    errors.BatchTooLargeError(file=HOSTILE, position=0, offset=0, problem="a size", needed_bytes=None),
    errors.ClusterUnreachableError(address=HOSTILE, problem=HOSTILE),
    errors.LogDirLockedError(lock=HOSTILE),
    errors.PartitionInUseError(file=HOSTILE, pid=1, command=HOSTILE, is_mapped=False),
    errors.NotEnoughSpaceError(path=HOSTILE, needed_bytes=1, free_bytes=None, detail=HOSTILE),
    errors.storage_error(Path(HOSTILE), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), operation=HOSTILE),
    errors.storage_error(Path(HOSTILE), PROBLEM, operation=HOSTILE),
    errors.NotEnoughMemoryError(problem=HOSTILE, limit=HOSTILE),
    errors.ScratchSpaceError(path=HOSTILE),
    errors.ScratchDamagedError(source=HOSTILE, problem=HOSTILE),
    errors.AccountingError(path=HOSTILE, stage="sum", problem=HOSTILE),
    errors.UnfinishedCopyError(path=HOSTILE, missing=[HOSTILE]),
    errors.CheckpointNotWrittenError(path=HOSTILE, problem=STORAGE),
    errors.CleaningAbortedError(path=HOSTILE),
    errors.CleanerStateError(partition=HOSTILE, state="paused", event="resume"),
    errors.NotLoadedError(ImportError(HOSTILE)),
    errors.UnexpectedError(ValueError(HOSTILE)),
]
NAMELESS = {errors.EngineError, errors.KernelsUnavailableError}


@pytest.mark.parametrize("error", NAMING, ids=lambda error: type(error).__name__)
def test_a_name_adds_no_line_and_no_control_character(error: KcompactError) -> None:
    for message in (str(error), error.cause):
        assert "\nall is well" not in message
        assert "\x1b" not in message


def test_every_class_is_in_the_table() -> None:
    classes = {each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, KcompactError)}
    assert classes - {type(error) for error in NAMING} == NAMELESS | {KcompactError}


def test_a_command_for_a_file_with_a_flag_can_be_pasted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "flag_of_directory", lambda _: "immutable")
    hint = access.remedy(OSError(errno.EPERM, "the directory is immutable", "/logs/a b; reboot"))
    assert hint.endswith("chattr -i -a '/logs/a b; reboot'")


def test_the_page_has_each_exit_code_and_their_order() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    table = page.partition("## Exit codes")[2].partition("\n\n141 is")[0]
    codes = {int(code) for row in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE) for code in row.split(",")}
    assert codes == {*ExitCode, 0, 129, 141, 143}
    order = re.search(r"gravest is that of the command, in this order: ([\d, ]+)\.", page)
    assert order is not None
    assert [*map(int, order[1].split(", ")), ExitCode.INTERRUPTED] == list(ExitCode)
    assert gravest_exit_code([0, 1, 2, 130, 7, 9]) == ExitCode.DIFFERENT
    assert gravest_exit_code([0]) == 0
