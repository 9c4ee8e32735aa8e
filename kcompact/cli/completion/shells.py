"""The functions for bash, zsh and fish, and what they exchange with kcompact.

They are click's protocol with scripts of our own, because click's have these faults: bash splits words at `:` and `=`,
so nothing after `orders:` is completed; zsh and fish replace all of `--config=cle` by its value; a space follows
`cleanup.policy=`; errors appear in the middle of the line that is being typed.

How click exchanges words and completions with bash and fish differs between its versions, so that is written here too.

A script calls kcompact with `_KCOMPACT_COMPLETE=SHELL_complete` and the words in COMP_WORDS and COMP_CWORD. kcompact
prints the kind and the value of each completion. `dir` and `file` tell the shell to complete names of files by itself.
After `open`, in bash and zsh, no space follows.
"""

from __future__ import annotations

import os
from typing import Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    split_arg_string,
)

VARIABLE = "_KCOMPACT_COMPLETE"
"""The environment variable that asks for completions. click makes its name from that of the program."""

_BASH = """\
%(complete_func)s() {
    local kind value
    COMPREPLY=()
    while IFS=, read -r kind value; do
        case $kind in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            open) compopt -o nospace; COMPREPLY+=("$value") ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done <<< "$(env %(complete_var)s=bash_complete COMP_WORDS="${COMP_LINE:0:COMP_POINT}" COMP_CWORD="$2" \\
        "${1/#\\~\\//$HOME/}" 2>/dev/null)"
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""

_ZSH = """\
#compdef %(prog_name)s

_%(prog_name)s() {
    local kind value text
    local -a plain open described
    while IFS= read -r kind && IFS= read -r value && IFS= read -r text; do
        case $kind in
            dir) _path_files -/ ;;
            file) _path_files -f ;;
            open) open+=("$value") ;;
            plain) plain+=("$value") ;;
            described) described+=("$value:$text") ;;
        esac
    done <<< "$(env %(complete_var)s=zsh_complete COMP_WORDS="${(j: :)words[1,CURRENT]}" \\
        COMP_CWORD=$((CURRENT - 1)) ${~words[1]} 2>/dev/null)"
    (( $#described )) && _describe -V unsorted described
    (( $#plain )) && compadd -V unsorted -a plain
    (( $#open )) && compadd -V unsorted -S '' -a open
}

# As a file of fpath this runs once, inside of the function that it replaces.
if [[ $funcstack[1] == _%(prog_name)s ]]; then
    _%(prog_name)s "$@"
else
    compdef _%(prog_name)s %(prog_name)s
fi
"""

_FISH = """\
function %(complete_func)s
    for line in (env %(complete_var)s=fish_complete COMP_WORDS=(commandline -cp | string collect) \\
            %(prog_name)s 2>/dev/null)
        set -l item (string split -m 1 , -- $line)
        switch $item[1]
            case dir
                __fish_complete_directories $item[2]
            case file
                __fish_complete_path $item[2]
            case plain
                printf '%%s\\n' $item[2]
        end
    end
end

complete --no-files --command %(prog_name)s --arguments '(%(complete_func)s)'
"""


class _Completions(ShellComplete):
    """What the shells have in common: an error completes nothing and is not shown."""

    def complete(self) -> str:
        try:
            return super().complete()
        except Exception:
            return ""

    def source(self) -> str:
        return self.source_template % self.source_vars()

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        """Return the completions of a whole word, such as `--config=cleanup.policy=` of `--config=cle`.

        A word that is not printable would be read as several lines.
        """
        found = [item for item in super().get_completions(args, incomplete) if item.value.isprintable()]
        option, equals, _ = incomplete.partition("=")
        if equals and option.startswith("--"):
            for item in found:
                item.value = f"{option}={item.value}"
        return found


class _WholeLine(_Completions):
    """A shell whose COMP_WORDS is the line up to the cursor."""

    def get_completion_args(self) -> tuple[list[str], str]:
        end = "\0"  # Marks the word at the cursor, which may be empty.
        *words, incomplete = split_arg_string(os.environ["COMP_WORDS"] + end)
        return words[1:], incomplete.rstrip(end)


class Bash(_WholeLine, BashComplete):
    """Bash splits words at the characters of COMP_WORDBREAKS, `:` and `=` among them, and replaces the last part only.

    COMP_CWORD is the part that is replaced.
    """

    source_template = _BASH

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        found = super().get_completions(args, incomplete)
        replaced = "".join(split_arg_string(os.environ["COMP_CWORD"]))
        kept = incomplete.removesuffix(replaced)
        for item in found:
            item.value = item.value.removeprefix(kept)
        return found

    def format_completion(self, item: CompletionItem[Any]) -> str:
        return f"{_kind(item)},{'' if item.type in ('dir', 'file') else item.value}"


class Zsh(_Completions, ZshComplete):
    """COMP_WORDS has the words up to that at the cursor, COMP_CWORD is its index."""

    source_template = _ZSH

    def format_completion(self, item: CompletionItem[str]) -> str:
        if item.type in ("dir", "file"):
            return f"{item.type}\n-\n-"
        if item.help:
            return "described\n{}\n{}".format(item.value.replace(":", "\\:"), " ".join(item.help.split()))
        return f"{_kind(item)}\n{item.value}\n-"


class Fish(_WholeLine, FishComplete):
    """Fish itself decides about spaces."""

    source_template = _FISH

    def format_completion(self, item: CompletionItem[str]) -> str:
        described = f"\t{' '.join(item.help.split())}" if item.help else ""
        return f"{item.type},{item.value}{described}"


def _kind(item: CompletionItem[str]) -> str:
    return "open" if item.type == "plain" and item.value.endswith(("=", ":")) else item.type


SHELLS = {shell.name: shell for shell in (Bash, Zsh, Fish)}


def register() -> None:
    """Make click use these shells instead of its own."""
    for shell in SHELLS.values():
        add_completion_class(shell)


def source_of(name: str, program: click.Command) -> str:
    """Return the function for a shell in its language."""
    return SHELLS[name](program, {}, "kcompact", VARIABLE).source()
