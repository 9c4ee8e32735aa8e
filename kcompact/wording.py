"""The words for what a user can pass: options on the command line, parameters in Python.

Hints are written once, with options: most people read them there. Outside of the command line `worded` replaces each
option by the parameter that has its effect, when the text is shown:

    on the command line   Pass another --output directory, or clean with --rebuild-indexes.
    in Python             Pass another `output` directory, or clean with `rebuild_indexes=True`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_FLAGS = ("apply-retention", "dry-run", "force", "include-internal", "log-dirs-moved", "rebuild-indexes", "unclean")
PARAMETERS = {
    **{f"--{name}": f"`{name.replace('-', '_')}=True`" for name in _FLAGS},
    "--bootstrap-server": "`bootstrap_server`",
    "--broker-config": "`broker_config`",
    "--command-config": "`client`",
    "--config": "the setting",
    "--engine": "`EngineOptions.name`",
    "--high-watermark": "`high_watermark`",
    "--journal": "`journal`",
    "--kafka-release": "`release`",
    "--keep-replaced": "`keep_replaced`",
    "--master": "`master`",
    "--max-bytes-per-second": "`max_bytes_per_second`",
    "--memory": "`memory_bytes` of",
    "--now": "`now_ms`",
    "--output": "`output`",
    "--partition": "`partitions`",
    "--replica": "`replicas`",
    "--spark-conf": "`spark_conf`",
    "--topic": "`topics`",
    "--topic-configs": "`topic_configs`",
}
"""The parameter of each option that a hint names. A word in capitals after the option belongs to it."""
_PHRASES = {
    "and --config": "and settings of your own",
    "with --config": "as settings of your own",
    "--high-watermark leo": "`use_log_end=True`",
    "greater --memory": "greater `memory_bytes`",
    "smaller --memory": "smaller `memory_bytes`",
    "--engine in-process": "`InProcess()`",
    "--command-config FILE": "`client=ClientConfig.read(FILE)`",
    "`clean --apply-retention --broker-config FILE`": "a cleaning with `apply_retention=True` and `broker_config`",
    "kcompact clean --rebuild-indexes": "a cleaning with `rebuild_indexes=True`",
    "`kcompact clean --keep-replaced`": "a cleaning as `keep_replaced`",
    "Run again with --debug to see where it happened.": "Its `__cause__` shows where it happened.",
}
"""Options with the words around them, where the parameter alone would make no sentence."""
_COMMANDS = {
    "kcompact verify": "findings(log)",
    "kcompact recover --foreign": "recover(..., foreign=True)",
}
"""The function that does what a whole command in backquotes does."""
_OPTION = re.compile(
    r"(?P<of_kafka>kafka-[a-z-]+\.sh .*)|"  # A command of Kafka's own has options in Python too.
    rf"`(?P<command>{'|'.join(_COMMANDS)})[^`]*`|"
    + "|".join(map(re.escape, sorted(_PHRASES, key=len, reverse=True)))
    + r"|(?<![\w-])(?P<option>--[a-z][a-z-]*[a-z])(?: [A-Z]+\b(?!:))?"
)

_is_command_line = False
_options: frozenset[str] | None = None
"""The options of the command that runs: None outside of the command line, empty as long as the command is unknown."""


@contextmanager
def of_the_command_line() -> Iterator[None]:
    """Inside the block this process is a command line: `worded` replaces nothing."""
    global _is_command_line, _options
    before = _is_command_line, _options
    _is_command_line, _options = True, frozenset()
    try:
        yield
    finally:
        _is_command_line, _options = before


def say_options(names: Iterable[str]) -> None:
    """Set the options of the command that runs, until the end of `of_the_command_line`."""
    global _options
    _options = frozenset(names)


def has_option(name: str) -> bool:
    """Return whether the command that runs has an option. Outside of the command line there is a parameter for it."""
    return _options is None or name in _options


def worded(text: str) -> str:
    """Return a text of our own in the words of this process. A text with paths or data may have `--` of its own."""
    return text if _is_command_line else _OPTION.sub(_parameter, text)


def _parameter(match: re.Match[str]) -> str:
    if match["command"]:
        return f"`{_COMMANDS[match['command']]}`"
    if match["option"]:
        return PARAMETERS.get(match["option"], match[0])
    return match[0] if match["of_kafka"] else _PHRASES[match[0]]
