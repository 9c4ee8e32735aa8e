from __future__ import annotations

import json
from pathlib import Path

from kcompact import __version__
from release import sbom
from release.owners import Owner


def owner(name: str) -> Owner:
    return Owner(name=name, version="1.0", purl=f"pkg:pypi/{name}@1.0", texts=(Path("LICENSE"),))


def test_kcompact_needs_every_component(tmp_path: Path) -> None:
    sbom.write([owner("click"), owner("kcompact"), owner("numpy")], tmp_path / "it", mtime=1_700_000_000)
    document = json.loads((tmp_path / "it").read_text())
    assert document["metadata"]["component"]["version"] == __version__
    assert document["metadata"]["timestamp"] == "2023-11-14T22:13:20+00:00"
    names = [component["purl"] for component in document["components"]]
    assert names == ["pkg:pypi/click@1.0", "pkg:pypi/numpy@1.0"]
    assert document["dependencies"][0] == {"ref": f"kcompact@{__version__}", "dependsOn": names}
