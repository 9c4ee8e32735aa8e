"""The command line.

In: arguments, a terminal. Out: text or JSON, and exit codes.
Imports: `cleaner` and every other folder.

    app            the program: its commands, and every error as a message and an exit code
    options        how commands are declared: their help, and the options that several of them have
    option_types   the types of option values: sizes, times, addresses
    question       the frame of the commands that ask one question about each partition
    listing        lists batches and records: `inspect --batches` and `records`
    latest_records  the latest record of each key, for `records --latest`
    entries        what `inspect` and `recover` report: one entry for each partition or file
    usage          turns wrong usage into messages: what is wrong, what to type instead
    failures       turns errors into messages and exit codes
    signals        Ctrl-C, SIGTERM and SIGHUP
    completion/    what a shell offers when Tab is pressed
    commands/      what each command does: inspect, plan, clean, recover
    json/          the JSON of each command, as tables of fields
    output/        what each command prints for people: tables, dumps, progress
"""
