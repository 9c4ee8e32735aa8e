"""The machine code of the kernels: a shared library for each kind of processor, with a record of what it is.

`machine_code/x86_64.so` belongs to the package. It calls `memcpy`, `memset` and `pread` of the C library (on ARM also
`getauxval`) and no function of Python, so it fits every Python. A wheel has the library of its processor; a checkout
builds it at set-up.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import platform
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from kcompact.errors import KernelsUnavailableError
from kcompact.kernels.target import FITS, TARGETS

DIRECTORY = Path(__file__).with_name("machine_code")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The SHA-256 of a shared library, and that of the sources that it was built from, in hexadecimal."""

    library_sha256: str
    sources_sha256: str

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), indent=2).encode() + b"\n"

    @classmethod
    def from_json(cls, text: bytes) -> Record:
        """Raises ValueError for a text that is not a record."""
        try:
            return cls(**json.loads(text))
        except TypeError as problem:
            raise ValueError("not a record of machine code") from problem


def library_path(machine: str) -> Path:
    """Return where the shared library for a processor is, by its name in `TARGETS`; the record is beside it."""
    return DIRECTORY / f"{machine}.so"


def library_sha256() -> str:
    """Return the SHA-256 of the loaded library, in hexadecimal. Raises as `library` does."""
    return _library()[1]


def library() -> ctypes.CDLL:
    """Return the shared library of this processor, opened.

    Raises KernelsUnavailableError if it is missing or damaged, if it does not load, or if the processor lacks
    instructions that it uses.
    """
    return _library()[0]


@cache
def _library() -> tuple[ctypes.CDLL, str]:
    machine = platform.machine()
    path = library_path(machine)
    target = TARGETS.get(machine)
    others = sorted(found.stem for found in DIRECTORY.glob("*.so"))
    if target is None or (others and machine not in others):
        of_others = " and ".join(others or TARGETS)
        raise KernelsUnavailableError(
            problem=f"this kcompact has machine code for {of_others}, and this processor is {machine}: "
            "install the wheel for this processor"
        )
    if not others:
        raise KernelsUnavailableError(
            problem=f"{path} is missing: install kcompact again; in a checkout `make demo` builds it"
        )
    # A library that was cut short can be opened, and ends the process when a missing page is touched.
    try:
        expected = Record.from_json(path.with_suffix(".json").read_bytes()).library_sha256
        found_sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    except (OSError, ValueError) as problem:
        raise KernelsUnavailableError(
            problem=f"{path} cannot be checked: {problem}: install kcompact again"
        ) from problem
    if found_sha256 != expected:
        raise KernelsUnavailableError(
            problem=f"{path} is damaged, its SHA-256 is not that of its record: install kcompact again"
        )
    try:
        opened = ctypes.CDLL(str(path))
    except OSError as problem:  # Its message begins with the path.
        reason = ": its file system is mounted noexec, install kcompact on another one" if _is_noexec(path) else ""
        raise KernelsUnavailableError(problem=f"{problem}{reason}") from problem
    if not getattr(opened, FITS)():
        raise KernelsUnavailableError(
            problem=f"this processor lacks the instructions of {target.instructions}{target.also_needed}"
        )
    return opened, found_sha256


def _is_noexec(path: Path) -> bool:
    return bool(os.statvfs(path).f_flag & os.ST_NOEXEC)
