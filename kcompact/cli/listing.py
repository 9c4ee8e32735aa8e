"""Lists batches and records of logs, with filters and decoders: `inspect --batches` and `records`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kcompact.cli.entries import complain_of
from kcompact.cli.failures import complain
from kcompact.cli.output import streams
from kcompact.cli.output.dump import Decoder, LineForm
from kcompact.cli.output.field_decoder import FieldDecoder
from kcompact.cli.output.file_entries import base_offset_of, is_log
from kcompact.cli.output.progress import ListProgress
from kcompact.cli.output.record_lines import RunLines
from kcompact.cli.question import named_in
from kcompact.errors import KcompactError, RefusedError, StorageError, storage_errors
from kcompact.exit_codes import gravest_exit_code
from kcompact.format.limits import DEFAULT_MEMORY_BYTES
from kcompact.format.names import ANY_OFFSET, MAX_OFFSET, Suffix, parse_file_name
from kcompact.log.batch_headers import end_by_headers
from kcompact.log.directory import LogDir, is_running, read_log, read_log_dir
from kcompact.log.files import Files, LogFile, files_in
from kcompact.log.offset_index import position_near
from kcompact.log.past_damage import LeftOutParts, Unreadable, readable_batches
from kcompact.log.records import RecordRun, record_parts
from kcompact.log.unchanged_reading import read_unchanged
from kcompact.plan.partition import advise_recovery
from kcompact.plan.run_notes import option_notes
from kcompact.plan.walk import Answer
from kcompact.questions.contents import file_size
from kcompact.readable import counted, shown
from kcompact.remarks import Note, RemarkCode
from kcompact.values import dataclass

if TYPE_CHECKING:
    from kcompact.cli.output.decoding import RecordDecoder
    from kcompact.cli.output.record_sinks import Sink
    from kcompact.kernels import Mask
    from kcompact.log.transactions import TransactionEnds
    from kcompact.plan.options import PlanOptions
    from kcompact.plan.walk import Answer, Planner
    from kcompact.questions.keys.latest import LatestRecords
    from kcompact.questions.record_filter import RecordFilter
    from kcompact.stages.executor import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What is listed: batches, records, or both, and how. Text always has the batches of the records."""

    with_batches: bool = False
    with_records: bool = False
    print_data: bool = False
    decode: bool = False
    key_decoder: str | None = None
    value_decoder: str | None = None
    chosen: RecordFilter | None = None
    """Only these records."""
    latest: bool = False
    """Only the latest record of each key."""
    limit: int | None = None
    """Only so many records, the first ones."""
    layout: str = "text"
    """What the records become: text, jsonl, table, csv, or a file: parquet, arrow."""
    output: Path | None = None
    """The file to write, None for standard output."""
    guards_formulas: bool = False
    """Whether cells of CSV that a spreadsheet takes for formulas get an apostrophe."""
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    """What may be held for a batch."""
    budget_bytes: int | None = None
    """What may be held in all to find the latest records; None: as much as the machine has for it."""

    @property
    def is_filtered(self) -> bool:
        """Return whether only some records are listed, by what they are."""
        return self.latest or self.chosen is not None

    @property
    def as_json(self) -> bool:
        """Return whether each record becomes a line of JSON."""
        return self.layout == "jsonl"


class ListedLog(NamedTuple):
    """A log file to list, up to `end_position` if it is given. `label` names it in the lines.

    `offsets` are those that its name and that of the next segment leave it.
    """

    file: LogFile
    label: str
    end_position: int | None = None
    offsets: range = ANY_OFFSET

    @property
    def path(self) -> Path:
        """The path, for messages."""
        return self.file.path


def list_paths(paths: Sequence[Path], options: PlanOptions, listing: Listing) -> int:
    """List the logs of the partitions and files among the paths, and return the exit code."""
    files, named, directories, unusable = named_in(paths, options)
    streams.tell_notes(option_notes(directories, options) if named else [])
    codes = _list_logs(files, directories, listing, unusable, options)
    complain_of(unusable)
    return gravest_exit_code([*codes, *(entry.exit_code for entry in unusable)])


