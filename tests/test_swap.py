"""The swap: its steps, every way it can be interrupted, and what recovery makes of that."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from kcompact.clean.staged_files import CleanedSegment, StagedFile
from kcompact.errors import (
    CorruptCheckpointError,
    CorruptDataError,
    LogChangedError,
    RecoveryNeededError,
    RefusedError,
    StorageError,
    UnsupportedError,
)
from kcompact.log.files import FileIdentity
from kcompact.log.lock import log_dir_lock
from kcompact.swap import manifest, recovery
from kcompact.swap.attributes import carry_over
from kcompact.swap.checkpoint import write_checkpoint
from kcompact.swap.open_directory import apply
from kcompact.swap.recovery import decide
from kcompact.swap.replace import replace_segments
from kcompact.swap.staging import create_staging, discard, write_manifest
from kcompact.swap.steps import Observer, Remove, RemoveDir, Rename, Step, SyncDir, replacement_steps
from tests import crash
from tests.crash import GROUPS, PARTITION, Scene, Stopped, assert_lawful, stopped_states
from tests.oracle.real_kafka import RealKafka

CASES = Path(__file__).parent / "cases" / "swap"


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return crash.build(tmp_path / "data", GROUPS[2])


@pytest.fixture
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of rounds: what reaches the disk is the power-loss model's business."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


def stop_after(number: int) -> Observer:
    left = itertools.count(number - 1, -1)

    def observer(step: Step) -> None:
        if next(left) <= 0:
            raise Stopped

    return observer


def stopped(scene: Scene, number: int) -> Scene:
    with pytest.raises(Stopped):
        crash.run_round(scene, stop_after(number))
    return scene


def listing(directory: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None
        for path in sorted(directory.rglob("*"))
    }


def checkpoint(scene: Scene) -> str:
    return (scene.log_dir / "cleaner-offset-checkpoint").read_text()


CHECKPOINT_BEFORE = "0\n1\nother 0 7\n"
CHECKPOINT_AFTER = "0\n2\norders 0 600\nother 0 7\n"


# --- Case files: the order of the steps -----------------------------------------------------------------


def case_blocks() -> Iterator[tuple[str, str, str]]:
    for path in sorted(CASES.glob("*.txt")):
        text = "\n".join(line.split("  #")[0] for line in path.read_text().splitlines() if line[:1] != "#")
        for block in re.split(r"\n{2,}", text.strip()):
            command, _, expected = block.partition("\n----\n")
            yield f"{path.stem}: {command}", command, expected.strip()


def long_name(short: str) -> str:
    """`0.log` -> `00000000000000000000.log`, as the case files have names short."""
    number, _, rest = short.partition(".")
    return f"{int(number):020d}.{rest}"


def short_steps(steps: Sequence[Step]) -> str:
    def shorten(match: re.Match[str]) -> str:
        return match[1].lstrip("0") or "0"

    return "\n".join(re.sub(r"\b(\d{20})\b", shorten, str(step)) for step in steps)


def identity(name: str) -> FileIdentity:
    return FileIdentity(name=name, device=1, inode=1, size_bytes=1, mtime_ns=1)


def segment_of_case(options: Mapping[str, str]) -> CleanedSegment:
    """`segments=0,2 by=0 txnindex=0 new-txnindex snapshots=2` -> the files that these mean."""
    bases = options["segments"].split(",")
    kinds = [".log", ".index", ".timeindex"]
    old = [base + kind for base in bases for kind in kinds]
    old += [f"{base}.txnindex" for base in options.get("txnindex", "").split(",") if base]
    old += [f"{base}.snapshot" for base in options.get("snapshots", "").split(",") if base]
    new = [options["by"] + kind for kind in (*kinds, *([".txnindex"] if "new-txnindex" in options else []))]
    return CleanedSegment(
        base_offset=int(options["by"]),
        files=tuple(
            StagedFile(name=long_name(name), staged_as=long_name(name), size_bytes=1, crc32c=1) for name in new
        ),
        replaces=tuple(identity(long_name(name)) for name in old),
    )


def run_case(command: str) -> str:
    return "\n".join(run_line(line) for line in command.splitlines())


def run_line(line: str) -> str:
    verb, *words = line.split()
    options = dict(word.partition("=")[::2] for word in words)
    if verb == "replace":
        return short_steps(replacement_steps(segment_of_case(options), ".kcompact-7f"))
    assert verb == "recover"
    present = {long_name(name) for name in options["found"].split(",")}
    damaged = {long_name(name) for name in options.get("damaged", "").split(",") if name}
    settlement = decide(
        segment_of_case(options),
        present,
        is_new=lambda name, _: name in present - damaged,
        is_old=lambda name, _: name in present - damaged,
    )
    problem = f": {settlement.problem}" if settlement.problem else ""
    return "\n".join(filter(None, (settlement.direction + problem, short_steps(settlement.steps))))


@pytest.mark.parametrize(("name", "command", "expected"), list(case_blocks()))
def test_case(name: str, command: str, expected: str) -> None:
    assert run_case(command).strip() == expected


# --- A round that nobody interrupts ---------------------------------------------------------------------


@pytest.mark.parametrize("count", GROUPS)
def test_a_whole_round(tmp_path: Path, count: int) -> None:
    scene = crash.build(tmp_path / "data", GROUPS[count])
    with log_dir_lock(scene.log_dir) as lock:
        for cleaned in scene.cleaned:
            replace_segments(scene.directory, scene.staging, cleaned, lock.check)
        write_checkpoint(scene.log_dir, PARTITION, scene.end_offset)
        discard(scene.directory, scene.staging)
    assert assert_lawful(scene) == [True] * count
    assert checkpoint(scene) == CHECKPOINT_AFTER
    discard(scene.directory, scene.staging)  # nothing to do


def test_a_brokers_deleted_file_in_the_way_is_swept(scene: Scene) -> None:
    garbage = scene.directory / f"{0:020d}.log.deleted"
    garbage.write_bytes(b"an older segment that a broker's cleaner had replaced")
    other = scene.directory / f"{77:020d}.log.deleted"
    other.write_bytes(b"retention")
    crash.run_round(scene)
    assert not garbage.exists()
    assert other.read_bytes() == b"retention"
    other.unlink()
    assert_lawful(scene)


# --- Interrupted ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_sync")
@pytest.mark.parametrize("count", GROUPS)
def test_recovery_after_every_step(tmp_path: Path, count: int) -> None:
    scene = crash.build(tmp_path / "data", GROUPS[count])
    seen = []
    for number, state in stopped_states(scene, tmp_path):
        recovery.recover(state.directory, log_dir=state.log_dir)
        done = assert_lawful(state)
        seen.append(sum(done))
        assert checkpoint(state) == (CHECKPOINT_AFTER if all(done) else CHECKPOINT_BEFORE), number
        settled = listing(state.log_dir)
        again = recovery.recover(state.directory, log_dir=state.log_dir)
        assert not again.changed
        assert listing(state.log_dir) == settled
    assert sorted(set(seen)) == list(range(count + 1))
    assert seen == sorted(seen), "a later stop left less done"


@pytest.mark.usefixtures("no_sync")
@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_recovery_after_every_step_of_recovery(tmp_path: Path, count: int) -> None:
    scene = crash.build(tmp_path / "data", GROUPS[count])
    pairs = 0

    def recover(state: Scene, observer: Observer) -> None:
        recovery.recover(state.directory, log_dir=state.log_dir, after_step=observer)

    for number, state in stopped_states(scene, tmp_path):
        for _, again in stopped_states(state, tmp_path / f"nested-{number}", recover):
            recovery.recover(again.directory, log_dir=again.log_dir)
            assert_lawful(again)
            pairs += 1
    assert pairs > 300


def recover(state: Scene, observer: Observer) -> None:
    recovery.recover(state.directory, log_dir=state.log_dir, after_step=observer)


def rewrite(path: Path, content: bytes) -> None:
    """Put other bytes under the name; the file itself may be shared with the next state."""
    path.unlink()
    path.write_bytes(content)


@pytest.mark.usefixtures("no_sync")
@pytest.mark.parametrize("content", [b"", b"garbage"])
@pytest.mark.parametrize("suffix", [".log", ".timeindex", ".txnindex"])
def test_a_damaged_new_file_is_never_installed(tmp_path: Path, suffix: str, content: bytes) -> None:
    scene = crash.build(tmp_path / "data", GROUPS[1])
    undone = 0
    for number, state in stopped_states(scene, tmp_path):
        names = {path.name for path in state.directory.iterdir()}
        if f"{0:020d}{suffix}.swap" not in names or any(name.endswith(".cleaned") for name in names):
            continue
        rewrite(state.directory / f"{0:020d}{suffix}.swap", content)
        if f"{0:020d}.log.swap" not in names:  # The old files are beside a new log that is already in place.
            assert_stops(state, "damaged or missing")
            continue
        for _, again in stopped_states(state, tmp_path / f"nested-{number}", recover):
            recovery.recover(again.directory)
            assert assert_lawful(again) == [False]
            undone += 1
    assert undone > 100


def assert_stops(state: Scene, problem: str) -> RecoveryNeededError:
    before = listing(state.log_dir)
    with pytest.raises(RecoveryNeededError, match=problem) as stop:
        recovery.recover(state.directory, log_dir=state.log_dir)
    assert stop.value.exit_code == 8
    assert listing(state.log_dir) == before
    return stop.value


def test_a_copy_of_an_interrupted_directory_is_recovered_too(tmp_path: Path) -> None:
    scene = crash.build(tmp_path / "data", GROUPS[1])
    for number, state in stopped_states(scene, tmp_path):
        copy = tmp_path / f"copy-{number}"
        shutil.copytree(state.log_dir, copy, copy_function=shutil.copy2)
        report = recovery.recover(copy / str(PARTITION))
        for name in report.left_behind:  # Without the inode we cannot know that they are ours.
            (copy / str(PARTITION) / name).unlink()
        assert_lawful(scene.moved(copy))


# --- Power loss: any part of what was not synced may be missing -----------------------------------------


@dataclass(frozen=True)
class File:
    """A file in the model: whose it is, and for a log its records."""

    owner: str
    suffix: str
    records: tuple[crash.Record, ...] = ()


Names = Mapping[str, File]
Change = tuple[str | None, str | None, File]
"""In one directory: the name that goes, the name that comes, the file."""


@dataclass
class Disk:
    """Two directories, each with what is certain and the changes that a power cut may keep or drop, each alone."""

    certain: dict[str, dict[str, File]]
    pending: dict[str, list[Change]]
    current: dict[str, File]
    kinds: dict[str, set[str]]

    @staticmethod
    def of(scene: Scene) -> Disk:
        certain: dict[str, dict[str, File]] = {"": {}, scene.staging: {}}
        for base, records in crash.SEGMENTS.items():
            for path in scene.directory.glob(f"{base:020d}.*"):
                kept = tuple(records) if path.suffix == ".log" else ()
                certain[""][path.name] = File(f"old {base}", path.suffix, kept)
        for cleaned in scene.cleaned:
            bases = sorted({int(file.name[:20]) for file in cleaned.replaces})
            for staged in cleaned.files:
                suffix = Path(staged.name).suffix
                kept = tuple(crash.survivors(bases)) if suffix == ".log" else ()
                certain[scene.staging][staged.staged_as] = File(f"new {cleaned.base_offset}", suffix, kept)
        current = {
            f"{directory}/{name}".lstrip("/"): file
            for directory, names in certain.items()
            for name, file in names.items()
        }
        kinds: dict[str, set[str]] = {}
        for file in current.values():
            kinds.setdefault(file.owner, set()).add(file.suffix)
        return Disk(certain, {"": [], scene.staging: []}, current, kinds)

    def do(self, step: Step) -> None:
        match step:
            case Rename(source, target):
                file = self.current.pop(source)
                self.current[target] = file
                (here, name), (there, other) = split(source), split(target)
                if here == there:
                    self.pending[here].append((name, other, file))
                else:  # The two directories reach the disk independently.
                    self.pending[here].append((name, None, file))
                    self.pending[there].append((None, other, file))
            case Remove(name):
                directory, leaf = split(name)
                self.pending[directory].append((leaf, None, self.current.pop(name)))
            case SyncDir(name):
                self.certain[name] = persist(self.certain[name], self.pending[name])
                self.pending[name] = []
            case RemoveDir():
                pass

    def after_power_cuts(self, directory: str, limit: int, chance: random.Random) -> Iterator[dict[str, File]]:
        """Yield the directory for each subset of the pending changes, or for `limit` subsets at random."""
        changes = self.pending[directory]
        if 2 ** len(changes) <= limit:
            masks: Iterator[int] = iter(range(2 ** len(changes)))
        else:
            masks = (chance.getrandbits(len(changes)) for _ in range(limit))
        for mask in masks:
            kept = [change for place, change in enumerate(changes) if mask >> place & 1]
            yield persist(self.certain[directory], kept)


def split(name: str) -> tuple[str, str]:
    directory, _, leaf = name.rpartition("/")
    return directory, leaf


def persist(names: Names, changes: Sequence[Change]) -> dict[str, File]:
    """Apply changes whose predecessors may be missing: a file ends under the last name that was kept."""
    result = dict(names)
    for gone, come, file in changes:
        for name in [name for name, other in result.items() if other is file and (come or name == gone)]:
            del result[name]
        if come is not None:
            result[come] = file
    return result


def load(names: Names) -> dict[str, File]:
    """Return the files after a broker's start. Rule: LogLoader.load, passes 1 to 4."""
    files = {name: file for name, file in names.items() if not name.endswith(".deleted")}
    bases = {name: int(name[:20]) for name in files}
    guard = min((bases[name] for name in files if name.endswith(".cleaned")), default=None)
    files = {
        name: file
        for name, file in files.items()
        if not name.endswith(".cleaned") and not (name.endswith(".swap") and guard is not None and bases[name] >= guard)
    }
    low, high = 2**63, -1
    for name in [name for name in files if name.endswith(".log.swap")]:
        base = bases[name]
        low = min(low, base)
        high = max(high, max((offset + 1 for offset, _, _ in files[name].records), default=base))
        for suffix in (".index", ".timeindex"):  # LogSegment.open makes the indexes that it misses, padded.
            files.setdefault(f"{base:020d}{suffix}.swap", File("padded", suffix))
    files = {name: file for name, file in files.items() if name.endswith(".swap") or not low <= int(name[:20]) < high}
    for name in [name for name in files if name.endswith(".swap")]:
        files[name.removesuffix(".swap")] = files.pop(name)
    return {name: file for name, file in files.items() if f"{name[:20]}.log" in files}


