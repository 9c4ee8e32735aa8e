"""Documents that kcompact keeps for a later run, changed by hand, with a checksum that is right again.

A reader must refuse what contradicts the log, whatever the checksum says.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from crc32c import crc32c


def with_checksum(content: bytes) -> bytes:
    """Return the content of a JSON object with its checksum as the last field, whatever the content is."""
    opened = content.rstrip()[:-1]
    return opened + b',"crc32c":%d}\n' % crc32c(opened)


def edited(content: bytes, path: Sequence[str | int], value: object) -> bytes:
    """Return a document in which the field at this path has another value, with the right checksum."""
    document = json.loads(content)
    del document["crc32c"]
    target = document
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    return with_checksum(json.dumps(document).encode())
