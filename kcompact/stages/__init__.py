"""Work on whole logs, in pieces: by any number of workers, in bounded memory.

    scan (splits of logs)               -> per bucket blocks of keys, and what else was found in each split
    reduce (a bucket: all its blocks)   -> the result of the bucket
    run (a part)                        -> the result of any other work

In: segments of a `PartitionLog`. Out: whatever a cleaning, or a question, makes of them.
Imports: `errors`, `host`, `format`, `kernels`, `log`.

    job         values that travel between the driver and the tasks
    executor    what runs the stages: the interface of the two executors of `engine`
    splits      cuts segments into pieces of work, and divides them among tasks
    sizing      how large the pieces are, by the memory that there is
    fold        a question over all records, answered by one reader
    folded_log  the same, answered by the workers of an executor
    collector   the skeleton of scan and reduction: collectors of keys, readers with kernels and definition
"""