def faults(names: Names, view: Mapping[str, str], kinds: Mapping[str, set[str]]) -> set[str]:
    """Return what is wrong with a loaded log: nothing, or some of lost, doubled, wrong index, missing index."""
    logs = sorted(name for name in names if name.endswith(".log"))
    records = [record for name in logs for record in names[name].records]
    offsets = [offset for offset, _, _ in records]
    found = set()
    if any(later <= earlier for earlier, later in itertools.pairwise(offsets)):
        found.add("doubled")
    if {key: value for _, key, value in sorted(records)} != view:
        found.add("lost")
    for log in logs:
        for suffix in (".index", ".timeindex", ".txnindex"):
            index = names.get(log.removesuffix(".log") + suffix)
            if index is None:  # A missing .txnindex the loader does not even notice.
                found |= {"missing index"} if suffix in kinds[names[log].owner] else set()
            elif index.owner not in (names[log].owner, "padded"):
                found.add("wrong index")
    return found


def faults_of_all_power_cuts(scene: Scene, steps: Sequence[Step], limit: int = 4096) -> tuple[int, set[str]]:
    """Return how many states a power cut can leave, before or after any step, and all that is wrong with them."""
    disk, states, found = Disk.of(scene), 0, set()
    for step in (*steps, SyncDir()):
        for names in disk.after_power_cuts("", limit, random.Random(7)):
            states += 1
            found |= faults(load(names), scene.view, disk.kinds)
        disk.do(step)
    return states, found


