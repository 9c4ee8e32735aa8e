"""Options that several commands share, and the settings that result from them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kcompact.cli.failures import DEBUG
from kcompact.cli.option_types import Address, HighWatermark, Now

if TYPE_CHECKING:
    from kcompact.config.resolve import Configured
    from kcompact.config.settings import Override

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The configuration options of one command line. `now_ms` is read once."""

    now_ms: int
    by_clock: bool = False
    """Whether `now_ms` is from the clock, which may be wrong, and not from the user."""
    topic: str | None = None
    overrides: tuple[Override, ...] = ()
    broker_properties: Mapping[str, str] = field(default_factory=dict)
    bootstrap_server: str | None = None
    high_watermark: int | None = None
    use_log_end: bool = False

    def configs_of(self, directories: Sequence[Path]) -> dict[Path, Configured]:
        """Return the configuration of each partition. Raises ConfigError: a wrong value stops the command."""
        from kcompact.config.resolve import configurations

        return configurations(
            directories,
            overrides=self.overrides,
            broker_properties=self.broker_properties,
            bootstrap_server=self.bootstrap_server,
        )


def paths(command: Command) -> Command:
    """Add the arguments PATH..."""
    # An unreadable path fails only that path, not the whole command, so click does not check it.
    kind = click.Path(readable=False, path_type=Path)
    return click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=kind)(command)


def json_option(command: Command) -> Command:
    """Add --json."""
    text = "Print only JSON on standard output."
    return click.option("as_json", "--json", is_flag=True, help=text)(command)


def debug_option(command: Command) -> Command:
    """Add --debug. Its value is kept in click's context, where `failures` reads it."""

    def remember(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        ctx.meta[DEBUG] = value

    return click.option(
        "--debug", is_flag=True, expose_value=False, callback=remember, help="Show a traceback when something fails."
    )(command)


_CONFIGURATION = (
    click.option("--topic", metavar="GLOB", help="Only partitions of topics that match, such as 'orders*'."),
    click.option(
        "--config",
        multiple=True,
        metavar="[TOPIC:]NAME=VALUE",
        help="A setting under Kafka's name, for one topic or for all. A broker's name (log.cleaner...) sets the "
        "broker's value. Overrides every other source. Repeatable.",
    ),
    click.option(
        "--bootstrap-server",
        type=Address(),
        metavar="HOST:PORT",
        help="Read the settings of topics and brokers from this running cluster. Default: the metadata log beside the "
        "data, if there is one.",
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
        help="The time of the decision: Unix milliseconds or ISO 8601 (UTC unless it names another zone). "
        "Default: the clock, read once.",
    ),
    click.option(
        "--high-watermark",
        type=HighWatermark(),
        metavar="N|leo",
        help="Count records below this offset as replicated; leo: all records. Default: replication-offset-checkpoint.",
    ),
)


def configuration(command: Command) -> Command:
    """Add the configuration options of `inspect`, `plan` and `clean`. The command gets them as `settings`."""

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

        kernels.is_off()  # Raises ConfigError for a wrong value, even if no log is large enough for the kernels.
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

    decorated: Any = wrapped
    for option in reversed(_CONFIGURATION):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def clock_ms() -> int:
    """Return the clock's time in Unix milliseconds."""
    import time

    return time.time_ns() // 1_000_000


def _properties(file: Path | None) -> dict[str, str]:
    if file is None:
        return {}
    from kcompact.errors import ConfigError, CorruptCheckpointError
    from kcompact.format.properties import parse_java_properties
    from kcompact.log.files import read_file

    try:
        # kcompact follows no links to files of a log, but a configuration file may be a link.
        return parse_java_properties(read_file(file.resolve()), file=str(file))
    except CorruptCheckpointError as problem:
        raise ConfigError(path=file, problem=problem.problem) from None


def parse_pairs(texts: Sequence[str], *, option: str) -> dict[str, str]:
    """Return repeated `NAME=VALUE` arguments as a dict. Raises click.BadParameter."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"'{text}' is not NAME=VALUE", param_hint=option)
        pairs[name.strip()] = value
    return pairs
