"""Every exception that the package raises: one class for each state a user can be in.

A class has the facts as attributes, builds its one message and has the exit code of the process (listed in
`docs/cli.md`). The command line has a single `except KcompactError`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from kcompact.exit_codes import ExitCode
from kcompact.readable import shell_word, shown, some_of
from kcompact.wording import has_option, worded


class KcompactError(Exception):
    """The base of all errors. The message says what happened, where, and what to do next."""

    exit_code: int = ExitCode.FAILED

    def __init__(self, message: str = "", *hints: str) -> None:
        """Set the message and what to do next: options in hints are parameters outside of the command line."""
        super().__init__(message, *hints)

    def __str__(self) -> str:
        return "\n".join((self.args[0], *filter(None, (self.hint,))))

    @property
    def hint(self) -> str:
        """What to do next, in the words of this process."""
        return "\n".join(worded(hint) for hint in self.args[1:] if hint)

    @property
    def cause(self) -> str:
        """The message about several partitions together. Errors with the same cause can be printed as one."""
        return str(self)

    @property
    def word(self) -> str:
        """The error in a word or two, for tables that are printed beside the message. Empty: tables repeat it."""
        return ""

    def __reduce__(self) -> tuple[object, ...]:
        # Spark workers send these exceptions pickled. Exceptions with keyword-only arguments do not pickle by default.
        return (_restored, (type(self), self.args, self.__dict__.copy()))


def _restored(cls: type[KcompactError], args: tuple[object, ...], facts: dict[str, object]) -> KcompactError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(facts)
    return error


class CorruptDataError(KcompactError):
    """Bytes on the disk contradict Kafka's format or each other. Without a `hint` the message has that of the class."""

    exit_code = ExitCode.CORRUPT
    default_hint = ""

    def __init__(
        self,
        *,
        file: Path | str,
        problem: str,
        position: int | None = None,
        offset: int | None = None,
        hint: str | None = None,
    ) -> None:
        self.file = str(file)
        self.position = position
        self.offset = offset
        self.problem = problem
        where = "".join(
            f", {name} {value}" for name, value in (("position", position), ("offset", offset)) if value is not None
        )
        super().__init__(f"{shown(self.file)}{where}: {shown(problem)}", self.default_hint if hint is None else hint)


class CorruptBatchError(CorruptDataError):
    """A record batch is damaged: its checksum, length, offsets or records are wrong."""

    default_hint = (
        "Restore this segment from a replica or a backup; kcompact changes nothing here. "
        "`kcompact verify DIR` lists all damage."
    )


class CorruptIndexError(CorruptDataError):
    """An index contradicts its log, or its own format."""

    default_hint = (
        "The log itself may be intact: kcompact clean --rebuild-indexes ignores its indexes and reads the batches "
        "instead; with --dry-run it changes nothing."
    )


class CorruptTransactionIndexError(CorruptIndexError):
    """A `.txnindex` contradicts the markers in its log, or its own format."""

    unknown_version: int | None = None  # That of the wrong entry, if it is what is wrong.
    default_hint = (
        "With this index committed records count as aborted, or aborted ones as committed. "
        "kcompact clean --rebuild-indexes ignores it and finds the aborted transactions by the markers in the log; "
        "with --dry-run it changes nothing."
    )


class CorruptCheckpointError(CorruptDataError):
    """A checkpoint, snapshot, manifest or properties file is malformed."""

    has_bad_number: bool = False  # Whether a number of an entry is none. To a broker that is another error.


class StorageError(KcompactError):
    """The operating system did not read or write a file. The exit code and the hint follow from the error number.

    `operation` is what failed, in a word such as `read`. A lack of space is not one of these: see `storage_error`.
    """

    def __init__(self, *, path: Path | str, problem: OSError, position: int | None = None, operation: str = "") -> None:
        self.path = str(path)
        self.problem = problem
        self.position = position
        self.operation = operation
        self.exit_code, hint = code_and_hint(problem)
        where = "" if position is None else f", position {position}"
        super().__init__(f"{shown(self.path)}{where}: {_words(problem, operation)}", hint)

    @property
    def word(self) -> str:
        """The words of the operating system, such as `Read-only file system`."""
        return self.problem.strerror or ""


def _words(problem: OSError, operation: str) -> str:
    """Return what failed and why, such as `read: Input/output error`."""
    return shown(": ".join(filter(None, (operation, problem.strerror or str(problem)))))