def all_steps(scene: Scene) -> list[Step]:
    return [step for cleaned in scene.cleaned for step in replacement_steps(cleaned, scene.staging)]


@pytest.mark.parametrize("count", GROUPS)
def test_a_broker_starts_after_any_power_cut(tmp_path: Path, count: int) -> None:
    scene = crash.build(tmp_path / "data", GROUPS[count])
    states, found = faults_of_all_power_cuts(scene, all_steps(scene))
    assert found == set()
    assert states > 700 * count


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
    commit = next(place for place, step in enumerate(rest) if renames_to(".swap")(step))
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


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_model_notices_a_broken_protocol(tmp_path: Path, mutant: str) -> None:
    scene = crash.build(tmp_path / "data", GROUPS[2])
    _, found = faults_of_all_power_cuts(scene, MUTANTS[mutant](scene), limit=512)
    assert found


def make_real(scene: Scene, partition: Names, staged: Names, source: Path, log_dir: Path) -> Scene:
    """Lay a state of the model out as a directory. `source` is the untouched scene; the inodes are its own."""
    state = scene.moved(log_dir)
    (state.directory / state.staging).mkdir(parents=True, mode=0o700)
    original = source / str(PARTITION)
    origin = {}
    for base in crash.SEGMENTS:
        origin.update({(f"old {base}", path.suffix): path for path in original.glob(f"{base:020d}.*")})
    for cleaned in scene.cleaned:
        for staged_file in cleaned.files:
            key = (f"new {cleaned.base_offset}", Path(staged_file.name).suffix)
            origin[key] = original / scene.staging / staged_file.staged_as
    for folder, names in ((state.directory, partition), (state.directory / state.staging, staged)):
        for name, model in names.items():
            os.link(origin[model.owner, model.suffix], folder / name)
    os.link(original / scene.staging / manifest.NAME, state.directory / state.staging / manifest.NAME)
    for name in ("leader-epoch-checkpoint", "partition.metadata"):
        os.link(original / name, state.directory / name)
    os.link(source / "cleaner-offset-checkpoint", log_dir / "cleaner-offset-checkpoint")
    return state


