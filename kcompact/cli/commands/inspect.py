"""`inspect`: what is on the disk, by partition or by file."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcompact.cli.entries import (
    Entry,
    LogDirs,
    clock_notes,
    complain_of,
    failed,
    make_plan,
    noted,
    partitions,
    shared_exit_code,
    storage_errors,
)
from kcompact.cli.failures import complain
from kcompact.cli.options import Settings
from kcompact.cli.output import dump, streams
from kcompact.cli.output.json import document, dumps, finding, inspect_entry, survey_fields
from kcompact.errors import ConfigError, CorruptDataError, KcompactError, RefusedError, StorageError
from kcompact.log.directory import LogDir, read_log
from kcompact.plan.clean_plan import CleanPlan, plan_cleaning

if TYPE_CHECKING:
    from kcompact.cli.output.tables import Printer
    from kcompact.config.resolve import Configured
    from kcompact.config.settings import TopicConfig
    from kcompact.inspect.findings import Finding


def run(
    paths: Sequence[Path],
    settings: Settings,
    *,
    with_batches: bool,
    with_records: bool,
    print_data: bool,
    verify: bool,
    as_json: bool,
) -> int:
    """Show what the paths hold and return the exit code."""
    files = [path for path in paths if _is_file(path)]
    named = [path for path in paths if path not in files]
    directories, unusable = partitions(named, settings, what="file or directory") if named else ([], [])
    with_records = with_records or print_data
    codes: list[int] = []
    if with_batches or with_records:
        targets = [(file, file.name) for file in files]
        for directory in directories:
            targets += _log_files(directory, unusable)
        for path, label in targets:
            codes.append(_dump(path, label, with_batches, with_records, print_data, as_json))
        if not verify:
            complain_of(unusable)
            codes += [entry.exit_code for entry in unusable]
            return shared_exit_code(codes)
    entries = list(_entries(directories, settings, verify))
    looks = [_look(file, verify) for file in files]
    if verify:
        _tell_without_kernels()
    codes += [entry.exit_code for entry in (*entries, *unusable)] + [look["exit_code"] for look in looks]
    if as_json and not (with_batches or with_records):
        content: dict[str, object] = {"partitions": [inspect_entry(entry) for entry in (*entries, *unusable)]}
        if files:
            content["files"] = looks
        streams.echo(dumps(document("inspect", settings.now_ms, **content)))
    else:
        _print(entries, looks, as_json)
        complain_of(unusable)
    return shared_exit_code(codes)


def _tell_without_kernels() -> None:
    """Say why this took so long, if the kernels were wanted and could not be used."""
    from kcompact import kernels
    from kcompact.cli.output.progress import without_kernels

    problem = kernels.failure()
    if problem is not None:
        streams.tell(without_kernels(problem))


def _print(entries: Sequence[Entry], looks: Sequence[dict[str, Any]], as_json: bool) -> None:
    """Print for people; on standard error where standard output belongs to JSON Lines."""
    from kcompact.cli.output.tables import Printer, show_inspection

    printer = Printer(sys.stderr if as_json else None)
    for number, entry in enumerate(entries):
        if number:
            printer.line()
        show_inspection(entry, printer)
    for number, look in enumerate(looks):
        if number or entries:
            printer.line()
        _print_look(look, printer)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False  # Why not is said where it is looked for as a directory.


# Partitions


def _entries(directories: Sequence[Path], settings: Settings, verify: bool) -> Iterator[Entry]:
    configs = settings.configs_of(directories)
    log_dirs = LogDirs()
    for directory in directories:
        try:
            with storage_errors(directory):
                yield _entry(directory, configs[directory], settings, log_dirs, verify)
        except ConfigError:
            raise
        except KcompactError as problem:
            yield failed(directory, problem)


def _entry(directory: Path, configured: Configured, settings: Settings, log_dirs: LogDirs, verify: bool) -> Entry:
    from kcompact.inspect.contents import log_contents
    from kcompact.inspect.findings import of_error
    from kcompact.inspect.small_files import log_dir_findings
    from kcompact.inspect.verify import verify_log

    error = configured.problem
    findings: tuple[Finding, ...] = (of_error(error),) if isinstance(error, CorruptDataError) else ()
    try:
        log_dir = log_dirs.of(directory)
    except CorruptDataError as problem:
        error, log_dir = problem, LogDir(path=directory.parent, is_log_dir=True)
        findings += (of_error(problem),)
    plan, trouble = _plan(directory, configured.config, settings, log_dir)
    plan = noted(plan, configured.notes)
    error = error or trouble
    if not verify:
        return Entry(directory=directory, plan=plan, error=error, survey=log_contents(plan.log))
    contents = verify_log(plan.log, index_interval_bytes=plan.config.index_interval_bytes)
    findings += (*contents.findings, *log_dir_findings(log_dir))
    if error is None and contents.is_damaged:
        worst = contents.findings[0]
        error = CorruptDataError(
            file=directory / worst.file, position=worst.position, offset=worst.offset, problem=worst.problem
        )
    return Entry(directory=directory, plan=plan, error=error, survey=contents, findings=findings)


def _plan(
    directory: Path, config: TopicConfig, settings: Settings, log_dir: LogDir
) -> tuple[CleanPlan, KcompactError | None]:
    """Return the plan, and the damage there is; where that hides the producers, the plan is made without them."""
    try:
        plan = make_plan(directory, config, settings, log_dir=log_dir)
    except CorruptDataError as problem:
        log = read_log(directory, log_dir=log_dir)
        plan = plan_cleaning(log, config, now_ms=settings.now_ms, producers={}, high_watermark=settings.high_watermark)
        return noted(plan, clock_notes(log, settings)), problem
    return plan, plan.log.damage[0] if plan.log.damage else None


# Batches and records


def _log_files(directory: Path, unusable: list[Entry]) -> list[tuple[Path, str]]:
    """Return the logs of a partition in offset order, and what to call them."""
    try:
        with storage_errors(directory):
            # Not `glob`, which takes a directory that it may not read for an empty one.
            names = sorted(each.name for each in directory.iterdir() if each.match("[0-9]*.log"))
    except KcompactError as problem:
        unusable.append(failed(directory, problem))
        return []
    return [(directory / name, f"{directory.name}/{name}") for name in names]


def _dump(path: Path, label: str, with_batches: bool, with_records: bool, print_data: bool, as_json: bool) -> int:
    """Print the batches and records of one log and return its exit code."""
    try:
        if not dump.is_log(path):
            raise RefusedError(path=path, problem="--batches and --records need a .log file or a partition directory")
        for line in dump.dump_log(
            path,
            label,
            with_batches=with_batches or not as_json,
            with_records=with_records,
            print_data=print_data,
            as_json=as_json,
        ):
            streams.echo(line)
    except StorageError as problem:
        if problem.path == streams.OUTPUT:
            raise
        complain(problem)
        return problem.exit_code
    except KcompactError as problem:
        complain(problem)
        return problem.exit_code
    return 0


# Single files


def _look(path: Path, verify: bool) -> dict[str, Any]:
    """Return what a single file holds."""
    look: dict[str, Any] = {"file": str(path), "kind": None, "base_offset": None, "size_bytes": None}
    look |= {"contents": None, "entries": None, "findings": None, "error": None, "exit_code": 0}
    try:
        with storage_errors(path):
            look["size_bytes"] = path.stat().st_size
        look["kind"] = dump.kind_of(path)
        parsed = dump.base_offset_of(path)
        look["base_offset"] = parsed if path.name[:1].isdigit() else None
        if dump.is_log(path):
            _look_into_log(path, parsed, verify, look)
        else:
            look["entries"] = dump.entries_of(path)
            if verify:
                _verify_beside(path, parsed, look)
    except KcompactError as problem:
        look["error"], look["exit_code"] = str(problem), problem.exit_code
    return look


def _look_into_log(path: Path, base_offset: int, verify: bool, look: dict[str, Any]) -> None:
    from kcompact.inspect.contents import file_contents
    from kcompact.inspect.verify import verify_file

    if verify:
        seen = verify_file(path, base_offset)
        look["findings"] = [finding(each) for each in seen.findings]
        contents = seen.segments[0]
        if seen.is_damaged:
            look["error"], look["exit_code"] = "damaged", CorruptDataError.exit_code
    else:
        contents = file_contents(path, base_offset)
    look["contents"] = survey_fields(contents)
    if contents.damage is not None:
        look["error"], look["exit_code"] = str(contents.damage), contents.damage.exit_code


def _verify_beside(path: Path, base_offset: int, look: dict[str, Any]) -> None:
    """Check an index against the log that lies beside it."""
    look["findings"] = []
    log = path.with_suffix(".log")
    if look["kind"] not in ("index", "timeindex", "txnindex") or dump.is_aside(path) or not log.exists():
        return
    from kcompact.inspect.findings import Severity
    from kcompact.inspect.verify import verify_file

    seen = verify_file(log, base_offset)
    own = [each for each in seen.findings if each.file == path.name]
    look["findings"] = [finding(each) for each in own]
    if any(each.severity is Severity.DAMAGE for each in own):
        look["error"], look["exit_code"] = "damaged", CorruptDataError.exit_code


def _print_look(look: dict[str, Any], printer: Printer) -> None:
    printer.line(f"{look['file']}: {look['kind'] or 'unknown'}, {look['size_bytes'] or 0:,} bytes")
    for fields in look["entries"] or ():
        printer.line("  " + dump.line(fields))
    if look["contents"]:
        shown = {name: value for name, value in look["contents"].items() if value is not None}
        printer.line("  " + ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in shown.items()))
    for each in look["findings"] or ():
        where = "".join(f", {name} {each[name]}" for name in ("position", "offset") if each[name] is not None)
        printer.line(f"  {each['severity']}: {each['file']}{where}: {each['problem']}")
    if look["findings"] is not None and not look["findings"]:
        printer.line("  verified: nothing is wrong")
    if look["error"]:
        printer.line(f"  error: {look['error']}")
