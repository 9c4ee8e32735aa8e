"""The Python of Spark's workers: whether it has kcompact, and what to set if not. Asked before a job starts.

Spark takes the Python that PYSPARK_PYTHON names, else the first `python3` on the PATH. In an environment that is not
activated, as under cron, systemd and Jupyter, that is another Python than the driver's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from kcompact.engine.spark.master import is_local
from kcompact.errors import UnsupportedError
from kcompact.readable import shell_word

if TYPE_CHECKING:
    from pyspark import SparkContext

_WAIT_S = 60
_WITH_ARROW = "Install kcompact for it with both extras: pip install 'kcompact[spark,arrow]'"
_QUESTION = """
import sys
from importlib.util import find_spec
print("\\n".join(name for name in sys.argv[1:] if find_spec(name) is None))
"""


def check_workers(sc: SparkContext, *, path: str, needs_arrow: bool = False) -> None:
    """Raise UnsupportedError if the Python of the workers lacks kcompact, or pyarrow if it `needs_arrow`.

    The Python of this machine is asked. Of a cluster, only that of a data source counts, which plans queries here;
    what its workers have, their first task shows. `path` begins the message.
    """
    if not needs_arrow and not is_local(sc.master):
        return
    python, names = sc.pythonExec, ("kcompact", "pyarrow") if needs_arrow else ("kcompact",)
    executable = shutil.which(python)
    if executable is None:
        return  # Spark's own message names it.
    missing = _missing_here(names) if executable == sys.executable else _missing(executable, names, _import_path(sc))
    named = python if python == executable else f"{python} ({executable})"
    if "kcompact" in missing:
        raise UnsupportedError(
            path=path,
            problem=f"Spark has taken {named} for its workers, and that Python has no kcompact",
            hint=f"Set PYSPARK_PYTHON={shell_word(sys.executable)} before Spark starts, or activate its environment.",
        )
    if missing:
        raise UnsupportedError(
            path=path,
            problem=f"Spark has taken {named} for its workers, and that Python has no pyarrow",
            hint=_WITH_ARROW,
        )


def require_arrow(path: str) -> None:
    """Raise UnsupportedError if this Python, which is that of a worker, has no pyarrow."""
    if _missing_here(("pyarrow",)):
        problem = f"{sys.executable}, the Python of Spark's workers, has no pyarrow"
        raise UnsupportedError(path=path, problem=problem, hint=_WITH_ARROW)


def _missing_here(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if find_spec(name) is None)


def _import_path(sc: SparkContext) -> str:
    """Return what Spark puts before the import path of its workers."""
    from pyspark import SparkFiles

    # What `--py-files` and `addPyFile` have sent.
    root = Path(SparkFiles.getRootDirectory())
    shipped = [str(root), *map(str, root.glob("*"))]
    own = (sc.environment.get("PYTHONPATH", ""), os.environ.get("PYTHONPATH", ""))
    return os.pathsep.join([*shipped, *filter(None, own)])


@cache
def _missing(python: str, names: tuple[str, ...], import_path: str) -> tuple[str, ...]:
    """Return the packages that a Python cannot import. Nothing if it cannot be asked."""
    # Like Spark's workers, it has the current directory before the import path.
    try:
        done = subprocess.run(
            [python, "-c", _QUESTION, *names],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=_WAIT_S,
            env={**os.environ, "PYTHONPATH": import_path},
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(done.stdout.split())
