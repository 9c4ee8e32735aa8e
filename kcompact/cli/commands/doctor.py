"""`doctor`: what would stop a broker, its cleaner or kcompact."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kcompact.cli import options
from kcompact.cli.delivery import deliver

if TYPE_CHECKING:
    from kcompact.cli.output.printer import Printer
    from kcompact.plan.options import PlanOptions


@options.command("doctor", needs_kernels=False)
@options.log_dirs
@click.option("--verify", "reads_all", is_flag=True, help="Read and check every byte.")
@options.memory(what="the batches being read")
@options.verbosity(quiet="Print only how many findings there are.")
def command(
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

    Changes nothing and takes no lock. The exit code is 0 only if nothing stops; else it is the gravest of the findings.

    \b
    Examples:
      kcompact doctor --broker-config server.properties /var/lib/kafka
      kcompact doctor --verify --json /data1/kafka /data2/kafka | jq .findings
    """
    from kcompact import kernels
    from kcompact.cli.json.doctor import DOCTOR
    from kcompact.doctor.examination import examine
    from kcompact.exit_codes import gravest_exit_code

    state = kernels.state()
    memory_bytes = options.batch_memory(memory_bytes)
    findings, has_all = examine(paths, plan_options, reads_all=reads_all, memory_bytes=memory_bytes)
    content = {
        "now_ms": plan_options.now_ms,
        "verified": reads_all,
        "has_all": has_all,
        "findings": findings,
        "kernels": state,
    }

    def show(printer: Printer) -> None:
        from kcompact.views.findings import findings_parts

        printer.parts(findings_parts(findings, printer.space, is_quiet=is_quiet, has_all=has_all))
        if not is_quiet:
            printer.line(f"kernels: {state}")

    lost = deliver(DOCTOR, lambda: content, show, as_json=as_json, verbose=is_verbose)
    return lost or gravest_exit_code(finding.code.exit_code for finding in findings if finding.stops)
