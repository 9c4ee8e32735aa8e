"""The options of `inspect` that list batches and records: what is listed, which records, and how they are decoded."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kcompact.cli.completion.values import complete_partitions
from kcompact.cli.option_types import MAX_DIGITS, NamedPath, Time, When

if TYPE_CHECKING:
    from kcompact.cli.commands.records import Listing
    from kcompact.inspect.record_filter import RecordFilter

Command = TypeVar("Command", bound=Callable[..., Any])

MAX_OFFSET = (1 << 63) - 1
DECODER_NAMES = ("utf8", "hex", "base64", "int", "long", "double", "json", "confluent")
LAYOUTS = ("text", "table", "csv", "jsonl")
SUFFIXES = (".parquet", ".arrow", ".csv", ".jsonl")
TABLE_RECORDS = 100
_HEX = "hex:"


class Number(click.ParamType[Any]):
    """An offset, or the number of a partition."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
            self.fail(f"'{text}' is not a number from 0 on", param, ctx)
        return min(int(text), MAX_OFFSET)


class Key(click.ParamType[Any]):
    """A key, or the beginning of one: text, or bytes as `hex:` and hexadecimal digits."""

    name = "key"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bytes:
        if isinstance(value, bytes):
            return value
        text = str(value)
        if not text.startswith(_HEX):
            return text.encode("utf-8", "surrogateescape")
        try:
            return bytes.fromhex(text.removeprefix(_HEX))
        except ValueError:
            self.fail(f"'{text}' is not hex: and pairs of hexadecimal digits", param, ctx)


class KeyHash(click.ParamType[Any]):
    """The first hexadecimal digits of the SHA-256 of a key."""

    name = "hash"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        digits = str(value).lower()
        if not re.fullmatch(r"[0-9a-f]{4,64}", digits):
            self.fail(f"'{value}' is not the first 4 to 64 hexadecimal digits of a SHA-256", param, ctx)
        return digits


