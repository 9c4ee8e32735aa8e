"""The Java side of the oracle, `fixtures/kafka`, built for one version of Kafka.

The sources in `src/main` are written for the newest. Three things make them fit an older one, and nothing else:

    an import that this Kafka has in another package      is rewritten, to the class of the same name
    a class that this Kafka has under another name        is called so
    a class in `src/4.3`, `4.2`, … or `3.4`               replaces that of `src/main`, in that version and all before

A class in one of these folders that has the name of a class of Kafka stands for it where Kafka has none.

Versions before 4.3 are built without what has nothing to do with a cleaning. Up to 4.0 the log and its cleaner are
written in Scala, up to 3.4 also settings, producers and what a reader fetches.

The result lies in `fixtures/kafka/target/VERSION`. Every version since 2.8 is tried with the sources of the nearest
one. Needs a JDK 17 and Maven.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock

from kcompact.release import RELEASES
from tests.support.releases import numbers

PROJECT = Path(__file__).resolve().parents[2] / "fixtures" / "kafka"
VERSIONS = tuple(release.version for release in RELEASES.values())
NEWEST = VERSIONS[0]
OLDER_VERSIONS = ("3.6.2", "3.3.2", "3.1.2", "2.8.2")
"""Versions without a release of their own whose cleaners are compared too, one for each way in which they differ."""
OVERLAYS = ("4.3", "4.2", "4.1", "4.0", "3.9", "3.4")
"""Versions with sources of their own, newest first: each replaces classes of those before."""
NEWEST_OF_A_CLEANING = "4.2"
"""It and those before are built without what has nothing to do with a cleaning."""
NEWEST_IN_SCALA = "4.0"
NEWEST_IN_ONE_PART = "2.8"
"""Its artifact `kafka_2.13` has the classes of `kafka-storage` and `kafka-server-common`."""
OF_A_CLEANING = (
    *("Cleaning", "FixedTime", "LogAccess", "LogDirectory", "LogParts", "Markers", "Oracle", "Reading", "TaskQueue"),
    *("Tasks", "Writing"),
    *("CleanerAccess", "CleanerMetrics", "CleanerReplies", "Producers"),
)
"""The classes that a version up to `NEWEST_OF_A_CLEANING` has of `src/main`, unless its overlays have them."""
NOT_IN_SCALA = ("CleanerMetrics",)
PACKAGES_IN_SCALA = ("kafka.log", "kafka.utils")
OLDER_NAMES = {"UnifiedLog": "Log"}

_IMPORT = re.compile(r"^import ((?:org\.apache\.kafka|kafka)\.[\w.]+?)\.([A-Z]\w*)((?:\.\w+)*);$", re.MULTILINE)


def main_jar(version: str = NEWEST) -> Path:
    """Return our jar for a version of Kafka."""
    return PROJECT / "target" / version / "target" / "kafka-oracle.jar"


def class_path(version: str = NEWEST) -> str:
    """Return our jar and all of Kafka's, for `java -cp`."""
    jar = main_jar(version)
    return os.pathsep.join([str(jar), str(jar.parent / "lib" / "*")])


def build(version: str = NEWEST) -> None:
    """Build the Java side if its sources are newer than its jar; raise with Maven's output if that fails."""
    (PROJECT / "target").mkdir(exist_ok=True)
    with FileLock(PROJECT / "target" / f"{version}.lock"):  # Tests run in several processes.
        sources = [PROJECT / "pom.xml", *PROJECT.glob("src/**/*.*")]
        newest = max(source.stat().st_mtime for source in sources)
        jar = main_jar(version)
        if not jar.exists() or jar.stat().st_mtime < newest:
            _build(version)


def _build(version: str) -> None:
    directory = PROJECT / "target" / version
    shutil.rmtree(directory, ignore_errors=True)
    overlays = [each for each in OVERLAYS if numbers(version) <= numbers(each)]
    in_scala = numbers(version) <= numbers(NEWEST_IN_SCALA)
    classes = {*OF_A_CLEANING}.difference(NOT_IN_SCALA if in_scala else ())
    kept = {f"{name}.java" for name in classes} if NEWEST_OF_A_CLEANING in overlays else None

    def left_out(_: str, names: list[str]) -> list[str]:
        return [name for name in names if (kept and name.endswith(".java") and name not in kept) or name == unneeded]

    unneeded = "bench" if numbers(version) < numbers(NEWEST) else ""
    shutil.copytree(PROJECT / "src" / "main", directory / "src" / "main", ignore=left_out)
    for overlay in overlays:
        _replace_classes(PROJECT / "src" / overlay, directory / "src" / "main")
    shutil.copy(PROJECT / "pom.xml", directory)
    command = ["mvn", "-q", "-B", "-f", str(directory), f"-Dkafka.version={version}"]
    command += ["-Din-scala"] if in_scala else []
    command += ["-Din-one-part"] if numbers(version) <= numbers(NEWEST_IN_ONE_PART) else []
    _run([*command, "dependency:copy-dependencies@jars-beside-ours"])
    _move_imports(directory / "src", directory / "target" / "lib", preferred=PACKAGES_IN_SCALA if in_scala else ())
    _run([*command, "package"])


def _replace_classes(overlay: Path, sources: Path) -> None:
    """Copy the sources of an overlay over those of the same names, which may be in another package."""
    names = {source.name for source in overlay.rglob("*.java")}
    for source in [each for each in sources.rglob("*.java") if each.name in names]:
        source.unlink()
    shutil.copytree(overlay, sources, dirs_exist_ok=True)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


def _move_imports(sources: Path, libraries: Path, *, preferred: tuple[str, ...]) -> None:
    """Let each import of a class of Kafka name the package that the class has in these libraries, or in our sources.

    A class of a package in `preferred` is the one in use: 4.0 has parts of a log in Java too, which are not finished. A
    class that is in neither is called by its older name everywhere.
    """
    packages: dict[str, list[str]] = {}
    for package, name in (*_our_classes(sources), *_classes_in(libraries)):
        packages.setdefault(name, []).append(package)

    def moved(found: re.Match[str]) -> str:
        package, name, rest = found.groups()
        there = packages.get(name, [package])
        in_use = next((each for each in (*preferred, package) if each in there), there[0])
        return f"import {in_use}.{name}{rest};"

    for source in sources.rglob("*.java"):
        text = source.read_text(encoding="utf-8")
        changed = text
        for name, older in OLDER_NAMES.items():
            changed = changed if name in packages else re.sub(rf"\b{name}\b", older, changed)
        changed = _IMPORT.sub(moved, changed)
        if changed != text:
            source.write_text(changed, encoding="utf-8")


def _our_classes(sources: Path) -> Iterator[tuple[str, str]]:
    for source in sources.rglob("*.java"):
        yield ".".join(source.parent.relative_to(sources / "main" / "java").parts), source.stem


def _classes_in(libraries: Path) -> Iterator[tuple[str, str]]:
    for jar in sorted(libraries.glob("kafka*.jar")):
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                package, _, class_name = name.removesuffix(".class").rpartition("/")
                if name.endswith(".class") and "$" not in class_name:
                    yield package.replace("/", "."), class_name
