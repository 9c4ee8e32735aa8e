"""The messages of Kafka that it generates from schemas: records of its internal topics, and control records.

In: key and value of a record. Out: their fields, as Kafka's own tools print them.
Imports: `format`.

    schema             types of messages and their fields, and the reader of the values that they describe
    coordinators       one record of a coordinator; the types of `__transaction_state` and `__share_group_state`
    consumer_offsets   the types of `__consumer_offsets`: committed offsets and groups
    cluster_metadata   the records of `__cluster_metadata`: topics, settings, brokers ...
    control_records    markers that end transactions, and the records of a KRaft quorum
"""
