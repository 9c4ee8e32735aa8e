"""The torture of buckets can fail: its judge finds each way in which a copy is wrong, and each fault does something."""

from __future__ import annotations

import hashlib
import json
import random
from typing import Any

import pytest
from kafka.record.util import calc_crc32c

from kcompact.format.sealed_json import sealed
from tests.support.command_line import Ran
from tests.support.fault_proxy import Answer, Request
from tests.support.s3_server import SECRET
from tests.torture import bucket_judge as judge
from tests.torture.bucket_faults import (
    ALWAYS,
    CREATE,
    DAMAGES,
    DELETE,
    GET,
    HEAD,
    KINDS,
    LIST,
    PUT,
    Adversary,
    Fault,
    key_of,
    kind_of,
)
from tests.torture.bucket_judge import MANIFEST, SHARED, Expected

ATTEMPT = ".kcompact-0123456789abcdef"
LOG, INDEX = f"{0:020d}.log", f"{0:020d}.index"
FILES = {LOG: b"batches", INDEX: b""}
OFFSETS = {"cleaner-offset-checkpoint": 7}
EXPECTED = Expected({SHARED: {"meta.properties": b"version=1"}, "orders-0": FILES}, {"orders-0": OFFSETS})
PLACE = "eu/orders-0"
NEIGHBOUR = {"eu/audit-0/x": b"x"}


def _copy(**changed: Any) -> dict[str, bytes]:
    """Return the objects of a right copy, with changed fields of its manifest."""
    files = [{"name": name, "size_bytes": len(data), "crc32c": calc_crc32c(data)} for name, data in FILES.items()]
    manifest = {"attempt": ATTEMPT, "files": files, "offsets": OFFSETS} | changed
    stored = {f"{PLACE}/{ATTEMPT}/{name}": data for name, data in FILES.items()}
    return {**stored, f"{PLACE}/{MANIFEST}": sealed(manifest)}


