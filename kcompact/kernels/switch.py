"""The environment variable KCOMPACT_KERNELS, which turns the kernels off."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from kcompact.errors import ConfigError

VARIABLE = "KCOMPACT_KERNELS"


def is_off() -> bool:
    """Return whether the variable is `off`. `auto`, an empty value or an unset variable leaves the kernels on.

    Raises ConfigError for any other value.
    """
    value = os.environ.get(VARIABLE) or "auto"
    if value not in ("auto", "off"):
        raise ConfigError(
            path=VARIABLE,
            problem=f"{value!r} is neither auto nor off",
            hint=f"Unset it, or set {VARIABLE}=off to work without compiled code.",
        )
    return value == "off"


@contextmanager
def turned_off() -> Iterator[None]:
    """Let the definitions do the work of this process in a block."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = "off"
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
