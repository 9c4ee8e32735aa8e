"""The settings of a topic, and where each value comes from.

In: options, `server.properties`, the metadata log beside the data, a live cluster. Out: `TopicConfig`, notes.
Imports: `errors`, `format`, `log`.

    settings       every known setting: its name, its type, its default
    layers         several sources of settings to one `TopicConfig`
    metadata_log   topics and their settings in the KRaft metadata log of a stopped broker
    admin_client   topics and their settings, asked from a live cluster
    resolve        the configuration of each partition directory that a command names
"""
