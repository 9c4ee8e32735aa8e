"""How commands are declared: their help, and the options that several of them have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import augment_usage_errors

from kcompact.cli.failures import DEBUG, exit_code_of
from kcompact.cli.option_types import Address, HighWatermark, KafkaVersion, NamedPath, Number, Size, Time, When
from kcompact.cli.output import streams
from kcompact.wording import say_options

if TYPE_CHECKING:
    from kcompact.cleaner.engines import EngineOptions
    from kcompact.config.client.settings import ClientConfig
    from kcompact.config.settings import TopicOverrides
    from kcompact.plan.options import PlanOptions
    from kcompact.plan.selection import Selection
    from kcompact.release import Release

Function = TypeVar("Function", bound=Callable[..., Any])


# Shared options


class SharedOption(click.Option):
    """An option of several commands that means the same in all of them. The help of each shows it last."""


SELECTION = (
    SharedOption(
        ["--topic", "topics"],
        multiple=True,
        metavar="GLOB",
        help="Only partitions of topics that match, such as 'orders*'. Repeatable.",
    ),
    SharedOption(
        ["--partition", "partitions"],
        type=Number(),
        multiple=True,
        metavar="N",
        help="Only partitions with the number N. Repeatable.",
    ),
)
"""Which partitions of the paths are meant. A command gets them as one value, `selection`, or in `plan_options`."""

SETTINGS = (
    *SELECTION,
    SharedOption(
        ["--config"],
        multiple=True,
        metavar="[TOPIC:]NAME=VALUE",
        help="A setting under Kafka's name. With TOPIC, a name or a pattern such as 'orders*', it overrules every "
        "other source; without, it is the value of topics that have none of their own. A broker's name "
        "(log.cleaner...) sets the broker's value. Repeatable.",
    ),
    SharedOption(
        ["--bootstrap-server"],
        type=Address(),
        metavar="HOST:PORT[,...]",
        help="Read the settings of topics and brokers from this running cluster. Default: the metadata log of the "
        "broker, if there is one.",
    ),
    SharedOption(
        ["--command-config"],
        metavar="FILE",
        type=NamedPath(exists=True, dir_okay=False),
        help="The client's settings for --bootstrap-server, as Kafka's own tools take them: TLS, user and password.",
    ),
    SharedOption(
        ["--topic-configs"],
        metavar="FILE",
        type=NamedPath(exists=True, dir_okay=False),
        help="What topics have of their own, as `kafka-configs.sh --describe --entity-type topics` or "
        "`kafka-topics.sh --describe` prints it, or a JSON object of topics and their settings.",
    ),
    SharedOption(
        ["--broker-config"],
        metavar="FILE",
        type=NamedPath(exists=True, dir_okay=False),
        help="The broker's server.properties, whose log.dirs names PATH. Default: the file is looked for where brokers "
        "keep it.",
    ),
    SharedOption(
        ["--log-dirs-moved"],
        is_flag=True,
        help="PATH is a copy or another mount, so log.dirs of --broker-config names other directories.",
    ),
    SharedOption(
        ["--kafka-release"],
        type=KafkaVersion(),
        metavar="VERSION",
        help="Use the rules of this version of Kafka, from 2.8 on: 3.6.2, 4.3. Default: those of the broker's own "
        "release if its files tell it, else of the newest.",
    ),
    SharedOption(
        ["--now"],
        type=Time(),
        metavar="TIME",
        help="The time of the decision: Unix milliseconds, ISO 8601 (UTC unless it names another zone), or how long "
        "ago by the clock: 2h, 90d; +2h is in two hours. Default: the clock, read once.",
    ),
    SharedOption(
        ["--include-internal"],
        is_flag=True,
        help="Treat Kafka's internal topics, such as __consumer_offsets, like other topics.",
    ),
    SharedOption(
        ["--high-watermark"],
        type=HighWatermark(),
        metavar="N|leo",
        help="Count records below this offset as replicated; leo: all records. Default: replication-offset-checkpoint.",
    ),
)
"""The options about topics, settings and time. A command gets them as one value, `plan_options`."""


def _remember_debug(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    ctx.meta[DEBUG] = value


JSON = SharedOption(["--json", "as_json"], is_flag=True, help="Print only JSON on standard output.")
DEBUGGING = SharedOption(
    ["--debug"],
    is_flag=True,
    expose_value=False,
    callback=_remember_debug,
    help="Show a traceback when something fails.",
)


# Commands


class Helpful(click.Command):
    """A command whose help is printed as its answers are: a failure is one of standard output."""

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Return the option `--help`."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.callback = _show_help
        return option


class Command(Helpful):
    """A command of kcompact. Its help shows its own options before the shared ones."""

    needs_kernels = True
    """Whether the command ends at once if the machine code of the kernels does not load."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, with a heading for the shared ones."""
        own: list[tuple[str, str]] = []
        shared: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                is_shared = isinstance(parameter, SharedOption) or parameter is self.get_help_option(ctx)
                (shared if is_shared else own).append(record)
        for heading, records in (("Options", own), ("Shared options", shared)):
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, with its settings and its engine as one value each. Raises ConfigError for a wrong one."""
        say_options(option for parameter in self.params for option in parameter.opts)
        given = ctx.params
        with augment_usage_errors(ctx):
            if given.get("is_verbose") and given.get("is_quiet"):
                raise click.UsageError("--verbose and --quiet exclude each other")
            if SETTINGS[-1] in self.params:
                settings = {option.name: given.pop(option.name) for option in SETTINGS if option.name}
                further_options = {
                    name: given.pop(name, default) for name, default in (("unclean", False), ("replicas", ()))
                }
                further_options["log_dirs"] = tuple(given.get("paths", ()))
                given["plan_options"] = _plan_options(**settings, **further_options, needs_kernels=self.needs_kernels)
            elif SELECTION[0] in self.params:
                given["selection"] = _selection(given.pop("topics"), given.pop("partitions"))
            if "spark_conf" in given:
                given["engine"] = _engine_options(given["engine"], given.pop("master"), given.pop("spark_conf"))
        return super().invoke(ctx)


def command(
    name: str, *, settings: bool = True, selects: bool = False, needs_kernels: bool = True, as_json: bool = True
) -> Callable[[Callable[..., int]], Command]:
    """Return a decorator that makes a command of a function. The function's docstring is the help.

    The function gets the values of its own options, and of these shared ones: with `settings` as `plan_options`, with
    `selects` only `selection`, with `as_json` whether JSON is asked for.
    """

    def declare(function: Callable[..., int]) -> Command:
        declared: Command = click.command(name, cls=Command)(function)
        declared.needs_kernels = needs_kernels
        chosen = SETTINGS if settings else SELECTION if selects else ()
        declared.params += [*chosen, *((JSON,) if as_json else ()), DEBUGGING]
        return declared

    return declare


def commands_of(context: click.Context) -> dict[str, click.Command]:
    """Return the commands of the group of a context by their names. The module of each is imported."""
    group = context.command
    if not isinstance(group, click.Group):
        return {}
    commands = {name: group.get_command(context, name) for name in group.list_commands(context)}
    return {name: command for name, command in commands.items() if command is not None}


def _show_help(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        answer(ctx, ctx.get_help())


def answer(ctx: click.Context, text: str) -> None:
    """Print a text and end the command."""
    try:
        streams.echo(text)
    except BrokenPipeError as problem:  # Click would end the process with 1.
        ctx.exit(exit_code_of(problem, debug=False))
    ctx.exit()


def _plan_options(
    *,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    config: tuple[str, ...],
    bootstrap_server: str | None,
    command_config: Path | None,
    topic_configs: Path | None,
    broker_config: Path | None,
    log_dirs_moved: bool,
    kafka_release: Release | None,
    now: When | None,
    include_internal: bool,
    high_watermark: int | str | None,
    unclean: bool,
    replicas: tuple[Path, ...],
    log_dirs: tuple[Path, ...],
    needs_kernels: bool,
) -> PlanOptions:
    from kcompact import kernels
    from kcompact.config import server_properties
    from kcompact.config.server_properties import read_broker_config
    from kcompact.config.settings import parse_override
    from kcompact.host.machine import clock_ms
    from kcompact.plan.options import PlanOptions

    if command_config is not None and bootstrap_server is None:
        raise click.UsageError("--command-config needs --bootstrap-server: it says how to reach that cluster")
    if log_dirs_moved and broker_config is None:
        raise click.UsageError("--log-dirs-moved needs --broker-config")
    server_properties.is_search_off()  # Raises ConfigError for a wrong value, also where it has no effect.
    if needs_kernels:
        kernels.library()  # Finds at once that the machine code does not load.
    return PlanOptions(
        now_ms=(now or When()).before(clock_ms()),
        by_clock=now is None,
        topics=topics,
        partitions=partitions,
        overrides=tuple(parse_override(text) for text in config),
        broker_config=read_broker_config(broker_config, log_dirs_moved=log_dirs_moved) if broker_config else None,
        topic_configs=_topic_configs(topic_configs),
        bootstrap_server=bootstrap_server,
        client=_client(command_config),
        release=kafka_release,
        high_watermark=high_watermark if isinstance(high_watermark, int) else None,
        use_log_end=high_watermark == "leo",
        include_internal=include_internal,
        unclean=unclean,
        replicas=replicas,
        log_dirs=log_dirs,
    )


def _selection(topics: tuple[str, ...], partitions: tuple[int, ...]) -> Selection:
    from kcompact.plan.selection import Selection

    return Selection(topics, partitions)


def _topic_configs(file: Path | None) -> dict[str, TopicOverrides] | None:
    if file is None:
        return None
    from kcompact.config.topic_configs import read_topic_configs

    return read_topic_configs(file)


def _client(file: Path | None) -> ClientConfig | None:
    if file is None:
        return None
    from kcompact.config.client.settings import ClientConfig

    client = ClientConfig.read(file)
    streams.tell_notes(client.notes)
    return client


# Arguments and options of some commands


def _paths(metavar: str, *, reads_buckets: bool = True) -> Callable[[Function], Function]:
    # An unreadable path fails only that path, not the whole command, so click does not check it.
    kind = NamedPath(readable=False, reads_buckets=reads_buckets)
    return click.argument("paths", nargs=-1, required=True, metavar=metavar, type=kind)


paths = _paths("PATH...")
log_dirs = _paths("LOG_DIR...", reads_buckets=False)

unclean = click.option(
    "--unclean",
    is_flag=True,
    help="After an unclean shutdown: take the log as a broker's recovery leaves it; clean nothing of that.",
)


replicas = click.option(
    "--replica",
    "replicas",
    multiple=True,
    type=NamedPath(file_okay=False, readable=False),
    metavar="DIR",
    help="The log directory, or a partition directory, of another broker whose replica lags, or the -future directory "
    "of a move: no tombstone and no transaction marker is dropped that it still has to fetch. Repeatable.",
)


def journal(*, what: str) -> Callable[[Function], Function]:
    """The option `--journal` of a command that writes a line about `what`."""
    return click.option(
        "--journal",
        type=NamedPath(dir_okay=False),
        metavar="FILE",
        help=f"Append a line of JSON {what}. Default: ~/.local/state/kcompact/journal.jsonl.",
    )


def memory(*, what: str) -> Callable[[Function], Function]:
    """Return a decorator that adds --memory. `what` says in its help what the memory is for."""
    return click.option(
        "--memory",
        "memory_bytes",
        type=Size(),
        metavar="SIZE",
        help=f"Memory for {what}, such as 2g. Default: a quarter of the machine's memory, or of a lower limit.",
    )


def batch_memory(memory_bytes: int | None) -> int:
    """Return what may be held for a batch, with this value of --memory."""
    from kcompact.format.limits import batch_memory_bytes
    from kcompact.host.machine import default_memory_bytes

    return batch_memory_bytes(memory_bytes or default_memory_bytes())


def engine(function: Function) -> Function:
    """Add --engine, --master and --spark-conf. The function gets them as one value, `engine`."""
    conf = click.option("--spark-conf", multiple=True, metavar="NAME=VALUE", help="A Spark setting. Repeatable.")
    master = click.option("--master", metavar="URL", help="The Spark master. Default: local[*], this machine.")
    name = click.option(
        "--engine",
        type=click.Choice(("auto", "spark", "in-process")),
        default="auto",
        show_default=True,
        help="The engine that runs the stages: Spark, or this process. Both give the same bytes. auto: Spark with "
        "--master or --spark-conf, and for 16 GiB or more where Spark and Java are installed; else this process.",
    )
    return name(master(conf(function)))


def verbosity(*, quiet: str) -> Callable[[Function], Function]:
    """Return a decorator that adds --verbose and --quiet, which exclude each other. `quiet` is the help of --quiet."""
    text = "Print every partition with its details, also if there are many."

    def decorate(function: Function) -> Function:
        function = click.option("--quiet", "-q", "is_quiet", is_flag=True, help=quiet)(function)
        return click.option("--verbose", "-v", "is_verbose", is_flag=True, help=text)(function)

    return decorate


def _engine_options(name: str, master: str | None, texts: Sequence[str]) -> EngineOptions:
    """Return the engine of these options. Raises click.BadParameter, ConfigError."""
    from kcompact.cleaner.engines import EngineOptions

    conf = {}
    for text in texts:
        setting, equals, value = text.partition("=")
        if not equals or not setting.strip():
            raise click.BadParameter(f"'{text}' is not NAME=VALUE", param_hint="--spark-conf")
        conf[setting.strip()] = value
    return EngineOptions(name=name, master=master, spark_conf=conf)
