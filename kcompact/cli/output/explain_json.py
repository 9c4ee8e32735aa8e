"""The fields that `plan --explain` and `plan --compare` add to the JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from kcompact.plan.comparison import Comparison, total
from kcompact.plan.conditions import Condition
from kcompact.plan.explanation import Explanation, most_keys
from kcompact.plan.forecast import Forecast
from kcompact.plan.remedies import Remedy


def explain_fields(explanation: Explanation) -> dict[str, Any]:
    """Return the object `explain` of a partition."""
    growth = explanation.growth
    return {
        "decided_by": str(explanation.decided_by),
        "changes_at_ms": explanation.changes_at_ms,
        "forecasts": [_forecast(each) for each in explanation.forecasts],
        "change_by_setting": _remedy(explanation.change_by_setting),
        "other_settings": [_remedy(each) for each in explanation.other_remedies],
        "missing_dirty_bytes": explanation.missing_dirty_bytes,
        "growth": None if growth is None else asdict(growth),
        "conditions": [_condition(each) for each in explanation.conditions],
        "broker": asdict(explanation.broker),
        "here": asdict(explanation.here),
        "retention": asdict(explanation.retention),
    }


def buffer_fields(explanations: Iterable[Explanation]) -> dict[str, Any] | None:
    """Return the object `buffer` of the document: the partition that decides how much a broker needs."""
    largest = most_keys(explanations)
    if largest is None:
        return None
    cost = largest.broker
    return {
        "directory": str(largest.plan.log.directory),
        "keys_at_most": cost.keys_at_most,
        "keys_per_pass": cost.keys_per_pass,
        "buffer_bytes_for_one_pass": cost.buffer_bytes_for_one_pass,
    }


def _condition(condition: Condition) -> dict[str, Any]:
    forecast = condition.forecast
    return {
        "name": str(condition.name),
        "value": condition.value,
        "threshold": condition.threshold,
        "verdict": str(condition.verdict),
        "decides": condition.decides,
        "assumed": list(condition.assumed),
        "explanation": condition.explanation,
        "setting": _remedy(condition.remedy),
        "changes_at_ms": forecast.at_ms if forecast else None,
        "how": str(forecast.how) if forecast else None,
    }


def _forecast(forecast: Forecast) -> dict[str, Any]:
    return {"at_ms": forecast.at_ms, "how": str(forecast.how), "explanation": forecast.explanation}


def _remedy(remedy: Remedy | None) -> dict[str, Any] | None:
    if remedy is None:
        return None
    return {
        "name": str(remedy.name),
        "value": remedy.value,
        "rounded": remedy.rounded,
        "at_append": remedy.at_append,
        "makes_eligible": remedy.makes_eligible,
        "obstacle": remedy.obstacle,
        "price": remedy.price,
    }


def compare_fields(comparison: Comparison) -> dict[str, Any]:
    """Return the object `compare` of a partition."""
    return {
        "today": asdict(comparison.today),
        "changed": asdict(comparison.changed),
        "differs": list(comparison.differences),
    }


def compare_totals(settings: Sequence[str], comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Return the object `compare` of the document."""
    return {
        "settings": list(settings),
        "partitions_that_differ": sum(bool(each.differences) for each in comparisons),
        "today": asdict(total([each.today for each in comparisons])),
        "changed": asdict(total([each.changed for each in comparisons])),
    }
