"""Compares the replicas of a partition: what differs, which of it is lawful, and what files prove about the rest.

    scan   (the same offsets of all logs)  -> per bucket blocks: a row for each key, with its newest record
    reduce (a bucket: all its rows)        -> the keys of which a replica lacks the newest record

In: log directories. Out: `ComparedPartition`s. The executors of `engine` run the stages, as those of a cleaning.
Imports: `errors`, `host`, `format`, `kernels`, `log`, `config`, `plan`, `clean`, `keys`.

    answer           the answer about one partition: read this first
    pairs            which directories are replicas of the same partition
    comparison       from logs to what the stages have shown
    findings         what that proves, how sure it is, and which replica is right
    advice           the findings in words, with what to do
    before_start     what to do with the partitions of a stopped broker
    replica          one replica: what its headers and small files say
    epochs           leader epochs, and the fork
    transactions     markers that a replica lacks
    producer_epochs  transactions with data of two producer epochs
    job              values that travel between the driver and the tasks
    splits           cuts all logs at the same offsets
    scan             stage 1: compares batches and records, collects keys
    windows          the same offsets of several logs, a window at a time
    contents         hashes of keys and of records
    judge            stage 2: judges each replica, key by key
"""
