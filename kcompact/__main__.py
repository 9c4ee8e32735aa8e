"""Runs the command line: the command `kcompact`, and `python -m kcompact`."""

import _signal  # type: ignore[import-not-found]  # mypy has no stub of it
import gc
import os
import sys

# Until the handlers are set, Ctrl-C must not show where an import was. `_signal` is part of the interpreter: no file of
# the current directory can take its place.
if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def _import_from_no_current_directory() -> None:
    """Remove the current directory from the import path: a directory with data may contain a `click.py`.

    `python -m` puts it first, and so does an empty entry of PYTHONPATH.
    """
    try:
        here = os.getcwd()  # noqa: PTH109 - `pathlib` would come from there
    except OSError:
        return
    if __name__ == "__main__" and not sys.flags.safe_path and sys.path[:1] in ([""], [here]):
        del sys.path[0]
    if "" in os.environ.get("PYTHONPATH", "none").split(os.pathsep):
        sys.path[:] = [entry for entry in sys.path if entry not in ("", here)]


_import_from_no_current_directory()

# Imports create many objects that stay: with the usual 700, looking for garbage takes a tenth of the time of a start.
gc.set_threshold(10_000)

# numpy's linear algebra is not used, and its threads take as long to start as the rest of numpy.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def main() -> None:
    """Run a command line and end the process with its exit code."""
    try:
        _run()
    except (OSError, ImportError, MemoryError) as problem:  # The module that handles errors could not be loaded.
        if "--debug" in sys.argv:
            raise
        sys.exit(_told(problem))


def _run() -> None:
    from kcompact.cli import signals
    from kcompact.host.machine import lacks_instructions

    if lacks_instructions():  # Importing numpy would end the process with a signal.
        os.write(
            2,
            b"error: this processor lacks the instructions of x86-64-v2 (SSE 4.2 and POPCNT), which kcompact and numpy "
            b"need\nIn a virtual machine choose another type of processor, such as that of the host.\n",
        )
        sys.exit(4)
    signals.end_at_signals()  # Before the other imports, which take the longest time of a short command.
    from kcompact.cli.app import main as run
    from kcompact.host.process_end import forbid_core_dumps

    forbid_core_dumps()
    try:
        run(prog_name="kcompact")
    finally:
        signals.leave_signals_alone()
        gc.freeze()  # The end of the process looks for garbage once more, and all memory goes with it anyway.


def _told(problem: OSError | ImportError | MemoryError) -> int:
    """Print an error with as little other code as possible, and return its exit code."""
    from contextlib import suppress

    try:
        from kcompact.failures import as_failure
        from kcompact.wording import of_the_command_line

        failure = as_failure(problem)
        with of_the_command_line():
            message, code = str(failure), failure.exit_code
    except MemoryError:
        message, code = "not enough memory", 1
    except (OSError, ImportError):
        message, code = f"a part of kcompact cannot be loaded: {problem}", 1
    with suppress(OSError):
        os.write(2, f"error: {message}\n".encode(errors="backslashreplace"))
    return code


if __name__ == "__main__":
    main()
