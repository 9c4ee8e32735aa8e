"""The client of a running cluster: its settings under Kafka's names, TLS and authentication.

In: the properties of a file such as Kafka's tools take as `--command-config`. Out: `ClientConfig`, with an SSL context
and the credentials, for `config.listener` and `config.admin_client`.

    settings     ClientConfig, from properties or from their file
    tls          an SSL context, by Kafka's settings; what is wrong with a TLS connection
    stores       certificates and keys from PEM, PKCS12 and JKS
    credentials  user and password, or a token, from `sasl.jaas.config`
    tokens       the token of OAUTHBEARER

Values of settings are secrets: no error and no note has one, and no value shows one in its `repr`.
"""
