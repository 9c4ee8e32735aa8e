"""The file of `--topic-configs`: the settings that topics have of their own, as a tool of Kafka printed them, or JSON.

    kafka-configs.sh --describe --entity-type topics [--all]
        Dynamic configs for topic orders are:
          retention.ms=-1 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=-1}
    kafka-configs.sh up to 2.8, with --zookeeper
        Configs for topic 'orders' are cleanup.policy=compact,delete,retention.ms=-1
    kafka-topics.sh --describe
        Topic: orders   TopicId: …   PartitionCount: 1   ReplicationFactor: 1   Configs: retention.ms=-1
    JSON
        {"orders": {"retention.ms": -1}}

A file can have the output of several commands. A topic without settings in it is a topic without overrides. A topic
that is not in the file is unknown.

`kafka-topics.sh` shows more than overrides: `Configs` has each value that is not Kafka's default, also those from the
file and the dynamic settings of the broker that answered. They are the effective values of the topic, so they are
returned as its own. `Configs` lacks what the broker sets under a name with another unit: `log.retention.hours`.

`kafka-configs.sh` up to 4.0 prints the topic's name before it asks for the settings. When it fails then, the topic
looks like one without overrides. So a name is an error if it is all that the file has: the tool lists all topics only
if a broker answers. With `--all` every topic has settings, so there it is always one.

Rules: `ConfigCommand.describeResourceConfig`, `ConfigCommand.describeConfigWithZk`, `TopicCommand.printDescription`,
`ConfigEntry.isDefault`, `ConfigHelper.createTopicConfigEntry`.
"""

from __future__ import annotations

import codecs
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from kcompact.bucket.path import local_path
from kcompact.config.settings import BROKER_SETTINGS, OF_THE_TOPIC_ALONE, TOPIC_SETTINGS, TopicOverrides, is_used
from kcompact.errors import ConfigError
from kcompact.format.names import TopicPartition
from kcompact.format.properties import decode_uuid
from kcompact.log.files import LogFile
from kcompact.readable import closest
from kcompact.values import dataclass

ORIGIN = "topic-configs"
_SHOWN_CHARACTERS = 40
_HINT = (
    'Accepted is JSON, as {"TOPIC": {"NAME": "VALUE"}}, or the output of '
    "kafka-configs.sh --describe --entity-type topics, or of kafka-topics.sh --describe."
)

_HEADER = re.compile(r"(?P<kind>Dynamic|All) configs for topic (?P<topic>.*) are:")
_OVERRIDE = re.compile(
    # The first synonym repeats name and value, which shows where the value ends, whatever text it has.
    r"(?P<name>[^\s=]+)=(?P<value>.*) sensitive=(?:true|false) "
    r"synonyms=\{DYNAMIC_TOPIC_CONFIG:(?P=name)=(?P=value)(?:, .*)?\}"
)
_SETTING = re.compile(
    r"(?P<name>[^\s=]+)=(?P<value>.*?) sensitive=(?:true|false) "
    r"synonyms=\{(?P<synonyms>|(?!DYNAMIC_TOPIC_CONFIG:)[A-Z_]+:.*)\}"
)
_OF_ZOOKEEPER = re.compile(r"Configs for (?:topic '|topics:)(?P<topic>.*?)'? are(?: (?P<configs>.*))?")
"""`topics:orders` is the form of 0.9."""
_DESCRIBED = re.compile(
    # Without spaces and ids in the releases before 2.4 and 2.8.
    r"Topic: ?(?P<topic>\S+)(?:\s+TopicId: (?P<id>\S+))?\s+PartitionCount: ?[0-9]+\s+ReplicationFactor: ?[0-9]+"
    r"\s+Configs: ?(?P<configs>.*?)(?:\sMarkedForDeletion: ?true)?"
)
_PARTITION = re.compile(r"Topic: \S+\s+Partition: [0-9]+\s.*")
_OTHER_ENTITY = re.compile(r"(?:\w+ |SCRAM credential )?configs? for (?P<entity>.+?) are\b.*", re.IGNORECASE)
_OF_EVERY_TOPIC = (
    *("cleanup.policy", "delete.retention.ms", "index.interval.bytes", "min.cleanable.dirty.ratio"),
    *("min.compaction.lag.ms", "retention.bytes", "retention.ms", "segment.bytes", "segment.ms"),
)
"""Settings that every topic has in every release, in any order, and that decide something here."""
_SETTING_NAME = re.compile(r"[a-z0-9]+(\.[a-z0-9]+)+")
_NEXT_SETTING = re.compile(r",(?=[\w.-]+=)", re.ASCII)
_WARNING = re.compile(
    r"Warning: -{2}zookeeper is deprecated and will be removed in a future version of Kafka\."
    r"|Use -{2}bootstrap-server instead to specify a broker to connect to\."
    r"|Only topic id will be used when both -{2}topic and -{2}topic-id are specified and topicId is not Uuid\.ZERO_UUID"
    # From Java and its loggers: a terminal, as of `kubectl exec -it`, mixes standard error in.
    r"|(?:OpenJDK|Java HotSpot\(TM\)) .*VM warning: .*|(?:NOTE: )?Picked up \w*JAVA\w*_OPTIONS: .*"
    r"|SLF4J: .*|log4j:WARN .*|\[[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8},[0-9]{3}\] WARN .*"
)


