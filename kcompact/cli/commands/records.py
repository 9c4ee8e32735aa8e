"""`records`: lists, filters, decodes and exports records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kcompact.cli import options
from kcompact.cli.option_types import Key, KeyHash, NamedPath, Number, Time

if TYPE_CHECKING:
    from kcompact.plan.options import PlanOptions
    from kcompact.questions.record_filter import RecordFilter

DECODER_NAMES = ("utf8", "hex", "base64", "int", "long", "double", "json", "confluent")
LAYOUTS = ("text", "table", "csv", "jsonl")
SUFFIXES = (".parquet", ".arrow", ".csv", ".jsonl")
TABLE_RECORDS = 100


@options.command("records")
@options.paths
@click.option("--batches", "with_batches", is_flag=True, help="With JSON Lines: list the batches too, as text does.")
@click.option("--print-data", is_flag=True, help="Show keys and values.")
@click.option(
    "--decode",
    is_flag=True,
    help="Show the fields of records of __consumer_offsets, __transaction_state, __share_group_state and "
    "__cluster_metadata.",
)
@click.option("--key-decoder", type=click.Choice(DECODER_NAMES), help="Show keys and values, keys decoded as this.")
@click.option("--value-decoder", type=click.Choice(DECODER_NAMES), help="Show keys and values, values decoded as this.")
@click.option(
    "--offset", "offsets", type=Number(), multiple=True, metavar="N", help="Only the record at N. Repeatable."
)
@click.option("--from-offset", type=Number(), metavar="N", help="Only records from offset N on.")
@click.option("--until-offset", type=Number(), metavar="N", help="Only records below offset N.")
@click.option(
    "--since",
    "since_ms",
    type=Time(),
    metavar="TIME",
    help="Only records of TIME or later. TIME as in --now; a length of time, such as 2h, counts back from --now.",
)
@click.option(
    "--until", "until_ms", type=Time(), metavar="TIME", help="Only records before TIME, which is as in --since."
)
@click.option(
    "--key", "keys", type=Key(), multiple=True, metavar="KEY", help="Only this key: text or hex:0A1B. Repeatable."
)
@click.option(
    "--key-prefix",
    "key_prefixes",
    type=Key(),
    multiple=True,
    metavar="KEY",
    help="Only keys that begin with this: text or hex:0A1B. Repeatable.",
)
@click.option(
    "--key-hash",
    "key_hashes",
    type=KeyHash(),
    multiple=True,
    metavar="HASH",
    help="Only keys whose SHA-256 begins with these hexadecimal digits. Repeatable.",
)
@click.option(
    "--producer-id",
    "producer_ids",
    type=int,
    multiple=True,
    metavar="ID",
    help="Only of this producer. Repeatable.",
)
@click.option(
    "--leader-epoch", "leader_epochs", type=int, multiple=True, metavar="N", help="Only of this epoch. Repeatable."
)
@click.option(
    "--transaction",
    "transaction_ends",
    type=click.Choice(("committed", "aborted", "open", "none")),
    multiple=True,
    help="Only records of transactions that ended so, with their markers; none: of no transaction. Repeatable.",
)
@click.option("--tombstones", is_flag=True, help="Only records with a key and no value.")
@click.option(
    "--latest",
    is_flag=True,
    help="Only the latest record of each key, as a read_committed reader sees the log: the compacted view.",
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the first N records.")
@click.option(
    "--format",
    "layout",
    type=click.Choice(LAYOUTS),
    help="List the records like this; text and jsonl as without and with --json. A table has the first "
    f"{TABLE_RECORDS}, or as many as --limit says.",
)
@click.option(
    "--output",
    type=NamedPath(dir_okay=False),
    metavar="FILE",
    help="Write the records to this new file, as its name says: .parquet, .arrow, .csv or .jsonl.",
)
@click.option(
    "--guard-formulas",
    is_flag=True,
    help="In CSV, put ' before each cell that a spreadsheet would take for a formula.",
)
@options.unclean
@options.memory(what="the batches being read")
def command(
    paths: tuple[Path, ...],
    plan_options: PlanOptions,
    *,
    with_batches: bool,
    print_data: bool,
    decode: bool,
    key_decoder: str | None,
    value_decoder: str | None,
    latest: bool,
    limit: int | None,
    layout: str | None,
    output: Path | None,
    guard_formulas: bool,
    memory_bytes: int | None,
    as_json: bool,
    **conditions: Any,
) -> int:
    """List records, or write them to a file.

    Without an option all records are listed: offsets, times and sizes, no keys and no values. A record must fulfil
    all conditions; of an option that is given several times, one. PATH may also be a single .log file.

    Changes nothing and takes no lock.

    \b
    Examples:
      kcompact records --json /var/lib/kafka/orders-0 | jq .offset
      kcompact records --print-data --key customer-17 --since 2024-03-01 /var/lib/kafka/orders-0
      kcompact records --latest --value-decoder json --output orders.parquet /var/lib/kafka/orders-0
      kcompact records --decode /var/lib/kafka/__consumer_offsets-7
    """
    if decode and (key_decoder or value_decoder):
        raise click.UsageError("--decode excludes --key-decoder and --value-decoder")
    layout = _layout(layout, output, as_json=as_json, guard_formulas=guard_formulas)
    if layout not in ("text", "jsonl") and (with_batches or decode):
        option = "--batches" if with_batches else "--decode"
        raise click.UsageError(f"{option} is for text and JSON Lines, not for {layout}")
    from kcompact.cli.listing import Listing, list_paths

    listing = Listing(
        with_batches=with_batches,
        with_records=True,
        print_data=print_data or bool(key_decoder or value_decoder),
        decode=decode,
        key_decoder=key_decoder,
        value_decoder=value_decoder,
        chosen=_filter(conditions, plan_options.now_ms),
        layout=layout,
        limit=TABLE_RECORDS if layout == "table" and limit is None else limit,
        output=output,
        guards_formulas=guard_formulas,
        latest=latest,
        memory_bytes=options.batch_memory(memory_bytes),
        budget_bytes=memory_bytes,
    )
    return list_paths(paths, plan_options, listing)


def _layout(layout: str | None, output: Path | None, *, as_json: bool, guard_formulas: bool) -> str:
    """Return what the records become. Raises click.UsageError for options that exclude others."""
    if guard_formulas and "csv" not in (layout, output and output.suffix.lower().removeprefix(".")):
        raise click.UsageError("--guard-formulas is for CSV: add --format csv, or --output FILE.csv")
    if output is None:
        if as_json and layout not in (None, "jsonl"):
            raise click.UsageError(f"--json excludes --format {layout}")
        return layout or ("jsonl" if as_json else "text")
    if output.suffix.lower() not in SUFFIXES:
        raise click.UsageError(f"--output needs a FILE that ends with {', '.join(SUFFIXES[:-1])} or .jsonl")
    if layout is not None:
        raise click.UsageError("--output excludes --format: the name of FILE says the format")
    return output.suffix.lower().removeprefix(".")


def _filter(conditions: dict[str, Any], now_ms: int) -> RecordFilter | None:
    """Return the conditions on records as a filter, None if there are none. Lengths of time count back from now."""
    # Not `in`: 0 is a condition, and it equals False.
    if all(value is None or value is False or value == () for value in conditions.values()):
        return None
    from kcompact.questions.record_filter import RecordFilter, Transactional

    for name in ("since_ms", "until_ms"):
        if conditions[name] is not None:
            conditions[name] = conditions[name].before(now_ms)
    return RecordFilter(transactions=tuple(map(Transactional, conditions.pop("transaction_ends"))), **conditions)
