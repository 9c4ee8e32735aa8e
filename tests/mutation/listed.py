"""The lists of mutants: a file for each room, in which each mutant is a line before and after, under its function.

    kcompact/questions/compare/epochs.py fork_of
    - if a < b:
    + if a <= b:
    equivalent: why no run can tell them apart

Only a mutant that nothing can find has a reason. A mutant that no longer applies is drawn again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.operators import Mutant, mutants_of

ROOT = Path(__file__).parents[2]
LISTS = Path(__file__).parent / "lists"
_EQUIVALENT = "equivalent: "


@dataclass(frozen=True, slots=True)
class Room:
    """Modules, how many of their mutants are listed, and the tests that have to find them."""

    modules: str
    """As a pattern of paths from the root of the repository."""
    count: int
    tests: tuple[str, ...]
    """None of them compares printed text with an expected one, except where the text is the answer itself."""
    without: str | None = None
    """Functions that have this text are left out."""


_COMPARE_COMMAND = (
    "findings_and_exit_codes",
    "the_order_of_paths_changes_nothing",
    "roles_come_from_the_metadata_log",
    "more_replicas_than_a_mask_has",
    "paths",
    "paths_without_a_common_partition_and_of_another_cluster",
    "a_replica_without_a_directory_is_named_with_the_reason",
)
_SEARCH_COMMAND = (
    "keys_in_a_file",
    "files_that_have_no_keys_are_refused",
    "with_exact_only_whole_keys_count",
    "only_some_topics",
    "a_path_without_files_is_refused",
    "two_of_three_replicas",
    "one_partition_of_a_broker",
    "replicas_are_unknown_without_metadata",
    "beside_a_running_broker_nothing_is_absent",
)
"""Tests of the commands that ask for outcomes, numbers and exit codes."""


def _of_command(module: str, names: tuple[str, ...]) -> list[str]:
    return [f"tests/unit/cli/{module}.py::test_{name}" for name in names]


ROOMS = {
    "compare": Room(
        "kcompact/questions/compare/*.py",
        83,
        (
            *(
                "tests/unit/questions/compare",
                "tests/properties/test_compare_adversary.py",
                "tests/properties/test_compare.py",
            ),
            *_of_command("test_cli_compare", _COMPARE_COMMAND),
        ),
    ),
    "search": Room(
        "kcompact/questions/search/*.py",
        50,
        ("tests/unit/questions/search", *_of_command("test_cli_search_key", _SEARCH_COMMAND)),
    ),
    "round_end": Room(
        "kcompact/cleaner/round_end.py",
        12,
        ("tests/unit/cleaner/test_round_end.py", "tests/unit/cleaner/test_recovery.py"),
    ),
    "small_partitions": Room(
        "kcompact/cleaner/small_partitions.py", 10, ("tests/unit/cleaner/test_small_partitions.py",)
    ),
    "spark_source": Room("kcompact/spark_source/*.py", 28, ("tests/unit/spark_source",)),
    # Whether a function does right that starts other programs, only `make release RELEASE_OPTIONS=--check` can say.
    "release": Room("release/*.py", 20, ("tests/unit/release",), without="subprocess."),
}


@dataclass(frozen=True, slots=True)
class Listed:
    """A mutant of a list, and why nothing can find it; "" where a test has to."""

    mutant: Mutant
    reason: str = ""

    def __str__(self) -> str:
        lines = [f"{self.mutant.path} {self.mutant.function}", f"- {self.mutant.before}", f"+ {self.mutant.after}"]
        return "\n".join(lines + [f"{_EQUIVALENT}{self.reason}"] * bool(self.reason))


def candidates(room: str) -> list[Mutant]:
    """Return all mutants of the modules of a room."""
    return [
        mutant
        for path in sorted(ROOT.glob(ROOMS[room].modules))
        for mutant in mutants_of(
            path.read_text(encoding="utf-8"), path=str(path.relative_to(ROOT)), without=ROOMS[room].without
        )
    ]


def read(room: str) -> tuple[list[Listed], list[str]]:
    """Return the mutants of a list that apply to the modules as they are, and the text of those that do not."""
    by_text = {str(Listed(mutant)): mutant for mutant in candidates(room)}
    found: list[Listed] = []
    lost: list[str] = []
    path = LISTS / f"{room}.txt"
    text = path.read_text(encoding="utf-8").strip() if path.exists() else ""
    for block in filter(None, text.split("\n\n")):
        text, _, reason = block.partition(f"\n{_EQUIVALENT}")
        if text in by_text:
            found.append(Listed(by_text[text], reason.strip()))
        else:
            lost.append(text)
    return found, lost


def write(room: str, mutants: Iterable[Listed]) -> None:
    """Write the list of a room, in the order of its lines."""
    ordered = sorted(mutants, key=lambda each: (each.mutant.path, each.mutant.line, each.mutant.after))
    LISTS.mkdir(exist_ok=True)
    (LISTS / f"{room}.txt").write_text("\n\n".join(map(str, ordered)) + "\n", encoding="utf-8")
