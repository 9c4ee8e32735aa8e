"""The kcompact that a process runs: workers must have the driver's, or they would not give the driver's result."""

from __future__ import annotations

from typing import NamedTuple

from kcompact import __version__, kernels
from kcompact.errors import EngineError
from kcompact.kernels.machine_code import library_sha256


class Package(NamedTuple):
    """A version of kcompact, and the SHA-256 of its machine code; None if the kernels are not used."""

    version: str
    machine_code: str | None

    @classmethod
    def of_this_process(cls) -> Package:
        """Raises KernelsUnavailableError if the machine code cannot be loaded."""
        return cls(__version__, library_sha256() if kernels.in_use() else None)

    def __str__(self) -> str:
        code = "no machine code" if self.machine_code is None else f"machine code {self.machine_code[:12]}"
        return f"kcompact {self.version} with {code}"


def check_worker(driver: Package) -> None:
    """Raise EngineError if this worker does not run the driver's package, KernelsUnavailableError as above."""
    worker = Package(__version__, None if driver.machine_code is None else library_sha256())
    if worker != driver:
        raise EngineError(
            problem=f"a worker has {worker}, the driver has {driver}",
            hint="Install the same kcompact on the driver and on all workers.",
        )
