"""The field tables and the examples of `docs/formats.md` agree with the code."""

from __future__ import annotations

import dataclasses
import re
import struct
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from kcompact.clean.offset_map import SPLIT_SHIFT
from kcompact.format import batch, block, checkpoint, index, producer_snapshot, properties
from kcompact.format.checkpoint import EpochEntry
from kcompact.format.codec import Codec, compress, decompress
from kcompact.format.index import AbortedTxn
from kcompact.format.messages.cluster_metadata import MetadataKind, MetadataRecord, read_record
from kcompact.format.names import DirectoryKind, Suffix, Temporary, TopicPartition, parse_file_name
from kcompact.format.producer_snapshot import ProducerEntry
from kcompact.format.properties import MetaProperties, PartitionMetadata
from kcompact.format.sealed_json import sealed, unsealed
from kcompact.kernels import ABORT
from kcompact.log.markers import read_marker
from tests.support.broker_files import build_clean_shutdown, build_partition_metadata
from tests.support.metadata_records import ConfigRecord, build_record, record_of

PAGE = (Path(__file__).parents[3] / "docs" / "formats.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"^```((?:hex|text) [^\n]+)\n(.*?)\n```$", PAGE, re.DOTALL | re.MULTILINE))

Fields = list[tuple[str, int]]


def section(heading: str) -> str:
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None, heading
    return found[1]


def tables(heading: str) -> list[Fields]:
    """The `field | width | meaning` tables of a section, as names and widths."""
    found = re.findall(r"\| field \| width \| meaning \|\n\|---\|---\|---\|\n((?:\|.*\n)+)", section(heading))
    return [
        [(name, int(width)) for name, width in re.findall(r"^\| (\w+) \| (\d+) \|", rows, re.MULTILINE)]
        for rows in found
    ]


def dtype_fields(dtype: np.dtype[np.void]) -> Fields:
    return [(name, dtype[name].itemsize) for name in dtype.names or ()]


def struct_fields(layout: struct.Struct, names: list[str]) -> Fields:
    order, codes = layout.format[0], re.findall(r"\d*[a-z]", layout.format[1:], re.IGNORECASE)
    return [(name, struct.calcsize(order + code)) for name, code in zip(names, codes, strict=True)]


def names_of(cls: type) -> list[str]:
    return list(getattr(cls, "_fields", ())) or [field.name for field in dataclasses.fields(cls)]


@pytest.mark.parametrize(
    ("heading", "expected", "entry_bytes"),
    [
        (
            "Offset index (`.index`)",
            [dtype_fields(index.OffsetColumns.row)],
            index.OFFSET_ENTRY_BYTES,
        ),
        (
            "Time index (`.timeindex`)",
            [dtype_fields(index.TimeColumns.row)],
            index.TIME_ENTRY_BYTES,
        ),
        (
            "Transaction index (`.txnindex`)",
            [[("version", 2), *((name, 8) for name in names_of(AbortedTxn))]],
            index.TXN_ENTRY_BYTES,
        ),
        (
            "Producer snapshot (`.snapshot`)",
            [
                struct_fields(producer_snapshot.SNAPSHOT_HEADER_STRUCT, ["version", "crc", "count"]),
                struct_fields(producer_snapshot.PRODUCER_ENTRY_STRUCT, names_of(ProducerEntry)),
            ],
            producer_snapshot.ENTRY_BYTES,
        ),
    ],
)
def test_field_tables(heading: str, expected: list[Fields], entry_bytes: int) -> None:
    assert tables(heading) == expected
    assert sum(width for _, width in expected[-1]) == entry_bytes
    assert f"ntries of {entry_bytes} bytes" in section(heading)


def test_the_batch_header() -> None:
    header, *_ = tables("Record batches")
    assert header == struct_fields(batch.HEADER_STRUCT, list(batch.Header._fields))
    assert sum(width for _, width in header) == batch.HEADER_BYTES
    assert f"A header of {batch.HEADER_BYTES} bytes" in section("Record batches")


def test_the_batch_example() -> None:
    (found,) = batch.parse_batches(example("hex batch"), file="f")
    batch.verify_crc(found, file="f")
    assert (found.header.base_offset, found.header.partition_leader_epoch) == (100, 7)
    records = [
        (record.offset, record.key, record.value, record.headers) for record in batch.read_records(found, file="f")
    ]
    assert records == [(100, b"a", b"1", ()), (101, b"b", b"2", ((b"h", b"x"),)), (102, b"a", None, ())]


def test_the_marker_example() -> None:
    (found,) = batch.parse_batches(example("hex marker"), file="f")
    batch.verify_crc(found, file="f")
    assert (found.header.base_offset, found.header.producer_id, found.header.producer_epoch) == (110, 42, 3)
    assert found.header.is_control
    assert found.header.is_transactional
    assert read_marker(found, file="f") == (ABORT, 9, 1700000000010)
    key, value = re.findall(r"\| field of the \w+ \| width \| meaning \|\n\|---\|---\|---\|\n((?:\|.*\n)+)", PAGE)
    (record,) = batch.read_records(found, file="f")
    assert (width_of(key), width_of(value)) == (len(record.key or b""), len(record.value or b""))


def width_of(rows: str) -> int:
    """Return the sum of the widths in the rows of a table."""
    return sum(int(width) for width in re.findall(r"^\| \w+ \| (\d+) \|", rows, re.MULTILINE))


def test_every_format_has_a_section() -> None:
    folder = Path(batch.__file__).parent
    files = {path.relative_to(folder.parent.parent).as_posix() for path in folder.glob("*.py")}
    files -= {f"kcompact/format/{name}.py" for name in ("__init__", "checksum", "java_values", "text_lines")}
    folders = {f"kcompact/format/{name}/" for name in ("codec", "messages")}
    assert {path for path in files | folders if f"`{path}`" not in PAGE} == set()


def test_json_with_a_checksum() -> None:
    (line,) = re.findall(r"```json\n(.*\n)```", section("JSON with a checksum"))
    assert sealed(cast(dict[str, object], unsealed(line.encode()))) == line.encode()


def test_blocks() -> None:
    header, keys = tables("Blocks")
    assert header == struct_fields(block.HEADER, ["magic", "kind", "reserved", "number", "reserved", "count"])
    assert f"A header of {block.HEADER.size} bytes" in section("Blocks")
    assert keys == dtype_fields(block.KEY_DTYPE)
    assert f"`{block.MAGIC.decode()}`" in section("Blocks")
    assert f"{block.KEYS} keys, {block.ROWS} rows, {block.BITMAP} bitmap, {block.TABLE} table" in section("Blocks")
    assert f"`split << {SPLIT_SHIFT} | row << 1 | in_map`" in section("Blocks")
    for kind, rows in (("rows", [1, 1000]), ("bitmap", [1, 3, 8])):
        assert block.head(example(f"hex block {kind}")) == (getattr(block, kind.upper()), 3, 2)
        assert example(f"hex block {kind}") == block.pack_rows(3, np.array(rows, np.int64))


def test_the_snapshot_header() -> None:
    assert producer_snapshot.SNAPSHOT_HEADER_STRUCT.size == producer_snapshot.HEADER_BYTES == 10


def example(kind: str) -> bytes:
    return bytes.fromhex(EXAMPLES[kind])


def test_index_examples() -> None:
    offsets = index.parse_offset_index(example("hex offset_index"), base_offset=0, file="f")
    assert list(offsets) == [(39, 6000)]
    times = index.parse_time_index(example("hex time_index"), base_offset=0, file="f")
    assert list(times) == [(60, 29)]
    transactions = index.parse_txn_index(example("hex aborted_txn"), base_offset=0, file="f")
    assert list(transactions) == [AbortedTxn(producer_id=42, first_offset=100, last_offset=110, last_stable_offset=111)]


def test_the_snapshot_example() -> None:
    (entry,) = producer_snapshot.parse_snapshot(example("hex snapshot"), file="f")
    assert (entry.producer_id, entry.producer_epoch, entry.last_sequence, entry.last_offset) == (42, 3, 11, 102)
    assert entry.offset_delta == 2


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_codec_examples(codec: Codec) -> None:
    section_bytes = example(f"hex codec {codec.name.lower()}")
    assert decompress(codec, section_bytes, file="f") == b"abcd" * 4
    assert compress(codec, b"abcd" * 4) == section_bytes


def test_the_codec_table() -> None:
    rows = re.findall(r"^\| (\w+) \| (\d) \|", section("Codec framing"), re.MULTILINE)
    assert [(name.upper(), int(number)) for name, number in rows] == [(codec.name, codec) for codec in Codec]


def test_checkpoint_examples() -> None:
    data = EXAMPLES["text cleaner-offset-checkpoint"].encode() + b"\n"
    entries = checkpoint.parse_offset_checkpoint(data, file="f")
    assert entries == {TopicPartition("orders", 0): 4200, TopicPartition("clicks-eu", 11): 7}
    assert checkpoint.build_offset_checkpoint(entries) == data
    epochs = checkpoint.parse_leader_epochs(EXAMPLES["text leader-epoch-checkpoint"].encode(), file="f")
    assert epochs == (EpochEntry(epoch=0, start_offset=0), EpochEntry(epoch=3, start_offset=120))


def test_the_checkpoints_are_all_there() -> None:
    listed = re.findall(r"^### (\S+)$", section("Checkpoints"), re.MULTILINE)
    assert listed == [
        checkpoint.CLEANER_OFFSET_CHECKPOINT,
        checkpoint.RECOVERY_POINT_CHECKPOINT,
        checkpoint.LOG_START_OFFSET_CHECKPOINT,
        checkpoint.REPLICATION_OFFSET_CHECKPOINT,
        checkpoint.LEADER_EPOCH_CHECKPOINT,
    ]


def test_the_other_text_files() -> None:
    own_id = EXAMPLES[f"text {properties.PARTITION_METADATA}"].encode()
    topic_id = "QNLMCLnWRESZK_ap_Xld8w"
    assert properties.parse_partition_metadata(own_id, file="f") == PartitionMetadata(version=0, topic_id=topic_id)
    assert build_partition_metadata(topic_id) == own_id
    text = EXAMPLES[f"text {properties.META_PROPERTIES}"].encode()
    assert properties.parse_meta_properties(text, file="f") == MetaProperties(
        version=1, cluster_id="4L6g3nShT-eMCtK--X86sw", node_id=1, directory_id=topic_id
    )
    shutdown = EXAMPLES[f"text {properties.CLEAN_SHUTDOWN_FILE}"].encode()
    assert shutdown == build_clean_shutdown(17)


def test_metadata_records() -> None:
    topic = read_record(example("hex metadata topic"), file="f", position=0, offset=0)
    assert isinstance(topic, MetadataRecord)
    assert (topic.fields["name"], build_record(record_of(topic))) == ("orders", example("hex metadata topic"))
    config = read_record(example("hex metadata config"), file="f", position=0, offset=0)
    assert isinstance(config, MetadataRecord)
    assert record_of(config) == ConfigRecord(2, "orders", "cleanup.policy", "compact")
    listed = re.findall(r"^\| ([\d, ]+) \| ([\w, ]+) \|", section("KRaft metadata"), re.MULTILINE)
    keys = [int(key) for keys, _ in listed for key in keys.split(",")]
    assert keys == [int(key) for key in MetadataKind]


def test_the_tables_of_names() -> None:
    names = section("File names")
    first_cells = re.findall(r"^\| `([^`]+)` \|", names, re.MULTILINE)
    directories = [f"<topic>-<partition>.<32 hex digits>-{kind}" for kind in DirectoryKind if kind]
    temporary = [kind for kind in Temporary if kind]
    assert first_cells == ["<topic>-<partition>", *directories, *Suffix, *temporary]
    shown = re.search(r"^Example: `([^`]+)`", names, re.MULTILINE)
    assert shown is not None
    parsed = parse_file_name(shown[1])
    assert parsed is not None
    assert (parsed.base_offset, parsed.suffix, parsed.temporary) == (4200, ".timeindex", ".swap")
