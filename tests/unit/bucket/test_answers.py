"""Each answer of a store, and each lack of one, is told with its cause and with what helps."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kcompact.bucket.manifest import MANIFEST
from kcompact.bucket.mirror import MIRROR
from tests.support import certificates
from tests.support.command_line import COMPACT, kcompact
from tests.support.fault_proxy import NO_ANSWER, Answer, Ask, Fault, Proxy, Request, in_front_of
from tests.support.s3_server import ENVIRONMENT, free_port
from tests.unit.bucket.conftest import ONLY_MOTO, Store

AGAIN = "run the same command again"


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch, one_try: None) -> Iterator[Proxy]:
    """A proxy in front of nothing, which a test has answer."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(MIRROR, "_buckets", {})
    with in_front_of("http://127.0.0.1:1") as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.url)
        yield running


def _error(status: int, code: str, more: str = "", headers: dict[str, str] | None = None) -> Answer:
    key = ENVIRONMENT["AWS_ACCESS_KEY_ID"]
    body = f"<Error><Code>{code}</Code><AWSAccessKeyId>{key}</AWSAccessKeyId>{more}</Error>"
    return Answer(status, {"Content-Type": "application/xml", **(headers or {})}, body.encode())


PAGE = b"<html><body>Please log in</body></html>"
REGION = "the bucket is in the region eu-west-1, not in us-east-1\nSet AWS_REGION=eu-west-1."
ENDED = "the session of the credentials has ended"
DENIED = "access denied (403 Forbidden, "
NO_S3 = (
    "answers, but not as S3 does\nA proxy, a login page or another service may answer there. Check AWS_ENDPOINT_URL."
)


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (_error(404, "NoSuchBucket"), 4, "s3://backups: no such bucket"),
        (_error(301, "PermanentRedirect", headers={"x-amz-bucket-region": "eu-west-1"}), 4, REGION),
        (_error(400, "AuthorizationHeaderMalformed", "<Region>eu-west-1</Region>"), 4, REGION),
        (_error(400, "IllegalLocationConstraintException"), 4, "another region than us-east-1"),
        (_error(307, "TemporaryRedirect"), 4, "another region than us-east-1"),
        (_error(400, "AuthorizationHeaderMalformed", "<Region>A B</Region>"), 4, "another region than us-east-1"),
        (_error(400, "ExpiredToken"), 4, ENDED),
        (_error(403, "ExpiredTokenException"), 4, ENDED),
        (_error(400, "InvalidToken"), 4, ENDED),
        (
            _error(403, "RequestTimeTooSkewed", "<ServerTime>2026-11-28T00:00:00Z</ServerTime>"),
            4,
            "the clock of this machine differs from that of the store, where it is 2026-11-28T00:00:00Z\nSet the clock",
        ),
        (_error(403, "InvalidObjectState", "<StorageClass>GLACIER</StorageClass>"), 4, "(storage class GLACIER)"),
        (_error(403, "AccessDenied"), 4, f"{DENIED}AccessDenied)\nSet the credentials"),
        (_error(403, "AccessDenied", "<Message>no kms:Decrypt</Message>"), 4, "may not use its key (kms:Decrypt)"),
        (_error(403, "SignatureDoesNotMatch"), 4, f"{DENIED}SignatureDoesNotMatch)"),
        (_error(401, "Unauthorized"), 4, "access denied (401 Unauthorized, Unauthorized)"),
        (_error(400, "InvalidRequest"), 4, "the store refuses the request (400 Bad Request, InvalidRequest)"),
        (_error(501, "NotImplemented"), 4, "the store refuses the request (501 Not Implemented, NotImplemented)"),
        (_error(500, "InternalError"), 1, f"500 Internal Server Error, InternalError; {AGAIN}"),
        (_error(503, "SlowDown"), 1, f"503 Service Unavailable, SlowDown; {AGAIN}"),
        (_error(429, "TooManyRequests"), 1, f"429 Too Many Requests, TooManyRequests; {AGAIN}"),
        (Answer(200, {"Content-Type": "text/html"}, PAGE), 4, NO_S3),
        (Answer(200, {}, b"<html><body>not closed"), 4, NO_S3),
        (Answer(200, {}, b'{"a": 1}'), 4, NO_S3),
        (Answer(200), 4, NO_S3),
        (Answer(404, {"Content-Type": "text/html"}, PAGE), 4, NO_S3),
        (Answer(302, {"Location": "https://login.example/"}, PAGE), 4, NO_S3),
        (Answer(403, {"Content-Type": "text/html"}, PAGE), 4, "access denied (403 Forbidden)"),
        (Answer(502, {"Content-Type": "text/html"}, PAGE), 1, f"502 Bad Gateway; {AGAIN}"),
        (NO_ANSWER, 1, AGAIN),
    ],
)
def test_a_cause(answer: Answer, code: int, words: str, proxy: Proxy) -> None:
    proxy.meddle = lambda request, ask: answer
    ran = kcompact("plan", "--debug", "s3://backups/eu")
    assert (ran.code, ran.out) == (code, "")
    assert words in ran.err
    assert (AGAIN in ran.err) == (AGAIN in words)
    assert ran.err.startswith("error: s3://backups")
    assert not any(secret in ran.err for secret in (ENVIRONMENT["AWS_ACCESS_KEY_ID"], "<", "Traceback"))