class RefusedError(KcompactError):
    """kcompact refuses to work on this path. The message says why, and how to continue safely."""

    exit_code = ExitCode.REFUSED
    stops_cleaner = False  # Whether Kafka's cleaner stops there too, and marks the partition as uncleanable.

    def __init__(self, *, path: Path | str, problem: str, hint: str = "") -> None:
        self.path = str(path)
        self.problem = problem
        super().__init__(f"{shown(self.path)}: {shown(problem)}", hint)


class UnsupportedError(RefusedError):
    """The data is valid, but this version of kcompact cannot process it."""


class BatchTooLargeError(RefusedError):
    """A batch needs more memory than the run may use, or inflates too far. It may be damaged, or hostile.

    `size` says how large it is. `needed_bytes` is the `--memory` that is enough for it, None if that is unknown.
    """

    def __init__(
        self, *, file: Path | str, position: int | None, offset: int | None, problem: str, needed_bytes: int | None
    ) -> None:
        self.position = position
        self.offset = offset
        self.size = problem
        self.needed_bytes = needed_bytes
        where = "".join(
            f"{name} {value}, " for name, value in (("position", position), ("offset", offset)) if value is not None
        )
        enough = "a greater --memory" if needed_bytes is None else f"--memory {-(-needed_bytes >> 20)}m or more"
        super().__init__(
            path=file,
            problem=f"{where[:-2]}: {problem}".removeprefix(": "),
            hint=f"If the batch is genuine, pass {enough}.",
        )


class StaleReplicaError(RefusedError):
    """The cluster has another topic with this directory's topic name: the directory belongs to a deleted topic."""


class OtherTopicError(StaleReplicaError):
    """The directory has the id of another topic that the cluster has too."""


class PolicyUnknownError(RefusedError):
    """No source says whether the topic is compacted."""

    @property
    def cause(self) -> str:
        """The message without the topic."""
        hint = worded("For each topic that is compacted, pass --config TOPIC:cleanup.policy=compact")
        return f"the cleanup.policy of these topics is unknown\n{hint}"


class ConfigError(RefusedError):
    """A setting has a value that Kafka would not accept, or a required setting has no value."""

    exit_code = ExitCode.USAGE
    contradicting: tuple[str, ...] = ()  # The names of settings whose values Kafka accepts, but not beside each other.


class EngineError(KcompactError):
    """Spark did not start, or it failed. The error says nothing about the data."""

    def __init__(self, *, problem: str, hint: str = "--engine in-process gives the same result without Spark.") -> None:
        self.problem = problem
        super().__init__(f"Spark: {problem}", hint)


class KernelsUnavailableError(KcompactError):
    """The machine code of the kernels cannot be used in this process."""

    exit_code = ExitCode.REFUSED

    def __init__(self, *, problem: str) -> None:
        self.problem = problem
        super().__init__(f"machine code: {problem}", "kcompact doctor examines the files without it.")


class ClusterUnreachableError(KcompactError):
    """A running cluster did not answer, or its answer cannot be used."""

    def __init__(self, *, address: str, problem: str, hint: str = "") -> None:
        self.address = address
        self.problem = problem
        super().__init__(f"{shown(address)}: {shown(problem)}", hint, _WITHOUT_CLUSTER)


_WITHOUT_CLUSTER = "Without --bootstrap-server the settings come from the metadata log, --broker-config and --config."


class LogDirLockedError(KcompactError):
    """Another process holds the log directory's `.lock`: a broker or another kcompact is running."""

    exit_code = ExitCode.LOCKED

    def __init__(self, *, lock: Path | str, holder: str = "another process") -> None:
        self.lock = str(lock)
        self.holder = holder
        hint = "Stop that process and run again. Do not delete the lock file: both could then change the log at once."
        super().__init__(f"{shown(self.lock)}: {shown(holder)} holds this lock", hint)

    @property
    def word(self) -> str:
        """The state of the log directory."""
        return "locked"


class PartitionInUseError(KcompactError):
    """Another process has a file of the partition open as a broker has, by another path, and so with another lock."""

    exit_code = ExitCode.LOCKED

    def __init__(self, *, file: Path | str, pid: int, command: str, is_mapped: bool) -> None:
        self.file = str(file)
        self.pid = pid
        self.command = command
        self.is_mapped = is_mapped
        how = "mapped into memory" if is_mapped else "open for writing"
        super().__init__(
            f"{shown(self.file)}: {shown(command)} (process {pid}) has this file {how}",
            "A broker that reaches the partition by another path, such as a bind mount, holds another lock. Stop that "
            f"process, then run again. `ps -fp {pid}` shows what it is.",
        )

    @property
    def cause(self) -> str:
        """The message without the file."""
        process = f"{shown(self.command)} (process {self.pid})"
        return f"{process} has files of these partitions open, as a broker has\n{self.hint}"

    @property
    def word(self) -> str:
        """The state of the partition."""
        return "in use"


