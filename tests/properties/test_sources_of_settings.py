"""Nothing is compacted or deleted by a value that no source of the topic gave, whatever the sources and the disks.

A broker with one or two log directories, of ZooKeeper or KRaft, whose metadata log, `server.properties` and
`--topic-configs` know some of the topics; some topics are being moved. `expected` says, without the code that is
tested, what each topic has.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcompact.cleaner.cleaning import CleanOptions
from kcompact.cleaner.engines import EngineOptions
from kcompact.cleaner.outcome import PartitionOutcome
from kcompact.cleaner.round import begin_round
from kcompact.config.broker_config import BrokerConfig
from kcompact.config.settings import TopicOverrides, parse_override
from kcompact.format.properties import META_PROPERTIES, MetaProperties, encode_uuid
from kcompact.plan.options import PlanOptions
from tests.support import log_dsl, log_writer
from tests.support.broker_files import build_meta_properties
from tests.support.command_line import values
from tests.support.metadata_log import CLUSTER_ID, batches, log, of_broker, topic, write

NOW_MS = 1_704_103_200_000  # 2024-01-01T10:00Z
LOG = """\
log now=10:00
0: a=1^06:00 b=2^06:00
2: a=3^07:00 b=4^07:00
4: a=5^08:00 c=6^08:00
6: a=7^09:00
"""
"""Segments of which all but the active one have superseded records, and are older than an hour."""
TOPICS = ("apples", "beans", "cress")
AN_HOUR, NEVER, LITTLE = "3600000", "-1", "1"
POLICY, TIME, SIZE = "cleanup.policy", "retention.ms", "retention.bytes"
OTHER = {"d1": "d2", "d2": "d1"}
OF_BROKERS = {POLICY: "log.cleanup.policy", TIME: "log.retention.ms", SIZE: "log.retention.bytes"}
VALUES = {POLICY: ("compact", "delete", "compact,delete"), TIME: (AN_HOUR, NEVER), SIZE: (LITTLE, NEVER)}
DEFAULTS = {POLICY: "delete", TIME: "604800000", SIZE: NEVER}

Settings = Mapping[str, str]
some_settings = st.fixed_dictionaries({}, optional={name: st.sampled_from(those) for name, those in VALUES.items()})
known_topics = st.dictionaries(st.sampled_from(TOPICS), some_settings)


@dataclass(frozen=True, kw_only=True)
class Scene:
    """The broker, what knows its topics, and what a user names.

    `directory_of` has the directory of each topic; the `moving` ones have a `-future` replica in the other one.
    """

    directory_of: Mapping[str, str]
    moving: frozenset[str]
    metadata_in: str | None
    in_metadata: Mapping[str, Settings]
    dynamic: Settings
    static: Settings | None
    in_file: Mapping[str, Settings] | None
    for_all: Settings
    named: Mapping[str, Settings]
    paths: tuple[str, ...]
    is_kraft: bool = True


scenes = st.builds(
    Scene,
    directory_of=st.fixed_dictionaries({name: st.sampled_from(("d1", "d2")) for name in TOPICS}),
    moving=st.frozensets(st.sampled_from(TOPICS)),
    metadata_in=st.sampled_from((None, "d1", "d2")),
    in_metadata=known_topics,
    dynamic=some_settings,
    static=st.none() | some_settings,
    in_file=st.none() | known_topics,
    for_all=some_settings,
    named=st.dictionaries(st.sampled_from((*TOPICS, "[ab]*", "*s")), some_settings, max_size=2),
    paths=st.sampled_from((("d1",), ("d2",), ("d1", "d2"), ("d2", "d1"))),
)


def expected(scene: Scene, name: str, setting: str) -> str | None:
    """Return the value that a topic has, None if no source says it: an assumed default deletes nothing either."""
    by_name = [those[setting] for each, those in scene.named.items() if fnmatchcase(name, each) and setting in those]
    if by_name:
        return by_name[-1]
    # The metadata log counts if a user names its directory, or the file of the broker that names all directories.
    has_metadata = scene.metadata_in is not None and (scene.metadata_in in scene.paths or scene.static is not None)
    has_metadata &= bool(scene.in_metadata or scene.dynamic)  # Else its directory is empty.
    metadata = scene.in_metadata if has_metadata else {}
    own = (scene.in_file or {}).get(name, metadata.get(name))
    if own is None:
        return scene.for_all.get(setting)
    if scene.is_kraft and not has_metadata:
        return _without_dynamic(scene, name, own, setting)
    layers = [own, scene.for_all, scene.dynamic if has_metadata else {}, scene.static or {}]
    found = next((layer[setting] for layer in layers if setting in layer), None)
    return DEFAULTS[setting] if found is None and scene.static is not None else found


def _without_dynamic(scene: Scene, name: str, own: Settings, setting: str) -> str | None:
    """Return the value of a topic in a file, where a lost dynamic setting may be stronger than the broker's file."""
    is_policy_given = any(fnmatchcase(name, each) and POLICY in those for each, those in scene.named.items())
    is_policy_given |= POLICY in own or POLICY in scene.for_all
    if setting in own and (setting == POLICY or is_policy_given):
        return own[setting]
    if setting in scene.for_all and setting not in own:
        return scene.for_all[setting]
    static = DEFAULTS[POLICY] if scene.static is None else scene.static.get(POLICY, DEFAULTS[POLICY])
    return static if setting == POLICY and "compact" not in str(static) and scene.static is not None else None


