"""The records of Kafka's coordinators: what the topics `__consumer_offsets`, `__transaction_state` and
`__share_group_state` contain.

In: key and value of a record. Out: their fields, as Kafka's own tools print them.
Imports: `format`.

    topics             the topics with their types of records; one record of a topic to its fields
    records            one record: key and value to fields
    schema             fields and structs of a message, and the reader of the values that they describe
    offset_records     `__consumer_offsets`: committed offsets, classic groups
    consumer_groups    `__consumer_offsets`: groups with the consumer protocol (KIP-848)
    share_groups       `__consumer_offsets`: share groups (KIP-932)
    streams_groups     `__consumer_offsets`: groups of Kafka Streams (KIP-1071)
    transactions       `__transaction_state`: transactional ids
    share_state        `__share_group_state`: what share groups have delivered
    consumer_protocol  subscription and assignment of a consumer, inside the records of classic groups
"""
