"""The manifests, the unit and the workflows are what their readers accept, and the commands in them clean real logs.

Neither a cluster nor a service manager runs here: the commands run on directories that are laid out like the volumes.
"""

from __future__ import annotations

import copy
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import check_jsonschema  # type: ignore[import-untyped]  # It has no types.
import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner, Result

from fixtures import checkout
from kcompact import read_journal
from tests.support.command_line import IMPORTED_FROM, ROOT, command, values

KUBERNETES = ROOT / "examples" / "kubernetes"
MANIFESTS = sorted(KUBERNETES.glob("*.yaml"))
STRIMZI = KUBERNETES / "strimzi-job.yaml"
STATEFULSET = KUBERNETES / "statefulset-job.yaml"
UNIT = ROOT / "examples" / "systemd" / "kcompact.service"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
OLDEST_KUBERNETES = "1.25"

MAPPING = list[str | int]
"""The keys that lead to a mapping in a document."""


def document(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return found


def pod(manifest: Path) -> dict[str, Any]:
    found: dict[str, Any] = document(manifest)["spec"]["template"]["spec"]
    return found


def mappings(node: Any, at: MAPPING) -> Iterator[MAPPING]:
    """Yield where the mappings with fixed names are: all but labels and annotations."""
    if isinstance(node, dict):
        if at[-1:] not in (["labels"], ["annotations"], ["requests"], ["limits"]):
            yield at
        for name, each in node.items():
            yield from mappings(each, [*at, name])
    elif isinstance(node, list):
        for number, each in enumerate(node):
            yield from mappings(each, [*at, number])


# Kubernetes


@pytest.fixture(scope="module")
def each_schema_once() -> Iterator[None]:
    """Parse the megabytes of each schema once, and not for each validation."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kubernetes_validate.utils, "schema_contents", cache(kubernetes_validate.utils.schema_contents))
        yield


@pytest.mark.usefixtures("each_schema_once")
@pytest.mark.parametrize("version", [OLDEST_KUBERNETES, kubernetes_validate.latest_version()])
@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda file: file.name)
def test_manifests_have_the_schema_of_kubernetes(manifest: Path, version: str) -> None:
    job = document(manifest)
    kubernetes_validate.validate(job, version, strict=True)
    for at in mappings(job, []):
        wrong = copy.deepcopy(job)
        node = wrong
        for key in at:
            node = node[key]  # type: ignore[index]  # A key of a mapping, or a number in a list.
        node["missspelt"] = 1
        with pytest.raises(kubernetes_validate.ValidationError, match="missspelt"):
            kubernetes_validate.validate(wrong, version, strict=True)


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda file: file.name)
def test_a_job_runs_once_as_the_owner_of_the_files_and_with_no_rights(manifest: Path) -> None:
    """The level `restricted` of the Pod Security Standards, and what docs/kubernetes.md promises."""
    assert document(manifest)["spec"]["backoffLimit"] == 0
    spec = pod(manifest)
    assert spec["restartPolicy"] == "Never"
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}


def run(arguments: list[str], moved: dict[str, Path], scratch: Path) -> subprocess.CompletedProcess[str]:
    """Run kcompact as in a container, without a home directory, with directories of the container elsewhere."""
    arguments = [elsewhere(each, moved) for each in arguments]
    environment = {"PATH": os.defpath, "PYTHONPATH": str(IMPORTED_FROM), "TMPDIR": str(scratch)}
    return subprocess.run(command(*arguments), env=environment, cwd="/", capture_output=True, text=True, check=False)


def elsewhere(argument: str, moved: dict[str, Path]) -> str:
    for here, there in moved.items():
        if argument.startswith(f"{here}/"):
            return argument.replace(here, str(there), 1)
    return argument


def mounted(manifest: Path, root: Path) -> tuple[list[str], dict[str, Path]]:
    """Return the arguments of a job's container, and for each mount the directory that takes its place."""
    (container,) = pod(manifest)["containers"]
    moved = {mount["mountPath"]: root / mount["name"] for mount in container["volumeMounts"]}
    for directory in moved.values():
        directory.mkdir()
    return container["args"], moved


def cleaned_once(ran: subprocess.CompletedProcess[str], directory: Path, journal: Path) -> None:
    assert ran.returncode == 0, ran.stderr
    assert "inventory-0           cleaned" in ran.stdout or "inventory-0  cleaned" in ran.stdout
    lines = read_journal(journal)
    assert [line and line["event"] for line in lines] == ["begin", "end"]
    before = checkout.LOGS / "broker" / "before" / "inventory-0"
    assert newest(directory) == newest(before)
    assert len(values(directory)) < len(values(before))


def newest(directory: Path) -> dict[bytes | None, bytes | None]:
    return {key: value for _, (key, value) in sorted(values(directory).items())}


def test_the_job_of_a_statefulset_cleans_a_volume(tmp_path: Path) -> None:
    arguments, moved = mounted(STATEFULSET, tmp_path)
    volume = moved["/var/lib/kafka"]
    (volume / "lost+found").mkdir()
    log_dir = checkout.copy_directory("broker", "before", volume / "data")
    ran = run(arguments, moved, moved["/tmp"])
    cleaned_once(ran, log_dir / "inventory-0", volume / "kcompact-journal.jsonl")
    assert sorted(each.name for each in volume.iterdir()) == ["data", "kcompact-journal.jsonl", "lost+found"]
    assert list(moved["/tmp"].iterdir()) == []


def strimzi_volumes(root: Path) -> tuple[list[str], dict[str, Path], Path]:
    """Lay out a node with two volumes, metadata on the first and data on the second; return the data's partition."""
    arguments, moved = mounted(STRIMZI, root)
    first, second = (moved[f"/var/lib/kafka/data-{number}"] for number in (0, 1))
    for volume in (first, second):
        (volume / "lost+found").mkdir()
        checkout.copy_directory("broker", "before", volume / "kafka-log1")
    shutil.rmtree(first / "kafka-log1" / "inventory-0")
    shutil.rmtree(second / "kafka-log1" / "__cluster_metadata-0")
    identity = second / "kafka-log1" / "meta.properties"
    identity.write_text(re.sub("directory.id=.*", "directory.id=AAAAAAAAAAAAAAAAAAAAAg", identity.read_text()))
    # The lines that KafkaBrokerConfigurationBuilder writes.
    (moved["/opt/kafka/custom-config"] / "server.config").write_text(
        "##############################\n# This file is automatically generated by the Strimzi Cluster Operator\n"
        "##############################\n\nnode.id=1\n\nprocess.roles=broker\n"
        f"log.dirs={first}/kafka-log1,{second}/kafka-log1\n\nmetadata.log.dir={first}/kafka-log1\n\n"
        "config.providers=strimzidir\n"
        "config.providers.strimzidir.class=org.apache.kafka.common.config.provider.DirectoryConfigProvider\n"
        "listener.name.replication-9091.ssl.keystore.key=${strimzidir:/opt/kafka/certs:1.key}\n",
        encoding="utf-8",
    )
    return arguments, moved, second / "kafka-log1" / "inventory-0"


def test_the_job_of_strimzi_cleans_all_volumes_of_a_node(tmp_path: Path) -> None:
    arguments, moved, directory = strimzi_volumes(tmp_path)
    ran = run(arguments, moved, moved["/tmp"])
    cleaned_once(ran, directory, tmp_path / "data-0" / "kcompact-journal.jsonl")
    assert "assumed" not in ran.stderr


def test_the_job_of_strimzi_needs_the_volume_with_the_metadata(tmp_path: Path) -> None:
    arguments, moved, directory = strimzi_volumes(tmp_path)
    shutil.rmtree(tmp_path / "data-0" / "kafka-log1")
    others = [each for each in arguments if each != "/var/lib/kafka/data-0/kafka-log1"]
    ran = run(others, moved, moved["/tmp"])
    assert ran.returncode == 4
    assert "the cleanup.policy of inventory is unknown" in ran.stderr
    assert len(values(directory)) == 4000


# systemd


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_the_unit_is_one_that_systemd_reads(tmp_path: Path) -> None:
    # The executable must exist.
    text = UNIT.read_text(encoding="utf-8").replace("/usr/local/bin/kcompact", "/bin/true")
    unit = tmp_path / UNIT.name
    # Of a wrong name systemd only warns, without an exit code.
    for content, expected in (text, ""), (text.replace("Before=", "Befor="), "Unknown key"):
        unit.write_text(content, encoding="utf-8")
        verified = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=True
        )
        assert expected in verified.stderr if expected else not verified.stderr


