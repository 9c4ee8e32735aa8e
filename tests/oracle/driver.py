"""The Java side of the oracle, `fixtures/kafka`, built for one version of Kafka.

The sources in `src/main` are written for the newest. Two things make them fit an older one, and nothing else:

    an import that this Kafka has in another package      is rewritten, to the class of the same name
    a class in `src/4.0` or `src/3.9`                     replaces the one of `src/main`: the log and its cleaner are
                                                          written in Scala there

The result lies in `fixtures/kafka/target/VERSION`. A version that is not in VERSIONS is tried with the sources of the
nearest one. Needs a JDK 17 and Maven.
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
IN_SCALA = ("src/4.0", "src/3.9")
"""The sources for a log in Scala: those of 4.0, and those that replace them in 3.9."""
OF_A_CLEANING = ("Cleaning", "FixedTime", "LogDirectory", "Oracle", "Reading", "TaskQueue", "Writing")
"""What of `kcompact.oracle` is built for a log in Scala: the rest has nothing to do with what a cleaning leaves."""

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
    overlays = [each for each in IN_SCALA if numbers(version) <= numbers(each)]
    kept = {f"{name}.java" for name in OF_A_CLEANING} if overlays else None

    def left_out(_: str, names: list[str]) -> list[str]:
        return [name for name in names if (kept and name.endswith(".java") and name not in kept) or name == unneeded]

    unneeded = "bench" if numbers(version) < numbers(NEWEST) else ""
    shutil.copytree(PROJECT / "src" / "main", directory / "src" / "main", ignore=left_out)
    for overlay in overlays:
        shutil.copytree(PROJECT / overlay, directory / "src" / "main", dirs_exist_ok=True)
    shutil.copy(PROJECT / "pom.xml", directory)
    command = ["mvn", "-q", "-B", "-f", str(directory), f"-Dkafka.version={version}"]
    command += ["-Din-scala"] if overlays else []
    _run([*command, "dependency:copy-dependencies@jars-beside-ours"])
    _move_imports(directory / "src", directory / "target" / "lib", preferred="kafka.log" if overlays else "")
    _run([*command, "package"])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


def _move_imports(sources: Path, libraries: Path, *, preferred: str) -> None:
    """Let each import of a class of Kafka name the package that the class has in these libraries, or in our sources.

    A class of the package `preferred` is the one in use: 4.0 has parts of a log in Java too, which are not finished.
    """
    packages: dict[str, list[str]] = {}
    for package, name in (*_our_classes(sources), *_classes_in(libraries)):
        packages.setdefault(name, []).append(package)

    def moved(found: re.Match[str]) -> str:
        package, name, rest = found.groups()
        there = packages.get(name, [package])
        in_use = next((each for each in (preferred, package) if each in there), there[0])
        return f"import {in_use}.{name}{rest};"

    for source in sources.rglob("*.java"):
        text = source.read_text(encoding="utf-8")
        changed = _IMPORT.sub(moved, text)
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
