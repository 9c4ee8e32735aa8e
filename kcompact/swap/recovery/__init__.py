"""After a crash: finishes or undoes what was interrupted.

In: a partition directory, and the log directory around it. Out: `RecoveryReport`, a directory without leftovers.
Imports: as `swap`.

    interrupted_round  what a round of kcompact has left
    leftovers          finds these files: staging directories, and a group whose swap is unfinished
    end                what a recovery reports, and the checkpoint of the interrupted round
    broker_swap        what a broker's interrupted cleaning has left
    broker_log         judges the log that this leaves
"""
