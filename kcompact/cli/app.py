"""The commands with their options and help. All errors become messages and exit codes here.

The bodies of the commands are in `commands`. They are imported when a command runs, so `--help` is fast and commands
that only read load neither Spark nor the kernels.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from kcompact.cli import options
from kcompact.cli.completion import values
from kcompact.cli.declaration import Command, Helpful, answer, commands_of, keep_arguments
from kcompact.cli.failures import DEBUG, exit_code_of
from kcompact.cli.option_types import NamedPath, Size

if TYPE_CHECKING:
    from kcompact.plan.options import PlanOptions


SECTIONS = {
    "Look": ("inspect", "verify", "records", "keys", "gaps", "transactions", "groups", "report"),
    "Decide": ("plan", "doctor"),
    "Change": ("clean", "recover", "restore"),
    "Set up": ("completion", "man"),
}
"""The commands as the help lists them."""


class Commands(Helpful, click.Group):
    """The group of commands. Every error of a command becomes a message and an exit code here."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return [name for names in SECTIONS.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command. Its module is imported now."""
        if cmd_name not in self.commands and cmd_name in self.list_commands(ctx):
            module = import_module(f"kcompact.cli.commands.{cmd_name}")
            self.add_command(getattr(module, f"{cmd_name}_command"))
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, by what they are for."""
        commands = commands_of(ctx)
        longest = max(map(len, commands))
        width = formatter.width - 6 - longest
        for heading, names in SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(longest), commands[name].get_short_help_str(width)) for name in names])

    def main(self, args: Any = None, prog_name: str | None = None, *rest: Any, **extra: Any) -> Any:
        """Run a command line and end the process with its exit code."""
        from kcompact.wording import of_the_command_line

        with of_the_command_line():
            self._main(args, prog_name, *rest, **extra)

    def _main(self, args: Any, prog_name: str | None, *rest: Any, **extra: Any) -> NoReturn:
        from kcompact.cli.output import streams

        streams.open_missing()
        if "_KCOMPACT_COMPLETE" in os.environ:
            from kcompact.cli.completion import shells

            shells.register()
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
        """Keep the arguments as they were typed."""
        keep_arguments(ctx, args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command and return its exit code. `main` handles the errors of click."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as problem:
            return exit_code_of(problem, debug=bool(ctx.meta.get(DEBUG)))


def _show_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from kcompact import __version__, kernels

        answer(ctx, f"kcompact {__version__}\nkernels: {kernels.state()}")


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
    130, 143, 129 stopped by Ctrl-C, SIGTERM, SIGHUP; 141 by a closed pipe.
    """


