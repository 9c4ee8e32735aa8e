"""How an answer reaches the user: as JSON or as text, and what happens if standard output does not take it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import TYPE_CHECKING

from kcompact.cli.failures import complain, exit_code_of

if TYPE_CHECKING:
    from kcompact.cli.json.fields import Document
    from kcompact.cli.output.printer import Printer


def deliver(
    document: Document,
    content: Callable[[], Mapping[str, object]],
    show: Callable[[Printer], None],
    *,
    as_json: bool,
    given: Set[str] = frozenset(),
    only_reads: bool = True,
    verbose: bool = False,
) -> int:
    """Print an answer: the document with its content, or what `show` prints. Return an exit code if that fails, else 0.

    `given` names the parts of the document that were asked for.
    """

    def print_answer() -> None:
        if as_json:
            from kcompact.cli.output import streams

            streams.echo(document.text(given, **content()))
        else:
            from kcompact.cli.output.printer import Printer

            show(Printer(verbose=verbose))

    return delivered(print_answer, only_reads=only_reads)


def delivered(show: Callable[[], None], *, only_reads: bool = False) -> int:
    """Print the report of finished work, and return an exit code if it could not be printed, else 0.

    A closed pipe is no failure of a command that has changed something. One that `only_reads` ends as all of them do.
    """
    from kcompact.cli.output import streams
    from kcompact.errors import KcompactError, StorageError

    try:
        show()
    except BrokenPipeError as problem:
        if only_reads:
            return exit_code_of(problem, debug=False)
        streams.forget_output()
    except StorageError as problem:
        complain(problem)
        streams.forget_output()
        return KcompactError.exit_code
    return 0
