"""How many keys logs have, what fills them, and which keys lie in several partitions. Reads only.

    scan   (splits of logs)          -> per bucket blocks: a row for each key, with its newest record and its sums
    reduce (a bucket: all its rows)  -> sums, histograms, and the rows of the keys to name

In: `CleanPlan`s. Out: `CountedKeys`. The executors of `engine` run the stages, as those of a cleaning.
Imports: `errors`, `host`, `format`, `kernels`, `log`, `plan`, `inspect`, `clean`.

    counts         the result
    job            values that travel between the driver and the tasks
    count          from plans to the result: read this first
    state          what is known of a log while it is counted
    scan           stage 1: the classes of records, by the kernels and by the definition
    rows           tables with a row for each key, and how they are merged
    reduce         stage 2
    latest         which records are the latest of their keys, by the stages of a cleaning
    result         puts the counts together, checks that they add up, reads the keys to name
"""
