"""The command line: what each command takes, and the one place where errors become messages and exit codes.

The bodies live in the modules beside this one and are imported when a command runs, so that `--help` is quick and
reading commands load no more than they need.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from kcompact.cli import options
from kcompact.cli.failures import exit_code_of


class Commands(click.Group):
    """The group of commands. Every error of every command ends here, as a message and an exit code."""

    def main(self, args: Any = None, prog_name: str | None = None, *rest: Any, **extra: Any) -> Any:
        """Run a command line and leave the process with its exit code."""
        from kcompact.cli.output import streams

        streams.open_missing()
        extra["standalone_mode"] = False
        try:
            code = super().main(args, prog_name, *rest, **extra)
        except click.ClickException as problem:
            _show_usage_problem(problem)
            code = problem.exit_code
        except click.Abort:
            streams.tell("interrupted")
            code = 130
        except Exception as problem:  # In printing help or the version: every command's own end in `invoke`.
            code = exit_code_of(problem, debug=False)
        code = code if isinstance(code, int) else 0
        try:
            streams.flush()
        except Exception as problem:
            code = code or exit_code_of(problem, debug=False)
        sys.exit(code)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as problem:
            return exit_code_of(problem, debug=bool(ctx.meta.get(options.DEBUG)))


def _show_usage_problem(problem: click.ClickException) -> None:
    from kcompact.cli.output import streams

    context = getattr(problem, "ctx", None)
    if context is not None:
        streams.tell(context.get_usage())
        streams.tell(f"Try '{context.command_path} --help' for help.\n")
    streams.tell(f"error: {problem.format_message()}")


def _show_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if not value:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        number = version("kcompact")
    except PackageNotFoundError:
        number = "of a source tree"
    from kcompact.cli.output import streams

    streams.echo(f"kcompact {number}")
    ctx.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
def main() -> None:
    """Inspect and compact Kafka partition directories with no broker running.

    PATH is a partition directory (orders-0) or a log directory (one entry of log.dirs).

    \b
    Exit codes: 0 done, also when nothing was eligible; 1 failed; 2 usage;
    3 corrupt data; 4 refused or unsupported; 5 locked, a broker is running;
    6 changed during the run; 7 not enough space; 8 recovery needed;
    130, 143, 129 stopped by Ctrl-C, SIGTERM, SIGHUP.
    """


@main.command()
@options.paths
@click.option("--batches", is_flag=True, help="List the batches, in the words of kafka-dump-log.sh.")
@click.option("--records", is_flag=True, help="List the records: offsets, times and sizes, no contents.")
@click.option("--print-data", is_flag=True, help="List the records with keys and values.")
@click.option("--verify", is_flag=True, help="Read and check every byte; exit 3 if something is damaged.")
@options.configuration
@options.json_option
@options.debug_option
def inspect(
    paths: tuple[Path, ...],
    settings: options.Settings,
    batches: bool,
    records: bool,
    print_data: bool,
    verify: bool,
    as_json: bool,
) -> int:
    """Show what is on the disk.

    Segments with their sizes, times and offsets, their role for the next cleaning (clean, dirty, uncleanable, active)
    and why. PATH may also be a single file: a .log, .index, .timeindex, .txnindex, .snapshot or a checkpoint.

    Changes nothing. Takes no lock: on a running broker's directory the answer may be old at once.

    \b
    Examples:
      kcompact inspect /var/lib/kafka/orders-0
      kcompact inspect --verify /var/lib/kafka
      kcompact inspect --records --json /var/lib/kafka/orders-0 | jq .offset
    """
    from kcompact.cli.commands import inspect as command

    return command.run(
        paths,
        settings,
        with_batches=batches,
        with_records=records,
        print_data=print_data,
        verify=verify,
        as_json=as_json,
    )


@main.command()
@options.paths
@options.configuration
@options.json_option
@options.debug_option
def plan(paths: tuple[Path, ...], settings: options.Settings, as_json: bool) -> int:
    """Show what Kafka's cleaner would decide, and why.

    For each partition, dirtiest first: how much is clean and dirty, the ratio, whether it would be cleaned and the
    reason, and which segments would become one.

    Changes nothing. A partition that cannot be planned is listed with its error, and decides the exit code.

    \b
    Examples:
      kcompact plan --config cleanup.policy=compact /var/lib/kafka
      kcompact plan --broker-config server.properties --now 2024-03-01T00:00:00Z orders-0
    """
    from kcompact.cli.commands import plan as command

    return command.run(paths, settings, as_json=as_json)


@main.command()
@options.paths
@click.option("--dry-run", is_flag=True, help="Do all the work and write nothing.")
@click.option("--force", is_flag=True, help="Clean whatever the ratio. Lag and open transactions still count.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write a compacted copy of each partition into DIR and leave PATH alone.",
)
@click.option("--keep-tombstones", is_flag=True, help="Set delete horizons, but let nothing expire.")
@click.option(
    "--apply-retention",
    is_flag=True,
    help="Afterwards delete the whole segments that a broker would: below the log start and, where the policy has "
    "delete, past retention.bytes and retention.ms.",
)
@click.option("--include-internal", is_flag=True, help="Also __consumer_offsets and __transaction_state.")
@click.option("--rebuild-indexes", is_flag=True, help="Trust no index: read the batches and write the indexes anew.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask. Off a terminal nothing is ever asked.")
@click.option(
    "--engine",
    type=click.Choice(("spark", "in-process")),
    default="spark",
    show_default=True,
    help="What runs the stages. The result is the same to the byte.",
)
@click.option(
    "--memory",
    "memory_bytes",
    type=options.Size(),
    metavar="SIZE",
    help="Memory for the keys and for what is being read and written, such as 2g. Default: a quarter of the machine's, "
    "or of what a container may have.",
)
@click.option(
    "--max-bytes-per-second",
    type=options.Size(),
    metavar="SIZE",
    help="Read and write no more than this together, on average, such as 50m.",
)
@click.option("--master", default="local[*]", show_default=True, metavar="URL", help="Spark's master.")
@click.option("--spark-conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark's. Repeatable.")
@options.configuration
@options.json_option
@options.debug_option
def clean(
    paths: tuple[Path, ...],
    settings: options.Settings,
    dry_run: bool,
    force: bool,
    output: Path | None,
    keep_tombstones: bool,
    apply_retention: bool,
    include_internal: bool,
    rebuild_indexes: bool,
    yes: bool,
    engine: str,
    memory_bytes: int | None,
    max_bytes_per_second: int | None,
    master: str,
    spark_conf: tuple[str, ...],
    as_json: bool,
) -> int:
    """Clean the partitions that are eligible, dirtiest first.

    Replaces the dirty segments by compacted ones, as Kafka's cleaner would at this time, and writes the new checkpoint.
    The log directory is locked meanwhile, so that no broker can start on it. An earlier run that was interrupted is
    settled first. One partition's failure does not stop the others.

    With --dry-run or --output nothing below PATH changes.

    \b
    Examples:
      kcompact clean --dry-run --config cleanup.policy=compact /var/lib/kafka
      kcompact clean --broker-config server.properties --topic 'orders*' /var/lib/kafka
      kcompact clean --force --output /backup/compacted orders-0
    """
    from kcompact.cleaner import CleanOptions
    from kcompact.cli.commands import clean as command

    if output is not None and apply_retention:
        raise click.UsageError("--apply-retention deletes segments in place; it does not go with --output.")
    request = command.Request(
        options=CleanOptions(
            dry_run=dry_run,
            output=output,
            keep_tombstones=keep_tombstones,
            rebuild_indexes=rebuild_indexes,
            apply_retention=apply_retention,
            max_bytes_per_second=max_bytes_per_second,
            memory_bytes=memory_bytes,
        ),
        force=force,
        include_internal=include_internal,
        assume_yes=yes,
        as_json=as_json,
        engine=engine,
        master=master,
        spark_conf=options.parse_pairs(spark_conf, option="--spark-conf"),
    )
    return command.run(paths, settings, request)


@main.command()
@options.paths
@options.json_option
@options.debug_option
def recover(paths: tuple[Path, ...], as_json: bool) -> int:
    """Finish or undo a swap that was interrupted.

    Completes a swap whose new segment was committed, takes any other back, and removes the staging directory. Every
    clean does this first; running it again changes nothing. Files that a broker left are for the broker: they are
    named, not touched, and the exit code is 8.

    \b
    Example:
      kcompact recover /var/lib/kafka
    """
    from kcompact.cli.commands import recover as command

    return command.run(paths, as_json=as_json)
