"""One partition directory as one frozen value. Reads only.

In: a path. Out: `PartitionLog`, `Batch`, `BatchHeader`, tables of headers, producer states.
Imports: `errors`, `host`, `format`, `kernels`.

    files            regular files, opened without following links, read from a position
    segment_reader   the batches or headers of a `.log` file, from one position to another
    batch_headers    a header with its position and its marker; the batches of producers
    header_table     the headers of a large file as columns, read by a kernel
    inflate          batches with their compressed records inflated, ready for the kernels
    directory        names, sizes, checkpoints and index ends of a partition directory
    producer_state   producers and open transactions, from a snapshot and a replay
    lock             the log directory's `.lock`
"""
