"""`inspect`: what is on the disk, by segment, by batch, or of a single file."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kcompact.cli import options
from kcompact.host.machine import rare_collections

if TYPE_CHECKING:
    from kcompact.plan.options import PlanOptions


@options.command("inspect")
@options.paths
@click.option("--batches", is_flag=True, help="List the batches, as kafka-dump-log.sh does.")
@options.memory(what="the batches being read")
@rare_collections()
def command(
    paths: tuple[Path, ...], plan_options: PlanOptions, *, batches: bool, memory_bytes: int | None, as_json: bool
) -> int:
    """Show what is on the disk.

    Each segment is shown with its size, times and offsets, its role in the next cleaning (clean, dirty, uncleanable,
    active) and the reason for the role. PATH may also be a single file: a .log, .index, .timeindex, .txnindex,
    .snapshot or a checkpoint.

    Only headers of batches are read: verify reads every byte. Changes nothing and takes no lock. While a broker runs,
    the output can be outdated at once.

    \b
    Examples:
      kcompact inspect /var/lib/kafka/orders-0
      kcompact inspect /var/lib/kafka/orders-0/00000000000000000000.timeindex
      kcompact inspect --batches --json /var/lib/kafka/orders-0 | jq .baseOffset
    """
    for_batches = options.batch_memory(memory_bytes)
    if batches:
        from kcompact.cli.listing import Listing, list_paths

        listing = Listing(with_batches=True, layout="jsonl" if as_json else "text", memory_bytes=for_batches)
        return list_paths(paths, plan_options, listing)
    from kcompact.cli.json.inspect import INSPECT
    from kcompact.cli.output.entries import show_inspected
    from kcompact.cli.question import Question, ask, each_partition, file_entry, inspected

    question = Question(
        document=INSPECT,
        answers=each_partition(inspected),
        show=show_inspected,
        read_file=partial(file_entry, verify=False, memory_bytes=for_batches),
    )
    return ask(question, paths, plan_options, as_json=as_json)
