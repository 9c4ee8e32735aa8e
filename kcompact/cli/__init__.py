"""The command line.

In: arguments, a terminal. Out: text or JSON, and exit codes.
Imports: `cleaner` and every other folder except `host`.

    app            the commands, their options and their help
    options        the options that several commands share
    option_types   the types of option values: sizes, times, addresses
    planning       from the paths to a plan for each partition
    entries        what the commands report: one entry for each partition or file
    failures       turns errors into messages and exit codes
    locks          the locks of the log directories
    per_log_dir    values that the partitions of a log directory share
    signals        Ctrl-C, SIGTERM and SIGHUP
    commands/      what each command does: inspect, plan, clean, recover
    output/        what each command prints: tables, JSON, dumps, progress
"""
