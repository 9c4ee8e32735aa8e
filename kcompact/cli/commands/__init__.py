"""The bodies of the commands.

In: paths, settings and options. Out: printed reports, and exit codes.
Imports: `cleaner` and every other folder except `host` and `format`; from `cli` all modules except `app`.

    inspect        `inspect`: partitions, their batches and records
    single_files   `inspect` of single files
    plan           `plan`: the plans of the partitions
    clean          `clean`: the plans, the question and the report of a round
    consent        shows the plans and asks a person on a terminal
    recover        `recover`: finishes or undoes interrupted swaps
"""
