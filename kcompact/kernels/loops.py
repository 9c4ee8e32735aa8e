"""The loops. Nothing imports this module but `machine`, which compiles it, once on each machine.

A kernel says the same as a readable definition elsewhere, and tests/test_kernels.py holds the two together. It trusts
no byte: every read is bounded by its array, every loop by its length. It never raises and allocates nothing: it stops
at what it does not know and returns a code and a place.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kcompact.kernels.declared import (
    ACTION,
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    CODEC_MASK,
    CONTROL_BIT,
    COPIED,
    DAMAGED,
    DELETE_HORIZON_BIT,
    DISCARDABLE,
    DONE,
    EMPTIED,
    ENCODED,
    EPOCH,
    FLAGS,
    FULL,
    HEADER_BYTES,
    INVALID_MESSAGES,
    IO_ERROR,
    LAST_OFFSET,
    LEFT_OUT,
    LEGACY,
    LOG_APPEND_TIME_BIT,
    MAX_TIMESTAMP,
    MESSAGES_WRITTEN,
    MIN_RECORD_BYTES,
    NEW_ATTRIBUTES,
    NEW_BASE_TIMESTAMP,
    NEW_MAX_TIMESTAMP,
    OUT_END,
    OUT_START,
    POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORDS_COUNT,
    ROW,
    SECTION_END,
    SECTION_START,
    SIZE,
    TRANSACTIONAL_BIT,
    UNKNOWN,
    Bytes,
    Table,
)

loop = numba.njit(nogil=True, error_model="numpy")

# Loads and stores of any alignment, in either order, and the processor's own CRC-32C.


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any, bits: int) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), ir.IntType(bits).as_pointer())


def _loader(bits: int, result: Any, *, swapped: bool) -> Any:
    @intrinsic
    def load(typingctx: Any, array: Any, index: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            loaded = builder.load(_pointer(context, builder, signature.args[0], args[0], args[1], bits))
            loaded.align = 1
            if swapped:
                loaded = builder.bswap(loaded)
            if bits == 64:
                return loaded
            return builder.sext(loaded, ir.IntType(64))

        return result(array, types.intp), codegen

    return load


def _storer(bits: int) -> Any:
    @intrinsic
    def store(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = _pointer(context, builder, signature.args[0], args[0], args[1], bits)
            value = args[2] if bits == 64 else builder.trunc(args[2], ir.IntType(bits))
            builder.store(builder.bswap(value), pointer).align = 1
            return context.get_dummy_value()

        return types.void(array, types.intp, types.int64), codegen

    return store


_load_le64 = _loader(64, types.uint64, swapped=False)
_load_be64 = _loader(64, types.int64, swapped=True)
_load_be32 = _loader(32, types.int64, swapped=True)
_load_be16 = _loader(16, types.int64, swapped=True)
_store_be64, _store_be32, _store_be16 = _storer(64), _storer(32), _storer(16)


@intrinsic
def _copy(typingctx: Any, target: Any, at: Any, source: Any, start: Any, count: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to = _pointer(context, builder, signature.args[0], args[0], args[1], 8)
        origin = _pointer(context, builder, signature.args[2], args[2], args[3], 8)
        cgutils.raw_memcpy(builder, to, origin, args[4], 1)
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp, types.intp), codegen


HAS_CRC_INSTRUCTION = binding.get_host_cpu_features().get("sse4.2", False)


@intrinsic
def _crc_step(typingctx: Any, crc: Any, word: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word64 = ir.IntType(64)
        step = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(word64, [word64, word64]), "llvm.x86.sse42.crc32.64.64"
        )
        return builder.call(step, args)

    return types.uint64(types.uint64, types.uint64), codegen


def _crc_tables() -> npt.NDArray[np.uint64]:
    tables = np.zeros((8, 256), np.uint64)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        tables[0, byte] = value
    for number in range(1, 8):
        for byte in range(256):
            before = int(tables[number - 1, byte])
            tables[number, byte] = before >> 8 ^ int(tables[0, before & 0xFF])
    return tables


_TABLES = _crc_tables()

if HAS_CRC_INSTRUCTION:

    @loop
    def _crc_words(buffer, start, words, crc):
        for i in range(words):
            crc = _crc_step(crc, _load_le64(buffer, start + 8 * i))
        return crc

else:

    @loop
    def _crc_words(buffer, start, words, crc):
        for i in range(words):
            word = crc ^ _load_le64(buffer, start + 8 * i)
            crc = np.uint64(0)
            for j in range(8):
                crc ^= _TABLES[7 - j, (word >> np.uint64(8 * j)) & np.uint64(0xFF)]
        return crc


@loop
def crc32c(buffer: Bytes, start: int, end: int) -> int:
    """buffer u8[n], 0 <= start <= end <= n -> CRC-32C of buffer[start:end].

    The definition is the `crc32c` library.
    """
    words = (end - start) >> 3
    crc = _crc_words(buffer, start, words, np.uint64(0xFFFFFFFF))
    for i in range(start + 8 * words, end):
        crc = crc >> np.uint64(8) ^ _TABLES[0, (crc ^ np.uint64(buffer[i])) & np.uint64(0xFF)]
    return np.uint32(crc ^ np.uint64(0xFFFFFFFF))


# Batches


@loop
def _read_header(buffer, at, row):
    """Fill a row from the 61 bytes at `at`, which are there. Returns DONE, LEGACY or DAMAGED."""
    magic = buffer[at + 16]
    if magic < 2:
        return LEGACY
    base_offset = _load_be64(buffer, at)
    length = _load_be32(buffer, at + 8)
    last_offset_delta = _load_be32(buffer, at + 23)
    records_count = _load_be32(buffer, at + 57)
    attributes = _load_be16(buffer, at + 21)
    if magic > 2 or length < HEADER_BYTES - 12 or base_offset < 0 or last_offset_delta < 0 or records_count < 0:
        return DAMAGED
    if attributes & CODEC_MASK > 4 or base_offset + last_offset_delta < base_offset:
        return DAMAGED
    row[POSITION] = at
    row[SIZE] = length + 12
    row[BASE_OFFSET] = base_offset
    row[LAST_OFFSET] = base_offset + last_offset_delta
    row[EPOCH] = _load_be32(buffer, at + 12)
    row[ATTRIBUTES] = attributes
    row[BASE_TIMESTAMP] = _load_be64(buffer, at + 27)
    row[MAX_TIMESTAMP] = _load_be64(buffer, at + 35)
    row[PRODUCER_ID] = _load_be64(buffer, at + 43)
    row[PRODUCER_EPOCH] = _load_be16(buffer, at + 51)
    row[BASE_SEQUENCE] = _load_be32(buffer, at + 53)
    row[RECORDS_COUNT] = records_count
    row[SECTION_START] = at + HEADER_BYTES
    row[SECTION_END] = at + length + 12
    row[FLAGS] = 0
    return DONE


@loop
def walk(buffer: Bytes, size: int, base_offset: int, end_offset: int, epoch: int, table: Table) -> tuple[int, int, int]:
    """buffer u8[>= size], table i64[m, 16] -> (batches, bytes they fill, code); their rows are filled.

    Hops from header to header and checks each batch as `log.verified_batches` does: checksum, offsets that rise and
    lie in [base_offset, end_offset), leader epochs that do not fall below `epoch`. FULL: the table ends before the
    batches do. A batch that reaches beyond `size` is DAMAGED, unless the caller knows that there is more.
    """
    at = count = records = 0
    previous = base_offset - 1
    while at < size:
        if count == table.shape[0]:
            return count, at, FULL
        if at + HEADER_BYTES > size:
            return count, at, DAMAGED
        row = table[count]
        code = _read_header(buffer, at, row)
        if code != DONE:
            return count, at, code
        end = at + row[SIZE]
        if end > size or row[BASE_OFFSET] <= previous or row[LAST_OFFSET] >= end_offset:
            return count, at, DAMAGED
        if -1 < row[EPOCH] < epoch:
            return count, at, DAMAGED
        if crc32c(buffer, at + 21, end) != np.uint32(_load_be32(buffer, at + 17)):
            return count, at, DAMAGED
        row[ROW] = records
        records += row[RECORDS_COUNT]
        previous = row[LAST_OFFSET]
        epoch = max(epoch, row[EPOCH])
        at = end
        count += 1
    return count, at, DONE


# Of the C library, which is there in every process.
_pread = types.ExternalFunction("pread", types.intp(types.intc, types.voidptr, types.uintp, types.intp))


@loop
def hop(descriptor: int, start: int, end: int, scratch: Bytes, table: Table) -> tuple[int, int, int]:
    """scratch u8[64], table i64[m, 16] -> (batches, position behind them, code); POSITION is that in the file.

    Reads the headers of an open file and nothing else; `format.batch.read_header` is the definition. FULL: call again
    from the position. A batch that reaches beyond `end` is DAMAGED.
    """
    at = start
    count = 0
    while at < end:
        if count == table.shape[0]:
            return count, at, FULL
        if at + HEADER_BYTES > end:
            return count, at, DAMAGED
        if _pread(descriptor, scratch.ctypes, HEADER_BYTES, at) != HEADER_BYTES:
            return count, at, IO_ERROR
        row = table[count]
        code = _read_header(scratch, 0, row)
        if code != DONE:
            return count, at, code
        if at + row[SIZE] > end:
            return count, at, DAMAGED
        row[POSITION] = at
        row[SECTION_START] += at
        row[SECTION_END] += at
        row[ROW] = 0
        at += row[SIZE]
        count += 1
    return count, at, DONE


# Records


@loop
def _varint(buffer, at, end):
    """Return (value, position after it) of a zigzag varint of at most 5 bytes; position -1 where there is none."""
    if at >= end:
        return np.int64(0), np.int64(-1)
    byte = np.int64(buffer[at])
    if byte < 0x80:  # Nearly all of them.
        return byte >> 1 ^ -(byte & 1), at + 1
    value = byte & 0x7F
    shift = 7
    while shift < 35:
        at += 1
        if at >= end:
            return np.int64(0), np.int64(-1)
        byte = np.int64(buffer[at])
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= 0xFFFFFFFF  # The last group may carry bits beyond the type; Java shifts them out.
            return value >> 1 ^ -(value & 1), at + 1
        shift += 7
    return np.int64(0), np.int64(-1)


@loop
def _varlong(buffer, at, end):
    """The same for at most 10 bytes."""
    value = np.uint64(0)
    shift = np.uint64(0)
    while shift < 70:
        if at >= end:
            return np.int64(0), np.int64(-1)
        byte = np.uint64(buffer[at])
        value |= (byte & np.uint64(0x7F)) << shift
        at += 1
        if byte < np.uint64(0x80):
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), at
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)


@loop
def _field(buffer, at, end):
    """Return (start, end) of a field of bytes; start -1 for null, end -1 where it does not fit before `end`."""
    length, at = _varint(buffer, at, end)
    if at < 0 or length > end - at:
        return np.int64(-1), np.int64(-1)
    if length < 0:
        return np.int64(-1), at
    return at, at + length


@loop
def _headers_end(buffer, at, end):
    """Return where the headers of a record end, -1 where they do not add up."""
    count, at = _varint(buffer, at, end)
    if at < 0 or count < 0 or count > end - at:
        return np.int64(-1)
    for _ in range(count):
        start, at = _field(buffer, at, end)
        if at < 0 or start < 0:
            return np.int64(-1)
        _, at = _field(buffer, at, end)
        if at < 0:
            return np.int64(-1)
    return at


@loop
def _record(section, at, section_end):
    """Return (end, timestamp delta, offset delta, key start, key end, value start) of the record at a position.

    The end is -1 where the record does not add up; a start is -1 for null.
    """
    bad = np.int64(-1), np.int64(0), np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    length, at = _varint(section, at, section_end)
    if at < 0 or length < 0 or length > section_end - at:
        return bad
    end = at + length
    timestamp_delta, at = _varlong(section, at + 1, section_end)  # Behind the attributes, which nobody uses.
    if at < 0:
        return bad
    offset_delta, at = _varint(section, at, section_end)
    if at < 0:
        return bad
    key_start, key_end = _field(section, at, end)
    if key_end < 0:
        return bad
    value_start, at = _field(section, key_end, end)
    if at < 0:
        return bad
    if end - at == 1 and section[at] == 0:
        at += 1  # No headers.
    else:
        at = _headers_end(section, at, end)
    if at != end:
        return bad
    return end, timestamp_delta, offset_delta, key_start, key_end, value_start


@loop
def _rotl(value, bits):
    return value << np.uint64(bits) | value >> np.uint64(64 - bits)


@loop
def _sip_round(v0, v1, v2, v3):
    v0 += v1
    v1 = _rotl(v1, 13) ^ v0
    v0 = _rotl(v0, 32)
    v2 += v3
    v3 = _rotl(v3, 16) ^ v2
    v0 += v3
    v3 = _rotl(v3, 21) ^ v0
    v2 += v1
    v1 = _rotl(v1, 17) ^ v2
    v2 = _rotl(v2, 32)
    return v0, v1, v2, v3


@loop
def _siphash128(buffer, start, end, k0, k1, c_rounds, d_rounds):
    v0 = k0 ^ np.uint64(0x736F6D6570736575)
    v1 = k1 ^ np.uint64(0x646F72616E646F6D) ^ np.uint64(0xEE)
    v2 = k0 ^ np.uint64(0x6C7967656E657261)
    v3 = k1 ^ np.uint64(0x7465646279746573)
    length = end - start
    at = start
    for _ in range(length >> 3):
        word = _load_le64(buffer, at)
        v3 ^= word
        for _ in range(c_rounds):
            v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0 ^= word
        at += 8
    word = np.uint64(length & 0xFF) << np.uint64(56)
    left = end - at
    if at + 8 <= buffer.shape[0]:
        if left:
            word |= _load_le64(buffer, at) & (np.uint64(1) << np.uint64(8 * left)) - np.uint64(1)
    else:
        for i in range(left):
            word |= np.uint64(buffer[at + i]) << np.uint64(8 * i)
    v3 ^= word
    for _ in range(c_rounds):
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= np.uint64(0xEE)
    for _ in range(d_rounds):
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    low = v0 ^ v1 ^ v2 ^ v3
    v1 ^= np.uint64(0xDD)
    for _ in range(d_rounds):
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    return low, v0 ^ v1 ^ v2 ^ v3


@loop
def siphash128(
    buffer: Bytes, start: int, end: int, k0: int, k1: int, c_rounds: int = 1, d_rounds: int = 3
) -> tuple[int, int]:
    """buffer u8[n], 0 <= start <= end <= n -> the two halves of SipHash-c-d-128 of buffer[start:end], low first.

    The definition: the reference implementation of its authors, by its published vectors.
    """
    return _siphash128(buffer, start, end, k0, k1, c_rounds, d_rounds)


@loop
def scan_records(
    buffer: Bytes,
    arena: Bytes,
    table: Table,
    first: int,
    end: int,
    first_dirty_offset: int,
    place: int,
    k0: int,
    k1: int,
    hash_high: npt.NDArray[np.uint64],
    hash_low: npt.NDArray[np.uint64],
    places: npt.NDArray[np.int64],
) -> tuple[int, int, int]:
    """table i64[m, 16], the outputs [>= records] -> (keyed records, special records, code).

    Walks every record of the batches [first, end) of the table and checks it as `format.batch.read_records` does. For
    each record of a data batch with a key: its SipHash-1-3-128 and its place, `place + (row << 1 | in_map)`.
    Special are records without a key and tombstones: what a cleaning may drop or rewrite though nothing supersedes it.
    """
    entries = special = 0
    for number in range(first, end):
        row = table[number]
        count = row[RECORDS_COUNT]
        if count == 0:
            continue  # Kafka does not look at what follows the header either.
        attributes = row[ATTRIBUTES]
        section = arena if attributes & CODEC_MASK else buffer
        at, section_end = row[SECTION_START], row[SECTION_END]
        if count > (section_end - at) // MIN_RECORD_BYTES:
            return entries, special, DAMAGED
        is_control = attributes & CONTROL_BIT != 0
        previous = np.int64(-1)
        span = row[LAST_OFFSET] - row[BASE_OFFSET]
        is_left_out = row[FLAGS] & LEFT_OUT != 0
        for index in range(count):
            at, _, offset_delta, key_start, key_end, value_start = _record(section, at, section_end)
            if at < 0 or offset_delta <= previous or offset_delta > span:
                return entries, special, DAMAGED
            previous = offset_delta
            if is_control:
                continue  # The keys of markers look like keys and are none.
            if key_start < 0 or value_start < 0:
                special += 1
            if key_start >= 0:
                low, high = _siphash128(section, key_start, key_end, k0, k1, 1, 3)
                in_map = row[BASE_OFFSET] + offset_delta >= first_dirty_offset and not is_left_out
                hash_low[entries], hash_high[entries] = low, high
                places[entries] = place + ((row[ROW] + index) << 1 | np.int64(in_map))
                entries += 1
        if at != section_end:
            return entries, special, DAMAGED
    return entries, special, DONE


@loop
def verify_records(
    buffer: Bytes, arena: Bytes, table: Table, first: int, end: int, found: Table
) -> tuple[int, int, int]:
    """table i64[m, 16], found i64[m, 3] -> (batches done, records, code); rows of `found`: tombstones, records without
    a key, greatest timestamp (of a batch with records; else that of its header).

    Walks every record of the batches [first, end) as `format.batch.read_records` does; stops at the first bad batch.
    """
    records = 0
    for number in range(first, end):
        row = table[number]
        count = row[RECORDS_COUNT]
        attributes = row[ATTRIBUTES]
        section = arena if attributes & CODEC_MASK else buffer
        at, section_end = row[SECTION_START], row[SECTION_END]
        found[number, 0] = found[number, 1] = 0
        found[number, 2] = row[MAX_TIMESTAMP]
        if count == 0:
            continue
        if count > (section_end - at) // MIN_RECORD_BYTES:
            return number, records, DAMAGED
        previous = np.int64(-1)
        span = row[LAST_OFFSET] - row[BASE_OFFSET]
        is_append_time = attributes & LOG_APPEND_TIME_BIT != 0
        greatest = np.int64(-0x8000000000000000)
        for _ in range(count):
            at, timestamp_delta, offset_delta, key_start, _, value_start = _record(section, at, section_end)
            if at < 0 or offset_delta <= previous or offset_delta > span:
                return number, records, DAMAGED
            previous = offset_delta
            found[number, 0] += value_start < 0
            found[number, 1] += key_start < 0
            greatest = max(greatest, row[BASE_TIMESTAMP] + timestamp_delta)
        if at != section_end:
            return number, records, DAMAGED
        if not is_append_time:
            found[number, 2] = greatest
        records += count
    return end, records, DONE


# Keys


@loop
def mark_living(
    hash_high: npt.NDArray[np.uint64],
    hash_low: npt.NDArray[np.uint64],
    places: npt.NDArray[np.int64],
    alive: Bytes,
    starts: npt.NDArray[np.int64],
    dealt: npt.NDArray[np.uint64],
    order: npt.NDArray[np.int64],
    table: npt.NDArray[np.int32],
) -> None:
    """hash_high, hash_low u64[n], places i64[n] ascending -> alive u8[n]: 1 where no other record supersedes the row.

    `keymap.latest` is the definition. Rows are dealt by hash into runs that fit the processor's cache; each run goes,
    newest first, through an open-addressing table of row numbers that holds the newest record in the map of each key.
    Scratch: starts i64[2^b + 2] for 2^b runs, dealt u64[n, 2], order i64[n], table i32[a power of two above 2n].
    """
    n = places.shape[0]
    runs = starts.shape[0] - 2
    mask_of_run = np.uint64(runs - 1)
    starts[:] = 0
    for i in range(n):
        starts[np.int64(hash_low[i] & mask_of_run) + 2] += 1
    for run in range(runs):
        starts[run + 2] += starts[run + 1]
    # From here on `starts[run + 1]` is where the next row of a run goes, and in the end where the run ends.
    for i in range(n):
        low = hash_low[i]
        run = np.int64(low & mask_of_run)
        to = starts[run + 1]
        dealt[to, 0], dealt[to, 1] = hash_high[i], low
        order[to] = i << 1 | places[i] & 1
        starts[run + 1] = to + 1
    for run in range(runs):
        first, end = starts[run], starts[run + 1]
        slots = 16
        while slots < 2 * (end - first):
            slots *= 2
        table[:slots] = -1
        mask = np.uint64(slots - 1)
        for j in range(end - 1, first - 1, -1):
            high, low = dealt[j, 0], dealt[j, 1]
            slot = (high >> np.uint64(32)) & mask  # The low bits chose the bucket that these rows are of.
            known = table[slot]
            while known >= 0 and (dealt[known, 0] != high or dealt[known, 1] != low):
                slot = (slot + np.uint64(1)) & mask
                known = table[slot]
            alive[order[j] >> 1] = known < 0
            if known < 0 and order[j] & 1:
                table[slot] = j


@loop
def keep_living(
    alive: Bytes,
    hash_high: npt.NDArray[np.uint64],
    hash_low: npt.NDArray[np.uint64],
    places: npt.NDArray[np.int64],
) -> int:
    """Move the rows that are alive to the front, in their order; return how many there are."""
    kept = 0
    for i in range(places.shape[0]):
        if alive[i]:
            hash_high[kept], hash_low[kept], places[kept] = hash_high[i], hash_low[i], places[i]
            kept += 1
    return kept


@loop
def deal(
    hash_high: npt.NDArray[np.uint64],
    hash_low: npt.NDArray[np.uint64],
    places: npt.NDArray[np.int64],
    buckets: int,
    high_out: npt.NDArray[np.uint64],
    low_out: npt.NDArray[np.uint64],
    places_out: npt.NDArray[np.int64],
    starts: npt.NDArray[np.int64],
) -> None:
    """Sort rows by bucket, `hash_high % buckets`, in their order within each.

    starts i64[buckets + 2]: bucket b is then [starts[b], starts[b + 1]).
    """
    starts[:] = 0
    divisor = np.uint64(buckets)
    for i in range(places.shape[0]):
        starts[np.int64(hash_high[i] % divisor) + 2] += 1
    for bucket in range(buckets):
        starts[bucket + 2] += starts[bucket + 1]
    for i in range(places.shape[0]):
        bucket = np.int64(hash_high[i] % divisor)
        to = starts[bucket + 1]
        high_out[to], low_out[to], places_out[to] = hash_high[i], hash_low[i], places[i]
        starts[bucket + 1] = to + 1


@loop
def set_bits(places: npt.NDArray[np.int64], first_place: int, bitmap: Bytes) -> None:
    """Set the bit of each place's row, counted from that of `first_place`: bit `r & 7` of byte `r >> 3`."""
    limit = np.int64(bitmap.shape[0]) << 3
    for i in range(places.shape[0]):
        row = places[i] - first_place >> 1
        if 0 <= row < limit:
            bitmap[row >> 3] |= np.uint8(1 << (row & 7))