@pytest.mark.usefixtures("no_sync")
@pytest.mark.parametrize(("count", "limit"), [(1, 24), pytest.param(2, 4096, marks=pytest.mark.slow)])
def test_recovery_after_any_power_cut(tmp_path: Path, count: int, limit: int) -> None:
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
    assert len(seen) > 300


@pytest.mark.slow
@pytest.mark.usefixtures("no_sync")
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


@pytest.mark.oracle
@pytest.mark.usefixtures("no_sync")
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
@pytest.mark.usefixtures("no_sync")
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
            rewrite(path, path.read_bytes())  # Kafka writes into files; here they are shared between states.
    recovery_point = 602 if is_clean else 0
    (state.log_dir / "recovery-point-offset-checkpoint").write_text(f"0\n1\norders 0 {recovery_point}\n")
    config = {"cleanup.policy": "compact"}
    reply = kafka.load(
        state.log_dir, config=config, now_ms=crash.T0 + 1_000_000, in_place=True, clean_shutdown=is_clean
    )
    records = reply["partitions"][str(PARTITION)]["records"]
    return [(record.offset, record.key.decode(), record.value.decode()) for record in records]


# --- Failing calls --------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["rename", "fsync", "unlink"])
def test_any_call_may_fail(tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = getattr(os, call)
    outcomes = set()
    for number in itertools.count(1):
        scene = crash.build(tmp_path / f"data-{number}", GROUPS[2])
        calls = itertools.count(1)

        def failing(*arguments: object, limit: int = number, **options: object) -> None:
            if next(calls) >= limit:  # noqa: B023 - used before the loop goes on
                raise OSError(28, "No space left on device")
            real(*arguments, **options)

        monkeypatch.setattr(os, call, failing)
        try:
            for cleaned in scene.cleaned:
                replace_segments(scene.directory, scene.staging, cleaned, lambda: None)
        except StorageError:  # The first step of a group: nothing is left to recover.
            discard(scene.directory, scene.staging)
        except RecoveryNeededError as error:
            outcome = re.search(r"before|after|unknown", str(error))
            assert outcome is not None
            outcomes.add(outcome[0])
            if any(path.suffix in (".cleaned", ".swap", ".deleted") for path in scene.directory.iterdir()):
                with pytest.raises(RecoveryNeededError):  # The manifest is still needed.
                    discard(scene.directory, scene.staging)
        else:
            break
        finally:
            monkeypatch.setattr(os, call, real)
        recovery.recover(scene.directory)
        assert_lawful(scene)
    assert number > 10
    assert (
        outcomes == {"rename": {"before", "after"}, "fsync": {"before", "after", "unknown"}, "unlink": {"after"}}[call]
    )


# --- States in which nothing may be touched -------------------------------------------------------------


def log_of(base_offset: int, suffix: str = "") -> str:
    return f"{base_offset:020d}.log{suffix}"


def test_an_uncommitted_swap_without_its_old_files_is_left_alone(scene: Scene) -> None:
    stopped(scene, 7)
    (scene.directory / log_of(100)).unlink()
    error = assert_stops(scene, "old ones are missing")
    assert any(name.endswith(".cleaned") for name in error.files)


def test_two_swaps_under_way_are_left_alone(scene: Scene) -> None:
    stopped(scene, 7)
    later = scene.cleaned[1].files[0]
    (scene.directory / scene.staging / later.staged_as).rename(scene.directory / f"{later.name}.cleaned")
    assert_stops(scene, "more than one swap")


@pytest.mark.parametrize("name", [log_of(0, ".swap"), log_of(700, ".cleaned"), "x.swap", "0.log.cleaned"])
@pytest.mark.parametrize("with_round", [True, False])
def test_foreign_leftovers_are_left_alone(scene: Scene, name: str, with_round: bool) -> None:
    if not with_round:
        discard(scene.directory, scene.staging)
    (scene.directory / name).write_bytes(b"a broker's")
    if with_round and name == log_of(0, ".swap"):
        assert_stops(scene, "damaged or missing")  # In the manifest, so ours: but not what we wrote.
        return
    error = assert_stops(scene, "knows nothing about")
    assert error.files == (name,)
    with pytest.raises(UnsupportedError):
        recovery.recover(scene.directory, foreign=True)
    if with_round:
        before = listing(scene.log_dir)
        with pytest.raises(RecoveryNeededError):
            replace_segments(scene.directory, scene.staging, scene.cleaned[0], lambda: None)
        with pytest.raises(RecoveryNeededError):
            discard(scene.directory, scene.staging)
        assert listing(scene.log_dir) == before


@pytest.mark.parametrize("done", [True, False])
def test_a_brokers_deleted_files_are_reported_and_left(scene: Scene, done: bool) -> None:
    if done:  # A broker came after us, cleaned again and left the old file of its own swap.
        stopped(scene, len(all_steps(scene)))
    (scene.directory / log_of(0, ".deleted")).write_bytes(b"a broker's")
    report = recovery.recover(scene.directory)
    assert report.left_behind == (log_of(0, ".deleted"),)
    assert report.removed_staging == (scene.staging,)
    assert not recovery.recover(scene.directory).changed
    (scene.directory / log_of(0, ".deleted")).unlink()
    assert assert_lawful(scene) == [done, done]


def test_staging_without_a_manifest_is_removed(scene: Scene) -> None:
    (scene.directory / scene.staging / manifest.NAME).unlink()
    assert recovery.recover(scene.directory).removed_staging == (scene.staging,)
    assert assert_lawful(scene) == [False, False]


def test_two_rounds_that_never_began_are_removed(scene: Scene) -> None:
    other = create_staging(scene.directory)
    assert recovery.recover(scene.directory, log_dir=scene.log_dir).removed_staging == tuple(
        sorted((scene.staging, other))
    )
    assert_lawful(scene)


def test_a_lone_checkpoint_tmp_is_harmless(scene: Scene) -> None:
    (scene.log_dir / "cleaner-offset-checkpoint.tmp").write_text("0\n")
    crash.run_round(scene)
    assert checkpoint(scene) == CHECKPOINT_AFTER
    assert not (scene.log_dir / "cleaner-offset-checkpoint.tmp").exists()


def test_a_link_with_the_name_of_a_staging_directory_is_refused(scene: Scene, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "precious").touch()
    (scene.directory / ".kcompact-0123456789abcdef").symlink_to(victim)
    with pytest.raises(RefusedError, match="not a directory"):
        recovery.recover(scene.directory)
    assert (victim / "precious").exists()


# --- Refused before anything changes --------------------------------------------------------------------


def touch_old(scene: Scene) -> None:
    os.utime(scene.directory / log_of(100), ns=(1, 1))


def append_to_old(scene: Scene) -> None:
    with (scene.directory / log_of(0)).open("ab") as file:
        file.write(b"x")


def replace_old(scene: Scene) -> None:
    path = scene.directory / log_of(0)
    copy = path.with_name("copy")
    shutil.copy2(path, copy)
    copy.rename(path)


def remove_old(scene: Scene) -> None:
    (scene.directory / f"{100:020d}.snapshot").unlink()


def add_segment(scene: Scene) -> None:
    (scene.directory / log_of(50)).touch()


def add_index(scene: Scene) -> None:
    (scene.directory / f"{300:020d}.txnindex").touch()


def remove_manifest(scene: Scene) -> None:
    (scene.directory / scene.staging / manifest.NAME).unlink()


@pytest.mark.parametrize(
    "change", [touch_old, append_to_old, replace_old, remove_old, add_segment, add_index, remove_manifest]
)
def test_a_changed_partition_is_not_touched(scene: Scene, change: Callable[[Scene], None]) -> None:
    group = scene.cleaned[1 if change is add_index else 0]
    change(scene)
    before = listing(scene.log_dir)
    with pytest.raises(LogChangedError) as error:
        replace_segments(scene.directory, scene.staging, group, lambda: None)
    assert error.value.exit_code == 6
    assert listing(scene.log_dir) == before


def test_a_lost_lock_stops_the_swap(scene: Scene) -> None:
    before = listing(scene.directory)
    with log_dir_lock(scene.log_dir) as lock:
        (scene.log_dir / ".lock").rename(scene.log_dir / "moved")
        with pytest.raises(LogChangedError):
            replace_segments(scene.directory, scene.staging, scene.cleaned[0], lock.check)
    assert listing(scene.directory) == before


@pytest.mark.parametrize("content", [b"", b"short"])
def test_a_staged_file_that_is_not_what_was_written(scene: Scene, content: bytes) -> None:
    staged = scene.directory / scene.staging / scene.cleaned[0].files[0].staged_as
    staged.write_bytes(content)
    with pytest.raises(CorruptDataError, match="bytes"):
        replace_segments(scene.directory, scene.staging, scene.cleaned[0], lambda: None)


def test_a_rename_does_not_overwrite(scene: Scene) -> None:
    before = listing(scene.directory)
    with pytest.raises(StorageError, match="in the way"):
        apply(scene.directory, [Rename(log_of(100), log_of(0))])
    assert listing(scene.directory) == before


# --- Staging, attributes, manifest, checkpoint ----------------------------------------------------------


def test_a_staging_directory_is_private_and_new(scene: Scene) -> None:
    other = create_staging(scene.directory)
    assert other != scene.staging
    assert stat.S_IMODE((scene.directory / other).stat().st_mode) == 0o700


def test_a_partition_behind_a_link_is_refused(scene: Scene, tmp_path: Path) -> None:
    link = tmp_path / "orders-0"
    link.symlink_to(scene.directory)
    with pytest.raises(RefusedError):
        create_staging(link)


@pytest.mark.skipif(os.geteuid() != 0, reason="root only")
@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_root_does_not_work_where_others_may_write(scene: Scene, mode: int) -> None:
    scene.directory.chmod(mode)
    with pytest.raises(RefusedError, match="root will not"):
        create_staging(scene.directory)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_root_makes_belongs_to_the_owner(scene: Scene) -> None:
    os.chown(scene.directory, 1234, 2345)
    staging = create_staging(scene.directory)
    write_manifest(scene.directory, staging, scene.cleaned, topic_partition=PARTITION, end_offset=None)
    for path in (scene.directory / staging, scene.directory / staging / manifest.NAME):
        assert (path.stat().st_uid, path.stat().st_gid) == (1234, 2345)


def test_mode_and_time_are_carried_over(scene: Scene) -> None:
    group = scene.cleaned[0]
    for identity in group.replaces:
        (scene.directory / identity.name).chmod(0o640)
    (scene.directory / f"{0:020d}.index").chmod(0o604)
    last = next(one for one in group.replaces if one.name == log_of(100))
    carry_over(scene.directory, scene.staging, group)
    for file in group.files:
        status = (scene.directory / scene.staging / file.staged_as).stat()
        kind = Path(file.name).suffix
        assert stat.S_IMODE(status.st_mode) == (0o604 if kind == ".index" else 0o640)
        assert status.st_size == file.size_bytes
        if kind != ".txnindex":
            assert status.st_mtime_ns == last.mtime_ns // 1_000_000 * 1_000_000


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_the_owner_is_carried_over(scene: Scene) -> None:
    group = scene.cleaned[0]
    os.chown(scene.directory / log_of(0), 1234, 2345)
    carry_over(scene.directory, scene.staging, group)
    status = (scene.directory / scene.staging / group.files[0].staged_as).stat()
    assert (status.st_uid, status.st_gid) == (1234, 2345)


def test_extended_attributes_are_carried_over(scene: Scene) -> None:
    group = scene.cleaned[0]
    staged = scene.directory / scene.staging / group.files[0].staged_as
    try:
        os.setxattr(scene.directory / log_of(0), "user.owner", b"team")
        os.setxattr(staged, "user.stray", b"from the directory")
    except OSError:
        pytest.skip("no user attributes on this file system")
    carry_over(scene.directory, scene.staging, group)
    assert os.listxattr(staged) == ["user.owner"]
    assert os.getxattr(staged, "user.owner") == b"team"


@pytest.mark.parametrize("call", ["fchmod", "listxattr", "utime", "fsync"])
def test_what_cannot_be_carried_over_is_refused(scene: Scene, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(RefusedError, match="cannot be carried over"):
        carry_over(scene.directory, scene.staging, scene.cleaned[0])


def test_a_file_system_that_ignores_chmod_is_refused(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    (scene.directory / log_of(0)).chmod(0o640)
    monkeypatch.setattr(os, "fchmod", lambda fd, mode: None)
    with pytest.raises(RefusedError, match="did not take"):
        carry_over(scene.directory, scene.staging, scene.cleaned[0])


def manifest_of(scene: Scene) -> Path:
    return scene.directory / scene.staging / manifest.NAME


def edit(text: str, path: Sequence[str | int], value: object) -> str:
    document = json.loads(text)
    target = document
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    return json.dumps(document)


BAD_FIELDS: list[tuple[list[str | int], object]] = [
    (["version"], 2),
    (["version"], True),
    (["version"], 1.0),
    (["pid"], -1),
    (["topic"], "../x"),
    (["partition"], 2**40),
    (["end_offset"], "600"),
    (["extra"], 1),
    (["groups"], {}),
    (["groups", 0], 7),
    (["groups", 0, "base_offset"], 100),
    (["groups", 0, "inputs"], []),
    (["groups", 0, "inputs", 0, "name"], "../../etc/passwd"),
    (["groups", 0, "inputs", 0, "name"], log_of(0, ".swap")),
    (["groups", 0, "inputs", 0, "name"], log_of(100)),
    (["groups", 0, "inputs", 0, "inode"], None),
    (["groups", 0, "outputs"], []),
    (["groups", 0, "outputs", 0, "name"], log_of(600)),
    (["groups", 0, "outputs", 0, "name"], f"{0:020d}.snapshot"),
    (["groups", 0, "outputs", 0, "staged_as"], "../0.log"),
    (["groups", 0, "outputs", 0, "staged_as"], ".."),
    (["groups", 0, "outputs", 0, "crc32c"], [1]),
    (["groups", 1, "base_offset"], 0),
]


@pytest.mark.parametrize(("path", "value"), BAD_FIELDS)
def test_a_malformed_manifest_explains_nothing(scene: Scene, path: Sequence[str | int], value: object) -> None:
    stopped(scene, 7)
    manifest = manifest_of(scene)
    rewrite(manifest, edit(manifest.read_text(), path, value).encode())
    assert_stops(scene, "knows nothing about")


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[" * 100_000, b"null", b'{"version":1,"version":1}', b"\xff", b'{"version":NaN}'],
)
def test_a_manifest_that_is_no_json_object_of_ours(scene: Scene, content: bytes) -> None:
    stopped(scene, 7)
    rewrite(manifest_of(scene), content)
    assert_stops(scene, "knows nothing about")


def test_a_huge_manifest_is_not_read(scene: Scene) -> None:
    stopped(scene, 7)
    os.truncate(manifest_of(scene), manifest.MAX_BYTES + 1)
    assert_stops(scene, "knows nothing about")


def test_a_manifest_may_be_written_again_for_the_next_wave(scene: Scene) -> None:
    first, second = scene.cleaned
    write_manifest(scene.directory, scene.staging, [first], topic_partition=PARTITION, end_offset=None)
    replace_segments(scene.directory, scene.staging, first, lambda: None)
    write_manifest(scene.directory, scene.staging, [second], topic_partition=PARTITION, end_offset=600)
    replace_segments(scene.directory, scene.staging, second, lambda: None)
    report = recovery.recover(scene.directory, log_dir=scene.log_dir)
    assert report.checkpoint == 600
    assert assert_lawful(scene) == [True, True]


@pytest.mark.parametrize("later", ["changed", "ahead", "malformed", "elsewhere"])
def test_recovery_never_puts_the_checkpoint_ahead(scene: Scene, later: str, tmp_path: Path) -> None:
    stopped(scene, len(all_steps(scene)))
    path = scene.log_dir / "cleaner-offset-checkpoint"
    if later == "changed":
        rewrite(scene.directory / log_of(200), b"a broker cleaned it again")
    elif later == "ahead":
        path.write_text("0\n1\norders 0 700\n")
    elif later == "malformed":
        path.write_text("0\n2\n")
    before = path.read_bytes()
    report = recovery.recover(scene.directory, log_dir=None if later == "elsewhere" else scene.log_dir)
    assert report.checkpoint is None
    assert report.removed_staging
    assert path.read_bytes() == before


def test_the_checkpoint_keeps_its_other_entries_its_owner_and_mode(scene: Scene) -> None:
    path = scene.log_dir / "cleaner-offset-checkpoint"
    path.chmod(0o604)
    if os.geteuid() == 0:
        os.chown(path, 1234, 2345)
    before = path.stat()
    write_checkpoint(scene.log_dir, PARTITION, 5)
    write_checkpoint(scene.log_dir, PARTITION, 600)
    assert path.read_text() == CHECKPOINT_AFTER
    after = path.stat()
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)


@pytest.mark.parametrize("like", ["replication-offset-checkpoint", None])
def test_a_new_checkpoint(scene: Scene, like: str | None) -> None:
    path = scene.log_dir / "cleaner-offset-checkpoint"
    path.unlink()
    if like is not None:
        (scene.log_dir / like).write_text("0\n0\n")
        (scene.log_dir / like).chmod(0o640)
    if os.geteuid() == 0:
        os.chown(scene.log_dir, 1234, 2345)
    old_mask = os.umask(0o077)
    try:
        write_checkpoint(scene.log_dir, PARTITION, 600)
    finally:
        os.umask(old_mask)
    assert path.read_text() == "0\n1\norders 0 600\n"
    assert stat.S_IMODE(path.stat().st_mode) == (0o640 if like else 0o644)
    if os.geteuid() == 0 and like is None:
        assert path.stat().st_uid == 1234


@pytest.mark.parametrize("content", ["0\n2\norders 0 1\n", "1\n0\n", "0\n1\norders zero 1\n"])
def test_a_malformed_checkpoint_is_not_touched(scene: Scene, content: str) -> None:
    path = scene.log_dir / "cleaner-offset-checkpoint"
    path.write_text(content)
    with pytest.raises(CorruptCheckpointError):
        write_checkpoint(scene.log_dir, PARTITION, 600)
    assert path.read_text() == content
    assert sorted(item.name for item in scene.log_dir.iterdir()) == ["cleaner-offset-checkpoint", str(PARTITION)]


@pytest.mark.parametrize("call", ["write", "fsync", "replace", "fchmod"])
def test_a_checkpoint_that_cannot_be_written_stays(scene: Scene, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    (scene.log_dir / "cleaner-offset-checkpoint").chmod(0o640)
    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(StorageError):
        write_checkpoint(scene.log_dir, PARTITION, 600)
    monkeypatch.undo()
    assert checkpoint(scene) == CHECKPOINT_BEFORE
