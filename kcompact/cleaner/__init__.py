"""The cleaner: of one partition, and of the partitions of log directories.

In: paths, configuration, options. Out: cleaned partitions and their results.
Imports: `host`, `errors`, `format`, `log`, `config`, `plan`, `clean`, `swap`, `engine`.

    partition      the cleaning of one partition, from its plan to the checkpoint; read this first
    round          the cleaning of the partitions of some paths: `clean_log_dir`, and its steps for the command line
    outcome        what a round did with each partition
    options        the options of a cleaning
    engines        the engine of a round: this process, or Spark
    side_by_side   small partitions are cleaned at the same time
    locks          the locks of the log directories of a round
    space          the free space that a cleaning needs
"""
