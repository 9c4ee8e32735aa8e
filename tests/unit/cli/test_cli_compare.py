"""The command `compare`: what it prints, how it ends, and its page."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from kcompact.questions.keys.counts import key_hash
from tests.support import metadata_log, replica_logs
from tests.support.command_line import digest, kcompact, partition, running_broker
from tests.support.html_tags import Tags

KEY = "<script>alert('x')</script>{{ 7*7 }}"


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The log directories of three brokers. No test changes them."""
    return replica_logs.write(tmp_path_factory.mktemp("brokers"))


FINDINGS = {
    "carts": (9, "different", ["resurrected-key"]),
    "stock": (0, "equal-compacted-differently", []),
    "rebuilt": (0, "equal-compacted-differently", []),
    "behind": (0, "behind", []),
    "forked": (9, "different", ["diverged-epoch"]),
    "hanging": (9, "different", ["hanging-transaction"]),
    "damaged": (3, "different", ["corrupt-copy"]),
    "binary": (9, "different", ["lost-key"]),
    "recreated": (4, None, []),
}


@pytest.mark.parametrize("topic", FINDINGS)
def test_findings_and_exit_codes(topic: str, brokers: list[Path]) -> None:
    ran = kcompact("compare", "--json", "--topic", topic, *brokers)
    (found,) = ran.json["partitions"]
    assert (ran.code, found["verdict"], [each["kind"] for each in found["findings"]]) == FINDINGS[topic]
    assert found["exit_code"] == ran.code
    assert bool(found["error"]) == (found["verdict"] is None) == ("error:" in ran.err)


def test_the_gravest_code_decides_and_nothing_is_changed(brokers: list[Path]) -> None:
    before = [digest(each) for each in brokers]
    ran = kcompact("compare", *brokers)
    assert ran.code == 3
    assert [digest(each) for each in brokers] == before
    for topic, (code, _, kinds) in FINDINGS.items():
        assert f"{topic}-0" in (ran.out if code != 4 else ran.err)
        assert all(f"{kind} (proven)" in ran.out for kind in kinds)
    assert f"only one path has them: alone-0 ({brokers[0]})" in ran.out


def test_the_order_of_paths_changes_nothing(brokers: list[Path]) -> None:
    found = [
        [
            (each["topic"], each["verdict"], [(one["kind"], one["replicas"], one["right"]) for one in each["findings"]])
            for each in kcompact("compare", "--json", *paths).json["partitions"]
        ]
        for paths in (brokers, brokers[::-1])
    ]
    assert _sorted(found[0]) == _sorted(found[1])


def _sorted(value: object) -> object:
    """Return lists in lists as they are in one order of the paths."""
    if isinstance(value, list):
        return sorted(map(_sorted, value), key=repr)
    return tuple(map(_sorted, value)) if isinstance(value, tuple) else value


def test_roles_come_from_the_metadata_log(brokers: list[Path]) -> None:
    (found,) = kcompact("compare", "--json", "--topic", "carts", *brokers).json["partitions"]
    roles = {each["node_id"]: (each["is_leader"], each["is_in_sync"]) for each in found["replicas"]}
    assert roles == {1: (True, True), 2: (False, True), 3: (False, False)}


def test_keys_are_hashes_without_print_data(brokers: list[Path]) -> None:
    hidden = kcompact("compare", "--topic", "carts", *brokers).out
    shown = kcompact("compare", "--topic", "carts", "--print-data", *brokers).out
    assert key_hash(b"basket:b") in hidden
    assert "basket:b" not in hidden
    assert "keys: basket:b at offset 1" in shown


def test_before_a_start(brokers: list[Path]) -> None:
    ran = kcompact("compare", "--before-start", "--topic", "carts", brokers[2], *brokers[:2])
    assert f"mv {brokers[2]}/carts-0 BACKUP/" in ran.out
    fine = kcompact("compare", "--before-start", "--topic", "carts", *brokers)
    assert "nothing that was compared speaks against a start, but not everything was compared" in fine.out
    assert f"mv {brokers[0]}" not in fine.out


def test_what_was_not_compared_needs_a_decision_before_a_start(brokers: list[Path]) -> None:
    ran = kcompact("compare", "--before-start", "--topic", "recreated", *brokers)
    assert ran.code == 4
    assert f"1 partition of {brokers[0]}  must be decided on before the start" in ran.out
    assert "nothing in the replicas speaks" not in ran.out


