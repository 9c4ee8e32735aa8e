"""What Kafka's cleaner would decide about a partition, and why.

In: `PartitionLog`, `TopicConfig`, a time. Out: `CleanPlan`.
Imports: `errors`, `format`, `log`, `config`.

    discovery    the partition directories below the paths that a user gives
    partition    one partition directory to its plan, and the reasons to refuse it
    clean_plan   clean and dirty section, ratio, lag, verdict, groups; pure
    passes       how many passes the broker's own cleaner needs
    deletion     the whole segments that a broker would delete
"""
