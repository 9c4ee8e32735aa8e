"""The machine that kcompact runs on: memory, other processes, the cache directory, a limit on bytes per second.

In: environment variables, `/proc`, `/sys`, a monotonic clock. Out: sizes in bytes, a private directory, delays.
Imports: `readable`.

    abrupt_end   what is undone when the process ends at once
    access       what this process may do with files
    clock        the wall clock
    core_dumps   forbids core dumps
    disk         the free space and the kind of a file system, and mounts over files
    file_flags   flags that forbid to change a file, and projects
    memory       how much memory a cleaning may use
    open_files   which other processes have files open
    throttle     the limit of `--max-bytes-per-second`
    user_cache   the directory for machine code and for Spark's class archive
"""