class LogChangedError(KcompactError):
    """The partition or the lock file changed while kcompact was working on the partition."""

    exit_code = ExitCode.CHANGED
    default_hint = (
        "kcompact stopped and changes nothing more in this partition. Find the process that changed this file "
        "(a broker that started, for example) and stop it, then run again."
    )

    def __init__(self, *, path: Path | str, problem: str, hint: str | None = None) -> None:
        self.path = str(path)
        self.problem = problem
        super().__init__(f"{shown(self.path)}: {shown(problem)}", hint or self.default_hint)


class NotEnoughSpaceError(KcompactError):
    """A file system has too little free space, or a quota or the limit on the size of files is reached.

    If a write has failed, `detail` is the file and the operation, `why` the words of the operating system, and `hint`
    what helps if that is unusual. `free_bytes` is None if it is not known.
    """

    exit_code = ExitCode.NO_SPACE

    def __init__(
        self,
        *,
        path: Path | str,
        needed_bytes: int,
        free_bytes: int | None,
        detail: str = "",
        why: str = "",
        hint: str = "",
    ) -> None:
        self.path, self.needed_bytes, self.free_bytes = str(path), needed_bytes, free_bytes
        self.detail, self.why = detail, why
        sizes = [f"{needed_bytes:,} bytes are needed"] if needed_bytes else []
        sizes += [] if free_bytes is None else [f"{free_bytes:,} are free"]
        if free_bytes is not None and needed_bytes > free_bytes:
            sizes += [f"{needed_bytes - free_bytes:,} are missing"]
        known = ", ".join(sizes), shown(": ".join(filter(None, (detail, why))))
        super().__init__(f"{shown(self.path)}: {_NO_SPACE}: {'; '.join(filter(None, known))}", hint or _SPACE_HINT)

    @property
    def cause(self) -> str:
        """The message without the path and the sizes."""
        return f"{': '.join(filter(None, (_NO_SPACE, self.why)))}\n{self.hint}"


_NO_SPACE = "not enough free space"
_SPACE_HINT = (
    "Free some space (`clean --apply-retention --broker-config FILE` deletes old segments as that broker would), or "
    "write a compacted copy to another file system with --output DIR. If enough space is free, check the quota and the "
    "file size limit of this user."
)

NO_SPACE_NUMBERS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_OWNER = "Run as the user that owns it (the broker's user)."
_GONE = "Check the path. If it was there before, find and stop the process that removed or moved it, then run again."
_CODES_AND_HINTS = {
    errno.EACCES: (RefusedError.exit_code, _OWNER),
    errno.EPERM: (RefusedError.exit_code, _OWNER),
    errno.EROFS: (
        RefusedError.exit_code,
        "Mount its file system read-write, or use --output DIR with a directory on another file system.",
    ),
    errno.ENOENT: (LogChangedError.exit_code, _GONE),
    errno.ESTALE: (LogChangedError.exit_code, _GONE),
    errno.EIO: (
        KcompactError.exit_code,
        "The disk or its connection failed: the kernel's log (dmesg) says more. Then run again.",
    ),
    errno.EMFILE: (KcompactError.exit_code, "Let this process open more files (ulimit -n), then run again."),
    errno.ENFILE: (KcompactError.exit_code, "All processes together have too many files open (fs.file-max)."),
    errno.ENOMEM: (KcompactError.exit_code, "The machine has no memory left. End other processes, then run again."),
}
"""The exit code and the hint of an error number; any other number has the exit code 1. The table in `docs/cli.md`."""


def code_and_hint(problem: OSError) -> tuple[int, str]:
    """Return the exit code and the hint of an error of the operating system."""
    return _CODES_AND_HINTS.get(problem.errno or 0, (KcompactError.exit_code, ""))


