"""A path in the scratch directory of this process that prints as the address in the bucket."""

from __future__ import annotations

import os
import re
from pathlib import Path, PosixPath

from kcompact.errors import RefusedError

SCHEME = "s3://"
SCRATCH_PREFIX = "kcompact-bucket-"
"""The beginning of the name of a scratch directory. The part of a path behind that name is bucket and key."""

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
MAX_NAME_BYTES = 255
"""A file system has no longer names; Kafka neither."""


class BucketPath(PosixPath):
    """A local path of a mirrored object or directory. Its text is the address: messages and JSON have no other.

    The operating system gets the local path (`__fspath__`). A path that is made from this one is a `BucketPath` too.
    """

    __slots__ = ()

    def __str__(self) -> str:
        """Return the address; the local path of what lies outside of a bucket."""
        parts = self.parts
        for number, part in enumerate(parts):
            if part.startswith(SCRATCH_PREFIX) and number + 1 < len(parts):
                return SCHEME + "/".join(parts[number + 1 :])
        return super().__str__()

    def __fspath__(self) -> str:
        """Return the local path."""
        return os.path.join(*self.parts)  # noqa: PTH118 - `/` makes another path of this class


def is_address(text: object) -> bool:
    """Return whether a text is the address of a bucket, and not a local path."""
    return isinstance(text, str) and not isinstance(text, Path) and text.startswith(SCHEME)


def parts_of(address: str) -> tuple[str, str]:
    """Return the bucket and the key of an address, without slashes at the ends.

    Raises RefusedError for an address that is none, and for a key that is no relative path, such as `a/../b`.
    """
    bucket, _, key = address.removeprefix(SCHEME).partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise RefusedError(
            path=address,
            problem="names no bucket",
            hint="Pass s3://BUCKET or s3://BUCKET/PREFIX.",
        )
    key = key.strip("/")
    if key and not is_plain(key):
        raise RefusedError(path=address, problem="is no plain prefix: a part of it is empty, . or .., or too long")
    return bucket, key


def is_plain(key: str) -> bool:
    """Return whether a key is a relative path whose parts a file system can have as names."""
    return all(
        part not in ("", ".", "..") and "\0" not in part and len(os.fsencode(part)) <= MAX_NAME_BYTES
        for part in key.split("/")
    )
