"""Programs named `java` that behave like a broken Java, or like one of a certain version."""

from __future__ import annotations

from pathlib import Path

PRINTS_17 = """[ "$1" = -version ] && { echo 'openjdk version "17.0.15" 2025-04-15' >&2; exit 0; }\n"""
"""A shell script's first line: `java -version` answers as Java 17."""


def write_java(home: Path, script: str, *, release: str | None = None) -> Path:
    """Write `bin/java` below a directory, a shell script, and the file `release` of a JDK; return the `java`."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{script}")
    java.chmod(0o755)
    if release is not None:
        (home / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{release}"\n')
    return java
