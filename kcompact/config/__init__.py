"""The settings of a topic, and the source of each value.

In: options, `server.properties`, the metadata log beside the data, a running cluster. Out: `TopicConfig`, notes.
Imports: `errors`, `format`, `log`.

    settings       every known setting: its name, its type, its default
    broker_names   the names of all settings of a broker
    layers         merges several sources of settings into one `TopicConfig`
    metadata_log   topics and their settings from the KRaft metadata log of a stopped broker
    listener       whether an address is that of a broker without TLS and authentication
    admin_client   topics and their settings from a running cluster
    resolve        the configuration of each partition directory of a command
"""
