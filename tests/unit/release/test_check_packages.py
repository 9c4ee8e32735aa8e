from __future__ import annotations

from pathlib import Path

from release import check_packages


def test_what_pip_consists_of_is_not_counted(tmp_path: Path) -> None:
    for name in ("kcompact/cli.py", "pip/main.py", "pip-26.0.dist-info/RECORD", "pkg_resources/__init__.py"):
        file = tmp_path / "lib" / "python3.11" / "site-packages" / name
        file.parent.mkdir(parents=True)
        file.write_bytes(bytes(10_000))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to("/usr/bin/env")
    counted = tmp_path / "lib" / "python3.11" / "site-packages" / "kcompact" / "cli.py"
    assert check_packages.installed_bytes(tmp_path) == counted.stat().st_blocks * 512