def _list_logs(
    files: Sequence[Path],
    directories: Sequence[Path],
    listing: Listing,
    unusable: list[Answer[Any]],
    options: PlanOptions,
) -> list[int]:
    """List single files and the logs of partitions; return the exit codes.

    A partition that cannot be read is added to `unusable`.
    """
    if listing.latest and files:
        raise RefusedError(path=files[0], problem="--latest needs partition directories: all segments decide")
    logs, codes = _single_logs(files)
    for directory in directories:
        logs += _log_files(directory, unusable, unclean=options.unclean)
    if not logs:  # Then there is nothing to write into a file.
        return codes
    problem = listing.chosen.contradiction() if listing.chosen else ""
    if problem:
        streams.tell_notes([Note.of(RemarkCode.NO_RECORD_CAN_MATCH, problem=problem)])
        logs = []
    lister = _Lister(listing, logs, options)
    with lister.opened():
        codes += [lister.show(log) for log in logs]
    streams.tell_notes(lister.notes())
    return codes


def _single_logs(files: Sequence[Path]) -> tuple[list[ListedLog], list[int]]:
    """Return the files that are logs, and the exit codes of the others, with an error for each."""
    logs: list[ListedLog] = []
    codes: list[int] = []
    for file in files:
        try:
            if not is_log(file):
                problem = "only .log files and partition directories have batches and records"
                raise RefusedError(path=file, problem=problem)
            logs.append(ListedLog(LogFile.at(file), file.name))
        except RefusedError as refused:
            complain(refused)
            codes.append(refused.exit_code)
    return logs, codes


def _log_files(directory: Path, unusable: list[Answer[Any]], *, unclean: bool) -> list[ListedLog]:
    """Return the logs of a partition in offset order. A failure is added to `unusable`.

    With the active segment of a running broker comes the end of its last whole batch. With `unclean` each log ends
    where a broker's recovery will cut it.
    """
    ends: dict[str, int] = {}
    files = files_in(directory)
    try:
        with storage_errors(directory):
            if unclean or is_running(directory.parent):
                read = partial(read_log, directory, as_recovered=unclean)
                log = read_unchanged(files, read_log_dir(directory.parent), lambda current: read(log_dir=current))
                ends = {segment.log_name: segment.size_bytes for segment in log.segments}
                names = sorted(ends)
            else:
                names = _log_names(files)
            if not names:
                # Raises the error of a directory without a log.
                read_log(directory, log_dir=read_log_dir(directory.parent))
    except KcompactError as problem:
        unusable.append(Answer.failed(directory, problem))
        return []
    starts = [base_offset_of(directory / name) for name in names]
    return [
        ListedLog(files.file(name), f"{directory.name}/{name}", ends.get(name), range(start, end))
        for name, start, end in zip(names, starts, [*starts, MAX_OFFSET][1:], strict=True)
    ]


def _log_names(files: Files) -> list[str]:
    return [name for name in files.names() if name[:1].isdigit() and name.endswith(Suffix.LOG)]


def _is_outside(log: ListedLog, chosen: RecordFilter) -> bool:
    """Return whether no record of a log file can be chosen, by the names of the files."""
    return log.offsets.stop <= chosen.first_offset or (
        chosen.end_offset is not None and log.offsets.start >= chosen.end_offset
    )


