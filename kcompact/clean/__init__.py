"""The cleaning itself: three stages of plain functions over packed blocks, and the rules that they apply.

    scan   (splits of the log)        -> per bucket a block: key hash and record reference
    reduce (a bucket: all its blocks) -> per split a block: the records that a newer one supersedes
    write  (a part of a group)        -> staged files

In: `CleanPlan`. Out: `CleanedSegment`, staged files that are complete, synced and read back.
Imports: `errors`, `host`, `format`, `kernels`, `log`, `config`, `plan`.

    job             values that travel between the driver and the tasks
    executor        who calls the stages, and where progress goes
    prepare         a plan to a `PreparedClean`: scan, reduce, transactions; then every survivor is known
    splits          where segments are cut into pieces of work
    verify_input    checks of indexes and leader epochs that need more than one split
    scan            stage 1
    offset_map      which record supersedes which
    transactions    which transactional batches and markers can go
    batch_fates     what happens to each batch, decided from headers and survivor bits
    rules           which records survive: the definition
    filter          what remains of one batch: the definition
    split_kernels   scan and filter of a whole split with compiled kernels
    write           stage 3: one part of a group
    part_file       the file that a part is written to
    staged_files    new private files in the staging directory
    join            the parts of a group to one segment with its indexes
    read_back       a staged log, read back from the disk and compared
    groups          staged or counted segments of whole groups
"""
