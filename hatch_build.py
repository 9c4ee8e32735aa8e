"""The build hook of hatchling: a wheel for one kind of processor, with machine code, man pages and completions.

`KCOMPACT_MACHINE=aarch64` builds for another processor than this machine's, by the name that `uname -m` has for it.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PLATFORM = "manylinux_2_17"
"""The machine code needs three functions that every C library has. The packages that kcompact needs need newer ones."""
_MAN = "share/man/man1"
_COMPLETIONS = {
    "bash": "share/bash-completion/completions/kcompact",
    "zsh": "share/zsh/site-functions/_kcompact",
    "fish": "share/fish/vendor_completions.d/kcompact.fish",
}
"""Where man and the shells look, below the prefix of an installation."""


class MachineCodeHook(BuildHookInterface[Any]):
    """Compiles the kernels where that was not done since they changed, and adds what is not Python to a wheel."""

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
        self.pages = Path(tempfile.mkdtemp())
        for page, target in self._pages().items():
            build_data["shared_data"][str(page)] = target
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_PLATFORM}_{machine}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what the wheel has by now."""
        if version != "editable":
            shutil.rmtree(self.pages)

    def _pages(self) -> dict[Path, str]:
        """Write the man pages and the completions; return where each belongs in an installation."""
        found = {}
        self._kcompact("man", str(self.pages))
        for page in sorted(self.pages.iterdir()):
            found[page] = f"{_MAN}/{page.name}"
        for shell, target in _COMPLETIONS.items():
            page = self.pages / shell
            page.write_bytes(self._kcompact("completion", shell))
            found[page] = target
        return found

    def _kcompact(self, *arguments: str) -> bytes:
        command = [sys.executable, "-m", "kcompact", *arguments]
        return subprocess.run(command, cwd=self.root, check=True, stdout=subprocess.PIPE).stdout
