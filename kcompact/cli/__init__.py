"""The command line.

In: arguments, a terminal. Out: text or JSON, and exit codes.
Imports: every other room.

    app        the commands, their options and their help
    options    options that several commands share
    entries    a plan for each partition that the arguments name
    failures   errors to messages and exit codes
    signals    Ctrl-C, SIGTERM and SIGHUP
    commands   what each command does
    output     what each command prints
"""
