"""Odd values of settings: Kafka's own classes read the same files, and take or refuse the same values.

`generated` writes files of a seed. Other seeds are tried with `SEED=7 make oracle`.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kcompact.config.broker_config import BrokerConfig
from kcompact.config.layers import merged_config, with_refusals
from kcompact.config.properties_files import read_properties
from kcompact.config.server_properties import used_properties
from kcompact.config.settings import (
    BROKER_NAMES,
    BROKER_SETTINGS,
    NO_OVERRIDES,
    SERVICE_ONLY,
    TOPIC_SETTINGS,
    TopicConfig,
    is_used,
)
from kcompact.format.java_values import read_boolean, read_double, read_integer, read_list, trimmed
from kcompact.format.text_lines import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN
from tests.oracle.real_kafka import RealKafka

pytestmark = pytest.mark.oracle

SEED = int(os.environ.get("SEED") or 1)
FILES, TEXTS = 60, 3_000
BROKER = """\
process.roles=broker
node.id=1
controller.quorum.voters=2@localhost:9093
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://localhost:9092
log.dirs=/data
"""
BLANKS = (*[""] * 8, " ", "\t", "\0", "\x1f", "\xa0", "\u2003", "\x85", "\ufeff")
# The first three of each are values of nearly every setting.
INTEGERS = (*"60000 3000000 +5 0 1 5 -1 -5 007 \u0665\u0660 \uff11 1_0 5.0 5L 0x5".split(), "")
INTEGERS += tuple(str(bound + more) for bound in (INT_MIN, INT_MAX, LONG_MIN, LONG_MAX) for more in (-1, 0, 1))
DOUBLES = (
    *"0.5 .5 1. 1 0.9d 0.9F 1e-3 0x1p-1 0X.8P0f -0.0 1.0000000000000000001 4.9e-324".split(),
    *"NaN -NaN Infinity -Infinity inf nan infinity NaNd 1_0 \u0665 0x1 1e 1,5 -1".split(),
    "",
)
BOOLEANS = (*"true FALSE True fal\u017fe yes 1 0 tru \uff54rue".split(), "", "t rue")
LISTS = (
    *"compact delete compact,delete Compact compact, , compact,compact compact;delete none".split(),
    *("", "delete , compact", "compact,\xa0delete", "compact\x1c,delete", "compact\x0b,\fdelete", "compact delete"),
)
ALL_LISTS = (*LISTS, "a ,b", "\x1c,\x1d", " , ")
BUFFER = "log.cleaner.dedupe.buffer.size"
OF_DOUBLES = (
    "log.cleaner.min.cleanable.ratio",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.max.bytes.per.second",
)
TEXTS_OF: dict[str, tuple[str, ...]] = dict.fromkeys(sorted(BROKER_NAMES), INTEGERS)
TEXTS_OF |= dict.fromkeys(OF_DOUBLES, DOUBLES) | {"log.cleaner.enable": BOOLEANS, "log.cleanup.policy": LISTS}
# Kafka 4 wants a mebibyte. Brokers of older releases can have less, so kcompact takes less.
TEXTS_OF["log.segment.bytes"] = tuple(
    text for text in INTEGERS if not 14 <= (read_integer(trimmed(text)) or 0) < 1 << 20
)


def written(text: str, chance: random.Random) -> str:
    """Return a value as a properties file can have it: with escapes, and continued on the next line."""
    parts = []
    for number, character in enumerate(text):
        if not " " <= character <= "~" or (character == " " and not number) or chance.random() < 0.1:
            parts.append(escaped(character))
        else:
            parts.append(character)
        if chance.random() < 0.03:
            parts.append("\\\n   ")
    return "".join(parts)


def escaped(text: str) -> str:
    return "".join(f"\\u{ord(character):04x}" for character in text)


def generated(chance: random.Random) -> str:
    """Return the file of a broker with odd values. Some names repeat, and the last one counts."""
    names = chance.sample([*TEXTS_OF], 5)
    lines = [chance.choice(("", "", "# log.cleaner.threads=x\n", "! log.cleaner.threads=\\\n"))]
    for name in chance.choices(names, k=chance.randint(1, 4)):
        texts = TEXTS_OF[name][:3] if chance.random() < 0.4 else TEXTS_OF[name]
        text = chance.choice(BLANKS) + chance.choice(texts) + chance.choice(BLANKS)
        separator = chance.choice(("=", ":", " ", " = ", "\t:"))
        lines.append(f"{chance.choice(('', ' '))}{name}{separator}{written(text, chance)}\n")
    return BROKER + "".join(lines)


def file_of(properties: Mapping[str, str]) -> str:
    return "".join(f"{name}={escaped(text)}\n" for name, text in properties.items())


def asked(kafka: RealKafka, directory: Path, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return what a broker has that is started with each of some files, or the error with which it ends."""
    directory.mkdir()
    files = [directory / str(number) for number in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text, encoding="ascii")
    replies: list[dict[str, Any]] = kafka.call("settings", files=[*map(str, files)])["files"]
    return replies


