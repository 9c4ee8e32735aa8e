"""`keys`: how many keys partitions have, what fills them, and which keys lie in several partitions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kcompact.cli import options
from kcompact.cli.declaration import command
from kcompact.cli.option_types import Time, When

if TYPE_CHECKING:
    from kcompact.plan.options import PlanOptions


@command("keys")
@options.paths
@click.option(
    "--older-than",
    type=Time(needs_unit=True),
    metavar="TIME",
    help="Also list the live keys whose newest record is older than TIME, such as 90d, or a TIME as in --now.",
)
@click.option("--prefix", metavar="SEPARATOR", help="Also count by the part of a key before SEPARATOR.")
@click.option(
    "--top",
    type=click.IntRange(0, 10_000),
    default=10,
    show_default=True,
    metavar="N",
    help="List so many keys at most.",
)
@click.option("--print-data", is_flag=True, help="Show the keys themselves. Default: their hashes.")
@options.engine
@options.memory(what="keys and for data being read")
@options.configuration
@options.json_option
@options.debug_option
def keys_command(
    paths: tuple[Path, ...],
    plan_options: PlanOptions,
    *,
    older_than: When | None,
    prefix: str | None,
    top: int,
    print_data: bool,
    engine: str,
    master: str | None,
    spark_conf: tuple[str, ...],
    memory_bytes: int | None,
    as_json: bool,
) -> int:
    """Count live keys, superseded records and tombstones.

    All records are read, as a reader of committed records sees them, and counted with their bytes: by segment and
    section, by versions and age; the largest keys, and keys that lie in several partitions of a topic.

    Changes nothing and takes no lock.

    \b
    Examples:
      kcompact keys /var/lib/kafka/orders-0
      kcompact keys --prefix : --print-data /var/lib/kafka/orders-0
      kcompact keys --older-than 90d --json /var/lib/kafka | jq '.partitions[].keys.old_keys'
    """
    if prefix == "":
        raise click.BadParameter("the separator is empty", param_hint="--prefix")
    from kcompact.cleaner.engines import EngineOptions
    from kcompact.cli import counting

    conf = options.parse_pairs(spark_conf, option="--spark-conf")
    request = counting.KeysRequest(
        older_than_ms=None if older_than is None else _age_ms(older_than, plan_options.now_ms),
        separator=(prefix or "").encode("utf-8", "surrogateescape"),
        top=top,
        print_data=print_data,
        engine=EngineOptions(name=engine, master=master, spark_conf=conf),
        memory_bytes=memory_bytes,
    )
    return counting.run(paths, plan_options, request, as_json=as_json)


def _age_ms(time: When, now_ms: int) -> int:
    """Return how old a record of this time is. Raises click.BadParameter for a time in the future."""
    age_ms = now_ms - time.before(now_ms)
    if age_ms < 0:
        raise click.BadParameter("TIME is after --now", param_hint="--older-than")
    return age_ms
