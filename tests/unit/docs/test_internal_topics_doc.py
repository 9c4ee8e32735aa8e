"""The tables and the example of `docs/internal-topics.md` agree with the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kcompact.config.settings import INTERNAL_TOPIC_SETTINGS
from kcompact.format.messages.coordinators import RECORD_TYPES, decode
from kcompact.format.names import CONSUMER_OFFSETS

PAGE = (Path(__file__).parents[3] / "docs" / "internal-topics.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (\d+) \| (\w+) \| ([\w, ]+) \| (?:0-)?(\d+) \| ([\d-]+) \| .+ \|$", re.MULTILINE)


@pytest.mark.parametrize("topic", sorted(RECORD_TYPES))
def test_the_types_of_a_topic(topic: str) -> None:
    _, _, section = PAGE.partition(f"\n## `{topic}`\n")
    listed = {
        int(number): (name, tuple(key.split(", ")), int(last), flexible)
        for number, name, key, last, flexible in ROW.findall(section.partition("\n## ")[0])
    }
    assert listed == {
        number: (
            kind.name,
            tuple(field.name for field in kind.key.fields),
            kind.last_version,
            str(kind.flexible_since) if kind.flexible_since <= kind.last_version else "-",
        )
        for number, kind in RECORD_TYPES[topic].items()
    }


def test_the_policies() -> None:
    listed = dict(re.findall(r"^\| `(__\w+)` \| `(\w+)`", PAGE, re.MULTILINE))
    assert listed == {topic: settings["cleanup.policy"] for topic, settings in INTERNAL_TOPIC_SETTINGS.items()}


def test_the_example() -> None:
    key, value = (
        bytes.fromhex("".join(re.findall(r"^((?:[0-9a-f]{2} )+) ", text + "\n", re.MULTILINE)))
        for text in re.findall(r"^```hex \w+\n(.*?)\n```$", PAGE, re.DOTALL | re.MULTILINE)
    )
    decoded = decode(CONSUMER_OFFSETS, key, value)
    shown = {"group": "g", "topic": "ok", "partition": 3}
    assert decoded.key == shown
    assert decoded.value == {"offset": 7, "leaderEpoch": -1, "metadata": "", "commitTimestamp": 1704099600000}
