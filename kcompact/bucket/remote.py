"""Objects in a bucket: list, read, write and remove them. The only module that uses the client, `obstore`.

No error and no representation has a setting of the client: its messages can quote what a server answers, and servers
quote the access key. So an error is worded here, from its kind, the status and the server's error code.
"""

from __future__ import annotations

import errno
import mmap
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from kcompact.bucket.path import SCHEME, is_plain
from kcompact.bucket.profile import settings_of_profile
from kcompact.errors import LogChangedError, RefusedError, StorageError
from kcompact.host.installation import how_to_add
from kcompact.readable import shown

if TYPE_CHECKING:
    from obstore.store import S3Store

Answer = TypeVar("Answer")
Bytes = bytes | mmap.mmap
"""What is written: a segment is not read into memory."""

MAX_OBJECTS = 2_000_000
"""More objects below an address are no log directory: the listing alone would take long."""
_READ_TIMEOUT = timedelta(minutes=1)
"""Without a byte for so long, a connection counts as broken."""
_CONNECT_TIMEOUT = timedelta(seconds=10)
_RETRY_FOR = timedelta(minutes=3)
_MAX_RETRIES = 8
_ANSWERS = 3
"""How many times an answer is asked for whose end does not arrive."""
_STATUS = re.compile(r"status code: (\d{3}) ?([A-Za-z ]*)")
_NO_BUCKET = "<Code>NoSuchBucket<"
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")
_CREDENTIALS_HINT = (
    "Set the credentials as for the AWS tools: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or the role "
    "of the machine. For a store that is not AWS, set AWS_ENDPOINT_URL."
)


_REQUESTS_AT_ONCE = 4
_POOLS: dict[int, ThreadPoolExecutor] = {}
"""By process id: a forked child has none of the threads of its parent."""
_POOLS_GUARD = threading.Lock()


def requests() -> ThreadPoolExecutor:
    """Return the threads that send the large requests of this process: few, because each holds what it is answered."""
    with _POOLS_GUARD:
        if os.getpid() not in _POOLS:
            _POOLS[os.getpid()] = ThreadPoolExecutor(_REQUESTS_AT_ONCE, "kcompact-bucket")
        return _POOLS[os.getpid()]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteObject:
    """An object as it was listed. `etag` names this version of it."""

    key: str
    size_bytes: int
    modified_ns: int
    etag: str


