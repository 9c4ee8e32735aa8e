"""Uploads a complete local directory, and then its manifest: with that the copy is there, whole.

The files go below a name that is new for each attempt, so attempts never share an object. Before the manifest is
written, one listing shows that every object is there as it was sent. The manifest is created once: of several writers
one wins, and the others remove their files. It is overwritten only by a run that mends the same copy, or its own that
was damaged on its way. No upload has several parts, so nothing can be left that a listing does not show. Messages name
the address; the local directory is in the scratch.
"""

from __future__ import annotations

import mmap
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from kcompact.bucket.answers import NoConditionalWritesError, failed
from kcompact.bucket.manifest import MANIFEST, MAX_MANIFEST_BYTES, DirectoryManifest, StoredFile
from kcompact.bucket.remote import Bucket, crc_of, request_pool
from kcompact.errors import CorruptCheckpointError, KcompactError, RefusedError, storage_errors
from kcompact.host.descriptors import closed_after

_UPLOADS = 3
"""How many times a file is uploaded that the bucket then does not have."""
_LISTINGS = 2


def new_attempt() -> str:
    """Return a name for the files of an attempt that nobody has used."""
    return f".kcompact-{secrets.token_hex(8)}"


def published(bucket: Bucket, key: str, directory: Path) -> DirectoryManifest | None:
    """Return the manifest of a directory in a bucket, None if it is not there. Raises CorruptCheckpointError."""
    content = bucket.read_small(_below(key, MANIFEST), max_bytes=MAX_MANIFEST_BYTES)
    return None if content is None else DirectoryManifest.parse(content, address=str(directory / MANIFEST))


def lost_objects(bucket: Bucket, key: str, manifest: DirectoryManifest) -> list[str]:
    """Return the keys of a manifest's objects that the bucket does not have, or has otherwise.

    By one listing; what it lacks, another one must lack too.
    """
    attempt, lost = _below(key, manifest.attempt), list(manifest.files)
    for _ in range(_LISTINGS if lost else 0):
        stored_objects = {each.key: (each.size_bytes, each.etag) for each in bucket.below(attempt)}
        lost = [file for file in lost if stored_objects.get(f"{attempt}/{file.name}") != (file.size_bytes, file.etag)]
        if not lost:
            break
    return [f"{attempt}/{file.name}" for file in lost]


def require_conditional_writes(bucket: Bucket, key: str) -> None:
    """Raise NoConditionalWritesError for a store in which two writers can both win: a small object is created twice.

    It is removed afterwards. Some stores refuse the condition, others pass over it. Raises RefusedError, StorageError.
    """
    trial = _below(key, f"{new_attempt()}/trial")
    try:
        bucket.create(trial, b"")
        if bucket.create(trial, b""):
            raise NoConditionalWritesError(bucket.name)
    finally:
        with suppress(KcompactError):  # It counts as nothing, and the next run names it.
            bucket.remove([trial])


def publish(
    bucket: Bucket,
    key: str,
    directory: Path,
    manifest: DirectoryManifest,
    *,
    names: frozenset[str] | None = None,
    replaced: DirectoryManifest | None = None,
    take: Callable[[int], None] = lambda size_bytes: None,
) -> None:
    """Upload the files of a directory, or those with some `names`, and create the manifest `key` with them.

    `manifest` has everything but the files. `replaced` is the manifest of a copy that lacks objects: it is there until
    the new files are. `take` is called with the bytes of each request before it is sent; it may wait, or raise to stop.
    Raises ExistsAlreadyError if another run has published the directory meanwhile, RefusedError, StorageError. After an
    error the directory is not there, unless its manifest is.
    """
    names = frozenset(os.listdir(directory)) if names is None else names & frozenset(os.listdir(directory))  # noqa: PTH208
    keys = {name: _below(key, f"{manifest.attempt}/{name}") for name in sorted(names)}
    is_asked = False
    try:
        manifest = _uploaded(bucket, key, directory, manifest, keys, take)
        content = manifest.encoded()
        take(len(content))
        is_asked = True
        is_ours = _created(bucket, key, directory, manifest, replaced)
    except BaseException:
        # Without an answer, the manifest may be there, or may still arrive: its files stay. The next run names them.
        if not is_asked:
            _remove(bucket, keys.values())
        raise
    if not is_ours:
        _remove(bucket, keys.values())
        raise ExistsAlreadyError(directory)
    if replaced is not None:
        _remove(bucket, (_below(key, f"{replaced.attempt}/{file.name}") for file in replaced.files))


