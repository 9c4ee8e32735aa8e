"""Logs of followers, cleaned by Kafka's cleaner and by kcompact, also where a byte of a `.txnindex` is damaged."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from itertools import count
from pathlib import Path

import pytest

from kcompact.engine.in_process import InProcess
from kcompact.errors import CorruptTransactionIndexError
from tests.oracle.chains import Chains, compare
from tests.oracle.followers import HIDDEN, LOWER, NAME, committed_records, follower_spec, peculiarities
from tests.oracle.real_kafka import Json, RealKafka, copy_log_dir
from tests.support.wrong_transaction_indexes import ENTRY

pytestmark = pytest.mark.oracle


def test_kafka_and_kcompact_agree(kafka: RealKafka, tmp_path: Path) -> None:
    counts = Counter[str]()
    for seed in (20009, 20049, 20052, 20070):
        outcome = compare(kafka, follower_spec(seed), tmp_path)
        assert outcome.differences == []
        counts += outcome.counts
    assert counts[HIDDEN] > 0
    assert counts[LOWER] > 0


@pytest.mark.parametrize("entries", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_a_changed_byte_of_a_transaction_index_is_refused_or_harmless(
    entries: int, kafka: RealKafka, tmp_path: Path
) -> None:
    """After two cleanings the committed records are those that Kafka's cleaner leaves of the sound log."""
    rng = random.Random(entries)
    for seed in count(1):
        spec = follower_spec(seed)
        chains = Chains(kafka, tmp_path / str(seed), InProcess(), Counter())
        chains.directory.mkdir()
        first, second = spec["rounds"][:2]
        chains.write_leaders(first)
        chains.write(chains.theirs, first)
        chains.load(chains.theirs, first, in_place=True)
        sound = copy_log_dir(chains.theirs, chains.directory / "sound")
        indexes = sorted((sound / NAME).glob("*.txnindex"))
        is_cleaned = bool(chains.clean_with_kafka(chains.theirs, first))
        if not is_cleaned or peculiarities(sound / NAME)[HIDDEN]:
            continue
        chains.write_leaders(second)
        chains.write(chains.theirs, second)
        chains.clean_with_kafka(chains.theirs, second)
        truth = committed_records(chains.theirs)
        for path in indexes:
            for position in range(path.stat().st_size):
                damaged = copy_log_dir(sound, chains.directory / "damaged")
                data = bytearray(path.read_bytes())
                data[position] ^= rng.randint(1, 255)
                (damaged / NAME / path.name).write_bytes(data)
                left = records_after_two_cleanings(chains, damaged, first, second)
                assert left is None or left == truth, (seed, path.name, position)
                shutil.rmtree(damaged)
            entries -= path.stat().st_size // ENTRY.size
            if entries <= 0:
                return


def records_after_two_cleanings(chains: Chains, log_dir: Path, first: Json, second: Json) -> dict[bytes, bytes] | None:
    """Clean with kcompact before and after the second round; return the newest committed values, None if refused."""
    for settings in (first, second):
        if settings is second:
            chains.write(log_dir, settings)
        for problem in chains.clean_with_kcompact(log_dir, settings).refused.values():
            assert isinstance(problem, CorruptTransactionIndexError)
            return None
    return committed_records(log_dir)
