"""The old files that a cleaning keeps, and the way back.

In: the files that a swap replaces. Out: a directory with hard links to them, or a partition as it was before.
Imports: as `swap`.

    links     the directory of `--keep-replaced`, and its hard links to the files that a cleaning replaces
    manifest  the manifest of these links
    restore   puts kept segments back
"""
