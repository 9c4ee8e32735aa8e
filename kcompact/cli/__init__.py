"""The command line.

In: arguments, a terminal. Out: text or JSON, and exit codes.
Imports: `cleaner` and every other folder.

    app            the program: its commands; every error, and wrong usage, as a message and an exit code
    options        how commands are declared: their help, and the options that several of them have
    option_types   the types of option values: sizes, times, addresses
    delivery       how an answer reaches the user: as JSON or as text
    question       the frame of the commands that ask one question about each partition or file
    listing        lists batches and records: `inspect --batches` and `records`
    consent        shows the plans of `clean` and asks a person on a terminal
    entries        what `inspect` and `recover` report: one entry for each partition or file
    failures       turns errors into messages and exit codes
    signals        Ctrl-C, SIGTERM and SIGHUP
    commands/      a module for each command: its options, its help, and what it does
    json/          the JSON of each command, as tables of fields
    output/        what each command prints for people: tables, dumps, progress
"""
