"""The machine code of the kernels: what it is linked to, and who loads what for it."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from kcompact.kernels import load
from kcompact.kernels.signatures import KERNELS
from tests.support import machine_code


@pytest.fixture(scope="module")
def code() -> bytes:
    return machine_code.object_file()


def symbols(code: bytes) -> tuple[set[str], set[str]]:
    """Return the names that a relocatable ELF file with 64 bits lacks, and those that it offers to others."""
    assert code[:6] == b"\x7fELF\x02\x01"
    sections_at, section_bytes, count = *struct.unpack_from("<Q", code, 40), *struct.unpack_from("<2H", code, 58)
    sections = [
        struct.unpack_from("<IIQQQQIIQQ", code, sections_at + number * section_bytes) for number in range(count)
    ]
    lacking, offered = set(), set()
    for _, kind, _, _, at, size, link, _, _, entry_bytes in sections:
        if kind != 2:  # SHT_SYMTAB
            continue
        names_at = sections[link][4]
        for entry in range(at, at + size, entry_bytes):
            name_at, info, _, section = struct.unpack_from("<IBBH", code, entry)
            name = code[names_at + name_at : code.index(b"\0", names_at + name_at)].decode()
            if name and section == 0:
                lacking.add(name)
            elif name and info >> 4:
                offered.add(name)
    return lacking, offered


def test_it_needs_the_c_library_and_nothing_else(code: bytes) -> None:
    lacking, offered = symbols(code)
    assert lacking <= {"memcpy", "memset", "memmove", "pread", "_GLOBAL_OFFSET_TABLE_"}
    assert "pread" in lacking
    assert offered == {f"kcompact_{name}" for name in KERNELS}


CLEANED = """
import sys
from pathlib import Path
from kcompact.cleaner import partition as cleaner
from kcompact.cleaner.options import CleanOptions
from kcompact.clean import prepare
from kcompact.plan.partition import plan_partition
from kcompact.engine.in_process import InProcess
from tests.support import log_dsl, log_writer
spec = log_dsl.parse("log now=10:00 min.cleanable.dirty.ratio=0\\n0: a=1 b=2 a=3\\n3: c=1")
directory = log_writer.write(spec, Path(sys.argv[1]))
prepare.COMPILED_BYTES = int(sys.argv[2])
plan = plan_partition(directory, spec.config, now_ms=spec.now_ms)
result = cleaner.clean_partition(plan, InProcess(), lock=None, options=CleanOptions(dry_run=True))
assert (result.stats.messages_read, result.stats.messages_written) == (3, 2)
print(*sorted({"numba", "llvmlite"} & set(sys.modules)))
"""


@pytest.mark.long
@pytest.mark.parametrize(("compiled_bytes", "loaded"), [(0, "llvmlite"), (1 << 20, "")])
def test_cleaning_loads_no_compiler(code: bytes, tmp_path: Path, compiled_bytes: int, loaded: str) -> None:
    cache = tmp_path / "cache" / "kcompact"
    cache.mkdir(parents=True, mode=0o700)
    load.write_cached(cache / machine_code.file_name(), code)
    done = subprocess.run(
        [sys.executable, "-c", CLEANED, str(tmp_path / "logs"), str(compiled_bytes)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == loaded
