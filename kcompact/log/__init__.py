"""One partition directory as one frozen value. Reads only; `lock` also creates the lock file.

In: a path. Out: `PartitionLog`, `Batch`, `BatchHeader`, tables of headers, producer states, a lock.
Imports: `errors`, `format`, `kernels`.

    files                opens regular files without following links and reads from a position
    directory            `read_log`: names, sizes, checkpoints and index ends of a partition directory
    index_files          the indexes of a segment: read, compared with the log, or built from its batches
    segment_reader       the batches or headers of a `.log` file between two positions
    workload             how many batches and records log files probably have
    batch_headers        headers with their positions and transaction markers
    header_columns       the same table as a kernel makes of a buffer, by numpy
    header_table         the headers of a large file as a table, read by a kernel
    inflate              the record sections of compressed batches, inflated for the kernels
    producer_state       producers and open transactions, from a snapshot and a replay
    transaction_batches  the transactional and the control batches in columns
    transaction_index    aborted transactions by the markers, and where a `.txnindex` contradicts them
    transaction_kernels  finds, follows and judges the transactions of a large log with kernels
    per_log_dir          values that the partitions of a log directory share
    lock                 the log directory's `.lock`
"""
