"""`--memory`: a batch that needs more is refused by every command, at once and with little memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kcompact.format.batch import Record, build
from tests.support import log_dsl
from tests.support.command_line import COMPACT, DIRTY, ROOT, clean, environment, kcompact
from tests.support.giants import GIANTS, write
from tests.support.log_writer import DEFAULT_TIME, LogSpec, SegmentSpec
from tests.support.log_writer import write as write_log

MEMORY = ("--memory", "2m")
COMMANDS = {
    "clean": ("clean", "--yes", "--engine", "in-process", *COMPACT, *MEMORY),
    "dry run": ("clean", "--dry-run", "--engine", "in-process", *COMPACT, *MEMORY),
    "verify": ("verify", *MEMORY),
    "records": ("records", *MEMORY),
}


def content(directory: Path) -> dict[str, tuple[int, bytes]]:
    return {
        path.name: (path.stat().st_mtime_ns, path.read_bytes()[:1000]) for path in directory.iterdir() if path.is_file()
    }


@pytest.mark.parametrize("name", GIANTS)
def test_giants_are_refused(name: str, tmp_path: Path) -> None:
    make, code, message = GIANTS[name]
    directory = make(tmp_path / "logs")
    before = content(directory)
    for command, arguments in COMMANDS.items():
        ran = kcompact(*arguments, directory)
        assert ran.code == code, (command, ran.out, ran.err)
        assert message in ran.out + ran.err, (command, ran.out, ran.err)
        assert content(directory) == before, command


WITH_LITTLE_MEMORY = """
import resource, sys, time
from click.testing import CliRunner
from kcompact.cli.app import main
import numpy, lz4.block, snappy, zstandard, kcompact.cleaner.round, kcompact.questions.verify.log
*commands, = eval(sys.stdin.read())
CliRunner().invoke(main, commands[0])
with open("/proc/self/statm") as statm:
    used = int(statm.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (48 << 20),) * 2)
for command in commands:
    started = time.process_time()
    result = CliRunner().invoke(main, command)
    if result.exit_code == 1:
        print(result.output, result.exception, file=sys.stderr)
    print(result.exit_code, int(time.process_time() - started < 20), command[-1])
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_giants_take_little_memory_and_time(tmp_path: Path) -> None:
    directories = {name: make(tmp_path / str(number)) for number, (name, (make, *_)) in enumerate(GIANTS.items())}
    commands = [[*arguments, str(path)] for arguments in COMMANDS.values() for path in directories.values()]
    done = subprocess.run(
        [sys.executable, "-c", WITH_LITTLE_MEMORY],
        input=repr(commands),
        capture_output=True,
        text=True,
        check=False,
        env={**environment(), "MALLOC_ARENA_MAX": "1"},
        cwd=ROOT,
    )
    expected = [f"{GIANTS[name][1]} 1 {path}" for _ in COMMANDS for name, path in directories.items()]
    assert (done.stdout.splitlines(), done.returncode) == (expected, 0), done.stderr


def test_the_message_says_which_memory_is_enough(tmp_path: Path) -> None:
    directory = write(tmp_path / "logs", build([Record(0, DEFAULT_TIME, b"k", b"v" * 3_000_000)]))
    refused = clean("--memory", "8m", directory)
    assert refused.code == 4
    assert "position 0, offset 0: a batch of 3,000,075 bytes: too large for the memory" in refused.partition["error"]
    assert "pass --memory 16m or more" in refused.partition["error"]
    assert clean("--memory", "16m", directory).code == 0
    assert kcompact("verify", "--memory", "8m", directory).code == 4
    assert kcompact("verify", "--memory", "16m", directory).code == 0


