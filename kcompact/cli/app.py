"""The commands with their options and help. All errors become messages and exit codes here.

The bodies of the commands are in `commands`. They are imported when a command runs, so `--help` is fast and commands
that only read load neither Spark nor the kernels.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kcompact.cli import options
from kcompact.cli.failures import DEBUG, exit_code_of
from kcompact.cli.option_types import NamedPath, Size

if TYPE_CHECKING:
    from kcompact.plan.options import PlanOptions


class Helpful(click.Command):
    """A command whose help is printed as its answers are: a failure is one of standard output."""

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Return the option `--help`."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.callback = _show_help
        return option


class Commands(Helpful, click.Group):
    """The group of commands. Every error of a command becomes a message and an exit code here."""

    command_class = Helpful

    def main(self, args: Any = None, prog_name: str | None = None, *rest: Any, **extra: Any) -> Any:
        """Run a command line and end the process with its exit code."""
        from kcompact.cli.output import streams

        streams.open_missing()
        extra["standalone_mode"] = False
        try:
            code = super().main(args, prog_name, *rest, **extra)
        except click.ClickException as problem:
            from kcompact.cli.usage import show_usage_problem

            show_usage_problem(problem)
            code = problem.exit_code
        except click.Abort:
            streams.tell("interrupted")
            code = 130
        except Exception as problem:  # From printing help or the version; `invoke` handles errors of commands.
            code = exit_code_of(problem, debug=False)
        code = code if isinstance(code, int) else 0
        try:
            streams.flush()
        except Exception as problem:
            code = code or exit_code_of(problem, debug=False)
        sys.exit(code)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the arguments as they were typed, for `options.typed_arguments`."""
        ctx.meta[options.ARGUMENTS] = tuple(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command and return its exit code. `main` handles the errors of click."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as problem:
            return exit_code_of(problem, debug=bool(ctx.meta.get(DEBUG)))


def _show_help(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    from kcompact.cli.output import streams

    streams.echo(ctx.get_help())
    ctx.exit()


def _show_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if not value:
        return
    from kcompact import __version__
    from kcompact.cli.output import streams

    streams.echo(f"kcompact {__version__}")
    ctx.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
def main() -> None:
    """Inspect and compact Kafka partition directories while no broker runs.

    PATH is a partition directory (orders-0) or a log directory (one entry of log.dirs).

    \b
    Exit codes: 0 done, also when nothing was eligible; 1 failed; 2 usage;
    3 corrupt data; 4 refused or unsupported; 5 locked, a broker is running;
    6 changed during the run; 7 not enough space; 8 recovery needed;
    130, 143, 129 stopped by Ctrl-C, SIGTERM, SIGHUP.
    """


@main.command()
@options.paths
@click.option("--batches", is_flag=True, help="List the batches, as kafka-dump-log.sh does.")
@click.option("--records", is_flag=True, help="List the records: offsets, times and sizes, no keys and no values.")
@click.option("--print-data", is_flag=True, help="List the records with keys and values.")
@click.option("--verify", is_flag=True, help="Read and check every byte; exit with 3 if something is damaged.")
@options.memory(what="the batches being read")
@options.configuration
@options.json_option
@options.debug_option
def inspect(
    paths: tuple[Path, ...],
    plan_options: PlanOptions,
    batches: bool,
    records: bool,
    print_data: bool,
    verify: bool,
    memory_bytes: int | None,
    as_json: bool,
) -> int:
    """Show what is on the disk.

    Each segment is shown with its size, times and offsets, its role in the next cleaning (clean, dirty, uncleanable,
    active) and the reason for the role. PATH may also be a single file: a .log, .index, .timeindex, .txnindex,
    .snapshot or a checkpoint.

    Changes nothing and takes no lock. While a broker runs, the output can be outdated at once.

    \b
    Examples:
      kcompact inspect /var/lib/kafka/orders-0
      kcompact inspect --verify /var/lib/kafka
      kcompact inspect --records --json /var/lib/kafka/orders-0 | jq .offset
    """
    from kcompact.cli.commands import inspect as command
    from kcompact.format.limits import batch_memory_bytes
    from kcompact.host.memory import default_memory_bytes

    request = command.Request(
        with_batches=batches,
        with_records=records or print_data,
        print_data=print_data,
        verify=verify,
        as_json=as_json,
        memory_bytes=batch_memory_bytes(memory_bytes or default_memory_bytes()),
    )
    return command.run(paths, plan_options, request)


@main.command()
@options.paths
@options.configuration
@options.verbosity(quiet="Print only the totals and errors.")
@options.json_option
@options.debug_option
def plan(paths: tuple[Path, ...], plan_options: PlanOptions, *, is_verbose: bool, is_quiet: bool, as_json: bool) -> int:
    """Show what Kafka's cleaner would decide, and why.

    Each partition, dirtiest first, is shown with the sizes of its clean and dirty sections, the ratio, the verdict and
    its reason; few partitions also with the groups of segments that become one segment. On a terminal many partitions
    are counted by reason.

    Changes nothing. A partition that cannot be planned is listed with its error, which sets the exit code.

    \b
    Examples:
      kcompact plan --config cleanup.policy=compact /var/lib/kafka
      kcompact plan --broker-config server.properties --now 2024-03-01T00:00:00Z orders-0
    """
    from kcompact.cli.commands import plan as command

    return command.run(paths, plan_options, is_verbose=is_verbose, is_quiet=is_quiet, as_json=as_json)


@main.command()
@options.paths
@click.option("--dry-run", is_flag=True, help="Do all the work, but write nothing.")
@click.option("--force", is_flag=True, help="Clean at any ratio. All other reasons not to clean still hold.")
@click.option(
    "--output",
    type=NamedPath(file_okay=False),
    metavar="DIR",
    help="Write a compacted copy of each partition into DIR and leave PATH unchanged.",
)
@click.option("--keep-tombstones", is_flag=True, help="Set delete horizons, but keep all tombstones.")
@click.option(
    "--apply-retention",
    is_flag=True,
    help="After the cleaning, delete the whole segments that a broker would delete: below the log start and, if the "
    "policy contains delete, past retention.bytes and retention.ms.",
)
@click.option("--rebuild-indexes", is_flag=True, help="Ignore all indexes: read the batches and write new indexes.")
@click.option(
    "--yes",
    "-y",
    is_flag=True,
    help="Do not ask for confirmation. Without a terminal, and with --json, kcompact never asks.",
)
@click.option(
    "--engine",
    type=click.Choice(("spark", "in-process")),
    default="spark",
    show_default=True,
    help="The engine that runs the stages. Both give the same bytes.",
)
@options.memory(what="keys and for data being read and written")
@click.option(
    "--max-bytes-per-second",
    type=Size(),
    metavar="SIZE",
    help="Upper limit for reading and writing together, on average, such as 50m.",
)
@click.option("--master", default="local[*]", show_default=True, metavar="URL", help="The Spark master.")
@click.option("--spark-conf", multiple=True, metavar="NAME=VALUE", help="A Spark setting. Repeatable.")
@options.configuration
@options.verbosity(quiet="Print only errors, and the question.")
@options.json_option
@options.debug_option
def clean(
    paths: tuple[Path, ...],
    plan_options: PlanOptions,
    *,
    force: bool,
    yes: bool,
    is_verbose: bool,
    is_quiet: bool,
    as_json: bool,
    engine: str,
    master: str,
    spark_conf: tuple[str, ...],
    **cleaning: Any,
) -> int:
    """Clean the partitions that are eligible, dirtiest first.

    Replaces the dirty segments with compacted ones, as Kafka's cleaner does, and writes the new checkpoint. The log
    directory is locked during the run, so no broker can start on it. If an earlier run was interrupted, its swap is
    finished or undone first. A failure of one partition does not stop the others.

    With --dry-run or --output nothing in PATH changes.

    \b
    Examples:
      kcompact clean --dry-run --config cleanup.policy=compact /var/lib/kafka
      kcompact clean --broker-config server.properties --topic 'orders*' /var/lib/kafka
      kcompact clean --force --output /backup/compacted orders-0
    """
    from kcompact.cleaner.engines import EngineOptions
    from kcompact.cleaner.options import CleanOptions
    from kcompact.cli.commands import clean as command

    return command.run(
        paths,
        replace(plan_options, force=force),
        CleanOptions(**cleaning),  # The remaining options have the names of its fields.
        EngineOptions(name=engine, master=master, spark_conf=options.parse_pairs(spark_conf, option="--spark-conf")),
        assume_yes=yes,
        is_verbose=is_verbose,
        is_quiet=is_quiet,
        as_json=as_json,
    )


@main.command()
@options.paths
@options.json_option
@options.debug_option
def recover(paths: tuple[Path, ...], as_json: bool) -> int:
    """Finish or undo a swap that was interrupted.

    A swap whose new segment was committed is finished, any other swap is undone, and the staging directory is removed.
    Every clean does this first. A second run changes nothing. Files that a broker left are listed and not changed, and
    the exit code is 8. The broker finishes or undoes its own swaps when it starts.

    \b
    Example:
      kcompact recover /var/lib/kafka
    """
    from kcompact.cli.commands import recover as command

    return command.run(paths, as_json=as_json)
