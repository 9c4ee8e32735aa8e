"""Small files that are written completely or not at all: checkpoints and the manifest."""

from __future__ import annotations

import os
from contextlib import suppress

from kcompact.clean.staged_files import READ_BACK_MISMATCH
from kcompact.errors import CorruptDataError, storage_errors
from kcompact.host import turns
from kcompact.swap.attributes import copy_attributes, copy_status, give_to_owner
from kcompact.swap.open_directory import OpenDirectory
from kcompact.swap.steps import Remove


def write_small_file(
    directory: OpenDirectory,
    name: str,
    content: bytes,
    *,
    mode: int,
    model: str | None = None,
    source: OpenDirectory | None = None,
    with_times: bool = False,
) -> None:
    """Write a file completely or not at all, in place of an existing one.

    Order: `.tmp`, sync, read back from the disk, rename, sync. The new file gets owner, mode and extended attributes of
    the file `model`; without one, the owner of the directory and `mode`. With `source`, the directory of a copy's
    source, it gets the attributes of the file with its name there, `with_times` its times too. Raises StorageError,
    NotEnoughSpaceError, RefusedError; CorruptDataError, with the existing file in place, if the disk does not return
    what was written. Rule: CheckpointFile.write, Utils.atomicMoveWithFallback.
    """
    with storage_errors(directory.path / name, "write"):
        try:
            _write(directory, name, content, mode=mode, model=model, source=source, with_times=with_times)
        except BaseException:
            with suppress(OSError):  # On a full disk it would take space. The next write removes what stays.
                directory.apply_step(Remove(f"{name}.tmp"))
            raise


def _write(
    directory: OpenDirectory,
    name: str,
    content: bytes,
    *,
    mode: int,
    model: str | None,
    source: OpenDirectory | None,
    with_times: bool,
) -> None:
    parent, leaf = directory.locate(name)
    temporary = f"{name}.tmp"
    if directory.status(temporary) is not None:
        directory.apply_step(Remove(temporary))  # An interrupted write left it.
    with directory.opened(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600) as fd:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        if source is not None:
            with source.opened(name) as copied:
                copy_status(copied, fd, with_times=with_times)
        elif model is None:
            give_to_owner(directory, fd)
            os.fchmod(fd, mode)  # `open` would apply the umask.
        else:
            with directory.opened(model) as existing:
                copy_attributes(existing, fd)
        turns.sync(fd)
    if directory.read_from_disk(temporary) != content:
        raise CorruptDataError(
            file=directory.path / temporary,
            problem=READ_BACK_MISMATCH,
            hint="The existing file was not replaced. Check the disk, then run again.",
        )
    os.replace(f"{leaf}.tmp", leaf, src_dir_fd=parent, dst_dir_fd=parent)
    turns.sync(parent)
