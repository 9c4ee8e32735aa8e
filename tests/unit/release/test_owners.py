from __future__ import annotations

import platform
import ssl
from pathlib import Path

import pytest

from release import accessories, owners


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The modules of a Python that was built with libssl: PREFIX/lib/python3."""
    python = tmp_path / "prefix" / "lib" / "python3"
    texts = tmp_path / "prefix" / "share" / "licenses" / "openssl"
    for directory in (python, texts):
        directory.mkdir(parents=True)
    (python / "LICENSE.txt").write_text("of Python")
    (python / "os.py").touch()
    (texts / "LICENSE.txt").write_text("of OpenSSL")
    (python.parent / "libssl.so.3").touch()
    return python


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    return tmp_path / "packages"


def install(packages: Path, name: str, files: dict[str, str]) -> None:
    """Put a package where pip would."""
    info = packages / f"{name}-1.0.dist-info"
    files = {f"{name}.py": "", f"{info.name}/METADATA": f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\n"} | files
    for file, content in files.items():
        (packages / file).parent.mkdir(parents=True, exist_ok=True)
        (packages / file).write_text(content)
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))


def copied(target: Path) -> dict[str, str]:
    return {str(path.relative_to(target)): path.read_text() for path in target.rglob("*") if path.is_file()}


def test_each_owner_has_a_directory(packages: Path, python: Path, tmp_path: Path) -> None:
    install(packages, "click", {"click-1.0.dist-info/licenses/LICENSE.txt": "of click"})
    install(packages, "unused", {"unused-1.0.dist-info/LICENSE": "of nobody here"})
    sources = [packages / "click.py", python / "os.py", python / "re.py", python.parent / "libssl.so.3"]
    found = owners.owners_of(sources, packages=packages, python=python)
    assert [each.purl for each in found] == [
        "pkg:pypi/click@1.0",
        f"pkg:generic/openssl@{ssl.OPENSSL_VERSION.split()[1]}",
        f"pkg:generic/python@{platform.python_version()}",
    ]
    accessories.copy_licences(found, tmp_path / "licences")
    assert copied(tmp_path / "licences") == {
        "click/LICENSE.txt": "of click",
        "python/LICENSE.txt": "of Python",
        "openssl/LICENSE.txt": "of OpenSSL",
    }


def test_all_texts_of_a_package_are_copied(packages: Path, python: Path, tmp_path: Path) -> None:
    install(packages, "lz4", {"lz4-1.0.dist-info/LICENSE": "one", "lz4-1.0.dist-info/vendored/LICENSE": "two"})
    accessories.copy_licences(
        owners.owners_of([packages / "lz4.py"], packages=packages, python=python), tmp_path / "licences"
    )
    assert copied(tmp_path / "licences") == {"lz4/00-LICENSE": "one", "lz4/01-LICENSE": "two"}


def test_a_package_without_a_text_is_an_error(packages: Path, python: Path) -> None:
    install(packages, "silent", {})
    with pytest.raises(SystemExit, match="silent has no licence text"):
        owners.owners_of([packages / "silent.py"], packages=packages, python=python)


def test_a_file_of_nobody_is_an_error(packages: Path, python: Path, tmp_path: Path) -> None:
    (tmp_path / "found.so").touch()
    with pytest.raises(SystemExit, match=r"found\.so belongs to no package"):
        owners.owners_of([tmp_path / "found.so"], packages=packages, python=python)


def test_what_debian_only_names_is_found(tmp_path: Path) -> None:
    (tmp_path / "copyright").write_text(
        "See /usr/share/common-licenses/GPL-2 and `/usr/share/common-licenses/LGPL-2.1'.\n"
        "Once more /usr/share/common-licenses/GPL-2.\n"
    )
    assert [path.name for path in owners.named_by(tmp_path / "copyright")] == ["GPL-2", "LGPL-2.1"]
