"""What only a cleaning finds: `clean --dry-run` of a partition that is to be cleaned, as findings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kcompact.cleaner.cleaning import CleanOptions
from kcompact.cleaner.partition import clean_partition
from kcompact.doctor.damage import of_error
from kcompact.doctor.findings import Finding
from kcompact.engine.in_process import InProcess
from kcompact.errors import KcompactError, RefusedError
from kcompact.plan.clean_plan import CleanPlan
from kcompact.remarks import RemarkCode


def dry_run_findings(plan: CleanPlan, memory_bytes: int) -> Iterator[Finding]:
    """Yield what a cleaning would stop at. It reads every record, and writes nothing."""
    if not plan.eligible or plan.log.log_dir.is_running:
        return
    try:
        options = CleanOptions(dry_run=True, memory_bytes=memory_bytes)
        problem = clean_partition(plan, InProcess(), lock=None, options=options).stopped_by
    except KcompactError as stopped_by:
        problem = stopped_by
    if problem is None:
        return
    finding = of_error(problem, plan.log.directory)
    if isinstance(problem, RefusedError) and problem.stops_cleaner:
        says = f"Marking its partition ({plan.log.topic_partition}) as uncleanable"
        finding = replace(finding, code=RemarkCode.UNCLEANABLE_BATCH, broker_says=says)
    yield finding