@loop
def clear_bits(places: npt.NDArray[np.int64], first_place: int, bitmap: Bytes) -> None:
    """Clear the bit of each place's row, counted from that of `first_place`: bit `r & 7` of byte `r >> 3`."""
    limit = np.int64(bitmap.shape[0]) << 3
    for i in range(places.shape[0]):
        row = places[i] - first_place >> 1
        if 0 <= row < limit:
            bitmap[row >> 3] &= ~np.uint8(1 << (row & 7))


# Writing


@loop
def _put_varint(out, at, value):
    """Write the shortest zigzag encoding of a 64-bit value; at most 10 bytes."""
    zigzag = np.uint64(value << 1) ^ np.uint64(value >> 63)
    while zigzag > np.uint64(0x7F):
        out[at] = np.uint8(zigzag & np.uint64(0x7F) | np.uint64(0x80))
        zigzag >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(zigzag)
    return at + 1


@loop
def _varint_bytes(value):
    zigzag = np.uint64(value << 1) ^ np.uint64(value >> 63)
    count = 1
    while zigzag > np.uint64(0x7F):
        zigzag >>= np.uint64(7)
        count += 1
    return count


@loop
def _plain_field(buffer, at, end, is_text):
    """Return where a field ends that Kafka's writer would write as the same bytes, -1 for any other.

    Those have a shortest length, -1 for null; a header's key must also be ASCII, because Kafka decodes it.
    """
    length, start = _varint(buffer, at, end)
    if start < 0 or length < -1 or start - at != _varint_bytes(length) or length > end - start:
        return np.int64(-1)
    if is_text:
        for i in range(start, start + length):
            if buffer[i] >= 0x80:
                return np.int64(-1)
    return start + max(length, 0)