class Bucket:
    """A bucket. Safe for several threads."""

    def __init__(self, name: str) -> None:
        """Prepare the client; nothing is sent. Raises RefusedError if it is not installed or a setting is wrong."""
        self.name = name
        self._store = _store(name)

    def __repr__(self) -> str:
        return f"<Bucket {self.name}>"

    def address(self, key: str) -> str:
        """Return the address of an object."""
        return f"{SCHEME}{self.name}/{key}"

    def below(self, prefix: str) -> list[RemoteObject]:
        """Return the objects below a prefix, at any depth.

        Raises RefusedError for a name that is no plain path and for more than MAX_OBJECTS, StorageError.
        """
        return self._asked(prefix, self._below)

    def _below(self, prefix: str) -> list[RemoteObject]:
        import obstore

        found = list[RemoteObject]()
        for page in obstore.list(self._store, prefix or None):
            # A key that ends with a slash marks a directory, and is listed without the slash.
            found += [self._object(dict(meta)) for meta in page if meta["path"].startswith(prefix and f"{prefix}/")]
            if len(found) > MAX_OBJECTS:
                raise RefusedError(
                    path=self.address(prefix),
                    problem=f"has more than {MAX_OBJECTS:,} objects",
                    hint="Pass the prefix of one log directory, or of one partition.",
                )
        return found

    def beside(self, prefix: str) -> list[RemoteObject]:
        """Return the objects directly below a prefix. Raises as `below`."""
        return self._asked(prefix, self._beside)

    def _beside(self, prefix: str) -> list[RemoteObject]:
        import obstore

        found = obstore.list_with_delimiter(self._store, prefix or None)["objects"]
        return [self._object(dict(meta)) for meta in found if meta["path"] != prefix]

    def _asked(self, key: str, ask: Callable[[str], Answer]) -> Answer:
        """Return an answer. It is asked for again if the connection ends within it, which the client does not do."""
        for left in reversed(range(_ANSWERS)):
            try:
                with self._errors(self.address(key)):
                    return ask(key)
            except StorageError:
                if not left or not _MAX_RETRIES:
                    raise
        raise AssertionError

    def _object(self, meta: dict[str, Any]) -> RemoteObject:
        if not is_plain(meta["path"]):
            raise RefusedError(path=self.address(meta["path"]), problem="is the name of no file")
        if not meta["e_tag"]:
            raise RefusedError(
                path=self.address(meta["path"]), problem="has no ETag, so a change of it would not be noticed"
            )
        return RemoteObject(
            key=meta["path"],
            size_bytes=meta["size"],
            modified_ns=int(meta["last_modified"].timestamp()) * 1_000_000_000,
            etag=meta["e_tag"],
        )

    def read(self, of: RemoteObject, start: int, end: int) -> memoryview:
        """Return the bytes between two positions of an object, in one request.

        Raises LogChangedError if it is another version by now or its size is not the listed one, RefusedError,
        StorageError.
        """
        import obstore

        def ask(key: str) -> memoryview:
            result = obstore.get(self._store, key, options={"if_match": of.etag, "range": (start, end)})
            data = memoryview(result.bytes())
            # Also from a server that ignores the condition.
            if (result.meta["e_tag"], result.meta["size"], len(data)) != (of.etag, of.size_bytes, end - start):
                raise _changed(self.address(key))
            return data

        return self._asked(of.key, ask)

    def read_small(self, key: str, *, max_bytes: int) -> bytes | None:
        """Return a small object, None if there is none. Raises RefusedError for a larger one, StorageError."""
        import obstore

        address = self.address(key)
        try:
            with self._errors(address):
                try:
                    result = obstore.get(self._store, key)
                except FileNotFoundError as problem:
                    if _NO_BUCKET in str(problem):
                        raise
                    return None
                if result.meta["size"] > max_bytes:
                    raise RefusedError(path=address, problem=f"larger than {max_bytes:,} bytes")
                return bytes(result.bytes())
        except LogChangedError as problem:
            raise _failed(address, problem.problem) from None

    def write(self, key: str, data: Bytes) -> str:
        """Write an object in one request, and return its ETag. Raises RefusedError, StorageError."""
        import obstore

        with self._errors(self.address(key)):
            return obstore.put(self._store, key, data, use_multipart=False)["e_tag"] or ""

    def create(self, key: str, data: bytes) -> bool:
        """Write a small object unless there is one of this key, and return whether there was none.

        False also if an earlier try of this request has reached the server: compare the object then.
        Raises RefusedError, StorageError.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError

        with self._errors(self.address(key)):
            try:
                obstore.put(self._store, key, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
        return True

    def remove(self, keys: Sequence[str]) -> None:
        """Remove objects. Raises RefusedError, StorageError."""
        import obstore

        if keys:
            with self._errors(self.address(keys[0])):
                obstore.delete(self._store, keys)

    @contextmanager
    def _errors(self, address: str) -> Iterator[None]:
        """Raise each error of the client as an error of kcompact, without the text of the client."""
        from obstore import exceptions

        try:
            yield
        except exceptions.PreconditionError:
            raise _changed(address) from None
        except exceptions.InvalidPathError as problem:
            raise RefusedError(
                path=address,
                problem=f"has the name of no file below it: {_bad_key(problem)}",
                hint="Move that object elsewhere, or pass a prefix without it.",
            ) from None
        except (exceptions.BaseError, OSError, ValueError) as problem:
            if _NO_BUCKET in str(problem):
                raise RefusedError(path=f"{SCHEME}{self.name}", problem="no such bucket") from None
            if isinstance(problem, FileNotFoundError):
                raise _changed(address) from None
            # The client has errors of their own for these, but not of a listing.
            if (words := _words(problem)).startswith(("401", "403")):
                raise RefusedError(path=address, problem=f"access denied ({words})", hint=_CREDENTIALS_HINT) from None
            raise _failed(address, words) from None


def _changed(address: str) -> LogChangedError:
    return LogChangedError(
        path=address,
        problem="was replaced or removed since it was listed",
        hint="kcompact stopped and changes nothing. Wait until the backup is complete, then run again.",
    )


def _failed(address: str, words: str) -> StorageError:
    return StorageError(path=address, problem=OSError(errno.ECONNABORTED, f"{words}; run the same command again"))


def _words(problem: Exception) -> str:
    """Return what a server answered: the status and its error code. Nothing else of its answer is shown."""
    text = str(problem)
    status, code = _STATUS.search(text), _CODE.search(text)
    if status is None:
        return "timed out" if "timed out" in text or "Timeout" in text else "no answer from the server"
    return ", ".join(filter(None, (f"{status[1]} {status[2].strip()}".strip(), code[1] if code else "")))


def _bad_key(problem: Exception) -> str:
    quoted = re.search(r'Path "([^"]{1,300})', str(problem))
    return shown(quoted[1]) if quoted else "a key with an empty part, . or .."


def _store(bucket: str) -> S3Store:
    try:
        from obstore.exceptions import BaseError
        from obstore.store import S3Store
    except ImportError:
        raise RefusedError(
            path=f"{SCHEME}{bucket}", problem=f"a bucket needs the library obstore; {how_to_add('s3')}"
        ) from None
    settings = settings_of_profile(os.environ)
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    if endpoint:
        settings["endpoint"] = endpoint
    options: dict[str, Any] = {
        "connect_timeout": _CONNECT_TIMEOUT,
        "read_timeout": _READ_TIMEOUT,
        # A whole segment is one request.
        "timeout": timedelta(hours=1),
        "allow_http": endpoint.startswith("http://"),
    }
    try:
        return S3Store(
            bucket,
            config=settings,  # type: ignore[arg-type]
            client_options=options,  # type: ignore[arg-type]
            retry_config={"max_retries": _MAX_RETRIES, "retry_timeout": _RETRY_FOR},
        )
    except (BaseError, OSError, ValueError):
        raise RefusedError(
            path=f"{SCHEME}{bucket}", problem="a setting of AWS in the environment is wrong", hint=_CREDENTIALS_HINT
        ) from None
