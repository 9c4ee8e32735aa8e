"""Reads what a log contains, and finds what is wrong with it.

In: `PartitionLog`, or the path of a single log file. Out: counters of each segment, findings.
Imports: `errors`, `host`, `format`, `kernels`, `log`, `plan`.

    contents            counts what segments contain, from the headers of their batches
    batch_kinds         counts batches by codec, by producer and by delete horizon
    verify              verifies every byte: batches and records here, the rest in the modules below
    verified_segment    a segment that was verified, and its verification by the kernels
    indexes             compares indexes with the batches of their log, and each `.txnindex` with all its markers
    small_files         checks snapshots and checkpoints, and lists files that interrupted work left
    gaps                where offsets are missing, and what that proves: the walks over a whole log
    gap_walk            one walk over a range of offsets, the sum of two, and what is found about a whole log
    gap_batches         which offsets of a segment have a record, and what took the others
    transactions        how transactions ended, which are open, and what waits for them
    transaction_events  the transactional and the control batches of a log in order; the tombstones
    rewrite_hints       the facts that show a compaction, labelled as proofs or hints
    groups              counts members, offsets and bytes of each group of `__consumer_offsets`
    findings            one finding, with its severity
    record_filter       which records are chosen: the conditions, and the decision about a record, or a run of records
"""
