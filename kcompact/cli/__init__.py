"""The command line.

In: arguments, a terminal. Out: text or JSON, and exit codes.
Imports: `cleaner` and every other folder.

    app            the commands, their options and their help
    arguments      the arguments as they were typed
    options        the options that several commands share
    record_options  the options of `inspect` that list batches and records
    option_types   the types of option values: sizes, times, addresses
    entries        what `inspect` and `recover` report: one entry for each partition or file
    usage          turns wrong usage into messages: what is wrong, what to type instead
    failures       turns errors into messages and exit codes
    signals        Ctrl-C, SIGTERM and SIGHUP
    completion/    what a shell offers when Tab is pressed
    commands/      what each command does: inspect, plan, clean, recover
    output/        what each command prints: tables, JSON, dumps, progress
"""
