"""`config.client.credentials`: the value of `sasl.jaas.config`."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact.config.client.credentials import LoginModule, parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ('required username="alice" password="secret";', {"username": "alice", "password": "secret"}),
        ("REQUIRED username=alice password='se\"cret' ;", {"username": "alice", "password": 'se"cret'}),
        (r'required password="a\"b\\c\td\101\n;=";', {"password": 'a"b\\c\tdA\n;='}),
        ('required\n  a="1" // a = "2";\n /* b="3"; */ c=d-e_f$g.h;', {"a": "1", "c": "d-e_f$g.h"}),
        ('optional name="";', {"name": ""}),
        ("sufficient;", {}),
        ('requisite päss="wörd";', {"päss": "wörd"}),
    ],
)
def test_login_modules(text: str, options: dict[str, str]) -> None:
    assert parse_jaas(f"{PLAIN} {text}") == LoginModule(name=PLAIN, options=options)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has no login module"),
        (";", "has no login module"),
        (PLAIN, "needs one of required, requisite, sufficient, optional after the login module"),
        (f'{PLAIN} username="alice";', "needs one of required"),
        (f'{PLAIN} required username="alice"', "does not end with a semicolon"),
        (f'{PLAIN} required username="alice" password=1secret;', "the option 'password' has no value"),
        (f"{PLAIN} required password=sec!ret;", "one of its options has no value"),
        (f"{PLAIN} required password;", "the option 'password' has no value"),
        (f'{PLAIN} required; {PLAIN} required a="secret";', "has more than one login module"),
    ],
)
def test_what_is_wrong(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as raised:
        parse_jaas(text)
    assert "secret" not in str(raised.value)


@given(st.text())
def test_any_text_is_a_module_or_a_problem(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert parse_jaas(text).name


@given(
    st.dictionaries(st.from_regex(r"[a-zA-Z_][a-zA-Z0-9._-]*", fullmatch=True), st.text(st.characters(codec="utf-8")))
)
def test_quoted_values_come_back(options: dict[str, str]) -> None:
    escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r"}
    written = "".join(f' {name}="{"".join(escapes.get(c, c) for c in value)}"' for name, value in options.items())
    assert parse_jaas(f"{PLAIN} required{written};").options == options


def test_options_are_not_shown() -> None:
    assert "secret" not in repr(parse_jaas(f'{PLAIN} required password="secret";'))
