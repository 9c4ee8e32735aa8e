"""The keys of a log: what the records are, versions and ages of keys, the keys and prefixes that take most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kcompact import readable
from kcompact.plan.clean_plan import CleanPlan
from kcompact.questions.keys.counts import (
    AgeBin,
    CountedKeys,
    KeyCounts,
    LogKeys,
    NamedKey,
    PrefixKeys,
    Tally,
    key_hash,
)
from kcompact.views.parts import Cell, Lines, Part, Section, Table, lines, offset, row

CLASSES = {
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

VERSIONS = "Versions of each key"
"""The caption of the table that a page shows beside its figure."""
_KEY_CHARS = 80
"""So much of a key is shown, else one long key makes all lines of a table as long. The JSON has the whole key."""


def keys_section(keys: LogKeys, *, older_than_ms: int | None = None, print_data: bool) -> Section:
    """Return the counts of one partition. `older_than_ms` is the age that was asked for.

    Without `print_data` a key is named by the beginning of its SHA-256.
    """
    return Section(title="Keys", parts=tuple(_parts(keys, older_than_ms, print_data=print_data)))


def _parts(keys: LogKeys, older_than_ms: int | None, *, print_data: bool) -> Iterator[Part]:
    damage = f"counted up to offset {keys.counted_to_offset}, where the log is damaged"
    yield lines(_summary(keys.counts, keys.keys), *([damage] if keys.problem is not None else []))
    yield from _classes(keys.counts)
    if len(keys.sections) > 1:
        yield _sections(keys)
    if keys.versions:
        yield from _histograms(keys)
    yield from _named("most versions", keys.most_versions, print_data=print_data)
    yield from _named("most bytes", keys.most_bytes, print_data=print_data)
    if keys.prefixes is not None:
        yield from _prefixes(keys, print_data=print_data)
    if keys.old is not None and older_than_ms is not None:
        old_keys = f"{readable.counted(keys.old.number, 'live key')}, {readable.size(keys.old.size_bytes)}"
        yield lines(f"newest record older than {readable.duration(older_than_ms)}: {old_keys}")
        yield from _named("oldest", keys.oldest, print_data=print_data)


def undecided(keys: LogKeys, plan: CleanPlan) -> Lines:
    """Return why readers of committed records do not see the end of the log."""
    end = f"the high watermark is {plan.high_watermark}, the log end {plan.log.log_end_offset}"
    return lines(f"readers of committed records see the log up to offset {keys.committed_end_offset}; {end}")


def topic_section(counted: CountedKeys, *, incomplete: Sequence[str], print_data: bool) -> Section:
    """Return the counts of several partitions of a topic together. `incomplete` are those that are not counted."""
    parts: list[Part] = []
    facts = [_summary(counted.counts, counted.distinct_keys)]
    if incomplete:
        names = readable.some_of(incomplete)
        facts.append(f"incomplete: {names} could not be counted, or only up to the damage")
    parts += [lines(*facts), *_classes(counted.counts)]
    if not counted.shared_keys:
        parts.append(lines("no key is in several partitions", is_close=True))
    else:
        several = f"{readable.counted(counted.shared_keys, 'key')} in several partitions"
        why = "their number was changed, or a producer chose the partition itself"
        parts.append(lines(f"{several}: {why}", is_close=True))
        if counted.most_shared:
            parts.append(_shared(counted, print_data=print_data))
    return Section(title="Keys of all partitions", parts=tuple(parts))


def _summary(counts: KeyCounts, keys: int) -> str:
    factor = counts.duplicate_factor
    per_key = "" if factor is None else f", {factor:.2f} records for each key"
    live = f"{readable.counted(keys, 'key')} ({counts.live_keys.number:,} live)"
    return f"{readable.counted(counts.data_records.number, 'record')}, {live}{per_key}"


def _classes(counts: KeyCounts) -> Iterator[Part]:
    whole = counts.records.size_bytes
    rows = []
    for label, name in CLASSES.items():
        tally: Tally = getattr(counts, name)
        if tally.number or name in ("live_keys", "superseded_records"):
            size = Cell(text=readable.size(tally.size_bytes), share=tally.size_bytes / max(1, whole))
            rows.append(row(label, tally.number, size, readable.percent(tally.size_bytes, whole)))
    rows.append(row("all records", counts.records.number, readable.size(whole), readable.percent(whole, whole)))
    yield Table(
        caption="What the records are; their bytes are uncompressed",
        columns=("what", "number", "bytes", "share"),
        rows=tuple(rows),
        numbers=("number", "bytes", "share"),
    )
    empty = counts.empty_batches
    of_empty = f", {empty.number:,} of them empty ({readable.size(empty.size_bytes)})" if empty.number else ""
    on_disk = f"{readable.size(counts.batches.size_bytes)} on the disk"
    yield lines(f"{readable.counted(counts.batches.number, 'batch', 'batches')}{of_empty}, {on_disk}", is_close=True)


def _sections(keys: LogKeys) -> Table:
    columns = ("section", "segments", "live keys", "live", "superseded", "superseded bytes", "tombstones", "other")
    rows = []
    for role, counts in keys.sections.items():
        tombstones = counts.latest_tombstones.number
        known = counts.live_keys.number + counts.superseded_records.number + tombstones
        rows.append(
            row(
                Cell(text=role, role=role),
                sum(each.role is role for each in keys.segments),
                counts.live_keys.number,
                readable.size(counts.live_keys.size_bytes),
                counts.superseded_records.number,
                readable.size(counts.superseded_records.size_bytes),
                tombstones,
                counts.records.number - known,
            )
        )
    return Table(
        caption="Sections of the log",
        columns=columns,
        rows=tuple(rows),
        numbers=columns[1:],
        whole=("section",),
        optional=("other", "segments"),
    )


def _histograms(keys: LogKeys) -> Iterator[Table]:
    of_keys, of_records = sum(each.keys for each in keys.versions), sum(each.records for each in keys.versions)
    yield Table(
        caption=VERSIONS,
        columns=("versions of a key", "keys", "records"),
        rows=tuple(
            row(
                readable.span(each.least, each.most),
                Cell(text=f"{each.keys:,}", share=each.keys / of_keys),
                Cell(text=f"{each.records:,}", share=each.records / of_records),
            )
            for each in keys.versions
            if each.keys
        ),
        numbers=("keys", "records"),
    )
    ages = tuple(
        row(_age_label(each, before), each.live_keys.number, readable.size(each.live_keys.size_bytes))
        for each, before in zip(keys.ages, (None, *keys.ages), strict=False)
        if each.live_keys.number
    )
    if ages:
        columns = ("age of a live key", "keys", "bytes")
        yield Table(caption="Ages of the live keys", columns=columns, rows=ages, numbers=("keys", "bytes"))


def _age_label(each: AgeBin, before: AgeBin | None) -> str:
    if each.kind == "future":
        return "after --now"
    if each.kind == "unknown":
        return "no timestamp"
    if each.below_ms is None:
        return f"{readable.duration(before.below_ms or 0)} or more" if before is not None else "any"
    return f"less than {readable.duration(each.below_ms)}"


def _named(label: str, keys: Sequence[NamedKey], *, print_data: bool) -> Iterator[Table]:
    if not keys:
        return
    columns = (f"key, {label}", "versions", "bytes", "newest offset", "newest time", "newest")
    yield Table(
        caption=f"Keys with {label}" if label != "oldest" else "The oldest keys",
        columns=columns,
        rows=tuple(
            row(
                _shown(each.key, print_data=print_data),
                each.versions,
                readable.size(each.size_bytes),
                offset(each.offset),
                readable.time(each.timestamp_ms),
                "tombstone" if each.is_tombstone else readable.size(each.latest_bytes),
            )
            for each in keys
        ),
        numbers=("versions", "bytes", "newest offset", "newest"),
        # A hash is never folded, because one wants to copy it.
        whole=("newest time",) if print_data else columns,
        optional=("newest time", "newest offset", "newest"),
    )


def _prefixes(keys: LogKeys, *, print_data: bool) -> Iterator[Part]:
    prefixes = keys.prefixes
    assert prefixes is not None
    more = "" if prefixes.is_complete else " or more, too many to count each exactly"
    counted = readable.counted(prefixes.count, "prefix", "prefixes")
    yield lines(f"{counted}{more}; keys without a separator count as one")
    whole_bytes = keys.counts.data_records.size_bytes
    for label, listed in (("most records", prefixes.most_records), ("most bytes", prefixes.most_bytes)):
        if not listed:
            continue
        columns = (f"prefix, {label}", "keys", "live keys", "records", "bytes", "live")
        yield Table(
            caption=f"Key prefixes with {label}",
            columns=columns,
            rows=tuple(_prefix_row(each, whole_bytes, print_data=print_data) for each in listed),
            numbers=columns[1:],
            whole=() if print_data else columns,
            optional=columns[3:],
        )


def _prefix_row(each: PrefixKeys, whole_bytes: int, *, print_data: bool) -> tuple[Cell, ...]:
    size_bytes = each.records.size_bytes
    return row(
        "(no separator)" if each.prefix is None else _shown(each.prefix, print_data=print_data),
        each.keys,
        each.live_keys.number,
        each.records.number,
        Cell(text=readable.size(size_bytes), share=size_bytes / max(1, whole_bytes)),
        readable.size(each.live_keys.size_bytes),
    )


def _shared(counted: CountedKeys, *, print_data: bool) -> Table:
    return Table(
        caption="Keys in several partitions",
        columns=("key", "versions", "bytes", "partitions"),
        rows=tuple(
            row(
                _shown(each.key, print_data=print_data),
                each.versions,
                readable.size(each.size_bytes),
                ", ".join(directory.name for directory in each.directories),
            )
            for each in counted.most_shared
        ),
        numbers=("versions", "bytes"),
        whole=() if print_data else ("key",),
        is_close=True,
    )


def _shown(key: bytes, *, print_data: bool) -> Cell:
    """Return a key, or only the beginning of its hash."""
    if not print_data:
        return Cell(text=key_hash(key), is_code=True)
    return Cell(text=readable.safe(key, max_chars=_KEY_CHARS) if key else "(empty)", is_code=bool(key))
