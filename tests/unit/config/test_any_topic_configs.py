"""Any topics and settings, printed as Kafka's tools do: `config.topic_configs` reads them back, or refuses the file."""

from __future__ import annotations

import codecs
import json
import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kcompact.config.settings import TOPIC_SETTINGS
from kcompact.errors import ConfigError
from tests.support.topic_configs import (
    IDS,
    NEITHER,
    SECRET,
    Form,
    Topics,
    as_all_configs,
    as_configs,
    as_old_topics,
    as_topics,
    as_zookeeper_configs,
    read,
    refusal,
    values,
)

NAMES = st.from_regex(r"[a-zA-Z0-9._-]{1,30}", fullmatch=True).filter(lambda name: name not in (".", ".."))
SETTING_NAMES = st.sampled_from(sorted(TOPIC_SETTINGS)) | st.from_regex(r"[a-z][a-z0-9._-]{0,20}", fullmatch=True)
NAMES_IN_JSON = st.sampled_from(sorted(TOPIC_SETTINGS)) | st.from_regex(r"x[0-9]{3}(\.[0-9]{5}){1,3}", fullmatch=True)
ODD_VALUES = (
    *"* 0:1,1:2 compact,delete -1 a=b , x,=y ,é=x } { nul ' DYNAMIC_TOPIC_CONFIG:a= Topic:".split(),
    *("", " ", "a b", "\t\u2028x", " sensitive=false synonyms={", " sensitive=true synonyms={}", " are a=b"),
    *("b, DEFAULT_CONFIG:c=d}", "x MarkedForDeletion: false", "\x0b", "\x85", '{"version": 1, "replicas": []}'),
)
VALUES = st.sampled_from(ODD_VALUES) | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"))
SHOWN_VALUES = VALUES.filter(lambda value: value != "null")
# A list of settings has no quotes, so these cannot be told apart.
LISTED_VALUES = SHOWN_VALUES.filter(lambda text: text == text.rstrip() and not re.search(r",[A-Za-z0-9_.-]+=", text))
FORMS = {
    "configs": (as_configs, SHOWN_VALUES),
    "all configs": (as_all_configs, SHOWN_VALUES),
    "topics": (as_topics, LISTED_VALUES),
    "old topics": (as_old_topics, LISTED_VALUES),
    "ZooKeeper": (as_zookeeper_configs, LISTED_VALUES),
}


def topics_of(
    values: st.SearchStrategy[str], names: st.SearchStrategy[str] = SETTING_NAMES
) -> st.SearchStrategy[Topics]:
    return st.dictionaries(NAMES, st.dictionaries(names, values, max_size=5), min_size=1, max_size=4)


ENDS = st.sampled_from(["\n", "\r\n", "\r"])
MARKS = st.sampled_from([(b"", "utf-8"), (b"", "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16-le"), (b"", "utf-16")])


@pytest.mark.parametrize(("printed", "shown"), FORMS.values(), ids=FORMS)
@given(data=st.data(), end=ENDS, mark=MARKS)
def test_any_settings(
    printed: Form, shown: st.SearchStrategy[str], data: st.DataObject, end: str, mark: tuple[bytes, str]
) -> None:
    topics, (first, encoding) = data.draw(topics_of(shown)), mark
    assume(printed is not as_configs or len(topics) > 1 or all(topics.values()))
    found = read(first + printed(topics).replace("\n", end).encode(encoding))
    assert {topic: each.values for topic, each in found.items()} == topics
    assert {each.topic_id for each in found.values()} == {IDS[0] if printed is as_topics else None}


@pytest.mark.parametrize("value", ODD_VALUES)
def test_odd_values(value: str) -> None:
    topics = {"t": {"retention.ms": value, "a": value}, "s": {"zz": value}}
    for printed, shown in FORMS.values():
        if shown is SHOWN_VALUES or value == value.rstrip():
            assert values(printed(topics)) == topics


@given(topics=topics_of(VALUES, NAMES_IN_JSON), indent=st.sampled_from([None, 2]), is_ascii=st.booleans())
def test_any_settings_in_json(topics: Topics, indent: int | None, is_ascii: bool) -> None:
    assert values(json.dumps(topics, indent=indent, ensure_ascii=is_ascii)) == topics


@given(topics=topics_of(LISTED_VALUES), number=st.integers(0, 30), printed=st.sampled_from([as_configs, as_topics]))
def test_any_place_of_a_wrong_line(topics: Topics, number: int, printed: Form) -> None:
    lines = printed(topics).split("\n")
    number = min(number, len(lines))
    lines.insert(number, f"secret={SECRET}")
    assert refusal("\n".join(lines)) == f"line {number + 1}: {NEITHER}'secret=...'"


WORDS = ("Topic:", " ", "t", "\t", "Configs:", "=", ",", "are", ":", "\n", "{", "}", '"', "1")


@given(st.text(st.characters(exclude_categories=["Cs"])) | st.lists(st.sampled_from(WORDS)).map("".join))
def test_any_text_is_read_or_refused(text: str) -> None:
    problem = ""
    try:
        assert read(text)
    except ConfigError as refused:
        problem = str(refused).split("\n")[0]
    assert len(problem) < 400


def test_thousands_of_topics() -> None:
    topics = {f"t-{number}": {"cleanup.policy": "compact,delete"} for number in range(5_000)}
    assert values(as_topics(topics)) == values(as_all_configs(topics)) == topics
