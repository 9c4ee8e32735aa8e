"""Objects in a bucket: list, read, write and remove them. The only module that sends requests.

Every error that leaves it is a `KcompactError` with a cause (`bucket.answers`); none has a setting of the client in it.
"""

from __future__ import annotations

import base64
import hashlib
import mmap
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from kcompact.bucket import answers
from kcompact.bucket.answers import BrokenAnswerError, MissingObjectError, NoConditionalWritesError
from kcompact.bucket.client import Client
from kcompact.bucket.path import SCHEME, is_plain
from kcompact.errors import RefusedError
from kcompact.format.checksum import crc32c
from kcompact.readable import shown
from kcompact.values import dataclass

Answer = TypeVar("Answer")
Bytes = bytes | mmap.mmap
"""What is written: a segment is not read into memory."""

MAX_OBJECTS = 2_000_000
"""More objects below an address are no log directory: the listing alone would take long."""
_ANSWERS = 3
"""How many times an answer is asked for that is damaged, or whose end does not arrive."""
_MAX_OBJECT_BYTES = 1 << 50
_PART = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19}|\*)", re.ASCII)
_MAX_REMOVED = 1000
"""The objects that one request removes."""
_PIECE_BYTES = 16 << 20
_EXISTS = ("PreconditionFailed", "412")
_NO_CONDITION = ("NotImplemented", "501")
_CONFLICT = ("ConditionalRequestConflict", "409")
_OWN_KEYS = ("aws:kms", "aws:kms:dsse")
"""With an encryption like these, the ETag of an object is not the MD5 of its content."""


_REQUESTS_AT_ONCE = 4
_POOLS: dict[int, ThreadPoolExecutor] = {}
"""By process id: a forked child has none of the threads of its parent."""
_POOLS_GUARD = threading.Lock()