@main.command()
@options.paths
@click.option(
    "--explain",
    "explains",
    is_flag=True,
    help="Show each condition with its value, which one decides, when that changes, by which setting, and the cost.",
)
@click.option(
    "--compare",
    multiple=True,
    metavar="[TOPIC:]NAME=VALUE",
    shell_complete=values.complete_settings,
    help="Show what this setting would change, beside today. Repeatable: all of them together.",
)
@options.unclean
@options.configuration
@options.verbosity(quiet="Print only the totals and errors.")
@options.json_option
@options.debug_option
def plan(
    paths: tuple[Path, ...],
    plan_options: PlanOptions,
    *,
    explains: bool,
    compare: tuple[str, ...],
    unclean: bool,
    is_verbose: bool,
    is_quiet: bool,
    as_json: bool,
) -> int:
    """Show what Kafka's cleaner would decide, and why.

    Each partition, dirtiest first, is shown with the sizes of its clean and dirty sections, the ratio, the verdict and
    its reason; few partitions also with the groups of segments that become one segment. On a terminal many partitions
    are counted by reason.

    Changes nothing. A partition that cannot be planned is listed with its error, which sets the exit code.

    \b
    Examples:
      kcompact plan --config cleanup.policy=compact /var/lib/kafka
      kcompact plan --broker-config server.properties --now 2024-03-01T00:00:00Z orders-0
      kcompact plan --explain /var/lib/kafka/orders-0
      kcompact plan --compare min.cleanable.dirty.ratio=0.1 /var/lib/kafka
    """
    from kcompact.cli.commands import plan as command
    from kcompact.config.settings import parse_override

    request = command.Request(
        explains=explains,
        compared=tuple(parse_override(text, option="--compare") for text in compare),
        is_verbose=is_verbose,
        is_quiet=is_quiet,
        as_json=as_json,
    )
    return command.run(paths, replace(plan_options, unclean=unclean), request)


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
@click.option(
    "--keep-replaced",
    type=NamedPath(file_okay=False),
    metavar="DIR",
    help="Keep the segments that are replaced, as hard links in DIR, new or empty, on the same file system. No space "
    "is freed until DIR is removed. `kcompact restore DIR` puts them back.",
)
@click.option(
    "--journal",
    type=NamedPath(dir_okay=False),
    metavar="FILE",
    help="Append a line of JSON before and after the cleaning of each partition. Default: "
    "~/.local/state/kcompact/journal.jsonl.",
)
@click.option("--keep-tombstones", is_flag=True, help="Set delete horizons, but keep all tombstones.")
@click.option(
    "--apply-retention",
    is_flag=True,
    help="After the cleaning, delete the whole segments that a broker would delete: below the log start and, if the "
    "policy contains delete, past retention.bytes and retention.ms. Also of topics that are not compacted. Refused if "
    "the broker's own settings are unknown: pass --broker-config.",
)
@click.option("--rebuild-indexes", is_flag=True, help="Ignore all indexes: read the batches and write new indexes.")
@options.unclean
@click.option(
    "--yes",
    "-y",
    is_flag=True,
    help="Do not ask for confirmation. Without a terminal, and with --json, kcompact never asks.",
)
@click.option(
    "--ask",
    is_flag=True,
    help="Change nothing before a person has said yes: ask with --json too, and refuse without a terminal.",
)
@options.engine
@options.memory(what="keys and for data being read and written")
@click.option(
    "--max-bytes-per-second",
    type=Size(),
    metavar="SIZE",
    help="Upper limit for reading and writing together, on average, such as 50m.",
)
@options.configuration
@options.verbosity(quiet="Print only errors, and the question.")
@options.json_option
@options.debug_option
def clean(
    paths: tuple[Path, ...],
    plan_options: PlanOptions,
    *,
    force: bool,
    unclean: bool,
    yes: bool,
    ask: bool,
    is_verbose: bool,
    is_quiet: bool,
    as_json: bool,
    engine: str,
    master: str | None,
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
    from kcompact.cleaner.cleaning import CleanOptions
    from kcompact.cleaner.engines import EngineOptions
    from kcompact.cli.commands import clean as command

    if yes and ask:
        raise click.UsageError("--yes and --ask exclude each other")
    return command.run(
        paths,
        replace(plan_options, force=force, unclean=unclean),
        CleanOptions(**cleaning),  # The remaining options have the names of its fields.
        EngineOptions(name=engine, master=master, spark_conf=options.parse_pairs(spark_conf, option="--spark-conf")),
        assume_yes=yes,
        must_ask=ask,
        is_verbose=is_verbose,
        is_quiet=is_quiet,
        as_json=as_json,
    )


@main.command()
@options.paths
@click.option("--foreign", is_flag=True, help="Finish or undo also what a broker's own interrupted cleaning has left.")
@options.json_option
@options.debug_option
def recover(paths: tuple[Path, ...], foreign: bool, as_json: bool) -> int:
    """Finish or undo a swap that was interrupted.

    A swap whose new segment was committed is finished, any other swap is undone, and the staging directory is removed.
    Every clean does this first. A second run changes nothing. Files that a broker left are listed and not changed, and
    the exit code is 8: the broker finishes or undoes its own swaps when it starts. With --foreign kcompact does it, by
    the rules of the broker, after it has verified the new segments.

    \b
    Example:
      kcompact recover /var/lib/kafka
    """
    from kcompact.cli.commands import recover as command

    return command.run(paths, foreign=foreign, as_json=as_json)


@main.command()
@click.argument("kept", metavar="DIR", type=NamedPath(readable=False), shell_complete=values.complete_directories)
@click.option("--check", "only_check", is_flag=True, help="Only verify DIR and the partitions. Change nothing.")
@options.json_option
@options.debug_option
def restore(kept: Path, only_check: bool, as_json: bool) -> int:
    """Put back what `clean --keep-replaced DIR` has replaced.

    Every kept file is verified first, and that the partition is still as the cleaning has left it. Then the files and
    the checkpoint are put back as they were, under the lock of the log directory. DIR is not changed. If this is
    interrupted, run it again.

    \b
    Example:
      kcompact restore --check /var/lib/kept
    """
    from kcompact.cli.commands import restore as command

    return command.run(kept, only_check=only_check, as_json=as_json)


@main.command()
@options.log_dirs
@click.option("--verify", "reads_all", is_flag=True, help="Read and check every byte.")
@options.memory(what="the batches being read")
@partial(options.configuration, needs_kernels=False)
@options.verbosity(quiet="Print only how many findings there are.")
@options.json_option
@options.debug_option
def doctor(
    paths: tuple[Path, ...],
    plan_options: PlanOptions,
    *,
    reads_all: bool,
    memory_bytes: int | None,
    is_verbose: bool,
    is_quiet: bool,
    as_json: bool,
) -> int:
    """Find what would stop a broker, its cleaner or kcompact.

    Pass all log directories of one broker together, and its server.properties with --broker-config. Each finding is
    printed with its severity, what a broker's log says about it, and the command to run next. Without --verify only
    names, small files and the ends of segments and indexes are read, so it takes about a second.

    Changes nothing and takes no lock. The exit code is 0 only if nothing stops; else it is that of the findings, or 1
    if they have several.

    \b
    Examples:
      kcompact doctor --broker-config server.properties /var/lib/kafka
      kcompact doctor --verify --json /data1/kafka /data2/kafka | jq .findings
    """
    from kcompact.cli.commands import doctor as command
    from kcompact.format.limits import batch_memory_bytes
    from kcompact.host.machine import default_memory_bytes

    return command.run(
        paths,
        plan_options,
        reads_all=reads_all,
        memory_bytes=batch_memory_bytes(memory_bytes or default_memory_bytes()),
        is_verbose=is_verbose,
        is_quiet=is_quiet,
        as_json=as_json,
    )


@main.command()
@options.paths
@click.option(
    "--output",
    "-o",
    "file",
    type=NamedPath(),
    default="report.html",
    show_default=True,
    metavar="FILE",
    help="The file of the page. Only an older report is replaced. - is standard output.",
)
@click.option(
    "--prefix",
    default=":",
    show_default=True,
    metavar="SEPARATOR",
    help="Count also by the part of a key before SEPARATOR.",
)
@click.option("--print-data", is_flag=True, help="Show keys and prefixes themselves. Default: their hashes.")
@options.memory(what="keys and for data being read")
@options.unclean
@options.configuration
@options.json_option
@options.debug_option
def report(
    paths: tuple[Path, ...],
    plan_options: PlanOptions,
    *,
    file: Path,
    prefix: str,
    print_data: bool,
    unclean: bool,
    memory_bytes: int | None,
    as_json: bool,
) -> int:
    """Draw partitions on one page, for a ticket.

    The page is one HTML file without scripts that loads nothing: the verdict and why, the log to scale before and after
    a cleaning, segments over time, the dirty ratio as the log grew, keys, tombstones, gaps, codecs, producers,
    transactions, and the commands to run next. Of more than 20 partitions the dirtiest are drawn, and the others are
    listed.

    Reads all records, as a dry run does. Changes nothing and takes no lock. Needs the extra `report`: without
    it the error says how to add it.

    \b
    Examples:
      kcompact report --config cleanup.policy=compact /var/lib/kafka/orders-0
      kcompact report --topic 'orders*' -o orders.html /var/lib/kafka
    """
    from kcompact.cli.commands import report as command
    from kcompact.keys.counts import CountOptions

    if as_json and file == command.STANDARD_OUTPUT:
        raise click.UsageError("--json and -o - exclude each other: both print on standard output")
    options_of_run = replace(plan_options, unclean=unclean)
    count = CountOptions(separator=prefix.encode("utf-8", "surrogateescape"), memory_bytes=memory_bytes)
    return command.run(paths, options_of_run, file=file, count=count, print_data=print_data, as_json=as_json)


@main.command()
@click.argument("shell", metavar="SHELL", type=click.Choice(("bash", "zsh", "fish")))
@options.debug_option
def completion(shell: str) -> int:
    """Print the completion of command lines for a shell: bash, zsh or fish.

    Tab then completes commands, options, directories, the topics in directories that are already typed, and the names
    of Kafka's settings. Only names of directories are read.

    \b
    Examples:
      kcompact completion bash >~/.local/share/bash-completion/completions/kcompact
      kcompact completion zsh >~/.zfunc/_kcompact
      kcompact completion fish >~/.config/fish/completions/kcompact.fish
    """
    from kcompact.cli.commands import completion as command

    return command.run(shell)


@main.command()
@click.argument("directory", metavar="DIR", type=NamedPath(file_okay=False))
@options.debug_option
def man(directory: Path) -> int:
    """Write the man pages, kcompact.1 and one for each command, into a directory.

    DIR is made if it does not exist. Pages of another version are replaced.

    \b
    Example:
      kcompact man ~/.local/share/man/man1 && man kcompact-clean
    """
    from kcompact.cli.commands import man_pages as command

    return command.run(directory)