@loop
def _is_plain(buffer, at, end):
    """Whether key, value and headers of a record, [at, end), can be copied as they are."""
    at = _plain_field(buffer, at, end, False)
    if at < 0:
        return False
    at = _plain_field(buffer, at, end, False)
    if at < 0:
        return False
    if end - at == 1:
        return buffer[at] == 0
    count, start = _varint(buffer, at, end)
    if start < 0 or count < 0 or count > end - start or start - at != _varint_bytes(count):
        return False
    at = start
    for _ in range(count):
        at = _plain_field(buffer, at, end, True)
        if at < 0:
            return False
        at = _plain_field(buffer, at, end, False)
        if at < 0:
            return False
    return at == end


@loop
def filter_batches(
    buffer: Bytes,
    arena: Bytes,
    table: Table,
    first: int,
    end: int,
    survivors: Bytes,
    upper_bound_offset: int,
    expires_ms: int,
    new_horizon_ms: int,
    scratch: Table,
    out: Bytes,
    at_out: int,
    outcomes: Table,
) -> int:
    """table i64[m, 16], survivors u8[records / 8], scratch i64[>= records of a batch, 4] -> the new end of `out`.

    Decides the batches [first, end) as `filter.clean_batch` does and fills their rows of outcomes i64[m, 8]. A batch
    that is encoded anew lies in `out` whole if it is not compressed, else its records alone. `new_horizon_ms` is the
    horizon that tombstones get, -1 for none. The caller sees to it that `out` has room for the records, and
    RECORD_GROWTH_BYTES more for each, and a header.
    """
    for number in range(first, end):
        row = table[number]
        outcome = outcomes[number]
        outcome[:] = 0
        count = row[RECORDS_COUNT]
        attributes = row[ATTRIBUTES]
        is_control = attributes & CONTROL_BIT != 0
        has_horizon = attributes & DELETE_HORIZON_BIT != 0
        if row[FLAGS] & DISCARDABLE or (has_horizon and row[BASE_TIMESTAMP] < 0) or (is_control and count == 0):
            outcome[ACTION] = UNKNOWN
            continue
        section = arena if attributes & CODEC_MASK else buffer
        at, section_end = row[SECTION_START], row[SECTION_END]
        if count > (section_end - at) // MIN_RECORD_BYTES or count > scratch.shape[0]:
            outcome[ACTION] = UNKNOWN
            continue
        is_append_time = attributes & LOG_APPEND_TIME_BIT != 0
        is_expired = has_horizon and row[BASE_TIMESTAMP] <= expires_ms
        kept = invalid = 0
        has_tombstone = False
        is_readable = True
        lowest = np.int64(0x7FFFFFFFFFFFFFFF)
        greatest = np.int64(-0x8000000000000000)
        for index in range(count):
            length, at = _varint(section, at, section_end)
            if at < 0 or length < 0 or length > section_end - at:
                is_readable = False
                break
            record_end = at + length
            timestamp_delta, at = _varlong(section, at + 1, record_end)
            if at < 0:
                is_readable = False
                break
            offset_delta, at = _varint(section, at, record_end)
            if at < 0:
                is_readable = False
                break
            key_start, key_end = _field(section, at, record_end)
            if key_end < 0:
                is_readable = False
                break
            value_start, value_end = _field(section, key_end, record_end)
            if value_end < 0:
                is_readable = False
                break
            is_past_map = row[BASE_OFFSET] + offset_delta >= upper_bound_offset
            if is_control or is_past_map:
                is_kept = True
            elif key_start < 0:
                invalid += 1
                is_kept = False
            else:
                bit = row[ROW] + index
                is_kept = survivors[bit >> 3] >> np.uint8(bit & 7) & 1 != 0
                if value_start < 0 and is_expired:
                    is_kept = False
            if is_kept:
                has_tombstone = has_tombstone or value_start < 0
                timestamp = row[MAX_TIMESTAMP] if is_append_time else row[BASE_TIMESTAMP] + timestamp_delta
                scratch[kept, 0] = at
                scratch[kept, 1] = record_end
                scratch[kept, 2] = timestamp
                scratch[kept, 3] = offset_delta
                lowest = min(lowest, timestamp)
                greatest = max(greatest, timestamp)
                kept += 1
            at = record_end
        outcome[MESSAGES_WRITTEN] = kept
        outcome[INVALID_MESSAGES] = invalid
        if not is_readable or (is_control and has_tombstone):
            outcome[ACTION] = UNKNOWN
            continue
        if kept == 0:
            outcome[ACTION] = EMPTIED
            continue
        needs_horizon = has_tombstone and not has_horizon
        if kept == count and not needs_horizon:
            outcome[ACTION] = COPIED
            continue
        has_producer = row[PRODUCER_ID] != -1
        if (
            lowest < -1
            or (attributes & TRANSACTIONAL_BIT and not has_producer)
            or (has_producer and (row[PRODUCER_EPOCH] == -1 or row[BASE_SEQUENCE] < 0))
        ):
            outcome[ACTION] = UNKNOWN  # Kafka's writer refuses it.
            continue
        horizon = row[BASE_TIMESTAMP] if has_horizon else new_horizon_ms if needs_horizon else np.int64(-1)
        base_timestamp = scratch[0, 2] if horizon < 0 else horizon
        is_compressed = attributes & CODEC_MASK != 0
        start = at_out
        to = start if is_compressed else start + HEADER_BYTES
        is_plain = True
        for i in range(kept):
            rest, rest_end = scratch[i, 0], scratch[i, 1]
            if not _is_plain(section, rest, rest_end):
                is_plain = False
                break
            timestamp_delta = scratch[i, 2] - base_timestamp
            offset_delta = scratch[i, 3]
            length = 1 + _varint_bytes(timestamp_delta) + _varint_bytes(offset_delta) + rest_end - rest
            to = _put_varint(out, to, length)
            out[to] = 0
            to = _put_varint(out, to + 1, timestamp_delta)
            to = _put_varint(out, to, offset_delta)
            _copy(out, to, section, rest, rest_end - rest)
            to += rest_end - rest
        if not is_plain:
            outcome[ACTION] = UNKNOWN
            continue
        new_attributes = attributes & (CODEC_MASK | LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT)
        if horizon >= 0:
            new_attributes |= DELETE_HORIZON_BIT
        max_timestamp = row[MAX_TIMESTAMP] if is_append_time else greatest
        outcome[ACTION] = ENCODED
        outcome[OUT_START] = start
        outcome[OUT_END] = to
        outcome[NEW_BASE_TIMESTAMP] = base_timestamp
        outcome[NEW_MAX_TIMESTAMP] = max_timestamp
        outcome[NEW_ATTRIBUTES] = new_attributes
        if not is_compressed:
            _copy(out, start, buffer, row[POSITION], HEADER_BYTES)
            _store_be32(out, start + 8, to - start - 12)
            _store_be16(out, start + 21, new_attributes)
            _store_be64(out, start + 27, base_timestamp)
            _store_be64(out, start + 35, max_timestamp)
            _store_be32(out, start + 57, kept)
            _store_be32(out, start + 17, np.int64(crc32c(out, start + 21, to)))
        at_out = to
    return at_out


