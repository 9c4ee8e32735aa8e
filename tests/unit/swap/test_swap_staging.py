"""The staging directory of a round and its manifest."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

from kcompact.clean.staged_files import CleanedSegment, StagedFile
from kcompact.errors import LogChangedError, RefusedError
from kcompact.format.names import TopicPartition
from kcompact.log.files import FileIdentity
from kcompact.swap import manifest
from kcompact.swap.identity import PartitionIdentity
from kcompact.swap.manifest import Manifest
from kcompact.swap.open_directory import OpenDirectory
from kcompact.swap.recovery import interrupted_round as recovery
from kcompact.swap.replace import replace_segments
from kcompact.swap.staging import create_staging, hand_over, take_back, write_manifest
from tests.support.crash import (
    IDENTITY,
    Scene,
    all_steps,
    assert_lawful,
    assert_stops,
    log_of,
    replace_content,
    stopped,
)
from tests.support.parameters import one_in
from tests.support.sealed import edited, with_checksum


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
    with pytest.raises(RefusedError, match="as root is not safe"):
        create_staging(scene.directory)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_root_makes_is_its_own_until_it_is_complete(scene: Scene) -> None:
    os.chown(scene.directory, 1234, 2345)
    staging = create_staging(scene.directory)

    def owners() -> list[tuple[int, int]]:
        paths = (scene.directory / staging, *(scene.directory / staging).iterdir())
        return [(path.stat().st_uid, path.stat().st_gid) for path in paths]

    assert owners() == [(0, 0)]
    write_manifest(scene.directory, staging, scene.cleaned, identity=IDENTITY, end_offset=None)
    assert owners() == [(0, 0), (1234, 2345)]
    hand_over(scene.directory, staging)
    assert owners() == [(1234, 2345), (1234, 2345)]
    take_back(scene.directory, staging)
    assert owners() == [(0, 0), (1234, 2345)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_between_two_waves_the_owner_cannot_keep_the_directory_open(scene: Scene) -> None:
    os.chown(scene.directory, 1234, 2345)
    staging = create_staging(scene.directory)
    write_manifest(scene.directory, staging, scene.cleaned, identity=IDENTITY, end_offset=None)
    hand_over(scene.directory, staging)
    (scene.directory / staging).chmod(0o777)
    (scene.directory / staging / "1.log").touch()
    with pytest.raises(LogChangedError, match=r"1\.log: was put there by another process"):
        take_back(scene.directory, staging)
    (scene.directory / staging / "1.log").unlink()
    take_back(scene.directory, staging)
    assert stat.S_IMODE((scene.directory / staging).stat().st_mode) == 0o700


def manifest_of(scene: Scene) -> Path:
    return scene.directory / scene.staging / manifest.NAME


BAD_FIELDS: list[tuple[list[str | int], object]] = [
    (["version"], 1),
    (["version"], True),
    (["version"], 1.0),
    (["pid"], -1),
    (["topic"], "../x"),
    (["partition"], 2**40),
    (["end_offset"], "400"),
    (["end_offset"], 100),
    (["end_offset"], 500),
    (["end_offset"], 401),
    (["end_offset"], 10**9),
    (["topic"], "others"),
    (["partition"], 1),
    (["topic_id"], "AAAAAAAAAAAAAAAAAAAAAQ"),
    (["topic_id"], None),
    (["directory_id"], 7),
    (["extra"], 1),
    (["groups"], {}),
    (["groups", 0], 7),
    (["groups", 0, "base_offset"], 100),
    (["groups", 0, "inputs"], []),
    (["groups", 0, "inputs", 0, "name"], "../../etc/passwd"),
    (["groups", 0, "inputs", 0, "name"], log_of(0, ".swap")),
    (["groups", 0, "inputs", 0, "name"], log_of(100)),
    (["groups", 0, "inputs", 0, "inode"], None),
    (
        ["groups", 0, "inputs"],
        [
            {"name": name, "device": 1, "inode": 1, "size": 1, "mtime_ns": 1}
            for name in (log_of(0), f"{100:020d}.txnindex")
        ],
    ),
    (["groups", 0, "outputs"], []),
    (["groups", 0, "outputs", 0, "name"], log_of(600)),
    (["groups", 0, "outputs", 0, "name"], f"{0:020d}.snapshot"),
    (["groups", 0, "outputs", 0, "staged_as"], "../0.log"),
    (["groups", 0, "outputs", 0, "staged_as"], ".."),
    (["groups", 0, "outputs", 0, "crc32c"], [1]),
    (["groups", 1, "base_offset"], 0),
]


@pytest.mark.parametrize(("path", "value"), BAD_FIELDS)
@pytest.mark.parametrize("number", one_in(3, [7, 0, -1]))
def test_a_wrong_manifest_stops_recovery_whatever_its_checksum(
    scene: Scene, path: Sequence[str | int], value: object, number: int
) -> None:
    stopped(scene, len(all_steps(scene)) if number < 0 else number)
    manifest = manifest_of(scene)
    replace_content(manifest, edited(manifest.read_bytes(), path, value))
    assert_stops(scene, "the manifest ")


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[" * 100_000, b"null", b'{"version":1,"version":1}', b"\xff", b'{"version":NaN}'],
)
@pytest.mark.parametrize("checksum", [False, True])
def test_a_manifest_that_is_not_the_right_json_stops_recovery(scene: Scene, content: bytes, checksum: bool) -> None:
    stopped(scene, 7)
    replace_content(manifest_of(scene), with_checksum(content) if checksum else content)
    assert_stops(scene, "the manifest is damaged")


def test_a_huge_manifest_is_not_read(scene: Scene) -> None:
    stopped(scene, 7)
    os.truncate(manifest_of(scene), manifest.MAX_BYTES + 1)
    assert_stops(scene, "the manifest is damaged")


def test_a_swap_of_too_many_files_is_refused(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "MAX_BYTES", manifest_of(scene).stat().st_size - 20)
    with pytest.raises(RefusedError, match="too many files for one swap"):
        write_manifest(scene.directory, scene.staging, scene.cleaned, identity=IDENTITY, end_offset=scene.end_offset)


def test_a_manifest_holds_80_000_of_the_largest_entries() -> None:
    name = f"{2**63 - 1:020d}.timeindex"
    largest = FileIdentity(name=name, device=2**64 - 1, inode=2**64 - 1, size_bytes=2**63 - 1, mtime_ns=-(2**63))
    group = CleanedSegment(base_offset=0, files=(), replaces=(largest,) * 80_000)
    whole = manifest.Manifest(identity=IDENTITY, end_offset=None, pid=2**22, groups=(group,))
    assert len(manifest.encode(whole)) <= manifest.MAX_BYTES


@pytest.mark.parametrize("inputs", [3, 9000])
@pytest.mark.parametrize("groups", [1, 2])
def test_a_manifest_takes_no_more_than_the_space_that_is_counted(inputs: int, groups: int) -> None:
    topic_partition = TopicPartition(topic="t" * 249, partition=2**31 - 1)
    segments = []
    for number in range(groups):
        base = number * 10**9
        replaces = tuple(
            FileIdentity(name=log_of(base + each), device=2**31, inode=2**63, size_bytes=2**31, mtime_ns=2**62)
            for each in range(inputs)
        )
        files = tuple(
            StagedFile(
                name=log_of(base), staged_as=f"group-{number}-part-0-{each:08x}.log", size_bytes=2**31, crc32c=2**31
            )
            for each in range(4)
        )
        segments.append(CleanedSegment(base_offset=base, files=files, replaces=replaces))
    whole = Manifest(
        identity=PartitionIdentity(topic_partition=topic_partition), end_offset=2**62, pid=2**22, groups=tuple(segments)
    )
    counted = manifest.most_bytes(topic_partition) + sum(map(manifest.most_bytes_of_group, segments))
    written = len(manifest.encode(whole))
    assert 0 < written <= counted < written + 2000 * groups


def test_a_manifest_may_be_written_again_for_the_next_wave(scene: Scene) -> None:
    first, second = scene.cleaned
    write_manifest(scene.directory, scene.staging, [first], identity=IDENTITY, end_offset=None)
    replace_segments(scene.directory, scene.staging, first, lambda: None)
    write_manifest(scene.directory, scene.staging, [second], identity=IDENTITY, end_offset=scene.end_offset)
    replace_segments(scene.directory, scene.staging, second, lambda: None)
    report = recovery.recover(scene.directory, log_dir=scene.log_dir)
    assert report.checkpoint == scene.end_offset
    assert assert_lawful(scene) == [True, True]


def test_a_listing_does_not_depend_on_the_one_before(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).touch()
    with OpenDirectory(tmp_path) as directory, os.scandir(directory.fd()) as unfinished:
        next(unfinished)
        assert directory.names() == {"a", "b", "c"}
