"""What a log contains, and what is wrong with it. Reads only.

In: `PartitionLog`, or the path of a single log file. Out: counters of each segment, findings.
Imports: `errors`, `host`, `format`, `kernels`, `log`.

    contents          counters of each segment, from headers alone
    verify            every byte: batches, records, indexes, small files
    segment_kernels   the same counters, made by compiled kernels
    indexes           indexes against the batches of their log
    small_files       snapshots, checkpoints, and names of interrupted work
    findings          one finding, with its severity
"""
