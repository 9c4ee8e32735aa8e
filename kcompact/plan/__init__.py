"""What Kafka's cleaner would decide about a partition, and why.

In: paths, or a `PartitionLog`; a `TopicConfig`; the time. Out: `CleanPlan`.
Imports: `errors`, `format`, `log`, `config`.

Only these two modules read the disk:

    discovery    paths -> partition directories
    partition    a partition directory -> its plan; why a partition is refused

The others are pure functions of values:

    clean_plan   clean and dirty section, ratio, lag, verdict, groups
    passes       how many passes Kafka's own cleaner needs
    deletion     the whole segments that a broker would delete
"""
