"""The types of option values: a time, an address, a size, a high watermark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

MAX_DIGITS = 19
"""The number of digits of the greatest long in Java."""
MAX_SHOWN_CHARS = 60
LATEST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999, the last year with four digits."""

_SIZE_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
"""Powers of two, as in all sizes that kcompact prints."""


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}..."


class NamedPath(click.Path):
    """A path, as a `Path`. An empty text is an error: `Path("")` is the current directory."""

    def __init__(self, **checks: bool) -> None:
        super().__init__(path_type=Path, **checks)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            from kcompact.plan.discovery import EMPTY_PATH

            self.fail(EMPTY_PATH if self.dir_okay else "the path is empty", param, ctx)
        return super().convert(value, param, ctx)


class Now(click.ParamType[Any]):
    """A time in Unix milliseconds, from such a number or from ISO 8601, which is UTC unless it names another zone."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        from kcompact.plan.options import LIKELY_SECONDS, as_both_units

        text = str(value).strip()
        if text.isascii() and text.isdigit():
            if len(text) > MAX_DIGITS or int(text) > LATEST_MS:
                self.fail(f"'{_cut(text)}' Unix milliseconds are after the year 9999", param, ctx)
            if int(text) in LIKELY_SECONDS:
                self.fail(as_both_units(int(text)), param, ctx)
            return int(text)
        from datetime import UTC, datetime, timedelta

        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            self.fail(
                f"'{_cut(text)}' is neither Unix milliseconds nor ISO 8601, such as 2024-02-29T12:00:00Z", param, ctx
            )
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


class Address(click.ParamType[Any]):
    """HOST:PORT, unchanged."""

    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from kcompact.config.admin_client import parse_address

        try:
            return parse_address(str(value).strip())
        except ValueError as problem:
            self.fail(str(problem), param, ctx)


class Size(click.ParamType[Any]):
    """A size as a number of bytes, 1 to 2^63 - 1."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        import re
        from decimal import Decimal

        text = str(value).strip()
        parsed = re.fullmatch(r"([0-9]{1,19}(?:\.[0-9]{1,9})?)\s*([kmgt]?)(?:i?b)?", text, re.ASCII | re.IGNORECASE)
        if parsed is None:
            self.fail(f"'{_cut(text)}' is not a size, such as 500000, 64m, 1.5g or 100 MiB", param, ctx)
        number, unit = parsed.groups()
        size_bytes = int(Decimal(number) * (1 << _SIZE_UNITS[unit.lower()]))
        if not 1 <= size_bytes < 1 << 63:
            self.fail(f"'{_cut(text)}' is less than 1 byte or more than 2^63 - 1 bytes", param, ctx)
        return size_bytes


_DURATION_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_MAX_DURATION_MS = LATEST_MS


class Duration(click.ParamType[Any]):
    """A length of time in milliseconds, from a number and a unit."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        import re

        text = str(value).strip()
        parsed = re.fullmatch(r"([0-9]{1,15})\s*(ms|[smhdw])", text, re.ASCII | re.IGNORECASE)
        if parsed is None:
            self.fail(f"'{_cut(text)}' is not a length of time, such as 90d, 12h, 30m, 45s or 500ms", param, ctx)
        duration_ms = int(parsed[1]) * _DURATION_UNITS[parsed[2].lower()]
        if duration_ms > _MAX_DURATION_MS:
            self.fail(f"'{_cut(text)}' is more than 8000 years", param, ctx)
        return duration_ms


class HighWatermark(click.ParamType[Any]):
    """An offset, or `leo` for the log end offset."""

    name = "offset"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        text = str(value).strip().lower()
        if text == "leo":
            return text
        if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS:
            return int(text)
        raise click.BadParameter(f"'{_cut(text)}' is neither an offset nor leo", ctx=ctx, param=param)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        from click.shell_completion import CompletionItem

        return [CompletionItem("leo")] if "leo".startswith(incomplete) else []
