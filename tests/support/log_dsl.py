"""A small language for logs: text to `LogSpec` and back. `log_writer` writes the directory of a `LogSpec`.

    log now=10:00 delete.retention.ms=1h checkpoint=0
    0: a=1 [b=2 c=~]@1..4(lz4) "a b"=""@7^09:30{h=x}
    8:                       # an empty segment
    8: d=*100 ; mtime=09:10  # `*100` is a value of 100 bytes

A line is a segment: base offset, then batches. `key=value` is a record and by itself a batch of one; brackets hold a
batch of several, or of none. `~` is null: a value of `~` makes a tombstone.

    @5          the record's offset; else the next one        @5..9     the batch's first and last offset
    ^09:30      the record's timestamp; else 09:00            {h=x i=~} its headers
    (...)       of a batch: a codec, horizon=TIME, append (LogAppendTime), max=TIME, pid=N epoch=N seq=N, leader=N,
                txn, bytes=N (the last value is made as long as that takes). A batch of `commit` or `abort` is a marker,
                one of `control-N` has a control record of type N.

Times are `[Nd]HH:MM[:SS[.mmm]]` since the start of 2024, or plain milliseconds; durations have a unit: ms s m h d.
The line of settings takes Kafka's topic settings, and: name, now, checkpoint, start, hw, recovery (checkpoints of the
log directory), `lone` (no log directory around it), `unclean`. `snapshot 5: pid=7 epoch=0 seq=3 last=4 at=09:00` is a
producer's entry in the snapshot at offset 5; `snapshot 5:` alone makes an empty one.
`txnindex 0: pid=7 first=1 last=4 stable=5` is an aborted transaction in the index of the segment at 0.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from kcompact.config.settings import LONG_MAX
from kcompact.format import batch as batch_format
from kcompact.format.batch import (
    CONTROL_BIT,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    Batch,
    Header,
    Record,
    parse_batches,
    read_records,
)
from kcompact.format.codec import Codec
from kcompact.format.index import AbortedTxn
from kcompact.format.names import log_name
from kcompact.format.producer_snapshot import ProducerEntry
from kcompact.release import RELEASES
from tests.support.log_writer import DAY_ZERO, DEFAULT_TIME, LogSpec, SegmentSpec

_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_CODECS = {codec.name.lower(): codec for codec in Codec}
_MARKERS = {"abort": 0, "commit": 1}
_OWN_SETTINGS = {"name", "now", "checkpoint", "start", "hw", "recovery", "lone", "unclean", "release"}


# --- Text to values ---------------------------------------------------------------------------------------


def time_of(text: str) -> int:
    """Return a time in Unix milliseconds."""
    clock = re.fullmatch(r"(?:(\d+)d)?(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{3}))?)?", text)
    if clock is None:
        return int(text)
    days, hours, minutes, seconds, millis = (int(part or 0) for part in clock.groups())
    return DAY_ZERO + (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + millis


def duration_of(text: str) -> int:
    """Return a duration in milliseconds; `max` is the greatest there is."""
    if text == "max":
        return LONG_MAX
    match = re.fullmatch(r"(-?\d+)(ms|s|m|h|d)?", text)
    assert match, f"not a duration: {text}"
    return int(match[1]) * _UNITS[match[2] or "ms"]


def parse(text: str, *, base: LogSpec | None = None) -> LogSpec:
    """Return the log that the lines describe; with `base`, lines are added to that log and its settings stay.

    A line whose base offset is already there adds batches to that segment.
    """
    head, *lines = text.strip().splitlines()
    spec = _with_settings(base or LogSpec(segments=()), head.split()[1:])
    for line in lines:
        line = line.strip()
        if line.startswith("snapshot "):
            spec = _with_snapshot(spec, line)
        elif line.startswith("txnindex "):
            spec = _with_aborted(spec, line)
        else:
            spec = _with_segment(spec, line)
    return spec


def _with_settings(spec: LogSpec, words: Sequence[str]) -> LogSpec:
    own: dict[str, str] = {}
    settings = dict(spec.settings)
    for word in words:
        name, _, value = word.partition("=")
        if name in _OWN_SETTINGS:
            own[name] = value
        else:
            settings[name] = str(duration_of(value)) if name.endswith(".ms") else value
    return replace(
        spec,
        settings=settings,
        name=own.get("name", spec.name),
        now_ms=time_of(own["now"]) if "now" in own else spec.now_ms,
        checkpoint=int(own["checkpoint"]) if "checkpoint" in own else spec.checkpoint,
        start=int(own["start"]) if "start" in own else spec.start,
        high_watermark=int(own["hw"]) if "hw" in own else spec.high_watermark,
        recovery_point=int(own["recovery"]) if "recovery" in own else spec.recovery_point,
        lone=spec.lone or "lone" in own,
        unclean=spec.unclean or "unclean" in own,
        release=RELEASES[own["release"]] if "release" in own else spec.release,
    )


def _with_snapshot(spec: LogSpec, line: str) -> LogSpec:
    head, _, rest = line.partition(":")
    offset = int(head.split()[1])
    values = dict(word.split("=") for word in rest.split())
    entries = spec.snapshots.get(offset, ())
    if values:
        entries += (
            ProducerEntry(
                producer_id=int(values["pid"]),
                producer_epoch=int(values.get("epoch", 0)),
                last_sequence=int(values.get("seq", 0 if "last" in values else -1)),
                last_offset=int(values.get("last", -1)),
                offset_delta=0,
                timestamp=time_of(values["at"]) if "at" in values else DEFAULT_TIME,
                coordinator_epoch=int(values.get("coordinator", -1)),
                current_txn_first_offset=int(values.get("open", -1)),
            ),
        )
    return replace(spec, snapshots={**spec.snapshots, offset: entries})


def _with_aborted(spec: LogSpec, line: str) -> LogSpec:
    head, _, rest = line.partition(":")
    base_offset = int(head.split()[1])
    values = {name: int(value) for name, value in (word.split("=") for word in rest.split())}
    entry = AbortedTxn(
        producer_id=values["pid"],
        first_offset=values["first"],
        last_offset=values["last"],
        last_stable_offset=values["stable"],
    )
    return replace(spec, aborted={**spec.aborted, base_offset: (*spec.aborted.get(base_offset, ()), entry)})


def _with_segment(spec: LogSpec, line: str) -> LogSpec:
    body, _, options = line.partition(" ;")
    base_text, colon, rest = body.partition(":")
    assert colon, f"not a segment: {line}"
    base_offset = int(base_text)
    known = {segment.base_offset: segment for segment in spec.segments}
    segment = known.get(base_offset, SegmentSpec(base_offset=base_offset))
    next_offset = base_offset
    for before in parse_batches(segment.data, file=""):
        next_offset = before.header.next_offset
    values = dict(word.split("=") for word in options.split())
    segment = replace(
        segment,
        batches=(*segment.batches, *_Parser(rest, next_offset).batches()),
        mtime_ms=time_of(values["mtime"]) if "mtime" in values else segment.mtime_ms,
    )
    known[base_offset] = segment
    return replace(spec, segments=tuple(known[base] for base in sorted(known)))


_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s\[\](){}@^="]+')


class _Parser:
    """Batches out of the rest of a segment's line."""

    def __init__(self, text: str, next_offset: int) -> None:
        self.text = text
        self.at = 0
        self.next_offset = next_offset

    def batches(self) -> Iterator[bytes]:
        while self._skip_blanks():
            yield self._batch()

    def _skip_blanks(self) -> bool:
        while self.text[self.at : self.at + 1].isspace():
            self.at += 1
        return self.at < len(self.text)

    def _take(self, char: str) -> bool:
        if self.text.startswith(char, self.at):
            self.at += len(char)
            return True
        return False

    def _word(self) -> str:
        match = _WORD.match(self.text, self.at)
        assert match, f"expected a word at: {self.text[self.at :]!r}"
        self.at = match.end()
        return match[0]

    def _batch(self) -> bytes:
        start_offset = self.next_offset
        last_offset = None
        records = []
        if self._take("["):
            while self._skip_blanks() and not self._take("]"):
                records.append(self._record())
            if self._take("@"):
                first, _, last = self._word().partition("..")
                start_offset, last_offset = int(first), int(last or first)
                if records and not any(record.offset >= 0 for record in records):
                    self.next_offset = start_offset
        else:
            records.append(self._record())
        kind = _marker(records[0].key) if records else ""
        numbered = []
        for record in records:
            offset = record.offset if record.offset >= 0 else self.next_offset
            numbered.append(record._replace(offset=offset))
            self.next_offset = offset + 1
        if last_offset is None:
            start_offset = numbered[0].offset if numbered else start_offset
            last_offset = numbered[-1].offset if numbered else start_offset
        self.next_offset = last_offset + 1
        return _build(numbered, start_offset, last_offset, self._attributes(), marker=kind)

    def _record(self) -> Record:
        key, value = self._word(), "~"
        if self._take("="):
            value = self._word()
        offset = int(self._word()) if self._take("@") else -1
        timestamp = time_of(self._word()) if self._take("^") else DEFAULT_TIME
        headers = []
        if self._take("{"):
            while self._skip_blanks() and not self._take("}"):
                name = _content(self._word()) or b""
                headers.append((name, _content(self._word()) if self._take("=") else None))
        return Record(offset, timestamp, _content(key), _content(value), tuple(headers))

    def _attributes(self) -> dict[str, str]:
        found = {}
        if self._take("("):
            while self._skip_blanks() and not self._take(")"):
                name = self._word()
                found[name] = self._word() if self._take("=") else ""
        return found