_CONDITIONS = (
    *("offsets", "from_offset", "until_offset", "since_ms", "until_ms", "keys", "key_prefixes", "key_hashes"),
    *("producer_ids", "leader_epochs", "transaction_ends", "tombstones"),
)
"""The options that are fields of `RecordFilter`. There `transaction_ends` is `transactions`."""
_OPTIONS = (
    click.option("--batches", "with_batches", is_flag=True, help="List the batches, as kafka-dump-log.sh does."),
    click.option(
        "--records",
        "with_records",
        is_flag=True,
        help="List the records: offsets, times and sizes, no keys and no values. Not needed with any of the options "
        "from --print-data to --output: each of them lists records too.",
    ),
    click.option("--print-data", is_flag=True, help="List the records with keys and values."),
    click.option(
        "--decode",
        is_flag=True,
        help="List the records of __consumer_offsets, __transaction_state, __share_group_state and __cluster_metadata "
        "with their fields.",
    ),
    click.option(
        "--key-decoder", type=click.Choice(DECODER_NAMES), help="List the records with data, keys decoded as this."
    ),
    click.option(
        "--value-decoder", type=click.Choice(DECODER_NAMES), help="List the records with data, values decoded as this."
    ),
    click.option(
        "--offset", "offsets", type=Number(), multiple=True, metavar="N", help="Only the record at N. Repeatable."
    ),
    click.option("--from-offset", type=Number(), metavar="N", help="Only records from offset N on."),
    click.option("--until-offset", type=Number(), metavar="N", help="Only records below offset N."),
    click.option(
        "--since",
        "since_ms",
        type=Time(),
        metavar="TIME",
        help="Only records of TIME or later. TIME as in --now; a length of time, such as 2h, counts back from --now.",
    ),
    click.option(
        "--until", "until_ms", type=Time(), metavar="TIME", help="Only records before TIME, which is as in --since."
    ),
    click.option(
        "--key", "keys", type=Key(), multiple=True, metavar="KEY", help="Only this key: text or hex:0A1B. Repeatable."
    ),
    click.option(
        "--key-prefix",
        "key_prefixes",
        type=Key(),
        multiple=True,
        metavar="KEY",
        help="Only keys that begin with this: text or hex:0A1B. Repeatable.",
    ),
    click.option(
        "--key-hash",
        "key_hashes",
        type=KeyHash(),
        multiple=True,
        metavar="HASH",
        help="Only keys whose SHA-256 begins with these hexadecimal digits. Repeatable.",
    ),
    click.option(
        "--partition",
        "partitions",
        type=Number(),
        multiple=True,
        metavar="N",
        shell_complete=complete_partitions,
        help="Only partition N. Repeatable.",
    ),
    click.option(
        "--producer-id",
        "producer_ids",
        type=int,
        multiple=True,
        metavar="ID",
        help="Only of this producer. Repeatable.",
    ),
    click.option(
        "--leader-epoch", "leader_epochs", type=int, multiple=True, metavar="N", help="Only of this epoch. Repeatable."
    ),
    click.option(
        "--transaction",
        "transaction_ends",
        type=click.Choice(("committed", "aborted", "open", "none")),
        multiple=True,
        help="Only records of transactions that ended so, with their markers; none: of no transaction. Repeatable.",
    ),
    click.option("--tombstones", is_flag=True, help="Only records with a key and no value."),
    click.option(
        "--latest",
        is_flag=True,
        help="Only the latest record of each key, as a read_committed reader sees the log: the compacted view.",
    ),
    click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the first N records."),
    click.option(
        "--format",
        "layout",
        type=click.Choice(LAYOUTS),
        help="List the records like this; text and jsonl as without and with --json. A table has the first "
        f"{TABLE_RECORDS}, or as many as --limit says.",
    ),
    click.option(
        "--output",
        type=NamedPath(dir_okay=False),
        metavar="FILE",
        help="Write the records to this new file, as its name says: .parquet, .arrow, .csv or .jsonl.",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordArguments:
    """The values of these options. `conditions` are the fields of a `RecordFilter`."""

    with_batches: bool
    with_records: bool
    print_data: bool
    decode: bool
    key_decoder: str | None
    value_decoder: str | None
    partitions: tuple[int, ...]
    latest: bool
    limit: int | None
    layout: str | None
    output: Path | None
    conditions: dict[str, Any]

    @property
    def lists(self) -> bool:
        """Return whether batches or records are listed."""
        return self.with_batches or self.lists_records

    @property
    def lists_records(self) -> bool:
        """Return whether records are listed."""
        shows = self.with_records or self.print_data or self.decode or self.key_decoder or self.value_decoder
        chooses = self.partitions or self.latest or self._is_filtered or self.limit
        return bool(shows or chooses or self.layout or self.output)

    @property
    def _is_filtered(self) -> bool:
        # Not `in`: 0 is a condition, and it equals False.
        return any(not (value is None or value is False or value == ()) for value in self.conditions.values())

    def listing(self, *, as_json: bool, memory_bytes: int, budget_bytes: int | None) -> Listing | None:
        """Return what is to be listed, None if nothing is. `memory_bytes` may be held for a batch.

        Raises click.UsageError for options that exclude others.
        """
        if not self.lists:
            return None
        if self.decode and (self.key_decoder or self.value_decoder):
            raise click.UsageError("--decode excludes --key-decoder and --value-decoder")
        layout = self._layout(as_json=as_json)
        from kcompact.cli.commands.records import Listing

        return Listing(
            with_batches=self.with_batches,
            with_records=self.lists_records,
            print_data=self.print_data or bool(self.key_decoder or self.value_decoder),
            decode=self.decode,
            key_decoder=self.key_decoder,
            value_decoder=self.value_decoder,
            partitions=self.partitions,
            chosen=self._filter(),
            layout=layout,
            limit=TABLE_RECORDS if layout == "table" and self.limit is None else self.limit,
            output=self.output,
            latest=self.latest,
            memory_bytes=memory_bytes,
            budget_bytes=budget_bytes,
        )

    def _layout(self, *, as_json: bool) -> str:
        """Return what the records become. Raises click.UsageError for options that exclude others."""
        if self.output is not None:
            layout = self.output.suffix.lower()
            if layout not in SUFFIXES:
                raise click.UsageError(f"--output needs a FILE that ends with {', '.join(SUFFIXES[:-1])} or .jsonl")
            if self.layout is not None:
                raise click.UsageError("--output excludes --format: the name of FILE says the format")
            layout = layout.removeprefix(".")
        else:
            layout = self.layout or ("jsonl" if as_json else "text")
            if as_json and layout != "jsonl":
                raise click.UsageError(f"--json excludes --format {layout}")
        if layout not in ("text", "jsonl") and (self.with_batches or self.decode):
            option = "--batches" if self.with_batches else "--decode"
            raise click.UsageError(f"{option} is for text and JSON Lines, not for {layout}")
        return layout

    def _filter(self) -> RecordFilter | None:
        if not self._is_filtered:
            return None
        from kcompact.inspect.record_filter import RecordFilter, Transactional

        conditions = dict(self.conditions)
        ends = tuple(map(Transactional, conditions.pop("transaction_ends")))
        return RecordFilter(transactions=ends, **conditions)


def _moments(conditions: Mapping[str, Any], now: When | None) -> dict[str, int]:
    """Return the times among the conditions in Unix milliseconds. Lengths of time count back from `--now`."""
    times = {name: conditions[name] for name in ("since_ms", "until_ms") if conditions[name] is not None}
    if not times:
        return {}
    from kcompact.host.clock import clock_ms

    now_ms = (now or When()).before(clock_ms())
    return {name: time.before(now_ms) for name, time in times.items()}


def listing_options(command: Command) -> Command:
    """Add the options. The command gets them as `records`."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        conditions = {name: kwargs.pop(name) for name in _CONDITIONS}
        conditions |= _moments(conditions, kwargs["now"])
        names = RecordArguments.__dataclass_fields__.keys() - {"conditions"}
        arguments = {name: kwargs.pop(name) for name in names}
        return command(*args, records=RecordArguments(**arguments, conditions=conditions), **kwargs)

    decorated: Any = wrapped
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]