def request_pool() -> ThreadPoolExecutor:
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
        """Read the settings of the client; nothing is sent to the store. Raises RefusedError as `Client`."""
        self.name = name
        self._clients = {os.getpid(): Client(name)}
        """By process id: a forked child must not use the connections of its parent."""

    def __repr__(self) -> str:
        return f"<Bucket {self.name}>"

    def address(self, key: str) -> str:
        """Return the address of an object."""
        return f"{SCHEME}{self.name}/{key}"

    def below(self, prefix: str) -> list[RemoteObject]:
        """Return the objects below a prefix, at any depth.

        Raises RefusedError for a name that is no plain path and for more than MAX_OBJECTS, StorageError.
        """
        return self._asked(prefix, partial(self._listed, prefix))

    def beside(self, prefix: str) -> list[RemoteObject]:
        """Return the objects directly below a prefix. Raises as `below`."""
        return self._asked(prefix, partial(self._listed, prefix, Delimiter="/"))

    def directories(self, prefix: str) -> list[str]:
        """Return the names that keys have between a prefix and the next slash. Raises StorageError, RefusedError."""

        def ask(client: Client) -> list[str]:
            pages = self._pages(prefix, client, Delimiter="/")
            common_prefixes = (each["Prefix"] for page in pages for each in page.get("CommonPrefixes", ()))
            return [name.rstrip("/").rpartition("/")[2] for name in common_prefixes]

        return self._asked(prefix, ask)

    def _listed(self, prefix: str, client: Client, **parameters: str) -> list[RemoteObject]:
        objects = list[RemoteObject]()
        for page in self._pages(prefix, client, **parameters):
            # A key that ends with a slash marks a directory.
            entries = (each for each in page.get("Contents", ()) if not each["Key"].endswith("/"))
            objects += [self._object(each, prefix, client) for each in entries]
            if len(objects) > MAX_OBJECTS:
                raise RefusedError(
                    path=self.address(prefix),
                    problem=f"has more than {MAX_OBJECTS:,} objects",
                    hint="Pass the prefix of one log directory, or of one partition.",
                )
        return objects

    def _pages(self, prefix: str, client: Client, **parameters: str) -> Iterator[dict[str, Any]]:
        """Yield the pages of a listing. Unlike botocore's paginator it ends early for no answer of a server."""
        parameters |= {"Bucket": self.name, "Prefix": f"{prefix}/" if prefix else ""}
        token = ""
        while True:
            page = client.s3.list_objects_v2(**parameters, **client.extra)
            if "Name" not in page:
                raise answers.no_s3(client.store)
            yield page
            if not page.get("IsTruncated"):
                return
            before, token = token, page["NextContinuationToken"]
            if token == before:
                raise answers.no_s3(client.store)  # It would have no end.
            parameters["ContinuationToken"] = token

    def _object(self, entry: dict[str, Any], prefix: str, client: Client) -> RemoteObject:
        key, size_bytes = entry["Key"], int(entry["Size"])
        if not is_plain(key):
            raise RefusedError(
                path=self.address(prefix),
                problem=f"has the name of no file below it: {shown(key[:300])}",
                hint="Move that object elsewhere, or pass a prefix without it.",
            )
        if not 0 <= size_bytes < _MAX_OBJECT_BYTES:
            raise answers.no_s3(client.store)
        etag = _canonical(entry.get("ETag", ""))
        if not etag:
            raise RefusedError(path=self.address(key), problem="has no ETag, so a change of it would not be noticed")
        modified_ns = int(entry["LastModified"].timestamp()) * 1_000_000_000
        return RemoteObject(key=key, size_bytes=size_bytes, modified_ns=modified_ns, etag=etag)

    def read(self, of: RemoteObject, start: int, end: int) -> bytes:
        """Return the bytes between two positions of an object, in one request.

        Raises LogChangedError if it is another version by now or its size is not the listed one, RefusedError,
        StorageError.
        """

        def ask(client: Client) -> tuple[bytes, str, str]:
            answer = client.s3.get_object(
                Bucket=self.name, Key=of.key, IfMatch=of.etag, Range=f"bytes={start}-{end - 1}", **client.extra
            )
            part = _PART.fullmatch(str(answer.get("ContentRange", f"bytes 0-{of.size_bytes - 1}/{of.size_bytes}")))
            # Also from a server that passes over the condition.
            if _etag(client, answer) != of.etag or (part and part[3] not in ("*", str(of.size_bytes))):
                raise answers.changed(self.address(of.key))
            if part is None or (int(part[1]), int(part[2])) != (start, end - 1):
                raise answers.no_parts(self.address(of.key))
            return _content(client, answer, end - start, self.address(of.key))

        return self._intact(of.key, ask) if end - start == of.size_bytes else self._asked(of.key, ask)[0]

    def read_small(self, key: str, *, max_bytes: int) -> bytes | None:
        """Return a small object, None if there is none. Raises RefusedError for a larger one, StorageError."""

        def ask(client: Client) -> tuple[bytes, str, str]:
            answer = client.s3.get_object(Bucket=self.name, Key=key, **client.extra)
            data = answer["Body"].read(max_bytes + 1)
            if len(data) > max_bytes:
                raise RefusedError(path=self.address(key), problem=f"larger than {max_bytes:,} bytes")
            if len(data) != answer.get("ContentLength", len(data)):
                raise BrokenAnswerError(self.address(key))
            return data, _etag(client, answer), str(answer.get("ServerSideEncryption", ""))

        try:
            return self._intact(key, ask)
        except MissingObjectError:
            return None

    def _intact(self, key: str, ask: Callable[[Client], tuple[bytes, str, str]]) -> bytes:
        """Return a whole object, by a function that returns its content, ETag and encryption.

        In most stores the ETag is the MD5 of the content, which shows that nothing was damaged on its way. Where it is
        not, two answers must be equal. Raises BrokenAnswerError if they are not.
        """
        before: bytes | None = None
        for _ in range(_ANSWERS):
            data, etag, encryption = self._asked(key, ask)
            if etag == _md5_tag(data) or encryption in _OWN_KEYS or data == before:
                return data
            before = data
        raise BrokenAnswerError(self.address(key))

    def write(self, key: str, data: Bytes, crc: int) -> str:
        """Write an object in one request, and return its ETag: what is stored are the same bytes.

        The store compares what it receives with `crc`, the CRC-32C. Some look at no checksum, so what is stored is
        compared too: by its ETag, or else it is read. Raises RefusedError, StorageError.
        """
        checksum, md5_tag = _checksum(crc), _md5_tag(data)

        def ask(client: Client) -> str:
            if isinstance(data, mmap.mmap):
                data.seek(0)
            answer = client.s3.put_object(Bucket=self.name, Key=key, Body=data, ChecksumCRC32C=checksum, **client.extra)
            etag = _etag(client, answer)
            is_confirmed = answer.get("ServerSideEncryption") in _OWN_KEYS and answer.get("ChecksumCRC32C") == checksum
            if etag != md5_tag and not is_confirmed:
                self._require_stored(client, key, data)
            return etag

        return self._asked(key, ask)

    def _require_stored(self, client: Client, key: str, data: Bytes) -> None:
        """Raise BrokenAnswerError if an object does not have these bytes: it is read."""
        answer, position = client.s3.get_object(Bucket=self.name, Key=key, **client.extra), 0
        with memoryview(data) as expected:
            for piece in answer["Body"].iter_chunks(_PIECE_BYTES):
                if piece != expected[position : position + len(piece)]:
                    break
                position += len(piece)
            if position != len(expected):
                raise BrokenAnswerError(self.address(key), "what was sent was damaged on its way")

    def create(self, key: str, data: bytes) -> bool:
        """Write a small object unless there is one of this key, and return whether there was none.

        False also if an earlier try of this request has reached the server: compare the object then.
        Raises NoConditionalWritesError, RefusedError, StorageError.
        """
        from botocore.exceptions import ClientError

        parameters = {"Bucket": self.name, "Key": key, "IfNoneMatch": "*", "ChecksumCRC32C": _checksum(crc_of(data))}

        def ask(client: Client) -> bool:
            try:
                answer = client.s3.put_object(Body=data, **parameters, **client.extra)
            except ClientError as problem:
                code = problem.response["Error"]["Code"]
                if code in _EXISTS:
                    return False
                if code in _NO_CONDITION:
                    raise NoConditionalWritesError(self.name) from None
                if code in _CONFLICT:  # Another request for this key was under way.
                    raise BrokenAnswerError(self.address(key), "another writer was there at the same time") from None
                raise
            _etag(client, answer)
            return True

        return self._asked(key, ask)

    def remove(self, keys: Sequence[str]) -> None:
        """Remove objects. Raises RefusedError, StorageError."""
        for first in range(0, len(keys), _MAX_REMOVED):
            some = keys[first : first + _MAX_REMOVED]
            try:
                self._asked(some[0], partial(self._remove, some))
            except RefusedError:  # Not every store takes several in one request.
                for key in some:
                    self._asked(key, partial(self._remove_one, key))

    def _remove(self, keys: Sequence[str], client: Client) -> None:
        objects = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
        answer = client.s3.delete_objects(Bucket=self.name, Delete=objects, **client.extra)
        for each in answer.get("Errors", ()):
            words = f"could not be removed ({shown(str(each.get('Code', ''))[:60])})"
            raise answers.failed(self.address(str(each.get("Key", keys[0]))), words)

    def _remove_one(self, key: str, client: Client) -> None:
        client.s3.delete_object(Bucket=self.name, Key=key, **client.extra)

    def _asked(self, key: str, ask: Callable[[Client], Answer]) -> Answer:
        """Return an answer. It is asked for again if it is damaged, which the client does not do.

        Only errors of kcompact are raised: also what is wrong in the client becomes one.
        """
        from botocore.parsers import ResponseParserError

        address = self.address(key)
        for left in reversed(range(_ANSWERS)):
            client = self._client()
            try:
                return ask(client)
            except MemoryError:
                raise
            except Exception as problem:
                failure = answers.error_of(problem, address, client.store)
                is_damaged = isinstance(failure, BrokenAnswerError) or isinstance(problem, ResponseParserError)
            if not left or not is_damaged:
                raise failure from None
        raise AssertionError

    def _client(self) -> Client:
        with _POOLS_GUARD:
            if os.getpid() not in self._clients:
                self._clients[os.getpid()] = Client(self.name)
            return self._clients[os.getpid()]


