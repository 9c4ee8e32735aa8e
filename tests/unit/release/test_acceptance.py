from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from release import acceptance, check_packages, first_clean
from release.acceptance import NotAcceptedError
from release.bare_host import USER, BareHost, Used
from release.pythons import Interpreter
from tests.support.command_line import ROOT

PROGRAM = "/opt/kcompact"


@pytest.mark.parametrize(
    ("change", "is_accepted"),
    [
        (str, True),
        (lambda text: text.replace("machine code for ", "machine code for another processor, "), True),
        (lambda text: text.replace("kcompact", "compact"), False),
        (lambda text: "", False),
    ],
    ids=["same", "another-processor", "another-word", "nothing"],
)
def test_a_release_has_to_say_what_the_checkout_says(
    change: Callable[[str], str], is_accepted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptance, "FIXTURES", ())

    def run(command: Sequence[str], *, cwd: str) -> object:
        """Run the checkout in place of a release, and change what it says."""
        done = subprocess.run(
            [sys.executable, "-m", "kcompact", *command[1:]],
            env={},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        done.stdout = change(done.stdout)
        return done

    host: Any = SimpleNamespace(root=tmp_path, run=run)
    with nullcontext() if is_accepted else pytest.raises(NotAcceptedError, match="--version"):
        acceptance.check(host, PROGRAM, "/data", tmp_path)


def test_a_library_that_is_not_opened_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptance, "give_away", lambda tree: None)
    opened = [f"/opt/_internal/{name}.so" for name in acceptance._ALSO_OPENED]

    def run(command: Sequence[str], *, cwd: str, env: Mapping[str, str]) -> object:
        assert env == {"LD_DEBUG": "files"}
        return SimpleNamespace(stderr="".join(f"  77: opening file={each} [0]; direct\n" for each in opened))

    for number in (0, 1):
        (tmp_path / str(number)).mkdir()
    acceptance.check_libraries(SimpleNamespace(root=tmp_path / "0", run=run), PROGRAM, "/")  # type: ignore[arg-type]
    del opened[1]
    with pytest.raises(NotAcceptedError, match=r"not opened: lz4/block/_block$"):
        acceptance.check_libraries(SimpleNamespace(root=tmp_path / "1", run=run), PROGRAM, "/")  # type: ignore[arg-type]


@pytest.mark.skipif(os.geteuid() != 0, reason="root changes the root directory")
def test_a_bare_host_has_a_user_without_a_name_and_no_network() -> None:
    host = BareHost(root=Path("/"), env={"PATH": "/usr/bin:/bin"})
    done = host.run(["/bin/sh", "-c", "id -u; id -g; id -G; cat /proc/net/dev | grep -c :"], cwd="/")
    assert done.stdout.split() == [str(USER)] * 3 + ["1"], done.stderr


@pytest.mark.parametrize("is_too_large", [False, True])
def test_an_installation_has_its_limit(is_too_large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_packages, "MOST_INSTALLED_BYTES", 100_000)
    commands: list[tuple[str, ...]] = []

    def run(*command: str) -> None:
        commands.append(command)
        (environment / "lib").mkdir(parents=True, exist_ok=True)
        (environment / "lib" / "module.py").write_bytes(bytes(200_000 if is_too_large else 5000))

    environment = tmp_path / "work" / "environment"
    environment.parent.mkdir()
    (tmp_path / "kcompact.whl").touch()
    interpreter: Interpreter = SimpleNamespace(python="python3", version="3.12", run=run)  # type: ignore[assignment]
    if is_too_large:
        with pytest.raises(SystemExit):
            check_packages.install(tmp_path / "kcompact.whl", interpreter, environment)
        return
    assert check_packages.install(tmp_path / "kcompact.whl", interpreter, environment) == environment
    assert [command[1] for command in commands] == ["-m", "install", "-c"]


@pytest.mark.parametrize("what", ["same", "nothing-cleaned", "another-result"])
def test_the_first_cleaning_is_like_the_later_ones(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    log.mkdir()
    (log / "0.log").write_bytes(b"before")
    modes = []

    def install(wheel: Path, place: Path) -> Path:
        modes.append(place.stat().st_mode & 0o777)
        return place / "kcompact"

    def clean(program: Path, log: Path) -> Used:
        if what != "nothing-cleaned":
            (log / "0.log").write_bytes(log.name.encode() if what == "another-result" else b"after")
        return Used(cpu_s=0.1, memory_bytes=1)

    monkeypatch.setattr(first_clean, "install", install)
    monkeypatch.setattr(first_clean, "clean", clean)
    monkeypatch.setattr(sys, "argv", ["first_clean", "kcompact.whl", str(log)])
    if what == "same":
        first_clean.main()
        assert modes == [0o755]
    else:
        with pytest.raises(SystemExit):
            first_clean.main()
