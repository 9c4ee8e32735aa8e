"""Replaces old segments with cleaned ones. Only this folder changes the files of a log.

In: `CleanedSegment`s in a staging directory. Out: a changed partition directory and its checkpoint.
Imports: `errors`, `format`, `log`, `config` (only names of files), `plan` (only the plan that is kept), `clean` (only
`staged_files`).

    steps            the steps of a swap as values, and their order
    open_directory   a directory held open; applies steps
    attributes       owner, mode, times and extended attributes of new files
    staging          creates the staging directory of a round, writes its manifest, removes it
    manifest         the JSON file that names the new files and the old files that they replace
    replace          replaces one group of segments
    identity         binds a manifest to its partition
    checkpoint       writes the cleaner's checkpoint, the last change of a round
    protection       flags and files that are in the way of a replacement
    small_files      writes a small file completely or not at all
    deletion         deletes whole segments by retention
    round_end        the checkpoints of partitions, written at once, and the removal of their staging directories
    recovery/        finishes or undoes what was interrupted: a round of kcompact, or a broker's cleaning
    kept/            the old files that `--keep-replaced` keeps, and the way back
    copy/            writes a compacted copy to another directory

Other folders rename or delete only files that kcompact itself has created: `clean.join` deletes parts in the staging
directory after it has joined them, `engine.spark` removes its scratch directories and the class archive in the user's
cache, `export.files` renames a finished output file, and `kernels.build` replaces the machine code during a build.

**The idea.** A directory has no transactions. It has renames (each one happens completely or not at all) and `fsync`
(everything before it is on the disk). Kafka's loader looks at file suffixes when it starts, and finishes or undoes
the swap that they show. So a swap passes only through states that the loader handles correctly, one group of segments
at a time. There is an `fsync` before every step that would be dangerous if the disk performed it too early.

    staging/0.log ─▶ 0.log.cleaned ─▶ 0.log.swap ─────────────────────▶ 0.log
                                              0.log ─▶ 0.log.deleted ───────────▶ (gone)
                  ①               ②          ③                       ④         ⑤
                     recovery goes back  │  recovery goes forward

**Three terms** of this folder.

- *Guard*: a `.cleaned` file. While one exists, the loader deletes it and every `.swap` file of its base offset and of
  higher ones.
- *Commit point*: the sync after the last rename to `.swap`. From then on the new segment is valid, not the old ones.
- *Set aside*: an old file is set aside when it is renamed to `.deleted`. The loader deletes `.deleted` files. Brokers
  leave such files too.

**The phases.**

① The staged files become `.cleaned`. The guard makes the order in which the disk performs these renames and those
of ② irrelevant.
② The files become `.swap`; the sync is the commit point.
③ The old files are set aside: first the logs, then the other files, each followed by a sync. An old log that stays
beside the new one puts its offsets into the log twice. An old log that stays while the disk has lost its `.txnindex`
is loaded without it. The loader notices neither.
④ The new files take their names: first the `.log`, alone. While there is a `.log.swap`, the loader deletes every
file with a name in its range, even the new `.txnindex`. All of this must be on the disk before the next group starts,
because the loader treats all `.swap` files together as one range.
⑤ The files that were set aside are deleted.

**Example.** Segments 0 and 500 become one segment 0. Only `.log` and `.index` are shown:

    rename .kcompact-7f/0.index 0.index.cleaned     rename 0.index 0.index.deleted
    rename .kcompact-7f/0.log 0.log.cleaned         rename 500.index 500.index.deleted
    sync, sync .kcompact-7f                         sync
    rename 0.index.cleaned 0.index.swap             rename 0.log.swap 0.log
    rename 0.log.cleaned 0.log.swap                 sync
    sync                     # the commit point     rename 0.index.swap 0.index
    rename 0.log 0.log.deleted                      sync
    rename 500.log 500.log.deleted                  remove every .deleted
    sync                                            sync

A process that dies leaves the state between two of these lines. A power cut can in addition lose any of the renames
since the last sync. `recovery.interrupted_round` reads the manifest in the staging directory, determines the state,
checks the digests of the new files, and goes back or forward with the same kinds of steps. `docs/swap.md` lists the
states.

**Never done here.**

- Create staged files under `.cleaned` names: the loader deletes a committed `.swap` if a `.cleaned` file is left.
- Have two groups in progress at once.
- Copy a file where a rename fails.
- Write into an existing file of the log.
- Repeat a failed `fsync`: the data that it lost stays lost.
- Delete a file in a state that is not understood.

Rule: LocalLog.replaceSegments, LogLoader.load, LogLoader.removeTempFilesAndCollectSwapFiles.
"""
