"""Verifies every byte of a log, or of a single file, and lists what is wrong.

In: `PartitionLog`, or the path of a single log file. Out: counters of each segment, findings.
Imports: `errors`, `host`, `format`, `kernels`, `log`.

    log          all files of a log: batches and records here, the rest in the modules below
    segment      a segment that was verified, and its verification by the kernels
    indexes      compares indexes with the batches of their log, and each `.txnindex` with all its markers
    small_files  checks snapshots and checkpoints, and lists files that interrupted work left
    findings     one finding, with its severity
"""
