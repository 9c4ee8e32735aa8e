"""What a part has tried, and what failed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    """Runs by outcome, and a line for each failure, which names the seed or the place that repeats it."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def count(self, outcome: str, number: int = 1) -> None:
        """Count runs with this outcome."""
        self.outcomes[outcome] += number

    def fail(self, what: str) -> None:
        """Count a run that failed."""
        self.outcomes["failed"] += 1
        self.failures.append(what)

    def __str__(self) -> str:
        return ", ".join(f"{number:,} {outcome}" for outcome, number in sorted(self.outcomes.items()))
