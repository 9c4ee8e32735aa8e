"""The batches of the log by codec, their delete horizons, and the producers."""

from __future__ import annotations

from kcompact import readable
from kcompact.format.codec import Codec
from kcompact.plan.clean_plan import CleanPlan
from kcompact.questions.batch_kinds import Amount, BatchKinds
from kcompact.questions.keys.counts import KeyCounts
from kcompact.views.parts import Cell, Section, Table, lines, row

MOST_PRODUCERS = 20


def codec_section(kinds: BatchKinds) -> Section | None:
    """Return the batches by codec; None without any."""
    if not kinds.codecs:
        return None
    total_bytes = sum(each.size_bytes for each in kinds.codecs.values())
    rows = [
        (
            Cell(text=_codec_name(number)),
            Cell(text=readable.size(amount.size_bytes), share=amount.size_bytes / max(1, total_bytes)),
            *row(amount.batches, amount.records, readable.size(amount.size_bytes // max(1, amount.batches))),
        )
        for number, amount in sorted(kinds.codecs.items(), key=lambda item: -item[1].size_bytes)
    ]
    table = Table(
        caption="Batches by codec",
        columns=("codec", "bytes", "batches", "records", "bytes a batch"),
        rows=tuple(rows),
        numbers=("batches", "records", "bytes a batch"),
    )
    return Section(title="Codecs", parts=(table,))


def _codec_name(number: int) -> str:
    return Codec(number).name.lower() if number in list(Codec) else f"unknown ({number})"


def horizon_section(kinds: BatchKinds, counts: KeyCounts | None, plan: CleanPlan) -> Section:
    """Return the tombstones by state, as far as keys were counted, and the delete horizons of batches."""
    rows = []
    for horizon_ms, amount in sorted(kinds.horizons.items()):
        is_over = horizon_ms <= plan.now_ms
        rows.append(
            row(
                readable.time(horizon_ms),
                "over: the next cleaning may remove them" if is_over else "waiting",
                amount.batches,
                amount.records,
                readable.time(horizon_ms - plan.config.delete_retention_ms),
            )
        )
    table = Table(
        caption="Batches by delete horizon",
        columns=("horizon", "state", "batches", "records in them", "set by a cleaning at (hint)"),
        rows=tuple(rows),
        numbers=("batches", "records in them"),
    )
    text = (
        "A cleaning that first keeps a tombstone, or a marker that is no longer needed, sets the time from which a "
        "later cleaning may remove it: the time of the cleaning plus delete.retention.ms "
        f"({plan.config.delete_retention_ms:,}). So each horizon also says when a cleaning ran, "
        "if that setting has not changed since."
    )
    if not rows:
        text = (
            "No batch has a delete horizon. Since Kafka 3.1 a cleaning sets one at each tombstone that it keeps. So no "
            "tombstone of this log has been through a cleaning, or the log has none."
        )
    tables = (*_tombstones(counts), *((table,) if rows else ()))
    return Section(title="Tombstones and delete horizons", parts=(lines(text), *tables))


def _tombstones(counts: KeyCounts | None) -> tuple[Table, ...]:
    """Return the table of the tombstones that are the newest records of their keys; nothing without any."""
    if counts is None or not counts.latest_tombstones.number:
        return ()
    kinds = (
        ("no horizon yet: no cleaning has kept them", counts.unstamped_tombstones),
        ("waiting for their horizon", counts.waiting_tombstones),
        ("past their horizon: the next cleaning removes them", counts.expired_tombstones),
    )
    table = Table(
        caption="Tombstones that are the newest records of their keys",
        columns=("state", "tombstones", "bytes"),
        rows=tuple(row(state, tally.number, readable.size(tally.size_bytes)) for state, tally in kinds if tally.number),
        numbers=("tombstones", "bytes"),
    )
    return (table,)


def producer_section(kinds: BatchKinds, plan: CleanPlan) -> Section | None:
    """Return the producers, those with most bytes first; None for a log without producer ids."""
    amounts: dict[int, Amount] = dict(kinds.producers)
    without = amounts.pop(-1, None)
    none = Amount()
    ids = sorted({*amounts, *plan.producers}, key=lambda each: (-amounts.get(each, none).size_bytes, each))
    if not ids:
        return None
    rows = []
    for producer_id in ids[:MOST_PRODUCERS]:
        amount, state = amounts.get(producer_id), plan.producers.get(producer_id)
        rows.append(
            row(
                Cell(text=str(producer_id), is_code=True),
                state and state.epoch,
                amount and amount.batches,
                amount and amount.records,
                amount and readable.size(amount.size_bytes),
                None if state is None else readable.time(state.last_timestamp),
            )
        )
    table = Table(
        caption="Producers",
        columns=("producer id", "epoch", "batches", "records", "bytes", "last active"),
        rows=tuple(rows),
        numbers=("epoch", "batches", "records", "bytes"),
    )
    remarks = []
    if len(ids) > MOST_PRODUCERS:
        remarks.append(f"and {len(ids) - MOST_PRODUCERS:,} more producers")
    if without is not None:
        remarks.append(f"without a producer id: {without.batches:,} batches, {readable.size(without.size_bytes)}")
    return Section(title="Producers", parts=(table, lines(*remarks, is_close=True)))
