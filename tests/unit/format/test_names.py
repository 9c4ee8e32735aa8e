"""Names of files and directories, in both directions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact.format.names import (
    MAX_OFFSET,
    DirectoryKind,
    FileName,
    Suffix,
    Temporary,
    TopicPartition,
    file_name,
    index_name,
    log_name,
    parse_directory,
    parse_file_name,
    snapshot_name,
    time_index_name,
    txn_index_name,
)

ID = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("name", "topic", "partition", "kind"),
    [
        ("orders-0", "orders", 0, DirectoryKind.PARTITION),
        ("a-b-c-12", "a-b-c", 12, DirectoryKind.PARTITION),
        ("-0", None, 0, None),
        ("--0", "-", 0, DirectoryKind.PARTITION),
        ("orders-2147483647", "orders", 2147483647, DirectoryKind.PARTITION),
        ("orders-2147483648", None, 0, None),
        ("orders-00", None, 0, None),
        ("orders-+1", None, 0, None),
        ("orders-\u0661", None, 0, None),
        ("orders", None, 0, None),
        ("orders-", None, 0, None),
        ("or ders-0", None, 0, None),
        ("orders-0\n", None, 0, None),
        ("../x-0", None, 0, None),
        ("..-0", None, 0, None),
        ("x" * 249 + "-0", "x" * 249, 0, DirectoryKind.PARTITION),
        ("x" * 250 + "-0", None, 0, None),
        (f"orders-0.{ID}-delete", "orders", 0, DirectoryKind.DELETE),
        (f"a.b-c-7.{ID}-future", "a.b-c", 7, DirectoryKind.FUTURE),
        (f"orders-3.{ID}-stray", "orders", 3, DirectoryKind.STRAY),
        (f"orders-3.{ID}-other", None, 0, None),
        ("orders-3.abc-delete", None, 0, None),
        (f"orders.{ID}-delete", None, 0, None),
        ("remote-log-index-cache", None, 0, None),
        ("__cluster_metadata-0", "__cluster_metadata", 0, DirectoryKind.PARTITION),
    ],
)
def test_directory_names(name: str, topic: str | None, partition: int, kind: DirectoryKind | None) -> None:
    parsed = parse_directory(name)
    if topic is None:
        assert parsed is None
    else:
        assert parsed is not None
        assert parsed.topic_partition == TopicPartition(topic, partition)
        assert parsed.kind is kind
        assert str(parsed) == name


@pytest.mark.parametrize(
    ("name", "base_offset", "suffix", "temporary"),
    [
        ("00000000000000000000.log", 0, ".log", ""),
        ("00000000000000000042.index", 42, ".index", ""),
        ("00000000000000000042.timeindex.swap", 42, ".timeindex", ".swap"),
        ("00000000000000000042.txnindex.cleaned", 42, ".txnindex", ".cleaned"),
        ("09223372036854775807.log.deleted", MAX_OFFSET, ".log", ".deleted"),
        ("00000000000000000007.snapshot", 7, ".snapshot", ""),
        ("00000000000000000007.snapshot.deleted", 7, ".snapshot", ".deleted"),
    ],
)
def test_file_names(name: str, base_offset: int, suffix: str, temporary: str) -> None:
    parsed = parse_file_name(name)
    assert parsed == FileName(base_offset=base_offset, suffix=Suffix(suffix), temporary=Temporary(temporary))
    assert str(parsed) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "0.log",
        "0000000000000000000.log",
        "000000000000000000000.log",
        "09223372036854775808.log",
        "99999999999999999999.log",
        "-0000000000000000001.log",
        "\u0660" * 20 + ".log",
        "00000000000000000000.LOG",
        "00000000000000000000.log\n",
        "00000000000000000000.log.swap.swap",
        "00000000000000000000.log.tmp",
        "00000000000000000000",
        "00000000000000000007.snapshot.swap",
        "00000000000000000007.snapshot.cleaned",
        "00000000000000000007-abc.snapshot",
        "leader-epoch-checkpoint",
    ],
)
def test_other_file_names_are_unknown(name: str) -> None:
    assert parse_file_name(name) is None


def test_each_kind_of_file_has_its_name() -> None:
    made = [make(42) for make in (log_name, index_name, time_index_name, txn_index_name, snapshot_name)]
    assert made == [f"00000000000000000042{suffix}" for suffix in Suffix]
    assert made == [file_name(42, suffix) for suffix in Suffix]


@given(st.from_regex(r"[a-zA-Z0-9._-]{1,30}", fullmatch=True), st.integers(0, 2**31 - 1))
def test_partition_names_come_back(topic: str, partition: int) -> None:
    expected = None if topic in (".", "..") else TopicPartition(topic, partition)
    assert TopicPartition.parse(f"{topic}-{partition}") == expected


@given(st.integers(0, MAX_OFFSET), st.sampled_from(Suffix), st.sampled_from(Temporary))
def test_file_names_come_back(base_offset: int, suffix: Suffix, temporary: Temporary) -> None:
    name = FileName(base_offset=base_offset, suffix=suffix, temporary=temporary)
    is_written = suffix is not Suffix.SNAPSHOT or temporary in (Temporary.NO, Temporary.DELETED)
    assert parse_file_name(str(name)) == (name if is_written else None)


@given(st.text())
def test_any_text_is_a_name_or_unknown(text: str) -> None:
    for parsed in (parse_file_name(text), parse_directory(text)):
        assert parsed is None or str(parsed) == text
