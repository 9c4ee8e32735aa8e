"""The machine that kcompact runs on: memory, other processes, the user's directories, a limit on bytes per second.

In: environment variables, `/proc`, `/sys`, a monotonic clock. Out: sizes in bytes, private directories, delays,
threads.
Imports: `readable`.

    abrupt_end        what is undone when the process ends at once
    access            what this process may do with files
    clock             the wall clock
    core_dumps        forbids core dumps
    disk              the free space and the kind of a file system, and mounts over files
    file_flags        flags that forbid to change a file, and projects
    installation      how kcompact was installed, and what adds an extra
    memory            how much memory a cleaning may use
    open_files        which other processes have files open
    processes         the command lines of other processes
    processors        the processors of this process, and work on all of them
    throttle          the limit of `--max-bytes-per-second`
    user_directories  this user's directories, for machine code and for the journal
"""
