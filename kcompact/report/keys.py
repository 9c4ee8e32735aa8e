"""The keys: versions of each, what the records are, the keys and prefixes that take most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kcompact import readable
from kcompact.report import drawing, times
from kcompact.report.facts import PartitionFacts
from kcompact.report.parts import Cell, Row, Section, Table, cells, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from kcompact.keys.counts import KeyCounts, LogKeys, NamedKey, PrefixKeys, VersionsBin

CLASSES = {
    "live_keys": "live keys",
    "superseded_records": "superseded",
    "unstamped_tombstones": "tombstones without a delete horizon",
    "waiting_tombstones": "tombstones before their horizon",
    "expired_tombstones": "tombstones past their horizon",
    "null_key_records": "without a key",
    "control_records": "transaction markers",
    "aborted_records": "aborted",
    "undecided_records": "at or above the last stable offset",
    "below_start_records": "below the log start",
}
"""The classes of records: each record is in one of them."""


def keys_section(facts: PartitionFacts, name: str, *, print_data: bool) -> Section | None:
    """Return the section about the keys; None if none was counted."""
    keys = facts.keys
    if keys is None or not keys.counts.records.number:
        return None
    versions = [each for each in keys.versions if each.keys]
    texts = [_summary(keys)]
    if keys.problem is not None:
        texts.append(f"Counted up to offset {keys.counted_to_offset}, where the log is damaged.")
    figure = None
    if versions:
        figure = drawing.figure(
            f"{name}-versions",
            "Versions of each key",
            "; ".join(f"{_range(each)}: {each.keys:,} keys, {each.records:,} records" for each in versions),
            lambda axes, is_narrow: _draw_versions(axes, versions, is_narrow=is_narrow),
            bottom_px=56,
        )
    tables = [_class_table(keys.counts)]
    if keys.most_bytes:
        tables.append(_key_table(keys.most_bytes, print_data=print_data))
    if keys.prefixes is not None and any(each.prefix is not None for each in keys.prefixes.most_bytes):
        tables.append(_prefix_table(keys, print_data=print_data))
    return Section(
        title="Keys",
        text=tuple(texts),
        figure=figure,
        beside=_versions_table(versions) if versions else None,
        tables=tuple(tables),
        remarks=() if print_data else ("Keys and prefixes are shown as the beginning of their SHA-256.",),
    )


def _summary(keys: LogKeys) -> str:
    counts = keys.counts
    factor = counts.duplicate_factor
    each = "" if factor is None else f", {factor:.2f} records for each key"
    return (
        f"As a read_committed reader sees the log: {counts.data_records.number:,} records, "
        f"{readable.counted(keys.keys, 'key')}, {counts.live_keys.number:,} of them live{each}."
    )


def _range(each: VersionsBin) -> str:
    return f"{each.least:,}" if each.least == each.most else f"{each.least:,} to {each.most:,}"


def _draw_versions(axes: Axes, versions: Sequence[VersionsBin], *, is_narrow: bool) -> None:
    keys, records = sum(each.keys for each in versions), sum(each.records for each in versions)
    places = range(len(versions))
    width = 0.38
    for offset, parts, colour in (
        (-width / 2, [100 * each.keys / keys for each in versions], drawing.CLEAN),
        (width / 2, [100 * each.records / records for each in versions], drawing.DIRTY),
    ):
        axes.bar([place + offset for place in places], parts, width=width, color=colour, edgecolor=drawing.PAPER)
    every = -(-len(versions) // (5 if is_narrow else 12))
    names = [f"{each.least:,}{'' if each.least == each.most else '+'}" for each in versions]
    axes.set_xticks(list(places)[::every], names[::every], parse_math=False)
    axes.set_xlabel("versions of a key", parse_math=False)
    axes.set_xlim(-0.6, len(versions) - 0.4)
    drawing.percent_axis(axes.yaxis)


def _versions_table(versions: Sequence[VersionsBin]) -> Table:
    keys, records = sum(each.keys for each in versions), sum(each.records for each in versions)
    rows = [
        cells(
            _range(each),
            Cell(text=f"{each.keys:,}"),
            percent(each.keys, keys),
            Cell(text=f"{each.records:,}"),
            percent(each.records, records),
        )
        for each in versions
    ]
    head = cells("", Cell(text="", swatch="clean"), "", Cell(text="", swatch="dirty"), "")
    return Table(
        caption="Versions of each key",
        columns=("versions", "keys", "of keys", "records", "of records"),
        rows=(head, *rows),
        numbers=frozenset({"keys", "of keys", "records", "of records"}),
    )


def _class_table(counts: KeyCounts) -> Table:
    whole = counts.records.size_bytes
    rows: list[Row] = []
    for name, words in CLASSES.items():
        tally = getattr(counts, name)
        if tally.number:
            size = Cell(text=readable.size(tally.size_bytes), share=tally.size_bytes / max(1, whole))
            rows.append((*cells(words), size, *cells(tally.number, percent(tally.size_bytes, whole))))
    return Table(
        caption="What the records are; their bytes are uncompressed",
        columns=("class", "bytes", "records", "share"),
        rows=tuple(rows),
        numbers=frozenset({"records", "share"}),
    )


def _key_table(keys: Sequence[NamedKey], *, print_data: bool) -> Table:
    rows = [
        cells(
            _shown(each.key, print_data=print_data),
            readable.size(each.size_bytes),
            each.versions,
            str(each.offset),
            times.second(each.timestamp_ms),
            "tombstone" if each.is_tombstone else readable.size(each.latest_bytes),
        )
        for each in keys
    ]
    return Table(
        caption="The keys with most bytes",
        columns=("key", "bytes", "versions", "newest offset", "newest time", "newest"),
        rows=tuple(rows),
        numbers=frozenset({"bytes", "versions", "newest offset", "newest"}),
    )


def _prefix_table(keys: LogKeys, *, print_data: bool) -> Table:
    assert keys.prefixes is not None
    whole = max(1, keys.counts.data_records.size_bytes)
    rows = [_prefix_row(each, whole, print_data=print_data) for each in keys.prefixes.most_bytes]
    more = keys.prefixes.count - len(rows)
    caption = f"Bytes by key prefix; {more:,} more prefixes" if more > 0 else "Bytes by key prefix"
    return Table(
        caption=caption,
        columns=("prefix", "bytes", "records", "keys", "live keys", "live bytes"),
        rows=tuple(rows),
        numbers=frozenset({"records", "keys", "live keys", "live bytes"}),
    )


def _prefix_row(each: PrefixKeys, whole_bytes: int, *, print_data: bool) -> Row:
    size_bytes = each.records.size_bytes
    return (
        *cells("without" if each.prefix is None else _shown(each.prefix, print_data=print_data)),
        Cell(text=readable.size(size_bytes), share=size_bytes / whole_bytes),
        *cells(each.records.number, each.keys, each.live_keys.number, readable.size(each.live_keys.size_bytes)),
    )


_MOST_CHARS = 60


def _shown(key: bytes, *, print_data: bool) -> Cell:
    """Return a key, or only its hash."""
    from kcompact.keys.counts import key_hash

    if not print_data:
        return Cell(text=key_hash(key), is_code=True)
    text = readable.shown(key[: 4 * _MOST_CHARS].decode("utf-8", "surrogateescape"))
    return Cell(text=text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]}…", is_code=True)
