"""The JSON of the commands, declared once: its fields, their kinds and their meanings.

In: entries of `cli.entries` and the values in them. Out: the text that a command prints with `--json`, and its JSON
Schema in `docs/schema`.
Imports: `errors`, `format`, `log`, `config`, `plan`, `inspect`, `keys`, `compare`, `search`, `swap`, `doctor`,
`cleaner`; from `cli` `entries` and `output.explanations`. A command imports only its own module, because others load
what it does not need.

    fields         what a field, a shape and a document are
    partitions     what several commands have: which partition, its plan, its segments, its error
    inspect        `inspect` and `verify`
    files          the entries of single files: indexes, snapshots, checkpoints
    gaps           `gaps`
    transactions   `transactions`
    groups         `groups`
    lines          the JSON Lines of `inspect --batches` and `records`
    keys           `keys`
    compare        `compare`
    search         `search-key`
    plan           `plan`
    clean          `clean`
    recovery       `recover` and `restore`
    doctor         `doctor`
    report         `report`
"""
