"""Questions about logs, which change nothing. No folder of the cleaning imports them.

In: `CleanPlan`s, `PartitionLog`s, log directories, single files. Out: a value for each question, its answer.
Imports: `errors`, `host`, `format`, `kernels`, `log`, `config`, `plan`, `stages`, `clean`.

    contents       counts what segments contain, from the headers of their batches
    batch_kinds    counts batches by codec, by producer and by delete horizon
    verify/        verifies every byte, and lists what is wrong
    gaps/          where offsets are missing, and what that proves
    transactions/  how transactions ended, which are open, and what waits for them
    groups         counts members, offsets and bytes of each group of `__consumer_offsets`
    keys/          how many keys logs have, what fills them, and which record is the latest
    compare/       whether the replicas of a partition agree, and which one is wrong
    search/        whether a key is in any file
    record_filter  which records are chosen: the conditions, and the decision about a record, or a run of records
"""
