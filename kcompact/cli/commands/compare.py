"""`compare`: whether the replicas of partitions agree, which of them is wrong, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from kcompact.cli import options
from kcompact.cli.delivery import deliver
from kcompact.cli.failures import complain_of_each
from kcompact.cli.option_types import NamedPath
from kcompact.cli.output import streams
from kcompact.errors import KcompactError

if TYPE_CHECKING:
    from kcompact.cleaner.engines import EngineOptions
    from kcompact.cli.output.printer import Printer
    from kcompact.format.names import TopicPartition
    from kcompact.log.directory import LogDir
    from kcompact.plan.selection import Selection
    from kcompact.plan.walk import LogDirs
    from kcompact.questions.compare.answer import ComparedPartition
    from kcompact.questions.compare.before_start import PartitionAction
    from kcompact.questions.compare.pairs import PairedPartition, Pairs, Side
    from kcompact.stages.executor import Executor


@options.command("compare", settings=False, selects=True)
@options.paths
@click.option("--print-data", is_flag=True, help="Show the keys themselves. Default: their hashes.")
@click.option(
    "--before-start",
    is_flag=True,
    help="The first PATH is the disk of a stopped broker: say which of its partitions must not come back as they are.",
)
@click.option(
    "--report",
    "file",
    type=NamedPath(),
    metavar="FILE",
    help="Write the answer also as one HTML page, for a ticket. Only an older report is replaced.",
)
@options.engine
@options.memory(what="keys and for data being read")
def command(
    paths: tuple[Path, ...],
    *,
    selection: Selection,
    print_data: bool,
    before_start: bool,
    file: Path | None,
    engine: EngineOptions,
    memory_bytes: int | None,
    as_json: bool,
) -> int:
    """Compare replicas: do they agree, and which one is wrong?

    Each PATH is the log directory of a broker, or a partition directory of one. Replicas of a compacted partition are
    hardly ever equal byte by byte; what no lawful history of cleanings explains is a finding: deleted keys that are
    back, lost keys, transactions that never end, damage. It says how sure that is, and which replica is right if the
    files prove it.

    Ends with 0 if all is lawful, 9 with a finding, 10 if one is undecided or something was not compared, 3 for damage.

    Changes nothing and takes no lock.

    \b
    Examples:
      kcompact compare /mnt/broker1/kafka /mnt/broker2/kafka /mnt/broker3/kafka
      kcompact compare --print-data /var/lib/kafka/orders-0 /backup/orders-0
      kcompact compare --before-start /mnt/broker3/kafka /mnt/broker1/kafka /mnt/broker2/kafka
      kcompact compare --report replicas.html /mnt/broker1/kafka /mnt/broker2/kafka
      kcompact compare --json A B | jq '.partitions[] | select(.verdict == "different").topic'
    """
    from kcompact.cli.json.compare import COMPARE, WITH_BEFORE_START
    from kcompact.cli.json.keys import WITH_PRINT_DATA
    from kcompact.exit_codes import ExitCode, gravest_exit_code
    from kcompact.questions.compare.before_start import Action, actions_before_start, is_all_compared
    from kcompact.questions.compare.pairs import pair
    from kcompact.report.file import require_libraries, require_writable

    _require_different(paths)
    pairs = pair(paths, selection)
    if file is not None:
        require_libraries(file)
        require_writable(file, _directories(pairs))
    partitions = list(_compared(pairs, engine, memory_bytes))
    actions = actions_before_start(partitions, paths[0], pairs.of_first) if before_start else None
    if before_start:
        _tell_if_running(pairs.sides[0])
    answer = _Answer(partitions, pairs, actions, is_all_compared(partitions, pairs), print_data)
    if file is not None:
        _write_page(answer, file)
    given = {WITH_PRINT_DATA} if print_data else set[str]()
    given |= {WITH_BEFORE_START} if before_start else set()
    lost = deliver(COMPARE, partial(_content, answer), partial(_show, answer), as_json=as_json, given=given)
    _tell(answer)
    codes = [*(partition.exit_code for partition in partitions), pairs.exit_code]
    codes += [ExitCode.DIFFERENT for each in actions or () if each.action is Action.MOVE_AWAY]
    return gravest_exit_code(codes) or lost


class _Answer(NamedTuple):
    """What the command shows: the compared partitions, and what to do before a start, None if nobody asked.

    `is_all_compared`: all partitions of the first path were compared whole.
    """

    partitions: list[ComparedPartition]
    pairs: Pairs
    actions: list[PartitionAction] | None
    is_all_compared: bool
    print_data: bool


def _content(answer: _Answer) -> dict[str, object]:
    return {
        "partitions": answer.partitions,
        "alone": _alone(answer.pairs),
        "before_start": answer.actions,
        "is_all_compared": answer.is_all_compared,
    }


def _require_different(paths: Sequence[Path]) -> None:
    if len(paths) < 2:
        raise click.UsageError("compare needs at least two paths, each with replicas of its own")
    for path in paths:
        if sum(path.resolve() == other.resolve() for other in paths) > 1:
            raise click.UsageError(f"{path} is given twice: a directory cannot be compared with itself")


def _directories(pairs: Pairs) -> list[Path]:
    return [directory for paired in pairs.paired for _, directory in paired.replicas]


def _show(answer: _Answer, printer: Printer) -> None:
    from kcompact.views.replicas import alone_parts, before_start_parts, replica_parts

    partitions, pairs, actions, is_whole, print_data = answer
    printer.parts(replica_parts(partitions, print_data=print_data))
    if pairs.alone:
        printer.parts(alone_parts(pairs))
    if actions is not None:
        printer.parts(before_start_parts(actions, pairs.sides[0].path, is_complete=is_whole))


def _tell(answer: _Answer) -> None:
    """Print on standard error what was not compared because of an error, and which metadata log is not readable."""
    from kcompact.readable import relative_to_here

    for side in answer.pairs.sides:
        if side.problem is not None:
            streams.tell(relative_to_here(f"note: {side.path} does not say who leads: {side.problem}"))
    first = {each.topic_partition: each.replicas[0][1] for each in answer.pairs.paired}
    failed = [(first[each.topic_partition], each.error) for each in answer.partitions if each.error is not None]
    complain_of_each(failed)


def _tell_if_running(side: Side) -> None:
    """Print a note if the broker that is said to be stopped runs."""
    from kcompact.log.directory import is_running

    if any(is_running(log_dir) for log_dir in {directory.parent for directory in side.partitions.values()}):
        streams.tell(f"note: a broker runs on {side.path}: --before-start is for one that is stopped")


def _write_page(answer: _Answer, file: Path) -> None:
    from kcompact import __version__
    from kcompact.cli.output.next_command import command_after, typed_arguments
    from kcompact.host.machine import clock_ms
    from kcompact.readable import shown, size
    from kcompact.report.file import write_report
    from kcompact.report.page import rendered
    from kcompact.report.replicas import replicas_page

    partitions, pairs, actions, _, print_data = answer
    command = command_after(typed_arguments(), "compare")
    page = rendered(
        replicas_page(
            partitions, pairs, actions, now_ms=clock_ms(), version=__version__, command=command, print_data=print_data
        )
    )
    write_report(file, page, _directories(pairs))
    streams.tell(f"wrote {shown(file)}, {size(len(page.encode()))}")


def _alone(pairs: Pairs) -> list[tuple[TopicPartition, Path, list[Path] | None]]:
    """Return a row for each partition that only one path has: its name, that path, and which others should have it.

    The last is None if that is unknown.
    """
    path_of = [side.path for side in pairs.sides]
    return [
        (
            each.topic_partition,
            path_of[each.replicas[0][0]],
            None if each.missing_on is None else [path_of[side] for side in each.missing_on],
        )
        for each in pairs.alone
    ]


def _compared(pairs: Pairs, engine_options: EngineOptions, memory_bytes: int | None) -> Iterator[ComparedPartition]:
    """Yield the answer about each partition, with progress on a terminal."""
    from kcompact.cli.output.stage_progress import executor_for
    from kcompact.plan.walk import LogDirs
    from kcompact.questions.compare.answer import ComparedPartition

    with executor_for(engine_options, _directories(pairs)) as executor:
        log_dirs = LogDirs()
        for paired in pairs.paired:
            try:
                if paired.error is not None:
                    raise paired.error
                yield _compare_one(paired, pairs, log_dirs, executor, memory_bytes)
            except KcompactError as problem:
                yield ComparedPartition(topic_partition=paired.topic_partition, error=problem)


def _compare_one(
    paired: PairedPartition, pairs: Pairs, log_dirs: LogDirs, executor: Executor, memory_bytes: int | None
) -> ComparedPartition:
    """Return the answer about a partition, with the replica of each running broker as of one moment."""
    from kcompact.log.files import files_in
    from kcompact.log.unchanged_reading import read_unchanged
    from kcompact.questions.compare.answer import compare_partition

    log_dirs_and_damage = [log_dirs.despite_damage(directory) for _, directory in paired.replicas]
    around, problems = [log_dir for log_dir, _ in log_dirs_and_damage], [problem for _, problem in log_dirs_and_damage]

    def read(number: int, now: tuple[LogDir, ...]) -> ComparedPartition:
        """Compare with the log directories of the first replicas as of `now`."""
        if number == len(around):
            return compare_partition(paired, pairs.sides, now, executor, problems=problems, memory_bytes=memory_bytes)
        if not around[number].is_running:
            return read(number + 1, (*now, around[number]))
        files = files_in(paired.replicas[number][1])
        return read_unchanged(files, around[number], lambda current: read(number + 1, (*now, current)))

    return read(0, ())
