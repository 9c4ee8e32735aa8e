"""`plan`: shows what Kafka's cleaner would decide about each partition, and why."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kcompact.cli import options
from kcompact.cli.output import streams
from kcompact.cli.output.next_command import command_after, typed_arguments
from kcompact.errors import KcompactError
from kcompact.host.machine import rare_collections
from kcompact.notes import NoteCode
from kcompact.values import dataclass

if TYPE_CHECKING:
    from kcompact.clean.held_back import HeldBack
    from kcompact.cli.output.printer import Printer
    from kcompact.config.settings import Override
    from kcompact.notes import Note
    from kcompact.plan.discovery import LeftOut
    from kcompact.plan.explanation import Explanation, SettingsComparison
    from kcompact.plan.options import PlanOptions
    from kcompact.plan.walk import PlannedPartition
    from kcompact.views.parts import Part


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """The partitions, dirtiest first, and what was asked about each; by directory, only of those that have a plan.

    `compared` are settings that are laid beside those of today. `held_back` is None without `--replica`.
    """

    planned: Sequence[PlannedPartition]
    unusable: Sequence[PlannedPartition]
    explains: bool
    compared: tuple[Override, ...]
    explanations: dict[Path, Explanation]
    comparisons: dict[Path, SettingsComparison]
    held_back: dict[Path, HeldBack] | None


@options.command("plan")
@options.paths
@click.option(
    "--explain",
    "explains",
    is_flag=True,
    help="Show each condition with its value, which one decides, when that changes, by which setting, and the cost.",
)
@click.option(
    "--compare",
    multiple=True,
    metavar="[TOPIC:]NAME=VALUE",
    help="Show what this setting would change, beside today. Repeatable: all of them together.",
)
@options.replicas
@options.unclean
@options.verbosity(quiet="Print only the totals and errors.")
@rare_collections()
def command(
    paths: tuple[Path, ...],
    plan_options: PlanOptions,
    *,
    explains: bool,
    compare: tuple[str, ...],
    is_verbose: bool,
    is_quiet: bool,
    as_json: bool,
) -> int:
    """Show what Kafka's cleaner would decide, and why.

    Each partition, dirtiest first, is shown with the sizes of its clean and dirty sections, the ratio, the verdict and
    its reason; few partitions also with the groups of segments that become one segment. On a terminal many partitions
    are counted by reason.

    Changes nothing. A partition that cannot be planned is listed with its error, which sets the exit code.

    \b
    Examples:
      kcompact plan /var/lib/kafka
      kcompact plan --broker-config server.properties --now 2024-03-01T00:00:00Z orders-0
      kcompact plan --explain /var/lib/kafka/orders-0
      kcompact plan --compare min.cleanable.dirty.ratio=0.1 /var/lib/kafka
      kcompact plan --replica /mnt/broker-2/kafka /var/lib/kafka
    """
    from kcompact.cli.entries import complain_of, explanations_of
    from kcompact.cli.output.printer import Printer
    from kcompact.config.settings import parse_override
    from kcompact.exit_codes import gravest_exit_code
    from kcompact.plan.discovery import left_out
    from kcompact.plan.run_notes import option_notes, plan_notes
    from kcompact.plan.walk import in_turns, named_partitions, plan_partitions

    compared = tuple(parse_override(text, option="--compare") for text in compare)
    directories, unusable = named_partitions(paths, plan_options.selection)
    planned = in_turns(list(plan_partitions(directories, plan_options)))
    held_back = None
    if plan_options.replicas:
        planned, held_back = _with_held_back(planned)
    notes = option_notes(directories, plan_options, explains=explains, compared=compared)
    notes += plan_notes(planned, plan_options)
    shown = _Shown(
        planned=planned,
        unusable=unusable,
        explains=explains,
        compared=compared,
        explanations=explanations_of(planned) if explains else {},
        comparisons=_comparisons(planned, plan_options, compared) if compared else {},
        held_back=held_back,
    )
    streams.tell_notes(notes)
    beside = left_out(paths, plan_options.selection)
    if as_json:
        streams.echo(_json(shown, notes, beside, plan_options.now_ms))
    else:
        _show(shown, beside, Printer(verbose=is_verbose), is_quiet=is_quiet)
        complain_of((*planned, *unusable))
    return gravest_exit_code(each.exit_code for each in (*planned, *unusable))


def _with_held_back(
    planned: Sequence[PlannedPartition],
) -> tuple[list[PlannedPartition], dict[Path, HeldBack]]:
    """Return the partitions with a note on what is held back at most, and these counts. Damage leaves one uncounted."""
    from kcompact.clean.held_back import held_back_at_most
    from kcompact.plan.walk import noted

    found, counts = [], {}
    for entry in planned:
        plan = entry.plan
        with suppress(KcompactError, OSError):  # Other commands report it.
            if plan is not None and plan.eligible and plan.lagging_replicas:
                held_back = counts[entry.directory] = held_back_at_most(plan)
                plan = noted(plan, [held_back.note(NoteCode.HELD_BACK_AT_MOST, plan)])
        found.append(replace(entry, plan=plan))
    return found, counts


def _comparisons(
    planned: Sequence[PlannedPartition], options: PlanOptions, compared: Sequence[Override]
) -> dict[Path, SettingsComparison]:
    """Return each plan beside the one with the changed settings. Raises ConfigError for a wrong value.

    A setting without a topic is changed for each topic, also for one that has its own value. The metadata log is left
    out: no setting of a topic holds for it.
    """
    from kcompact.config.settings import is_broker_name
    from kcompact.plan.explanation import compare

    of_topics = [each if each.topic or is_broker_name(each.name) else replace(each, topic="*") for each in compared]
    changed = replace(options, overrides=(*options.overrides, *of_topics))
    found = [(entry.directory, entry.plan) for entry in planned if entry.plan is not None]
    plans = {directory: plan for directory, plan in found if not plan.log.is_cluster_metadata}
    configs = changed.configs_of(list(plans))
    return {directory: compare(plan, configs[directory].config) for directory, plan in plans.items()}


def _json(shown: _Shown, notes: Sequence[Note], beside: Sequence[LeftOut], now_ms: int) -> str:
    from kcompact.cli.json.partitions import WITH_REPLICA
    from kcompact.cli.json.plan import PLAN, WITH_COMPARE, WITH_EXPLAIN, Compared, PlanEntry
    from kcompact.plan.explanation import most_keys
    from kcompact.plan.totals import totals_by_reason

    partitions = (*shown.planned, *shown.unusable)
    explanations, comparisons = shown.explanations, shown.comparisons
    given, content = set(), dict[str, object]()
    held_back = shown.held_back or {}
    if shown.held_back is not None:
        given.add(WITH_REPLICA)
    if shown.explains:
        given.add(WITH_EXPLAIN)
        content = {"reasons": totals_by_reason(partitions), "buffer": most_keys(explanations.values())}
    if shown.compared:
        given.add(WITH_COMPARE)
        content["compare"] = Compared(shown.compared, list(comparisons.values()))
    return PLAN.text(
        given,
        now_ms=now_ms,
        notes=notes,
        partitions=[
            PlanEntry(each, explanations.get(at), comparisons.get(at), held_back.get(at))
            for at, each in ((each.directory, each) for each in partitions)
        ],
        left_out=beside,
        **content,
    )


def _show(shown: _Shown, beside: Sequence[LeftOut], printer: Printer, *, is_quiet: bool) -> None:
    planned = shown.planned
    if not planned:
        return
    if not is_quiet or not shown.compared:
        printer.parts(_plans(shown, beside, printer, is_quiet=is_quiet))
    if shown.compared:
        from kcompact.views.comparison import comparison_parts

        if shown.explains and not is_quiet:
            printer.line()
        comparisons = list(shown.comparisons.values())
        printer.parts(comparison_parts(shown.compared, comparisons, printer.space, is_quiet=is_quiet))
    elif not is_quiet:
        _show_next(planned, printer)


def _plans(shown: _Shown, beside: Sequence[LeftOut], printer: Printer, *, is_quiet: bool) -> list[Part]:
    """Return the totals of the plans, their explanations, or the plans themselves."""
    from kcompact.views.plans import plans_parts, totals_parts

    if is_quiet:
        return totals_parts(shown.planned)
    if shown.explains:
        from kcompact.views.explanations import explanations_parts

        explanations = list(shown.explanations.values())
        return explanations_parts(shown.planned, explanations, printer.space, left_out=beside)
    return [] if shown.compared else plans_parts(shown.planned, printer.space, left_out=beside)


def _show_next(planned: Sequence[PlannedPartition], printer: Printer) -> None:
    """Print the command that cleans what was planned, or that deletes what is due."""
    from kcompact.cli.output.next_command import show_next
    from kcompact.plan.partition import assumed_retention
    from kcompact.plan.run_notes import running_notes
    from kcompact.plan.totals import deleted_by_retention

    command, *arguments = [each for each in typed_arguments() if each != "--explain"]
    if any(each.is_eligible for each in planned) and not running_notes(planned):
        limit = "plan reads no records: clean --dry-run finds damage there"
        show_next(command_after((command, *arguments), "clean"), printer, limit)
    elif not any(each.plan and assumed_retention(each.plan) for each in planned) and deleted_by_retention(
        each for each in planned if each.plan and each.plan.log.recovered_from is None
    ):
        show_next(command_after((command, "--apply-retention", *arguments), "clean"), printer)
