"""An output in a bucket: each directory is copied in the scratch, uploaded, and then removed from the scratch.

What a copy consists of, and in which order it is written, is as for a local output. A directory is in the bucket when
its manifest is (`bucket.upload`); the files that partitions share are uploaded last, under a manifest of their own. The
same command continues an interrupted copy: it keeps the directories whose manifests have the same source and recipe.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kcompact import __version__
from kcompact.bucket.manifest import Manifest
from kcompact.bucket.mirror import MIRROR
from kcompact.bucket.path import BucketPath, parts_of
from kcompact.bucket.upload import exists_already, new_attempt, publish, published
from kcompact.errors import NotEnoughSpaceError
from kcompact.format.properties import CLEAN_SHUTDOWN_FILE
from kcompact.host.disk import Disk
from kcompact.log.files import files_in
from kcompact.swap.copy.contents import LOG_DIR_FILES, PartitionContents, read_partition_contents
from kcompact.swap.copy.marker import CopyMarker, Record, file_states
from kcompact.swap.copy.output import SHARED_BLOCKS, Output
from kcompact.swap.open_directory import OpenDirectory


def output_at(
    path: Path, directories: Sequence[Path] = (), *, log_dir: Path | None = None, resumable: bool = True
) -> Output:
    """Return an output, in a bucket if its path is of one. Parameters and errors are those of `Output`."""
    if isinstance(path, BucketPath):
        return BucketOutput(path, directories, log_dir=log_dir)
    return Output(path, directories, log_dir=log_dir, resumable=resumable)


class BucketOutput(Output):
    """A prefix in a bucket for the copies of partitions. Several runs may write to it; of each directory one wins.

    The constructor raises what that of `Output` raises, and StorageError without an answer of the bucket.
    """

    def __init__(self, path: BucketPath, directories: Sequence[Path] = (), *, log_dir: Path | None = None) -> None:
        name, self._key = parts_of(str(path))
        self._bucket = MIRROR.bucket(name)
        if log_dir is not None and published(self._bucket, self._key, path) is not None:
            raise exists_already(path)
        if not _is_mirrored_source(path, directories, log_dir):
            shutil.rmtree(path, ignore_errors=True)  # What an earlier round of this process has left.
        super().__init__(path, directories, log_dir=log_dir)
        # `publish` decides between runs; this only keeps a run from copying what is there already.
        self._published = {
            each.name: manifest
            for each in self._directories
            if (manifest := published(self._bucket, self._key_of(each.name), path / each.name)) is not None
        }

    def _key_of(self, name: str) -> str:
        return f"{self._key}/{name}" if self._key else name

    def require_space(self, directories: Sequence[Path]) -> None:
        """Raise NotEnoughSpaceError if the scratch cannot hold the largest directory, of source and copy."""
        free_bytes, block_bytes, _ = Disk.of(self.path)
        left = [path for path in (*directories, *self._set_aside) if path.name not in self._published]
        sizes = [read_partition_contents(path).space_bytes(block_bytes) for path in left]
        needed_bytes = 2 * max(sizes, default=0) + SHARED_BLOCKS * block_bytes
        if needed_bytes > free_bytes:
            raise NotEnoughSpaceError(
                path=self.path,
                needed_bytes=needed_bytes,
                free_bytes=free_bytes,
                hint="A partition is copied in the scratch before its upload. TMPDIR=DIR chooses another place.",
            )

    def _kept(
        self, source: Path, recipe: Mapping[str, Any], offsets: Mapping[str, int], contents: PartitionContents
    ) -> Record | None:
        manifest = self._published.get(source.name)
        if manifest is None:
            return None
        made_from = (manifest.recipe, manifest.offsets, manifest.source, manifest.source_etags)
        if made_from != (recipe, offsets, file_states(contents.files), _etags(source)):
            raise exists_already(self.path / source.name)
        record = Record(
            name=source.name,
            recipe=manifest.recipe,
            outcome=manifest.outcome,
            offsets=manifest.offsets,
            source=manifest.source,
            copy=[],
        )
        assert self._marker is not None
        self._marker.write(record)
        self._done.add(source.name)
        return record

    def _publish(self, output: OpenDirectory, staged: str, name: str) -> None:
        """Upload a complete directory, and remove it from the scratch. Raises RefusedError if another run has won."""
        super()._publish(output, staged, name)
        assert self._marker is not None
        assert isinstance(self.path, BucketPath)
        record = self._marker.record(name)
        assert record is not None
        source = next(each for each in self._directories if each.name == name)
        try:
            publish(
                self._bucket,
                self._key_of(name),
                self.path / name,
                Manifest(
                    attempt=new_attempt(),
                    written_by=f"kcompact {__version__}",
                    files=(),
                    offsets=record.offsets,
                    clean_shutdown=None if self._is_beside_broker else _clean_shutdown(source.parent),
                    recipe=record.recipe,
                    outcome=record.outcome,
                    source=record.source,
                    source_etags=_etags(source),
                ),
            )
        except BaseException:
            self._marker.forget(name)
            raise
        finally:
            shutil.rmtree(name, ignore_errors=True, dir_fd=output.fd())

    def _complete(self, marker: CopyMarker) -> None:
        """Upload the files that the directories of a log directory share, and their manifest: the copy is complete."""
        super()._complete(marker)
        assert isinstance(self.path, BucketPath)
        if self.log_dir is not None:
            manifest = Manifest(attempt=new_attempt(), written_by=f"kcompact {__version__}", files=())
            publish(self._bucket, self._key, self.path, manifest, names=frozenset(LOG_DIR_FILES))
        shutil.rmtree(self.path, ignore_errors=True)


def _etags(source: Path) -> dict[str, str]:
    """Return the versions of the objects of a directory in a bucket; empty for a local one."""
    return MIRROR.etags(source) if isinstance(source, BucketPath) else {}


def _clean_shutdown(log_dir: Path) -> str | None:
    file = files_in(log_dir).file(CLEAN_SHUTDOWN_FILE)
    return file.read().decode(errors="replace") if file.exists() else None


def _is_mirrored_source(path: BucketPath, directories: Sequence[Path], log_dir: Path | None) -> bool:
    """Return whether sources lie in the output or above it, which `Output` refuses."""
    sources = [*directories, *({each.parent for each in directories}), *([log_dir] if log_dir else [])]
    return any(each.is_relative_to(path) or path.is_relative_to(each) for each in sources)
