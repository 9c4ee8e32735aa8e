"""The types of option values: paths, times, addresses, sizes, offsets, keys."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import click

from kcompact.bucket.path import is_address, local_path, parts_of, require_known_store, require_local_path
from kcompact.bucket.scratch import as_path
from kcompact.errors import ConfigError
from kcompact.format.text_lines import parse_digits
from kcompact.release import Release, release_of
from kcompact.values import dataclass

MAX_DIGITS = 19
"""The number of digits of the greatest long in Java."""
MAX_OFFSET = (1 << 63) - 1
MAX_SHOWN_CHARS = 60
LATEST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999, the last year with four digits."""

_SIZE_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
"""Powers of two, as in all sizes that kcompact prints."""


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}..."


def _mirrored(address: str) -> Path:
    """Return the path of an address. Notes on unfinished uploads go to standard error.

    An error of the bucket is raised by the reading of the path, so that it fails this path and no other.
    """
    from kcompact.bucket.mirror import MIRROR
    from kcompact.cli.output import streams
    from kcompact.plan.run_notes import unfinished_uploads

    path = MIRROR.mirrored_or_failed(address)
    streams.tell_notes(unfinished_uploads(MIRROR.take_orphans()))
    return path


def _refusal(path: str | os.PathLike[str], *, takes_buckets: bool) -> str:
    """Return why a path is refused, and what to pass instead; an empty text for one that is not."""
    try:
        if takes_buckets:
            require_known_store(path, suggests_address=True)
        else:
            require_local_path(path)
    except ConfigError as problem:
        return ". ".join(filter(None, (f"'{_cut(problem.path)}' {problem.problem}", problem.hint)))
    return ""


class NamedPath(click.Path):
    """A path, as a `Path`. An empty text is an error: `Path("")` is the current directory.

    A path of another store is an error too (`require_known_store`).
    With `reads_buckets` it may be the address of a log directory or a partition in a bucket, which is mirrored; with
    `writes_buckets` that of a prefix to write to.
    """

    def __init__(self, *, reads_buckets: bool = False, writes_buckets: bool = False, **checks: bool) -> None:
        super().__init__(path_type=Path, **checks)
        self._reads_buckets, self._writes_buckets = reads_buckets, writes_buckets

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            from kcompact.plan.discovery import EMPTY_PATH

            self.fail(EMPTY_PATH if self.dir_okay else "the path is empty", param, ctx)
        if refusal := _refusal(value, takes_buckets=self._reads_buckets or self._writes_buckets):
            self.fail(refusal, param, ctx)
        if is_address(value):
            if self._writes_buckets:
                parts_of(value)
                return as_path(value)
            return _mirrored(value)
        super().convert(value, param, ctx)
        return local_path(value)


