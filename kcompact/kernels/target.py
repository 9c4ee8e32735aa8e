"""The processor that the machine code is for, and the cache key of machine code for it."""

from __future__ import annotations

import hashlib
import sys
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from llvmlite import binding


def target_machine() -> Any:
    """Return LLVM's description of this processor."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(),
        features=binding.get_host_cpu_features().flatten(),
        opt=3,
        reloc="pic",
        codemodel="jitdefault",
        jit=True,
    )


@cache
def cache_key() -> str:
    """Return the cache key: a hash of everything that the machine code depends on.

    These are the sources of this package, the processor with its features, and the versions of Python and of the
    compiler's packages. Raises OSError and metadata.PackageNotFoundError.
    """
    parts = [sys.version, binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()]
    parts += [f"{name} {metadata.version(name)}" for name in ("numba", "llvmlite", "numpy")]
    digest = hashlib.sha256("\n".join(parts).encode())
    for source in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:32]
