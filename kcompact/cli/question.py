"""The frame of the commands that only read: what is asked of partitions and single files, and how it is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

from kcompact.bucket.mirror import MIRROR
from kcompact.cli.delivery import deliver
from kcompact.cli.entries import FileEntry, Inspected, complain_of
from kcompact.cli.json.fields import Document
from kcompact.cli.json.partitions import WITH_FILES
from kcompact.cli.output import streams
from kcompact.cli.output.file_entries import base_offset_of, entries_of, has_second_suffix, is_log, kind_of
from kcompact.errors import CorruptDataError, KcompactError, RefusedError, storage_errors
from kcompact.exit_codes import gravest_exit_code
from kcompact.log.directory import STAGING_NAME, LogDir
from kcompact.log.files import LogFile
from kcompact.plan.discovery import canonical, left_out
from kcompact.plan.options import PlanOptions
from kcompact.plan.run_notes import option_notes, plan_notes
from kcompact.plan.walk import Answer, Found, Planner, named_partitions, walk_partitions
from kcompact.values import dataclass

if TYPE_CHECKING:
    from kcompact.cleaner.engines import EngineOptions
    from kcompact.cli.output.printer import Printer
    from kcompact.plan.clean_plan import CleanPlan
    from kcompact.remarks import Note
    from kcompact.stages.fold import Fold

Read = Callable[[Answer[Any], LogDir], Answer[Found]]
"""Returns a partition that has a plan with what was found in it. Raises StorageError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(Generic[Found]):
    """What a command asks, and how it shows the answers.

    `answers` reads the partitions in some directories. The document may have more than the answers: `content`, which is
    made of them, and what is `given`. `notes` are those on the options, `doubts` those on why the answers may be wrong.
    Without `read_file` single files are refused: all segments of a partition decide. `complains_of_all`: the errors of
    the partitions are not shown with them. Without `shows_left_out` `show` itself names what is no partition. `verbose`
    is how the printer is made. `needs` is what paths without an answer lack.
    """

    document: Document
    answers: Callable[[Sequence[Path], PlanOptions], Iterable[Answer[Found]]]
    show: Callable[[Sequence[Answer[Found]], Printer], None]
    read_file: Callable[[Path], FileEntry] | None = None
    content: Callable[[Sequence[Answer[Any]]], Mapping[str, object]] = lambda _: {}
    given: Set[str] = field(default_factory=frozenset)
    notes: Callable[[Sequence[Path], PlanOptions], list[Note]] = option_notes
    doubts: Callable[[Sequence[Answer[Found]], PlanOptions], list[Note]] = plan_notes
    complains_of_all: bool = False
    shows_left_out: bool = True
    verbose: bool = False
    needs: str = ""


def each_partition(read: Read[Found]) -> Callable[[Sequence[Path], PlanOptions], Iterable[Answer[Found]]]:
    """Return what reads partitions one after the other."""

    def answers(directories: Sequence[Path], options: PlanOptions) -> Iterable[Answer[Found]]:
        visit = partial(Planner(directories, options).read, read=read)
        return walk_partitions(directories, visit, Answer.failed)

    return answers


def each_record(
    asks: Callable[[CleanPlan], Fold[Any, Found]], engine: EngineOptions, memory_bytes: int | None
) -> Callable[[Sequence[Path], PlanOptions], Iterable[Answer[Found]]]:
    """Return what reads all records of partitions; `asks` makes the question of a plan."""

    def answers(directories: Sequence[Path], options: PlanOptions) -> Iterable[Answer[Found]]:
        from kcompact.cli.output.stage_progress import executor_for
        from kcompact.stages.folded_log import fold_log

        with executor_for(engine, directories) as executor:

            def read(answer: Answer[Any], _: LogDir) -> Answer[Found]:
                plan = answer.plan
                assert plan is not None
                log_answer, damage = fold_log(asks(plan), plan.log, executor, memory_bytes=memory_bytes)
                return replace(answer, found=log_answer, error=answer.error or damage)

            return list(each_partition(read)(directories, options))

    return answers


def ask(question: Question[Found], paths: Sequence[Path], options: PlanOptions, *, as_json: bool) -> int:
    """Show the answers of all partitions and files among the paths, and return the exit code.

    Raises RefusedError if there is nothing to ask, ConfigError.
    """
    refused_by = "" if question.read_file else question.document.command
    files, named, directories, unusable = named_in(paths, options, refused_by=refused_by)
    notes = question.notes(directories, options) if named else []
    streams.tell_notes(notes)
    answers = list(question.answers(directories, options)) if directories else []
    if not (answers or unusable or files):
        raise RefusedError(path=paths[0], problem=question.needs)
    file_entries = [question.read_file(file) for file in files] if question.read_file else []
    doubts = question.doubts(answers, options)
    streams.tell_notes(doubts)

    def show(printer: Printer) -> None:
        from kcompact.views.plans import left_out_parts

        question.show(answers, printer)
        for number, single in enumerate(file_entries):
            from kcompact.cli.output.entries import show_file  # It takes long to load.

            if number or answers:
                printer.line()
            show_file(single, printer)
        not_read = left_out(named, options.selection) if question.shows_left_out else []
        if not_read:
            printer.line()
            printer.parts(left_out_parts(not_read, printer.space))

    def content() -> Mapping[str, object]:
        return {
            "now_ms": options.now_ms,
            "notes": [*notes, *doubts],
            "files": file_entries,
            "left_out": left_out(named, options.selection),
            "partitions": [*answers, *unusable],
            **question.content([*answers, *unusable]),
        }

    given = question.given | ({WITH_FILES} if file_entries else set())
    if lost := deliver(question.document, content, show, as_json=as_json, given=given, verbose=question.verbose):
        return lost
    if not as_json:
        complain_of([*answers, *unusable] if question.complains_of_all else unusable)
    codes = [*(each.exit_code for each in (*answers, *unusable)), *(each.exit_code for each in file_entries)]
    return gravest_exit_code(codes)