def _content(word: str) -> bytes | None:
    if word == "~":
        return None
    if re.fullmatch(r"\*\d+", word):
        return b"x" * int(word[1:])
    if word.startswith('"'):
        return word[1:-1].encode().decode("unicode_escape").encode("latin-1")
    return word.encode()


def _marker(key: bytes | None) -> str:
    """Return which marker a key stands for, the empty string for a key of a data record."""
    text = (key or b"").decode(errors="replace")
    return text if text in _MARKERS or re.fullmatch(r"control-\d+", text) else ""


def _build(records: list[Record], base_offset: int, last_offset: int, words: dict[str, str], *, marker: str) -> bytes:
    wanted_bytes = words.pop("bytes", None)
    if wanted_bytes is not None:
        return _padded(records, base_offset, last_offset, words, int(wanted_bytes))
    codec = next((_CODECS[word] for word in words if word in _CODECS), Codec.NONE)
    timestamps = [record.timestamp for record in records]
    max_timestamp = time_of(words["max"]) if "max" in words else max(timestamps, default=DEFAULT_TIME)
    has_producer = "pid" in words
    header = Header(
        base_offset=base_offset,
        length=0,
        partition_leader_epoch=int(words.get("leader", 0)),
        magic=2,
        crc=0,
        attributes=codec
        | (LOG_APPEND_TIME_BIT if "append" in words else 0)
        | (TRANSACTIONAL_BIT if "txn" in words or marker else 0)
        | (CONTROL_BIT if marker or "control" in words else 0),
        last_offset_delta=last_offset - base_offset,
        base_timestamp=-1,
        max_timestamp=max_timestamp,
        producer_id=int(words.get("pid", -1)),
        producer_epoch=int(words.get("epoch", 0 if has_producer else -1)),
        base_sequence=int(words.get("seq", 0 if has_producer and not marker else -1)),
        records_count=0,
    )
    if marker:
        coordinator_epoch = int(words.get("coordinator", 0))
        number = _MARKERS[marker] if marker in _MARKERS else int(marker.removeprefix("control-"))
        records = [
            record._replace(key=struct.pack(">hh", 0, number), value=struct.pack(">hi", 0, coordinator_epoch))
            for record in records
        ]
    if not records:
        return batch_format.empty(header)
    horizon = time_of(words["horizon"]) if "horizon" in words else None
    return batch_format.rebuild(header, records, delete_horizon_ms=horizon)


