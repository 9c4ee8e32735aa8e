"""A log directory with many partitions: some for each verdict, and directories that are no partitions."""

from __future__ import annotations

from pathlib import Path

from tests.support.command_line import DIRTY, flip, partition, settings

UNIQUE_ID = "0123456789abcdef0123456789abcdef"

_CLEANED = "log now=10:00 checkpoint=6 hw=7\n0: a=1 b=2\n3: c=5\n6: a=6"
_BELOW_RATIO = DIRTY.replace("now=10:00", "now=10:00 checkpoint=3 hw=7")

_VERDICTS = (
    ("orders", 12, settings("hw=7")),
    ("below", 60, _BELOW_RATIO),
    ("caught-up", 40, _CLEANED),
    ("unreplicated", 20, settings("hw=2")),
    ("nothing", 20, "log now=10:00 hw=0\n0:"),
    ("__consumer_offsets", 44, settings("hw=7")),
)
"""A topic for each verdict, the number of its partitions out of 196, and the text of their logs."""


def write_many(log_dir: Path, *, one_in: int = 1) -> Path:
    """Write 200 partitions, or one in so many of each kind, and directories that are left out; return the directory.

    Two partitions have a corrupt log, and two are left half-swapped.
    """
    for topic, count, text in _VERDICTS:
        for number in range(max(1, count // one_in)):
            partition(log_dir, text.replace("now=10:00", f"now=10:00 name={topic}-{number}", 1))
    for number in range(2):
        damaged = partition(log_dir, settings(f"hw=7 name=damaged-{number}"))
        flip(damaged / "00000000000000000000.log", 16)
        half_swapped = partition(log_dir, settings(f"hw=7 name=half-swapped-{number}"))
        (half_swapped / "00000000000000000000.log.swap").write_bytes(b"")
    for name in (f"gone-0.{UNIQUE_ID}-delete", f"moving-1.{UNIQUE_ID}-future", f"lost-2.{UNIQUE_ID}-stray"):
        _directory_of(log_dir / name, 4096)
    _directory_of(log_dir / "remote-log-index-cache", 100)
    _directory_of(log_dir / "lost+found", 0)
    _directory_of(log_dir / "orders-0.bak", 2048)
    return log_dir


def _directory_of(directory: Path, size_bytes: int) -> None:
    directory.mkdir()
    if size_bytes:
        (directory / "00000000000000000000.log").write_bytes(bytes(size_bytes))