def test_too_many_paths(tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(17)]
    for path in paths:
        partition(path, "log name=wide-0\n0: a=1")
    assert kcompact("compare", *paths[:16]).code == 0
    ran = kcompact("compare", *paths)
    assert ran.code == 4
    assert "16 replicas can be compared at once" in ran.err


@pytest.mark.parametrize("as_link", [False, True])
def test_a_log_directory_and_its_own_partition(brokers: list[Path], tmp_path: Path, *, as_link: bool) -> None:
    own = brokers[0] / "stock-0"
    if as_link:
        (tmp_path / "stock-0").symlink_to(own)
        own = tmp_path / "stock-0"
    ran = kcompact("compare", brokers[0], own)
    assert ran.code == 4
    assert "two of the paths have this directory: it cannot be compared with itself" in ran.err


def test_before_a_start_of_what_has_no_other_replica(brokers: list[Path]) -> None:
    ran = kcompact("compare", "--before-start", "--topic", "alone", "--topic", "stock", *brokers)
    assert ran.code != 0
    assert "nothing that was compared speaks against a start, but not everything was compared" in ran.out


@pytest.mark.parametrize(
    ("which", "code", "problem"),
    [
        ((0,), 2, "compare needs at least two paths"),
        ((0, 0), 2, "is given twice: a directory cannot be compared with itself"),
        ((), 2, "PATH"),
    ],
)
def test_paths(which: tuple[int, ...], code: int, problem: str, brokers: list[Path]) -> None:
    ran = kcompact("compare", "--topic", "stock", *(brokers[number] for number in which))
    assert ran.code == code
    assert problem in ran.err


def test_a_replica_without_a_directory_is_named_with_the_reason(brokers: list[Path], tmp_path: Path) -> None:
    copies = [Path(shutil.copytree(each, tmp_path / each.name)) for each in brokers]
    shutil.rmtree(copies[2] / "carts-0")
    ran = kcompact("compare", "--topic", "carts", *copies)
    assert ran.code == 10
    assert f"not compared: carts-0, {copies[2]}, offsets 0 to 7: the cluster metadata names this broker" in ran.out


def test_what_a_damage_hides_is_named(brokers: list[Path]) -> None:
    ran = kcompact("compare", "--topic", "damaged", *brokers)
    assert f"not compared: {brokers[1]}, offsets 1 to 2: " in ran.out


def test_the_command_for_a_damaged_replica_works(brokers: list[Path]) -> None:
    (found,) = kcompact("compare", "--json", "--topic", "damaged", *brokers).json["partitions"]
    command = found["findings"][0]["do"].partition(" lists ")[0].split()
    assert command == ["kcompact", "verify", str(brokers[1] / "damaged-0")]
    assert kcompact(*command[1:]).code == 3


def test_more_replicas_than_a_mask_has(brokers: list[Path], tmp_path: Path) -> None:
    copies = [shutil.copytree(brokers[0] / "stock-0", tmp_path / str(number) / "stock-0") for number in range(17)]
    assert kcompact("compare", *copies[:16]).code == 0
    ran = kcompact("compare", *copies)
    assert ran.code == 4
    assert "is the 17th path; 16 replicas can be compared at once" in ran.err


def test_paths_without_a_common_partition_and_of_another_cluster(brokers: list[Path], tmp_path: Path) -> None:
    partition(tmp_path / "other", "log name=strange-0\n0: a=1")
    ran = kcompact("compare", brokers[0], tmp_path / "other")
    assert ran.code == 4
    assert f"no partition is here and in {tmp_path}/other too" in ran.err
    shutil.copytree(brokers[1], tmp_path / "moved")
    properties = tmp_path / "moved" / "meta.properties"
    properties.write_text(properties.read_text().replace(metadata_log.CLUSTER_ID, "anotherCluster00000000"))
    ran = kcompact("compare", brokers[0], tmp_path / "moved")
    assert ran.code == 4
    assert "of the cluster anotherCluster00000000" in ran.err


def test_beside_running_brokers(brokers: list[Path], tmp_path: Path) -> None:
    copies = [Path(shutil.copytree(each, tmp_path / each.name)) for each in brokers]
    with running_broker(copies[0]), running_broker(copies[2]):
        ran = kcompact("compare", "--json", "--topic", "carts", *copies)
    assert ran.code == 9, ran.err