class NamedFile(click.File):
    """A local file that is opened, or `-`. A path of another store is an error."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and (refusal := _refusal(value, takes_buckets=False)):
            self.fail(refusal, param, ctx)
        return super().convert(value, param, ctx)


@dataclass(frozen=True, slots=True)
class When:
    """A moment in Unix milliseconds, or one that is so many milliseconds before another (after it, if negative)."""

    at_ms: int | None = None
    ago_ms: int = 0

    def before(self, base_ms: int) -> int:
        """Return the moment. Raises click.UsageError for one before 1970 or after the year 9999."""
        moment_ms = base_ms - self.ago_ms if self.at_ms is None else self.at_ms
        if not 0 <= moment_ms <= LATEST_MS:
            raise click.UsageError("a length of time leads to a moment before 1970 or after the year 9999")
        return moment_ms


_LENGTH = re.compile(r"([+-]?)([0-9]{1,15})\s*(ms|[smhdw])", re.ASCII | re.IGNORECASE)
_LENGTH_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}


class Time(click.ParamType[Any]):
    """A `When`: Unix milliseconds, ISO 8601 (UTC unless it names another zone), or a length of time.

    `2h` and `-2h` are two hours ago, `+2h` is in two hours. With `needs_unit` a small number is an error: where an age
    is expected, it was meant as one.
    """

    name = "time"

    def __init__(self, *, needs_unit: bool = False) -> None:
        self._needs_unit = needs_unit

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> When:
        if isinstance(value, When):
            return value
        from kcompact.plan.options import LIKELY_SECONDS, as_both_units

        text = str(value).strip()
        if text.isascii() and text.isdigit():
            if len(text) > MAX_DIGITS or int(text) > LATEST_MS:
                self.fail(f"'{_cut(text)}' Unix milliseconds are after the year 9999", param, ctx)
            if int(text) in LIKELY_SECONDS:
                self.fail(as_both_units(int(text)), param, ctx)
            if self._needs_unit and int(text) < LIKELY_SECONDS.start:
                self.fail(f"'{text}' has no unit: {text}d, {text}h or {text}m", param, ctx)
            return When(at_ms=int(text))
        if length := _LENGTH.fullmatch(text):
            length_ms = int(length[2]) * _LENGTH_UNITS_MS[length[3].lower()]
            if length_ms > LATEST_MS:
                self.fail(f"'{_cut(text)}' is more than 8000 years", param, ctx)
            return When(ago_ms=-length_ms if length[1] == "+" else length_ms)
        from datetime import UTC, datetime, timedelta

        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            self.fail(
                f"'{_cut(text)}' is no time: neither Unix milliseconds, nor ISO 8601, such as 2024-02-29T12:00:00Z, "
                "nor a length of time, such as 90d, 12h, 30m or 45s",
                param,
                ctx,
            )
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return When(at_ms=(moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1))


class Address(click.ParamType[Any]):
    """HOST:PORT, unchanged."""

    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from kcompact.config.admin_client import parse_address

        try:
            return parse_address(str(value).strip())
        except ValueError as problem:
            self.fail(str(problem), param, ctx)


class KafkaVersion(click.ParamType[Any]):
    """A version of Kafka, as the release whose rules it has."""

    name = "version"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Release:
        try:
            return value if isinstance(value, Release) else release_of(str(value).strip())
        except ValueError as problem:
            self.fail(f"'{_cut(str(value))}' {problem}", param, ctx)


class Size(click.ParamType[Any]):
    """A size as a number of bytes, 1 to 2^63 - 1."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
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


class HighWatermark(click.ParamType[Any]):
    """An offset, or `leo` for the log end offset."""

    name = "offset"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        text = str(value).strip().lower()
        if text == "leo":
            return text
        if (offset := parse_digits(text, most=MAX_DIGITS)) is not None:
            return offset
        raise click.BadParameter(f"'{_cut(text)}' is neither an offset nor leo", ctx=ctx, param=param)


class Number(click.ParamType[Any]):
    """An offset, or the number of a partition."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        number = parse_digits(str(value), most=MAX_DIGITS)
        if number is None:
            self.fail(f"'{value}' is not a number from 0 on", param, ctx)
        return min(number, MAX_OFFSET)


class Key(click.ParamType[Any]):
    """A key, or the beginning of one: text, or bytes as `hex:` and hexadecimal digits."""

    name = "key"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bytes:
        if isinstance(value, bytes):
            return value
        text = str(value)
        if not text.startswith("hex:"):
            return text.encode("utf-8", "surrogateescape")
        try:
            return bytes.fromhex(text.removeprefix("hex:"))
        except ValueError:
            self.fail(f"'{text}' is not hex: and pairs of hexadecimal digits", param, ctx)


class Separator(click.ParamType[Any]):
    """What ends the prefix of a key."""

    name = "separator"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bytes:
        if not value:
            self.fail("the separator is empty", param, ctx)
        return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")


class KeyHash(click.ParamType[Any]):
    """The first hexadecimal digits of the SHA-256 of a key."""

    name = "hash"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        digits = str(value).lower()
        if not re.fullmatch(r"[0-9a-f]{4,64}", digits):
            self.fail(f"'{value}' is not the first 4 to 64 hexadecimal digits of a SHA-256", param, ctx)
        return digits
