"""`recover`: finish or undo a swap that was interrupted."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kcompact.cli.commands.clean import Locks, delivered, recovery_action
from kcompact.cli.entries import partitions, shared_exit_code, storage_errors
from kcompact.cli.failures import complain
from kcompact.cli.output import streams
from kcompact.cli.output.json import document, dumps, identity
from kcompact.cli.signals import stop_request
from kcompact.errors import KcompactError
from kcompact.swap.recovery import recover

# recover


def run(paths: Sequence[Path], *, as_json: bool) -> int:
    """Settle what an interrupted swap left in each partition and return the exit code."""
    outcomes: list[dict[str, Any]] = []
    problems: list[KcompactError] = []
    with stop_request(), ExitStack() as stack:
        locks = Locks(stack, only_look=False)
        directories, unusable = partitions(paths)
        causes = {entry.directory: entry.error for entry in unusable}
        for directory in (*directories, *causes):
            outcome = identity(directory)
            outcome |= dict.fromkeys(("status", "finished", "undone", "checkpoint"))
            outcome |= {"removed_staging": [], "left_behind": [], "error": None, "exit_code": 0}
            try:
                if (cause := causes.get(directory)) is not None:
                    raise cause
                with storage_errors(directory):
                    locks.of(directory)
                    settled = recover(directory, log_dir=directory.parent)
                outcome |= {
                    "status": recovery_action(settled),
                    "finished": settled.finished,
                    "undone": settled.undone,
                    "checkpoint": settled.checkpoint,
                    "removed_staging": list(settled.removed_staging),
                    "left_behind": list(settled.left_behind),
                }
            except KcompactError as problem:
                problems.append(problem)
                outcome |= {"status": "failed", "error": str(problem), "exit_code": problem.exit_code}
            outcomes.append(outcome)

    def show() -> None:
        if as_json:
            streams.echo(dumps(document("recover", None, partitions=outcomes)))
        else:
            from kcompact.cli.output.tables import Printer, show_recovery

            show_recovery(outcomes, Printer())

    lost = delivered(show)
    for failure in problems:
        complain(failure)
    return shared_exit_code(outcome["exit_code"] for outcome in outcomes) or lost