@dataclass(slots=True, kw_only=True)
class _Entry:
    """What the file says of a topic from a line on."""

    line: int
    topic: str
    topic_id: str | None = None
    values: dict[str, str] = field(default_factory=dict)
    shows_all: bool = False
    has_settings: bool = False
    """Whether there are lines with settings below the topic, or all of them are in its own line."""
    names: set[str] = field(default_factory=set)
    """The names of the settings in these lines."""


def read_topic_configs(file: str | os.PathLike[str]) -> dict[str, TopicOverrides]:
    """Return the overrides of each topic in a file, by the topic's name.

    The text is UTF-8, or UTF-16 with a byte order mark, as PowerShell writes it. Raises ConfigError for a file that is
    malformed, has no topic or is not local, RefusedError for more than 64 MiB and for no regular file, StorageError.
    """
    path = local_path(file)
    # A configuration file may be a link.
    text = _decoded(LogFile.at(Path(os.path.realpath(path))).read(), path)
    if not text.strip():
        raise ConfigError(path=path, problem="the file is empty", hint=_HINT)
    topics = _from_json(text, path) if text.lstrip().startswith("{") else _joined(list(_entries(text, path)), path)
    if not topics:
        raise ConfigError(path=path, problem="no topic with its settings in this file", hint=_HINT)
    return topics


def _decoded(data: bytes, path: Path) -> str:
    encoding = "UTF-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "UTF-8"
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return _with_unix_lines(data.decode(encoding))
    except UnicodeDecodeError as problem:
        line = _with_unix_lines(data[: problem.start].decode(encoding, "replace")).count("\n") + 1
        raise ConfigError(path=path, problem=f"line {line}: not {encoding}", hint=_HINT) from None


def _with_unix_lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


# The output of Kafka's tools


def _entries(text: str, path: Path) -> Iterator[_Entry]:
    """Yield what the lines say of topics. Raises ConfigError for a line that neither tool prints."""
    block: _Entry | None = None
    for number, whole in enumerate(text.split("\n"), start=1):
        line = whole.strip()
        try:
            if match := _OVERRIDE.fullmatch(line) or _SETTING.fullmatch(line):
                _add_to(block, match.groupdict())
            elif match := _HEADER.fullmatch(line):
                block = _Entry(line=number, topic=_topic(match["topic"]), shows_all=match["kind"] == "All")
                yield block
            elif match := _DESCRIBED.fullmatch(line) or _OF_ZOOKEEPER.fullmatch(line):
                block = None
                yield _entry(number, match.groupdict())
            elif line and not _PARTITION.fullmatch(line) and not _WARNING.fullmatch(line):
                raise ValueError(_why_not(line))
        except ValueError as problem:
            raise ConfigError(path=path, problem=f"line {number}: {problem}", hint=_HINT) from None
    # Only a setting that kafka-configs.sh prints shows that it is whole: it ends with the braces of its synonyms.
    if whole and not line.endswith("}") and not _PARTITION.fullmatch(line):
        hint = "End it with a line break if nothing of it is missing."
        raise ConfigError(path=path, problem=f"line {number}: cut off: it has no end of line", hint=hint)


