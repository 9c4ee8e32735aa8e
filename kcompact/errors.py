"""Every exception the package raises: one class for each state of the world a user can be in.

A class carries the facts as attributes, builds its one message and owns the exit code of the process
(`EXIT_CODES` in `docs/cli.md`). The command line has a single `except KcompactError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


class KcompactError(Exception):
    """Something stopped kcompact. The message says what, where, and what to do next."""

    exit_code = 1

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions with keyword-only arguments do not pickle by themselves, and these travel from Spark workers.
        return (_restored, (type(self), self.args, self.__dict__.copy()))


def _restored(cls: type[KcompactError], args: tuple[object, ...], facts: dict[str, object]) -> KcompactError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(facts)
    return error


class CorruptDataError(KcompactError):
    """Bytes on the disk contradict Kafka's format, or each other."""

    exit_code = 3

    def __init__(
        self, *, file: Path | str, problem: str, position: int | None = None, offset: int | None = None, hint: str = ""
    ) -> None:
        self.file = str(file)
        self.position = position
        self.offset = offset
        self.problem = problem
        self.hint = hint
        where = "".join(
            f", {name} {value}" for name, value in (("position", position), ("offset", offset)) if value is not None
        )
        super().__init__(f"{self.file}{where}: {problem}" + (f"\n{hint}" if hint else ""))


class CorruptBatchError(CorruptDataError):
    """A record batch cannot be trusted: checksum, length, offsets or records."""


class CorruptIndexError(CorruptDataError):
    """An index contradicts its log."""


class CorruptCheckpointError(CorruptDataError):
    """A checkpoint, snapshot or properties file cannot be read."""


class StorageError(KcompactError):
    """The operating system would not read or write a file."""

    def __init__(self, *, path: Path | str, problem: OSError, position: int | None = None) -> None:
        self.path = str(path)
        self.problem = problem
        self.position = position
        where = "" if position is None else f", position {position}"
        super().__init__(f"{self.path}{where}: {problem.strerror or problem}")


class RefusedError(KcompactError):
    """kcompact will not do this here; the message says why and what would make it safe."""

    exit_code = 4

    def __init__(self, *, path: Path | str, problem: str, hint: str = "") -> None:
        self.path = str(path)
        self.problem = problem
        self.hint = hint
        super().__init__(f"{self.path}: {problem}" + (f"\n{hint}" if hint else ""))


class UnsupportedError(RefusedError):
    """The data is valid, but this version of kcompact cannot process it."""


class StaleReplicaError(RefusedError):
    """The cluster has another topic under this directory's name: what lies here belongs to a topic that is gone."""


class ConfigError(RefusedError):
    """A setting has a value that Kafka would not accept, or none where one is needed."""

    exit_code = 2


class EngineError(KcompactError):
    """Spark did not start, or failed. Nothing is said about the data."""

    def __init__(self, *, problem: str, hint: str = "--engine in-process does the same without Spark.") -> None:
        self.problem = problem
        self.hint = hint
        super().__init__(f"Spark: {problem}" + (f"\n{hint}" if hint else ""))


class ClusterUnreachableError(KcompactError):
    """The cluster of `--bootstrap-server` did not answer, or not in a way that can be used."""

    def __init__(self, *, address: str, problem: str) -> None:
        self.address = address
        self.problem = problem
        super().__init__(
            f"{address}: {problem}\n"
            "Without --bootstrap-server the settings come from the metadata log beside the data, --broker-config "
            "and --config."
        )


class LogDirLockedError(KcompactError):
    """The log directory's `.lock` is held: a broker or another kcompact is running."""

    exit_code = 5

    def __init__(self, *, lock: Path | str) -> None:
        self.lock = str(lock)
        super().__init__(
            f"{self.lock}: held by another process: a broker, or another kcompact, is using this log directory\n"
            "Stop it first. Never delete the lock file: that does not stop the process that holds it."
        )


class LogChangedError(KcompactError):
    """The partition changed while kcompact was working on it."""

    exit_code = 6

    def __init__(self, *, path: Path | str, problem: str) -> None:
        self.path = str(path)
        self.problem = problem
        super().__init__(
            f"{self.path}: {problem}\nNothing more was done to this partition. Find what writes to it, then run again."
        )


class NotEnoughSpaceError(KcompactError):
    """The file system has too little room for the staged segments."""

    exit_code = 7

    def __init__(self, *, path: Path | str, needed_bytes: int, free_bytes: int) -> None:
        self.path = str(path)
        self.needed_bytes = needed_bytes
        self.free_bytes = free_bytes
        super().__init__(
            f"{self.path}: cleaning needs {needed_bytes:,} bytes free here, there are {free_bytes:,}\n"
            "Free some space, or write the compacted copy elsewhere with --output DIR."
        )


class RecoveryNeededError(KcompactError):
    """A swap was interrupted and its files must be settled first."""

    exit_code = 8

    def __init__(self, *, path: Path | str, problem: str, files: Sequence[str] = (), hint: str = "") -> None:
        self.path = str(path)
        self.problem = problem
        self.files = tuple(files)
        self.hint = hint
        listed = "".join(f"\n  {name}" for name in self.files)
        super().__init__(f"{self.path}: {problem}{listed}" + (f"\n{hint}" if hint else ""))


class CleaningAbortedError(KcompactError):
    """The run was asked to stop and did, between two steps."""

    exit_code = 130

    def __init__(self, *, path: Path | str, exit_code: int = 130) -> None:
        self.path = str(path)
        self.exit_code = exit_code
        super().__init__(f"{self.path}: interrupted; what was not yet swapped in is unchanged")
