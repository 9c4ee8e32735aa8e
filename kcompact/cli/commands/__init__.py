"""The commands, a module each: its options, its help, and what it does.

In: the arguments. Out: printed answers, and exit codes.
Imports: `cleaner` and every other folder; from `cli` all modules except `app`. What the help of a command does not need
is imported by its functions, so that `--help` and completion are fast.

    inspect        `inspect`: segments, batches, single files
    verify         `verify`: every byte
    records        `records`: lists, filters, decodes, exports
    keys           `keys`: live keys, superseded records, tombstones
    search_key     `search-key`: whether a key is in any file
    gaps           `gaps`: where offsets are missing
    transactions   `transactions`: how they ended
    groups         `groups`: the groups of `__consumer_offsets`
    compare        `compare`: whether the replicas of partitions agree
    search_key     `search-key`: whether a key is in any file
    plan           `plan`: the plans of the partitions
    clean          `clean`: the plans, the question and the report of a round
    recover        `recover`: finishes or undoes interrupted swaps
    restore        `restore`: puts back what `clean --keep-replaced` has replaced
    report         `report`: draws partitions on one page
    completion     `completion`: the functions for shells
    man            `man`: a page for each command, made from its help
    doctor         `doctor`: what would stop a broker, its cleaner or kcompact
"""
