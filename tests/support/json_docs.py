"""What `docs/schema` says about the JSON, made from the fields that `kcompact.cli.json` declares."""

from __future__ import annotations

import importlib
import json
import pkgutil
from pathlib import Path
from typing import Any

import kcompact.cli.json
from kcompact.cli.json.fields import Document, JsonLine, schema_of

DOCS = Path(__file__).parents[2] / "docs"
SCHEMAS = DOCS / "schema"
ORDER = (
    *("inspect", "verify", "keys", "gaps", "transactions", "groups", "inspect --batches", "records"),
    *("compare", "search-key", "plan", "clean", "recover", "restore", "doctor", "report"),
)


def printed() -> dict[str, Document | JsonLine]:
    """Return what the commands print as JSON, by command, in the order of the help."""
    found: dict[str, Document | JsonLine] = {}
    for module in pkgutil.iter_modules(kcompact.cli.json.__path__):
        declared = vars(importlib.import_module(f"kcompact.cli.json.{module.name}")).values()
        found |= {each.command: each for each in declared if isinstance(each, Document | JsonLine)}
    assert sorted(found) == sorted(ORDER)
    return {command: found[command] for command in ORDER}


PRINTED = printed()


def file_of(command: str) -> Path:
    """Return the file with the JSON Schema of a command."""
    return SCHEMAS / f"{command.removeprefix('inspect --')}.json"


def schemas() -> dict[Path, dict[str, Any]]:
    """Return the JSON Schemas by file."""
    return {file_of(command): schema_of(shape, f"kcompact {command} --json") for command, shape in PRINTED.items()}


def schema_text(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
