"""Completion in shells: what is offered for which line, in a real bash too, and that no error reaches the shell."""

from __future__ import annotations

import os
import pty
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kcompact.cli.app import main
from kcompact.cli.completion import shells, values
from tests.support.command_line import IMPORTED_FROM, command, environment, kcompact

TOPICS = ("clicks-0", "orders-0", "orders-1", "orders.eu-0")
HOSTILE = (
    "$(touch hacked)-0",
    "`touch hacked`-0",
    "two words-0",
    "new\nline-0",
    "back\\slash-0",
    "\x1b[2J-0",
    "\u202e-0",
)
POLICIES = ["compact", "compact,delete", "delete"]


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HERE", str(tmp_path))
    for name in (*TOPICS, *HOSTILE):
        (tmp_path / "logs" / name).mkdir(parents=True)
    (tmp_path / "logs" / "file-0").touch()
    return tmp_path / "logs"


def asked(monkeypatch: pytest.MonkeyPatch, shell: str, words: str, current: str = "") -> list[str]:
    """Return the lines that kcompact answers to a shell."""
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", current)
    answer = shells.SHELLS[shell](main, {}, "kcompact", shells.VARIABLE).complete()
    return answer.splitlines()


@pytest.mark.usefixtures("logs")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("kcompact re", ["plain,records", "plain,report", "plain,recover", "plain,restore"]),
        ("kcompact --vers", ["plain,--version"]),
        ("kcompact --version rest", ["plain,restore"]),
        ("kcompact --help rest", ["plain,restore"]),
        ("kcompact plan --help lo", ["dir,"]),
        ("kcompact nonsense x", []),
        ("kcompact plan ", ["dir,"]),
        ("kcompact plan lo", ["dir,"]),
        ("kcompact doctor ", ["dir,"]),
        ("kcompact restore ", ["dir,"]),
        ("kcompact clean --output ", ["dir,"]),
        ("kcompact inspect ", ["file,"]),
        ("kcompact clean --journal ", ["file,"]),
        ("kcompact plan --broker-config ", ["file,"]),
        ("kcompact clean --eng", ["plain,--engine"]),
        ("kcompact clean --engine ", ["plain,auto", "plain,spark", "plain,in-process"]),
        ("kcompact plan --high-watermark ", ["plain,leo"]),
        ("kcompact plan --high-watermark 7", []),
        ("kcompact completion ", ["plain,bash", "plain,zsh", "plain,fish"]),
        # Topics
        ("kcompact plan logs --topic ", ["plain,clicks", "plain,orders", "plain,orders.eu"]),
        ("kcompact plan logs --topic o", ["plain,orders", "plain,orders.eu"]),
        ("kcompact plan logs --topic=o", ["plain,--topic=orders", "plain,--topic=orders.eu"]),
        ("kcompact plan l* --topic c", ["plain,clicks"]),
        ("kcompact plan logs/orders-1 --topic ", ["plain,orders"]),
        ("kcompact plan $HERE/logs --topic c", ["plain,clicks"]),
        ("kcompact plan 'lo''gs' --topic c", ["plain,clicks"]),
        ("kcompact plan logs/file-0 no/such/dir --topic ", ["plain,file"]),
        ("kcompact plan --topic ", []),
        # Partitions
        ("kcompact records logs --partition ", ["plain,0", "plain,1"]),
        ("kcompact records logs/orders-1 --partition ", ["plain,1"]),
        ("kcompact records --transaction a", ["plain,aborted"]),
        # Settings
        ("kcompact plan --config min.", ["open,min.cleanable.dirty.ratio=", "open,min.compaction.lag.ms="]),
        ("kcompact plan --config=log.cleaner.th", ["open,--config=log.cleaner.threads="]),
        ("kcompact plan --config compression.t", ["open,compression.type="]),
        ("kcompact plan logs --config cl", ["open,cleanup.policy=", "open,clicks:"]),
        ("kcompact plan logs --config clicks:cl", ["open,clicks:cleanup.policy="]),
        ("kcompact plan --config clicks:log.cleaner.th", []),
        ("kcompact plan --config cleanup.policy=", [f"plain,cleanup.policy={each}" for each in POLICIES]),
        ("kcompact plan --config x:cleanup.policy=compact,", ["plain,x:cleanup.policy=compact,delete"]),
        ("kcompact plan --compare cleanup.policy=d", ["plain,cleanup.policy=delete"]),
        ("kcompact plan --config log.cleaner.enable=f", ["plain,log.cleaner.enable=false"]),
        ("kcompact plan --config nonsense=", []),
        # Lines that are not whole
        ("kcompact plan 'logs", ["dir,"]),
        ("kcompact plan \"logs --topic 'o", ["dir,"]),
        ("kcompact plan logs\\", ["dir,"]),
    ],
)
def test_what_is_offered(words: str, offered: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(monkeypatch, "bash", words, words.split(" ")[-1]) == offered


@pytest.mark.usefixtures("logs")
@pytest.mark.parametrize(
    ("shell", "words", "current", "offered"),
    [
        # bash replaces what follows the last `:` or `=`, and a word in quotes as a whole.
        ("bash", "kcompact plan --config=cl", "cl", ["open,cleanup.policy="]),
        ("bash", "kcompact plan --config x:cl", "cl", ["open,cleanup.policy="]),
        ("bash", "kcompact plan --config 'x:cl", "'x:cl", ["open,x:cleanup.policy="]),
        ("bash", "kcompact plan --config x:cleanup.policy=d", "d", ["plain,delete"]),
        ("bash", "kcompact plan --config cleanup.policy=", "", ["plain,compact"]),
        ("zsh", "kcompact plan lo", "2", ["dir", "-", "-"]),
        ("zsh", "kcompact plan logs --topic", "4", ["plain", "clicks", "-"]),
        ("zsh", "kcompact plan --config=x:cl", "2", ["open", "--config=x:cleanup.policy=", "-"]),
        ("zsh", "kcompact insp", "1", ["described", "inspect", "Show what is on the disk."]),
        ("fish", "kcompact insp", "insp", ["plain,inspect\tShow what is on the disk."]),
        ("fish", "kcompact plan lo", "lo", ["dir,lo"]),
        ("fish", "kcompact plan 'a\nplain,b", "'a\nplain,b", []),
        ("fish", "kcompact plan \udcff", "\udcff", []),
        ("fish", "kcompact plan logs --topic ", "", ["plain,clicks"]),
        ("fish", "kcompact plan --config=x:cl", "--config=x:cl", ["plain,--config=x:cleanup.policy="]),
    ],
)
def test_what_each_shell_is_told(
    shell: str, words: str, current: str, offered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asked(monkeypatch, shell, words, current)[: len(offered) or None] == offered


def test_a_directory_that_cannot_be_read(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(_: str) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "scandir", denied)
    assert asked(monkeypatch, "fish", f"kcompact plan {logs} --topic ") == []


def test_a_bug_is_not_shown(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(values, "_topics", broken)
    assert asked(monkeypatch, "bash", "kcompact plan --topic ") == []
    assert capfd.readouterr() == ("", "")


PROGRAM = """
import sys
before = {*sys.modules, *sys.stdlib_module_names, "$coverage"}  # Which notes there what it has measured.
from kcompact.cli.app import main
try:
    main(prog_name="kcompact")
except SystemExit as ended:
    print(ended.code)
print(*sorted({name.partition(".")[0] for name in sys.modules} - before))
"""


def test_only_click_is_loaded(logs: Path) -> None:
    asks = {shells.VARIABLE: "fish_complete", "COMP_WORDS": f"kcompact plan {logs} --config cle", "COMP_CWORD": "cle"}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env={**environment(), **asks}
    )
    offered, code, loaded = ran.stdout.splitlines()
    assert (offered, code, ran.stderr) == ("plain,cleanup.policy=", "0", "")
    assert loaded == "click kcompact"


@pytest.mark.parametrize(
    ("shell", "start"), [("bash", "_kc"), ("zsh", "#compdef kcompact\n"), ("fish", "function _kc")]
)
def test_the_command_prints_what_the_variable_asks_for(shell: str, start: str) -> None:
    printed = kcompact("completion", shell)
    assert (printed.code, printed.err) == (0, "")
    assert printed.out.startswith(start)
    asks = {**environment(), shells.VARIABLE: f"{shell}_source"}
    by_click = subprocess.run(command(), capture_output=True, text=True, check=True, env=asks).stdout
    assert by_click.rstrip() == printed.out.rstrip()  # Before 8.4.2 click added an empty line.


def installed(tmp_path: Path) -> Path:
    """Return a program `kcompact` that runs this package."""
    program = tmp_path / "kcompact"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{IMPORTED_FROM}" exec {sys.executable} -m kcompact "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


# A real fish


@pytest.mark.usefixtures("logs")
@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_what_fish_offers(tmp_path: Path) -> None:
    program = installed(tmp_path)
    completions = tmp_path / "config" / "fish" / "completions" / "kcompact.fish"
    completions.parent.mkdir(parents=True)
    completions.write_text(kcompact("completion", "fish").out)
    lines = {
        "kcompact pl": ["plan\tShow what Kafka's cleaner would decide,..."],
        "kcompact plan lo": ["logs/\tDirectory"],
        "kcompact plan logs --topic o": ["orders", "orders.eu"],
        "kcompact plan --config=min.clean": ["--config=min.cleanable.dirty.ratio="],
        "kcompact plan logs --topic two": [],
    }
    asks = "; ".join(f"complete -C '{line}'; echo =" for line in lines)
    env = {
        **os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "PATH": f"{program.parent}:{os.environ['PATH']}",
    }  # fmt: skip
    ran = subprocess.run(["fish", "-c", asks], capture_output=True, text=True, check=True, env=env)
    assert ran.stdout == "".join("".join(f"{each}\n" for each in [*offered, "="]) for offered in lines.values())
    assert not list(tmp_path.rglob("hacked"))


# A real bash

SETUP = r"""
PATH={directory}:$PATH
source {directory}/completion
PS1='ready> '
bind 'set bell-style none'
bind -x '"\C-x\C-w": printf "%s\n" "$READLINE_LINE" >>{directory}/lines'
"""


@pytest.mark.usefixtures("logs")
def test_a_person_presses_tab_in_bash(tmp_path: Path) -> None:
    lines = {
        "kcompact pl": "kcompact plan ",
        "kcompact plan lo": "kcompact plan logs/",
        "kcompact plan logs --topic c": "kcompact plan logs --topic clicks ",
        "kcompact plan logs --config clicks:cl": "kcompact plan logs --config clicks:cleanup.policy=",
        "kcompact plan --config=cleanup.policy=d": "kcompact plan --config=cleanup.policy=delete ",
        "kcompact plan logs --topic two": "kcompact plan logs --topic two",
        'kcompact plan "unclosed': 'kcompact plan "unclosed',
    }
    installed(tmp_path)
    (tmp_path / "completion").write_text(kcompact("completion", "bash").out)
    (tmp_path / "setup").write_text(SETUP.format(directory=tmp_path))
    controller, terminal = pty.openpty()
    bash = ["bash", "--noprofile", "--rcfile", str(tmp_path / "setup"), "-i"]
    env = {**os.environ, "TERM": "dumb"}
    with subprocess.Popen(bash, stdin=terminal, stdout=terminal, stderr=terminal, env=env, start_new_session=True):
        os.close(terminal)
        seen = b""
        while not seen.endswith(b"ready> "):
            seen += os.read(controller, 4096)
        for line in lines:
            os.write(controller, f"{line}\t\x18\x17\x15".encode())
        os.write(controller, b"exit\r")
        try:
            while chunk := os.read(controller, 4096):
                seen += chunk
        except OSError:  # bash has ended.
            pass
    os.close(controller)
    assert (tmp_path / "lines").read_text().splitlines() == list(lines.values())
    assert not any(word in seen.lower() for word in (b"error", b"traceback", b"hacked"))
    assert not list(tmp_path.rglob("hacked"))
