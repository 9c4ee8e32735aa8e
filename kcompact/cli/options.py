"""Options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kcompact.cli.completion import values
from kcompact.cli.declaration import SharedOption
from kcompact.cli.failures import DEBUG
from kcompact.cli.option_types import Address, HighWatermark, NamedPath, Size, Time, When

if TYPE_CHECKING:
    from kcompact.config.client.settings import ClientConfig

Command = TypeVar("Command", bound=Callable[..., Any])

shared_option = functools.partial(click.option, cls=SharedOption)


def paths(command: Command) -> Command:
    """Add the arguments PATH..., directories."""
    return _paths("PATH...", shell_complete=values.complete_directories)(command)


def paths_of_any_kind(command: Command) -> Command:
    """Add the arguments PATH..., directories and files."""
    return _paths("PATH...")(command)


def log_dirs(command: Command) -> Command:
    """Add the arguments LOG_DIR..."""
    return _paths("LOG_DIR...", shell_complete=values.complete_directories)(command)


def _paths(metavar: str, **completion: Any) -> Callable[[Command], Command]:
    # An unreadable path fails only that path, not the whole command, so click does not check it.
    kind = NamedPath(readable=False)
    return click.argument("paths", nargs=-1, required=True, metavar=metavar, type=kind, **completion)


def json_option(command: Command) -> Command:
    """Add --json."""
    text = "Print only JSON on standard output."
    return shared_option("as_json", "--json", is_flag=True, help=text)(command)


def debug_option(command: Command) -> Command:
    """Add --debug. Its value is kept in click's context, where `failures` reads it."""

    def remember(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        ctx.meta[DEBUG] = value

    return shared_option(
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


def batch_memory(memory_bytes: int | None) -> int:
    """Return what may be held for a batch, with this value of --memory."""
    from kcompact.format.limits import batch_memory_bytes
    from kcompact.host.machine import default_memory_bytes

    return batch_memory_bytes(memory_bytes or default_memory_bytes())


_ENGINE = (
    click.option(
        "--engine",
        type=click.Choice(("auto", "spark", "in-process")),
        default="auto",
        show_default=True,
        help="The engine that runs the stages: Spark, or this process. Both give the same bytes. auto: Spark with "
        "--master or --spark-conf, and for 16 GiB or more where Spark and Java are installed; else this process.",
    ),
    click.option("--master", metavar="URL", help="The Spark master. Default: local[*], this machine."),
    click.option("--spark-conf", multiple=True, metavar="NAME=VALUE", help="A Spark setting. Repeatable."),
)


def engine(command: Command) -> Command:
    """Add --engine, --master and --spark-conf."""
    decorated: Any = command
    for option in reversed(_ENGINE):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def unclean(command: Command) -> Command:
    """Add --unclean."""
    text = "After an unclean shutdown: plan by what a broker's recovery will keep, and clean nothing that it recovers."
    return click.option("--unclean", is_flag=True, help=text)(command)


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


_CONFIGURATION = (
    shared_option(
        "--topic",
        "topics",
        multiple=True,
        metavar="GLOB",
        shell_complete=values.complete_topics,
        help="Only partitions of topics that match, such as 'orders*'. Repeatable.",
    ),
    shared_option(
        "--config",
        multiple=True,
        metavar="[TOPIC:]NAME=VALUE",
        shell_complete=values.complete_settings,
        help="A setting under Kafka's name, for one topic or for all. A broker's name (log.cleaner...) sets the "
        "broker's value. Overrides every other source. Repeatable.",
    ),
    shared_option(
        "--bootstrap-server",
        type=Address(),
        metavar="HOST:PORT[,...]",
        help="Read the settings of topics and brokers from this running cluster. Default: the metadata log beside the "
        "data, if there is one.",
    ),
    shared_option(
        "--command-config",
        metavar="FILE",
        type=NamedPath(exists=True, dir_okay=False),
        help="The client's settings for --bootstrap-server, as Kafka's own tools take them: TLS, user and password.",
    ),
    shared_option(
        "--broker-config",
        metavar="FILE",
        type=NamedPath(exists=True, dir_okay=False),
        help="The broker's server.properties, whose log.dirs names PATH. Default: the file is looked for where brokers "
        "keep it.",
    ),
    shared_option(
        "--log-dirs-moved",
        is_flag=True,
        help="PATH is a copy or another mount, so log.dirs of --broker-config names other directories.",
    ),
    shared_option(
        "--now",
        type=Time(),
        metavar="TIME",
        help="The time of the decision: Unix milliseconds, ISO 8601 (UTC unless it names another zone), or how long "
        "ago by the clock: 2h, 90d; +2h is in two hours. Default: the clock, read once.",
    ),
    shared_option(
        "--include-internal",
        is_flag=True,
        help="Treat Kafka's internal topics, such as __consumer_offsets, like other topics.",
    ),
    shared_option(
        "--high-watermark",
        type=HighWatermark(),
        metavar="N|leo",
        help="Count records below this offset as replicated; leo: all records. Default: replication-offset-checkpoint.",
    ),
)


def configuration(command: Command, *, needs_kernels: bool = True) -> Command:
    """Add the configuration options of `inspect`, `plan` and `clean`. The command gets them as `plan_options`.

    A command that needs kernels ends at once if their machine code does not load.
    """

    @functools.wraps(command)
    def wrapped(
        *args: Any,
        topics: tuple[str, ...],
        config: tuple[str, ...],
        bootstrap_server: str | None,
        command_config: Path | None,
        broker_config: Path | None,
        log_dirs_moved: bool,
        now: When | None,
        high_watermark: int | str | None,
        include_internal: bool,
        **kwargs: Any,
    ) -> Any:
        from kcompact import kernels
        from kcompact.config import server_properties
        from kcompact.config.server_properties import read_broker_config
        from kcompact.config.settings import parse_override
        from kcompact.host.machine import clock_ms
        from kcompact.kernels import machine_code
        from kcompact.plan.options import PlanOptions

        if command_config is not None and bootstrap_server is None:
            raise click.UsageError("--command-config needs --bootstrap-server: it says how to reach that cluster")
        if log_dirs_moved and broker_config is None:
            raise click.UsageError("--log-dirs-moved needs --broker-config")
        # Both raise ConfigError for a wrong value, also where it has no effect.
        machine_code.is_off()
        server_properties.is_search_off()
        if needs_kernels:
            kernels.in_use()  # Finds at once that the machine code does not load.
        plan_options = PlanOptions(
            now_ms=(now or When()).before(clock_ms()),
            by_clock=now is None,
            topics=topics,
            overrides=tuple(parse_override(text) for text in config),
            broker_config=read_broker_config(broker_config, log_dirs_moved=log_dirs_moved) if broker_config else None,
            bootstrap_server=bootstrap_server,
            client=_client(command_config),
            high_watermark=high_watermark if isinstance(high_watermark, int) else None,
            use_log_end=high_watermark == "leo",
            include_internal=include_internal,
        )
        return command(*args, plan_options=plan_options, **kwargs)

    decorated: Any = wrapped
    for option in reversed(_CONFIGURATION):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def _client(file: Path | None) -> ClientConfig | None:
    if file is None:
        return None
    from kcompact.cli.output import streams
    from kcompact.config.client.settings import ClientConfig

    client = ClientConfig.read(file)
    streams.tell_notes(client.notes)
    return client


def parse_pairs(texts: Sequence[str], *, option: str) -> dict[str, str]:
    """Return repeated `NAME=VALUE` arguments as a dict. Raises click.BadParameter."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"'{text}' is not NAME=VALUE", param_hint=option)
        pairs[name.strip()] = value
    return pairs
