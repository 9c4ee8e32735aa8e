"""Prints the counts of `keys` for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kcompact import readable
from kcompact.cli.output import text
from kcompact.cli.output.inspection import show_notes
from kcompact.cli.output.lists import some_of
from kcompact.cli.output.log_bar import ROLE_STYLES
from kcompact.cli.output.printer import Printer, cell
from kcompact.keys.counts import AgeBin, KeyCounts, LogKeys, NamedKey, PrefixKeys, Tally, key_hash

if TYPE_CHECKING:
    from kcompact.cli.entries import KeysEntry, TopicKeys
    from kcompact.plan.clean_plan import CleanPlan

_CLASSES = {
    "live keys": "live_keys",
    "superseded records": "superseded_records",
    "tombstones, no delete horizon yet": "unstamped_tombstones",
    "tombstones before their delete horizon": "waiting_tombstones",
    "tombstones after their delete horizon": "expired_tombstones",
    "records without a key": "null_key_records",
    "transaction markers": "control_records",
    "aborted records": "aborted_records",
    "at or above the last stable offset": "undecided_records",
    "below the log start": "below_start_records",
}
"""The classes of records: each record is in one of them."""

_KEY_CHARS = 80
"""So much of a key is shown, else one long key makes all lines of a table as long. The JSON has the whole key."""
_LESS = ("newest time", "newest offset", "newest")
"""What a narrow terminal does not show of a key."""
_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000


def show_keys(topics: Sequence[TopicKeys], older_than_ms: int | None, *, print_data: bool) -> None:
    """Print each partition, and each topic with several partitions. `older_than_ms` is the age that was asked for."""
    printer = Printer()
    is_first = True
    for topic in topics:
        for entry in topic.entries:
            if not is_first:
                printer.line()
            is_first = False
            printer.line(cell(entry.name, "bold").append(f"  {text.path(entry.directory)}", style="dim"))
            if entry.keys is None:
                printer.line(f"  not counted: {_first_line(entry)}")
            else:
                _show_partition(entry.keys, older_than_ms, printer, print_data=print_data)
                if entry.plan is not None and entry.keys.counts.undecided_records.number:
                    printer.line()
                    _show_undecided(entry.keys, entry.plan, printer)
        if len(topic.entries) > 1 and topic.counted.logs:
            printer.line()
            _show_topic(topic, printer, print_data=print_data)


def _first_line(entry: KeysEntry) -> str:
    """Return the error of a partition without the next command. The whole of it is on standard error."""
    message = text.relative_to_here(str(entry.error)) if entry.error is not None else "nothing can be read"
    return message.split("\n")[0]


def _show_partition(keys: LogKeys, older_than_ms: int | None, printer: Printer, *, print_data: bool) -> None:
    counts = keys.counts
    printer.line(f"  {_summary(counts, keys.keys)}")
    if keys.problem is not None:
        printer.line(f"  counted up to offset {keys.counted_to_offset}, where the log is damaged")
    printer.line()
    _show_classes(counts, printer)
    if len(keys.sections) > 1:
        printer.line()
        _show_sections(keys, printer)
    if keys.versions:
        printer.line()
        _show_histograms(keys, printer)
    _show_named("most versions", keys.most_versions, printer, print_data=print_data)
    _show_named("most bytes", keys.most_bytes, printer, print_data=print_data)
    if keys.prefixes is not None:
        _show_prefixes(keys, printer, print_data=print_data)
    if keys.old is not None and older_than_ms is not None:
        printer.line()
        age = _duration(older_than_ms)
        found = f"{readable.counted(keys.old.number, 'live key')}, {readable.size(keys.old.size_bytes)}"
        printer.line(f"  newest record older than {age}: {found}")
        _show_named("oldest", keys.oldest, printer, print_data=print_data)


def _summary(counts: KeyCounts, keys: int) -> str:
    records = counts.data_records.number
    factor = counts.duplicate_factor
    per_key = "" if factor is None else f", {factor:.2f} records for each key"
    live = f"{readable.counted(keys, 'key')} ({counts.live_keys.number:,} live)"
    return f"{readable.counted(records, 'record')}, {live}{per_key}"


def _show_classes(counts: KeyCounts, printer: Printer) -> None:
    whole = counts.records.size_bytes
    rows = []
    for label, name in _CLASSES.items():
        tally: Tally = getattr(counts, name)
        if tally.number or name in ("live_keys", "superseded_records"):
            share = f"{100 * tally.size_bytes / whole:.1f} %" if whole else "-"
            rows.append((label, f"{tally.number:,}", readable.size(tally.size_bytes), share))
    rows.append(("all records", f"{counts.records.number:,}", readable.size(whole), "100.0 %" if whole else "-"))
    _table(printer, ("what", "number", "bytes", "share"), rows, numbers=("number", "bytes", "share"))
    empty = counts.empty_batches
    of_empty = f", {empty.number:,} of them empty ({readable.size(empty.size_bytes)})" if empty.number else ""
    on_disk = f"{readable.size(counts.batches.size_bytes)} on the disk"
    printer.line(f"  {counts.batches.number:,} batches{of_empty}, {on_disk}")


def _show_undecided(keys: LogKeys, plan: CleanPlan, printer: Printer) -> None:
    """Print why readers of committed records do not see the end of the log."""
    end = f"the high watermark is {plan.high_watermark}, the log end {plan.log.log_end_offset}"
    printer.line(f"  readers of committed records see the log up to offset {keys.committed_end_offset}; {end}")
    show_notes(plan, printer)


def _show_sections(keys: LogKeys, printer: Printer) -> None:
    columns = ("section", "segments", "live keys", "live", "superseded", "superseded bytes", "tombstones", "other")
    rows = []
    for role, counts in keys.sections.items():
        tombstones = counts.latest_tombstones.number
        known = counts.live_keys.number + counts.superseded_records.number + tombstones
        rows.append(
            {
                "section": cell(role, ROLE_STYLES[role]),
                "segments": cell(sum(each.role is role for each in keys.segments)),
                "live keys": cell(f"{counts.live_keys.number:,}"),
                "live": cell(readable.size(counts.live_keys.size_bytes)),
                "superseded": cell(f"{counts.superseded_records.number:,}"),
                "superseded bytes": cell(readable.size(counts.superseded_records.size_bytes)),
                "tombstones": cell(f"{tombstones:,}"),
                "other": cell(f"{counts.records.number - known:,}"),
            }
        )
    printer.table(columns, rows, numbers=columns[1:], whole=("section",), optional=("other", "segments"))


def _show_histograms(keys: LogKeys, printer: Printer) -> None:
    rows = [
        (_range(each.least, each.most), f"{each.keys:,}", f"{each.records:,}") for each in keys.versions if each.keys
    ]
    _table(printer, ("versions of a key", "keys", "records"), rows, numbers=("keys", "records"))
    ages = [
        (_age_label(each, before), f"{each.live_keys.number:,}", readable.size(each.live_keys.size_bytes))
        for each, before in zip(keys.ages, (None, *keys.ages), strict=False)
        if each.live_keys.number
    ]
    if ages:
        printer.line()
        _table(printer, ("age of a live key", "keys", "bytes"), ages, numbers=("keys", "bytes"))


def _range(least: int, most: int) -> str:
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _age_label(each: AgeBin, before: AgeBin | None) -> str:
    if each.kind == "future":
        return "after --now"
    if each.kind == "unknown":
        return "no timestamp"
    if each.below_ms is None:
        return f"{_duration(before.below_ms or 0)} or more" if before is not None else "any"
    return f"less than {_duration(each.below_ms)}"


def _duration(duration_ms: int) -> str:
    if duration_ms and duration_ms % _DAY_MS == 0:
        return readable.counted(duration_ms // _DAY_MS, "day")
    if duration_ms and duration_ms % _HOUR_MS == 0:
        return readable.counted(duration_ms // _HOUR_MS, "hour")
    return f"{duration_ms / 1000:,g} s"


def _show_named(label: str, keys: Sequence[NamedKey], printer: Printer, *, print_data: bool) -> None:
    if not keys:
        return
    rows = [
        (
            _shown(each.key, print_data=print_data),
            f"{each.versions:,}",
            readable.size(each.size_bytes),
            str(each.offset),
            readable.time(each.timestamp_ms),
            "tombstone" if each.is_tombstone else readable.size(each.latest_bytes),
        )
        for each in keys
    ]
    columns = (f"key, {label}", "versions", "bytes", "newest offset", "newest time", "newest")
    numbers = ("versions", "bytes", "newest offset", "newest")
    printer.line()
    _table(
        printer, columns, rows, numbers=numbers, whole=columns if not print_data else ("newest time",), optional=_LESS
    )


def _show_prefixes(keys: LogKeys, printer: Printer, *, print_data: bool) -> None:
    prefixes = keys.prefixes
    assert prefixes is not None
    printer.line()
    more = "" if prefixes.is_complete else " or more, too many to count each exactly"
    prefix = "prefix" if prefixes.count == 1 else "prefixes"
    printer.line(f"  {prefixes.count:,} {prefix}{more}; keys without a separator count as one")
    for label, listed in (("most records", prefixes.most_records), ("most bytes", prefixes.most_bytes)):
        printer.line()
        rows = [_prefix_row(each, print_data=print_data) for each in listed]
        columns = (f"prefix, {label}", "keys", "live keys", "records", "bytes", "live")
        _table(printer, columns, rows, numbers=columns[1:], whole=() if print_data else columns, optional=columns[3:])


def _prefix_row(each: PrefixKeys, *, print_data: bool) -> tuple[str, ...]:
    return (
        "(no separator)" if each.prefix is None else _shown(each.prefix, print_data=print_data),
        f"{each.keys:,}",
        f"{each.live_keys.number:,}",
        f"{each.records.number:,}",
        readable.size(each.records.size_bytes),
        readable.size(each.live_keys.size_bytes),
    )


def _show_topic(topic: TopicKeys, printer: Printer, *, print_data: bool) -> None:
    counted = topic.counted
    of_all = "" if len(counted.logs) == len(topic.entries) else f" of {len(topic.entries):,}"
    printer.line(cell(topic.topic, "bold").append(f"  {len(counted.logs):,}{of_all} partitions", style="dim"))
    printer.line(f"  {_summary(counted.counts, counted.distinct_keys)}")
    if topic.incomplete:
        names = some_of([entry.name for entry in topic.incomplete])
        printer.line(f"  incomplete: {names} could not be counted, or only up to the damage")
    printer.line()
    _show_classes(counted.counts, printer)
    if not counted.shared_keys:
        printer.line("  no key is in several partitions")
        return
    printer.line(
        f"  {readable.counted(counted.shared_keys, 'key')} in several partitions: their number was changed, "
        "or a producer chose the partition itself"
    )
    rows = [
        (
            _shown(each.key, print_data=print_data),
            f"{each.versions:,}",
            readable.size(each.size_bytes),
            ", ".join(directory.name for directory in each.directories),
        )
        for each in counted.most_shared
    ]
    whole = () if print_data else ("key",)
    _table(printer, ("key", "versions", "bytes", "partitions"), rows, numbers=("versions", "bytes"), whole=whole)


def _shown(key: bytes, *, print_data: bool) -> str:
    if not print_data:
        return key_hash(key)
    return text.safe(key, max_chars=_KEY_CHARS) if key else "(empty)"


def _table(
    printer: Printer,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: Sequence[str],
    whole: Sequence[str] = (),
    optional: Sequence[str] = (),
) -> None:
    """Print a table whose first columns are names. A hash is never folded, because one wants to copy it."""
    if rows:
        cells = [dict(zip(columns, map(cell, row), strict=True)) for row in rows]
        printer.table(columns, cells, numbers=numbers, whole=whole, optional=optional)