def _add_to(block: _Entry | None, fields: Mapping[str, str]) -> None:
    """Add a setting to the topic above it, if the topic overrides it. Raises ValueError."""
    name, synonyms = fields["name"], fields.get("synonyms")
    if block is None:
        raise ValueError(f"a setting without a topic above it: '{_start(name)}'")
    block.has_settings = True
    block.names.add(name)
    _require_not_misspelt(name)
    if block.shows_all and synonyms is not None:
        if name == "cleanup.policy" and not synonyms:
            # Every broker since 1.1 sends a synonym of this setting.
            raise ValueError("the broker does not say which settings are overrides: run kafka-configs.sh without --all")
        return
    # Without --all the tool has selected the overrides, also those from brokers that send no synonyms.
    _add(block.values, name, fields["value"])


def _entry(line: int, fields: Mapping[str, str | None]) -> _Entry:
    """Return the topic of a line that has all of its settings. Raises ValueError."""
    topic, topic_id = _topic(fields["topic"] or ""), fields.get("id")
    if topic_id and decode_uuid(topic_id) is None:
        raise ValueError(f"'{_start(topic_id)}' is not a topic id")
    entry = _Entry(line=line, topic=topic, topic_id=topic_id, has_settings=True)
    configs = (fields["configs"] or "").rstrip()
    for setting in _NEXT_SETTING.split(configs) if configs else ():
        name, equals, value = setting.partition("=")
        if not name or not equals:
            raise ValueError(f"not NAME=VALUE in the settings of '{topic}': '{_start(setting)}'")
        _require_not_misspelt(name)
        _add(entry.values, name, value)
    return entry


def _add(values: dict[str, str], name: str, value: str) -> None:
    """Add a setting, except one whose value the broker hides: one that it does not know. Raises ValueError."""
    if value == "null":
        if is_used(name, explains=True):
            raise ValueError(f"Kafka does not show the value of '{name}'")
    elif values.setdefault(name, value) != value:
        raise ValueError(f"'{_start(name)}' has had another value")


def _require_not_misspelt(name: str) -> None:
    """Raise ValueError for a form of a setting's name that no tool of Kafka prints."""
    if name not in TOPIC_SETTINGS and (meant := _meant(name)):
        raise ValueError(f"'{_start(name)}' is no setting of a topic; did you mean {meant}?")


def _meant(name: str) -> str:
    form = name.lower().replace("_", ".")
    return form if form in TOPIC_SETTINGS else BROKER_SETTINGS.get(form, "")


def _require_name(topic: str, name: str) -> None:
    """Raise ValueError for a name in JSON that is no setting of a topic. One of its form may be of a newer Kafka."""
    if name in TOPIC_SETTINGS:
        return
    meant = _meant(name) or closest(name, TOPIC_SETTINGS)
    if meant or not _SETTING_NAME.fullmatch(name):
        hint = f"; did you mean {meant}?" if meant else ""
        raise ValueError(f"'{_start(name)}' of '{topic}' is no setting of a topic{hint}")


def _topic(name: str) -> str:
    """Return the name of a topic. Raises ValueError for a name that Kafka refuses. Rule: Topic.validate."""
    if TopicPartition.parse(f"{name}-0") is None:
        raise ValueError(f"not a valid name of a topic: '{_start(name)}'")
    return name


def _why_not(line: str) -> str:
    if match := _OTHER_ENTITY.fullmatch(line):
        return f"the settings of {_start(match['entity'])}, not of a topic"
    return f"neither a topic nor a setting of one: '{_start(line)}'"