def same(ours: object, kafka: object) -> bool:
    if isinstance(ours, float):
        number = float(str(kafka))
        return ours == number or (math.isnan(ours) and math.isnan(number))
    return ours == (frozenset(kafka) if isinstance(ours, frozenset) and isinstance(kafka, list) else kafka)


def read(directory: Path, texts: Sequence[str]) -> list[TopicConfig]:
    """Return what kcompact has for a topic that overrides nothing, from each of the files of a directory."""
    brokers = [BrokerConfig(properties=used_properties(read_properties(directory / str(n)))) for n in range(len(texts))]
    return [merged_config("orders", overrides=(), own=NO_OVERRIDES, broker=with_refusals(broker)) for broker in brokers]


@pytest.mark.parametrize("seed", [SEED, SEED + 1, SEED + 2])
def test_files_of_brokers(kafka: RealKafka, tmp_path: Path, seed: int) -> None:
    """A broker starts if nothing is refused. It starts with what is left, and with nothing that is."""
    chance = random.Random(seed)
    texts = [generated(chance) for _ in range(FILES)]
    replies, configs = asked(kafka, tmp_path / "all", texts), read(tmp_path / "all", texts)
    left, alone = [], []
    for text, reply, config in zip(texts, replies, configs, strict=True):
        broker = config.broker
        assert ("error" in reply["starts"]) == bool(broker.refused), (text, reply)
        # Before it starts, a broker removes what a list has twice.
        assert {name for name, why in reply["refused"].items() if "duplicated" not in str(why)} <= {*broker.refused}
        kept = {name: broker.properties[name] for name in broker.properties.keys() - broker.refused.keys()}
        # Which number of threads is too large depends on the buffer.
        corrected = {BUFFER: str(LONG_MAX)} if BUFFER in broker.refused else {}
        left.append(BROKER + file_of(kept | corrected))
        alone += [
            BROKER + file_of({name: broker.properties[name] for name, each in broker.refused.items() if each is error})
            for error in broker.refused.values()
        ]
    for text, reply, config in zip(texts, asked(kafka, tmp_path / "left", left), configs, strict=True):
        for name in {
            BROKER_SETTINGS.get(each, each)
            for each in BROKER_NAMES
            if is_used(each, explains=True) or each in SERVICE_ONLY
        } - config.unresolved:
            told = reply["starts"][f"topic:{name}" if name in TOPIC_SETTINGS else name]
            assert same(config.value_of(name), told), (name, text, reply)
    assert all("error" in reply["starts"] for reply in asked(kafka, tmp_path / "alone", alone))
    assert 0 < sum(not config.broker.refused for config in configs) < FILES


def mixed(chance: random.Random, texts: tuple[str, ...]) -> str:
    """Return an odd text, or one of parts of two."""
    one, other = chance.choice(texts), chance.choice(texts)
    cut = one[: chance.randint(0, len(one))] + other[chance.randint(0, len(other)) :]
    return chance.choice(BLANKS) + chance.choice((one, cut, cut)) + chance.choice(BLANKS)


def integer_in(low: int, high: int) -> Callable[[str], int | None]:
    def number_of(text: str) -> int | None:
        number = read_integer(trimmed(text))
        return number if number is not None and low <= number <= high else None

    return number_of


KINDS: list[tuple[str, Callable[[str], object], tuple[str, ...]]] = [
    ("INT", integer_in(INT_MIN, INT_MAX), INTEGERS),
    ("LONG", integer_in(LONG_MIN, LONG_MAX), INTEGERS),
    ("DOUBLE", read_double, DOUBLES),
    ("BOOLEAN", read_boolean, BOOLEANS),
    ("LIST", read_list, ALL_LISTS),
    ("STRING", trimmed, (*INTEGERS, *ALL_LISTS)),
]


@pytest.mark.parametrize(("kind", "parse", "texts"), KINDS, ids=[kind for kind, _, _ in KINDS])
def test_texts(kafka: RealKafka, kind: str, parse: Callable[[str], object], texts: tuple[str, ...]) -> None:
    chance = random.Random(SEED)
    tried = [mixed(chance, texts) for _ in range(TEXTS)]
    tried += [chr(code) for code in range(0x10000) if not 0xD800 <= code < 0xE000]
    replies = kafka.call("parse", type=kind, texts=tried)["values"]
    for text, reply in zip(tried, replies, strict=True):
        ours = parse(text)
        assert (ours is None) == (not reply), (text, ours, reply)
        assert ours is None or same(ours, reply[0]), (text, ours, reply)