def write_broker(root: Path, scene: Scene) -> BrokerConfig | None:
    ids = {name: bytes([number]) * 16 for number, name in enumerate(TOPICS, start=1)}
    if scene.metadata_in is not None:
        rows = [row for name, own in scene.in_metadata.items() for row in topic(name, ids[name], **_written(own))]
        rows += [of_broker("", OF_BROKERS[setting], value) for setting, value in scene.dynamic.items()]
        write(root / scene.metadata_in, {log(): batches(rows)} if rows else {})
    for name, directory in scene.directory_of.items():
        spec = replace(log_dsl.parse(LOG), name=f"{name}-0", topic_id=encode_uuid(ids[name]))
        log_writer.write(spec, root / directory)
        if name in scene.moving:
            target = root / OTHER[directory] / f"{name}-0.{'0' * 32}-future"
            shutil.copytree(root / directory / f"{name}-0", target)
    version = 1 if scene.is_kraft else 0
    for number, directory in enumerate(("d1", "d2"), start=1):
        (root / directory).mkdir(exist_ok=True)
        identity = MetaProperties(
            version=version,
            cluster_id=CLUSTER_ID,
            node_id=1,
            directory_id=encode_uuid(bytes([number]) * 16) if scene.is_kraft else None,
        )
        (root / directory / META_PROPERTIES).write_bytes(build_meta_properties(identity))
        (root / directory / ".kafka_cleanshutdown").touch()
    if scene.static is None:
        return None
    static = {OF_BROKERS[setting]: value for setting, value in scene.static.items()}
    return BrokerConfig(properties={**static, "log.dirs": f"{root}/d1,{root}/d2"})


def _written(own: Settings) -> dict[str, str]:
    return {setting.replace(".", "_"): value for setting, value in own.items()}


def options_of(scene: Scene, root: Path, static: BrokerConfig | None) -> PlanOptions:
    named = [f"{each}:{setting}={value}" for each, those in scene.named.items() for setting, value in those.items()]
    for_all = [f"{setting}={value}" for setting, value in scene.for_all.items()]
    topic_configs = None
    if scene.in_file is not None:
        topic_configs = {
            name: TopicOverrides(values=own, origin="topic-configs") for name, own in scene.in_file.items()
        }
    return PlanOptions(
        now_ms=NOW_MS,
        overrides=tuple(map(parse_override, (*for_all, *named))),
        broker_config=static,
        topic_configs=topic_configs,
        log_dirs=tuple(root / path for path in scene.paths),
        force=True,
    )


def clean(scene: Scene, root: Path) -> dict[str, PartitionOutcome]:
    """Clean all that the user names, with retention; return the outcomes by topic."""
    plan_options = options_of(scene, root, write_broker(root, scene))
    paths = [root / path for path in scene.paths if any(root.joinpath(path).glob("*-0"))]
    retain = CleanOptions(apply_retention=True)
    with begin_round(paths, plan_options, retain, EngineOptions(name="in-process")) as round_:
        done = round_.clean().partitions
    return {each.directory.name.removesuffix("-0"): each for each in done if each.directory.name[0] != "_"}


ALL = {offset: (key.encode(), str(offset + 1).encode()) for offset, key in enumerate("ababaca")}


def allowed(scene: Scene, name: str) -> tuple[set[int], set[int]]:
    """Return the offsets that may be gone by compaction, and those that may be gone by retention."""
    # Another disk is known if it is named, or if the file of the broker names it.
    if name in scene.moving and (OTHER[scene.directory_of[name]] in scene.paths or scene.static is not None):
        return set(), set()
    policy = expected(scene, name, POLICY) or ""
    superseded = {0, 1, 2} if "compact" in policy else set()
    limits = expected(scene, name, TIME), expected(scene, name, SIZE)
    is_known = None not in limits or _is_topic_known(scene, name)
    expires = "delete" in policy and is_known and (limits[0] == AN_HOUR or limits[1] == LITTLE)
    return superseded, {0, 1, 2, 3, 4, 5} if expires else set()


def all_is_known(scene: Scene, name: str) -> bool:
    """Return whether sources have the policy and, if it deletes, the retention of a topic."""
    policy = expected(scene, name, POLICY)
    limits = expected(scene, name, TIME), expected(scene, name, SIZE)
    return policy is not None and ("delete" not in policy or None not in limits)


def _is_topic_known(scene: Scene, name: str) -> bool:
    has_metadata = scene.metadata_in is not None and (scene.metadata_in in scene.paths or scene.static is not None)
    return name in (scene.in_file or {}) or (has_metadata and name in scene.in_metadata)


@pytest.mark.parametrize("kraft", [True, False])
@settings(max_examples=4 * settings().max_examples)  # They are small, and differ in many ways.
@given(data=st.data())
def test_nothing_happens_by_a_value_that_no_source_of_the_topic_gave(kraft: bool, data: st.DataObject) -> None:
    scene = data.draw(scenes)
    if not kraft:
        scene = replace(scene, metadata_in=None, is_kraft=False)
    with tempfile.TemporaryDirectory() as path:
        done = clean(scene, Path(path))
        for name, directory in scene.directory_of.items():
            left = values(Path(path, directory, f"{name}-0"))
            superseded, expired = allowed(scene, name) if directory in scene.paths else (set(), set())
            gone = ALL.keys() - left.keys()
            assert left == {offset: ALL[offset] for offset in left}
            assert gone <= superseded | expired, (name, gone, done.get(name))
            # And what the sources ask for is done, unless something that decides is not known.
            outcome = done.get(name)
            if outcome is not None and (outcome.error is None or all_is_known(scene, name)):
                assert outcome.error is None, outcome.error
                assert gone == superseded | expired, (name, gone, outcome)
