"""A path in the scratch directory of this process that prints as the address in the bucket."""

from __future__ import annotations

import os
import re
from pathlib import Path, PosixPath

from kcompact.errors import ConfigError, RefusedError
from kcompact.readable import shell_word

SCHEME = "s3://"
SCRATCH_PREFIX = "kcompact-bucket-"
SCRATCH_RANDOM_BYTES = 6
"""A scratch directory is named by the prefix and so many bytes in hexadecimal. Behind it are bucket and key."""
_SCRATCH = re.compile(rf"{SCRATCH_PREFIX}[0-9a-f]{{{2 * SCRATCH_RANDOM_BYTES}}}")

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
MAX_KEY_BYTES = 1024
"""S3 has no longer keys."""
MAX_NAME_BYTES = 255
"""A file system has no longer names; Kafka neither."""

_LIKE_ADDRESS = re.compile(r"(\w[\w+.-]*):/+")
_NAMES_OF_S3 = ("s3", "s3a", "s3n")
"""What other programs call the scheme, in small letters."""


class BucketPath(PosixPath):
    """A local path of a mirrored object or directory. Its text is the address: messages and JSON have no other.

    The operating system gets the local path (`__fspath__`). A path that is made from this one is a `BucketPath` too.
    """

    __slots__ = ()

    def __str__(self) -> str:
        """Return the address; the local path of what lies outside of a bucket."""
        parts = self.parts
        for number, part in enumerate(parts):
            if _SCRATCH.fullmatch(part) and number + 1 < len(parts):
                return SCHEME + "/".join(parts[number + 1 :])
        return super().__str__()

    def __fspath__(self) -> str:
        """Return the local path."""
        return os.path.join(*self.parts)  # noqa: PTH118 - `/` makes another path of this class


def is_in_bucket(path: object) -> bool:
    """Return whether a path is that of an object or a directory in a bucket: what all but `bucket` asks of a path."""
    return isinstance(path, BucketPath)


def is_address(text: object) -> bool:
    """Return whether a text is the address of a bucket, and not a local path."""
    return isinstance(text, str) and not isinstance(text, Path) and text.startswith(SCHEME)


def require_known_store(path: str | os.PathLike[str], *, suggests_address: bool = False) -> None:
    """Raise ConfigError for a path that begins with a word, a colon and a slash, as addresses of other stores do.

    Without this `s3a://b/o` would be a local directory named `s3a:`. The text `s3://b/o` is allowed, a `Path` of it is
    not: it has lost a slash. With `suggests_address` the message says how an address of a bucket is given.
    """
    text = os.fspath(path)
    begun = _LIKE_ADDRESS.match(text)
    if begun is None or is_address(path):
        return
    is_text = isinstance(path, str)
    problem, hint = _why_refused(begun[1], text[begun.end() :], is_text=is_text, suggests_address=suggests_address)
    local = shell_word(f"./{Path(text)}") if is_text else "its absolute path"
    raise ConfigError(path=text, problem=problem, hint=f"{hint} A local one of that name: {local}".lstrip())


def _why_refused(word: str, rest: str, *, is_text: bool, suggests_address: bool) -> tuple[str, str]:
    """Return what is wrong with a path that begins with a word, and what to pass instead."""
    if word.lower() == "file":
        return "is no local path: a local path is written without file:", ""
    if len(word) == 1:
        return "is no local path: a local path does not begin with a drive", ""
    copy = "The tools of that store copy from and to a local path."
    if not suggests_address:
        return "is no local path; here only a local path is possible", copy
    if word.lower() not in _NAMES_OF_S3:
        return f"is no local path: other stores than {SCHEME}BUCKET/PREFIX are neither read nor written", copy
    address = shell_word(SCHEME + (rest or "BUCKET/PREFIX"))
    hint = f"Pass {address}." if is_text else f"Pass the text {address}, not a Path of it."
    return f"is no local path: the address of a bucket is {SCHEME}BUCKET/PREFIX", hint


def require_local_path(path: str | os.PathLike[str]) -> None:
    """Raise ConfigError for an address of a bucket, and as `require_known_store`."""
    if is_address(path):
        raise ConfigError(path=os.fspath(path), problem="is in a bucket; here only a local path is possible")
    require_known_store(path)


def local_path(path: str | os.PathLike[str]) -> Path:
    """Return a local path that the user gave. A path is returned as it is. Raises as `require_local_path`.

    That of `./word:/x` is absolute: as a `Path` it has lost the `./`, and would be refused when it is checked again.
    """
    require_local_path(path)
    if isinstance(path, Path):
        return path
    given = Path(path)
    return given.absolute() if _LIKE_ADDRESS.match(str(given)) else given


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
    return len(os.fsencode(key)) <= MAX_KEY_BYTES and all(
        part not in ("", ".", "..") and "\0" not in part and len(os.fsencode(part)) <= MAX_NAME_BYTES
        for part in key.split("/")
    )
