"""The values that a shell offers for options: topics and partitions on the disk, and Kafka's settings.

Only names of directories are read, and only names that Kafka gives to partitions are offered: a hostile name never
reaches the shell.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kcompact.cli.output.next_command import typed_arguments

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from kcompact.format.names import TopicPartition

MAX_DIRECTORIES = 100
"""The shell has not expanded the patterns among the paths yet. Of those they match only the first ones are read."""


def complete_directories(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Tell the shell to complete the name of a directory."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="dir")]


def complete_topics(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the topics in the directories that are already typed."""
    return [topic for topic in _topics(context) if topic.startswith(incomplete)]


def complete_partitions(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the numbers of the partitions in the directories that are already typed."""
    numbers = sorted({found.partition for found in _partitions(context)})
    return [str(number) for number in numbers if str(number).startswith(incomplete)]


def complete_settings(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the settings of Kafka as `NAME=`, or the values of a setting if it has only a few.

    After `TOPIC:` these are the settings of topics, else also those of brokers. Settings that a cleaning does not
    depend on are offered only when no other name fits.
    """
    from kcompact.config.settings import few_values

    name, equals, value = incomplete.partition("=")
    topic, colon, setting = name.rpartition(":")
    if equals:
        return [f"{name}={each}" for each in few_values(setting) if each.startswith(value)]
    names = [f"{topic}{colon}{each}=" for each in _settings(setting, of_topic=bool(colon))]
    if incomplete and not colon:
        names += [f"{each}:" for each in _topics(context) if each.startswith(incomplete)]
    return names


def _settings(beginning: str, *, of_topic: bool) -> list[str]:
    from kcompact.config.kafka_names import KAFKA_BROKER_NAMES
    from kcompact.config.settings import TOPIC_SETTINGS, is_used

    every = TOPIC_SETTINGS.keys() if of_topic else TOPIC_SETTINGS.keys() | KAFKA_BROKER_NAMES
    found = sorted(name for name in every if name.startswith(beginning) and not name.startswith("internal."))
    return [name for name in found if is_used(name)] or found


def _topics(context: click.Context) -> list[str]:
    return sorted({found.topic for found in _partitions(context)})


def _partitions(context: click.Context) -> Iterator[TopicPartition]:
    """Yield the partitions in the directories that are already typed, or in the current directory if there are none."""
    from kcompact.format.names import TopicPartition

    for path in _typed_paths(context) or (".",):
        pattern = os.path.expandvars(os.path.expanduser(path))  # noqa: PTH111 - a pattern, not a path
        for directory in islice(glob.iglob(pattern), MAX_DIRECTORIES):  # noqa: PTH207 - also absolute patterns
            own = TopicPartition.parse(os.path.basename(os.path.abspath(directory)))  # noqa: PTH100, PTH119
            names = [] if own else _directories_in(directory)
            yield from filter(None, (own, *map(TopicPartition.parse, names)))


def _typed_paths(context: click.Context) -> tuple[Path, ...]:
    _, *arguments = typed_arguments(context)
    if arguments[-1:] and arguments[-1].startswith("-"):
        arguments.pop()  # The option whose value is completed: click parses nothing while it has no value.
    with context.command.make_context(context.info_name, arguments, resilient_parsing=True) as parsed:
        return parsed.params.get("paths") or ()


def _directories_in(directory: str) -> list[str]:
    with suppress(OSError):
        return [entry.name for entry in os.scandir(directory) if entry.is_dir(follow_symlinks=False)]
    return []
