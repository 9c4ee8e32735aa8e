"""Tables, bars and lines for people: rich on a terminal, plain and complete text anywhere else.

Nothing reaches the output unescaped: what comes from names, records or errors goes through `safe`, and rich gets
`Text` objects, never strings with markup. Away from a terminal a table is as wide as its content, so that nothing is
cut.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TextIO

from kcompact.cli.entries import Entry
from kcompact.cli.output import streams, text
from kcompact.cli.output.explanations import plan_forecast, policy_line, role_reason
from kcompact.cli.output.text import safe
from kcompact.errors import CorruptDataError
from kcompact.plan.clean_plan import CleanPlan, Role
from kcompact.plan.passes import kafka_passes_at_most, keys_per_pass, offset_map_slots

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

    from kcompact.cleaner import CleanResult
    from kcompact.inspect.findings import Finding

PIPED_WIDTH = 100_000
FOLDED_WIDTH = 14
"""What a column of sentences or long names has to have at least."""
BAR_CELLS = 60
_MIB = 1_048_576

_STYLES = {Role.CLEAN: "green", Role.DIRTY: "yellow", Role.UNCLEANABLE: "red", Role.ACTIVE: "blue"}
_CELLS = {Role.CLEAN: "█", Role.DIRTY: "▓", Role.UNCLEANABLE: "▒", Role.ACTIVE: "░"}
_ASCII_CELLS = {Role.CLEAN: "#", Role.DIRTY: "=", Role.UNCLEANABLE: "-", Role.ACTIVE: "."}
_SEVERITY_STYLES = {"damage": "bold red", "warning": "yellow", "info": ""}


class Printer:
    """Prints to a stream: styled if it is a terminal, otherwise plain text of any width."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stdout
        self.is_terminal = self.stream.isatty() and os.environ.get("TERM") != "dumb"
        self.has_unicode = "utf" in (getattr(self.stream, "encoding", None) or "").lower()

    @property
    def width(self) -> int:
        """How long a line can be."""
        return console(self.stream).width if self.is_terminal else PIPED_WIDTH

    def line(self, content: str | Text = "") -> None:
        """Print one line, or several for a string with line ends; a string is foreign text unless it came escaped."""
        if isinstance(content, str):
            streams.echo(text.safe_lines(content), self.stream)
        else:
            self.show(content)

    def show(self, renderable: RenderableType, *, least_width: int = 0) -> None:
        """Print something of rich's. The terminal breaks the lines of what is wider than itself."""
        if self.is_terminal:
            with streams.errors(self.stream):
                console(self.stream, width=max(self.width, least_width)).print(renderable)
            return
        plain = io.StringIO()
        console(plain, width=PIPED_WIDTH).print(renderable)
        lines = plain.getvalue().splitlines()
        streams.echo("\n".join(line.rstrip() for line in lines), self.stream)

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Mapping[str, Text]],
        *,
        numbers: Iterable[str] = (),
        whole: Iterable[str] = (),
        optional: Iterable[str] = (),
    ) -> None:
        """Print a table. Where it is too wide, the `optional` columns go, the first one first; no number is ever cut.

        `numbers` are aligned to the right. Neither they nor the `whole` columns are folded.
        """
        shown = list(columns)
        unfolded = frozenset((*numbers, *whole))
        least = {name: _least_width(name, rows, unfolded) for name in columns}
        for name in optional:
            if _total(least[each] for each in shown) > self.width:
                shown.remove(name)
        made = table(*shown, numbers=numbers, whole=whole)
        for row in rows:
            made.add_row(*(row[name] for name in shown))
        self.show(made, least_width=_total(least[name] for name in shown))


def console(stream: Any, *, width: int | None = None) -> Console:
    """Return a console that interprets nothing: no markup, no emoji, no highlighting."""
    from rich.console import Console

    return Console(file=stream, width=width, markup=False, emoji=False, highlight=False, soft_wrap=False)


