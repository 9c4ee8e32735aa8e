"""A compacted copy in another directory. The source is only read.

In: partitions, and the staged files of cleaned segments. Out: a directory with their copies, complete or marked as
unfinished.
Imports: as `swap`.

    bucket          an output in a bucket: the same, and each directory is uploaded
    output          the output of a round: takes its lock, adds directories, finishes
    target          the checks of an output before anything is written
    contents        what a broker keeps of a directory, and what a copy leaves out
    marker          the marker of an unfinished copy, and what it says is finished
    files           copies files with their attributes
    log_dir_files   the files that the partitions of a log directory share

**The idea.** A directory is made under another name and renamed when it is complete and synced, so a partition
directory in the output is always whole. The output itself is whole when the last step is done:

    .kcompact-copy/          an unfinished copy; a broker that finds this directory does not start
        copy.json            the source, and the directories that belong to the copy
        orders-0/            the directory that is being written
        3.json               the directory number 3 is complete: from which files, and which files it has
    users-0/                 a complete directory

When every directory is there, the checkpoints and `bootstrap.checkpoint` are written, then `.kafka_cleanshutdown`, then
`meta.properties`, and then `.kcompact-copy` is removed. An interrupted copy is continued by the same command.

An output with anything else in it is refused: its checkpoints may have entries of earlier partitions of these names.
"""

from kcompact.swap.copy.bucket import BucketOutput, OutputPart, output_at
from kcompact.swap.copy.contents import NotCopied
from kcompact.swap.copy.output import CopyReport, Output

__all__ = ["BucketOutput", "CopyReport", "NotCopied", "Output", "OutputPart", "output_at"]
