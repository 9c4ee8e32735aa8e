"""An output in a bucket: each directory is copied in the scratch, uploaded, and then removed from the scratch.

What a copy consists of, and in which order it is written, is as for a local output. A directory is in the bucket when
its manifest is (`bucket.upload`); the files that partitions share are uploaded last, under a manifest of their own. The
same command continues an interrupted copy: it keeps the directories whose manifests have the same source and recipe.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kcompact import __version__
from kcompact.bucket.answers import failed
from kcompact.bucket.manifest import MANIFEST, DirectoryManifest
from kcompact.bucket.mirror import MIRROR
from kcompact.bucket.path import is_in_bucket, parts_of
from kcompact.bucket.remote import crc_of, request_pool
from kcompact.bucket.scratch import as_path, needs_scratch_space
from kcompact.bucket.upload import (
    ExistsAlreadyError,
    lost_objects,
    new_attempt,
    publish,
    published,
    require_conditional_writes,
)
from kcompact.errors import NotEnoughSpaceError, RefusedError, storage_errors
from kcompact.format.names import parse_directory
from kcompact.format.properties import CLEAN_SHUTDOWN_FILE
from kcompact.host.disk import Disk
from kcompact.log.files import files_in
from kcompact.swap.copy.contents import LOG_DIR_FILES, PartitionContents, read_partition_contents
from kcompact.swap.copy.files import UnfinishedCopy
from kcompact.swap.copy.marker import FinishedDirectory, file_states
from kcompact.swap.copy.output import SHARED_BLOCKS, Output
from kcompact.swap.open_directory import OpenDirectory
from kcompact.values import dataclass

_SHARED = ""
"""The name of what the directories of a log directory share. It has the key of the log directory."""


def output_at(
    path: Path,
    directories: Sequence[Path] = (),
    *,
    log_dir: Path | None = None,
    max_bytes_per_second: int | None = None,
) -> Output:
    """Return an output, in a bucket if its path is of one. Parameters and errors are those of `Output`."""
    if is_in_bucket(path):
        return BucketOutput(path, directories, log_dir=log_dir, max_bytes_per_second=max_bytes_per_second)
    with storage_errors(path):
        return Output(path, directories, log_dir=log_dir, max_bytes_per_second=max_bytes_per_second)


class BucketOutput(Output):
    """A prefix in a bucket for the copies of partitions. Several runs may write to it; of each directory one wins.

    The constructor raises what that of `Output` raises, and StorageError without an answer of the bucket.
    """

    is_uploaded = True

    def __init__(
        self,
        path: Path,
        directories: Sequence[Path] = (),
        *,
        log_dir: Path | None = None,
        max_bytes_per_second: int | None = None,
    ) -> None:
        name, self._key = parts_of(str(path))
        self._bucket = MIRROR.bucket(name)
        if not _is_mirrored_source(path, directories, log_dir):
            MIRROR.remove(path)  # What an earlier round of this process has left.
        super().__init__(path, directories, log_dir=log_dir, max_bytes_per_second=max_bytes_per_second)
        # `publish` decides between runs; this only keeps a run from copying what is there already.
        self._names = {each.name for each in self._directories} | ({_SHARED} if log_dir is not None else set())
        looked_up = self._look_up(sorted(self._names | {_SHARED}))
        self._published = {name: manifest for name, (manifest, _) in looked_up.items()}
        whole = self._published.get(_SHARED)
        self._is_part = log_dir is not None or whole is not None
        # What the whole copy is to have and lacks is made again.
        if whole is not None and not self._names <= {*self._published, *whole.directories}:
            raise ExistsAlreadyError(path)  # It is of another log directory, or of another state of it.
        self._damaged = {name for name, (_, lost) in looked_up.items() if lost}
        """Copies of which objects are gone or others: they are made again."""

    def _look_up(self, names: Sequence[str]) -> dict[str, tuple[DirectoryManifest, list[str]]]:
        """Return, by name, the manifests that the bucket has, each with the addresses of objects that it lacks."""

        def look(name: str) -> tuple[DirectoryManifest, list[str]] | None:
            key = self._key_of(name)
            manifest = published(self._bucket, key, self.path / name)
            if manifest is None:
                return None
            return manifest, [self._bucket.address(each) for each in lost_objects(self._bucket, key, manifest)]

        manifests = zip(names, request_pool().map(look, names), strict=True)
        return {name: each for name, each in manifests if each is not None}

    def _require_no_others(self) -> None:
        """Raise RefusedError if a prefix would have partitions of a whole log directory and others."""
        if self.log_dir is None and self._is_part:
            return
        for name in self._bucket.directories(self._key):
            if parse_directory(name) is None or name in self._names:
                continue
            other = published(self._bucket, self._key_of(name), self.path / name)
            if other is not None and (other.is_part or self.log_dir is not None):
                whole = "an unfinished copy of a log directory" if other.is_part else "another copy"
                raise RefusedError(
                    path=self.path / name,
                    problem=f"is a partition of {whole}",
                    hint="Pass an --output prefix without it, or remove it.",
                )
            if other is not None:
                return  # All of them are chosen partitions.

    def _key_of(self, name: str) -> str:
        return "/".join(filter(None, (self._key, name)))

    @needs_scratch_space()
    def require_space(self, directories: Sequence[Path], together: Callable[[Path], bool], threads: int) -> None:
        """Raise NotEnoughSpaceError if the scratch cannot hold what is copied at the same time."""
        free_bytes, block_bytes, _ = Disk.of(self.path)
        alone, concurrent_bytes = [0], list[int]()
        for path in (*directories, *self._set_aside):
            if path.name not in self._published or path.name in self._damaged:
                sizes = concurrent_bytes if together(path) else alone
                sizes.append(_scratch_bytes(path, block_bytes))
        most_bytes = max(*alone, sum(sorted(concurrent_bytes)[-threads:]))
        needed_bytes = most_bytes + SHARED_BLOCKS * block_bytes
        if needed_bytes > free_bytes:
            raise NotEnoughSpaceError(path=self.path, needed_bytes=needed_bytes, free_bytes=free_bytes)

    @needs_scratch_space()
    def __enter__(self) -> Self:
        self._require_store()
        return super().__enter__()

    def _require_store(self) -> None:
        """Raise RefusedError before anything is uploaded to a prefix or a store that cannot take this copy."""
        self._require_no_others()
        if not self._published.keys() - self._damaged >= self._names:
            require_conditional_writes(self._bucket, self._key)

    @contextmanager
    def _new_directory(self, *arguments: Any, **options: Any) -> Iterator[UnfinishedCopy]:
        with needs_scratch_space(), super()._new_directory(*arguments, **options) as unfinished:
            yield unfinished

    def _kept(
        self, source: Path, recipe: Mapping[str, Any], offsets: Mapping[str, int], contents: PartitionContents
    ) -> FinishedDirectory | None:
        manifest = self._published.get(source.name)
        if manifest is None:
            return None
        record = FinishedDirectory(
            name=source.name,
            recipe=manifest.recipe,
            outcome=manifest.outcome,
            offsets=manifest.offsets,
            source=manifest.source,
            copy=[],
        )
        made_from = (dict(recipe), dict(offsets), file_states(contents.files), _etags(source))
        if _made_from(manifest) != made_from:
            raise ExistsAlreadyError(self.path / source.name)
        if source.name in self._damaged:
            return None
        self.add(record)
        return record

    def add(self, record: FinishedDirectory) -> None:
        """Count a directory as copied: its manifest is in the bucket, and this is the record of it."""
        self._marker.write(record)
        self._done.add(record.name)

    def record(self, name: str) -> FinishedDirectory:
        """Return the record of a directory that this object has copied or found. Raises as `CopyMarker.record`."""
        record = self._marker.record(name)
        assert record is not None, name
        return record

    def part(self, source: Path) -> OutputPart:
        """Return what another process needs to copy one of the directories to this output."""
        return OutputPart(
            address=str(self.path),
            source=source,
            is_part=self._is_part,
            clean_shutdown=None if self._is_beside_broker else self._clean_shutdown(source),
            max_bytes_per_second=self._throttle.max_bytes_per_second,
        )

    def _publish(self, output: OpenDirectory, staged: str, name: str, check: Callable[[], None]) -> None:
        """Upload a complete directory, and remove it from the scratch. Raises RefusedError if another run has won."""
        super()._publish(output, staged, name, check)
        record = self.record(name)
        source = next(each for each in self._directories if each.name == name)
        manifest = DirectoryManifest(
            attempt=new_attempt(),
            written_by=f"kcompact {__version__}",
            files=(),
            is_part=self._is_part,
            offsets=record.offsets,
            clean_shutdown=None if self._is_beside_broker else self._clean_shutdown(source),
            recipe=record.recipe,
            outcome=record.outcome,
            source=record.source,
            source_etags=_etags(source),
        )
        try:
            try:
                replaced = self._published[name] if name in self._damaged else None
                publish(
                    self._bucket,
                    self._key_of(name),
                    self.path / name,
                    manifest,
                    replaced=replaced,
                    take=self.pace(check).take,
                )
            except ExistsAlreadyError:
                # Another attempt of a task, or the same command, can have won: then the copy is there.
                theirs, lost = self._look_up([name]).get(name, (None, []))
                if theirs is None or _made_from(theirs) != _made_from(manifest):
                    raise
                _require_objects(lost)
        except BaseException:
            self._marker.forget(name)
            raise
        finally:
            shutil.rmtree(name, ignore_errors=True, dir_fd=output.fd())

    def _clean_shutdown(self, source: Path) -> str | None:
        """Return the text of `.kafka_cleanshutdown` beside a source, None without one."""
        file = files_in(source.parent).file(CLEAN_SHUTDOWN_FILE)
        return file.read().decode(errors="replace") if file.exists() else None

    @needs_scratch_space()
    def _complete(self) -> None:
        """Upload the files that the directories of a log directory share, and their manifest: the copy is complete."""
        records = [self.record(name) for name in sorted(self._done)]
        super()._complete()
        try:
            self._require_whole(records)
            if self.log_dir is not None:
                self._publish_shared(records)
        finally:
            shutil.rmtree(self.path, ignore_errors=True)

    def _publish_shared(self, records: Sequence[FinishedDirectory]) -> None:
        """Publish the files that directories share, unless the same ones are there."""
        there = self._published.get(_SHARED)
        if there is not None:
            self._require_same_shared(there)
        if there is None or _SHARED in self._damaged:
            self._require_no_others()
            manifest = DirectoryManifest(
                attempt=new_attempt(),
                written_by=f"kcompact {__version__}",
                files=(),
                directories=tuple(record.name for record in records),
            )
            names = frozenset(LOG_DIR_FILES)
            try:
                publish(self._bucket, self._key, self.path, manifest, names=names, replaced=there)
            except ExistsAlreadyError:
                # A run with the same settings can have won: then what it has made is this copy.
                theirs, lost = self._look_up([_SHARED]).get(_SHARED, (None, []))
                self._require_same_shared(theirs)
                _require_objects(lost)
                self._require_whole(records)

    def _require_same_shared(self, there: DirectoryManifest | None) -> None:
        """Raise ExistsAlreadyError if a manifest has other files than these."""
        files = files_in(self.path)
        own = {name: crc_of(files.file(name).read()) for name in LOG_DIR_FILES if files.exists(name)}
        if there is None or {each.name: each.crc32c for each in there.files} != own:
            raise ExistsAlreadyError(self.path)

    def _require_whole(self, records: Sequence[FinishedDirectory]) -> None:
        """Raise StorageError if an object of a directory is gone, or another one, since it was uploaded.

        Raises RefusedError if another run has replaced a directory by one that is made otherwise.
        """
        manifests = self._look_up([record.name for record in records])
        for record in records:
            path = self.path / record.name
            manifest, lost = manifests.get(record.name, (None, [str(path / MANIFEST)]))
            _require_objects(lost)
            if manifest is not None and _made_from(manifest)[:3] != (record.recipe, record.offsets, record.source):
                raise ExistsAlreadyError(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPart:
    """One directory of an output, for another process. `clean_shutdown` is what the manifest says of its source."""

    address: str
    source: Path
    is_part: bool
    clean_shutdown: str | None
    max_bytes_per_second: int | None

    def open(self) -> BucketOutput:
        """Return an output for this directory alone. Raises as `BucketOutput`."""
        return _OneDirectory(self)


class _OneDirectory(BucketOutput):
    """A part of the output of another process. Only that process sees the files beside a partition in a bucket."""

    def __init__(self, part: OutputPart) -> None:
        path = as_path(part.address)
        self._shutdown = part.clean_shutdown
        super().__init__(path, [part.source], max_bytes_per_second=part.max_bytes_per_second)
        self._is_part = part.is_part

    def _clean_shutdown(self, source: Path) -> str | None:
        return self._shutdown

    def _require_store(self) -> None:
        """Do nothing: the other process has done it."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        shutil.rmtree(self.path, ignore_errors=True)


