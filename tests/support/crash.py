"""Interrupted swaps on real directories: build a partition, stage a cleaned one, stop the swap after any step.

The files are valid Kafka files, so Kafka's own loader can be run on every state that `stopped_states` yields.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from crc32c import crc32c

from kcompact.clean.staged_files import CleanedSegment, StagedFile
from kcompact.errors import RecoveryNeededError
from kcompact.format import batch
from kcompact.format.checkpoint import EpochEntry
from kcompact.format.index import AbortedTxn, build_txn_index
from kcompact.format.names import Suffix, TopicPartition, file_name, log_name, parse_file_name, snapshot_name
from kcompact.log.directory import read_log
from kcompact.log.files import FileIdentity
from kcompact.swap.attributes import carry_over
from kcompact.swap.checkpoint import write_checkpoints
from kcompact.swap.identity import PartitionIdentity
from kcompact.swap.open_directory import OpenDirectory
from kcompact.swap.recovery import interrupted_round as recovery
from kcompact.swap.replace import NamesInPartition, replace_segments
from kcompact.swap.staging import create_staging, discard, write_manifest
from kcompact.swap.steps import Observer, Remove, Rename, Step, SyncDir, replacement_steps
from tests.support import log_writer
from tests.support.log_reader import read_log_records
from tests.support.log_writer import LogSpec, SegmentSpec

PARTITION = TopicPartition("orders", 0)
IDENTITY = PartitionIdentity(topic_partition=PARTITION, topic_id="QNLMCLnWRESZK_ap_Xld8w")
T0 = 1_700_000_000_000

Record = tuple[int, str, str]
"""Offset, key, value."""


class Stopped(BaseException):
    """Raised by an observer: the process ends here."""


# --- Kafka files ----------------------------------------------------------------------------------------


def segment_of(base_offset: int, records: Sequence[Record]) -> SegmentSpec:
    """Return a segment with a batch for each record."""
    batches = [
        batch.build([batch.Record(offset, T0 + offset, key.encode(), value.encode(), ())])
        for offset, key, value in records
    ]
    return SegmentSpec(base_offset=base_offset, batches=tuple(batches))


def aborted(first_offset: int, last_offset: int) -> AbortedTxn:
    return AbortedTxn(producer_id=7, first_offset=first_offset, last_offset=last_offset, last_stable_offset=last_offset)


# --- A partition and a round ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A log directory with one partition, and a staged round on it."""

    log_dir: Path
    directory: Path
    staging: str
    cleaned: tuple[CleanedSegment, ...]
    before: dict[str, bytes]
    view: dict[str, str]
    end_offset: int

    def moved(self, log_dir: Path) -> Scene:
        return Scene(
            log_dir=log_dir,
            directory=log_dir / str(PARTITION),
            staging=self.staging,
            cleaned=self.cleaned,
            before=self.before,
            view=self.view,
            end_offset=self.end_offset,
        )


SEGMENTS: dict[int, list[Record]] = {
    0: [(0, "a", "1"), (1, "b", "1"), (2, "c", "1"), (3, "never", "again")],
    100: [(100, "a", "2"), (120, "d", "1")],
    200: [(200, "b", "2"), (205, "e", "1")],
    300: [(300, "c", "2"), (301, "a", "3"), (302, "f", "1")],
    400: [(400, "g", "1"), (401, "d", "2")],
    500: [(500, "e", "2"), (501, "h", "1")],
    600: [(600, "a", "4"), (601, "i", "1")],
}
GROUPS: dict[int, tuple[tuple[int, ...], ...]] = {
    1: ((0, 100),),
    2: ((0, 100), (200, 300)),
    3: ((0, 100), (200, 300), (400, 500)),
}
CHECKPOINT_BEFORE = "0\n1\nother 0 7\n"
"""The cleaner's checkpoint of a scene."""


BEFORE = LogSpec(
    name=str(PARTITION),
    segments=tuple(segment_of(base, records) for base, records in SEGMENTS.items()),
    snapshots=dict.fromkeys(SEGMENTS, ()),
    aborted={base: (aborted(base, base + 1),) for base in (0, 100, 200)},
    leader_epochs=(EpochEntry(epoch=0, start_offset=0),),
    topic_id=IDENTITY.topic_id,
    other_checkpoints={TopicPartition("other", 0): 7},
    lone=True,
)
"""The partition before a round, beside another with a checkpoint."""


ORPHANS = {
    file_name(base, suffix): b"an index without a log"
    for base in (50, 150, 250, 299, 650, 2**33)
    for suffix in (Suffix.INDEX, Suffix.TIME_INDEX, Suffix.TXN_INDEX)
}
"""Indexes without a log: inside both groups, between them, in the active segment and above the log."""


def survivors(bases: Sequence[int]) -> list[Record]:
    """Return the records of a group that no record below the active segment supersedes."""
    closed = [record for base, records in SEGMENTS.items() if base < 600 for record in records]
    latest = {key: offset for offset, key, _ in closed}
    return [record for base in bases for record in SEGMENTS[base] if latest[record[1]] == record[0]]


