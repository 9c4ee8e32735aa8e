"""Counts keys for `keys`: how many keys partitions have, what fills them, and which keys lie in several partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

from kcompact.clean.executor import Executor, Progress
from kcompact.cleaner.engines import Engine, EngineOptions
from kcompact.cli.commands.single_files import is_file, refused_file
from kcompact.cli.entries import KeysEntry, TopicKeys, complain_of
from kcompact.cli.failures import delivered
from kcompact.cli.output import streams
from kcompact.cli.output.keys_progress import KeysProgress
from kcompact.cli.signals import stop_request
from kcompact.config.resolve import Configured
from kcompact.errors import CorruptDataError, KcompactError
from kcompact.format.names import Suffix, parse_directory
from kcompact.keys.count import count_keys
from kcompact.keys.counts import CountOptions
from kcompact.log.directory import LogDir
from kcompact.log.settled import read_settled
from kcompact.plan.discovery import left_out
from kcompact.plan.notes import option_notes, running_notes, time_notes
from kcompact.plan.options import PlanOptions
from kcompact.plan.walk import LogDirs, Planner, gravest_exit_code, named_partitions, walk_partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysRequest:
    """The options of `keys`, except the shared ones."""

    older_than_ms: int | None
    separator: bytes
    top: int
    engine: EngineOptions
    print_data: bool = False
    memory_bytes: int | None = None


def run(paths: Sequence[Path], options: PlanOptions, request: KeysRequest, *, as_json: bool) -> int:
    """Count the keys of the partitions among the paths, topic by topic, and return the exit code."""
    files = [path for path in paths if is_file(path)]
    named = [path for path in paths if path not in files]
    directories, unusable = named_partitions(named, KeysEntry, topics=options.topics)
    unusable += [refused_file(path, "keys", KeysEntry) for path in files]
    notes = option_notes(directories, options)
    streams.tell_notes(notes)
    count = CountOptions(
        top=request.top,
        separator=request.separator,
        older_than_ms=request.older_than_ms,
        memory_bytes=request.memory_bytes,
    )
    with ExitStack() as stack, stop_request() as stop:
        engine = Engine(request.engine, stack, bytes_to_read=_log_bytes(directories))
        if directories and engine.choice.name == "spark" and engine.choice.why:  # Its start takes seconds.
            streams.tell(str(engine.choice))
        engine.check()
        with stop.deferred():  # A signal must not interrupt the start halfway.
            engine.begin()
        executors = stack.enter_context(engine.executors(lambda note: streams.tell_notes([note])))
        progress = KeysProgress()
        try:
            topics = list(_topics(directories, options, count, executors(progress), progress)) if directories else []
        finally:
            progress.end()
    entries = [*(entry for topic in topics for entry in topic.entries), *unusable]
    doubts = [*running_notes(entries), *time_notes(entries, options)]
    streams.tell_notes(doubts)
    if as_json:
        from kcompact.cli.json.keys import KEYS, WITH_PRINT_DATA

        text = KEYS.text(
            {WITH_PRINT_DATA} if request.print_data else set(),
            now_ms=options.now_ms,
            notes=[*notes, *doubts],
            partitions=entries,
            left_out=left_out(named, topics=options.topics),
            topics=topics,
        )
        lost = delivered(lambda: streams.echo(text), only_reads=True)
    else:
        from kcompact.cli.output.entries import show_keys

        def show() -> None:
            show_keys(topics, request.older_than_ms, print_data=request.print_data)

        lost = delivered(show, only_reads=True)
    complain_of(entries)
    return gravest_exit_code([entry.exit_code for entry in entries]) or lost


def _log_bytes(directories: Sequence[Path]) -> int:
    """Return the bytes of the logs. What cannot be read is reported with its partition."""
    total = 0
    for log in chain.from_iterable(directory.glob(f"*{Suffix.LOG}") for directory in directories):
        with suppress(OSError):
            total += log.stat().st_size
    return total


def _topics(
    directories: Sequence[Path], options: PlanOptions, count: CountOptions, executor: Executor, progress: Progress
) -> Iterator[TopicKeys]:
    configs = options.configs_of(directories)
    for topic, its_directories in _by_topic(directories):
        log_dirs = LogDirs()
        read = partial(_topic, topic, its_directories, configs, options, count, executor, progress)
        running = next((each for each in map(_log_dir_of(log_dirs), its_directories) if each.is_running), None)
        if running is None:
            yield read(LogDir(path=its_directories[0].parent))
            continue
        # Each plan is of one moment, and the scan reads no file but those of the plan: if one is gone, all is repeated.
        yield read_settled(its_directories[0], running, read, watches=False)


def _by_topic(directories: Sequence[Path]) -> list[tuple[str, list[Path]]]:
    """Return the directories by topic. Copies of a partition are of different brokers, so they are not together."""
    found: dict[tuple[str, int], dict[int, Path]] = {}
    for directory in directories:
        parsed = parse_directory(directory.name)
        topic = parsed.topic_partition.topic if parsed else directory.name
        partition = parsed.topic_partition.partition if parsed else 0
        copy = 0
        while partition in found.setdefault((topic, copy), {}):
            copy += 1
        found[topic, copy][partition] = directory
    return [(topic, list(own.values())) for (topic, _), own in found.items() if own]


def _log_dir_of(log_dirs: LogDirs) -> Callable[[Path], LogDir]:
    def of(directory: Path) -> LogDir:
        try:
            return log_dirs.of(directory)
        except KcompactError:  # Reported with each partition.
            return LogDir(path=directory.parent, is_log_dir=True)

    return of


def _topic(
    topic: str,
    directories: Sequence[Path],
    configs: Mapping[Path, Configured],
    options: PlanOptions,
    count: CountOptions,
    executor: Executor,
    progress: Progress,
    _: LogDir,
) -> TopicKeys:
    planner = Planner(directories, options, configs)
    visit = partial(planner.planned_despite_damage, entry=KeysEntry)
    entries = {entry.directory: entry for entry in map(_counted, walk_partitions(directories, visit, KeysEntry.failed))}
    plans = [entry.plan for entry in entries.values() if entry.plan is not None]
    counted = count_keys(plans, executor, count)
    for keys in counted.logs:
        entry = entries[keys.directory]
        # The count says where the damage is; the plan may only have found that there is some.
        entries[keys.directory] = replace(entry, keys=keys, error=keys.problem or entry.error)
    for directory, problem in counted.failed:
        entries[directory] = replace(entries[directory], error=problem)
    return TopicKeys(topic=topic, entries=tuple(entries.values()), counted=counted)


def _counted(entry: KeysEntry) -> KeysEntry:
    """Return an entry whose plan says of its damage, so that the count looks for open transactions itself."""
    plan, damage = entry.plan, entry.plan_damage
    if plan is None or plan.log.damage or not isinstance(damage, CorruptDataError):
        return entry
    return replace(entry, plan=replace(plan, log=replace(plan.log, damage=(damage,))))
