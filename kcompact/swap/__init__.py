"""Cleaned segments in the place of the old ones: the only room that renames or deletes files of a partition.

In: `CleanedSegment`s in a staging directory. Out: a changed partition directory and its checkpoint.
Imports: `errors`, `host`, `format`, `log`, `clean`.

    steps            the steps of a swap as values, and their order
    open_directory   a directory held open; applies steps
    attributes       owner, mode, times and extended attributes of new files
    staging          the staging directory of a round
    manifest         what recovery needs to know, as JSON
    replace          one group swapped in
    rounds           what interrupted rounds left
    recovery         an interrupted round finished or undone
    checkpoint       the cleaner's checkpoint, written last
    small_files      a small file written in whole or not at all
    deletion         whole segments deleted by retention
    copy             a compacted copy in another directory

**The idea.** A directory has no transactions, but it has renames (each happens entirely or not at all) and
`fsync` (everything before it is on the disk). Kafka's loader looks at file suffixes when it starts and
either finishes or undoes what it finds. So a swap is a walk through states that the loader understands, one
group of segments at a time, with an `fsync` wherever the next step would be dangerous if the disk did it
first.

    staging/0.log ─▶ 0.log.cleaned ─▶ 0.log.swap ─────────────────────▶ 0.log
                                              0.log ─▶ 0.log.deleted ───────────▶ (gone)
                  ①               ②          ③                       ④         ⑤
                     recovery goes back  │  recovery goes forward

① `.cleaned` is a guard: while one is left, the loader throws away it and every `.swap` beside it, so these renames
may reach the disk in any order. ② is the commit point: the sync after the last `.swap`. From then on the new
segment is what counts. ③ the old files step aside, the logs first, then the rest, each with a sync: an old log that
stays beside the new one puts offsets into the log twice, and one that stays while the disk has lost its `.txnindex`
is loaded without; the loader notices neither. ④ the new files take their names, the `.log` first and by itself: as
long as there is a `.log.swap`, the loader deletes whatever has a name in its range, be it the new `.txnindex`. All
this must be on the disk before the next group starts, as the loader treats all `.swap` files together as one range.
⑤ only now is anything deleted.

**Example.** Segments 0 and 500 become one segment 0, of two files for brevity:

    rename .kcompact-7f/0.index 0.index.cleaned     rename 0.index 0.index.deleted
    rename .kcompact-7f/0.log 0.log.cleaned         rename 500.index 500.index.deleted
    sync, sync .kcompact-7f                         sync
    rename 0.index.cleaned 0.index.swap             rename 0.log.swap 0.log
    rename 0.log.cleaned 0.log.swap                 sync
    sync                     # the commit point     rename 0.index.swap 0.index
    rename 0.log 0.log.deleted                      sync
    rename 500.log 500.log.deleted                  remove every .deleted
    sync                                            sync

A process that dies leaves a state between two lines; a power cut may also leave any part of the renames
since the last sync. `recover` reads the manifest in the staging directory, sees which state it is, checks
the new files' digests, and goes back or forward with the same kind of steps. `docs/swap.md` has the table.

**What we do not do.** Stage as `.cleaned` (one left over makes the loader drop a committed `.swap`). Have
two groups under way. Copy where a rename fails. Write into a file of the log. Try a failed `fsync` again:
what it lost is lost. Delete when in doubt. Rule: LocalLog.replaceSegments, LogLoader.load,
LogLoader.removeTempFilesAndCollectSwapFiles.
"""
