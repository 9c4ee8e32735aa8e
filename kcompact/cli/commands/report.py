"""`report`: draws partitions on one page for a ticket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kcompact import __version__, readable
from kcompact.cli import options
from kcompact.cli.option_types import NamedPath
from kcompact.cli.output import streams
from kcompact.cli.output.next_command import command_after, typed_arguments
from kcompact.cli.signals import stop_request
from kcompact.errors import CorruptDataError
from kcompact.remarks import Note

if TYPE_CHECKING:
    from kcompact.plan.options import PlanOptions
    from kcompact.plan.walk import Answer, PlannedPartition
    from kcompact.questions.keys.counts import CountOptions
    from kcompact.report.reading import PartitionFacts

STANDARD_OUTPUT = Path("-")
_OWN_OPTIONS = ("-o", "--output", "--memory", "--prefix")
_OWN_FLAGS = ("--debug", "--print-data")
"""Options with a value that `plan` has not."""


@options.command("report")
@options.paths
@click.option(
    "--output",
    "-o",
    "file",
    type=NamedPath(),
    default="report.html",
    show_default=True,
    metavar="FILE",
    help="The file of the page. Only an older report is replaced. - is standard output.",
)
@click.option(
    "--prefix",
    default=":",
    show_default=True,
    metavar="SEPARATOR",
    help="Count also by the part of a key before SEPARATOR.",
)
@click.option("--print-data", is_flag=True, help="Show keys and prefixes themselves. Default: their hashes.")
@options.memory(what="keys and for data being read")
@options.unclean
def command(
    paths: tuple[Path, ...],
    plan_options: PlanOptions,
    *,
    file: Path,
    prefix: str,
    print_data: bool,
    memory_bytes: int | None,
    as_json: bool,
) -> int:
    """Draw partitions on one page, for a ticket.

    The page is one HTML file without scripts that loads nothing: the verdict and why, the log to scale before and after
    a cleaning, segments over time, the dirty ratio as the log grew, keys, tombstones, gaps, codecs, producers,
    transactions, and the commands to run next. Of more than 20 partitions the dirtiest are drawn, and the others are
    listed.

    Reads all records, as a dry run does. Changes nothing and takes no lock. Needs the extra `report`: without
    it the error says how to add it.

    \b
    Examples:
      kcompact report /var/lib/kafka/orders-0
      kcompact report --topic 'orders*' -o orders.html /var/lib/kafka
    """
    from kcompact.cli.entries import explanations_of
    from kcompact.exit_codes import gravest_exit_code
    from kcompact.plan.run_notes import option_notes, plan_notes
    from kcompact.plan.walk import Answer, Planner, in_turns, named_partitions, walk_partitions
    from kcompact.questions.keys.counts import CountOptions
    from kcompact.report.file import require_libraries, require_writable, write_report
    from kcompact.report.reading import MOST_DETAILED, facts_of

    if as_json and file == STANDARD_OUTPUT:
        raise click.UsageError("--json and -o - exclude each other: both print on standard output")
    count = CountOptions(separator=prefix.encode("utf-8", "surrogateescape"), memory_bytes=memory_bytes)
    require_libraries(file)
    directories, unusable = named_partitions(paths, plan_options.selection)
    if file != STANDARD_OUTPUT:
        require_writable(file, directories)
    planner = Planner(directories, plan_options)
    facts = in_turns(list(walk_partitions(directories, planner.planned_despite_damage, Answer.failed)))
    notes = [*option_notes(directories, plan_options), *plan_notes(facts, plan_options)]
    streams.tell_notes(notes)
    facts = [*_detailed(facts[:MOST_DETAILED], plan_options, count), *facts[MOST_DETAILED:]]
    size_bytes = None
    if facts:
        explanations = explanations_of(facts)
        explained = [
            replace(each, found=replace(facts_of(each), explained=explanations.get(each.directory))) for each in facts
        ]
        page = _page(paths, [*explained, *unusable], plan_options, notes, print_data=print_data)
        size_bytes = len(page.encode())
        if file == STANDARD_OUTPUT:
            streams.echo(page)
        else:
            write_report(file, page, directories)
    _tell([*facts, *unusable], plan_options, notes, file=file, size_bytes=size_bytes, as_json=as_json)
    return gravest_exit_code(each.exit_code for each in (*facts, *unusable))


def _tell(
    everything: Sequence[PlannedPartition],
    options: PlanOptions,
    notes: Sequence[Note],
    *,
    file: Path,
    size_bytes: int | None,
    as_json: bool,
) -> None:
    """Print the errors and what was written: a page of so many bytes, or none if no path was a partition."""
    from kcompact.cli.entries import complain_of

    if as_json:
        from kcompact.cli.json.report import REPORT

        written = None if size_bytes is None else file
        streams.echo(REPORT.text(now_ms=options.now_ms, file=written, notes=notes, partitions=everything))
        return
    complain_of(everything)
    if size_bytes is not None and file != STANDARD_OUTPUT:
        streams.tell(f"wrote {readable.shown(file)}, {readable.size(size_bytes)}")


def _detailed(
    facts: Sequence[Answer[PartitionFacts]], options: PlanOptions, count: CountOptions
) -> list[Answer[PartitionFacts]]:
    """Return the partitions with what their segments contain, with progress on a terminal."""
    from kcompact.cleaner.outcome import PartitionOutcome
    from kcompact.cli.output.stage_progress import CleaningProgress
    from kcompact.report.reading import dry_plan, read_facts

    planned = {each.directory: dry_plan(each.plan) if each.plan and not each.error else None for each in facts}
    outcomes = [PartitionOutcome(directory=directory, plan=plan) for directory, plan in planned.items() if plan]
    with stop_request() as stop:
        progress = CleaningProgress(stop, outcomes, is_quiet=False, only_bars=True)
        try:
            return [read_facts(each, options, count, progress=progress.of(each.directory)) for each in facts]
        finally:
            progress.end()


def _page(
    paths: Sequence[Path],
    facts: Sequence[Answer[PartitionFacts]],
    options: PlanOptions,
    notes: Sequence[Note],
    *,
    print_data: bool,
) -> str:
    from kcompact.release import RELEASES
    from kcompact.report import overview
    from kcompact.report.page import PageView, rendered
    from kcompact.report.reading import MOST_DETAILED

    several = len(facts) > 1
    detailed = [each for each in facts[:MOST_DETAILED] if each.plan is not None]
    anchors = {each.directory: f"partition-{number}" for number, each in enumerate(detailed, 1)}
    releases = {each.plan.config.release.name for each in facts if each.plan is not None}
    title = ", ".join(readable.shown(path) for path in paths) if several else readable.shown(facts[0].name)
    return rendered(
        PageView(
            title=title,
            now=readable.time(options.now_ms),
            version=__version__,
            kafka_releases=" and ".join(name for name in RELEASES if name in releases),
            notes=tuple(readable.shown(note.text) for note in notes),
            summary=overview.summary_sections(facts, anchors) if several else (),
            values=overview.summary_values(facts) if several else (),
            partitions=tuple(
                overview.partition_view(each, anchors.get(each.directory, "partition-1"), print_data=print_data)
                for each in (detailed if several else facts)
            ),
            commands=tuple(_commands(facts)),
        )
    )


def _commands(facts: Sequence[Answer[PartitionFacts]]) -> list[str]:
    """Return the commands to run next, with the paths and the settings of this one."""
    from kcompact.plan.run_notes import running_notes
    from kcompact.report.reading import facts_of

    command, *arguments = _shared_arguments(typed_arguments())
    commands = []
    if any(isinstance(each.error, CorruptDataError) for each in facts):
        commands.append(command_after([command, *arguments], "verify", without=["--unclean"]))
    if not running_notes(facts):
        if any(each.is_eligible for each in facts):
            commands.append(command_after([command, "--dry-run", *arguments], "clean"))
            commands.append(command_after([command, *arguments], "clean"))
        elif any((dry_run := facts_of(each).dry_run) and dry_run.result is not None for each in facts):
            commands.append(command_after([command, "--force", "--dry-run", *arguments], "clean"))
    commands.append(command_after([command, *arguments], "plan"))
    return commands


def _shared_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the arguments that other commands have too: paths, and the options of the configuration."""
    words = iter(arguments)
    shared = []
    for word in words:
        if word == "--":
            shared += [word, *words]
        elif word in _OWN_OPTIONS:
            next(words, None)
        elif word not in _OWN_FLAGS and not word.startswith(("-o", *(f"{name}=" for name in _OWN_OPTIONS))):
            shared.append(word)
    return shared
