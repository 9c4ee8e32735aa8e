"""The cleaning: three stages of plain functions over packed blocks, and the rules that they apply.

    scan   (splits of the log)        -> per bucket a block: key hash and record reference
    reduce (a bucket: all its blocks) -> per split a block: the records that a newer one supersedes
    write  (a part of a group)        -> staged files

In: `CleanPlan`. Out: `CleanedSegment`, staged files that are complete, synced and read back.
Imports: `errors`, `host`, `format`, `kernels`, `log`, `config`, `plan`, `stages`.

    job                   values that travel between the driver and the tasks
    prepare               from a plan to a `PreparedClean`: scan, reduce, transactions; then every survivor is known
    splits                the splits of a cleaning
    verify_input          checks of indexes and leader epochs that need more than one split
    scan                  stage 1
    offset_map            which records are superseded
    accounting            checks that the counts of the stages add up
    transactions          which transactional batches and markers can be dropped, decided in log order
    growth                the most bytes that a batch can have after a cleaning
    batch_fates           what happens to each batch, decided from headers and survivor bits
    rules                 which records survive, and until when: the definition
    filter                what remains of one batch: the definition
    split_kernels         scans and filters whole splits with the kernels
    write                 stage 3: one part of a group
    staged_files          private files in the staging directory: created, synced, read back and compared
    join                  joins the parts of a group to one segment with its indexes
    held_back             what a cleaning holds back at most for replicas that lag, counted from a plan
    groups                writes or counts the segments of whole groups
"""
