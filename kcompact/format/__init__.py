"""Kafka's on-disk formats: bytes to values and back.

In: bytes that a caller has read, with the name of their file for messages. Out: frozen values, the bytes of a file, or
an error of `kcompact.errors`.
Imports: `errors`.

    checksum           CRC-32C
    names              names of partition directories and their files
    batch              record batches of version 2: header, records, the rebuilt batch of a cleaning
    legacy             batches of versions 0 and 1, read only
    codec/             gzip, snappy, lz4 and zstd in Kafka's framing, with a cap on the inflated bytes
    limits             what one batch may take of the memory
    index              `.index`, `.timeindex`, `.txnindex`, and the rule for which batches get an entry
    producer_snapshot  `.snapshot`: the state of each producer
    checkpoint         the four offset checkpoints and `leader-epoch-checkpoint`
    properties         `meta.properties`, `partition.metadata`, Java properties
    quorum_state       `quorum-state` of a KRaft node
    text_lines         lines, words and integers of these text files
    java_values        numbers, booleans and lists as Java reads them from text
    messages/          records of Kafka's internal topics and control records, decoded by their schemas
    block              kcompact's own blocks, which the stages of a cleaning exchange
    sealed_json        kcompact's own JSON with a checksum: fields are declared once, for writing and strict reading

The functions are pure: no path, no clock, no logging. `docs/formats.md` describes every format.
"""
