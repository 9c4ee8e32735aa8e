"""The settings of a topic, and the source of each value.

In: options, `server.properties`, the metadata log beside the data, a running cluster. Out: `TopicConfig`, notes.
Imports: `host`, `errors`, `format`, `log`.

    settings           every known setting: its name, its type, its bounds, where its value comes from
    kafka_names        the names of all settings of a broker and of its admin client
    properties_files   reads properties files, and resolves the variables in their values
    broker_config      a broker's static settings, and whether they are those of a log directory's broker
    server_properties  the file with these settings, given or searched
    layers             merges several sources of settings into one `TopicConfig`
    topic_configs      what topics have of their own, from a file that one of Kafka's tools has printed
    metadata_log       topics and their settings from the KRaft metadata log of a stopped broker
    broker_release     the release of Kafka whose rules hold, as far as the broker's files tell it
    client/            the client's own settings: TLS, user and password
    listener           whether an address is that of a broker that the client can use
    admin_client       topics and their settings from a running cluster
    brokers            which log directories are those of one broker, and what its files tell
    resolve            the configuration of each partition directory of a command
"""
