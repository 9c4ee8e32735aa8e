"""`doctor`: what would stop a broker, its cleaner or kcompact."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kcompact import kernels
from kcompact.cli.output import streams
from kcompact.doctor.examination import examine
from kcompact.plan.options import PlanOptions
from kcompact.plan.walk import gravest_exit_code


def run(
    paths: Sequence[Path],
    options: PlanOptions,
    *,
    reads_all: bool,
    memory_bytes: int,
    is_verbose: bool,
    is_quiet: bool,
    as_json: bool,
) -> int:
    """Examine the log directories, show the findings and return the exit code: 0 if nothing stops."""
    state = kernels.state()
    found = examine(paths, options, reads_all=reads_all, memory_bytes=memory_bytes)
    if as_json:
        from kcompact.cli.json.doctor import DOCTOR

        streams.echo(DOCTOR.text(now_ms=options.now_ms, verified=reads_all, findings=found, kernels=state))
    else:
        from kcompact.cli.output.printer import Printer
        from kcompact.views.findings import findings_parts

        printer = Printer(verbose=is_verbose)
        printer.parts(findings_parts(found, printer.space, is_quiet=is_quiet))
        if not is_quiet:
            printer.line(f"kernels: {state}")
    return gravest_exit_code(finding.kind.exit_code for finding in found if finding.stops)
