"""Small files, written in whole or not at all."""

from __future__ import annotations

import os

from kcompact.swap.attributes import copy_attributes, give_to_owner
from kcompact.swap.open_directory import OpenDirectory
from kcompact.swap.steps import Remove


def write_small_file(
    directory: OpenDirectory, name: str, content: bytes, *, mode: int, model: str | None = None
) -> None:
    """Write a file in whole or not at all, in the place of one of that name: `.tmp`, sync, rename, sync.

    Owner, mode and attributes are those of `model`; without one the directory's owner and `mode`.
    Rule: CheckpointFile.write, Utils.atomicMoveWithFallback.
    """
    parent, leaf = directory.at(name)
    temporary = f"{name}.tmp"
    if directory.status(temporary) is not None:
        directory.do(Remove(temporary))  # Of a write that was interrupted.
    fd = directory.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        if model is None:
            give_to_owner(directory, fd)
            os.fchmod(fd, mode)  # Whatever our umask is.
        else:
            copy_attributes(directory, temporary, model)
        os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(f"{leaf}.tmp", leaf, src_dir_fd=parent, dst_dir_fd=parent)
    os.fsync(parent)