def table(*columns: str, numbers: Iterable[str] = (), whole: Iterable[str] = ()) -> Table:
    """Return an empty table; `numbers` are aligned to the right, and neither they nor `whole` columns are folded."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, padding=(0, 1))
    right, unfolded = frozenset(numbers), frozenset((*numbers, *whole))
    for name in columns:
        justify: Literal["left", "right"] = "right" if name in right else "left"
        made.add_column(Text(name), justify=justify, no_wrap=name in unfolded, overflow="fold", header_style="bold")
    return made


def _least_width(name: str, rows: Sequence[Mapping[str, Text]], unfolded: Container[str]) -> int:
    """Return how many cells a column needs: all of it, or enough for its words where it may be folded."""
    from rich.cells import cell_len

    texts = [name, *(row[name].plain for row in rows)]
    if name in unfolded:
        return max(map(cell_len, texts))
    return min(FOLDED_WIDTH, max(map(cell_len, texts)))


def _total(widths: Iterable[int]) -> int:
    """Return the width of a table, two cells between its columns."""
    widths = list(widths)
    return sum(widths) + 2 * (len(widths) - 1)


def cell(value: object, style: str = "") -> Text:
    """Return a value for a table; None shows as a dash."""
    from rich.text import Text

    return Text("-" if value is None else safe(str(value)), style=style)


# The log, drawn to scale


def bar(plan: CleanPlan, printer: Printer, *, cells: int = BAR_CELLS) -> Text:
    """Return the log as a bar: each segment as long as its share of the bytes, at least one cell if it holds any."""
    from rich.text import Text

    glyphs = _CELLS if printer.has_unicode else _ASCII_CELLS
    drawn = Text("[")
    for role, length in scaled([(role, size) for role, size in extents(plan)], cells):
        drawn.append(glyphs[role] * length, style=_STYLES[role])
    return drawn.append("]")


def extents(plan: CleanPlan) -> list[tuple[Role, int]]:
    """Return the runs of equal roles along the log with their bytes, in offset order."""
    runs: list[tuple[Role, int]] = []
    for segment in plan.log.segments:
        role = plan.role_of(segment)
        if runs and runs[-1][0] is role:
            runs[-1] = (role, runs[-1][1] + segment.size_bytes)
        else:
            runs.append((role, segment.size_bytes))
    return runs


def scaled(runs: Sequence[tuple[Role, int]], cells: int) -> list[tuple[Role, int]]:
    """Return the runs in cells that add up to `cells`; what holds a byte gets a cell."""
    runs = [run for run in runs if run[1]]
    total = sum(size for _, size in runs)
    if not total:
        return []
    lengths = [max(1, round(size * cells / total)) for _, size in runs]
    while sum(lengths) != cells and len(runs) <= cells:
        widest = max(range(len(lengths)), key=lambda number: lengths[number])
        lengths[widest] += 1 if sum(lengths) < cells else -1
    return [(role, length) for (role, _), length in zip(runs, lengths, strict=True)]


def legend(plan: CleanPlan, printer: Printer) -> Text:
    """Return what the bar's cells mean, with the size of each role."""
    from rich.text import Text

    glyphs = _CELLS if printer.has_unicode else _ASCII_CELLS
    sizes: dict[Role, int] = {}
    for role, size in extents(plan):
        sizes[role] = sizes.get(role, 0) + size
    made = Text()
    for role in Role:
        if role in sizes:
            made.append("  " if made else "")
            made.append(glyphs[role], style=_STYLES[role])
            made.append(f" {role} {text.size(sizes[role])}")
    return made


# inspect