def _files_with(field: str, value: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(_copy()[f"{PLACE}/{MANIFEST}"])["files"]
    return [{**found[0], field: value}, *found[1:]]


def test_a_right_copy_has_no_problem() -> None:
    assert judge.copy_problems(_copy(), "eu", "orders-0", EXPECTED) == []


@pytest.mark.parametrize(
    "objects",
    [
        {key: data for key, data in _copy().items() if not key.endswith(MANIFEST)},
        {key: data for key, data in _copy().items() if not key.endswith(LOG)},
        {key: data for key, data in _copy().items() if not key.endswith(INDEX)},
        _copy() | {f"{PLACE}/{ATTEMPT}/{LOG}": b"batchez"},
        _copy() | {f"{PLACE}/{ATTEMPT}/{LOG}": b"batche"},
        _copy() | {f"{PLACE}/{ATTEMPT}/{INDEX}": b"x"},
        _copy() | {f"{PLACE}/{MANIFEST}": b"<html>"},
        _copy() | {f"{PLACE}/{MANIFEST}": b"{}"},
        _copy() | {f"{PLACE}/{MANIFEST}": sealed({"attempt": ATTEMPT})},
        _copy() | {f"{PLACE}/{MANIFEST}": _copy()[f"{PLACE}/{MANIFEST}"].replace(b"offsets", b"offsetz")},
        _copy(attempt=".kcompact-fedcba9876543210"),
        _copy(attempt="."),
        _copy(offsets={}),
        _copy(files=_files_with("size_bytes", 6)),
        _copy(files=_files_with("crc32c", 1)),
        _copy(files=_files_with("name", INDEX)),
        _copy(files=[*_files_with("size_bytes", 7), {"name": "other", "size_bytes": 0, "crc32c": 0}]),
    ],
)
def test_a_wrong_copy_is_found(objects: dict[str, bytes]) -> None:
    assert judge.copy_problems(objects, "eu", "orders-0", EXPECTED)


def test_what_a_command_calls_complete() -> None:
    def entry(number: int, status: str) -> dict[str, Any]:
        return {"topic": "orders", "partition": number, "status": status, "error": None}

    partitions = [entry(0, "cleaned"), entry(1, "failed"), entry(2, "copied")]
    answer = json.dumps({"partitions": partitions, "copy": {"is_finished": False}})
    assert judge.called_complete(Ran(1, answer, ""), ["orders-1"], is_log_dir=True) == {"orders-0", "orders-2"}
    assert judge.called_complete(Ran(0, answer, ""), ["orders-1"], is_log_dir=True) == {"orders-1", SHARED}
    assert judge.called_complete(Ran(4, "", ""), ["orders-1"], is_log_dir=False) == set()


@pytest.mark.parametrize(
    "ran",
    [
        Ran(7, "", "error: full"),
        Ran(1, "", ""),
        Ran(1, "", "error: unexpected error: KeyError"),
        Ran(1, "", "Traceback (most recent call last):"),
        Ran(4, "", f"error: denied to {SECRET}"),
        Ran(0, '{"partitions": [', ""),
        Ran(0, "{}\n{}", ""),
    ],
)
def test_a_wrong_report_is_found(ran: Ran) -> None:
    assert judge.report_problems(ran)


def test_a_right_report_has_no_problem() -> None:
    assert judge.report_problems(Ran(3, "{}", "error: damaged")) == []
    assert judge.report_problems(Ran(0, "{}\n{}\n", ""), has_lines=True) == []


@pytest.mark.parametrize(
    ("objects", "trials", "is_wrong"),
    [
        (_copy() | NEIGHBOUR, False, False),
        (_copy(), False, True),
        (_copy() | {"eu/audit-0/x": b"y"}, False, True),
        (_copy() | NEIGHBOUR | {"eu/audit-0/y": b""}, False, True),
        (_copy() | NEIGHBOUR | {f"{PLACE}/{LOG}": b""}, False, True),
        (_copy() | NEIGHBOUR | {f"eu/{ATTEMPT}/trial": b""}, True, False),
        (_copy() | NEIGHBOUR | {f"eu/{ATTEMPT}/trial": b""}, False, True),
    ],
)
def test_what_is_done_to_other_objects_is_found(objects: dict[str, bytes], trials: bool, is_wrong: bool) -> None:
    found = judge.outside_problems(objects, NEIGHBOUR, NEIGHBOUR, [PLACE], trials=trials)
    assert bool(found) == is_wrong


def test_what_errors_name() -> None:
    said = (
        f"note: s3://b/eu/x-0\nerror: s3://b/eu/orders-0/{ATTEMPT}/{LOG}: is missing\nerror: s3://b/eu/{MANIFEST}: no\n"
    )
    assert judge.named_directories(Ran(3, "", said), "s3://b/eu") == {"orders-0", SHARED}
    assert judge.named_directories(Ran(4, "", "error: s3://b/eu: exists already"), "s3://b/eu") == set()


# Faults


class _Store:
    """A store of two objects, which is its own client."""

    def __init__(self) -> None:
        self.objects = {"a": b"first", "b": b"second"}

    def delete_object(self, Bucket: str, Key: str) -> None:  # noqa: N803 - names of the library
        self.objects.pop(Key, None)

    def ask(self, request: Request) -> Answer:
        key, kind = key_of(request), kind_of(request)
        if kind == LIST:
            entries = "".join(f"<Contents><Key>{each}</Key></Contents>" for each in sorted(self.objects))
            return Answer(200, {}, entries.encode())
        if kind == CREATE and key in self.objects:
            return Answer(412)
        if kind in (PUT, CREATE):
            self.objects[key] = request.body
        found = self.objects.pop(key, b"") if kind == DELETE else self.objects.get(key, b"")
        return Answer(200, {"ETag": f'"{hashlib.md5(found).hexdigest()}"'}, found if kind == GET else b"")


def _request(kind: str, key: str) -> Request:
    method = {LIST: "GET", CREATE: "PUT"}.get(kind, kind.upper())
    path = "/bucket?prefix=" if kind == LIST else f"/bucket/{key}"
    body = b"content" if method == "PUT" else b""
    return Request(0, method, path, {"If-None-Match": "*"} if kind == CREATE else {}, body)


def _done(kind: str, faults: tuple[Fault, ...], seed: int) -> tuple[list[Answer], int, dict[str, bytes]]:
    """Return answers to requests of a kind for three keys, how often the store was asked, and what it then has."""
    store, asked = _Store(), list[Request]()
    adversary = Adversary(store, "bucket", str(seed), faults, frozenset({"a"}))

    def ask(request: Request) -> Answer:
        asked.append(request)
        return store.ask(request)

    answers = [adversary.meddle(_request(kind, key), ask) for key in ("a", "b", "c")]
    return answers, len(asked), store.objects


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (name, kind)
        for name, each in KINDS.items()
        for kind in each.hits
        if (name, kind) != ("answer of another key", HEAD)
    ],
)
def test_each_fault_does_something(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    slept = list[float]()
    monkeypatch.setattr("time.sleep", slept.append)
    faulty, right = _done(kind, (Fault(name, ALWAYS),), 7), _done(kind, (), 7)
    assert faulty != right or slept
    assert faulty == _done(kind, (Fault(name, ALWAYS),), 7), "the same seed does the same"


@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_changes_an_object(name: str) -> None:
    assert DAMAGES[name](b"content", random.Random(1)) != b"content"