def build(
    log_dir: Path,
    groups: Sequence[Sequence[int]],
    files: Mapping[str, bytes] | None = None,
    *,
    has_aborted: bool = True,
) -> Scene:
    """Create the partition, with more files in it, and stage a round, up to and with the manifest.

    With `has_aborted` some segments have a `.txnindex`, but their logs have no such transactions.
    """
    before = replace(BEFORE, files=files or {}, aborted=BEFORE.aborted if has_aborted else {})
    directory = log_writer.write(before, log_dir)
    staging = create_staging(directory)
    cleaned = tuple(stage(directory, staging, bases, has_aborted=has_aborted) for bases in groups)
    end_offset = min(base for base in SEGMENTS if not groups or base > groups[-1][-1])
    for one in cleaned:
        carry_over(directory, staging, one)
    write_manifest(directory, staging, cleaned, identity=IDENTITY, end_offset=end_offset)
    contents = {path.name: path.read_bytes() for path in directory.iterdir() if not path.name.startswith(".kcompact-")}
    return Scene(
        log_dir=log_dir,
        directory=directory,
        staging=staging,
        cleaned=cleaned,
        before=contents,
        view=latest_values(directory),
        end_offset=end_offset,
    )


def stage(directory: Path, staging: str, bases: Sequence[int], *, has_aborted: bool = True) -> CleanedSegment:
    base, segment = bases[0], segment_of(bases[0], survivors(bases))
    offset_index, time_index = log_writer.indexes_of(segment)
    contents = {Suffix.LOG: segment.data, Suffix.INDEX: offset_index, Suffix.TIME_INDEX: time_index}
    if base == 0 and has_aborted:
        contents[Suffix.TXN_INDEX] = build_txn_index([aborted(2, 3)])
    files = []
    for suffix, content in contents.items():
        staged_as = f"{file_name(base, suffix)}.attempt-1"
        (directory / staging / staged_as).write_bytes(content)
        name = file_name(base, suffix)
        files.append(StagedFile(name=name, staged_as=staged_as, size_bytes=len(content), crc32c=crc32c(content)))
    old = [file_name(one, suffix) for one in bases for suffix in Suffix if suffix is not Suffix.SNAPSHOT]
    old += [snapshot_name(one) for one in bases[1:]]
    return CleanedSegment(
        base_offset=base,
        files=tuple(files),
        replaces=tuple(FileIdentity.of(name, (directory / name).stat()) for name in old if (directory / name).exists()),
    )


def run_round(scene: Scene, after_step: Observer | None = None) -> None:
    """Do what the cleaner does after everything is staged: swap the groups, write the checkpoint, discard."""
    with OpenDirectory(scene.directory) as directory:
        names = NamesInPartition(directory, read_log(scene.directory).orphans)
        for cleaned in scene.cleaned:
            replace_segments(directory, scene.staging, cleaned, lambda: None, names=names, after_step=after_step)
    write_checkpoints(scene.log_dir, {PARTITION: scene.end_offset})
    discard(scene.directory, scene.staging, after_step=after_step)


# --- Stopping -------------------------------------------------------------------------------------------


def clone(source: Path, target: Path) -> None:
    """Copy a tree by hard links. Inodes and times stay. No test may write into a file in place."""
    shutil.copytree(source, target, copy_function=os.link)


def stopped_states(
    scene: Scene, work: Path, act: Callable[[Scene, Observer], object] = run_round, *, stride: int = 1
) -> Iterator[tuple[int, Scene]]:
    """Yield for 0, 1, 2 ... steps the directory that a process leaves when it dies after so many steps of a round.

    With a stride, for every so many steps only. `act` may be another function of the scene and an observer, for example
    `recover`. The directory of a state is removed before the next state is yielded.
    """
    for number in range(0, 10_000, stride):
        target = work / f"stop-{number}"
        clone(scene.log_dir, target)
        state = scene.moved(target)
        left = number

        def stop_when_due(step: Step) -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                raise Stopped

        try:
            if number > 0:
                act(state, stop_when_due)
                return
        except Stopped:
            pass
        yield number, state
        shutil.rmtree(target)


def broker_round(scene: Scene, after_step: Observer | None = None) -> None:
    """Replace the segments as a broker does, in its order and without its syncs; the staging directory is gone."""
    created, *rest = broker_phases(scene)
    for step in created:
        apply(scene, step)
    shutil.rmtree(scene.directory / scene.staging)
    for step in itertools.chain(*rest):
        if not isinstance(step, SyncDir):
            apply(scene, step)
            (after_step or (lambda step: None))(step)


def apply(scene: Scene, step: Step) -> None:
    match step:
        case Rename(source, target):
            (scene.directory / source).rename(scene.directory / target)
        case Remove(name):
            (scene.directory / name).unlink()


