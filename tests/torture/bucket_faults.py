"""What a store, or the network before it, does wrong: a table of faults, and the adversary that commits them.

The adversary stands in the proxy of `tests.support.fault_proxy`. Whether a fault hits a request follows from the seed,
the object, and how often the object was asked for; not from the order of requests, which differs from run to run.

**What is a fair lie.** A store may answer a PUT with anything, whatever it stores. Who asks afterwards is told the
truth, or something that differs from what was sent: a listing may lack objects, be old, or have a wrong byte, but it
shows no object with the size and the ETag of the upload that is not there like that. So one listing or HEAD after an
upload finds each lie, and nothing has to be read back. Who reads the object also finds a store that lies the same way
in each answer; nobody else can.

A store has conditional writes or not. So the adversary drops the condition of each create of a run, or of none: what a
trial shows of the store is true.
"""

from __future__ import annotations

import hashlib
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.fault_proxy import NO_ANSWER, Answer, Ask, Request
from tests.support.s3_server import KEY_ID, Server

LIST, GET, HEAD, PUT, CREATE, DELETE = "list", "get", "head", "put", "create", "delete"
"""Kinds of requests. A create is a PUT that fails if the object exists."""
EVERY = (LIST, GET, HEAD, PUT, CREATE, DELETE)
READS, UPLOADS = (LIST, GET, HEAD), (PUT, CREATE)
RARELY, OFTEN, ALWAYS = 0.04, 0.25, 1.0
"""Which part of the requests a fault hits."""

_ATTEMPT = re.compile(r"\.kcompact-[0-9a-f]{16}")
_ENTRY = re.compile(rb"<Contents>.*?</Contents>", re.DOTALL)
_KEY = re.compile(rb"<Key>(.*?)</Key>")
_PAGE = b"<!DOCTYPE html><html><body><h1>It works!</h1></body></html>"
_DELAY_S = 0.03
_ERRORS = (
    *((500, "InternalError"), (503, "SlowDown"), (503, "ServiceUnavailable"), (400, "RequestTimeout")),
    *((400, "BadDigest"), (403, "AccessDenied"), (404, "NoSuchBucket"), (409, "OperationAborted")),
)