def _content(client: Client, answer: dict[str, Any], size_bytes: int, address: str) -> tuple[bytes, str, str]:
    """Return the bytes, the ETag and the encryption of an answer that has so many bytes of an object.

    No more is read, whatever the answer says of its length. Raises BrokenAnswerError for fewer or more.
    """
    data = answer["Body"].read(size_bytes + 1)
    if len(data) != size_bytes:
        raise BrokenAnswerError(address)
    return data, _etag(client, answer), str(answer.get("ServerSideEncryption", ""))


def _etag(client: Client, answer: dict[str, Any]) -> str:
    """Return the ETag of an answer. Raises RefusedError for an answer without one, which is not of S3."""
    etag = _canonical(answer.get("ETag", ""))
    if not etag:
        raise answers.no_s3(client.store)
    return etag


def _canonical(etag: str) -> str:
    """Return an ETag in quotes: some servers leave them away in one answer, or mark it as weak, and not in another."""
    bare = etag.removeprefix("W/").strip('"')
    return f'"{bare}"' if bare else ""


def crc_of(data: Bytes) -> int:
    """Return the CRC-32C of what is to be written."""
    crc = 0
    for piece in _pieces(data):
        crc = crc32c(piece, crc)
    return crc


def _checksum(crc: int) -> str:
    """Return a CRC-32C as S3 writes it."""
    return base64.b64encode(crc.to_bytes(4, "big")).decode()


def _md5_tag(data: Bytes) -> str:
    """Return the ETag that most stores give to an object with this content."""
    md5 = hashlib.md5(usedforsecurity=False)
    for piece in _pieces(data):
        md5.update(piece)
    return f'"{md5.hexdigest()}"'


def _pieces(data: Bytes) -> Iterator[memoryview]:
    with memoryview(data) as view:
        for position in range(0, len(view), _PIECE_BYTES):
            with view[position : position + _PIECE_BYTES] as piece:
                yield piece
