"""The switch that turns the kernels off: the environment variable KCOMPACT_KERNELS."""

from __future__ import annotations

import os

from kcompact.errors import ConfigError

VARIABLE = "KCOMPACT_KERNELS"


def is_off() -> bool:
    """Return whether the kernels are turned off: `off`. `auto`, nothing or an unset variable leaves them on.

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
