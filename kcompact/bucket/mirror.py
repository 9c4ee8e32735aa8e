"""Mirrors what is below an address in the scratch directory: files with holes, which are filled when they are read.

A listing is one moment. A directory with a manifest has the files that the manifest names, and the directories of
attempts are never mirrored: half an upload is not there. The files beside partitions, such as checkpoints, are small
and are fetched at once.
"""

from __future__ import annotations

import itertools
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath

from kcompact.bucket.manifest import ATTEMPT, MANIFEST, MAX_MANIFEST_BYTES, DirectoryManifest
from kcompact.bucket.mirrored_file import ListedFile, Listing, MirroredFile
from kcompact.bucket.path import SCHEME, BucketPath, parts_of
from kcompact.bucket.remote import Bucket, RemoteObject, request_pool
from kcompact.bucket.scratch import scratch_directory, scratch_errors
from kcompact.errors import CorruptCheckpointError, KcompactError, LogChangedError, RefusedError
from kcompact.format.checkpoint import OFFSET_CHECKPOINTS, build_offset_checkpoint
from kcompact.format.names import (
    BOOTSTRAP_CHECKPOINT,
    CLUSTER_METADATA_TOPIC,
    TopicPartition,
    parse_directory,
    parse_file_name,
)
from kcompact.format.properties import CLEAN_SHUTDOWN_FILE, META_PROPERTIES
from kcompact.host.descriptors import closed_after
from kcompact.readable import shell_word
from kcompact.values import dataclass

KEPT_BYTES = 4 << 30
"""What the scratch keeps of objects that are not in use, at most."""
_BESIDE = frozenset({*OFFSET_CHECKPOINTS, BOOTSTRAP_CHECKPOINT, CLEAN_SHUTDOWN_FILE, META_PROPERTIES})
"""The files beside partitions. All of them decide for each partition, so they are fetched at once."""
_COPY_AGAIN = "Run the same command again that has made it, or remove the directory and copy the partition again."
_METADATA = f"{CLUSTER_METADATA_TOPIC}-0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphans:
    """Objects of an attempt that no manifest names: an upload that was interrupted, or is running now."""

    address: str
    count: int
    size_bytes: int

    @property
    def removal(self) -> str:
        """The command of the AWS tools that removes them."""
        return f"aws s3 rm --recursive {shell_word(f'{self.address}/')}"


