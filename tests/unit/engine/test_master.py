"""Which master URLs are accepted: those that Spark accepts."""

from __future__ import annotations

import pytest

from kcompact.engine.spark.master import check_master, is_local, standalone_addresses
from kcompact.errors import ConfigError

ACCEPTED = [
    "local",
    "local[1]",
    "local[*]",
    "local[2147483647]",
    "local[4,2]",
    "local[*, 3]",
    "local-cluster[2,1,1024]",
    "local-cluster[ 2 , 1 , 1024 ]",
    "spark://host:7077",
    "spark://10.0.0.1:7077",
    "spark://[::1]:7077",
    "spark://a.example:7077,b.example:7078",
    "yarn",
    "k8s://https://kubernetes.default.svc",
    "k8s://https://10.0.0.1:6443/cluster",
    "k8s://http://host:8080",
    "k8s://host:443",
]
REFUSED = [
    "",
    "nonsense",
    "LOCAL",
    " local",
    "local\n",
    "local[",
    "local[]",
    "local[0]",
    "local[-1]",
    "local[abc]",
    "local[2147483648]",
    "local[2,0]",
    "local[2,*]",
    "local[1,2,3]",
    "local-cluster[2,1]",
    "local-cluster[*,1,1024]",
    "spark:/host:7077",
    "spark://",
    "spark://host",
    "spark://host:0",
    "spark://host:65536",
    "spark://host:port",
    "spark://host:7077/",
    "spark://host:7077,",
    "spark://user@host:7077",
    "yarn-client",
    "mesos://host:5050",
    "k8s://",
    "k8s://ftp://host:21",
    "k8s://https://",
    "sc://host:15002",
]


@pytest.mark.parametrize("master", ACCEPTED)
def test_a_master_of_spark_is_accepted(master: str) -> None:
    check_master(master)


@pytest.mark.parametrize("master", REFUSED)
def test_any_other_is_refused_with_the_accepted_forms(master: str) -> None:
    with pytest.raises(ConfigError, match="is not a Spark master") as raised:
        check_master(master)
    assert raised.value.exit_code == 2
    for form in ("local[N]", "local[*]", "local-cluster[", "spark://HOST:PORT", "yarn", "k8s://"):
        assert form in str(raised.value)


@pytest.mark.parametrize(
    ("master", "addresses"),
    [
        ("spark://a:1,[::1]:65535", [("a", 1), ("::1", 65535)]),
        ("spark://a:1,b", []),
        ("k8s://a:1", []),
        ("local", []),
    ],
)
def test_addresses_of_a_standalone_cluster(master: str, addresses: list[tuple[str, int]]) -> None:
    assert standalone_addresses(master) == addresses


@pytest.mark.parametrize("master", ACCEPTED)
def test_only_one_jvm_is_local(master: str) -> None:
    assert is_local(master) == (master == "local" or master.startswith("local["))
