"""The transactions of a log: how they ended, which are open, what they hold back, what their markers wait for."""

from __future__ import annotations

from kcompact import readable
from kcompact.inspect.transaction_report import MarkerCounts, Transaction, TransactionReport
from kcompact.report import times
from kcompact.report.facts import PartitionFacts
from kcompact.report.parts import Illustrated, page_section
from kcompact.views.parts import Cell, Section, Table, Tone, row

MOST_OPEN = 20
_NUMBERS = frozenset({"transactions", "records", "size", "producer", "epoch", "first offset"})


def transaction_section(facts: PartitionFacts) -> Section | Illustrated | None:
    """Return the section about transactions; None for a log without any."""
    report = facts.transactions
    if report is None or not report.producer_ids:
        return None
    ended = Table(
        caption="How transactions ended",
        columns=("state", "transactions", "records", "size", "longest"),
        rows=tuple(
            row(
                str(state),
                totals.transactions,
                totals.records,
                readable.size(totals.size_bytes),
                readable.duration(totals.longest_ms) if totals.longest_ms else None,
            )
            for state, totals in report.totals.items()
            if totals.transactions
        ),
        numbers=_NUMBERS,
    )
    tables = [ended]
    if report.open:
        tables.append(_open_table(report))
    if rows := _marker_rows(report.markers):
        tables.append(Table(caption="What markers wait for", columns=("wait for", "markers"), rows=rows))
    texts = [_stable(report)]
    if report.counted_to_offset < report.log_end_offset:
        texts.append(f"Read up to offset {report.counted_to_offset}, because of damage.")
    more = len(report.open) - MOST_OPEN
    remarks = (f"and {more:,} more open transactions",) if more > 0 else ()
    return page_section(title="Transactions", text=tuple(texts), tables=tuple(tables), remarks=remarks)


def _stable(report: TransactionReport) -> str:
    held, stable = report.held_back, report.last_stable_offset
    if stable >= report.high_watermark and report.high_watermark < report.log_end_offset:
        return (
            f"The last stable offset is the high watermark {stable}: no transaction holds it back. The log ends at "
            f"{report.log_end_offset}."
        )
    if stable >= report.high_watermark:
        return f"The last stable offset is the high watermark {stable}: nothing is held back."
    text = (
        f"An open transaction holds the last stable offset at {stable}, below the high watermark "
        f"{report.high_watermark}: {readable.counted(held.records, 'record')}, {readable.size(held.size_bytes)}, are "
        "not seen by readers of committed records"
    )
    if held.segments:
        segments = readable.counted(len(held.segments), "segment")
        text += f", and {segments}, {readable.size(held.segment_bytes)}, cannot be cleaned"
    return f"{text}."


def _open_table(report: TransactionReport) -> Table:
    return Table(
        caption="Open transactions",
        columns=("state", "producer", "epoch", "first offset", "records", "size", "first write", "last write"),
        rows=tuple(_open_row(each) for each in report.open[:MOST_OPEN]),
        numbers=_NUMBERS,
    )


def _open_row(transaction: Transaction) -> tuple[Cell, ...]:
    state, tone = ("hanging", Tone.BAD) if transaction.is_hanging else ("open", Tone.CAUTION)
    if transaction.is_known_to_broker is False:
        state, tone = "forgotten by the broker", Tone.MUTED
    return row(
        Cell(text=state, tone=tone),
        str(transaction.producer_id),
        transaction.producer_epoch,
        str(transaction.first_offset),
        transaction.records,
        None if transaction.size_bytes is None else readable.size(transaction.size_bytes),
        times.second(transaction.first_timestamp_ms),
        times.second(transaction.last_timestamp_ms),
    )


def _marker_rows(markers: MarkerCounts) -> tuple[tuple[Cell, ...], ...]:
    last = readable.time(markers.last_horizon_ms)
    kinds = (
        ("the data of their transactions to go", markers.with_data),
        ("the next cleaning, which sets a horizon", markers.unstamped),
        ("their segments to be cleanable", markers.uncleanable),
        (f"their horizon, the last {last}", markers.waiting),
        ("the next cleaning, which removes them", markers.expired),
        ("nothing: they are empty", markers.emptied),
    )
    return tuple(row(what, count) for what, count in kinds if count)