def show_inspection(entry: Entry, printer: Printer) -> None:
    """Print one partition as `inspect` sees it."""
    plan = entry.plan
    heading(entry, printer)
    if plan is None:
        show_error(entry, printer)
        return
    facts(plan, entry, printer)
    printer.line()
    columns = ["base offset", "size", "role", "batches", "records", "first time", "largest time", "modified", "why"]
    rows = []
    surveys = entry.survey.segments if entry.survey else (None,) * len(plan.log.segments)
    for segment, contents in zip(plan.log.segments, surveys, strict=True):
        role = plan.role_of(segment)
        rows.append(
            {
                "base offset": cell(segment.base_offset),
                "size": cell(text.size(segment.size_bytes)),
                "role": cell(role, _STYLES[role]),
                "batches": cell(contents and contents.batches),
                "records": cell(contents and contents.records),
                "first time": cell(text.time(segment.first_batch_max_timestamp_ms)),
                "largest time": cell(text.time(segment.largest_timestamp_ms)),
                "modified": cell(text.time(segment.last_modified_ms)),
                "why": cell(role_reason(plan, segment)),
            }
        )
    printer.table(
        columns,
        rows,
        numbers=("base offset", "size", "batches", "records"),
        whole=("role", "first time", "largest time", "modified"),
        optional=("first time", "modified", "largest time", "batches", "records"),
    )
    extras = _extras(entry)
    if extras:
        printer.line()
        printer.line("  " + extras)
    notes(plan, printer)
    for name in (*plan.log.leftovers, *plan.log.staging):
        printer.line(f"  left over: {name}")
    for name in plan.log.foreign:
        printer.line(f"  not a file of Kafka's: {name}")
    if entry.findings is not None:
        show_findings(entry.findings, printer)
    if entry.error is not None and (entry.findings is None or not isinstance(entry.error, CorruptDataError)):
        show_error(entry, printer)


def _extras(entry: Entry) -> str:
    if entry.survey is None:
        return ""
    names = {
        "empty_batches": "empty batches",
        "control_batches": "control batches",
        "transactional_batches": "transactional batches",
        "horizon_batches": "batches with a delete horizon",
        "tombstones": "tombstones",
        "null_keys": "records without a key",
    }
    totals = {
        label: sum(getattr(segment, name) or 0 for segment in entry.survey.segments) for name, label in names.items()
    }
    return ", ".join(f"{label}: {count:,}" for label, count in totals.items() if count)


def heading(entry: Entry, printer: Printer) -> None:
    """Print the name of a partition and where it lies."""
    from rich.text import Text

    shown = Text(safe(entry.name), style="bold")
    shown.append(f"  {text.path(entry.directory)}", style="dim")
    printer.line(shown)


def facts(plan: CleanPlan, entry: Entry, printer: Printer) -> None:
    """Print the verdict, the offsets and the bar of one partition."""
    printer.line(f"  policy   {policy_line(plan.config)}")
    printer.line(
        f"  offsets  log start {plan.log.log_start_offset}, first dirty {plan.first_dirty_offset}, "
        f"first uncleanable {plan.first_uncleanable_offset}, last stable {plan.last_stable_offset}, "
        f"high watermark {plan.high_watermark}, log end {plan.log.log_end_offset}"
    )
    verdict = "to be cleaned" if plan.eligible and entry.error is None else "not to be cleaned"
    printer.line(f"  ratio    {plan.cleanable_ratio:.4f}, {verdict}: {entry.reason}, {entry.explanation}")
    if plan.log.size_bytes:
        drawn = bar(plan, printer)
        printer.line(cell("  ").append_text(drawn))
        printer.line(cell("  ").append_text(legend(plan, printer)))


def notes(plan: CleanPlan, printer: Printer) -> None:
    """Print what a user should know about how the plan came about."""
    for note in plan.log.notes:
        printer.line(f"  note: {note}")


def show_findings(found: Sequence[Finding], printer: Printer) -> None:
    """Print the findings as a table, or that there are none."""
    printer.line()
    if not found:
        printer.line("  verified: nothing is wrong")
        return
    rows = [
        {
            "severity": cell(each.severity, _SEVERITY_STYLES[each.severity]),
            "file": cell(each.file),
            "position": cell(each.position),
            "offset": cell(each.offset),
            "problem": cell(each.problem),
        }
        for each in found
    ]
    printer.table(tuple(rows[0]), rows, numbers=("position", "offset"), whole=("severity",))


# plan


