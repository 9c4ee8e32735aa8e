"""What a log contains, and what is wrong with it. Reads only.

In: `PartitionLog`, or the path of a single log file. Out: counters of each segment, findings.
Imports: `errors`, `host`, `format`, `kernels`, `log`.

    contents           counters of each segment, from the headers of its batches
    verify             every byte: batches and records here, the rest in the modules below
    verified_segment   the batches of a segment that were verified: the input of the index checks
    segment_kernels    contents and verification of a segment by compiled kernels
    indexes            indexes against the batches of their log
    small_files        snapshots, checkpoints, and names that interrupted work leaves
    findings           one finding, with its severity
"""
