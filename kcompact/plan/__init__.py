"""What Kafka's cleaner would decide about a partition, and why.

In: paths, or a `PartitionLog`; a `TopicConfig`; the time. Out: `CleanPlan`, `PlannedPartition`.
Imports: `host`, `errors`, `format`, `log`, `config`.

Only these modules read the disk:

    discovery    paths -> partition directories, and the directories that are left out
    partition    a partition directory -> its plan; why a partition is refused
    walk         paths and options -> an entry for each partition, with its plan or its error
    horizons     a plan -> the batches that wait for their delete horizons
    replicas     directories of other brokers -> where their replicas end, which a cleaning must not outrun
    transactions   a plan -> what open transactions hold back, and what the coordinator says of them

The others are pure functions of values:

    options      how partitions are chosen and planned
    selection    which of the partitions that paths name are meant
    totals       the plans of several partitions, added up
    verdict      every reason to clean a partition or not, and the one place that decides
    clean_plan   clean and dirty section, ratio, lag, groups, with the verdict
    run_notes    notes and hints on a whole run
    setting_notes   notes on the settings behind the plans: where they are from, what is assumed or unknown
    deletion     the whole segments that a broker would delete

    explanation  why a partition is cleaned or not, what would change that, when, and what the cleaning costs
    conditions   what the cleaner asks of a partition, one condition after the other
    forecast     when a verdict changes by itself
    deciding_settings   which settings are only assumed, and which value of one setting changes a verdict
    cost         what a cleaning reads, writes and needs, for a broker and here, and in how many passes
"""