class _Lister:
    """Prints the batches and records of logs, and counts what is chosen and what could not be decoded."""

    def __init__(self, listing: Listing, logs: Sequence[ListedLog], options: PlanOptions) -> None:
        self._listing, self._logs, self._options = listing, logs, options
        self._coordinator_decoders: dict[str, RecordDecoder] = {}
        """The decoders of the logs, by label."""
        self._decoder: FieldDecoder | None = None
        if listing.key_decoder or listing.value_decoder:
            self._decoder = FieldDecoder(listing.key_decoder, listing.value_decoder, as_json=listing.as_json)
        self._sizes = {log: file_size(log.file) if log.end_position is None else log.end_position for log in logs}
        self._progress = ListProgress(
            [(log.path, size_bytes) for log, size_bytes in self._sizes.items()],
            into_file=listing.output is not None or listing.layout == "table",
        )
        self._listed = 0
        """How many records are listed."""
        self._is_incomplete = False
        """Whether a log could not be read, or not all of it."""
        self._left = listing.limit
        """How many more records are listed, None for all."""
        self._lines = RunLines()
        self._sink: Sink | None = None
        self._write: Callable[[bytes | memoryview], object] = streams.write
        self._outcomes: tuple[Path, TransactionEnds] | None = None
        """How the transactions of a partition end, the last one that was asked for."""
        self._unsure_outcomes: KcompactError | None = None
        """The first damage in which a marker may be."""
        self._latest: tuple[Path, LatestRecords | None] | None = None
        """The latest records of a partition, the last one that was asked for; None if they could not be found."""

    @cached_property
    def _planner(self) -> Planner:
        from kcompact.plan.walk import Planner

        return Planner(list(dict.fromkeys(log.path.parent for log in self._logs)), self._options)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Open what the records go to, and finish it at the end of the block. A file is complete only then."""
        try:
            with self._opened():
                yield
        finally:
            self._progress.pause()
        if self._listing.output is not None:
            streams.tell(f"{counted(self._listed, 'record')} written to {self._listing.output}")

    @contextmanager
    def _opened(self) -> Iterator[None]:
        listing, logs = self._listing, [log.path for log in self._logs]
        if listing.output is None and listing.layout in ("text", "jsonl"):
            yield
            return
        from kcompact.cli.output import record_sinks

        if listing.output is not None and listing.as_json:
            with record_sinks.lines_in_file(listing.output, logs) as self._write:
                yield
            return
        if listing.output is not None:
            opened = record_sinks.export_to_file(
                listing.output,
                logs,
                with_data=listing.print_data,
                guards_formulas=listing.guards_formulas,
                decoder=self._decoder,
            )
        elif listing.layout == "csv":
            opened = record_sinks.csv_on_output(
                logs,
                with_data=listing.print_data,
                guards_formulas=listing.guards_formulas,
                decoder=self._decoder,
            )
        else:
            opened = record_sinks.table(with_data=listing.print_data, decoder=self._decoder)
        with opened as self._sink:
            yield

    def show(self, log: ListedLog) -> int:
        """List one log and return its exit code."""
        left_out = LeftOutParts()
        try:
            if self._sink is not None:
                self._pass_on(log, self._sink, left_out)
            else:
                for piece in self._pieces(log, left_out):
                    self._write(piece)
        except KcompactError as problem:
            if isinstance(problem, StorageError) and problem.path == streams.OUTPUT:
                raise
            return self._failed(problem)
        self._progress.reached(log.path, self._sizes[log])
        error = left_out.error()
        return 0 if error is None else self._failed(error)

    def _failed(self, problem: KcompactError) -> int:
        self._is_incomplete = True
        self._progress.pause()
        complain(problem)
        return problem.exit_code

    def _pass_on(self, log: ListedLog, sink: Sink, left_out: LeftOutParts) -> None:
        """Pass the records of a log on."""
        for part, chosen in self._parts(log):
            if isinstance(part, Unreadable):
                left_out.add(part)
            else:
                sink.write(part, chosen, log.path)

    def _pieces(self, log: ListedLog, left_out: LeftOutParts) -> Iterator[bytes | memoryview]:
        """Yield the encoded lines of a log, a piece at a time."""
        listing = self._listing
        form = LineForm(
            label=log.label,
            file=log.file,
            with_batches=listing.with_batches or not listing.as_json,
            print_data=listing.print_data,
            as_json=listing.as_json,
            decoder=self._decoder_of(log),
        )
        heading = form.heading()
        if not listing.is_filtered and listing.limit is None:
            yield streams.encoded(heading)
            heading = ""
        if not listing.with_records:
            yield from map(streams.encoded, self._batch_lines(log, form, left_out))
            return
        for part, chosen in self._parts(log):
            if heading and (chosen is None or chosen.any()):
                yield streams.encoded(heading)
                heading = ""
            if isinstance(part, RecordRun):
                yield from self._lines.of(form, part, chosen)
            else:
                left_out.add(part)
                yield streams.encoded(form.unreadable_lines(part))

    def _batch_lines(self, log: ListedLog, form: LineForm, left_out: LeftOutParts) -> Iterator[str]:
        """Yield the line of each batch of a log. No record is read, so what is wrong with records does not show."""
        for part in readable_batches(
            log.file,
            base_offset=log.offsets.start,
            end_offset=log.offsets.stop,
            end_position=log.end_position,
            memory_bytes=self._listing.memory_bytes,
        ):
            if isinstance(part, Unreadable):
                self._progress.reached(log.path, part.end_position)
                left_out.add(part)
                yield form.unreadable_lines(part)
            else:
                self._progress.reached(log.path, part.position + part.header.size_bytes)
                yield form.batch_line(part.header, part.position, is_valid=True)

    def _start_position(self, log: ListedLog) -> int | None:
        """Return where to begin to read a log, None if no record of it is listed."""
        chosen = self._listing.chosen
        if self._left == 0 or (chosen is not None and _is_outside(log, chosen)):
            return None
        if chosen is None or parse_file_name(log.path.name) is None:
            return 0
        return position_near(log.file, chosen.first_offset)

    def _is_done(self, last_offset: int) -> bool:
        """Return whether no record of a log is listed after an offset."""
        end_offset = self._listing.chosen.end_offset if self._listing.chosen else None
        return self._left == 0 or (end_offset is not None and last_offset + 1 >= end_offset)

    def _parts(self, log: ListedLog) -> Iterator[tuple[RecordRun | Unreadable, Mask | None]]:
        """Yield the runs of a log, each with the records that are chosen, and the parts that cannot be read.

        Without a filter there is None in place of the records.
        """
        start_position, chosen = self._start_position(log), self._listing.chosen
        if start_position is None:
            return
        outcomes = self._outcomes_of(log) if chosen is not None and chosen.transactions else None
        parts = self._latest_parts(log) if self._listing.latest else self._read(log, start_position, log.end_position)
        for part, mask in parts:
            self._progress.reached(log.path, part.end_position)
            if not isinstance(part, RecordRun):
                yield part, None
                continue
            if chosen is not None:
                wanted = chosen.mask_of(part, outcomes)
                mask = wanted if mask is None else mask & wanted
            mask = self._limited(mask, len(part))
            self._listed += len(part) if mask is None else int(mask.sum())
            yield part, mask
            if self._is_done(part.last_offset):
                return

    def _read(
        self, log: ListedLog, start_position: int, end_position: int | None
    ) -> Iterator[tuple[RecordRun | Unreadable, Mask | None]]:
        """Yield the parts of a log between two positions."""
        for part in record_parts(
            log.file,
            offsets=log.offsets,
            start_position=start_position,
            end_position=end_position,
            memory_bytes=self._listing.memory_bytes,
        ):
            yield part, None

    def _latest_parts(self, log: ListedLog) -> Iterator[tuple[RecordRun | Unreadable, Mask | None]]:
        """Yield the parts of a log up to the last stable offset, with the latest records of each run."""
        latest = self._latest_of(log.path.parent)
        if latest is None:
            return
        for split in latest.of(log.file):
            row = 0
            for part, _ in self._read(log, split.start_position, split.end_position):
                if isinstance(part, RecordRun):
                    yield part, latest.mask(split, part, row)
                    row += len(part)
                else:
                    yield part, None

    def _latest_of(self, directory: Path) -> LatestRecords | None:
        """Return the latest records of a partition. Raises KcompactError the first time that they cannot be found."""
        if self._latest is None or self._latest[0] != directory:
            from kcompact.cli.output.stage_progress import KeysProgress

            self._latest = directory, None
            self._progress.pause()
            latest = _read_latest(
                directory, self._planner, memory_bytes=self._listing.budget_bytes, progress=KeysProgress()
            )
            self._latest = directory, latest
        return self._latest[1]

    def _limited(self, chosen: Mask | None, count: int) -> Mask | None:
        """Return which of the chosen records the limit leaves; None for all of `count`."""
        if self._left is None:
            return chosen
        mask: Mask = np.ones(count, bool) if chosen is None else chosen
        mask &= np.cumsum(mask) <= self._left
        self._left -= int(mask.sum())
        return mask

    def _decoder_of(self, log: ListedLog) -> Decoder | None:
        if not self._listing.decode:
            return self._decoder
        from kcompact.cli.output.decoding import decoder_for

        decoder = decoder_for(log.path, as_json=self._listing.as_json)
        if decoder is not None:
            self._coordinator_decoders[log.label] = decoder
        return decoder

    def _outcomes_of(self, log: ListedLog) -> TransactionEnds:
        """Return how the transactions of the partition of a log end. The markers may be in later segments."""
        directory = log.path.absolute().parent
        if self._outcomes is None or self._outcomes[0] != directory:
            from kcompact.log.transactions import read_outcomes

            first = base_offset_of(log.path)
            with storage_errors(directory):
                files = [log.file.files.file(name) for name in _log_names(log.file.files)]
            later = [file for file in files if base_offset_of(file.path) >= first]
            known, problem = read_outcomes(later or [log.file])
            self._outcomes = directory, known
            self._unsure_outcomes = self._unsure_outcomes or problem
        return self._outcomes[1]

    # Notes

    def notes(self) -> list[Note]:
        """Return notes on a filter that chose nothing, and on records that could not be decoded."""
        listing_notes = self._notes_on_nothing() if self._listing.is_filtered and not self._listed else []
        if self._unsure_outcomes is not None:
            problem = str(self._unsure_outcomes).partition("\n")[0]
            listing_notes.append(Note.of(RemarkCode.UNSURE_TRANSACTIONS, problem=problem))
        if self._decoder is not None:
            listing_notes += self._decoder.notes()
        if self._listing.layout == "table" and self._left == 0:
            listing_notes.append(Note.of(RemarkCode.MORE_RECORDS))
        return listing_notes + (self._notes_on_coordinators() if self._listing.decode else [])

    def _notes_on_nothing(self) -> list[Note]:
        if not self._logs or (self._listing.latest and self._is_incomplete):
            return []
        reasons, first_offset = [], self._listing.chosen.first_offset if self._listing.chosen else 0
        for directory, logs in groupby(self._logs, key=lambda log: log.path.parent):
            last = list(logs)[-1]
            try:
                end_offset = end_by_headers(last.file, 0)
            except KcompactError:
                continue
            if 0 < end_offset <= first_offset:
                reasons.append(f"the log {shown(directory.name)} ends at offset {end_offset}")
        why = "".join(f": {reason}" for reason in reasons[:1])
        that = "that could be read " if self._is_incomplete else ""
        return [Note.of(RemarkCode.NO_RECORD_MATCHES, that=that, why=why)]

    def _notes_on_coordinators(self) -> list[Note]:
        from kcompact.cli.output.decoding import DECODED_TOPICS

        if not self._coordinator_decoders:
            topics = ", ".join(sorted(DECODED_TOPICS))
            why = f"no log is in a partition directory of {topics}"
            return [Note.of(RemarkCode.UNUSED_SETTING, setting="--decode", why=why)]
        decoders = self._coordinator_decoders
        failed = sum(decoder.failed for decoder in decoders.values())
        if not failed:
            return []
        label, first = next((label, each.first_failure) for label, each in decoders.items() if each.failed)
        are = "is" if failed == 1 else "are"
        records = counted(failed, "record")
        return [Note.of(RemarkCode.RECORD_NOT_DECODED, records=records, are=are, log=label, first=first)]


def _read_latest(directory: Path, planner: Planner, *, memory_bytes: int | None, progress: Progress) -> LatestRecords:
    """Return the latest record of each key of a partition. All of its log is read.

    Raises CorruptDataError if the log is damaged, RefusedError, StorageError, LogChangedError.
    """
    from kcompact.engine.in_process import InProcess
    from kcompact.questions.keys.latest import latest_records

    def read(log_dir: LogDir) -> LatestRecords:
        plan, damage = planner.plan_despite_damage(directory, log_dir)
        advise_recovery(damage, plan)
        if damage is not None:
            raise damage
        return latest_records(plan, InProcess(progress=progress), memory_bytes=memory_bytes)

    try:
        with storage_errors(directory):
            return read_unchanged(files_in(directory), planner.log_dirs.of(directory), read, watches=False)
    finally:
        progress.end()