def show_plans(entries: Sequence[Entry], printer: Printer) -> None:
    """Print the plans as one table, then what is worth a line of its own."""
    columns = ("partition", "size", "clean", "dirty", "ratio", "clean it", "reason", "why")
    rows = []
    for entry in entries:
        plan = entry.plan
        eligible = plan is not None and plan.eligible and entry.error is None
        cells = (
            cell(entry.name),
            cell(text.size(plan.log.size_bytes) if plan else None),
            cell(text.size(plan.clean_bytes) if plan else None),
            cell(text.size(plan.cleanable_bytes) if plan else None),
            cell(f"{plan.cleanable_ratio:.4f}" if plan else None),
            cell("yes" if eligible else "no", "green" if eligible else ""),
            cell(entry.reason, "bold red" if entry.error else ""),
            cell(text.relative_to_here(entry.explanation)),
        )
        rows.append(dict(zip(columns, cells, strict=True)))
    printer.table(
        columns,
        rows,
        numbers=("size", "clean", "dirty", "ratio"),
        whole=("clean it", "reason"),
        optional=("clean", "size", "dirty", "ratio"),
    )
    for entry in entries:
        plan = entry.plan
        if plan is None or not (plan.groups or plan.log.notes or plan_forecast(plan)):
            continue
        printer.line()
        printer.line(cell(entry.name, "bold"))
        if "(" in (policy := policy_line(plan.config)):
            printer.line(f"  policy {policy}")
        if plan.groups:
            printer.line(cell("  ").append_text(bar(plan, printer)))
            printer.line(cell("  ").append_text(legend(plan, printer)))
            printer.line(f"  {_counted(len(plan.segments), 'segment')} to {_counted(len(plan.groups), 'segment')}")
            for group in plan.groups:
                bases = " + ".join(str(segment.base_offset) for segment in group)
                total = sum(segment.size_bytes for segment in group)
                printer.line(f"    {bases} -> {group[0].base_offset}, at most {text.size(total)}")
            printer.line(f"  checkpoint {_shown(plan.log.checkpoint_offset)} -> {plan.first_uncleanable_offset}")
            passes = kafka_passes_at_most(plan)
            if passes is not None and passes > 1:
                full = keys_per_pass(plan.config)
                printer.line(f"  one pass; Kafka's own cleaner, with a map of {full:,} keys, may need up to {passes:,}")
        if plan.log.checkpoint_offset is not None and plan.checkpoint_reset:
            printer.line(
                f"  note: the checkpoint {plan.log.checkpoint_offset} lies outside the log and counts for nothing"
            )
        for due in plan_forecast(plan):
            kept = ", but merging with a younger one postpones it" if due.is_postponed else ""
            printer.line(f"  retention: segment {due.segment.base_offset} is past its {due.reason}{kept}")
        notes(plan, printer)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def _shown(value: int | None) -> str:
    return "none" if value is None else str(value)


# clean


def summary(result: CleanResult) -> list[str]:
    """Return the lines of Kafka's summary, in its words and roundings."""
    assert result.plan is not None, "only a cleaned partition has a summary"
    plan, stats = result.plan, result.stats
    number, mib = text.java_number, _MIB
    total, mapping = result.elapsed_s, result.map_s
    cleaning = total - mapping
    read, mapped, written = (count / mib for count in (stats.bytes_read, stats.map_bytes_read, stats.bytes_written))

    def share(part: float) -> str:
        return number(100 * text.ratio(part, total))

    slots = offset_map_slots(plan.config)
    smaller = 100 * (1 - text.ratio(stats.bytes_written, stats.bytes_read))
    fewer = 100 * (1 - text.ratio(stats.messages_written, stats.messages_read))
    lines = [
        f"Log cleaner thread 0 cleaned log {plan.log.topic_partition} "
        f"(dirty section = [{plan.first_dirty_offset}, {result.end_offset}])",
        f"{number(read)} MB of log processed in {number(total)} seconds ({number(text.ratio(read, total))} MB/sec).",
        f"Indexed {number(mapped)} MB in {_plain(mapping)} seconds "
        f"({number(text.ratio(mapped, mapping))} Mb/sec, {share(mapping)}% of total time)",
        f"Buffer utilization: {number(100 * stats.map_keys / slots)}%",
        f"Cleaned {number(read)} MB in {_plain(cleaning)} seconds "
        f"({number(text.ratio(read, cleaning))} Mb/sec, {share(cleaning)}% of total time)",
        f"Start size: {number(read)} MB ({stats.messages_read:,} messages)",
        f"End size: {number(written)} MB ({stats.messages_written:,} messages)",
        f"{number(smaller)}% size reduction ({number(fewer)}% fewer messages)",
    ]
    if stats.invalid_messages:
        lines.append(f"Found {stats.invalid_messages} invalid messages during compaction.")
    return lines


