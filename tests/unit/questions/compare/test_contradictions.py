"""Replicas with other records at the same offsets: nothing is said of the keys there, and no right replica accused."""

from __future__ import annotations

from itertools import accumulate, permutations
from pathlib import Path

import pytest

from kcompact.engine.in_process import InProcess
from kcompact.format.names import log_name
from kcompact.log.directory import read_log
from kcompact.questions.compare.comparison import compare_replicas
from kcompact.questions.compare.findings import DifferenceKind, findings_of
from tests.support.log_dsl import parse
from tests.support.log_writer import write

RIGHT = "0: a=1(leader=1) b=1(leader=1) c=1(leader=2) d=1(leader=3)\n4: e=1(leader=3)"


@pytest.mark.parametrize("replicas", [2, 3, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("old", "new", "kinds"),
    [
        ("b=1", "b=2", {DifferenceKind.CONTENT_DIFFERS}),
        ("b=1", "b=~", {DifferenceKind.CONTENT_DIFFERS}),
        ("b=1", "x=1", {DifferenceKind.CONTENT_DIFFERS}),
        ("b=1", "a=2", {DifferenceKind.CONTENT_DIFFERS}),
        ("b=1", "e=1", {DifferenceKind.CONTENT_DIFFERS}),
        ("b=1(leader=1)", "x=1(leader=1 pid=7 epoch=0 seq=0)", {DifferenceKind.DIVERGED_EPOCH}),
        ("a=1(leader=1) b=1(leader=1)", "[a=1 x=1](leader=1)", {DifferenceKind.DIVERGED_EPOCH}),
        ("b=1(leader=1)", "b=1(leader=9)", {DifferenceKind.CORRUPT_COPY}),
    ],
)
def test_a_contradiction(tmp_path: Path, replicas: int, old: str, new: str, kinds: set[DifferenceKind]) -> None:
    texts = [RIGHT.replace(old, new), *[RIGHT] * (replicas - 1)]
    logs = [
        read_log(write(parse(f"log\n{text}"), tmp_path / str(number)), as_recovered=True)
        for number, text in enumerate(texts)
    ]
    for order in permutations(range(replicas)):
        findings = findings_of(compare_replicas([logs[number] for number in order], InProcess(parallelism=1)))
        assert {each.kind for each in findings} == kinds
        for each in findings:
            assert order.index(0) in each.replicas
            assert order.index(0) not in (each.right or ())


@pytest.mark.parametrize("damaged", [(1, 2, 3), (1, 2), (1,), (2,), (3,)])
def test_what_damage_may_hide_above_the_segments_of_others(tmp_path: Path, damaged: tuple[int, ...]) -> None:
    batches = ["a=1", "[b=1 c=1](pid=7 epoch=0 seq=0 txn)", "d=1", "e=1"]
    spec = parse("log\n0: " + " ".join(batches) + "\n5: f=1")
    others = parse("log\n" + "\n".join(f"{base}: {batch}" for base, batch in zip((0, 1, 3, 4), batches, strict=True)))
    others = parse("log\n5: f=1", base=others)
    directories = [write(spec, tmp_path / "0"), *(write(others, tmp_path / str(number)) for number in (1, 2))]
    file = directories[0] / log_name(0)
    data = bytearray(file.read_bytes())
    ends = list(accumulate(map(len, spec.segments[0].batches), initial=0))
    for number in damaged:
        data[ends[number] : ends[number + 1]] = bytes([0xEE]) * (ends[number + 1] - ends[number])
    file.write_bytes(data)
    logs = [read_log(each, as_recovered=True) for each in directories]
    for order in permutations(range(3)):
        (found,) = findings_of(compare_replicas([logs[number] for number in order], InProcess(parallelism=1)))
        assert (found.kind, found.replicas) == (DifferenceKind.CORRUPT_COPY, (order.index(0),))


@pytest.mark.parametrize(("start", "kinds"), [(2, set()), (0, {DifferenceKind.ABORTED_SERVED})])
def test_nothing_below_the_log_start_is_served(tmp_path: Path, start: int, kinds: set[DifferenceKind]) -> None:
    text = f"log start={start}\n0: a=1(pid=7 epoch=0 seq=0 txn) b=1@1 abort@2(pid=7 epoch=0)\n3: c=1"
    logs = [read_log(write(parse(text), tmp_path / str(number)), as_recovered=True) for number in range(2)]
    findings = findings_of(compare_replicas(logs, InProcess(parallelism=1)))
    assert {each.kind for each in findings} == kinds
