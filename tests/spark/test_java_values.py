"""`format.java_values` reads what the Java of Spark reads, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import NumberFormatException

from kcompact.engine.spark import OnSpark
from kcompact.format.java_values import read_double, read_integer
from kcompact.format.text_lines import LONG_MAX, LONG_MIN

SEED, TEXTS = 1, 1_000
PARTS = (
    *"5 0 7 \u0665 \uff11 . + - e E3 d F L _ 0x 1p P-1 a NaN Infinity inf nan \U0001d7d3".split(),
    *(" ", "\t", "\xa0", "\x85", "\0", "9" * 18, "0" * 30),
)


def text(chance: random.Random) -> str:
    return "".join(chance.choices(PARTS, weights=[5, 4, 4, *[1] * (len(PARTS) - 3)], k=chance.randint(0, 5)))


def long_of(written: str) -> int | None:
    number = read_integer(written)
    return number if number is not None and LONG_MIN <= number <= LONG_MAX else None


@pytest.mark.parametrize(("name", "read"), [("Long.parseLong", long_of), ("Double.valueOf", read_double)])
def test_numbers(on_spark: OnSpark, name: str, read: Callable[[str], object]) -> None:
    java = on_spark.sc._jvm
    for part in ("java", "lang", *name.split(".")):
        java = getattr(java, part)
    chance = random.Random(SEED)
    numbers = 0
    for written in dict.fromkeys(text(chance) for _ in range(TEXTS)):
        try:
            expected = java(written)
        except (Py4JJavaError, NumberFormatException) as error:  # The second one if Spark has had a session by then.
            if isinstance(error, Py4JJavaError) and "NumberFormatException" not in str(error.java_exception):
                raise
            expected = None
        numbers += expected is not None
        assert repr(read(written)) == repr(expected), written
    assert TEXTS // 80 < numbers < TEXTS // 2