class ScratchSpaceError(NotEnoughSpaceError):
    """The directory for temporary files is full. `why` are the words of the operating system."""

    def __init__(self, *, path: Path | str, why: str = "No space left on device") -> None:
        self.path = str(path)
        self.why = why
        KcompactError.__init__(self, f"{shown(self.path)}: {_NO_SCRATCH}: {why}", _SCRATCH_HINT)

    @property
    def cause(self) -> str:
        """The message without the path."""
        return f"{_NO_SCRATCH}: {self.why}\n{self.hint}"


_NO_SCRATCH = "not enough free space for temporary files"
_SCRATCH_HINT = (
    "They take 24 bytes for each key, and what Spark needs itself. Free some space there, or choose another directory: "
    "TMPDIR=DIR, for Spark --spark-conf spark.local.dir=DIR. Nothing of the partition was changed."
)


class ScratchDamagedError(KcompactError):
    """Temporary data of this run was altered between writing and reading. The log itself is not affected.

    `source` is the file, or the way on which the data travelled.
    """

    def __init__(self, *, source: str, problem: str) -> None:
        self.source = source
        self.problem = problem
        super().__init__(
            f"{shown(source)}: temporary data of this run was altered: {shown(problem)}",
            "kcompact has discarded the result; the log is not affected. Something is wrong with the memory of "
            "this machine, with the disk of its temporary directory, or with a program that changes files there. "
            "Check them, then run again; another directory: TMPDIR=DIR, for Spark --spark-conf spark.local.dir=DIR.",
        )


class AccountingError(KcompactError):
    """The counts of the stages contradict each other: a record was lost or invented on the way.

    Raised before the segments concerned are replaced: a bug of kcompact, or altered memory.
    """

    def __init__(self, *, path: Path | str, stage: str, problem: str) -> None:
        self.path = str(path)
        self.stage = stage
        self.problem = problem
        super().__init__(
            f"{shown(self.path)}: the {stage} does not add up: {shown(problem)}\n"
            "kcompact has discarded the result; the segments that it belongs to are unchanged. This is a bug of "
            "kcompact, or the memory of this machine is faulty. Check the memory and run again. If it happens again, "
            "report this message, the versions of kcompact and Python, and the options of the command."
        )


class UnfinishedCopyError(KcompactError):
    """A copy in another directory lacks some directories, so it must not be used.

    `is_interrupted`: nothing but a request to stop has kept it from being finished.
    """

    def __init__(self, *, path: Path | str, missing: Sequence[str], is_interrupted: bool = False) -> None:
        self.path = str(path)
        self.missing = tuple(missing)
        self.is_interrupted = is_interrupted
        if is_interrupted:
            self.exit_code = CleaningAbortedError.exit_code
        again = "Run" if is_interrupted else "Remove the cause, then run"
        listed = some_of(list(map(shown, self.missing)), at_most=_NAMED)
        again += " the same command again: it keeps what is finished."
        hint = again if self.path.startswith("s3://") else f"{_MARKED} {again}"
        super().__init__(f"{shown(self.path)}: this copy is unfinished, do not use it; missing: {listed}", hint)


_MARKED = "A broker does not start on it while it contains .kcompact-copy."
_NAMED = 5  # A message names at most this many directories.


class RecoveryNeededError(KcompactError):
    """A swap was interrupted. `kcompact recover` must finish or undo it before anything else is done.

    `files` are the names that the swap left in the partition directory `path`.
    """

    exit_code = ExitCode.RECOVERY_NEEDED

    def __init__(self, *, path: Path | str, problem: str, files: Sequence[str] = (), hint: str = "") -> None:
        self.path = str(path)
        self.problem = problem
        self.files = tuple(files)
        listed = "".join(f"\n  {shown(name)}" for name in self.files)
        super().__init__(f"{shown(self.path)}: {shown(problem)}{listed}", hint)

    @property
    def cause(self) -> str:
        """The message without the names of the files."""
        return f"{shown(self.path)}: {shown(self.problem)}" + (f"\n{self.hint}" if self.hint else "")


class CheckpointNotWrittenError(KcompactError):
    """All segments of a partition are cleaned and in place, but the cleaner's checkpoint does not say so yet.

    The exit code is that of the cause.
    """

    def __init__(self, *, path: Path | str, problem: KcompactError) -> None:
        self.__cause__ = problem
        self.path = str(path)
        self.problem = problem
        self.exit_code = problem.exit_code
        why = str(problem).splitlines()[0]
        super().__init__(
            f"{shown(self.path)}: cleaned completely, but the checkpoint was not written: {why}\n"
            f"The log is in order. Remove the cause, then run `kcompact recover {shell_word(self.path)}`, or clean "
            "again: both write the checkpoint. Until then a cleaning only has more to read."
        )

    @property
    def word(self) -> str:
        """The words of the cause."""
        return self.problem.word


