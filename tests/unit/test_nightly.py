"""`tests.nightly`: all steps are run whatever fails, and a run goes on where the last one on the same commit ended."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests import nightly
from tests.nightly import CHANGED, PARTS, STATE, Ended, Night, Step, begin, run, run_all, steps, summary
from tests.oracle.driver import OLDER_VERSIONS, VERSIONS
from tests.support.command_line import ROOT
from tests.torture.__main__ import PARTS as TORTURE_PARTS

COMPARED = (*VERSIONS, *OLDER_VERSIONS)
PASSED = Ended(code=0, seconds=1.0)
GOOD, BAD, LAST = (
    Step("oracle", "good", "echo fine"),
    Step("oracle", "bad", "echo why; exit 3"),
    Step("slow", "last", ":"),
)


def ended(steps: Sequence[Step]) -> dict[str, Ended]:
    return {step.name: PASSED for step in steps}


def night(**fields: object) -> Night:
    return Night(**{"commit": "c0ffee", "seed": 7, "share": 1.0} | fields)  # type: ignore[arg-type]


def test_a_step_that_fails_does_not_stop_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tonight = night()
    run_all(tonight, [GOOD, BAD, LAST], tmp_path)
    assert {name: each.code for name, each in tonight.ended.items()} == {"good": 0, "bad": 3, "last": 0}
    assert Night.load(tmp_path / STATE) == tonight
    assert "why" in capsys.readouterr().out
    listed = summary(tonight, [GOOD, BAD, LAST])
    assert "commit c0ffee, seed 7, share 1" in listed
    assert re.search(r"bad +failed with 3, 0 s\n +to repeat: echo why; exit 3\n", listed)
    assert "2 passed, 1 failed" in listed


def test_a_step_that_has_ended_is_not_run_again(tmp_path: Path) -> None:
    tonight = night(ended={"bad": PASSED})
    run_all(tonight, [BAD, GOOD], tmp_path)
    assert [name for name, each in tonight.ended.items() if each.code] == []
    assert not (tmp_path / "bad.log").exists()


def test_a_step_is_the_command_that_repeats_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAKEFLAGS", " -- SEED=7")
    monkeypatch.setenv("SEED", "7")
    assert run(Step("slow", "echoes", 'echo "<$MAKEFLAGS$SEED>"'), tmp_path / "log", 60).code == 0
    assert (tmp_path / "log").read_text() == "<>\n"


def test_a_step_that_hangs_ends_with_all_its_processes(tmp_path: Path) -> None:
    step = Step("slow", "hangs", "sleep 600 & echo $!; wait")
    found = run(step, tmp_path / "log", 0.5)
    assert (found.code, str(found)[:13]) == (None, "took too long")
    process = (tmp_path / "log").read_text().strip()
    state = Path(f"/proc/{process}/stat")
    deadline = time.monotonic() + 60
    while state.exists() and state.read_text().split()[2] != "Z":
        assert time.monotonic() < deadline


def test_ctrl_c_ends_the_step_and_keeps_what_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited = subprocess.Popen.wait

    def interrupted(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        if timeout == nightly.LIMIT_S and "sleep" in str(process.args):
            raise KeyboardInterrupt
        return waited(process, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_all(night(), [GOOD, Step("slow", "long", "sleep 600")], tmp_path)
    kept = Night.load(tmp_path / STATE)
    assert kept is not None
    assert list(kept.ended) == ["good"]


def test_a_run_goes_on_with_its_seed_until_all_have_ended(tmp_path: Path) -> None:
    path, old = tmp_path / STATE, night()
    old.ended = ended(old.steps(["torture"])[:2])
    old.save(path)
    assert begin(path, commit="c0ffee", seed=None, share=1.0) == old
    assert begin(path, commit="c0ffee", seed=7, share=1.0, parts=["torture"]) == old
    old.ended = ended(old.steps(["torture"]))
    old.save(path)
    assert begin(path, commit="c0ffee", seed=None, share=1.0) == old, "other parts have not run"
    assert begin(path, commit="c0ffee", seed=7, share=1.0, parts=["torture"]).ended == {}


@pytest.mark.parametrize(
    "other", [{"commit": "decaf"}, {"seed": 8}, {"share": 0.5}, {"commit": f"c0ffee{CHANGED}"}], ids=str
)
def test_another_run_begins_anew(other: dict[str, object], tmp_path: Path) -> None:
    old = night(ended={"properties": PASSED})
    old.save(tmp_path / STATE)
    asked = {"commit": "c0ffee", "seed": 7, "share": 1.0} | other
    assert begin(tmp_path / STATE, **asked) == night(**asked)  # type: ignore[arg-type]


def test_changes_are_never_the_same_commit(tmp_path: Path) -> None:
    night(commit=f"c0ffee{CHANGED}", ended={"properties": PASSED}).save(tmp_path / STATE)
    assert begin(tmp_path / STATE, commit=f"c0ffee{CHANGED}", seed=7, share=1.0).ended == {}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"commit": "c0ffee"}', '{"ended": 3}'])
def test_a_damaged_state_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / STATE).write_text(text)
    assert begin(tmp_path / STATE, commit="c0ffee", seed=7, share=1.0) == night()


def test_the_seed_is_the_date(tmp_path: Path) -> None:
    seed = begin(tmp_path / STATE, commit="c0ffee", seed=None, share=1.0).seed
    assert re.fullmatch(r"20\d\d[01]\d[0-3]\d", str(seed))


def test_each_command_is_one_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    gate = re.findall(r" make ([a-z -]+)", (ROOT / ".ci" / "run").read_text(encoding="utf-8"))
    for words in (*gate, *(step.command.removeprefix("make ") for step in steps(seed=1, share=1.0))):
        named = re.match(r"([a-z-]+ ?)+", words)
        assert named, words
        assert set(named[0].split()) <= targets, words


def test_every_part_of_the_torture_run_and_every_version_of_kafka_is_in_it() -> None:
    names = [step.name for step in steps(seed=1, share=1.0)]
    assert len(names) == len(set(names))
    assert {f"torture-{part}" for part in TORTURE_PARTS} | {f"oracle-{version}" for version in COMPARED} <= set(names)


@pytest.mark.parametrize("share", [0.001, 1.0, 40.0])
def test_no_log_is_compared_twice(share: float) -> None:
    """Neither in one night nor in the next one."""
    found = []
    for seed in (20261128, 20261129):
        for step in steps(seed=seed, share=share):
            if counted := re.search(r"ORACLE_LOGS=(\d+) SEED=(\d+)", step.command):
                logs, first = map(int, counted.groups())
                found.append(range(first, first + logs))
    assert len(found) == 2 * len(COMPARED)
    for one, next_one in zip(sorted(found, key=min), sorted(found, key=min)[1:], strict=False):
        assert one.stop <= next_one.start


def test_parts_are_chosen_by_name() -> None:
    assert [step.name for step in night().steps(["brokers", "cluster"])] == ["broker-check", "cluster-check"]
    assert night().steps() == night().steps(PARTS)
