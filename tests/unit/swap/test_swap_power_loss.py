"""A power cut may lose any part of what was not synced: every such state loads and recovers."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from kcompact.swap.recovery import interrupted_round as recovery
from kcompact.swap.steps import Remove, Rename, Step, SyncDir, removal_steps, replacement_steps
from tests.oracle.real_kafka import RealKafka
from tests.support import crash
from tests.support.crash import GROUPS, PARTITION, Scene, all_steps, assert_lawful, replace_content, stopped_states
from tests.support.power_loss import Disk, File, faults, load, make_real


def faults_of_all_power_cuts(scene: Scene, steps: Sequence[Step], limit: int = 4096) -> Iterator[set[str]]:
    """Yield what is wrong with each state that a power cut can leave, before or after any step."""
    disk = Disk.of(scene)
    for step in (*steps, SyncDir()):
        for names in disk.after_power_cuts("", limit, random.Random(7)):
            yield faults(load(names), scene.view, disk.kinds)
        disk.do(step)


@pytest.mark.parametrize("count", GROUPS)
def test_a_broker_starts_after_any_power_cut(tmp_path: Path, count: int) -> None:
    scene = crash.build(tmp_path / "data", GROUPS[count])
    found = list(faults_of_all_power_cuts(scene, all_steps(scene)))
    assert set().union(*found) == set()
    assert len(found) > 700 * count


def test_no_power_cut_leaves_a_log_of_a_deleted_segment_without_its_txnindex(tmp_path: Path) -> None:
    """A broker would not notice, and readers of committed records would see aborted ones."""
    scene = crash.build(tmp_path / "data", ())
    disk = Disk.of(scene)
    for step in removal_steps([path.name for path in sorted(scene.directory.glob(f"{0:020d}.*"))]):
        for names in disk.after_power_cuts("", 4096, random.Random(7)):
            assert f"{0:020d}.log" not in names or f"{0:020d}.txnindex" in names
        disk.do(step)


# --- Protocols with an error ----------------------------------------------------------------------------


def without_sync_after(steps: Sequence[Step], is_phase: Callable[[Step], bool]) -> list[Step]:
    """Return the steps without the syncs that follow a step of a phase."""
    kept: list[Step] = []
    last: Step | None = None
    for step in steps:
        if isinstance(step, SyncDir):
            if last is not None and is_phase(last):
                continue
        else:
            last = step
        kept.append(step)
    return kept


def renames_to(suffix: str) -> Callable[[Step], bool]:
    return lambda step: isinstance(step, Rename) and step.target.endswith(suffix)


def names_log(step: Step) -> bool:
    return isinstance(step, Rename) and step.source.endswith(".log.swap")


def two_groups_at_once(scene: Scene) -> list[Step]:
    """Stage the first group as `.cleaned`, then swap the second one."""
    first, second = (list(replacement_steps(cleaned, scene.staging)) for cleaned in scene.cleaned[:2])
    return first[: first.index(SyncDir())] + second


def without_guard(scene: Scene) -> list[Step]:
    """Rename straight from the staging directory to `.swap`."""
    result: list[Step] = []
    for step in all_steps(scene):
        match step:
            case Rename(source, target) if target.endswith(".cleaned"):
                result.append(Rename(source, target.replace(".cleaned", ".swap")))
            case Rename(source, _) if source.endswith(".cleaned"):
                pass
            case _:
                result.append(step)
    return result


def old_files_aside_first(scene: Scene) -> list[Step]:
    """Set the old files aside before the new ones are committed."""
    result = all_steps(scene)
    aside = [step for step in result if isinstance(step, Rename) and step.target.endswith(".deleted")]
    rest = [step for step in result if step not in aside]
    commit = next(number for number, step in enumerate(rest) if renames_to(".swap")(step))
    return rest[:commit] + aside + rest[commit:]


MUTANTS: dict[str, Callable[[Scene], list[Step]]] = {
    "no sync at the commit point": lambda scene: without_sync_after(all_steps(scene), renames_to(".swap")),
    "no sync when old files are aside": lambda scene: without_sync_after(all_steps(scene), renames_to(".deleted")),
    "new log and indexes named together": lambda scene: without_sync_after(all_steps(scene), names_log),
    "old logs and indexes aside together": lambda scene: without_sync_after(
        all_steps(scene), renames_to(".log.deleted")
    ),
    "no sync at all": lambda scene: [step for step in all_steps(scene) if not isinstance(step, SyncDir)],
    "two groups at once": two_groups_at_once,
    "no guard": without_guard,
    "old files aside first": old_files_aside_first,
    "old files removed last, new names first": lambda scene: [
        step for step in all_steps(scene) if not renames_to(".deleted")(step) and not isinstance(step, Remove)
    ],
}


@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_model_notices_a_broken_protocol(tmp_path: Path, mutant: str) -> None:
    scene = crash.build(tmp_path / "data", GROUPS[2])
    assert any(faults_of_all_power_cuts(scene, MUTANTS[mutant](scene), limit=512))


# --- Recovery -------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("count", "limit", "least"),
    [(1, 6, 150), *(pytest.param(count, limit, 300, marks=pytest.mark.slow) for count, limit in ((1, 24), (2, 4096)))],
)
def test_recovery_after_any_power_cut(tmp_path: Path, count: int, limit: int, least: int) -> None:
    scene = crash.build(tmp_path / "data", GROUPS[count])
    disk, chance = Disk.of(scene), random.Random(7)
    seen: set[tuple[object, ...]] = set()
    for step in (*all_steps(scene), SyncDir()):
        for partition in disk.after_power_cuts("", limit, chance):
            for staged in disk.after_power_cuts(scene.staging, 16, chance):
                key = (frozenset(partition.items()), frozenset(staged.items()))
                if key in seen:
                    continue
                seen.add(key)
                log_dir = tmp_path / f"cut-{len(seen)}"
                state = make_real(scene, partition, staged, scene.log_dir, log_dir)
                recovery.recover(state.directory, log_dir=state.log_dir)
                assert_lawful(state)
                shutil.rmtree(log_dir)
        disk.do(step)
    assert len(seen) > least


@pytest.mark.slow
def test_a_power_cut_during_recovery(tmp_path: Path) -> None:
    """Stop after a step, recover, and let the power fail in that recovery."""
    scene = crash.build(tmp_path / "data", GROUPS[1])
    chance, cuts = random.Random(7), 0
    steps = all_steps(scene)
    for number in range(1, len(steps)):
        disk = Disk.of(scene)
        for step in (*steps[:number], SyncDir(), SyncDir(scene.staging)):
            disk.do(step)
        for names in recovery_cuts(scene, disk, tmp_path / f"cut-{number}", chance):
            cuts += 1
            assert faults(load(names), scene.view, disk.kinds) == set()
            log_dir = tmp_path / f"cut-{number}-{cuts}"
            staged = disk.certain[scene.staging]
            state = make_real(scene, names, staged, scene.log_dir, log_dir)
            recovery.recover(state.directory)
            assert_lawful(state)
    assert cuts > 500


def recovery_cuts(scene: Scene, disk: Disk, log_dir: Path, chance: random.Random) -> Iterator[dict[str, File]]:
    state = make_real(scene, disk.certain[""], disk.certain[scene.staging], scene.log_dir, log_dir)
    steps: list[Step] = []
    recovery.recover(state.directory, after_step=steps.append)
    for step in steps:
        if isinstance(step, Remove) and step.name.startswith(scene.staging):
            break
        disk.do(step)
        yield from disk.after_power_cuts("", 4, chance)


# --- Kafka's own loader ---------------------------------------------------------------------------------


@pytest.mark.oracle
def test_kafkas_own_loader_agrees_with_the_model(tmp_path: Path) -> None:
    """Load a sample of the states with the real Kafka, with and without the marker of a clean shutdown."""
    scene = crash.build(tmp_path / "data", GROUPS[1])
    disk, chance, seen = Disk.of(scene), random.Random(7), set()
    with RealKafka() as kafka:
        for step in (*all_steps(scene), SyncDir()):
            for names in disk.after_power_cuts("", 8, chance):
                if (key := frozenset(names.items())) in seen:
                    continue
                seen.add(key)
                loaded = load(names)
                for is_clean in (True, False):
                    log_dir = tmp_path / f"load-{len(seen)}-{is_clean}"
                    state = make_real(scene, names, {}, scene.log_dir, log_dir)
                    assert kafka_reads(kafka, state, is_clean) == [
                        record for name in sorted(loaded) for record in loaded[name].records
                    ]
                    if is_clean:  # Otherwise the broker scans every segment and makes the indexes anew.
                        found = {path.name for path in state.directory.glob("*.txnindex")}
                        assert found == {name for name in loaded if name.endswith(".txnindex")}
            disk.do(step)
    assert len(seen) > 80


@pytest.mark.oracle
@pytest.mark.parametrize("is_clean", [True, False])
def test_kafkas_own_loader_after_every_step(tmp_path: Path, is_clean: bool) -> None:
    scene = crash.build(tmp_path / "data", GROUPS[3])
    with RealKafka() as kafka:
        for _, state in stopped_states(scene, tmp_path):
            records = kafka_reads(kafka, state, is_clean)
            assert [offset for offset, _, _ in records] == sorted({offset for offset, _, _ in records})
            assert {key: value for _, key, value in records} == scene.view


def kafka_reads(kafka: RealKafka, state: Scene, is_clean: bool) -> list[crash.Record]:
    """Return what a consumer reads after Kafka loaded the state, which it changes."""
    for path in state.directory.iterdir():
        if path.is_file():
            replace_content(path, path.read_bytes())  # Kafka writes into files; here they are shared between states.
    recovery_point = 602 if is_clean else 0
    (state.log_dir / "recovery-point-offset-checkpoint").write_text(f"0\n1\norders 0 {recovery_point}\n")
    config = {"cleanup.policy": "compact"}
    reply = kafka.load(
        state.log_dir, config=config, now_ms=crash.T0 + 1_000_000, in_place=True, clean_shutdown=is_clean
    )
    records = reply["partitions"][str(PARTITION)]["records"]
    return [(record.offset, record.key.decode(), record.value.decode()) for record in records]