def _created(
    bucket: Bucket, key: str, directory: Path, manifest: DirectoryManifest, replaced: DirectoryManifest | None
) -> bool:
    """Create a manifest, and return whether it is the one that is there. Raises StorageError if none is.

    That of a copy that lacks objects is overwritten: at each moment one is there. If two runs do that, the later one
    leaves its copy, which is the same.

    What is there is looked at in any case: a store can lie, and an earlier try of a request can have arrived. It is
    looked at twice before it is believed to be another one: then the files of this one are removed.
    """
    manifest_key, content = _below(key, MANIFEST), manifest.encoded()
    may_overwrite = replaced is not None and published(bucket, key, directory) == replaced
    problem: CorruptCheckpointError | None = None
    for _ in range(_UPLOADS):
        is_new = may_overwrite or bucket.create(manifest_key, content)
        if may_overwrite:
            bucket.write(manifest_key, content, crc_of(content))
        try:
            stored_manifest = published(bucket, key, directory)
        except CorruptCheckpointError as damage:
            # What this run has written was damaged on its way. Another writer mends its own.
            problem, may_overwrite = damage, is_new
            continue
        problem = None
        if stored_manifest is not None and stored_manifest.encoded() == content:
            return True
        may_overwrite = stored_manifest is not None and stored_manifest == replaced
        is_other = stored_manifest is not None and stored_manifest.attempt != manifest.attempt
        if is_other and not is_new and published(bucket, key, directory) == stored_manifest:
            return False
    raise problem or failed(bucket.address(manifest_key), "was written, and the store does not have it as it was sent")


def _remove(bucket: Bucket, keys: Iterable[str]) -> None:
    with suppress(KcompactError):  # They count as nothing, and the next run names them.
        bucket.remove(list(keys))


def _uploaded(
    bucket: Bucket,
    key: str,
    directory: Path,
    manifest: DirectoryManifest,
    keys: Mapping[str, str],
    take: Callable[[int], None],
) -> DirectoryManifest:
    """Upload files, each under its key, until a listing has all of them, and return the manifest with them.

    Raises StorageError for a file that the bucket does not keep.
    """
    left, files = dict(keys), dict[str, StoredFile]()
    for _ in range(_UPLOADS):
        files |= _upload_all(bucket, directory, left, take)
        manifest = replace(manifest, files=tuple(files[name] for name in sorted(files)))
        lost = lost_objects(bucket, key, manifest)
        left = {name: each for name, each in keys.items() if each in lost}
        if not left:
            return manifest
    raise failed(bucket.address(min(left.values())), "was uploaded, and the store does not have it as it was sent")


def _upload_all(
    bucket: Bucket, directory: Path, keys: Mapping[str, str], take: Callable[[int], None]
) -> dict[str, StoredFile]:
    """Upload files, several at a time. After an error nothing is being uploaded any more."""
    uploads = {name: request_pool().submit(_upload, bucket, key, directory / name, take) for name, key in keys.items()}
    try:
        return {name: upload.result() for name, upload in uploads.items()}
    finally:
        for upload in uploads.values():
            upload.cancel()
        wait(uploads.values())


class ExistsAlreadyError(RefusedError):
    """The bucket has this directory already."""

    def __init__(self, directory: Path) -> None:
        super().__init__(
            path=directory, problem="exists already", hint="Pass an --output prefix that has no such partition."
        )


def _upload(bucket: Bucket, key: str, path: Path, take: Callable[[int], None]) -> StoredFile:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    with storage_errors(path), closed_after(os.open(path, flags)) as descriptor:
        status = os.fstat(descriptor)
        take(status.st_size)
        if status.st_size:
            with mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) as content:
                crc = crc_of(content)
                etag = bucket.write(key, content, crc)
        else:
            crc = crc_of(b"")
            etag = bucket.write(key, b"", crc)
    return StoredFile(name=path.name, size_bytes=status.st_size, mtime_ns=status.st_mtime_ns, crc32c=crc, etag=etag)


def _below(key: str, name: str) -> str:
    return f"{key}/{name}" if key else name
