"""The transactions of a partition: how many, what they hold back, which are open, what waits for what."""

from __future__ import annotations

from collections.abc import Iterator

from kcompact import readable
from kcompact.questions.transactions.answer import (
    MarkerCounts,
    Transaction,
    TransactionEnding,
    TransactionReport,
    TransactionTotals,
)
from kcompact.readable import counted, size, time
from kcompact.views.parts import Cell, Items, Part, Section, Table, Tone, cell, lines, offset, row

MOST_SHOWN = 20
"""So many open transactions are shown; the JSON has all."""
_COLUMNS = ("state", "producer", "epoch", "coordinator", "offsets", "marker", "records", "size", "last write", "took")
_TONES = {TransactionEnding.OPEN: Tone.CAUTION, TransactionEnding.ABORTED: Tone.MUTED}


def transactions_section(report: TransactionReport) -> Section:
    """Return the totals of the transactions, and a table of those that are open, large or long."""
    parts: list[Part] = [Items(items=tuple((cell(name), line) for name, line in _facts(report)), width=12)]
    shown = [*report.open[:MOST_SHOWN], *_notable(report)]
    if shown:
        parts.append(
            Table(
                caption="Open transactions, and the largest and longest that have ended",
                columns=_COLUMNS,
                rows=tuple(_row(each, report) for each in shown),
                numbers=("producer", "epoch", "coordinator", "marker", "records", "size", "took"),
                whole=_COLUMNS,
                optional=("coordinator", "epoch", "marker"),
            )
        )
    if len(report.open) > MOST_SHOWN:
        more = f"and {len(report.open) - MOST_SHOWN:,} more open transactions; --json lists all"
        parts.append(lines(more, is_close=True))
    return Section(title="Transactions", parts=tuple(parts))


def _notable(report: TransactionReport) -> list[Transaction]:
    """Return the largest and the longest transactions that have ended, without repeats."""
    transactions_by_offset = {each.marker_offset: each for each in (*report.largest[:3], *report.longest[:3])}
    return [transactions_by_offset[offset] for offset in sorted(transactions_by_offset, key=lambda offset: offset or 0)]


def _facts(report: TransactionReport) -> Iterator[tuple[str, str]]:
    totals = report.totals
    yield "committed", _total(totals[TransactionEnding.COMMITTED])
    yield "aborted", _total(totals[TransactionEnding.ABORTED])
    emptied, gone = totals[TransactionEnding.EMPTIED].transactions, totals[TransactionEnding.GONE].transactions
    if emptied or gone:
        committed = totals[TransactionEnding.EMPTIED].committed + totals[TransactionEnding.GONE].committed
        left = f"{emptied:,} of empty batches, {gone:,} of the marker alone"
        aborted = emptied + gone - committed
        yield "empty", f"{emptied + gone:,}: {left}; {committed:,} committed, {aborted:,} aborted"
    hanging = len(report.hanging)
    yield "open", _total(totals[TransactionEnding.OPEN]) + (f", {hanging:,} hanging" if hanging else "")
    yield "last stable", _stable(report)
    of_broker = counted(len(report.producers), "producer")
    yield "producers", f"{report.producer_ids:,} with transactions in the log; a broker has {of_broker}"
    if report.markers != MarkerCounts():
        yield "markers", _markers(report.markers)
    if report.tombstones.total:
        yield "tombstones", _tombstones(report)
    if report.counted_to_offset < report.log_end_offset:
        end = report.log_end_offset
        yield "read", f"up to offset {report.counted_to_offset}, because of damage; the log ends at {end}"


def _total(totals: TransactionTotals) -> str:
    if not totals.transactions:
        return "0"
    amounts = f"{totals.transactions:,}: {counted(totals.records, 'record')}, {size(totals.size_bytes)}"
    return amounts + (f", the longest took {readable.duration(totals.longest_ms)}" if totals.longest_ms else "")


def _stable(report: TransactionReport) -> str:
    held, stable = report.held_back, report.last_stable_offset
    if stable >= report.high_watermark:
        if report.high_watermark < report.log_end_offset:
            return (
                f"{stable}, the high watermark: no transaction holds it back; the log ends at {report.log_end_offset}"
            )
        return f"{stable}, the high watermark: nothing is held back"
    end = f"{stable}, below the high watermark {report.high_watermark}: "
    end += (
        f"{counted(held.records, 'record')}, {size(held.size_bytes)}, are held back from readers of committed records"
    )
    if held.segments:
        end += f"; {counted(len(held.segments), 'segment')}, {size(held.segment_bytes)}, cannot be cleaned"
    return end


def _markers(counts: MarkerCounts) -> str:
    kinds = (
        (counts.with_data, "until the data of their transactions is gone"),
        (counts.unstamped, "to get a horizon in the next cleaning"),
        (counts.uncleanable, "until their segments can be cleaned"),
        (counts.waiting, f"until a horizon, {_horizons(counts.first_horizon_ms, counts.last_horizon_ms)}"),
        (counts.expired, "to go with the next cleaning"),
        (counts.emptied, "empty already"),
    )
    line = "; ".join(f"{count:,} {what}" for count, what in kinds if count)
    if counts.kept_for_producers:
        until = time(counts.kept_until_ms)
        line += f"; {counts.kept_for_producers:,} of these kept as the last of a producer, until {until} at the latest"
    return line


def _tombstones(report: TransactionReport) -> str:
    counts = report.tombstones
    kinds = (
        (counts.unstamped, "to get a horizon in the next cleaning"),
        (counts.uncleanable, "until their segments can be cleaned"),
        (counts.legacy, "of an old format, to go by the age of the clean section"),
        (counts.waiting, f"until a horizon, {_horizons(counts.first_horizon_ms, counts.last_horizon_ms)}"),
        (counts.expired, "to go with the next cleaning"),
    )
    line = "; ".join(f"{count:,} {what}" for count, what in kinds if count)
    return f"{counts.total:,}, superseded ones included: {line}"


def _horizons(first_ms: int | None, last_ms: int | None) -> str:
    return time(first_ms) if first_ms == last_ms else f"{time(first_ms)} to {time(last_ms)}"


def _row(transaction: Transaction, report: TransactionReport) -> tuple[Cell, ...]:
    state = "hanging" if transaction.is_hanging else str(transaction.state)
    if transaction.is_known_to_broker is False:
        state = "forgotten"
    took_ms = transaction.duration_ms
    if transaction.state is TransactionEnding.OPEN:
        first_ms = transaction.first_timestamp_ms
        took_ms = None if first_ms is None or first_ms < 0 else report.now_ms - first_ms
    return row(
        Cell(text=state, tone=Tone.BAD if transaction.is_hanging else _TONES.get(transaction.state)),
        offset(transaction.producer_id),
        offset(transaction.producer_epoch),
        offset(transaction.coordinator_epoch),
        f"{transaction.first_offset} to {transaction.last_offset}",
        offset(transaction.marker_offset),
        transaction.records,
        None if transaction.size_bytes is None else size(transaction.size_bytes),
        time(transaction.last_timestamp_ms),
        None if took_ms is None else readable.duration(took_ms),
    )
