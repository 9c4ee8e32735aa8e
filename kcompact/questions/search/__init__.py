"""Searches every file under some directories for keys, and says in a statement what was searched and what was not.

In: paths and keys. Out: `Statement`.
Imports: `errors`, `format`, `kernels`, `log`, `config`.

    statement  the search of all files, and what it proves: read this first
    files      the files below some paths, and how each is read
    scan       one file: its records, and all its other bytes
    records    the records of a run of batches: which field a key lies in
    keys       the keys, their names, and the file they come from
    finder     finds many keys in bytes in one pass
    findings   what was found of each key
    scope      log directories and brokers, and how many replicas of each partition were searched
"""
