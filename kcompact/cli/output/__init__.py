"""What the commands print: text for people, JSON for programs, progress on standard error.

In: entries of `cli.entries`. Out: lines on standard output and standard error.
Imports: `errors`, `format`, `log`, `config`, `plan`, `inspect`, `clean`, `swap`, `cleaner`; from `cli` `entries` and
`signals`.

    inspection     `inspect` for people: tables of segments and findings
    plans          `plan` for people: tables of verdicts, totals, the next command
    plan_details   the details of one plan: groups, checkpoint, retention
    outcome        `clean` and `recover` for people: tables of results, totals
    left_out       the directories that are left out
    json           every command for programs: the fields of the JSON
    explanations   sentences and fields that text and JSON share
    dump           batches and records as `kafka-dump-log.sh` prints them
    file_entries   the entries of single files: indexes, snapshots, checkpoints
    log_bar        a log drawn to scale
    progress       the progress of all partitions while `clean` runs
    progress_bars  the bars on a terminal
    next_command   the command that a person may want to type next
    lists          some names, and how many more there are
    printer        lines and tables on a terminal or a pipe
    text           values as escaped text
    streams        the standard streams: closed, full or broken
"""
