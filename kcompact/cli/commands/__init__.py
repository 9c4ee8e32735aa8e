"""The bodies of the commands.

In: paths, settings and options. Out: printed reports, and exit codes.
Imports: `cleaner` and every other folder except `format`; from `cli` all modules except `app`.

    inspect        `inspect`: partitions and single files
    latest         `inspect --latest`: the latest record of each key
    records        `inspect --batches` and `--records`: the lists
    groups         `inspect --groups`
    history        `inspect --gaps` and `--transactions`
    keys           `inspect --keys`
    single_files   `inspect` of single files
    plan           `plan`: the plans of the partitions
    clean          `clean`: the plans, the question and the report of a round
    consent        shows the plans and asks a person on a terminal
    recover        `recover`: finishes or undoes interrupted swaps
    restore        `restore`: puts back what `clean --keep-replaced` has replaced
    report         `report`: draws partitions on one page
    completion     `completion`: the functions for shells
    man_pages      `man`: writes the man pages
    doctor         `doctor`: what would stop a broker, its cleaner or kcompact
"""