def _start(text: str) -> str:
    """Return the start of a text from the file. What follows `=` or `:` can be secret."""
    start = re.split("(?<=[=:])", text, maxsplit=1)[0][:_SHOWN_CHARACTERS]
    return start if start == text else f"{start}..."


def _joined(entries: Sequence[_Entry], path: Path) -> dict[str, TopicOverrides]:
    """Return the topics of all entries. Raises ConfigError if two entries contradict each other."""
    joined: dict[str, _Entry] = {}
    for entry in entries:
        lacking = [name for name in _OF_EVERY_TOPIC if name not in entry.names]
        if entry.shows_all and entry.has_settings and lacking:
            problem = f"line {entry.line}: no {lacking[0]} of '{entry.topic}' below: the output is cut off"
            raise ConfigError(path=path, problem=problem, hint=_HINT)
        if not entry.has_settings and (entry.shows_all or len(entries) == 1):
            ends = "the tool has failed here" if entry.shows_all else "so ends also a tool that has failed"
            problem = f"line {entry.line}: no settings of '{entry.topic}' below: {ends}"
            hint = "Read the standard error of kafka-configs.sh --describe --entity-type topics --all"
            raise ConfigError(path=path, problem=problem, hint=hint)
        known = joined.setdefault(entry.topic, entry)
        if known.values != entry.values or len({known.topic_id, entry.topic_id} - {None}) > 1:
            problem = f"line {entry.line}: '{entry.topic}' differs from what line {known.line} says of it"
            raise ConfigError(path=path, problem=problem, hint="Remove what is outdated.")
        known.topic_id = known.topic_id or entry.topic_id
    return {
        topic: TopicOverrides(values=entry.values, origin=ORIGIN, topic_id=entry.topic_id)
        for topic, entry in joined.items()
    }


# JSON


def _from_json(text: str, path: Path) -> dict[str, TopicOverrides]:
    """Return the topics in JSON. Numbers stay as they are written. Raises ConfigError."""
    try:
        settings_by_topic = json.loads(text, object_pairs_hook=_unique, parse_int=str, parse_float=str)
    except json.JSONDecodeError as problem:
        where = f"line {problem.lineno}: not valid JSON: {problem.msg}"
    except RecursionError:
        where = "JSON with too many levels"
    except ValueError as problem:
        where = f"JSON: {problem}"
    else:
        return {name: _checked(name, settings, text, path) for name, settings in settings_by_topic.items()}
    raise ConfigError(path=path, problem=where, hint=_HINT)


def _checked(name: str, settings: object, text: str, path: Path) -> TopicOverrides:
    try:
        return _overrides(_topic(name), settings)
    except ValueError as problem:
        line = text.count("\n", 0, max(0, text.find(json.dumps(name)))) + 1
        raise ConfigError(path=path, problem=f"line {line}: {problem}", hint=_HINT) from None


def _unique(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    """Return a JSON object. Raises ValueError for a name that has two different values."""
    members: dict[str, object] = {}
    for name, value in pairs:
        if name in members and members[name] != value:
            raise ValueError(f"'{_start(name)}' is there twice, with different values")
        members[name] = value
    return members


def _overrides(topic: str, settings: object) -> TopicOverrides:
    """Return the overrides in the JSON object of a topic. Raises ValueError."""
    if not isinstance(settings, dict):
        raise ValueError(f"'{topic}' has no object with settings")
    values = {}
    for name, value in settings.items():
        _require_name(topic, name)
        if not isinstance(value, str | bool | None):
            raise ValueError(f"'{_start(name)}' of '{topic}' is neither text, nor a number, nor a boolean")
        if value is not None:
            values[name] = str(value).lower() if isinstance(value, bool) else value
        elif name in OF_THE_TOPIC_ALONE:
            raise ValueError(f"'{name}' of '{topic}' has no value; leave it out if the topic does not override it")
    return TopicOverrides(values=values, origin=ORIGIN)