def test_the_command_of_the_unit_cleans_a_log_directory(tmp_path: Path) -> None:
    (line,) = [each for each in UNIT.read_text(encoding="utf-8").splitlines() if each.startswith("ExecStart=")]
    program, *arguments = shlex.split(line.removeprefix("ExecStart="))
    assert program == "/usr/local/bin/kcompact"
    log_dir = checkout.copy_directory("broker", "before", tmp_path / "kafka")
    (tmp_path / "kcompact").mkdir()
    ran = run(arguments, {"/var/lib": tmp_path}, tmp_path)
    cleaned_once(ran, log_dir / "inventory-0", tmp_path / "kcompact" / "journal.jsonl")


# GitHub


def checked(*workflows: Path) -> Result:
    arguments = ["--builtin-schema", "vendor.github-workflows", *map(str, workflows)]
    return CliRunner().invoke(check_jsonschema.main, arguments)


@pytest.mark.long
def test_workflows_have_the_schema_of_github(tmp_path: Path) -> None:
    assert WORKFLOWS
    right = checked(*WORKFLOWS)
    assert right.exit_code == 0, right.stdout
    for workflow in WORKFLOWS:
        wrong = tmp_path / workflow.name
        wrong.write_text(workflow.read_text(encoding="utf-8").replace("runs-on:", "run-on:"), encoding="utf-8")
        assert "run-on" in checked(wrong).stdout


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: file.name)
def test_a_workflow_gives_its_jobs_only_the_rights_that_they_name(workflow: Path) -> None:
    document_ = document(workflow)
    assert document_["permissions"] == {}
    for job in document_["jobs"].values():
        assert job["permissions"]
        for step in job["steps"]:
            if "uses" in step:
                assert step["uses"].partition("@")[2].startswith(("v", "release/v")), step["uses"]
