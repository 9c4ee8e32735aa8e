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
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kcompact import swap
from kcompact.errors import (
    CorruptCheckpointError,
    CorruptDataError,
    LogChangedError,
    RecoveryNeededError,
    RefusedError,
    StorageError,
    UnsupportedError,
)
from kcompact.format.names import TopicPartition
from kcompact.lock import log_dir_lock
from kcompact.log import FileIdentity
from kcompact.swap import Rename, Step, SyncDir
from kcompact.write import CleanedSegment, StagedFile
from tests import crash
from tests.crash import GROUPS, PARTITION, Scene, Stopped, assert_lawful, groups_done, stopped_states

CASES = Path(__file__).parent / "cases" / "swap"


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return crash.build(tmp_path / "data", GROUPS[2])


@pytest.fixture
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of rounds: what reaches the disk is the power-loss model's business."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


def stop_after(number: int) -> swap.Observer:
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
        return short_steps(swap.steps(segment_of_case(options), ".kcompact-7f"))
    assert verb == "recover"
    present = {long_name(name) for name in options["found"].split(",")}
    damaged = {long_name(name) for name in options.get("damaged", "").split(",") if name}
    settlement = swap.settle(
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
            swap.replace(scene.directory, scene.staging, cleaned, lock.check)
        swap.write_checkpoint(scene.log_dir, PARTITION, scene.end_offset)
        swap.discard(scene.directory, scene.staging)
    assert assert_lawful(scene) == [True] * count
    assert checkpoint(scene) == CHECKPOINT_AFTER
    swap.discard(scene.directory, scene.staging)  # nothing to do


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
        swap.recover(state.directory, log_dir=state.log_dir)
        done = assert_lawful(state)
        seen.append(sum(done))
        assert checkpoint(state) == (CHECKPOINT_AFTER if all(done) else CHECKPOINT_BEFORE), number
        settled = listing(state.log_dir)
        again = swap.recover(state.directory, log_dir=state.log_dir)
        assert not again.changed
        assert listing(state.log_dir) == settled
    assert sorted(set(seen)) == list(range(count + 1))
    assert seen == sorted(seen), "a later stop left less done"


@pytest.mark.usefixtures("no_sync")
@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_recovery_after_every_step_of_recovery(tmp_path: Path, count: int) -> None:
    scene = crash.build(tmp_path / "data", GROUPS[count])
    pairs = 0

    def recover(state: Scene, observer: swap.Observer) -> None:
        swap.recover(state.directory, log_dir=state.log_dir, after_step=observer)

    for number, state in stopped_states(scene, tmp_path):
        for _, again in stopped_states(state, tmp_path / f"nested-{number}", recover):
            swap.recover(again.directory, log_dir=again.log_dir)
            assert_lawful(again)
            pairs += 1
    assert pairs > 300


def recover(state: Scene, observer: swap.Observer) -> None:
    swap.recover(state.directory, log_dir=state.log_dir, after_step=observer)


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
            swap.recover(again.directory)
            assert assert_lawful(again) == [False]
            undone += 1
    assert undone > 100


def assert_stops(state: Scene, problem: str) -> RecoveryNeededError:
    before = listing(state.log_dir)
    with pytest.raises(RecoveryNeededError, match=problem) as stop:
        swap.recover(state.directory, log_dir=state.log_dir)
    assert stop.value.exit_code == 8
    assert listing(state.log_dir) == before
    return stop.value


def test_a_copy_of_an_interrupted_directory_is_recovered_too(tmp_path: Path) -> None:
    scene = crash.build(tmp_path / "data", GROUPS[1])
    for number, state in stopped_states(scene, tmp_path):
        copy = tmp_path / f"copy-{number}"
        shutil.copytree(state.log_dir, copy, copy_function=shutil.copy2)
        report = swap.recover(copy / str(PARTITION))
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
            for file in cleaned.files:
                suffix = Path(file.name).suffix
                kept = tuple(crash.survivors(bases)) if suffix == ".log" else ()
                certain[scene.staging][file.staged_as] = File(f"new {cleaned.base_offset}", suffix, kept)
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
            case swap.Remove(name):
                directory, leaf = split(name)
                self.pending[directory].append((leaf, None, self.current.pop(name)))
            case SyncDir(name):
                self.certain[name] = persist(self.certain[name], self.pending[name])
                self.pending[name] = []
            case swap.RemoveDir():
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
            if index is None:  # Of a .txnindex the loader does not even notice: aborted records come to life.
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
    return [step for cleaned in scene.cleaned for step in swap.steps(cleaned, scene.staging)]


@pytest.mark.parametrize("count", GROUPS)
def test_a_broker_starts_after_any_power_cut(tmp_path: Path, count: int) -> None:
    scene = crash.build(tmp_path / "data", GROUPS[count])
    states, found = faults_of_all_power_cuts(scene, all_steps(scene))
    assert found == set()
    assert states > 1000 * count


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


def two_groups_at_once(scene: Scene) -> list[Step]:
    """Stage the first group as `.cleaned`, then swap the second one."""
    first, second = (list(swap.steps(cleaned, scene.staging)) for cleaned in scene.cleaned[:2])
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
    "old logs and indexes aside together": lambda scene: without_sync_after(
        all_steps(scene), renames_to(".log.deleted")
    ),
    "no sync at all": lambda scene: [step for step in all_steps(scene) if not isinstance(step, SyncDir)],
    "two groups at once": two_groups_at_once,
    "no guard": without_guard,
    "old files aside first": old_files_aside_first,
    "old files removed last, new names first": lambda scene: [
        step for step in all_steps(scene) if not renames_to(".deleted")(step) and not isinstance(step, swap.Remove)
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
        for file in cleaned.files:
            key = (f"new {cleaned.base_offset}", Path(file.name).suffix)
            origin[key] = original / scene.staging / file.staged_as
    for folder, names in ((state.directory, partition), (state.directory / state.staging, staged)):
        for name, model in names.items():
            os.link(origin[model.owner, model.suffix], folder / name)
    os.link(original / scene.staging / swap.MANIFEST_NAME, state.directory / state.staging / swap.MANIFEST_NAME)
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
                swap.recover(state.directory, log_dir=state.log_dir)
                assert_lawful(state)
                shutil.rmtree(log_dir)
        disk.do(step)
    assert len(seen) > 300


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
            swap.recover(state.directory)
            assert_lawful(state)
    assert cuts > 500


def recovery_cuts(scene: Scene, disk: Disk, log_dir: Path, chance: random.Random) -> Iterator[dict[str, File]]:
    state = make_real(scene, disk.certain[""], disk.certain[scene.staging], scene.log_dir, log_dir)
    steps: list[Step] = []
    swap.recover(state.directory, after_step=steps.append)
    for step in steps:
        if isinstance(step, swap.Remove) and step.name.startswith(scene.staging):
            break
        disk.do(step)
        yield from disk.after_power_cuts("", 16, chance)


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
                swap.replace(scene.directory, scene.staging, cleaned, lambda: None)
        except RecoveryNeededError as error:
            outcome = re.search(r"before|after|unknown", str(error))
            assert outcome is not None
            outcomes.add(outcome[0])
            if any(path.suffix in (".cleaned", ".swap", ".deleted") for path in scene.directory.iterdir()):
                with pytest.raises(RecoveryNeededError):  # The manifest is still needed.
                    swap.discard(scene.directory, scene.staging)
        else:
            break
        finally:
            monkeypatch.setattr(os, call, real)
        swap.recover(scene.directory)
        assert_lawful(scene)
    assert number > 10
    assert (
        outcomes == {"rename": {"before", "after"}, "fsync": {"before", "after", "unknown"}, "unlink": {"after"}}[call]
    )