def _padded(records: list[Record], base_offset: int, last_offset: int, words: dict[str, str], wanted: int) -> bytes:
    assert wanted_is_possible(wanted), wanted
    for length in range(wanted, -1, -1):
        padded = [*records[:-1], records[-1]._replace(value=b"x" * length)]
        data = _build(padded, base_offset, last_offset, dict(words), marker="")
        if len(data) <= wanted:
            assert len(data) == wanted, f"no value makes a batch of {wanted} bytes"
            return data
    raise AssertionError(f"no batch is as short as {wanted} bytes")


def wanted_is_possible(size_bytes: int) -> bool:
    """Whether a batch of one small record can have this size at all."""
    return size_bytes > batch_format.HEADER_BYTES + 8


# --- Values to text ---------------------------------------------------------------------------------------


def time_text(timestamp: int) -> str:
    """Return a time in this language."""
    days, rest = divmod(timestamp - DAY_ZERO, _UNITS["d"])
    if not 0 <= days < 1000:
        return str(timestamp)
    hours, rest = divmod(rest, _UNITS["h"])
    minutes, rest = divmod(rest, _UNITS["m"])
    seconds, millis = divmod(rest, 1000)
    text = f"{f'{days}d' if days else ''}{hours:02d}:{minutes:02d}"
    if seconds or millis:
        text += f":{seconds:02d}"
    return text + (f".{millis:03d}" if millis else "")


