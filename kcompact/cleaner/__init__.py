"""The cleaner: of one partition, of the partitions of log directories, and as a service.

In: paths, configuration, options. Out: cleaned partitions and their results.
Imports: `host`, `errors`, `format`, `log`, `config`, `plan`, `clean`, `swap`, `engine`.

    partition         the cleaning of one partition, from its plan to the checkpoint; read this first
    round             the cleaning of the partitions of some paths: `clean_log_dir`, and its steps for the command line
    outcome           what a round did with each partition: `CleanResult`, `RoundResult`
    cleaning          the options, and `Cleaning`: all that one partition is cleaned with
    engines           the engine of a round: this process, or Spark
    small_partitions  small partitions are cleaned at the same time
    round_end         the end of a cleaning, and the groups in which partitions end together
    recovery          the recovery of many partitions, which end in such groups too
    in_use            who else uses the partitions: locks, brokers that use another path, readers
    copies            the output of a round, and the copy of one partition
    journal           lines of JSON about each cleaning, written before and after
    restore           the way back: puts back what `keep_replaced` has kept
    retention         deletes old segments, after a cleaning or to make space for one
    preflight         what stops a cleaning, found out before anything is written
    space             the free space that a cleaning needs
    writing           how the groups are written: in stages by all workers, or whole in one task of Spark
    order             the order of the groups on a nearly full disk

    service           `Cleaner`: threads that clean the dirtiest logs of log directories until it is shut down
    log_pool          the logs of the service: which are paused or uncleanable, and which is cleaned next
    states            the states of a partition in the service, and the table of their transitions
    metrics           the metrics of the service, by Kafka's names
"""
