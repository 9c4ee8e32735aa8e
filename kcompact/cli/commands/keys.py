"""`keys`: how many keys partitions have, what fills them, and which keys lie in several partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kcompact.cli import options
from kcompact.cli.option_types import Separator, Time, When
from kcompact.errors import CorruptDataError, KcompactError

if TYPE_CHECKING:
    from kcompact.cleaner.engines import EngineOptions
    from kcompact.cli.entries import TopicKeys
    from kcompact.config.resolve import Configured
    from kcompact.log.directory import LogDir
    from kcompact.plan.options import PlanOptions
    from kcompact.plan.walk import Answer
    from kcompact.questions.keys.counts import CountOptions, LogKeys
    from kcompact.stages.executor import Executor


@options.command("keys")
@options.paths
@click.option(
    "--older-than",
    type=Time(needs_unit=True),
    metavar="TIME",
    help="Also list the live keys whose newest record is older than TIME, such as 90d, or a TIME as in --now.",
)
@click.option(
    "--prefix", type=Separator(), metavar="SEPARATOR", help="Also count by the part of a key before SEPARATOR."
)
@click.option(
    "--top",
    type=click.IntRange(0, 10_000),
    default=10,
    show_default=True,
    metavar="N",
    help="List so many keys at most.",
)
@click.option("--print-data", is_flag=True, help="Show the keys themselves. Default: their hashes.")
@options.engine
@options.unclean
@options.memory(what="keys and for data being read")
def command(
    paths: tuple[Path, ...],
    plan_options: PlanOptions,
    *,
    older_than: When | None,
    prefix: bytes | None,
    top: int,
    print_data: bool,
    engine: EngineOptions,
    memory_bytes: int | None,
    as_json: bool,
) -> int:
    """Count live keys, superseded records and tombstones.

    All records are read, as a reader of committed records sees them, and counted with their bytes: by segment and
    section, by versions and age; the largest keys, and keys that lie in several partitions of a topic.

    Changes nothing and takes no lock.

    \b
    Examples:
      kcompact keys /var/lib/kafka/orders-0
      kcompact keys --prefix : --print-data /var/lib/kafka/orders-0
      kcompact keys --older-than 90d --json /var/lib/kafka | jq '.partitions[].keys.old_keys'
    """
    from kcompact.cli.json.keys import KEYS, WITH_PRINT_DATA
    from kcompact.cli.output.entries import show_keys
    from kcompact.cli.output.stage_progress import executor_for
    from kcompact.cli.question import Question, ask
    from kcompact.plan.run_notes import running_notes, time_notes
    from kcompact.questions.keys.counts import CountOptions

    older_than_ms = None if older_than is None else _age_ms(older_than, plan_options.now_ms)
    count = CountOptions(top=top, separator=prefix or b"", older_than_ms=older_than_ms, memory_bytes=memory_bytes)
    topics: list[TopicKeys] = []

    def answers(directories: Sequence[Path], options: PlanOptions) -> Iterator[Answer[LogKeys]]:
        with executor_for(engine, directories) as executor:
            topics.extend(_topics(directories, options, count, executor))
        return chain.from_iterable(topic.answers for topic in topics)

    question = Question(
        document=KEYS,
        answers=answers,
        show=lambda _, printer: show_keys(topics, older_than_ms, printer, print_data=print_data),
        content=lambda _: {"topics": topics},
        given={WITH_PRINT_DATA} if print_data else set(),
        doubts=lambda partitions, options: [*running_notes(partitions), *time_notes(partitions, options)],
        complains_of_all=True,
    )
    return ask(question, paths, plan_options, as_json=as_json)


def _age_ms(time: When, now_ms: int) -> int:
    """Return how old a record of this time is. Raises click.BadParameter for a time in the future."""
    age_ms = now_ms - time.before(now_ms)
    if age_ms < 0:
        raise click.BadParameter("TIME is after --now", param_hint="--older-than")
    return age_ms


def _topics(
    directories: Sequence[Path], options: PlanOptions, count: CountOptions, executor: Executor
) -> Iterator[TopicKeys]:
    """Yield the counts by topic."""
    from kcompact.log.directory import LogDir
    from kcompact.log.files import files_in
    from kcompact.log.unchanged_reading import read_unchanged

    configs = options.configs_of(directories)
    for topic, its_directories in _by_topic(directories):
        read = partial(_topic, topic, its_directories, configs, options, count, executor)
        running = _running(its_directories)
        if running is None:
            yield read(LogDir(path=its_directories[0].parent))
            continue
        # Each plan is of one moment, and the scan reads no file but those of the plan: if one is gone, all is repeated.
        yield read_unchanged(files_in(its_directories[0]), running, read, watches=False)


def _by_topic(directories: Sequence[Path]) -> list[tuple[str, list[Path]]]:
    """Return the directories by topic. Copies of a partition are of different brokers, so they are not together."""
    from kcompact.format.names import parse_directory

    directories_by_topic: dict[tuple[str, int], dict[int, Path]] = {}
    for directory in directories:
        parsed = parse_directory(directory.name)
        topic = parsed.topic_partition.topic if parsed else directory.name
        partition = parsed.topic_partition.partition if parsed else 0
        copy = 0
        while partition in directories_by_topic.setdefault((topic, copy), {}):
            copy += 1
        directories_by_topic[topic, copy][partition] = directory
    return [(topic, list(own.values())) for (topic, _), own in directories_by_topic.items() if own]


def _running(directories: Sequence[Path]) -> LogDir | None:
    """Return the first log directory around some partitions that a broker runs on, None if there is none."""
    from kcompact.plan.walk import LogDirs

    log_dirs = LogDirs()
    for directory in directories:
        with suppress(KcompactError):  # Reported with each partition.
            if (log_dir := log_dirs.of(directory)).is_running:
                return log_dir
    return None


def _topic(
    topic: str,
    directories: Sequence[Path],
    configs: Mapping[Path, Configured],
    options: PlanOptions,
    count: CountOptions,
    executor: Executor,
    _: LogDir,
) -> TopicKeys:
    from kcompact.cli.entries import TopicKeys
    from kcompact.plan.partition import advise_recovery
    from kcompact.plan.walk import Answer, Planner, walk_partitions
    from kcompact.questions.keys.count import count_keys

    planner = Planner(directories, options, configs)
    planned = walk_partitions(directories, planner.planned_despite_damage, Answer.failed)
    entries: dict[Path, Answer[LogKeys]] = {each.directory: each for each in map(_with_damage, planned)}
    plans = [entry.plan for entry in entries.values() if entry.plan is not None]
    counted = count_keys(plans, executor, count)
    for keys in counted.logs:
        entry = entries[keys.directory]
        # The count says where the damage is; the plan may only have found that there is some.
        entries[keys.directory] = replace(entry, found=keys, error=keys.problem or entry.error)
    for directory, problem in counted.failed:
        entries[directory] = replace(entries[directory], error=problem)
    for entry in entries.values():
        advise_recovery(entry.error, entry.plan)
    return TopicKeys(topic=topic, answers=tuple(entries.values()), counted=counted)


def _with_damage(entry: Answer[LogKeys]) -> Answer[LogKeys]:
    """Return an entry whose plan says of its damage, so that the count looks for open transactions itself."""
    plan, damage = entry.plan, entry.plan_damage
    if plan is None or plan.log.damage or not isinstance(damage, CorruptDataError):
        return entry
    return replace(entry, plan=replace(plan, log=replace(plan.log, damage=(damage,))))
