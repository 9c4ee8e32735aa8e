"""`inspect --gaps` and `--transactions`: what happened to a partition."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from kcompact.cli.entries import InspectedPartition
from kcompact.cli.output.reading import bar_of


def added(entry: InspectedPartition, history: Collection[str], memory_bytes: int) -> InspectedPartition:
    """Return the entry of a partition that has a plan, with what is asked for: `gaps`, `transactions`.

    Raises StorageError.
    """
    plan = entry.plan
    assert plan is not None
    if "gaps" in history:
        from kcompact.inspect.gaps import log_gaps

        with bar_of(entry.directory, plan.log.size_bytes) as advance:
            gaps = log_gaps(plan, contents=entry.contents, memory_bytes=memory_bytes, advance=advance)
        entry = replace(entry, gaps=gaps, error=entry.error or gaps.damage)
    if "transactions" in history:
        from kcompact.inspect.transaction_report import log_transaction_report

        with bar_of(entry.directory, plan.log.size_bytes) as advance:
            report = log_transaction_report(plan, memory_bytes=memory_bytes, advance=advance)
        entry = replace(entry, transactions=report, error=entry.error or report.damage)
    return entry


def fields(entry: InspectedPartition, history: Collection[str]) -> dict[str, Any]:
    """Return what is asked for as JSON has it: null for a partition that could not be read."""
    found: dict[str, Any] = {}
    if "gaps" in history:
        from kcompact.cli.output.gaps import gaps_fields

        found["gaps"] = gaps_fields(entry.gaps) if entry.gaps else None
    if "transactions" in history:
        from kcompact.cli.output.transactions import transactions_fields

        found["transactions"] = transactions_fields(entry.transactions) if entry.transactions else None
    return found
