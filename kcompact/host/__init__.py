"""The machine that kcompact runs on: memory, other processes, the user's directories, a limit on bytes per second.

In: environment variables, `/proc`, `/sys`, a monotonic clock. Out: sizes in bytes, private directories, delays,
threads.
Imports: `readable`.

    access            what this process may do with files; flags that forbid to change a file
    descriptors       file descriptors that are closed at the end of a block
    disk              the free space and the kind of a file system, and mounts over files
    installation      how kcompact was installed, and what adds an extra
    machine           the memory a cleaning may use, the processors, the wall clock
    other_processes   which other processes have files open, and their command lines
    process_end       what is undone when the process ends at once; no core dumps
    throttle          the limit of `--max-bytes-per-second`
    turns             threads of which one works while the others wait for the disk
    user_directories  this user's directories, for machine code and for the journal
"""
