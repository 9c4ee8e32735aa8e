"""The signature of each kernel, as data: its parameters, which arrays it writes, and what it returns.

Three things are derived from these signatures, so they always agree: the C functions that `build` compiles, the checks
and calls in `calls`, and the list in `docs/kernels.md`.
"""

from __future__ import annotations

from kcompact.values import dataclass

SYMBOL_PREFIX = "kcompact_"
C_TYPES = {"u8": "uint8_t", "u64": "uint64_t", "i32": "int32_t", "i64": "int64_t"}
"""The element types of parameters, and their names in C."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter of a kernel. `dimensions` is 0 for a number, 1 or 2 for a C-contiguous array.

    `is_written` says that the kernel may change the array; such an array must be writable.
    """

    name: str
    type: str
    dimensions: int = 0
    is_written: bool = False

    @property
    def kind(self) -> str:
        """The type with its dimensions: `i64`, `u8[]` or `i64[,]`."""
        return self.type + ("", "[]", "[,]")[self.dimensions]

    @property
    def extents(self) -> tuple[str, ...]:
        """The names of the C parameters that hold the lengths of the array."""
        return tuple(f"{self.name}_{axis}" for axis in range(self.dimensions))


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The parameters of a kernel in their order, and the names of the 64-bit integers that it returns."""

    parameters: tuple[Parameter, ...]
    results: tuple[str, ...] = ()

    def c_prototype(self, name: str) -> str:
        """Return the C function of the kernel `name`.

        An array is passed as a pointer followed by its extents; results are stored in the array `results`.
        """
        parts = []
        for parameter in self.parameters:
            c_type = C_TYPES[parameter.type]
            if not parameter.dimensions:
                parts.append(f"{c_type} {parameter.name}")
                continue
            parts.append(f"{c_type} *{parameter.name}" if parameter.is_written else f"const {c_type} *{parameter.name}")
            parts += [f"int64_t {extent}" for extent in parameter.extents]
        parts.append("int64_t *results")
        return f"void {SYMBOL_PREFIX}{name}({', '.join(parts)});"


def _number(name: str, type: str = "i64") -> Parameter:
    return Parameter(name=name, type=type)


def _read(name: str, type: str, dimensions: int = 1) -> Parameter:
    return Parameter(name=name, type=type, dimensions=dimensions)


def _written(name: str, type: str, dimensions: int = 1) -> Parameter:
    return Parameter(name=name, type=type, dimensions=dimensions, is_written=True)


def _signature(*parameters: Parameter, results: str = "") -> Signature:
    return Signature(parameters=parameters, results=tuple(results.split()))


_BUFFER = _read("buffer", "u8")
_INFLATED = _read("inflated", "u8")
_TABLE = _read("table", "i64", 2)
_TRANSACTIONAL = _read("batches", "i64", 2)
_ENTRIES = _read("entries", "i64", 2)
_IS_WANTED = _read("is_wanted", "u8")
_BATCHES = (_number("first"), _number("end"))
_HASH_KEY = (_number("k0", "u64"), _number("k1", "u64"))
_KEYS = (_read("hash_high", "u64"), _read("hash_low", "u64"), _read("record_refs", "i64"))

KERNELS = {
    "crc32c": _signature(_BUFFER, _number("start"), _number("end"), results="checksum"),
    "siphash128": _signature(
        _BUFFER,
        *(_number("start"), _number("end"), *_HASH_KEY, _number("c_rounds"), _number("d_rounds")),
        results="low high",
    ),
    "parse_batches": _signature(
        _BUFFER,
        *(_number("size"), _number("base_offset"), _number("end_offset"), _number("epoch")),
        _written("table", "i64", 2),
        results="batches filled_bytes greatest_epoch code",
    ),
    "read_batches": _signature(
        *(_number("descriptor"), _number("start"), _number("size")),
        *(_number("base_offset"), _number("end_offset"), _number("epoch")),
        *(_written("buffer", "u8"), _written("table", "i64", 2)),
        results="batches filled_bytes code",
    ),
    "scan_headers": _signature(
        *(_number("descriptor"), _number("start"), _number("until"), _number("end")),
        *(_written("scratch", "u8"), _written("table", "i64", 2)),
        results="batches end_position code",
    ),
    "scan_records": _signature(
        *(_BUFFER, _INFLATED, _TABLE, *_BATCHES, _number("first_dirty_offset"), _number("record_ref"), *_HASH_KEY),
        *(_written("hash_high", "u64"), _written("hash_low", "u64"), _written("record_refs", "i64")),
        results="keyed unkeyed tombstones control header_bytes code",
    ),
    "verify_records": _signature(
        *(_BUFFER, _INFLATED, _TABLE, *_BATCHES, _written("sums", "i64", 2)),
        results="batches records code",
    ),
    "record_columns": _signature(
        *(_BUFFER, _INFLATED, _TABLE, *_BATCHES, _number("inflated_start"), _written("columns", "i64", 2)),
        results="batches records code",
    ),
    "field_kinds": _signature(
        *(_read("data", "u8"), _read("rows", "i64"), _read("starts", "i64"), _read("sizes", "i64")),
        _written("kinds", "u8"),
    ),
    "write_lines": _signature(
        *(_read("data", "u8"), _read("values", "i64"), _read("starts", "i64"), _read("rows", "i64")),
        *(_read("kinds", "u8"), *_BATCHES),
        *(_read("programs", "i64", 2), _read("operations", "i64", 2), _read("literals", "u8"), _written("out", "u8")),
        results="lines out_end code",
    ),
    "transactional_batches": _signature(_BUFFER, _TABLE, _written("copies", "i64", 2), results="batches code"),
    "scan_transactions": _signature(
        *(_number("descriptor"), _number("start"), _number("end"), _written("scratch", "u8")),
        *(_written("row", "i64", 2), _written("copies", "i64", 2)),
        results="batches position code",
    ),
    "follow_transactions": _signature(
        *(_TRANSACTIONAL, _read("producers", "i64"), _number("start_offset")),
        *(_written("state", "i64", 2), _written("markers", "i64", 2)),
        results="markers code",
    ),
    "judge_entries": _signature(*(_read("markers", "i64", 2), _ENTRIES, _number("start_offset")), results="code"),
    "decide_transactions": _signature(
        *(_TRANSACTIONAL, _read("producers", "i64"), _ENTRIES, _read("entry_producers", "i64"), _number("next_entry")),
        *(_written("state", "i64", 2), _written("is_discardable", "u8"), _written("kept", "i64")),
        results="next_entry kept",
    ),
    "mark_latest": _signature(
        *(*_KEYS, _written("is_latest", "u8"), _written("starts", "i64"), _written("dealt", "u64", 2)),
        *(_written("order", "i64"), _written("table", "i32")),
    ),
    "keep_latest": _signature(
        *(
            _read("is_latest", "u8"),
            _written("hash_high", "u64"),
            _written("hash_low", "u64"),
            _written("record_refs", "i64"),
        ),
        results="rows",
    ),
    "deal": _signature(
        *(*_KEYS, _number("buckets"), _written("high_out", "u64"), _written("low_out", "u64")),
        *(_written("record_refs_out", "i64"), _written("starts", "i64")),
    ),
    "scan_keys": _signature(
        *(_BUFFER, _INFLATED, _TABLE, *_BATCHES, _number("start_offset"), _number("stable_offset"), _number("now_ms")),
        *(_number("record_ref"), *_HASH_KEY, _read("separator", "u8")),
        *(_written("keys", "i64", 2), _written("counts", "i64", 2)),
        results="keyed code",
    ),
    "merge_keys": _signature(
        *(_written("keys", "i64", 2), _number("rows"), _number("used_bits"), _number("run_bits")),
        *(_written("starts", "i64"), _written("dealt", "i64", 2), _written("slots", "i32")),
        results="keys",
    ),
    "hash_record_keys": _signature(
        *(_read("data", "u8"), _read("columns", "i64", 2), _read("rows", "i64"), *_HASH_KEY, _written("keys", "i64", 2))
    ),
    "hash_record_contents": _signature(
        *(_read("data", "u8"), _read("columns", "i64", 2), _read("rows", "i64"), *_HASH_KEY, _written("hashes", "i64"))
    ),
    "set_bits": _signature(_read("record_refs", "i64"), _number("first_record_ref"), _written("bitmap", "u8")),
    "clear_bits": _signature(_read("record_refs", "i64"), _number("first_record_ref"), _written("bitmap", "u8")),
    "filter_batches": _signature(
        *(_BUFFER, _INFLATED, _TABLE, *_BATCHES, _read("survivors", "u8")),
        *(_number("upper_bound_offset"), _number("expires_ms"), _number("held_back_from_offset")),
        *(
            _number("new_horizon_ms"),
            _written("scratch", "i64", 2),
            _written("out", "u8"),
            _number("out_position"),
            _written("outcomes", "i64", 2),
        ),
        results="out_end",
    ),
    "join_pieces": _signature(
        *(_BUFFER, _read("out", "u8"), _read("pieces", "i64", 2), _written("joined", "u8")), results="joined_bytes"
    ),
    "inflate_batches": _signature(
        *(_BUFFER, _written("table", "i64", 2), _IS_WANTED, *_BATCHES),
        *(_read("most_bytes", "i64"), _number("run_bytes"), _written("codecs", "i64")),
        *(_written("out", "u8"), _number("out_position")),
        results="row out_end code",
    ),
    "seal_batches": _signature(
        *(_BUFFER, _read("encoded", "u8"), _TABLE, _read("keeps_header", "u8"), *_BATCHES),
        *(_written("codecs", "i64"), _written("out", "u8"), _written("outcomes", "i64", 2)),
        results="out_end",
    ),
    "index_entries": _signature(
        *(_read("last_offsets", "i64"), _read("max_timestamps", "i64"), _read("sizes", "i64")),
        *(_number("base_offset"), _number("interval_bytes")),
        *(_number("max_offset_entries"), _number("max_time_entries")),
        *(_written("offsets", "i64", 2), _written("times", "i64", 2)),
        results="offset_entries time_entries code",
    ),
}
"""Every kernel: a function of this name in `loops`, with these parameters."""
