"""The cleaner: of one partition, of a log directory, and as a service.

In: paths, configuration, options. Out: cleaned partitions and their results.
Imports: `engine`, `swap` and every folder before them.

    options     the options of a cleaning
    partition   one partition, from its plan to the checkpoint
    space       the free space that a cleaning needs
"""
