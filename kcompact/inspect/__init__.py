"""Reads what a log contains, and finds what is wrong with it.

In: `PartitionLog`, or the path of a single log file. Out: counters of each segment, findings.
Imports: `errors`, `format`, `kernels`, `log`.

    contents           counts the segments of a log, from the headers of their batches
    segment_contents   the counters of one segment, and the addition of batches
    verify             verifies every byte: batches and records here, the rest in the modules below
    verified_segment   the verified batches of a segment: the input of the index checks
    segment_kernels    counts and verifies segments with the kernels
    indexes            compares indexes with the batches of their log
    transactions       compares each `.txnindex` with the markers of the whole log
    small_files        checks snapshots and checkpoints, and lists files that interrupted work left
    findings           one finding, with its severity
"""