class Mirror:
    """The mirrored objects of this process."""

    def __init__(self) -> None:
        self._guard, self._taking_over = threading.Lock(), threading.Lock()
        self._buckets: dict[str, Bucket] = {}
        self._files: dict[str, MirroredFile] = {}
        self._unused: dict[str, tuple[MirroredFile, int]] = {}
        """Files without a reader, each with its bytes in the scratch. The one that was read last is at the end."""
        self._kept_bytes = 0
        self.orphans: dict[str, Orphans] = {}
        """The attempts that were found, by address."""
        self.manifests: dict[str, Callable[[], bytes]] = {}
        """The manifests that were found, by address: each is read again when it is called."""
        self.failures: dict[Path, KcompactError] = {}
        """Why an address or a directory could not be mirrored, by local path."""
        self.strays = set[str]()
        """The addresses of objects beside or below a manifest that it does not name. They are not mirrored."""
        self._told = set[str]()
        self._whole = set[Path]()

    def bucket(self, name: str) -> Bucket:
        """Return a bucket, the same each time. Raises RefusedError."""
        with self._guard:
            if name not in self._buckets:
                self._buckets[name] = Bucket(name)
            return self._buckets[name]

    def mirrored(self, address: str) -> BucketPath:
        """Return the path of what an address names, and remember the attempts below it in `orphans`.

        Of a partition, the log directory around it has its files too, and its metadata log. A path of nothing does not
        exist. Raises RefusedError, CorruptCheckpointError for a manifest, StorageError.
        """
        name, key = parts_of(address)
        bucket = self.bucket(name)
        root = scratch_directory() / name
        with scratch_errors():
            root.mkdir(parents=True, exist_ok=True)
        target = PurePosixPath(key)
        if parse_file_name(target.name) is not None and str(target.parent) != ".":
            target = target.parent  # A single file: the log beside an index counts too.
        objects = bucket.below("" if str(target) == "." else str(target))
        if parse_directory(target.name) is not None:
            above = "" if str(target.parent) == "." else f"{target.parent}/"
            log_dir_objects = bucket.beside(above.rstrip("/"))
            for manifest in (self._manifest(bucket, each) for each in log_dir_objects if each.key == above + MANIFEST):
                objects += bucket.below(above + manifest.attempt)
            objects += log_dir_objects
            if target.name != _METADATA:
                objects += bucket.below(above + _METADATA)
        self._make(bucket, root, "" if str(target) == "." else str(target), objects)
        self._whole.add(root / target)
        return root / key if key else root

    def is_whole(self, directory: Path) -> bool:
        """Return whether all that a bucket has below a directory is mirrored, and not only what an address names."""
        return not self._whole.isdisjoint((directory, *directory.parents))

    def mirrored_or_failed(self, address: str) -> BucketPath:
        """Return the path of what an address names, as `mirrored`; an error of the bucket is raised by `require`.

        Raises RefusedError for an address that is none.
        """
        parts_of(address)
        path = scratch_directory() / address.removeprefix(SCHEME).rstrip("/")
        try:
            path = self.mirrored(address)
        except KcompactError as problem:
            self.failures[path] = problem
        else:
            self.failures.pop(path, None)
        return path

    def require(self, path: Path) -> None:
        """Raise the error of a path, or of a directory, that could not be mirrored when an address was named."""
        failure = self.failures.get(path)
        if failure is not None:
            raise failure

    def _make(self, bucket: Bucket, root: BucketPath, target: str, objects: Iterable[RemoteObject]) -> None:
        by_key = {each.key: each for each in objects}
        attempts = dict[str, list[RemoteObject]]()
        of_manifests = {}
        for each in by_key.values():
            directory, _, file = each.key.rpartition("/")
            if file == MANIFEST:
                of_manifests[directory] = each
            elif ATTEMPT.fullmatch(directory.rpartition("/")[2]):
                attempts.setdefault(directory, []).append(each)
        manifests = self._read_manifests(bucket, root, target, of_manifests)
        named = {each.key for each in of_manifests.values()}
        for directory, manifest in manifests.items():
            attempts.pop(f"{directory}/{manifest.attempt}".lstrip("/"), None)
            with self._of_one_directory(root, target, directory):
                named |= {f"{directory}/{manifest.attempt}/{file.name}".lstrip("/") for file in manifest.files}
                self._make_by_manifest(bucket, root, directory, manifest, by_key)
        for key, each in by_key.items():
            directory = key.rpartition("/")[0]
            if key in named or directory in attempts:
                continue
            if directory in of_manifests or any(map(ATTEMPT.fullmatch, directory.split("/"))):
                self.strays.add(bucket.address(key))
            else:
                self._add(bucket, root / key, ListedFile(each, each.modified_ns, None))
        self._require_complete(bucket, root, target, manifests, set(of_manifests))
        self._write_shared(root, manifests)
        # What was uploaded for a manifest that cannot be read, or is lost, is no unfinished upload.
        finished = {f"{parent}/{name}".lstrip("/") for parent, each in manifests.items() for name in each.directories}
        finished |= of_manifests.keys() - manifests.keys()
        for key, attempt_objects in sorted(attempts.items()):
            if key.rpartition("/")[0] in finished:
                continue
            address, size_bytes = bucket.address(key), sum(each.size_bytes for each in attempt_objects)
            self._told.discard(address)
            self.orphans[address] = Orphans(address=address, count=len(attempt_objects), size_bytes=size_bytes)

    @contextmanager
    def _of_one_directory(self, root: BucketPath, target: str, directory: str) -> Iterator[None]:
        """Keep an error of the block for whoever reads the directory, if others are mirrored with it."""
        self.failures.pop(root / directory, None)
        try:
            yield
        except (CorruptCheckpointError, RefusedError) as problem:
            if f"{target}/".startswith(f"{directory}/" if directory else ""):
                raise
            with scratch_errors():
                (root / directory).mkdir(parents=True, exist_ok=True)
            self.failures[root / directory] = problem

    def _read_manifests(
        self, bucket: Bucket, root: BucketPath, target: str, objects: Mapping[str, RemoteObject]
    ) -> dict[str, DirectoryManifest]:
        """Return the manifests of directories, those that can be read. Several are asked for at the same time."""
        asked = {directory: request_pool().submit(self._manifest, bucket, of) for directory, of in objects.items()}
        manifests = {}
        for directory, manifest in asked.items():
            with self._of_one_directory(root, target, directory):
                manifests[directory] = manifest.result()
        return manifests

    def _require_complete(
        self,
        bucket: Bucket,
        root: BucketPath,
        target: str,
        manifests: Mapping[str, DirectoryManifest],
        present: set[str],
    ) -> None:
        """Keep an error for each directory that a complete copy lacks, or that does not belong to it.

        The same for a copy of a log directory that is unfinished. Raises RefusedError if it is what is mirrored.
        """
        for directory, manifest in manifests.items():
            parent, _, name = directory.rpartition("/")
            around = manifests.get(parent) if directory else None
            for each in manifest.directories:
                below = f"{directory}/{each}".lstrip("/")
                is_listed = each == _METADATA or f"{below}/".startswith(f"{target}/" if target else "")
                if below not in present and is_listed:
                    with self._of_one_directory(root, target, below):
                        raise CorruptCheckpointError(
                            file=bucket.address(below), problem="is gone from this copy", hint=_COPY_AGAIN
                        )
            if around is not None and around.directories and name not in around.directories:
                with self._of_one_directory(root, target, directory):
                    problem = "does not belong to the copy of a log directory around it"
                    hint = f"If it is not needed: aws s3 rm --recursive {shell_word(f'{bucket.address(directory)}/')}"
                    raise RefusedError(path=bucket.address(directory), problem=problem, hint=hint)
            is_one_of_it = target != parent and f"{target}/".startswith(f"{parent}/" if parent else "")
            if manifest.is_part and parent not in present and not is_one_of_it:
                with self._of_one_directory(root, target, parent):
                    raise RefusedError(
                        path=bucket.address(parent),
                        problem="this copy of a log directory is unfinished",
                        hint="Run the same command again that makes it. Its partitions can be read one by one.",
                    )

    def _manifest(self, bucket: Bucket, of: RemoteObject) -> DirectoryManifest:
        address = bucket.address(of.key)
        if of.size_bytes > MAX_MANIFEST_BYTES:
            raise RefusedError(path=address, problem="is too large for a manifest")

        def content() -> bytes:
            return bucket.read(of, 0, of.size_bytes) if of.size_bytes else b""

        self.manifests[address] = content
        return DirectoryManifest.parse(content(), address=address)

    def _make_by_manifest(
        self,
        bucket: Bucket,
        root: BucketPath,
        directory: str,
        manifest: DirectoryManifest,
        by_key: dict[str, RemoteObject],
    ) -> None:
        """Mirror the files of a manifest, or none: raises CorruptCheckpointError if an object is not there."""
        listed = {}
        for file in manifest.files:
            key = f"{directory}/{manifest.attempt}/{file.name}".lstrip("/")
            remote = by_key.get(key)
            if remote is None or (remote.size_bytes, remote.etag) != (file.size_bytes, file.etag or remote.etag):
                raise CorruptCheckpointError(
                    file=bucket.address(key),
                    problem="is missing" if remote is None else "is not the object that the manifest beside it names",
                    hint=f"The copy is damaged. {_COPY_AGAIN}",
                )
            listed[root / directory / file.name] = ListedFile(remote, file.mtime_ns, file.crc32c)
        with scratch_errors():
            (root / directory).mkdir(parents=True, exist_ok=True)
        for path, each in listed.items():
            self._add(bucket, path, each)

    def _add(self, bucket: Bucket, path: Path, listed: ListedFile) -> None:
        local, remote, mtime_ns = os.fspath(path), listed.remote, listed.mtime_ns
        if local in self._files:
            if self._files[local].remote != remote:
                raise LogChangedError(path=path, problem="was replaced since it was listed")
            return
        with scratch_errors():
            try:
                os.makedirs(os.fspath(path.parent), exist_ok=True)  # noqa: PTH103 - `Path.mkdir` prints the local path
                descriptor = os.open(local, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            except (FileExistsError, NotADirectoryError, IsADirectoryError):
                raise RefusedError(path=path, problem="is an object, and others are below its name") from None
            with closed_after(descriptor):
                os.ftruncate(descriptor, remote.size_bytes)
                os.utime(descriptor, ns=(mtime_ns, mtime_ns))
        file = MirroredFile(bucket, path, listed)
        self._files[local] = file
        if path.name in _BESIDE:
            file.fetch(0, remote.size_bytes)

    def _write_shared(self, root: BucketPath, manifests: dict[str, DirectoryManifest]) -> None:
        """Write the checkpoints of log directories that have no files of their own, from the manifests in them."""
        above: dict[str, dict[TopicPartition, DirectoryManifest]] = {}
        for directory, manifest in manifests.items():
            parent, _, name = directory.rpartition("/")
            partition = TopicPartition.parse(name)
            if partition is not None and parent not in manifests:
                above.setdefault(parent, {})[partition] = manifest
        for parent, of_partitions in above.items():
            names = {name for manifest in of_partitions.values() for name in manifest.offsets}
            content = {
                name: build_offset_checkpoint(
                    {
                        each: partition_manifest.offsets[name]
                        for each, partition_manifest in of_partitions.items()
                        if name in partition_manifest.offsets
                    }
                )
                for name in names
            }
            texts = [manifest.clean_shutdown for manifest in of_partitions.values()]
            if None not in texts:
                content[CLEAN_SHUTDOWN_FILE] = (texts[0] or "").encode()
            for name, data in content.items():
                path = root / parent / name if parent else root / name
                if not path.exists():
                    with scratch_errors():
                        path.write_bytes(data)

    def take_orphans(self) -> list[Orphans]:
        """Return the attempts that were found since the last call."""
        new_orphans = [each for address, each in self.orphans.items() if address not in self._told]
        self._told.update(self.orphans)
        return new_orphans

    # Reading

    def file(self, path: Path) -> MirroredFile | None:
        """Return the mirrored object of a path, None for a file that kcompact has written there."""
        return self._files.get(os.fspath(path))

    @contextmanager
    def using(self, file: MirroredFile) -> Iterator[None]:
        """Keep what is fetched of a file during the block, and afterwards as long as there is room."""
        with self._guard:
            file.users += 1
            self._count_no_more(file)
        try:
            yield
        finally:
            with self._guard:
                file.users -= 1
                last = not file.users
            if last:
                file.settle()  # What is still on its way is in the scratch too.
            with self._guard:
                self._count_no_more(file)  # Another reader can have come and gone meanwhile.
                if not file.users and file.present_bytes:
                    self._unused[os.fspath(file.path)] = (file, file.present_bytes)
                    self._kept_bytes += file.present_bytes
                while self._kept_bytes > KEPT_BYTES:
                    oldest, _ = next(iter(self._unused.values()))
                    self._count_no_more(oldest)
                    oldest.drop()

    def _count_no_more(self, file: MirroredFile) -> bool:
        """Remove a file from `_unused`, with its bytes, and return whether it was there."""
        _, kept_bytes = self._unused.pop(os.fspath(file.path), (file, None))
        self._kept_bytes -= kept_bytes or 0
        return kept_bytes is not None

    @contextmanager
    def whole(self, directory: Path, take: Callable[[int], None] = lambda size_bytes: None) -> Iterator[None]:
        """Have the files of a directory whole, as its manifest says, for the block; then remove their bytes.

        `take` is called with the bytes of each request before it is sent; it may wait, or raise to stop.
        Raises as `MirroredFile.fetch` and `MirroredFile.verify`.
        """
        files = self._files_in(directory)
        try:
            with ExitStack() as stack:
                for file in files:
                    stack.enter_context(self.using(file))
                of_files = [file.begin(0, file.remote.size_bytes, take) for file in files]
                for flight in itertools.chain(*of_files):
                    stack.callback(flight.cancel)
                for file, needed in zip(files, of_files, strict=True):
                    for flight in needed:
                        flight.result()
                    file.verify()
                yield
        finally:
            with self._guard:
                for file in files:
                    if self._count_no_more(file):
                        file.drop()

    def listing(self, directory: Path) -> Listing:
        """Return the files that are mirrored in a directory, for `take_over` in another process."""
        return {file.path.name: file.listed for file in self._files_in(directory)}

    def take_over(self, directory: Path, listing: Listing) -> None:
        """Mirror a directory as another process has found it. What an earlier listing had there is forgotten.

        Raises RefusedError, StorageError.
        """
        with self._taking_over:
            if directory.exists():
                if self.listing(directory) == listing:
                    return
                self.remove(directory)
            bucket = self.bucket(parts_of(str(directory))[0])
            for name, listed in listing.items():
                self._add(bucket, directory / name, listed)

    def remove(self, directory: Path) -> None:
        """Remove what the scratch has below a directory, and forget what is mirrored there."""
        below = f"{os.fspath(directory)}/"
        with self._guard:
            for local in [each for each in self._files if each.startswith(below)]:
                file = self._files.pop(local)
                file.settle()
                self._count_no_more(file)
        shutil.rmtree(directory, ignore_errors=True)

    def etags(self, directory: Path) -> dict[str, str]:
        """Return the versions of the objects that are mirrored in a directory, by name."""
        return {file.path.name: file.remote.etag for file in self._files_in(directory)}

    def _files_in(self, directory: Path) -> list[MirroredFile]:
        local = os.fspath(directory)
        paths = (f"{local}/{name}" for name in sorted(os.listdir(local)))  # noqa: PTH208 - only the names
        return [self._files[path] for path in paths if path in self._files]


MIRROR = Mirror()