@dataclass(slots=True)
class Adversary:
    """Commits the faults of a run. `before` are the keys that were in the bucket when the run began.

    `client` reaches the store without the proxy.
    """

    client: Any
    bucket: str
    seed: str
    faults: tuple[Fault, ...] = ()
    before: frozenset[str] = frozenset()
    events: list[str] = field(default_factory=list)
    """The requests, in order, and what was done to each."""
    _asked: Counter[str] = field(default_factory=Counter)
    _last: dict[str, Request] = field(default_factory=dict)

    def meddle(self, request: Request, ask: Ask) -> Answer:
        """Answer a request: with the truth, or as the faults have it that hit this request."""
        kind, place = kind_of(request), place_of(request)
        number, self._asked[place] = self._asked[place], self._asked[place] + 1
        hits = []
        for fault in self.faults:
            dice = random.Random(f"{self.seed} {fault.name} {place} {number}")
            if kind in KINDS[fault.name].hits and dice.random() < fault.often:
                hits.append(fault.name)
                ask = partial(KINDS[fault.name].act, self, dice, ask)
        answer = ask(request)
        self._last[kind] = request
        self.events.append(f"  {place} -> {answer.status or 'no answer'}{''.join(f', {name}' for name in hits)}")
        return answer

    def remove(self, key: str) -> None:
        """Remove an object from the server."""
        self.client.delete_object(Bucket=self.bucket, Key=key)

    def other(self, request: Request) -> Request:
        """Return an earlier request of the same kind for another object, or the same request."""
        return replace(request, path=self._last.get(kind_of(request), request).path)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of `KINDS`, and which part of the requests that it can hit it hits."""

    name: str
    often: float

    def __str__(self) -> str:
        return f"{self.name} ({self.often:.0%})"


Act = Callable[[Adversary, random.Random, Ask, Request], Answer]


@dataclass(frozen=True, slots=True)
class Kind:
    """What a fault does, which kinds of requests it can hit, and which parts of them."""

    act: Act
    hits: tuple[str, ...] = EVERY
    often: tuple[float, ...] = (RARELY, RARELY, OFTEN, ALWAYS)


def kind_of(request: Request) -> str:
    """Return the kind of a request."""
    if request.method == "GET":
        return GET if key_of(request) else LIST
    if request.method == "PUT":
        return CREATE if "if-none-match" in map(str.lower, request.headers) else PUT
    return HEAD if request.method == "HEAD" else DELETE


def key_of(request: Request) -> str:
    """Return the key of the object that a request is for, or an empty text."""
    return unquote(urlsplit(request.path).path).partition("/")[2].partition("/")[2]


def place_of(request: Request) -> str:
    """Return what a request is for, the same in each run: without the name of an attempt."""
    query = parse_qs(urlsplit(request.path).query)
    what = key_of(request) or f"below {query.get('prefix', [''])[0]}"
    return f"{kind_of(request)} {_ATTEMPT.sub('ATTEMPT', what)}"


# --- Connections ----------------------------------------------------------------------------------------


def _cut_before(adversary: Adversary, dice: random.Random, ask: Ask, request: Request) -> Answer:
    return NO_ANSWER


def _cut_after(adversary: Adversary, dice: random.Random, ask: Ask, request: Request) -> Answer:
    ask(request)
    return NO_ANSWER


def _cut_within(adversary: Adversary, dice: random.Random, ask: Ask, request: Request) -> Answer:
    answer = ask(request)
    return replace(answer, sent_bytes=dice.randrange(len(answer.body) or 1))


def _delayed(adversary: Adversary, dice: random.Random, ask: Ask, request: Request) -> Answer:
    time.sleep(dice.random() * _DELAY_S)
    return ask(request)


def _repeated(adversary: Adversary, dice: random.Random, ask: Ask, request: Request) -> Answer:
    ask(request)
    return ask(request)


# --- Uploads --------------------------------------------------------------------------------------------


def _as_if_stored(answer: Answer, body: bytes) -> Answer:
    """Return the answer to a PUT that has stored this body."""
    return Answer(200, answer.headers | {"ETag": f'"{hashlib.md5(body).hexdigest()}"'})


def _upload_flipped(adversary: Adversary, dice: random.Random, ask: Ask, request: Request) -> Answer:
    return ask(replace(request, body=_flipped(request.body, dice)))


def _upload_flipped_and_denied(adversary: Adversary, dice: random.Random, ask: Ask, request: Request) -> Answer:
    return _as_if_stored(_upload_flipped(adversary, dice, _without_checksums(ask), request), request.body)


def _upload_truncated(adversary: Adversary, dice: random.Random, ask: Ask, request: Request) -> Answer:
    short = request.body[: dice.randrange(len(request.body) or 1)]
    return _as_if_stored(_without_checksums(ask)(replace(request, body=short)), request.body)


def _upload_lost(adversary: Adversary, dice: random.Random, ask: Ask, request: Request) -> Answer:
    return _as_if_stored(Answer(200), request.body)


def _removed_at_once(adversary: Adversary, dice: random.Random, ask: Ask, request: Request) -> Answer:
    answer = ask(request)
    adversary.remove(key_of(request))
    return answer


def _condition_dropped(adversary: Adversary, dice: random.Random, ask: Ask, request: Request) -> Answer:
    return ask(_without(request, "if-none-match"))


def _exists_already(adversary: Adversary, dice: random.Random, ask: Ask, request: Request) -> Answer:
    return Answer(412, {}, _error("PreconditionFailed"))


def _without_checksums(ask: Ask) -> Ask:
    """Return `ask` for a store that compares no checksum."""
    return lambda request: ask(_without(request, "content-md5", "x-amz-checksum-", "x-amz-sdk-checksum-"))


def _without(request: Request, *names: str) -> Request:
    return replace(
        request, headers={name: value for name, value in request.headers.items() if not name.lower().startswith(names)}
    )


# --- Answers --------------------------------------------------------------------------------------------


def _answer_flipped(adversary: Adversary, dice: random.Random, ask: Ask, request: Request) -> Answer:
    answer = ask(request)
    return replace(answer, body=_flipped(answer.body, dice))


def _listing_stale(adversary: Adversary, dice: random.Random, ask: Ask, request: Request) -> Answer:
    return _with_entries(ask(request), lambda key: key in adversary.before)


def _listing_lacks_a_key(adversary: Adversary, dice: random.Random, ask: Ask, request: Request) -> Answer:
    answer = ask(request)
    keys = [key.decode() for key in _KEY.findall(answer.body)]
    lacking = dice.choice(keys) if keys else ""
    return _with_entries(answer, lambda key: key != lacking)


def _with_entries(answer: Answer, has: Callable[[str], bool]) -> Answer:
    def entry(found: re.Match[bytes]) -> bytes:
        key = _KEY.search(found[0])
        return found[0] if key is not None and has(unquote(key[1].decode())) else b""

    return replace(answer, body=_ENTRY.sub(entry, answer.body))


def _hidden(adversary: Adversary, dice: random.Random, ask: Ask, request: Request) -> Answer:
    return Answer(404, {}, _error("NoSuchKey"))


def _swapped(adversary: Adversary, dice: random.Random, ask: Ask, request: Request) -> Answer:
    return ask(_without(adversary.other(request), "if-match"))


def _failed(adversary: Adversary, dice: random.Random, ask: Ask, request: Request) -> Answer:
    status, code = dice.choice(_ERRORS)
    return Answer(status, {}, dice.choice((_error(code), b"", _PAGE)))


def _page(adversary: Adversary, dice: random.Random, ask: Ask, request: Request) -> Answer:
    return Answer(200, {"Content-Type": "text/html"}, _PAGE)


def _flipped(body: bytes, dice: random.Random) -> bytes:
    if not body:
        return body
    flipped = bytearray(body)
    flipped[dice.randrange(len(body))] ^= 1 << dice.randrange(8)
    return bytes(flipped)


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><AWSAccessKeyId>{KEY_ID}</AWSAccessKeyId></Error>".encode()


KINDS = {
    "cut before the server": Kind(_cut_before),
    "cut after the server": Kind(_cut_after),
    "cut within the answer": Kind(_cut_within, (LIST, GET)),
    "delayed": Kind(_delayed, often=(RARELY, OFTEN)),
    "repeated to the server": Kind(_repeated),
    "upload flipped": Kind(_upload_flipped, UPLOADS),
    "upload flipped, answered as if right": Kind(_upload_flipped_and_denied, UPLOADS),
    "upload truncated, answered as if right": Kind(_upload_truncated, UPLOADS),
    "upload lost, answered as if right": Kind(_upload_lost, UPLOADS),
    "removed at once": Kind(_removed_at_once, (PUT,)),
    "condition dropped": Kind(_condition_dropped, (CREATE,), (ALWAYS,)),
    "answered that it exists": Kind(_exists_already, (CREATE,)),
    "answer flipped": Kind(_answer_flipped, (LIST, GET)),
    "listing stale": Kind(_listing_stale, (LIST,)),
    "listing lacks a key": Kind(_listing_lacks_a_key, (LIST,)),
    "answered that it is not there": Kind(_hidden, (GET, HEAD)),
    "answer of another key": Kind(_swapped, (GET, HEAD)),
    "answered with an error": Kind(_failed),
    "answered with a page": Kind(_page),
}
"""All faults, by name."""


# --- What happens to a copy later -----------------------------------------------------------------------


def _gone(content: bytes, dice: random.Random) -> bytes | None:
    return None


def _cut(content: bytes, dice: random.Random) -> bytes | None:
    return content[: dice.randrange(len(content) or 1)]


DAMAGES: dict[str, Callable[[bytes, random.Random], bytes | None]] = {"gone": _gone, "cut": _cut, "flipped": _flipped}
"""What becomes of an object, by name. None: it is removed."""


def damage(server: Server, bucket: str, prefix: str, dice: random.Random) -> str:
    """Damage an object below a prefix, and return what was done."""
    keys = server.keys(bucket, f"{prefix}/")
    if not keys:
        return "nothing to damage"
    client: Any = server.client()
    key, name = dice.choice(keys), dice.choice(list(DAMAGES))
    content = client.get_object(Bucket=bucket, Key=key)["Body"].read()
    after = DAMAGES[name](content, dice)
    if after is None:
        client.delete_object(Bucket=bucket, Key=key)
    else:
        client.put_object(Bucket=bucket, Key=key, Body=after)
    return f"{key} {name}"