class CleaningAbortedError(KcompactError):
    """The run received a request to stop, and stopped between two steps."""

    exit_code: int = ExitCode.INTERRUPTED

    def __init__(self, *, path: Path | str, exit_code: int = ExitCode.INTERRUPTED) -> None:
        self.path = str(path)
        self.exit_code = exit_code
        super().__init__(f"{shown(self.path)}: interrupted; segments that were not yet replaced are unchanged")


class CleanerStateError(KcompactError):
    """A caller of the cleaner asked for something that the partition's state does not allow."""

    default_hint = "Each resume undoes one pause, and a cleaning that is being aborted can only end."

    def __init__(self, *, partition: str, state: str, event: str, hint: str = default_hint) -> None:
        self.partition = partition
        self.state = state
        self.event = event
        super().__init__(f"{shown(partition)}: '{event}' is not possible in the state '{state}'", hint)


class NotLoadedError(KcompactError):
    """A module of kcompact, or of a library, is missing or cannot be used. The exception is the `__cause__`."""

    def __init__(self, problem: ImportError) -> None:
        self.__cause__ = problem
        hint = "Install kcompact again, with what it depends on, then run again."
        super().__init__(f"a part of kcompact cannot be loaded: {shown(problem)}", hint)


class UnexpectedError(KcompactError):
    """An exception that kcompact does not expect: a bug of kcompact. The exception is the `__cause__`."""

    def __init__(self, problem: Exception) -> None:
        self.__cause__ = problem
        kind = type(problem).__name__
        super().__init__(f"unexpected error, a bug of kcompact: {kind}: {shown(problem)}", DEBUG)


DEBUG = "Run again with --debug to see where it happened."


class NotEnoughMemoryError(KcompactError):
    """This process got no memory that it asked for. `limit` is its tightest limit, empty without one."""

    def __init__(self, *, problem: str, limit: str = "") -> None:
        self.problem, self.limit = problem, limit
        super().__init__(": ".join(filter(None, ("not enough memory", shown(problem)))))

    @property
    def hint(self) -> str:
        """The limit, and what helps: --memory only if the command that runs has it."""
        limited = f"{shown(self.limit)} is the limit of this process: raise it" if self.limit else "End other processes"
        return worded(f"{limited}, or pass a smaller --memory." if has_option("--memory") else f"{limited}.")


def is_forbidden(problem: OSError) -> bool:
    """Return whether this user has no permission, or the file system is mounted read-only."""
    return problem.errno in (errno.EACCES, errno.EPERM, errno.EROFS)


@contextmanager
def storage_errors(path: Path, operation: str = "") -> Iterator[None]:
    """Raise an OSError inside the block as a `storage_error`, which fails one partition instead of the command.

    `path` is used if the OSError has no file name, or one that is relative to a directory it does not name.
    """
    try:
        yield
    except OSError as problem:
        raise storage_error(_named_by(problem) or path, problem, operation=operation) from problem


def _named_by(problem: OSError) -> Path | None:
    named = problem.filename
    named_path = Path(os.fsdecode(named)) if isinstance(named, str | bytes | os.PathLike) else None
    return named_path if named_path is not None and named_path.is_absolute() else None


def storage_error(
    path: Path, problem: OSError, *, operation: str = "", position: int | None = None, needed_bytes: int = 0
) -> StorageError | NotEnoughSpaceError:
    """Return the error to raise for an OSError: NotEnoughSpaceError if the file system or a quota is full.

    `operation` says what failed; without it, a note of the OSError does, as of a step of a swap.
    """
    operation = operation or ", ".join(getattr(problem, "__notes__", ()))
    if problem.errno not in NO_SPACE_NUMBERS:
        return StorageError(path=path, problem=problem, position=position, operation=operation)
    directory, free_bytes = path.absolute().parent, None
    with suppress(OSError):  # A file system that fails may not even say this.
        directory = next(each for each in path.absolute().parents if each.exists())
        status = os.statvfs(directory)
        free_bytes = status.f_bavail * status.f_frsize
    return NotEnoughSpaceError(
        path=directory,
        needed_bytes=needed_bytes,
        free_bytes=free_bytes,
        detail=": ".join(filter(None, (str(path), operation))),
        why=problem.strerror or "",
    )