def _content_text(content: bytes | None) -> str:
    if content is None:
        return "~"
    if len(content) > 12 and not content.strip(b"x"):
        return f"*{len(content)}"
    text = content.decode("latin-1")
    if re.fullmatch(r"[\w.$/:+-]+", text, re.ASCII):
        return text
    escaped = text.encode("unicode_escape").decode("ascii").replace('"', '\\"')
    return f'"{escaped}"'


def batch_text(one: Batch) -> str:
    """Return a batch in this language."""
    header = one.header
    records = read_records(one, file="")
    words = _attribute_words(header, records)
    bounds = (header.base_offset, header.last_offset)
    if len(records) == 1 and bounds == (records[0].offset, records[0].offset):
        text = _record_text(records[0], header)
    else:
        text = f"[{' '.join(_record_text(record, header) for record in records)}]"
        if not records or bounds != (records[0].offset, records[-1].offset):
            text += f"@{bounds[0]}..{bounds[1]}"
    return text + (f"({' '.join(words)})" if words else "")


def _record_text(record: Record, header: Header) -> str:
    if header.is_control and record.key is not None:
        kind = int.from_bytes(record.key[2:4], "big")
        text = next((name for name, number in _MARKERS.items() if number == kind), f"control-{kind}")
    else:
        text = f"{_content_text(record.key)}={_content_text(record.value)}"
    text += f"@{record.offset}"
    if record.timestamp != DEFAULT_TIME:
        text += f"^{time_text(record.timestamp)}"
    if record.headers:
        text += "{" + " ".join(f"{_content_text(name)}={_content_text(value)}" for name, value in record.headers) + "}"
    return text


def _attribute_words(header: Header, records: Sequence[Record]) -> list[str]:
    words = []
    if header.codec_id:
        words.append(Codec(header.codec_id).name.lower())
    if header.delete_horizon_ms is not None:
        words.append(f"horizon={time_text(header.delete_horizon_ms)}")
    if header.is_log_append_time:
        words.append("append")
    if header.max_timestamp != max((record.timestamp for record in records), default=DEFAULT_TIME):
        words.append(f"max={time_text(header.max_timestamp)}")
    if header.has_producer_id:
        words.append(f"pid={header.producer_id}")
        words += [f"epoch={header.producer_epoch}"] if header.producer_epoch else []
        words += [f"seq={header.base_sequence}"] if header.base_sequence > 0 else []
    if header.is_transactional and not header.is_control:
        words.append("txn")
    if header.is_control and not records:
        words.append("control")
    if header.partition_leader_epoch:
        words.append(f"leader={header.partition_leader_epoch}")
    return words


def segment_text(segment: SegmentSpec) -> str:
    """Return a segment's line."""
    batches = [batch_text(one) for one in parse_batches(segment.data, file=log_name(segment.base_offset))]
    return " ".join([f"{segment.base_offset}:", *batches])


def text_of(segments: Iterable[SegmentSpec]) -> str:
    """Return segments as text, one line each."""
    return "\n".join(segment_text(segment) for segment in segments)


def aborted_text(base_offset: int, entry: AbortedTxn) -> str:
    """Return an aborted transaction's line."""
    return (
        f"txnindex {base_offset}: pid={entry.producer_id} first={entry.first_offset} last={entry.last_offset} "
        f"stable={entry.last_stable_offset}"
    )
