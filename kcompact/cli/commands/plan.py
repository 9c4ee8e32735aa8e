"""`plan`: shows what Kafka's cleaner would decide about each partition, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kcompact.cli.declaration import typed_arguments
from kcompact.cli.entries import complain_of
from kcompact.cli.output import streams
from kcompact.cli.output.next_command import command_after
from kcompact.notes import Note
from kcompact.plan.discovery import LeftOut, left_out
from kcompact.plan.notes import option_notes, plan_notes, running_notes
from kcompact.plan.options import PlanOptions
from kcompact.plan.partition import assumed_retention
from kcompact.plan.totals import deleted_by_retention, totals_by_reason
from kcompact.plan.walk import PlannedPartition, gravest_exit_code, in_turns, named_partitions, plan_partitions

if TYPE_CHECKING:
    from kcompact.cli.output.printer import Printer
    from kcompact.config.settings import Override
    from kcompact.plan.explanation import Comparison, Explanation
    from kcompact.views.parts import Part


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to show of the plans, and how. `compared` are settings that are laid beside those of today."""

    explains: bool = False
    compared: tuple[Override, ...] = ()
    is_verbose: bool = False
    is_quiet: bool = False
    as_json: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """The partitions, dirtiest first, and what was asked about each; by directory, only of those that have a plan."""

    planned: Sequence[PlannedPartition]
    unusable: Sequence[PlannedPartition]
    explanations: dict[Path, Explanation]
    comparisons: dict[Path, Comparison]


def run(paths: Sequence[Path], options: PlanOptions, request: Request) -> int:
    """Show the plan of every partition, dirtiest first, and return the exit code."""
    directories, unusable = named_partitions(paths, PlannedPartition, topics=options.topics)
    planned = in_turns(list(plan_partitions(directories, options)))
    notes = option_notes(directories, options, explains=request.explains, compared=request.compared)
    notes += plan_notes(planned, options)
    shown = _Shown(
        planned=planned,
        unusable=unusable,
        explanations=_explanations(planned) if request.explains else {},
        comparisons=_comparisons(planned, options, request.compared) if request.compared else {},
    )
    streams.tell_notes(notes)
    beside = left_out(paths, topics=options.topics)
    if request.as_json:
        streams.echo(_json(shown, notes, beside, options, request))
    else:
        from kcompact.cli.output.printer import Printer

        _show(shown, beside, Printer(verbose=request.is_verbose), request)
        complain_of((*planned, *unusable))
    return gravest_exit_code(each.exit_code for each in (*planned, *unusable))


def _explanations(planned: Sequence[PlannedPartition]) -> dict[Path, Explanation]:
    from kcompact.plan.explanation import explain_all
    from kcompact.plan.horizons import read_all_horizons
    from kcompact.plan.transactions import read_all_transactions

    plans = [entry.plan for entry in planned if entry.plan is not None]
    explanations = explain_all(plans, read_all_horizons(plans), read_all_transactions(plans))
    return {each.plan.log.directory: each for each in explanations}


def _comparisons(
    planned: Sequence[PlannedPartition], options: PlanOptions, compared: Sequence[Override]
) -> dict[Path, Comparison]:
    """Return each plan beside the one with the changed settings. Raises ConfigError for a wrong value.

    The metadata log is left out: no setting of a topic holds for it.
    """
    from kcompact.plan.explanation import compare

    changed = replace(options, overrides=(*options.overrides, *compared))
    found = [(entry.directory, entry.plan) for entry in planned if entry.plan is not None]
    plans = {directory: plan for directory, plan in found if not plan.log.is_cluster_metadata}
    configs = changed.configs_of(list(plans))
    return {directory: compare(plan, configs[directory].config) for directory, plan in plans.items()}


def _json(
    shown: _Shown, notes: Sequence[Note], beside: Sequence[LeftOut], options: PlanOptions, request: Request
) -> str:
    from kcompact.cli.json.plan import PLAN, WITH_COMPARE, WITH_EXPLAIN, Compared, PlanEntry
    from kcompact.plan.explanation import most_keys

    partitions = (*shown.planned, *shown.unusable)
    explanations, comparisons = shown.explanations, shown.comparisons
    given, content = set(), dict[str, object]()
    if request.explains:
        given.add(WITH_EXPLAIN)
        content = {"reasons": totals_by_reason(partitions), "buffer": most_keys(explanations.values())}
    if request.compared:
        given.add(WITH_COMPARE)
        content["compare"] = Compared(request.compared, list(comparisons.values()))
    return PLAN.text(
        given,
        now_ms=options.now_ms,
        notes=notes,
        partitions=[
            PlanEntry(each, explanations.get(each.directory), comparisons.get(each.directory)) for each in partitions
        ],
        left_out=beside,
        **content,
    )


def _show(shown: _Shown, beside: Sequence[LeftOut], printer: Printer, request: Request) -> None:
    planned = shown.planned
    if not planned:
        return
    if not request.is_quiet or not request.compared:
        printer.parts(_plans(shown, beside, printer, request))
    if request.compared:
        from kcompact.views.comparison import comparison_parts

        if request.explains and not request.is_quiet:
            printer.line()
        comparisons = list(shown.comparisons.values())
        printer.parts(comparison_parts(request.compared, comparisons, printer.space, is_quiet=request.is_quiet))
    elif not request.is_quiet:
        _show_next(planned, printer)


def _plans(shown: _Shown, beside: Sequence[LeftOut], printer: Printer, request: Request) -> list[Part]:
    """Return the totals of the plans, their explanations, or the plans themselves."""
    from kcompact.views.plans import plans_parts, totals_parts

    if request.is_quiet:
        return totals_parts(shown.planned)
    if request.explains:
        from kcompact.views.explanations import explanations_parts

        explanations = list(shown.explanations.values())
        return explanations_parts(shown.planned, explanations, printer.space, left_out=beside)
    return [] if request.compared else plans_parts(shown.planned, printer.space, left_out=beside)


def _show_next(planned: Sequence[PlannedPartition], printer: Printer) -> None:
    """Print the command that cleans what was planned, or that deletes what is due."""
    from kcompact.cli.output.next_command import show_next

    command, *arguments = [each for each in typed_arguments() if each != "--explain"]
    if any(each.is_eligible for each in planned) and not running_notes(planned):
        show_next(command_after((command, *arguments), "clean"), printer)
    elif not any(each.plan and assumed_retention(each.plan) for each in planned) and deleted_by_retention(
        each for each in planned if each.plan and each.plan.log.recovered_from is None
    ):
        show_next(command_after((command, "--apply-retention", *arguments), "clean"), printer)
