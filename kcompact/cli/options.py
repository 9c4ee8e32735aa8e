"""Options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from kcompact.cli.failures import DEBUG
from kcompact.cli.option_types import Address, HighWatermark, NamedPath, Now, Size

ARGUMENTS = "kcompact.arguments"
"""The key under which click's context holds the arguments as they were typed."""

Command = TypeVar("Command", bound=Callable[..., Any])


def paths(command: Command) -> Command:
    """Add the arguments PATH..."""
    # An unreadable path fails only that path, not the whole command, so click does not check it.
    kind = NamedPath(readable=False)
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


def memory(*, what: str) -> Callable[[Command], Command]:
    """Return a decorator that adds --memory. `what` says in its help what the memory is for."""
    return click.option(
        "--memory",
        "memory_bytes",
        type=Size(),
        metavar="SIZE",
        help=f"Memory for {what}, such as 2g. Default: a quarter of the machine's memory, or of a container's limit.",
    )


def verbosity(*, quiet: str) -> Callable[[Command], Command]:
    """Return a decorator that adds --verbose and --quiet, which exclude each other. `quiet` is the help of --quiet."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def wrapped(*args: Any, is_verbose: bool, is_quiet: bool, **kwargs: Any) -> Any:
            if is_verbose and is_quiet:
                raise click.UsageError("--verbose and --quiet exclude each other")
            return command(*args, is_verbose=is_verbose, is_quiet=is_quiet, **kwargs)

        decorated: Any = click.option("--quiet", "-q", "is_quiet", is_flag=True, help=quiet)(wrapped)
        text = "Print every partition with its details, also if there are many."
        return click.option("--verbose", "-v", "is_verbose", is_flag=True, help=text)(decorated)  # type: ignore[no-any-return]

    return decorate


def typed_arguments() -> tuple[str, ...]:
    """Return the arguments of this process as they were typed, from the name of the command on."""
    arguments: tuple[str, ...] = click.get_current_context().meta.get(ARGUMENTS, ())
    return arguments


_CONFIGURATION = (
    click.option(
        "--topic",
        "topics",
        multiple=True,
        metavar="GLOB",
        help="Only partitions of topics that match, such as 'orders*'. Repeatable.",
    ),
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
        metavar="HOST:PORT[,...]",
        help="Read the settings of topics and brokers from this running cluster. Default: the metadata log beside the "
        "data, if there is one.",
    ),
    click.option(
        "--broker-config",
        metavar="FILE",
        type=NamedPath(exists=True, dir_okay=False),
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
        "--include-internal",
        is_flag=True,
        help="Treat Kafka's internal topics, such as __consumer_offsets, like other topics.",
    ),
    click.option(
        "--high-watermark",
        type=HighWatermark(),
        metavar="N|leo",
        help="Count records below this offset as replicated; leo: all records. Default: replication-offset-checkpoint.",
    ),
)


def configuration(command: Command) -> Command:
    """Add the configuration options of `inspect`, `plan` and `clean`. The command gets them as `plan_options`."""

    @functools.wraps(command)
    def wrapped(
        *args: Any,
        topics: tuple[str, ...],
        config: tuple[str, ...],
        bootstrap_server: str | None,
        broker_config: Path | None,
        now: int | None,
        high_watermark: int | str | None,
        include_internal: bool,
        **kwargs: Any,
    ) -> Any:
        from kcompact import kernels
        from kcompact.config.settings import parse_override
        from kcompact.host.clock import clock_ms
        from kcompact.plan.options import PlanOptions

        kernels.is_off()  # Raises ConfigError for a wrong value, even if no log is large enough for the kernels.
        plan_options = PlanOptions(
            now_ms=clock_ms() if now is None else now,
            by_clock=now is None,
            topics=topics,
            overrides=tuple(parse_override(text) for text in config),
            broker_properties=_properties(broker_config),
            bootstrap_server=bootstrap_server,
            high_watermark=high_watermark if isinstance(high_watermark, int) else None,
            use_log_end=high_watermark == "leo",
            include_internal=include_internal,
        )
        return command(*args, plan_options=plan_options, **kwargs)

    decorated: Any = wrapped
    for option in reversed(_CONFIGURATION):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def _properties(file: Path | None) -> dict[str, str]:
    if file is None:
        return {}
    from kcompact.config.settings import check_broker_properties
    from kcompact.errors import ConfigError, CorruptCheckpointError
    from kcompact.format.properties import parse_java_properties
    from kcompact.log.files import read_file

    try:
        # kcompact follows no links to files of a log, but a configuration file may be a link.
        properties = parse_java_properties(read_file(file.resolve()), file=str(file))
    except CorruptCheckpointError as problem:
        raise ConfigError(path=file, problem=problem.problem) from None
    check_broker_properties(properties, file=file)
    return properties


def parse_pairs(texts: Sequence[str], *, option: str) -> dict[str, str]:
    """Return repeated `NAME=VALUE` arguments as a dict. Raises click.BadParameter."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"'{text}' is not NAME=VALUE", param_hint=option)
        pairs[name.strip()] = value
    return pairs