def _plain(value: float) -> str:
    return text.java_number(value).replace(",", "")


def show_error(entry: Entry, printer: Printer) -> None:
    """Print why a partition could not be planned or cleaned."""
    if entry.error is not None:
        printer.line(f"  error: {text.relative_to_here(str(entry.error))}")


def show_outcome(entries: Sequence[Entry], printer: Printer) -> None:
    """Print what became of each partition, and Kafka's summary of each that was cleaned."""
    cleaned = [entry.result for entry in entries if entry.result is not None and entry.result.end_offset is not None]
    for done in cleaned:
        printer.line()
        for line in summary(done):
            printer.line(f"  {line}")
    delays = [entry.plan.max_compaction_delay_ms for entry in entries if entry.plan is not None]
    if cleaned and any(delays):
        delayed = sum(delay > 0 for delay in delays)
        eligible = sum(entry.plan is not None and entry.plan.eligible for entry in entries)
        printer.line(f"  Cleanable partitions: {eligible}, Delayed partitions: {delayed}, max delay: {max(delays)}")
    printer.line()
    columns = ("partition", "status", "before", "after", "checkpoint", "")
    rows = []
    for entry in entries:
        result = entry.result
        status = "failed" if result is None else str(result.status)
        worked = result is not None and result.end_offset is not None
        cells = (
            cell(entry.name),
            cell(status, "bold red" if result is None else "green" if worked else ""),
            cell(text.size(result.stats.bytes_read) if result and worked else None),
            cell(text.size(result.stats.bytes_written) if result and worked else None),
            cell(result.end_offset if result and worked else None),
            cell(_remark(entry)),
        )
        rows.append(dict(zip(columns, cells, strict=True)))
    printer.table(columns, rows, numbers=("before", "after"), whole=("status", "checkpoint"))


def _remark(entry: Entry) -> str:
    recovered = f"recovery: {entry.recovered}; " if entry.recovered else ""
    if entry.error is not None:
        return recovered + text.relative_to_here(str(entry.error).splitlines()[0])
    if entry.result is not None and entry.result.end_offset is None:
        recovered += f"{entry.reason}: {entry.explanation}; "
    if entry.result is not None and entry.result.expired:
        bases = ", ".join(str(gone.segment.base_offset) for gone in entry.result.expired)
        recovered += f"retention: segments {bases}; "
    return recovered.removesuffix("; ")


# recover


def show_recovery(outcomes: Sequence[dict[str, Any]], printer: Printer) -> None:
    """Print what recovery did to each partition."""
    rows = []
    for outcome in outcomes:
        what = []
        if outcome["finished"] is not None:
            what.append(f"the swap of segment {outcome['finished']} was completed")
        if outcome["undone"] is not None:
            what.append(f"the swap of segment {outcome['undone']} was taken back")
        if outcome["checkpoint"] is not None:
            what.append(f"checkpoint {outcome['checkpoint']} written")
        what += [f"{name} removed" for name in outcome["removed_staging"]]
        what += [f"{name} left for the broker" for name in outcome["left_behind"]]
        name = os.path.basename(outcome["directory"])  # noqa: PTH119 - a name is all that is needed
        rows.append(
            {
                "partition": cell(name),
                "status": cell(outcome["status"], "bold red" if outcome["error"] else ""),
                "what": cell("; ".join(what)),
            }
        )
    printer.table(("partition", "status", "what"), rows, whole=("status",))
