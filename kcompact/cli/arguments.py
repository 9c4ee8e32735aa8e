"""The arguments as they were typed: the next command and completion repeat them."""

from __future__ import annotations

from collections.abc import Sequence

import click

_KEY = "kcompact.arguments"


def keep_arguments(context: click.Context, arguments: Sequence[str]) -> None:
    """Keep the arguments of this process, from the name of the command on."""
    context.meta[_KEY] = tuple(arguments)


def typed_arguments(context: click.Context | None = None) -> tuple[str, ...]:
    """Return the arguments of this process as they were typed, from the name of the command on."""
    arguments: tuple[str, ...] = (context or click.get_current_context()).meta.get(_KEY, ())
    return arguments
