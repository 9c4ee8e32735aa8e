"""What no cleaner can do without: `python -m bench.floor SOURCE RESULT_BYTES TARGET`.

Reads every `.log` of a log directory, computes its CRC-32C, writes as many bytes as the result has and syncs
them, on one core and through one buffer of 64 MiB. Prints a JSON object with the seconds that took, without the start
of Python.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import crc32c

BUFFER_BYTES = 64 << 20


def read_all(log_dir: Path, buffer: memoryview) -> int:
    """Read and checksum every log file; return how many bytes they have."""
    total = 0
    for path in sorted(log_dir.glob("*/*.log")):
        checksum = 0
        with open(path, "rb", buffering=0) as file:
            while count := file.readinto(buffer):
                checksum = crc32c.crc32c(buffer[:count], checksum)
                total += count
    return total


def write_all(target: Path, count: int, buffer: memoryview) -> None:
    """Write `count` bytes and sync them."""
    with open(target, "wb", buffering=0) as file:
        while count > 0:
            count -= file.write(buffer[: min(count, len(buffer))])
        os.fsync(file.fileno())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("result_bytes", type=int)
    parser.add_argument("target", type=Path)
    wanted = parser.parse_args()
    # Touched beforehand: a cleaner does not get its memory for nothing either, but it is not what we ask here.
    buffer = memoryview(bytearray(os.urandom(1 << 20) * (BUFFER_BYTES >> 20)))
    started = time.perf_counter()
    source_bytes = read_all(wanted.source, buffer)
    read_s = time.perf_counter() - started
    write_all(wanted.target, wanted.result_bytes, buffer)
    total_s = time.perf_counter() - started
    print(json.dumps({"source_bytes": source_bytes, "read_s": read_s, "total_s": total_s}))


if __name__ == "__main__":
    main()
