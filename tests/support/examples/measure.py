"""Measures a cleaning: `python -m tests.support.examples.measure [--records N] [--engine NAME]`.

Writes a log of uncompressed batches of 100 records into a temporary directory, cleans it, and prints records a second
and the largest resident size, separately for finding the survivors and for writing them. One number is one run.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import kcompact
from kcompact.format.batch import Record, build
from kcompact.stages.executor import Executor
from tests.support import log_writer
from tests.support.log_writer import LogSpec

RECORDS_PER_BATCH = 100
T0 = 1_700_000_000_000


def write_log(directory: Path, *, records: int, keys: int, value_bytes: int, segment_bytes: int) -> None:
    """Write a partition: each key is drawn at random, the last segment is the active one."""
    log_writer.write(LogSpec(name=directory.name, segments=(), lone=True), directory.parent)
    source = random.Random(1)
    offset = 0

    def batches() -> Iterator[bytes]:
        nonlocal offset
        written = 0
        while written < segment_bytes and offset < records:
            drawn = [
                Record(number, T0 + number, b"%016d" % source.randrange(keys), source.randbytes(value_bytes), ())
                for number in range(offset, offset + RECORDS_PER_BATCH)
            ]
            offset += RECORDS_PER_BATCH
            batch = build(drawn)
            written += len(batch)
            yield batch

    while offset < records:
        log_writer.write_segment(directory, offset, batches())
    log_writer.write_segment(directory, offset, [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--engine", choices=("in-process", "spark"), default="in-process")
    wanted = parser.parse_args()
    config = kcompact.topic_config("measured", overrides=[kcompact.Override(name="cleanup.policy", value="compact")])
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        directory = Path(scratch) / "measured-0"
        write_log(
            directory,
            records=wanted.records,
            keys=wanted.keys,
            value_bytes=wanted.value_bytes,
            segment_bytes=256 << 20,
        )
        plan = kcompact.plan_partition(directory, config, now_ms=T0 + wanted.records)
        executor: Executor = kcompact.InProcess()
        if wanted.engine == "spark":
            from kcompact.engine.spark import OnSpark, spark_context

            executor = OnSpark(sc=stack.enter_context(spark_context()))
        lock = stack.enter_context(kcompact.log_dir_lock(directory.parent))
        result = kcompact.clean_partition(plan, executor, lock=lock)
    stats = result.stats
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{wanted.engine}, {os.cpu_count()} cores: {stats.messages_read:,} records, {stats.bytes_read >> 20:,} MiB")
    elapsed_s = result.times.elapsed_s
    print(f"  {elapsed_s:.1f} s, of which {result.times.map_s:.1f} s until the survivors were known")
    print(f"  {stats.messages_read / elapsed_s:,.0f} records a second; {stats.messages_written:,} kept")
    print(f"  largest resident size of this process {peak:,} MiB")


if __name__ == "__main__":
    main()
