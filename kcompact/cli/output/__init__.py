"""What the commands print for people: text, and progress on standard error. `cli.json` has the JSON.

In: entries of `cli.entries`. Out: lines on standard output and standard error.
Imports: `errors`, `format`, `log`, `config`, `plan`, `inspect`, `clean`, `swap`, `doctor`, `cleaner`, `views`; from
`cli` `entries` and `signals`.

    dump           batches and records as `kafka-dump-log.sh` prints them
    record_sinks   records that become a table, CSV, or a file
    record_lines   the same lines for whole runs of records, by a kernel
    decoding       the records of Kafka's coordinators, decoded
    field_decoder  keys and values, decoded as numbers, JSON and others
    entries        the entries of `cli.entries` for people, by the views of their values
    file_entries   the entries of single files: indexes, snapshots, checkpoints
    progress       the one counter of bytes, and the progress of commands that only read
    stage_progress  what executors report to: the progress of cleanings and of counts of keys
    progress_bars  the bars on a terminal
    next_command   the command that a person may want to type next, made from the arguments that were typed
    printer        the parts of a view on a terminal or a pipe
    plain          tables and items without a terminal
    streams        the standard streams: closed, full or broken
"""
