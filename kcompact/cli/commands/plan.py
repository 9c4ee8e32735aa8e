"""`plan`: shows what Kafka's cleaner would decide about each partition, and why."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kcompact.cli import options
from kcompact.cli.output.next_command import command_after, typed_arguments
from kcompact.errors import KcompactError
from kcompact.host.machine import rare_collections
from kcompact.remarks import RemarkCode

if TYPE_CHECKING:
    from kcompact.clean.held_back import HeldBack
    from kcompact.cli.entries import PlanDetails
    from kcompact.cli.output.printer import Printer
    from kcompact.config.settings import Override
    from kcompact.plan.explanation import Explanation, SettingsComparison
    from kcompact.plan.options import PlanOptions
    from kcompact.plan.walk import Answer, PlannedPartition


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
    from kcompact.cli.json.partitions import WITH_REPLICA
    from kcompact.cli.json.plan import PLAN, WITH_COMPARE, WITH_EXPLAIN
    from kcompact.cli.question import Question, ask
    from kcompact.config.settings import parse_override
    from kcompact.plan.run_notes import option_notes

    compared = tuple(parse_override(text, option="--compare") for text in compare)
    asked = {WITH_REPLICA: plan_options.replicas, WITH_EXPLAIN: explains, WITH_COMPARE: compared}
    question = Question(
        document=PLAN,
        answers=partial(_planned, explains=explains, compared=compared),
        show=partial(_show, paths, plan_options, explains=explains, compared=compared, is_quiet=is_quiet),
        content=partial(_content, explains=explains, compared=compared),
        given={part for part, is_asked in asked.items() if is_asked},
        notes=partial(option_notes, explains=explains, compared=compared),
        complains_of_all=True,
        shows_left_out=False,
        verbose=is_verbose,
    )
    return ask(question, paths, plan_options, as_json=as_json)


def _planned(
    directories: Sequence[Path], options: PlanOptions, *, explains: bool, compared: Sequence[Override]
) -> list[Answer[PlanDetails]]:
    """Return the partitions, dirtiest first, with what was asked about each that has a plan."""
    from kcompact.cli.entries import PlanDetails, explanations_of
    from kcompact.plan.walk import in_turns, plan_partitions

    planned = in_turns(list(plan_partitions(directories, options)))
    held_back: dict[Path, HeldBack] = {}
    if options.replicas:
        planned, held_back = _with_held_back(planned)
    explanations = explanations_of(planned) if explains else {}
    comparisons = _comparisons(planned, options, compared) if compared else {}
    return [
        replace(each, found=PlanDetails(explanations.get(at), comparisons.get(at), held_back.get(at)))
        for at, each in ((each.directory, each) for each in planned)
    ]


def _with_held_back(planned: Sequence[Answer[PlanDetails]]) -> tuple[list[Answer[PlanDetails]], dict[Path, HeldBack]]:
    """Return the partitions with a note on what is held back at most, and these counts. Damage leaves one uncounted."""
    from kcompact.clean.held_back import held_back_at_most
    from kcompact.plan.walk import noted

    partitions, counts = [], {}
    for entry in planned:
        plan = entry.plan
        with suppress(KcompactError, OSError):  # Other commands report it.
            if plan is not None and plan.eligible and plan.lagging_replicas:
                held_back = counts[entry.directory] = held_back_at_most(plan)
                plan = noted(plan, [held_back.note(RemarkCode.HELD_BACK_AT_MOST, plan)])
        partitions.append(replace(entry, plan=plan))
    return partitions, counts


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
    directories_and_plans = [(entry.directory, entry.plan) for entry in planned if entry.plan is not None]
    plans = {directory: plan for directory, plan in directories_and_plans if not plan.log.is_cluster_metadata}
    configs = changed.configs_of(list(plans))
    return {directory: compare(plan, configs[directory].config) for directory, plan in plans.items()}


def _content(
    answers: Sequence[Answer[PlanDetails]], *, explains: bool, compared: Sequence[Override]
) -> dict[str, object]:
    from kcompact.cli.json.plan import Compared
    from kcompact.plan.explanation import most_keys
    from kcompact.plan.totals import totals_by_reason

    content: dict[str, object] = {}
    if explains:
        content |= {"reasons": totals_by_reason(answers), "buffer": most_keys(_explanations(answers))}
    if compared:
        content["compare"] = Compared(tuple(compared), _found_comparisons(answers))
    return content


def _explanations(answers: Sequence[Answer[PlanDetails]]) -> list[Explanation]:
    return [each.found.explanation for each in answers if each.found and each.found.explanation]


def _found_comparisons(answers: Sequence[Answer[PlanDetails]]) -> list[SettingsComparison]:
    return [each.found.comparison for each in answers if each.found and each.found.comparison]


def _show(
    paths: Sequence[Path],
    plan_options: PlanOptions,
    answers: Sequence[Answer[PlanDetails]],
    printer: Printer,
    *,
    explains: bool,
    compared: Sequence[Override],
    is_quiet: bool,
) -> None:
    from kcompact.plan.discovery import left_out
    from kcompact.views.plans import plans_parts, totals_parts

    if not answers:
        return
    left_out_directories = left_out(paths, plan_options.selection)
    if is_quiet and not compared:
        printer.parts(totals_parts(answers))
    elif explains and not is_quiet:
        from kcompact.views.explanations import explanations_parts

        printer.parts(explanations_parts(answers, _explanations(answers), printer.space, left_out=left_out_directories))
    elif not compared:
        printer.parts(plans_parts(answers, printer.space, left_out=left_out_directories))
    if compared:
        from kcompact.views.comparison import comparison_parts

        if explains and not is_quiet:
            printer.line()
        printer.parts(comparison_parts(compared, _found_comparisons(answers), printer.space, is_quiet=is_quiet))
    elif not is_quiet:
        _show_next(answers, printer)


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