@ONLY_MOTO
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            _error(403, "InvalidObjectState", "<StorageClass>DEEP_ARCHIVE</StorageClass>"),
            "(storage class DEEP_ARCHIVE)",
        ),
        (Answer(404, {}, PAGE), "not as S3 does"),
        (Answer(200, {"Content-Type": "text/html"}, PAGE), "not as S3 does"),
    ],
)
def test_a_cause_of_an_object(answer: Answer, words: str, log_dir: Path, store: Store, one_try: None) -> None:
    """A page of something else in place of an object is no proof that the object is gone."""
    address = store.upload(log_dir, "eu")
    store.proxy.meddle = lambda request, ask: answer if request.path.endswith(".log") else ask(request)
    ran = kcompact("keys", f"{address}/orders-0", *COMPACT)
    assert (ran.code, words in ran.err) == (4, True), ran.err


@ONLY_MOTO
@pytest.mark.parametrize("method", ["PUT", "POST", "GET"])
@pytest.mark.parametrize(
    "answer", [_error(403, "AccessDenied"), _error(400, "ExpiredToken"), Answer(200, {}, PAGE), NO_ANSWER]
)
def test_a_cause_while_a_copy_is_written(
    method: str, answer: Answer, log_dir: Path, store: Store, one_try: None
) -> None:
    store.proxy.meddle = lambda request, ask: answer if request.method == method else ask(request)
    ran = kcompact("clean", "--json", log_dir / "orders-0", "--output", store.address("eu"), *COMPACT)
    if method == "POST":  # Nothing but what counts as nothing is removed.
        assert ran.code == 0
        return
    assert ran.code == (1 if answer is NO_ANSWER else 4), ran.err
    assert "a bug of kcompact" not in ran.err + ran.out
    assert [key for key in store.all_keys() if key.endswith(".json")] == []


