"""`search-key`: whether a key is in any file, and a statement of what was searched."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from kcompact.cli import options
from kcompact.cli.delivery import deliver
from kcompact.cli.option_types import Key, NamedFile
from kcompact.cli.output import streams

if TYPE_CHECKING:
    from kcompact.cli.output.printer import Printer
    from kcompact.plan.selection import Selection
    from kcompact.questions.search.keys import SearchedKey
    from kcompact.questions.search.statement import Statement
    from kcompact.remarks import Note


@options.command("search-key", settings=False, selects=True)
@options.paths
@click.option("--key", "keys", type=Key(), multiple=True, metavar="KEY", help="A key: text or hex:0A1B. Repeatable.")
@click.option(
    "--keys-file",
    type=NamedFile("rb"),
    metavar="FILE",
    help="Also the keys in a file, one in a line: text or hex:0A1B. - is standard input.",
)
@click.option(
    "--labels", "labels", is_flag=True, help="A line of the file is LABEL, a tab, KEY. Answers name the label."
)
@click.option(
    "--exact",
    "is_exact",
    is_flag=True,
    help="Only whole keys of records count. What shows a key in another way is in doubt where it is not read as "
    "records.",
)
@click.option(
    "--salt",
    metavar="TEXT",
    help="The statement names a key by a digest with this salt, and does not show the salt. Default: a random one, "
    "which is in the statement.",
)
@click.option("--verbose", "-v", "is_verbose", is_flag=True, help="On a terminal too, print every key and every file.")
@options.memory(what="the batches being read")
def command(
    paths: tuple[Path, ...],
    *,
    keys: tuple[bytes, ...],
    keys_file: BinaryIO | None,
    labels: bool,
    is_exact: bool,
    selection: Selection,
    is_verbose: bool,
    salt: str | None,
    memory_bytes: int | None,
    as_json: bool,
) -> int:
    """Search every file for a key, and state what was searched.

    All files below PATH are read: logs of all topics with what readers do not see any more, files that are marked as
    deleted or half written, staged and kept ones, indexes, everything else as bytes. Compressed records are inflated.

    Ends with 0 if no file has a key, else with 10: a key is there, or only its tombstone, or a file could not be read.

    Changes nothing and takes no lock. Run it with the broker stopped, on the disks of all replicas.

    \b
    Examples:
      kcompact search-key --key customer-17 /var/lib/kafka
      kcompact search-key --keys-file keys.txt --salt 2026-11 --json /mnt/broker1 /mnt/broker2 >statement.json
    """
    from kcompact.cli.json.search import SEARCH

    wanted, notes = _wanted(keys, keys_file, labels=labels)
    if salt == "":
        raise click.BadParameter("the salt is empty", param_hint="--salt")
    if not as_json:
        streams.tell_notes(notes)
    statement = _searched(
        paths,
        wanted,
        salt,
        selection=selection,
        is_exact=is_exact,
        memory_bytes=options.batch_memory(memory_bytes),
    )

    content = {"notes": notes, "statement": statement}
    show = partial(_show, statement)
    return deliver(SEARCH, lambda: content, show, as_json=as_json, verbose=is_verbose) or statement.exit_code


def _show(statement: Statement, printer: Printer) -> None:
    """Print the statement. In a file or a pipe it is complete, and its last line has the digest of all lines above."""
    from kcompact.cli.output.printer import Printer
    from kcompact.views.searches import search_parts

    if printer.is_terminal:
        printer.parts(search_parts(statement, is_complete=printer.is_verbose))
        return
    text = io.StringIO()
    Printer(text).parts(search_parts(statement, is_complete=True))
    content = f"{text.getvalue()}\n"
    digest = hashlib.sha256(content.encode("utf-8", "surrogateescape")).hexdigest()
    streams.echo(f"{content}SHA-256 of the lines above: {digest}")


def _wanted(keys: Sequence[bytes], keys_file: BinaryIO | None, *, labels: bool) -> tuple[list[SearchedKey], list[Note]]:
    """Return the keys to search for, and what is odd about those of the file. Raises click.UsageError, ConfigError."""
    from kcompact.questions.search.keys import keys_in, named_keys

    wanted = [(f"--key {number}", key) for number, key in enumerate(keys, start=1)]
    notes: list[Note] = []
    if keys_file is not None:
        in_file, notes = keys_in(keys_file.read(), file=keys_file.name, labels=labels)
        wanted += in_file
    elif labels:
        raise click.UsageError("--labels are those of a --keys-file")
    if not wanted:
        raise click.UsageError("pass the key as --key, or keys in a --keys-file")
    if any(not key for _, key in wanted):
        raise click.UsageError("the empty key cannot be searched for: no bytes show it")
    return named_keys(wanted), notes


def _searched(
    paths: Sequence[Path],
    keys: Sequence[SearchedKey],
    salt: str | None,
    *,
    selection: Selection,
    is_exact: bool,
    memory_bytes: int,
) -> Statement:
    """Return the statement, with progress on a terminal."""
    from kcompact import __version__
    from kcompact.cli.output.progress import bar_of
    from kcompact.host.machine import clock_ms
    from kcompact.questions.search.statement import listed, search

    scope = listed(paths, selection)
    total_bytes = sum(file.identity.size_bytes for file in scope.files if file.identity)
    with bar_of(Path("files"), total_bytes) as advance:
        return search(
            scope,
            keys,
            is_exact=is_exact,
            salt=os.urandom(16).hex().encode() if salt is None else salt.encode("utf-8", "surrogateescape"),
            shows_salt=salt is None,
            version=__version__,
            clock_ms=clock_ms,
            memory_bytes=memory_bytes,
            advance=advance,
        )
