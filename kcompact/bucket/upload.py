"""Uploads a complete local directory, and then its manifest: with that the copy is there, whole.

The files go below a name that is new for each attempt, so attempts never share an object. The manifest is created
once: of several writers one wins, and the others remove their files. No upload has several parts, so nothing can be
left that a listing does not show. Messages name the address; the local directory is in the scratch.
"""

from __future__ import annotations

import mmap
import os
import secrets
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from kcompact.bucket.manifest import MANIFEST, MAX_MANIFEST_BYTES, Manifest, StoredFile
from kcompact.bucket.path import BucketPath
from kcompact.bucket.remote import Bucket, requests
from kcompact.errors import KcompactError, RefusedError, storage_errors
from kcompact.format.checksum import crc32c
from kcompact.host.descriptors import closed_after

_CHECKED_BYTES = 16 << 20


def new_attempt() -> str:
    """Return a name for the files of an attempt that nobody has used."""
    return f".kcompact-{secrets.token_hex(8)}"


def published(bucket: Bucket, key: str, directory: Path) -> Manifest | None:
    """Return the manifest of a directory in a bucket, None if it is not there. Raises CorruptCheckpointError."""
    content = bucket.read_small(_below(key, MANIFEST), max_bytes=MAX_MANIFEST_BYTES)
    return None if content is None else Manifest.parse(content, address=str(directory / MANIFEST))


def publish(
    bucket: Bucket,
    key: str,
    directory: BucketPath,
    manifest: Manifest,
    *,
    names: frozenset[str] | None = None,
    take: Callable[[int], None] = lambda size_bytes: None,
) -> None:
    """Upload the files of a directory, or those with some `names`, and create the manifest `key` with them.

    `manifest` has everything but the files. `take` is called with the bytes of each request before it is sent; it may
    wait, or raise to stop. Raises RefusedError if another run has published the directory meanwhile, StorageError.
    After an error the directory is not there, unless its manifest is.
    """
    names = frozenset(os.listdir(directory)) if names is None else names & frozenset(os.listdir(directory))  # noqa: PTH208
    keys = {name: _below(key, f"{manifest.attempt}/{name}") for name in sorted(names)}
    is_asked = False
    try:
        files = _uploaded(bucket, directory, keys, take)
        content = replace(manifest, files=tuple(files)).encoded()
        manifest_key = _below(key, MANIFEST)
        take(len(content))
        is_asked = True
        # What is there already can be this one: an earlier try of the request has arrived.
        is_ours = bucket.create(manifest_key, content) or (
            bucket.read_small(manifest_key, max_bytes=MAX_MANIFEST_BYTES) == content
        )
    except BaseException:
        # Without an answer, the manifest may be there, or may still arrive: its files stay. The next run names them.
        if not is_asked:
            with suppress(KcompactError):
                bucket.remove(list(keys.values()))
        raise
    if not is_ours:
        with suppress(KcompactError):  # They count as nothing, and the next run names them.
            bucket.remove(list(keys.values()))
        raise exists_already(directory)


def _uploaded(
    bucket: Bucket, directory: BucketPath, keys: Mapping[str, str], take: Callable[[int], None]
) -> list[StoredFile]:
    """Upload files, several at a time, each under its key. After an error nothing is being uploaded any more."""
    uploads = [requests().submit(_upload, bucket, key, directory / name, take) for name, key in keys.items()]
    try:
        return [upload.result() for upload in uploads]
    finally:
        for upload in uploads:
            upload.cancel()
        wait(uploads)


def exists_already(directory: Path) -> RefusedError:
    """Return the error for a directory that the bucket has already."""
    return RefusedError(
        path=directory, problem="exists already", hint="Pass an --output prefix that has no such partition."
    )


def _upload(bucket: Bucket, key: str, path: BucketPath, take: Callable[[int], None]) -> StoredFile:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    with storage_errors(path), closed_after(os.open(path, flags)) as descriptor:
        status = os.fstat(descriptor)
        crc, etag = 0, ""
        take(status.st_size)
        if status.st_size:
            with mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) as content:
                with memoryview(content) as view:
                    for position in range(0, len(view), _CHECKED_BYTES):
                        crc = crc32c(view[position : position + _CHECKED_BYTES], crc)
                etag = bucket.write(key, content)
        else:
            etag = bucket.write(key, b"")
    return StoredFile(name=path.name, size_bytes=status.st_size, mtime_ns=status.st_mtime_ns, crc32c=crc, etag=etag)


def _below(key: str, name: str) -> str:
    return f"{key}/{name}" if key else name