@loop
def index_entries(
    last_offsets: npt.NDArray[np.int64],
    max_timestamps: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    base_offset: int,
    interval_bytes: int,
    max_offset_entries: int,
    max_time_entries: int,
    offsets: Table,
    times: Table,
) -> tuple[int, int, int]:
    """last_offsets, max_timestamps, sizes i64[n] of the batches of a segment; offsets, times i64[n + 1, 2] ->
    (entries of the offset index, entries of the time index, code).

    `format.index.IndexBuilder` is the definition; it also words what DAMAGED means here: an index that is full, or an
    offset too far from the base.
    """
    offset_count = time_count = 0
    position = since_entry = 0
    largest, largest_offset, written = np.int64(-1), base_offset, np.int64(-1)
    for i in range(last_offsets.shape[0]):
        relative = last_offsets[i] - base_offset
        if relative < 0 or relative > 0x7FFFFFFF:
            return offset_count, time_count, DAMAGED
        if max_timestamps[i] > largest:
            largest, largest_offset = max_timestamps[i], last_offsets[i]
        if since_entry > interval_bytes:
            if offset_count >= max_offset_entries or time_count >= max_time_entries:
                return offset_count, time_count, DAMAGED
            offsets[offset_count, 0] = relative
            offsets[offset_count, 1] = position
            offset_count += 1
            if largest > written:
                times[time_count, 0] = written = largest
                times[time_count, 1] = largest_offset - base_offset
                time_count += 1
            since_entry = 0
        since_entry += sizes[i]
        position += sizes[i]
    if largest > written:
        times[time_count, 0] = largest
        times[time_count, 1] = largest_offset - base_offset
        time_count += 1
    return offset_count, time_count, DONE