def named_in(
    paths: Sequence[Path], options: PlanOptions, *, refused_by: str = ""
) -> tuple[list[Path], list[Path], list[Path], list[Answer[Any]]]:
    """Return the single files among the paths, the other paths, the partitions in these, and what cannot be used.

    A command that needs all segments refuses single files: `refused_by` is its name.
    """
    single = {path for path in paths if is_file(path)}
    files = [path for path in paths if path in single and options.selection.has(_directory_of(path))]
    named = [path for path in paths if path not in single]
    if single and not (files or named):
        raise options.selection.no_match(paths[0], map(_directory_of, paths))
    what = "directory" if refused_by else "file or directory"
    directories, unusable = named_partitions(named, options.selection, what=what)
    if refused_by:
        problem = f"{refused_by} needs a partition directory or a log directory: all segments decide"
        unusable += [
            Answer.failed(path.absolute(), RefusedError(path=path.absolute(), problem=problem)) for path in files
        ]
        files = []
    return files, named, directories, unusable


def _directory_of(file: Path) -> Path:
    """Return the partition directory of a single file, also of a staged one; links are followed."""
    directory = canonical(file.absolute().parent)
    return directory.parent if STAGING_NAME.fullmatch(directory.name) else directory


def inspected(answer: Answer[Any], _: LogDir) -> Answer[Inspected]:
    """Return a partition with what the headers of its batches say, and with its damage as error."""
    from kcompact.questions.contents import log_contents
    from kcompact.questions.verify.findings import first_error
    from kcompact.questions.verify.indexes import log_transaction_findings

    plan, error = answer.plan, answer.error
    assert plan is not None
    contents = log_contents(plan.log)
    if error is None and not any(segment.damage for segment in contents.segments):
        error = first_error(tuple(log_transaction_findings(plan.log, contents.segments)))
    return replace(answer, error=error, found=Inspected(contents))


# Single files


def is_file(path: Path) -> bool:
    """Return whether a path is a file. False for an unreadable path, which is then reported like a directory."""
    try:
        return path.is_file()
    except OSError:
        return False


def file_entry(path: Path, *, verify: bool, memory_bytes: int) -> FileEntry:
    """Return the readable contents of a single file, and the error that ended the reading."""
    entry = FileEntry(path=path)
    try:
        MIRROR.require(path)
        with storage_errors(path):
            entry = replace(entry, size_bytes=path.stat().st_size)
        entry = replace(entry, kind=kind_of(path))
        if path.name[:1].isdigit():
            entry = replace(entry, base_offset=base_offset_of(path))
        if is_log(path):
            return _with_contents(entry, verify=verify, memory_bytes=memory_bytes)
        entry = replace(entry, entries=entries_of(path, memory_bytes=memory_bytes))
        if verify:
            entry = replace(entry, findings=())
            return _with_findings_of_index(entry, memory_bytes)
    except KcompactError as problem:
        return replace(entry, error=str(problem), exit_code=problem.exit_code)
    return entry


def _with_contents(entry: FileEntry, *, verify: bool, memory_bytes: int) -> FileEntry:
    """Return the entry of a log with its counts and, with `verify`, its findings."""
    from kcompact.questions.contents import file_contents
    from kcompact.questions.verify.log import verify_file

    base_offset = base_offset_of(entry.path)
    if verify:
        verified = verify_file(LogFile.at(entry.path), base_offset, memory_bytes=memory_bytes)
        contents = verified.segments[0]
        entry = replace(entry, contents=contents, findings=tuple(verified.findings))
        if verified.is_damaged:
            entry = _damaged(entry)
    else:
        contents = file_contents(LogFile.at(entry.path), base_offset)
        entry = replace(entry, contents=contents)
    if contents.damage is not None:
        entry = replace(entry, error=str(contents.damage), exit_code=contents.damage.exit_code)
    return entry


def _with_findings_of_index(entry: FileEntry, memory_bytes: int) -> FileEntry:
    """Return the entry of an index with its findings against the log beside it; return any other entry unchanged."""
    log = entry.path.with_suffix(".log")
    if entry.kind not in ("index", "timeindex", "txnindex") or has_second_suffix(entry.path) or not log.exists():
        return entry
    from kcompact.questions.verify.findings import FileSeverity
    from kcompact.questions.verify.log import verify_file

    verified = verify_file(LogFile.at(log), base_offset_of(entry.path), memory_bytes=memory_bytes)
    findings = tuple(finding for finding in verified.findings if finding.file == entry.path.name)
    entry = replace(entry, findings=findings)
    is_damaged = any(finding.severity is FileSeverity.DAMAGE for finding in findings)
    return _damaged(entry) if is_damaged else entry


def _damaged(entry: FileEntry) -> FileEntry:
    return replace(entry, error="damaged", exit_code=CorruptDataError.exit_code)
