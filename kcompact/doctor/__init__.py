"""Finds everything that would stop a broker, its cleaner or kcompact, before one of them starts. Reads only.

In: log directories and `PlanOptions`. Out: `Finding`s, each with a severity and the next command.
Imports: `errors`, `host`, `format`, `kernels`, `log`, `config`, `plan`, `inspect`.

    findings     one finding, and the table of all kinds with their severities and next commands
    examination  examines log directories: calls the checks below, and sorts what they find
    log_dir      the lock, `meta.properties`, the clean shutdown file, checkpoints, free space
    names        directories and files with names that a broker refuses, removes or moves aside
    access       owners and modes: what the broker's user may not read or write
    together     several log directories of one broker: cluster, node, topics and partitions that contradict each other
    partition    one partition: leftovers, missing segments, times, space, and why it is not cleaned
    damage       damaged batches, indexes and small files of one partition
    tails        the last batches of closed segments
    cleaner      what a broker's cleaner does with damaged batches, and what its log says
    loading      what a broker does with bytes that are no batch at the end of a log
    settings     settings that the broker refuses, that fight each other, or that keep the cleaner from working
"""
