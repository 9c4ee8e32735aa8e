"""The class-data archive: Spark's classes in the JVM's memory layout. With it Spark starts in half the time.

Each run lists the classes that the JVM loads. When the first run with a Java and a Spark ends, a background process
makes the archive in the user's cache directory, and later runs use it. An archive holds code, so it is used only if no
other user can write to it and its checksum is the one in its name. Without an archive Spark starts more
slowly, and the result is the same.

Only a run in which a job ended well makes an archive: a run that failed or was stopped before has loaded the classes of
the start alone. A run that lists GROWTH times as many classes as the archive has makes it anew: the first run may have
been a small one. An archive never shrinks, so runs of two kinds that take turns do not replace each other's.

    spark-<key>-<classes>-<checksum>.jsa    an archive; the key is a hash of the Java, the jars and the JVM options,
                                            `classes` how many were listed for it
    spark-<key>.failed                      this Java could not make an archive; no run tries it again for a day
    making-*                                unfinished; the next process that makes an archive removes it
    making.lock                             held by the process that makes an archive
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import kcompact
from kcompact.engine.spark.pyspark_private import JOB_SUCCEEDED
from kcompact.engine.spark.scratch import try_lock
from kcompact.format.checksum import crc32c
from kcompact.host.machine import clock_ms
from kcompact.host.user_directories import cache_directory
from kcompact.values import dataclass

MAKING_S = 300.0
FAILED_MS = 86_400_000
"""A Java that cannot make an archive is not tried at each run. But the machine may only have been too busy."""
GROWTH = 1.25
"""Making an archive takes 20 s of one core. A start gains little by it while four fifths of the classes are in it."""
KEPT = 3
"""The number of archives to keep: for several virtual environments, or for a Java before and after an update."""
_READ_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassArchive:
    """The archive for one Java and one class path.

    `file` is the archive, None if it does not exist. `directory` is the directory of archives, None if no archive can
    be made. `classes` is the file in which the JVM lists the classes that it loads.
    """

    java: Path
    class_path: str
    key: str
    directory: Path | None
    file: Path | None
    classes: Path

    @property
    def is_wanted(self) -> bool:
        """Whether the archive does not exist and can be made."""
        return self.directory is not None and self.file is None

    def options(self) -> list[str]:
        """Return the JVM options that use the archive, and that list the classes for a new one."""
        # With `auto` the JVM ignores an archive of another Java or of other jars. Otherwise it would not start.
        used = [] if self.file is None else ["-Xshare:auto", f"-XX:SharedArchiveFile={self.file}"]
        listed = [] if self.directory is None else [f"-XX:DumpLoadedClassList={self.classes}"]
        return used + listed

    def is_sound(self) -> bool:
        """Return whether the archive has the checksum that its name says. A damaged archive is removed."""
        if self.file is None:
            return True
        with contextlib.suppress(OSError):
            if self.file.stem.rpartition("-")[2] == _checksum(self.file):
                return True
        with contextlib.suppress(OSError):
            self.file.unlink()
        return False

    def make_in_background(self) -> None:
        """Start a process that makes the archive and can outlive this one. Raises nothing and prints nothing.

        Nothing is made if no job has ended well, or if the archive that there is has most of the classes.
        """
        if self.directory is None:
            return
        with contextlib.suppress(OSError):
            # The JVM was killed while it wrote the list, so the last line can be incomplete.
            text = self.classes.read_bytes().rpartition(b"\n")[0] + b"\n"
            if JOB_SUCCEEDED not in text or not _has_many_more(text, self.file):
                return
            target = self.directory / f"making-{secrets.token_hex(8)}.classes"
            _write_new(target, text)
            subprocess.run(
                [sys.executable, "-P", "-m", __name__, self.java, self.class_path, self.key, self.directory, target],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=_environment(),
                check=False,
            )


def find_archive(java: Path, jars: Sequence[Path], options: Iterable[str], *, scratch: Path) -> ClassArchive:
    """Return the archive for a Java, its class path and its options. Raises nothing: a problem means no archive."""
    class_path = os.pathsep.join(map(str, jars))
    key, directory, file = "", None, None
    with contextlib.suppress(OSError):
        key = _key(java, jars, options)
        directory = cache_directory()
        if directory is not None:
            file = _largest(directory, key)
            if _is_recent(directory / f"spark-{key}.failed"):
                directory = None
    return ClassArchive(
        java=java, class_path=class_path, key=key, directory=directory, file=file, classes=scratch / "classes"
    )


def _largest(directory: Path, key: str) -> Path | None:
    """Return the archive with the most classes that no other user can write to. Raises OSError."""
    return max(filter(_is_trusted, directory.glob(f"spark-{key}-*-*.jsa")), key=_class_count, default=None)


def _class_count(file: Path) -> int:
    """Return how many classes were listed for an archive, by its name; 0 for the name of another file."""
    count = file.stem.split("-")[-2]
    return int(count) if count.isdecimal() else 0


def _has_many_more(listed: bytes, file: Path | None) -> bool:
    """Return whether a list has many more classes than an archive; without an archive, it has."""
    return file is None or _listed_count(listed) >= GROWTH * _class_count(file)


def _listed_count(listed: bytes) -> int:
    # Java writes a comment at the top, and with `@` what is generated for lambdas.
    return sum(not line.startswith((b"#", b"@")) for line in listed.splitlines())


def _is_recent(failed: Path) -> bool:
    """Return whether the file says that no archive could be made lately. Raises OSError."""
    try:
        return clock_ms() < failed.stat().st_mtime_ns // 1_000_000 + FAILED_MS
    except FileNotFoundError:
        return False


def _key(java: Path, jars: Sequence[Path], options: Iterable[str]) -> str:
    """Return a hash of everything that an archive depends on. The JVM itself detects only some mismatches."""
    digest = hashlib.sha256()
    resolved = java.resolve()
    for path in (resolved, resolved.parents[1] / "release", resolved.parents[1] / "lib" / "modules", *jars):
        with contextlib.suppress(FileNotFoundError):
            status = path.stat()
            digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode(errors="surrogateescape"))
    digest.update("\n".join(options).encode(errors="surrogateescape"))
    return digest.hexdigest()[:16]


# Trust


def _is_trusted(file: Path) -> bool:
    """Return whether only this user can write to the file. Its directory is checked before."""
    status = os.lstat(file)
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _checksum(file: Path) -> str:
    """Return the CRC-32C and the size of a file, in hexadecimal digits."""
    crc = size = 0
    with open(file, "rb", buffering=0) as source:
        while data := source.read(_READ_BYTES):
            crc, size = crc32c(data, crc), size + len(data)
    return f"{crc:08x}{size:x}"


# Making an archive, in a background process


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR") if name in os.environ}
    return {**kept, "PYTHONPATH": str(Path(kcompact.__file__).resolve().parents[1])}


def main(arguments: Sequence[str]) -> int:
    """Make an archive. The arguments are JAVA CLASS_PATH KEY DIRECTORY CLASSES; returns the exit code.

    Forks and returns at once, so that the caller has no child to wait for. A lock keeps out a second process that makes
    an archive; that process ends without a result.
    """
    java, class_path, key, directory, classes = (*arguments[:3], Path(arguments[3]), Path(arguments[4]))
    if os.fork():
        return 0
    os.setsid()
    os.nice(19)
    try:
        descriptor = os.open(directory / "making.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        if not try_lock(descriptor):
            return 0
        _remove(path for path in directory.glob("making-*") if path != classes)
        _remove(path for path in directory.glob("spark-*.failed") if not _is_recent(path))
        # Another process may have made one since.
        if not (directory / f"spark-{key}.failed").exists() and _has_many_more(
            classes.read_bytes(), _largest(directory, key)
        ):
            _make(java, class_path, key, directory, classes)
    finally:
        _remove([classes])
    return 0


def _make(java: str, class_path: str, key: str, directory: Path, classes: Path) -> None:
    """Run `java -Xshare:dump` and rename its result, or record that this Java cannot make an archive."""
    made = directory / f"making-{secrets.token_hex(8)}.jsa"
    command = [
        java, "-Xshare:dump", f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={made}", "-Xmx256m",
        "-XX:-UsePerfData", "-cp", class_path,
    ]  # fmt: skip
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(command, check=False, timeout=MAKING_S, cwd=directory, capture_output=True, umask=0o077)
    if not made.exists():
        _write_new(directory / f"spark-{key}.failed", b"")
        return
    made.chmod(0o600)
    smaller = list(directory.glob(f"spark-{key}-*.jsa"))
    made.rename(directory / f"spark-{key}-{_listed_count(classes.read_bytes())}-{_checksum(made)}.jsa")
    _remove(smaller)
    others = sorted(directory.glob("spark-*.jsa"), key=lambda path: path.stat().st_mtime_ns)
    _remove(others[:-KEPT])


def _write_new(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