def test_a_running_broker_before_its_start(brokers: list[Path], tmp_path: Path) -> None:
    copy = Path(shutil.copytree(brokers[2], tmp_path / "copy"))
    words = ("compare", "--before-start", "--topic", "stock")
    with running_broker(copy):
        ran = kcompact(*words, copy, brokers[0])
    assert f"note: a broker runs on {copy}: --before-start is for one that is stopped" in ran.err
    assert "a broker runs" not in kcompact(*words, copy, brokers[0]).err


def test_a_metadata_log_that_cannot_be_read_is_named(brokers: list[Path], tmp_path: Path) -> None:
    copy = Path(shutil.copytree(brokers[0], tmp_path / "copy"))
    log = copy / "__cluster_metadata-0" / metadata_log.log()
    log.write_bytes(log.read_bytes()[:20] + b"\xff" + log.read_bytes()[21:])
    ran = kcompact("compare", "--json", "--topic", "carts", copy, *brokers[1:])
    (found,) = ran.json["partitions"]
    assert f"note: {copy} does not say who leads" in ran.err
    assert {each["is_leader"] for each in found["replicas"]} == {None}


# The page


@pytest.mark.long
def test_the_page(brokers: list[Path], tmp_path: Path) -> None:
    page = tmp_path / "replicas.html"
    ran = kcompact("compare", "--before-start", "--report", page, brokers[1], brokers[0], brokers[2])
    assert ran.code == 3
    assert f"wrote {page}" in ran.err
    read = Tags(page.read_text(encoding="utf-8"))
    ids = [attributes["id"] for _, attributes in read.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = {attributes["href"] for tag, attributes in read.tags if tag == "a"}
    assert links == {f"#partition-{number}" for number in range(1, len(FINDINGS) + 1)}
    assert links <= {f"#{each}" for each in ids}
    assert sum(tag == "article" for tag, _ in read.tags) == len(FINDINGS)
    for topic, (_, _, kinds) in FINDINGS.items():
        assert f"{topic}-0" in read.text
        assert all(f"{kind} (proven)" in read.text for kind in kinds)
    for word in (
        "what it means",
        "how sure",
        "what to do",
        "which is right",
        "leader",
        "out of sync",
        "above its fork it has other records than the newest leader",
        "1 with another compression",
        "partition.metadata has different topic ids",
        f"only one path has them: alone-0 ({brokers[0]})",
        f"mv {brokers[1]}/binary-0 BACKUP/",
        f"kcompact compare --before-start --report {page} {brokers[1]}",
        key_hash(b"basket:b"),
    ):
        assert word in read.text, word
    assert "basket:b" not in read.text


@pytest.mark.long
def test_a_page_about_hostile_names_and_keys(tmp_path: Path) -> None:
    homes = [tmp_path / f"<img src=x onerror=alert(1)>&{{{{ 7*7 }}}}{number}" for number in range(2)]
    partition(homes[0], f'log name=carts-0\n0: "{KEY}"=1 a=1')
    partition(homes[1], "log name=carts-0\n0: a=1@1")
    page = tmp_path / "replicas.html"
    ran = kcompact("compare", "--print-data", "--report", page, *homes)
    assert ran.code == 9, ran.err
    html = page.read_text(encoding="utf-8")
    read = Tags(html)
    assert not {tag for tag, _ in read.tags} & {"script", "link", "img", "iframe", "object", "form"}
    for tag, attributes in read.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "src"], tag
    assert not re.findall(r"https?://(?!www\.w3\.org)|url\((?!#)|@import", html)
    assert KEY[:30] in read.text
    assert "{{ 7*7 }}0" in read.text


@pytest.mark.long
def test_what_a_page_replaces(brokers: list[Path], tmp_path: Path) -> None:
    page = tmp_path / "replicas.html"
    words: tuple[str | Path, ...] = ("compare", "--json", "--topic", "stock", "--report", page, *brokers)
    assert kcompact(*words).json["partitions"][0]["exit_code"] == 0
    assert kcompact(*words).code == 0
    page.write_text("mine")
    ran = kcompact(*words)
    assert (ran.code, ran.out, page.read_text()) == (4, "", "mine")
    inside = brokers[0] / "stock-0" / "page.html"
    assert kcompact("compare", "--report", inside, *brokers).code == 4
    assert not inside.exists()
