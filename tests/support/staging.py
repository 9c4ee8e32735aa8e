"""A directory as a staging directory, in tests."""

from __future__ import annotations

import os
from pathlib import Path

from kcompact.clean.staged_files import StagingDirectory


def staging_at(path: Path | str) -> StagingDirectory:
    status = os.lstat(path)
    return StagingDirectory(path=Path(path), device=status.st_dev, inode=status.st_ino)