def _require_objects(lost: Sequence[str]) -> None:
    """Raise StorageError if a copy lacks objects."""
    if lost:
        raise failed(lost[0], "is gone, or another object, since it was uploaded")


def _made_from(manifest: DirectoryManifest) -> tuple[object, ...]:
    """Return what a copy was made from, and how: with the same, it is the same copy."""
    # As a reader of the manifest has it: without tuples, and with texts as keys.
    recipe = json.loads(json.dumps(manifest.recipe))
    return recipe, manifest.offsets, manifest.source, manifest.source_etags


def _scratch_bytes(source: Path, block_bytes: int) -> int:
    """Return the space for a copy of a directory, and for the directory itself if it is fetched."""
    copies = 2 if is_in_bucket(source) else 1
    return copies * read_partition_contents(source).space_bytes(block_bytes)


def _etags(source: Path) -> dict[str, str]:
    """Return the versions of the objects of a directory in a bucket; empty for a local one."""
    return MIRROR.etags(source) if is_in_bucket(source) else {}


def _is_mirrored_source(path: Path, directories: Sequence[Path], log_dir: Path | None) -> bool:
    """Return whether sources lie in the output or above it, which `Output` refuses."""
    sources = [*directories, *({each.parent for each in directories}), *([log_dir] if log_dir else [])]
    return any(each.is_relative_to(path) or path.is_relative_to(each) for each in sources)