def test_where_nobody_answers(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said at once, although requests are repeated."""
    monkeypatch.undo()
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(MIRROR, "_buckets", {})
    own = certificates.sign("127.0.0.1", by=certificates.authority(), names=["127.0.0.1"])
    with certificates.tls_server(own, []) as place:
        for url, words in (
            (f"http://127.0.0.1:{free_port()}", "nothing listens at http://127.0.0.1:"),
            ("http://no-such-host.invalid", "the host of http://no-such-host.invalid is unknown"),
            (f"https://{place}", f"the certificate of https://{place} is not trusted\nSet AWS_CA_BUNDLE"),
        ):
            monkeypatch.setenv("AWS_ENDPOINT_URL", url)
            MIRROR._buckets.clear()
            ran = kcompact("plan", "s3://backups/eu")
            assert (ran.code, words in ran.err, AGAIN in ran.err) == (4, True, False), ran.err


def test_a_store_that_has_answered_is_waited_for(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that is refused later can be one of a server that starts again."""
    client = MIRROR.bucket("backups")._client()
    proxy.meddle = lambda request, ask: _error(404, "NoSuchKey")
    assert MIRROR.bucket("backups").read_small("a", max_bytes=1) is None
    assert client._has_answered


@ONLY_MOTO
def test_one_bad_bucket_leaves_the_other_paths(log_dir: Path, store: Store, one_try: None) -> None:
    address, bad = store.upload(log_dir, "eu"), "s3://no-such-bucket-here/eu"
    for command in ("plan", "inspect", "verify", "keys", "gaps", "transactions"):
        ran = kcompact(command, "--json", bad, log_dir, address, *COMPACT)
        found = {each["directory"]: each["error"] for each in ran.json["partitions"]}
        wanted = {str(log_dir / name) for name in ("audit-0", "orders-0")}
        wanted |= {f"{address}/{name}" for name in ("audit-0", "orders-0")}
        assert (ran.code, {name for name, error in found.items() if error is None}) == (4, wanted), command
        assert "no such bucket" in found[bad]
    assert json.loads(kcompact("plan", "--json", bad, *COMPACT).out)["partitions"][0]["directory"] == bad


@ONLY_MOTO
def test_an_answer_that_is_damaged_is_asked_for_again(log_dir: Path, store: Store) -> None:
    """Of an object that is fetched at once, and of a manifest. The ETag of most stores tells."""
    store.upload(log_dir, "eu")
    expected = kcompact("records", "--json", log_dir / "orders-0").out
    assert kcompact("clean", log_dir / "orders-0", "--output", store.address("copy"), *COMPACT).code == 0
    damaged, guard = set[str](), threading.Lock()

    def flip(request: object, body: bytes) -> bytes:
        path = getattr(request, "path", "")
        with guard:
            if not re.search(r"\.(log|json)$", path) or path in damaged:
                return body
            damaged.add(path)
        return bytes([*body[:-20], body[-20] ^ 1, *body[-19:]])

    store.proxy.change = flip
    for prefix in ("eu", "copy"):
        ran = kcompact("records", "--json", store.address(f"{prefix}/orders-0"))
        assert ran.code == 0, ran.err
        assert len(ran.out) == len(expected) or prefix == "copy"
        assert any(path.endswith(".log") and f"/{prefix}/" in path for path in damaged)
    assert any(path.endswith(MANIFEST) for path in damaged)


LISTING = (
    "<ListBucketResult><Name>backups</Name><IsTruncated>{more}</IsTruncated>{token}<Contents><Key>eu/{key}</Key>"
    '<LastModified>2024-01-01T00:00:00.000Z</LastModified><ETag>"e"</ETag><Size>{size}</Size></Contents></ListBucketResult>'
)
TOKEN = "<NextContinuationToken>A</NextContinuationToken>"


@pytest.mark.parametrize(
    ("listing", "words"),
    [
        ({"size": "99999999999999999999"}, NO_S3),
        ({"size": "-1"}, NO_S3),
        ({"size": "many"}, "answers, but not as S3 does (ValueError)"),
        ({"more": "true", "token": TOKEN}, NO_S3),
        ({"more": "true"}, "answers, but not as S3 does (KeyError)"),
        ({"key": "d/" * 600 + "x"}, "has the name of no file below it"),
    ],
)
def test_a_listing_that_is_none(listing: dict[str, str], words: str, proxy: Proxy) -> None:
    body = LISTING.format(**{"more": "false", "token": "", "key": "orders-0/0.log", "size": "1", **listing})
    proxy.meddle = lambda request, ask: Answer(200, {}, body.encode())
    ran = kcompact("plan", "s3://backups/eu")
    assert (ran.code, words in ran.err) == (4, True), ran.err
    assert len(proxy.requests) < 10


@ONLY_MOTO
@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"Content-Range": "bytes 0-1/2"}, 6, "was replaced or removed since it was listed"),
        ({"Content-Range": "bytes 7-90/*"}, 4, "does not answer with the part of an object that is asked for (Range)"),
        ({"Content-Range": "nonsense"}, 4, "does not answer with the part of an object that is asked for (Range)"),
        ({"ETag": '"other"'}, 6, "was replaced or removed since it was listed"),
    ],
)
def test_a_part_that_was_not_asked_for(
    change: dict[str, str], code: int, words: str, log_dir: Path, store: Store
) -> None:
    address = store.upload(log_dir, "eu")

    def other(request: Request, ask: Ask) -> Answer:
        answer = ask(request)
        if not request.path.endswith(".log"):
            return answer
        kept = {name: value for name, value in answer.headers.items() if name.lower() not in map(str.lower, change)}
        return replace(answer, headers=kept | change)

    store.proxy.meddle = other
    ran = kcompact("keys", f"{address}/orders-0", *COMPACT)
    assert (ran.code, words in ran.err) == (code, True), ran.err


@ONLY_MOTO
def test_more_than_was_asked_for_is_not_read(log_dir: Path, store: Store, one_try: None) -> None:
    address = store.upload(log_dir, "eu")
    store.proxy.change = lambda request, body: body + bytes(1 << 20) if request.path.endswith(".log") else body
    ran = kcompact("keys", f"{address}/orders-0", *COMPACT)
    assert (ran.code, "was damaged on its way; run the same command again" in ran.err) == (1, True), ran.err


@ONLY_MOTO
@pytest.mark.parametrize("form", [lambda bare: bare, lambda bare: f'W/"{bare}"'], ids=["no quotes", "weak"])
def test_etags_in_another_form(form: Callable[[str], str], log_dir: Path, store: Store) -> None:
    """In listings only, as some servers have it."""

    def other(request: Request, body: bytes) -> bytes:
        if "list-type" not in request.path:
            return body
        return re.sub(rb"<ETag>[^<]*?([0-9a-f]{32})[^<]*</ETag>", lambda found: _tag(form(found[1].decode())), body)

    address = store.upload(log_dir, "eu")
    store.proxy.change = other
    assert len(kcompact("records", "--json", f"{address}/orders-0").lines) == 60
    assert kcompact("clean", address, "--output", store.address("out"), *COMPACT).code == 0


def _tag(etag: str) -> bytes:
    return f"<ETag>{etag.replace(chr(34), '&quot;')}</ETag>".encode()


@ONLY_MOTO
def test_half_an_answer_each_time(log_dir: Path, store: Store, one_try: None) -> None:
    address = store.upload(log_dir, "eu")
    store.proxy.decide = lambda request: Fault.HALF if request.path.endswith(".log") else None
    ran = kcompact("keys", f"{address}/orders-0", *COMPACT)
    assert (ran.code, AGAIN in ran.err) == (1, True), ran.err
