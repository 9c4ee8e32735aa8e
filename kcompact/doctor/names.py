"""Names in log directories and partitions: what a broker refuses, removes or moves aside."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from kcompact import readable
from kcompact.config.metadata_log import read_meta_properties
from kcompact.doctor.findings import Finding
from kcompact.errors import KcompactError
from kcompact.format.names import REMOTE_INDEX_CACHE, parse_directory
from kcompact.format.properties import PARTITION_METADATA
from kcompact.log.directory import PartitionLog
from kcompact.log.files import files_in
from kcompact.plan.discovery import LeftOutKind, dangling_partitions, left_out_of
from kcompact.remarks import RemarkCode

_CODES = {
    LeftOutKind.DELETE: (
        RemarkCode.DELETE_DIRECTORY,
        "a deleted partition; a broker removes it, at the latest when it starts",
    ),
    LeftOutKind.FUTURE: (
        RemarkCode.FUTURE_DIRECTORY,
        "a replica that was moving to this log directory; a broker goes on",
    ),
    LeftOutKind.STRAY: (
        RemarkCode.STRAY_DIRECTORY,
        "a replica that the cluster no longer assigned to this broker; a broker loads it and does not serve it",
    ),
}
_MARKED = re.compile(r"\S+-\S+\.\S+-(?:delete|future|stray)")
_LOADED_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".cleaned", ".swap")
"""A broker takes what stands before the first dot in such a name for an offset."""
_LISTED = 5


def directory_findings(log_dir: Path) -> Iterator[Finding]:
    """Yield the sub-directories of a log directory that are no partitions, and files in them that a broker cannot load.

    Raises OSError.
    """
    for link in dangling_partitions(log_dir):
        problem = (
            "a link that leads to nothing: is the disk mounted? A broker skips it, and takes the log directory offline "
            "when it creates the partition"
        )
        yield Finding(code=RemarkCode.UNREADABLE, directory=log_dir, file=link, problem=problem)
    for each in left_out_of(log_dir):
        if is_loaded(each.directory.name) and each.kind is not LeftOutKind.REMOTE_INDEX_CACHE:
            for name in files_in(each.directory).names():
                if not is_loadable(name) and (each.directory / name).is_file():
                    yield _unloadable(each.directory, name)
        if each.kind is LeftOutKind.FUTURE and (why := _why_unusable(each.directory)):
            yield replace(why, size_bytes=each.size_bytes)
        elif each.kind in _CODES:
            code, problem = _CODES[each.kind]
            yield Finding(code=code, directory=each.directory, problem=problem, size_bytes=each.size_bytes)
        elif each.kind is LeftOutKind.UNKNOWN and is_loaded(each.directory.name):
            problem = "not a name that Kafka writes, but a broker loads it as a partition"
            yield Finding(
                code=RemarkCode.FOREIGN_NAME, directory=each.directory, problem=problem, size_bytes=each.size_bytes
            )
        elif each.kind is LeftOutKind.UNKNOWN:
            says = f"Found directory {each.directory}, '{each.directory.name}' is not in the form of topic-partition"
            yield Finding(
                code=RemarkCode.UNKNOWN_DIRECTORY,
                directory=each.directory,
                problem="a directory whose name is not that of a partition; move it out of the log directory",
                size_bytes=each.size_bytes,
                broker_says=says,
            )


def _why_unusable(future: Path) -> Finding | None:
    """Return why a broker cannot go on with a replica that was moving to this log directory; None if it can.

    Rule: LogManager.findAbandonedFutureLogs, LogManager.replaceCurrentWithFutureLog.
    """
    finding = partial(Finding, code=RemarkCode.UNUSABLE_FUTURE, directory=future)
    parsed = parse_directory(future.name)
    current = None if parsed is None else future.with_name(str(parsed.topic_partition))
    if current is not None and current.is_dir():
        problem = (
            f"a replica that was moving here, and {current.name} is here too: a broker renames one to the other, and "
            "fails. Find out which one is newer, and move the other out of the log directory"
        )
        return finding(problem=problem, broker_says=f"Error while renaming dir for {current.name}")
    properties = None
    with suppress(KcompactError):  # It is reported with the log directory.
        properties = read_meta_properties(future.parent)
    if properties is not None and not properties.is_of_zookeeper and not (future / PARTITION_METADATA).exists():
        problem = f"a replica that was moving here, without {PARTITION_METADATA}: a broker ends"
        return finding(problem=problem, broker_says=f"The log dir {future} does not have a topic ID")
    return None


def is_loaded(name: str) -> bool:
    """Return whether a broker loads a sub-directory of this name, or skips it. Any other name keeps it from starting.

    Rule: LocalLog.parseTopicPartitionName, LogManager.loadLogs.
    """
    if name == REMOTE_INDEX_CACHE:
        return True
    is_marked = name.endswith(("-delete", "-future", "-stray"))
    if is_marked and not _MARKED.fullmatch(name):
        return False
    topic, _, number = (name.rpartition(".")[0] if is_marked else name).rpartition("-")
    return bool(topic) and re.fullmatch(r"\+?[0-9]+", number) is not None and int(number) < 1 << 31


def file_findings(log: PartitionLog) -> Iterator[Finding]:
    """Yield the files of a partition with names that a broker cannot load, or does not know."""
    others = []
    for name in log.foreign:
        if is_loadable(name) or not (log.directory / name).is_file():
            others.append(name)
            continue
        yield _unloadable(log.directory, name)
    if others:
        problem = (
            f"{readable.some_of(others, at_most=_LISTED)}: not files of Kafka; neither a broker nor kcompact uses them"
        )
        yield Finding(
            code=RemarkCode.FOREIGN_NAME,
            directory=log.directory,
            file=log.directory / others[0],
            problem=readable.shown(problem),
        )


def _unloadable(directory: Path, name: str) -> Finding:
    number = name.partition(".")[0]
    return Finding(
        code=RemarkCode.UNKNOWN_FILE,
        directory=directory,
        file=directory / name,
        problem=f"a broker takes '{number}' for an offset; move the file out of the log directory",
        broker_says=f'NumberFormatException: For input string: "{number}"',
    )


def is_loadable(name: str) -> bool:
    """Return whether a broker can load a partition with a file of this name.

    Rule: LogLoader.removeTempFilesAndCollectSwapFiles, loadSegmentFiles; ProducerStateManager.listSnapshotFiles;
    LogFileUtils.offsetFromFileName.
    """
    if not name.endswith(_LOADED_SUFFIXES):
        return True
    number = name.partition(".")[0]
    return re.fullmatch(r"[+-]?[0-9]+", number) is not None and -(1 << 63) <= int(number) < 1 << 63