def test_a_batch_with_holes_and_the_right_checksum_is_no_damage(tmp_path: Path) -> None:
    batch = build([Record(0, DEFAULT_TIME, b"k", b"v" + bytes(12 << 20))])
    directory = write(tmp_path / "logs", batch)
    log = directory / f"{0:020d}.log"
    log.unlink()
    with log.open("wb") as sparse:  # As `cp --sparse=always` writes it.
        sparse.write(batch[:4096])
        sparse.truncate(len(batch))
    if log.stat().st_blocks * 512 > len(batch) // 2:
        assert os.geteuid(), "as root, on the machine that checks everything, this test may not be skipped"
        pytest.skip("this file system has no holes")
    assert kcompact("verify", "--memory", "256m", directory).code == 0
    assert clean("--memory", "256m", directory).code == 0


@pytest.mark.usefixtures("compiled")
def test_one_worker_has_the_memory_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(16)))
    from kcompact.format.codec import Codec

    value = bytes(range(256)) * 6_000
    for number, codec in enumerate((Codec.NONE, Codec.ZSTD)):
        directory = write(tmp_path / str(number), build([Record(0, DEFAULT_TIME, b"k", value)], codec=codec))
        # A sixteenth would be enough for a batch of 94 KiB.
        assert clean("--memory", "32m", directory).code == 0
        assert kcompact("verify", "--memory", "32m", directory).code == 0


# --- Limits of the process ------------------------------------------------------------------------------------------

CLEAN = ("clean", "--dry-run", "--force", "--engine", "in-process", *COMPACT)
LIMITED = {
    "clean": CLEAN,
    "keys": ("keys",),
    "latest": ("records", "--latest", "--limit", "1"),
    "verify": ("verify",),
}


def with_limit(limit: str, kib: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command under `ulimit -v` or `ulimit -d`, without counting its lines, which takes memory too."""
    uncounted = {name: value for name, value in environment().items() if not name.startswith("COVERAGE_")}
    return subprocess.run(
        ["sh", "-c", f'ulimit {limit} {kib} && exec "$0" "$@"', sys.executable, "-m", "kcompact", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=uncounted,
        cwd=ROOT,
    )


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of 36 MB with 400,000 keys."""
    value = bytes(60)
    segments = [
        SegmentSpec(
            base_offset=base,
            batches=tuple(
                build([Record(first + n, DEFAULT_TIME, b"%020d" % (first + n), value) for n in range(1000)])
                for first in range(base, base + 199_000, 1000)
            ),
        )
        for base in (0, 200_000, 400_000)
    ]
    return write_log(LogSpec(segments=tuple(segments)), tmp_path_factory.mktemp("large"))


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("command", LIMITED)
@pytest.mark.parametrize(
    ("limit", "kib"),
    [
        ("-v", 250_000),
        pytest.param("-v", 180_000, marks=pytest.mark.slow),
        pytest.param("-d", 110_000, marks=pytest.mark.slow),
    ],
)
def test_the_default_leaves_room_below_the_limits_of_the_process(
    command: str, limit: str, kib: int, large: Path
) -> None:
    done = with_limit(limit, kib, *LIMITED[command], large)
    assert done.returncode == 0, done.stderr


SO_LITTLE_KIB = 20_000 if sys.version_info < (3, 12) else 26_000
"""Enough for Python itself to start and to say why it ends, and not for the module of a command."""


@pytest.mark.parametrize(
    ("kib", "advice"), [(SO_LITTLE_KIB, ": raise it."), (40_000, ": raise it, or pass a smaller --memory.")]
)
def test_too_little_memory_is_no_bug(kib: int, advice: str, tmp_path: Path) -> None:
    done = with_limit("-v", kib, *CLEAN, write_log(log_dsl.parse(DIRTY), tmp_path / "logs"))
    first, second = done.stderr.splitlines()[-2:]
    assert first.startswith("error: not enough memory"), done.stderr
    size = f"RLIMIT_AS (ulimit -v {kib}: {kib / 1024:.1f} MiB of address space) is the limit of this process"
    # As long as the module of a command is not loaded, its options are unknown.
    assert second == size + advice
    assert done.returncode == 1
