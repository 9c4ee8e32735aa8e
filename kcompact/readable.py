"""Sizes and times as people read them."""

from __future__ import annotations

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def size(count_bytes: int) -> str:
    """Return a number of bytes with a unit: `305 B`, `1.2 GiB`."""
    if abs(count_bytes) < 1024:
        return f"{count_bytes} B"
    value = float(count_bytes)
    unit = 0
    value /= 1024
    while abs(value) >= 1023.95 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {_UNITS[unit]}"


def time(timestamp_ms: int | None) -> str:
    """Return Unix milliseconds as UTC in ISO 8601, `-` for none, the number itself if there is no such date."""
    if timestamp_ms is None or timestamp_ms < 0:
        return "-"
    from datetime import UTC, datetime

    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"
    rest = timestamp_ms % 1000
    return f"{moment:%Y-%m-%dT%H:%M:%S}" + (f".{rest:03d}Z" if rest else "Z")


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: `1 segment`, `2 segments`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
