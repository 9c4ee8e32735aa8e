"""Finds everything that would stop a broker, its cleaner or kcompact, before one of them starts. Reads only.

In: log directories and `PlanOptions`. Out: `Finding`s, each with a severity and the next command.
Imports: `errors`, `host`, `format`, `kernels`, `log`, `config`, `plan`, `inspect`, `engine`, `cleaner`.

    findings     one finding; `remarks` has the table of all of them
    examination  examines log directories: calls the checks below, and sorts what they find
    log_dirs     locks, `meta.properties`, checkpoints, disks, owners, modes; log directories that contradict each other
    names        directories and files with names that a broker refuses, removes or moves aside
    partition    one partition: leftovers, missing segments, times, space, and why it is not cleaned
    damage       damaged batches, indexes and small files of one partition
    broken_batches   what a broker and its cleaner do with bytes that are no batch
    believed_index   what a broker does with an index that contradicts its log
    recovery     what a broker cuts off when it recovers a log
    quorum       the files of a KRaft quorum
    dry_run      what only a cleaning finds
    outage       whether a broker was down for so long that deleted keys may come back
    settings     settings that the broker refuses, that fight each other, or that keep the cleaner from working
"""
