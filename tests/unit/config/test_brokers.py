"""`config.brokers`: which log directories are those of one broker, and what its files say of all of them."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from kcompact.config.broker_config import BrokerConfig
from kcompact.config.brokers import Broker, brokers_of, moves_of
from kcompact.config.metadata_log import METADATA_DIRECTORY
from kcompact.config.server_properties import read_broker_config
from kcompact.errors import CorruptDataError
from kcompact.format.names import TopicPartition
from kcompact.format.properties import META_PROPERTIES, MetaProperties
from kcompact.plan.replicas import Replicas
from tests.support.broker_files import build_meta_properties
from tests.support.metadata_log import CLUSTER_ID, ORDERS, USERS, batches, log, topic, write
from tests.support.metadata_records import RegisterBrokerRecord

D1 = MetaProperties(version=1, cluster_id=CLUSTER_ID, node_id=1, directory_id="AAAAAAAAAAAAAAAAAAAAAQ")
D2 = replace(D1, directory_id="AAAAAAAAAAAAAAAAAAAAAg")
FUTURE = "orders-0.0123456789abcdef0123456789abcdef-future"


def log_dir(path: Path, properties: MetaProperties | None, *partitions: str) -> Path:
    path.mkdir()
    for name in partitions:
        (path / name).mkdir()
    if properties is not None:
        (path / META_PROPERTIES).write_bytes(build_meta_properties(properties))
    return path


def with_metadata(path: Path, properties: MetaProperties = D1, *, registered: tuple[str, ...] = ()) -> Path:
    """Make a log directory with a metadata log; the broker has registered these log directories."""
    rows = [RegisterBrokerRecord(1, (), registered), *topic("orders", ORDERS, cleanup_policy="compact")]
    write(path, {log(): batches(rows)})
    (path / META_PROPERTIES).write_bytes(build_meta_properties(properties))
    return path


def groups(found: Mapping[Path, Broker]) -> list[list[str]]:
    """Return the names of the directories of each broker."""
    return [[each.path.name for each in broker.log_dirs] for broker in {id(b): b for b in found.values()}.values()]


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (D2, [["d1", "d2"]]),
        (replace(D2, node_id=2), [["d1"], ["d2"]]),
        (replace(D2, cluster_id="kcompactTestsCluster01"), [["d1"], ["d2"]]),
        (replace(D2, node_id=None), [["d1"], ["d2"]]),
        (None, [["d1"], ["d2"]]),
        # The copy of a directory is not another one of the same broker.
        (D1, [["d1"], ["d2"]]),
        # Releases before 3.7 give their directories no id.
        (replace(D1, directory_id=None), [["d1", "d2"]]),
    ],
)
def test_the_directories_of_a_broker(second: MetaProperties | None, expected: list[list[str]], tmp_path: Path) -> None:
    paths = [log_dir(tmp_path / "d1", D1), log_dir(tmp_path / "d2", second)]
    assert groups(brokers_of(paths, None)) == expected


def copies(root: Path) -> list[Path]:
    """Make two directories of a broker, with its metadata log and a move, and a copy of each before the move."""
    paths = [with_metadata(root / "d1"), log_dir(root / "d2", D2)]
    copied = [Path(shutil.copytree(each, root / f"c{number}")) for number, each in enumerate(paths, start=1)]
    (root / "d2" / FUTURE).mkdir()
    return [*paths, *copied]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4), 3)))
def test_beside_copies_nothing_proves_which_belong_together(order: tuple[int, ...], tmp_path: Path) -> None:
    """So each is alone, but for the moves and the metadata log, in whatever order they are named."""
    made = copies(tmp_path)
    named = [made[number] for number in order]
    found = brokers_of(named, None)
    assert all(len(broker.log_dirs) == 1 for broker in found.values())
    moves = {} if made[1] not in named else {TopicPartition("orders", 0): (made[1] / FUTURE,)}
    assert all(broker.moves == moves for broker in found.values())
    assert all(broker.metadata is not None for broker in found.values())


def test_beside_copies_the_file_of_the_broker_says_which_belong_together(tmp_path: Path) -> None:
    first, second, *_ = made = copies(tmp_path)
    file = tmp_path / "config" / "server.properties"
    file.parent.mkdir()
    file.write_text(f"process.roles=broker\nnode.id=1\nlog.dirs={first},{second}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KCOMPACT_BROKER_SEARCH", "auto")
        found = brokers_of(made[::-1], None)
    assert sorted(each.path.name for each in found[first].log_dirs) == ["d1", "d2"]
    assert [each.path.name for each in found[made[2]].log_dirs] == ["c1"]


def test_one_metadata_log_for_all_directories(tmp_path: Path) -> None:
    first, second = with_metadata(tmp_path / "d1"), log_dir(tmp_path / "d2", D2)
    for paths in ([first, second], [second, first]):
        found = brokers_of(paths, None)
        assert found[first] is found[second]
        metadata = found[second].metadata
        assert metadata is not None
        assert set(metadata.topics) == {"orders"}
    alone = brokers_of([second], None)[second]
    assert alone.metadata is None
    assert "the metadata log of the broker was not found" in alone.why_no_metadata


def server_properties(path: Path, *lines: str) -> BrokerConfig:
    path.write_text("\n".join(("process.roles=broker", "node.id=1", *lines)))
    return read_broker_config(path)


def test_directories_that_the_file_of_the_broker_names(tmp_path: Path) -> None:
    first, second = with_metadata(tmp_path / "d1"), log_dir(tmp_path / "d2", D2, FUTURE)
    other = log_dir(tmp_path / "d3", replace(D2, node_id=2))
    given = server_properties(tmp_path / "server.properties", f"log.dirs={second},{first},{other},{tmp_path}/gone")
    broker = brokers_of([second], given)[second]
    assert [each.path for each in broker.log_dirs] == [second, first]
    assert broker.metadata is not None
    # A directory of another broker is none of this one, whatever the file says.
    assert broker.config.missing == (str(other), f"{tmp_path}/gone")
    assert broker.moves == {TopicPartition("orders", 0): (second / FUTURE,)}
    moved = replace(given, log_dirs_moved=True)
    alone = brokers_of([second], moved)[second]
    assert ([each.path for each in alone.log_dirs], alone.config.missing) == ([second], ("3 more of its log.dirs",))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_bind_mount_of_a_directory_is_that_directory(tmp_path: Path) -> None:
    d1, mounted = log_dir(tmp_path / "d1", D1), log_dir(tmp_path / "mounted", None)
    (d1 / FUTURE).mkdir()
    config = server_properties(tmp_path / "server.properties", f"log.dirs={mounted}")
    subprocess.run(["mount", "--bind", d1, mounted], check=True)
    try:
        broker, moves = brokers_of([d1], config)[d1], moves_of(TopicPartition("orders", 0), d1, config)
        assert Replicas([mounted / FUTURE], [d1 / "orders-0"]).names(d1 / FUTURE)
    finally:
        subprocess.run(["umount", mounted], check=True)
    assert broker.config.missing == ()
    assert [each.path for each in broker.log_dirs] == [d1]
    assert moves == [d1 / FUTURE]
    assert broker.moves == {TopicPartition("orders", 0): (d1 / FUTURE,)}


def test_the_metadata_log_is_where_the_file_says(tmp_path: Path) -> None:
    first, second = with_metadata(tmp_path / "d1"), with_metadata(tmp_path / "d2", D2)
    rows = [*topic("orders", ORDERS), *topic("users", USERS, cleanup_policy="compact")]
    (second / METADATA_DIRECTORY / log()).write_bytes(batches(rows))
    for line, expected in ((f"metadata.log.dir={second}", {"orders", "users"}), ("", {"orders"})):
        given = server_properties(tmp_path / "server.properties", f"log.dirs={first},{second}", line)
        metadata = brokers_of([first, second], given)[first].metadata
        assert metadata is not None
        assert set(metadata.topics) == expected
    unknown = brokers_of([first, second], None)[first].metadata  # Both are read, and the longest one counts.
    assert unknown is not None
    assert set(unknown.topics) == {"orders", "users"}


@pytest.mark.parametrize("paths", [["d1"], ["d2"]])
def test_damage_of_a_metadata_log_is_that_of_every_directory(paths: list[str], tmp_path: Path) -> None:
    first, second = with_metadata(tmp_path / "d1"), log_dir(tmp_path / "d2", D2)
    data = bytearray((first / METADATA_DIRECTORY / log()).read_bytes())
    data[80] ^= 1
    (first / METADATA_DIRECTORY / log()).write_bytes(data)
    given = server_properties(tmp_path / "server.properties", f"log.dirs={first},{second}")
    broker = brokers_of([tmp_path / each for each in paths], given)[tmp_path / paths[0]]
    assert isinstance(broker.problem, CorruptDataError)
    assert broker.metadata is None


LOST = "AAAAAAAAAAAAAAAAAAAAAw"


@pytest.mark.parametrize(
    ("registered", "second", "missing"),
    [
        ((), D2, ()),
        ((str(D1.directory_id), str(D2.directory_id)), D2, ()),
        ((str(D1.directory_id), str(D2.directory_id), LOST), D2, (f"directory.id {LOST}",)),
        ((LOST, str(D1.directory_id)), None, (f"directory.id {LOST}",)),
        # A directory without an id may be any of those that were registered.
        ((LOST, str(D1.directory_id)), replace(D1, directory_id=None), ()),
    ],
)
def test_directories_that_the_broker_has_registered(
    registered: tuple[str, ...], second: MetaProperties | None, missing: tuple[str, ...], tmp_path: Path
) -> None:
    paths = [with_metadata(tmp_path / "d1", registered=registered)]
    paths += [] if second is None else [log_dir(tmp_path / "d2", second)]
    assert {each.config.missing for each in brokers_of(paths, None).values()} == {missing}


def test_what_a_file_that_does_not_decide_names(tmp_path: Path) -> None:
    """Its directories have moves, and may be missing. Nothing else is taken from them."""
    first, old = log_dir(tmp_path / "d1", D1), with_metadata(tmp_path / "old", D2)
    (old / FUTURE).mkdir()
    given = BrokerConfig(other_log_dirs={old: "stale.properties", tmp_path / "gone": "stale.properties"})
    broker = brokers_of([first], given)[first]
    assert ([each.path for each in broker.log_dirs], broker.metadata) == ([first], None)
    assert broker.moves == {TopicPartition("orders", 0): (old / FUTURE,)}
    assert broker.config.missing == (f"{tmp_path}/gone (of stale.properties)",)


@pytest.mark.parametrize("second", [D2, None, replace(D2, cluster_id=None), replace(D2, node_id=2)])
def test_moves_in_a_replica_that_may_be_of_the_broker(second: MetaProperties | None, tmp_path: Path) -> None:
    first, replica = with_metadata(tmp_path / "d1"), log_dir(tmp_path / "d2", second, FUTURE)
    broker = brokers_of([first], None, replicas=[replica])[first]
    is_of_another = second is not None and second.node_id == 2
    assert set(broker.moves) == (set() if is_of_another else {TopicPartition("orders", 0)})
    assert [each.path for each in broker.log_dirs] == [first]


def test_a_path_that_is_missing_is_not_counted_twice(tmp_path: Path) -> None:
    first = with_metadata(tmp_path / "d1", registered=(str(D1.directory_id), LOST))
    given = server_properties(tmp_path / "server.properties", f"log.dirs={first},{tmp_path}/gone")
    assert brokers_of([first], given)[first].config.missing == (f"{tmp_path}/gone",)


def test_a_directory_that_may_not_be_listed_counts_as_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = with_metadata(tmp_path / "d1"), log_dir(tmp_path / "d2", D2, FUTURE)
    given = server_properties(tmp_path / "server.properties", f"log.dirs={first},{second}")
    monkeypatch.setattr(os, "access", lambda path, *_, **__: Path(path) != second)
    for named in ([first], [first, second]):
        assert brokers_of(named, given)[first].config.missing == (str(second),)


@pytest.mark.parametrize(
    ("properties", "lines", "why"),
    [
        (replace(D1, version=0, directory_id=None), (), "the broker uses ZooKeeper"),
        # Moved from ZooKeeper to KRaft.
        (replace(D1, version=0), (), "the metadata log of the broker was not found"),
        (D1, ("metadata.log.dir=/gone/meta",), "is in /gone/meta, which was not found"),
        (D1, (), "the metadata log of the broker was not found"),
        (None, None, "there is no metadata log beside the data"),
    ],
)
def test_why_no_source_has_the_settings_of_topics(
    properties: MetaProperties | None, lines: tuple[str, ...] | None, why: str, tmp_path: Path
) -> None:
    path = log_dir(tmp_path / "d1", properties)
    given = None if lines is None else server_properties(tmp_path / "server.properties", f"log.dirs={path}", *lines)
    assert why in brokers_of([path], given)[path].why_no_metadata
