"""Options that several commands share, and what they come to."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from kcompact.config.resolve import Configured
    from kcompact.config.settings import Override

Command = TypeVar("Command", bound=Callable[..., Any])
DEBUG = "kcompact.debug"
MAX_DIGITS = 19
"""Of a long in Java."""
MAX_SHOWN = 60
LATEST_MS = 253_402_300_799_999
"""The last moment that ISO 8601 can write with four digits for the year."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The configuration options of one command line. `now_ms` is read once."""

    now_ms: int
    by_clock: bool = False
    """Whether `now_ms` is the clock's, which may be wrong, and not the user's."""
    topic: str | None = None
    overrides: tuple[Override, ...] = ()
    broker_properties: Mapping[str, str] = field(default_factory=dict)
    bootstrap_server: str | None = None
    high_watermark: int | None = None
    use_log_end: bool = False

    def configs_of(self, directories: Sequence[Path]) -> dict[Path, Configured]:
        """Return the configuration of each, so that a wrong value is known before anything is done."""
        from kcompact.config.resolve import configurations

        return configurations(
            directories,
            overrides=self.overrides,
            broker_properties=self.broker_properties,
            bootstrap_server=self.bootstrap_server,
        )


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


class Now(click.ParamType[Any]):
    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        text = str(value).strip()
        if text.isascii() and text.isdigit():
            if len(text) > MAX_DIGITS or int(text) > LATEST_MS:
                self.fail(f"'{_cut(text)}' Unix milliseconds are after the year 9999", param, ctx)
            return int(text)
        from datetime import UTC, datetime, timedelta

        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            self.fail(f"'{value}' is neither Unix milliseconds nor ISO 8601, such as 2024-02-29T12:00:00Z", param, ctx)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


class Address(click.ParamType[Any]):
    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from kcompact.config.admin_client import parse_address

        try:
            return parse_address(str(value).strip())
        except ValueError as problem:
            self.fail(str(problem), param, ctx)


_SIZE_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
"""Powers of two, as in everything that kcompact prints."""


class Size(click.ParamType[Any]):
    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        import re
        from decimal import Decimal

        text = str(value).strip()
        parsed = re.fullmatch(r"([0-9]{1,19}(?:\.[0-9]{1,9})?)\s*([kmgt]?)(?:i?b)?", text, re.ASCII | re.IGNORECASE)
        if parsed is None:
            self.fail(f"'{_cut(text)}' is no size, such as 500000, 64m, 1.5g or 100 MiB", param, ctx)
        number, unit = parsed.groups()
        size_bytes = int(Decimal(number) * (1 << _SIZE_UNITS[unit.lower()]))
        if not 1 <= size_bytes < 1 << 63:
            self.fail(f"'{_cut(text)}' is less than a byte or more than 2^63 - 1", param, ctx)
        return size_bytes


class HighWatermark(click.ParamType[Any]):
    name = "offset"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        text = str(value).strip().lower()
        if text == "leo":
            return text
        if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS:
            return int(text)
        raise click.BadParameter(f"'{_cut(text)}' is neither an offset nor leo", ctx=ctx, param=param)


def paths(command: Command) -> Command:
    """PATH..."""
    # Whether it may be read is each path's own affair, and no mistake in the usage of all.
    kind = click.Path(readable=False, path_type=Path)
    return click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=kind)(command)


def json_option(command: Command) -> Command:
    """--json"""
    text = "Print JSON on standard output and nothing else there."
    return click.option("as_json", "--json", is_flag=True, help=text)(command)


def debug_option(command: Command) -> Command:
    """--debug, seen by the one place that handles errors."""

    def remember(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        ctx.meta[DEBUG] = value

    return click.option(
        "--debug", is_flag=True, expose_value=False, callback=remember, help="Show a traceback when something fails."
    )(command)


def configuration(command: Command) -> Command:
    """The options that `inspect`, `plan` and `clean` share; the command gets them as `settings`."""

    @functools.wraps(command)
    def wrapped(
        *args: Any,
        topic: str | None,
        config: tuple[str, ...],
        bootstrap_server: str | None,
        broker_config: Path | None,
        now: int | None,
        high_watermark: int | str | None,
        **kwargs: Any,
    ) -> Any:
        from kcompact import kernels
        from kcompact.config.settings import parse_override

        kernels.is_off()  # A wrong value of the switch is a mistake even where no log is large enough for it to matter.
        settings = Settings(
            now_ms=clock_ms() if now is None else now,
            by_clock=now is None,
            topic=topic,
            overrides=tuple(parse_override(text) for text in config),
            broker_properties=_properties(broker_config),
            bootstrap_server=bootstrap_server,
            high_watermark=high_watermark if isinstance(high_watermark, int) else None,
            use_log_end=high_watermark == "leo",
        )
        return command(*args, settings=settings, **kwargs)

    options = (
        click.option("--topic", metavar="GLOB", help="Only partitions of topics that match, such as 'orders*'."),
        click.option(
            "--config",
            multiple=True,
            metavar="[TOPIC:]NAME=VALUE",
            help="A setting under Kafka's name, for one topic or all; a broker's name (log.cleaner...) sets the "
            "broker's value. Repeatable. Strongest source of configuration.",
        ),
        click.option(
            "--bootstrap-server",
            type=Address(),
            metavar="HOST:PORT",
            help="Ask this live cluster for the settings of topics and broker (needs kafka-python). Default: the "
            "metadata log beside the data, if there is one.",
        ),
        click.option(
            "--broker-config",
            metavar="FILE",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="The broker's server.properties.",
        ),
        click.option(
            "--now",
            type=Now(),
            metavar="TIME",
            help="The time to decide by: Unix milliseconds or ISO 8601 (in UTC unless it says otherwise). "
            "Default: the clock, read once.",
        ),
        click.option(
            "--high-watermark",
            type=HighWatermark(),
            metavar="N|leo",
            help="Take records below this offset as replicated; leo: all. Default: replication-offset-checkpoint.",
        ),
    )
    decorated: Any = wrapped
    for option in reversed(options):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def clock_ms() -> int:
    """Return what the clock says is now, in Unix milliseconds."""
    import time

    return time.time_ns() // 1_000_000


def _properties(file: Path | None) -> dict[str, str]:
    if file is None:
        return {}
    from kcompact.errors import ConfigError, CorruptCheckpointError
    from kcompact.format.properties import parse_java_properties
    from kcompact.log.files import read_file

    try:
        # A configuration file may well be a link, unlike a file of a log.
        return parse_java_properties(read_file(file.resolve()), file=str(file))
    except CorruptCheckpointError as problem:
        raise ConfigError(path=file, problem=problem.problem) from None


def parse_pairs(texts: Sequence[str], *, option: str) -> dict[str, str]:
    """Return repeated `NAME=VALUE` arguments as a dict."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"'{text}' is not NAME=VALUE", param_hint=option)
        pairs[name.strip()] = value
    return pairs
