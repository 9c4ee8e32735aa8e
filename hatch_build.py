"""The build hook of hatchling: machine code for the kernels, and a wheel for one kind of processor.

`KCOMPACT_MACHINE=aarch64` builds for another processor than this machine's, by the name that `uname -m` has for it.
"""

from __future__ import annotations

import os
import platform
import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PLATFORM = "manylinux_2_17"
"""The machine code needs three functions that every C library has. The packages that kcompact needs need newer ones."""


class MachineCodeHook(BuildHookInterface[Any]):
    """Compiles the kernels where that was not done since they changed."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the shared library, and put it and its record into a wheel. An editable one finds it in its place."""
        sys.path.insert(0, self.root)
        from kcompact.kernels.build import build_libraries

        machine = os.environ.get("KCOMPACT_MACHINE") or platform.machine()
        (library,) = build_libraries([machine])
        if version == "editable":
            return
        for path in (library, library.with_suffix(".json")):
            build_data["force_include"][str(path)] = path.relative_to(self.root).as_posix()
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_PLATFORM}_{machine}"
