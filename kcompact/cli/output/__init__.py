"""What the commands print: text for people, JSON for programs, progress on standard error.

In: entries of `cli.entries`. Out: lines on standard output and standard error.
Imports: `errors`, `format`, `log`, `config`, `plan`, `inspect`, `clean`, `cleaner`; from `cli` `entries` and `signals`.

    inspection     `inspect` for people: tables of segments and findings
    plans          `plan` for people: tables of verdicts, details of plans
    outcome        `clean` and `recover` for people: tables of results
    json           every command for programs: the fields of the JSON
    explanations   sentences and fields that text and JSON share
    dump           batches and records as `kafka-dump-log.sh` prints them
    file_entries   the entries of single files: indexes, snapshots, checkpoints
    log_bar        a log drawn to scale
    progress       bars and lines while `clean` runs
    printer        lines and tables on a terminal or a pipe
    text           values as escaped text
    streams        the standard streams: closed, full or broken
"""