def broker_phases(scene: Scene) -> tuple[list[Step], list[Step], list[Step]]:
    """Return how a broker replaces the segments: it creates the new files, renames, and later removes the old ones.

    Rule: `LocalLog.replaceSegments`, which syncs the directory once, after the last `.swap` has its name.
    """
    (cleaned,) = scene.cleaned  # A broker has one group at a time.
    created = [Rename(f"{scene.staging}/{file.staged_as}", f"{file.name}.cleaned") for file in cleaned.files]
    new = sorted((file.name for file in cleaned.files), key=lambda name: [*Suffix].index(Suffix(Path(name).suffix)))
    old = [file.name for file in cleaned.replaces if not file.name.endswith(Suffix.SNAPSHOT)]
    snapshots = [file.name for file in cleaned.replaces if file.name.endswith(Suffix.SNAPSHOT)]
    renames: list[Step] = [
        *(Rename(f"{name}.cleaned", f"{name}.swap") for name in new),
        *(Rename(name, f"{name}.deleted") for name in old),
        *(Rename(f"{name}.swap", name) for name in new),
        SyncDir(),
        *(Rename(name, f"{name}.deleted") for name in snapshots),
    ]
    return [*created], renames, [Remove(f"{name}.deleted") for name in (*old, *snapshots)]


def stop_after(number: int) -> Observer:
    """Return an observer that raises Stopped after so many steps."""
    left = itertools.count(number - 1, -1)

    def observer(step: Step) -> None:
        if next(left) <= 0:
            raise Stopped

    return observer


def stopped(scene: Scene, number: int) -> Scene:
    """Return the scene after a round that died after so many steps."""
    with pytest.raises(Stopped):
        run_round(scene, stop_after(number))
    return scene


def recover(state: Scene, observer: Observer | None = None) -> None:
    """Recover the partition and its checkpoint."""
    recovery.recover(state.directory, log_dir=state.log_dir, after_step=observer)


# --- Looking --------------------------------------------------------------------------------------------


def logs_in_place(directory: Path) -> list[Path]:
    parsed = {path: parse_file_name(path.name) for path in sorted(directory.iterdir())}
    return [path for path, name in parsed.items() if name is not None and str(name) == log_name(name.base_offset)]


def latest_values(directory: Path) -> dict[str, str]:
    """Return the last value of each key; offsets must ascend through the log."""
    records = [record for path in logs_in_place(directory) for record in read_log_records(path)]
    offsets = [record.offset for record in records]
    assert offsets == sorted(set(offsets)), offsets
    return {(record.key or b"").decode(): (record.value or b"").decode() for record in records}


def groups_done(scene: Scene) -> list[bool]:
    """Return which groups are new. Asserts that each is entirely old or entirely new, with no other file left."""
    expected = dict(scene.before)
    present = {path.name: path for path in scene.directory.iterdir()}
    done = []
    for cleaned in scene.cleaned:
        new = {file.name: (file.size_bytes, file.crc32c) for file in cleaned.files}
        is_new = all(
            name in present and (len(data := present[name].read_bytes()), crc32c(data)) == found
            for name, found in new.items()
        ) and not any(file.name in present for file in cleaned.replaces if file.name not in new)
        done.append(is_new)
        if is_new:
            for old in cleaned.replaces:
                del expected[old.name]
            for name in new:
                expected[name] = present[name].read_bytes()
    assert {name: path.read_bytes() for name, path in present.items() if path.is_file()} == expected
    assert not [name for name, path in present.items() if path.is_dir()]
    return done


def assert_lawful(scene: Scene) -> list[bool]:
    """Assert that no record is lost or doubled and no file is left over; return which groups are new."""
    done = groups_done(scene)
    assert done == sorted(done, reverse=True), "a later group was swapped before an earlier one"
    assert latest_values(scene.directory) == scene.view
    return done


def log_of(base_offset: int, suffix: str = "") -> str:
    """`0`, `.swap` -> `00000000000000000000.log.swap`."""
    return f"{base_offset:020d}.log{suffix}"


def all_steps(scene: Scene) -> list[Step]:
    """Return the steps of all swaps of the round."""
    return [step for cleaned in scene.cleaned for step in replacement_steps(cleaned, scene.staging)]


def checkpoint_after(scene: Scene) -> str:
    """Return the cleaner's checkpoint after the round of a scene."""
    return f"0\n2\norders 0 {scene.end_offset}\nother 0 7\n"


def cleaner_checkpoint(scene: Scene) -> str:
    return (scene.log_dir / "cleaner-offset-checkpoint").read_text()


def listing(directory: Path) -> dict[str, bytes | None]:
    """Return the path of everything below the directory with its content, None for what is not a file."""
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None
        for path in sorted(directory.rglob("*"))
    }


def replace_content(path: Path, content: bytes) -> None:
    """Put a new file under the name. The old one may be a hard link that other states share."""
    path.unlink()
    path.write_bytes(content)


def assert_stops(state: Scene, problem: str) -> RecoveryNeededError:
    """Assert that recovery refuses, with this problem, and changes nothing; return its error."""
    before = listing(state.log_dir)
    with pytest.raises(RecoveryNeededError, match=problem) as stop:
        recovery.recover(state.directory, log_dir=state.log_dir)
    assert stop.value.exit_code == 8
    assert listing(state.log_dir) == before
    return stop.value
