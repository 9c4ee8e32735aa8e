"""One partition directory as one frozen value. Reads only; `lock` also creates the lock file.

In: a path. Out: `PartitionLog`, `Batch`, `BatchHeader`, tables of headers, producer states, a lock.
Imports: `errors`, `format`, `kernels`.

    files                where bytes come from: the files of a directory, and reading from them
    directory            `read_log`: names, sizes, checkpoints and index ends of a partition, and its log directory
    segments             the segments of a directory, their index ends and first headers, the log end; deleted ones
    growing              what is valid of the active segment of a running broker
    unchanged_reading    readings that are repeated when a running broker has changed the partition meanwhile
    index_files          the `.index` and `.timeindex` of a segment: read, or built from its batches
    offset_index         whether the entries of an `.index` are true, and where reading may begin
    broker_recovery      what a broker keeps of a segment after an unclean shutdown
    batch_headers        the headers of a `.log` file as tables
    segment_reader       its batches: one by one, and in verified runs
    past_damage          the batches of a damaged file, before and after the damage
    markers              what a transaction marker is: in a control batch, and in columns
    records              the records of a log file as columns, a run of batches at a time
    record_fields        the fields of records and batches: how each is got, and its names
    inflate              the record sections of compressed batches, inflated for the kernels
    producer_state       producers and open transactions, from a snapshot and a replay
    transactions         the transactional and the control batches in columns, and how transactions ended
    transaction_index    aborted transactions by the markers, and where a `.txnindex` contradicts them
    small_files          damage of `leader-epoch-checkpoint` and `partition.metadata`
    lock                 the log directory's `.lock`
"""
