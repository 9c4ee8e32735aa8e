"""The bodies of the commands.

In: paths, settings and options. Out: printed reports, and exit codes.
Imports: `cleaner` and every other folder except `host` and `format`; from `cli` all modules except `app`.

    inspect        `inspect`: partitions, their batches and records
    single_files   `inspect` of single files
    plan           `plan`: the plans of the partitions
    clean          `clean`: from the paths to the report
    request        the options of `clean`
    consent        shows the plans and asks a person on a terminal
    engines        starts the executor: this process, or Spark
    side_by_side   cleans small partitions at the same time
    recover        `recover`: finishes or undoes interrupted swaps
"""
