"""The kernels as Python functions that numba compiles. Only `build` imports this package.

    memory        words of any alignment, in either byte order; copies
    checksum      CRC-32C
    siphash       the hash of a key
    headers       the header of a batch; tables of batches, from memory or from a file; sums of a table
    records       a record of a batch; the records of a run of batches
    lines         lines of text from columns of numbers and fields of bytes
    transactions  the transactional and the control batches; which transactions were aborted, and what can be dropped
    latest        the latest record of each key
    keys          counts of records and bytes by key
    contents      hashes of records whose fields are known as columns
    bitmaps       a bit for each record
    libraries     calls of C functions of the compression libraries
    snappy        raw blocks of snappy
    inflate       the record sections of compressed batches
    filter        what each batch is after a cleaning
    deflate       compresses and seals the new batches
    indexes       the entries of the offset index and the time index

Each kernel repeats a readable definition, which its docstring names; the tests compare the two. A kernel trusts no byte
that it reads: every read stays inside its array, and every loop has a bound. A kernel raises nothing and allocates
nothing. Where it cannot continue it returns a code and a position.
"""

from __future__ import annotations

from kcompact.kernels.loops.bitmaps import clear_bits as clear_bits
from kcompact.kernels.loops.bitmaps import set_bits as set_bits
from kcompact.kernels.loops.checksum import crc32c as crc32c
from kcompact.kernels.loops.contents import hash_record_contents as hash_record_contents
from kcompact.kernels.loops.contents import hash_record_keys as hash_record_keys
from kcompact.kernels.loops.deflate import seal_batches as seal_batches
from kcompact.kernels.loops.filter import filter_batches as filter_batches
from kcompact.kernels.loops.filter import join_pieces as join_pieces
from kcompact.kernels.loops.headers import parse_batches as parse_batches
from kcompact.kernels.loops.headers import read_batches as read_batches
from kcompact.kernels.loops.headers import scan_headers as scan_headers
from kcompact.kernels.loops.indexes import index_entries as index_entries
from kcompact.kernels.loops.inflate import inflate_batches as inflate_batches
from kcompact.kernels.loops.keys import merge_keys as merge_keys
from kcompact.kernels.loops.keys import scan_keys as scan_keys
from kcompact.kernels.loops.latest import deal as deal
from kcompact.kernels.loops.latest import keep_latest as keep_latest
from kcompact.kernels.loops.latest import mark_latest as mark_latest
from kcompact.kernels.loops.lines import field_kinds as field_kinds
from kcompact.kernels.loops.lines import write_lines as write_lines
from kcompact.kernels.loops.records import record_columns as record_columns
from kcompact.kernels.loops.records import scan_records as scan_records
from kcompact.kernels.loops.records import verify_records as verify_records
from kcompact.kernels.loops.siphash import siphash128 as siphash128
from kcompact.kernels.loops.transactions import decide_transactions as decide_transactions
from kcompact.kernels.loops.transactions import follow_transactions as follow_transactions
from kcompact.kernels.loops.transactions import judge_entries as judge_entries
from kcompact.kernels.loops.transactions import scan_transactions as scan_transactions
from kcompact.kernels.loops.transactions import transactional_batches as transactional_batches
