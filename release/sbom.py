"""The bill of materials of the archive, as CycloneDX 1.6: a component for each owner of a file in it.

That of the wheels is written by cyclonedx-py from an installation (`release.__main__`). It knows no Python, and none of
the libraries that came from elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from kcompact import __version__
from release.owners import Owner


def write(owners: Iterable[Owner], target: Path, *, mtime: int) -> None:
    """Write it; the same owners and time give the same bytes."""
    kcompact = {"type": "application", "name": "kcompact", "version": __version__, "bom-ref": f"kcompact@{__version__}"}
    components = [
        {"type": "library", "name": each.name, "version": each.version, "purl": each.purl, "bom-ref": each.purl}
        for each in owners
        if each.name != "kcompact"
    ]
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"timestamp": datetime.fromtimestamp(mtime, UTC).isoformat(), "component": kcompact},
        "components": components,
        "dependencies": [
            {"ref": kcompact["bom-ref"], "dependsOn": [each["bom-ref"] for each in components]},
            *({"ref": each["bom-ref"]} for each in components),
        ],
    }
    target.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
