"""Look for versions of Kafka that the rules were never compared with, and compare random logs with the cleaner of each.

    python -m tests.oracle.new_releases --logs 300
    python -m tests.oracle.new_releases --list        # only say which there are

Maven is asked, so this needs the network. New is each version after the one of its release that `kcompact.release`
names, and each of a newer release; 4.1 and 4.2 have no release of their own and are not looked for. Ends with 1 if a
log differs or a version cannot be compared.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from xml.etree import ElementTree

from kcompact.release import NEWEST, RELEASES
from tests.oracle.driver import PROJECT
from tests.support.releases import numbers

MAVEN = ("mvn", "-B", "-U", "-f", str(PROJECT / "pom.xml"))
ASK = ("org.codehaus.mojo:versions-maven-plugin:2.16.2:display-property-updates", "-DincludeProperties=kafka.version")
ARTIFACT = "org/apache/kafka/kafka_2.13"
LOGS = 300
SEED = 2_400_000


def new_versions(published: Iterable[str]) -> Iterator[str]:
    """Yield the versions among these that were not there when the rules were compared."""
    compared = {numbers(release.version): release.version for release in RELEASES.values()}
    for version in published:
        if not re.fullmatch(r"\d+\.\d+\.\d+", version):
            continue  # a release candidate
        known = compared.get(numbers(version))
        is_later = known is not None and _patch(version) > _patch(known)
        if is_later or numbers(version) > numbers(NEWEST.version):
            yield version


def _patch(version: str) -> int:
    return int(version.rpartition(".")[2])


def published() -> list[str]:
    """Return the versions of Kafka that the repositories of this machine's Maven have."""
    subprocess.run([*MAVEN, "-q", *ASK], check=True, stdout=subprocess.DEVNULL)
    where = ["help:evaluate", "-q", "-DforceStdout", "-Dexpression=settings.localRepository"]
    said = subprocess.run([*MAVEN, *where], check=True, capture_output=True, text=True).stdout
    local = re.sub(r"\x1b\[\d*m", "", said).strip()  # Maven may reset a colour all the same.
    found: dict[str, None] = {}
    for file in sorted((Path(local) / ARTIFACT).glob("maven-metadata-*.xml")):
        found |= dict.fromkeys(each.text or "" for each in ElementTree.parse(file).iter("version"))
    if not found:
        raise SystemExit(f"{local} has no list of the versions of Kafka")
    return list(found)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="compare new versions of Kafka")
    parser.add_argument("--logs", type=int, default=LOGS)
    parser.add_argument("--list", action="store_true", help="only list them")
    arguments = parser.parse_args()
    versions = list(new_versions(published()))
    print(f"new since {NEWEST.version}: {', '.join(versions) or 'none'}", flush=True)
    if arguments.list:
        return
    command = [sys.executable, "-m", "tests.oracle.run", "--logs", str(arguments.logs), "--seed", str(SEED)]
    failed = [version for version in versions if subprocess.run([*command, "--kafka", version], check=False).returncode]
    if failed:
        sys.exit(f"not equal: {', '.join(failed)}")


if __name__ == "__main__":
    main()
