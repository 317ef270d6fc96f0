"""Where a run is written."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Sequence
from pathlib import Path

from torchperc._checks import Option, ParameterError
from torchperc._files import LOCK, FolderInUseError, locked_folder


def claimed_folder(
    source: str | Path | Sequence[str | Path],
    folder: str | Path | None,
    overwrite: bool,
    stack: contextlib.ExitStack,
) -> Path:
    """The folder of a run, locked until the stack is closed; refused if something else is there."""
    first = Path(source if isinstance(source, str | Path) else source[0])
    stem = (
        re.sub(r"[-_]*[*?\[\]]+", "", first.name.split(".")[0]) or re.sub(r"[*?\[\]]", "", first.parent.name) or "data"
    )
    if folder is not None or overwrite:
        path = Path("runs", stem) if folder is None else Path(folder)
        _check_free(path, overwrite)
        stack.enter_context(locked_folder(path))
        _check_free(path, overwrite)  # another process may have been quicker
        return path
    for path in (Path("runs", stem if n == 1 else f"{stem}-{n}") for n in itertools.count(1)):
        with contextlib.suppress(FolderInUseError), contextlib.ExitStack() as attempt:
            if _is_free(path):
                attempt.enter_context(locked_folder(path))
                if _is_free(path):
                    stack.push(attempt.pop_all())
                    return path
    raise AssertionError("there is always a next number")


def _is_free(path: Path) -> bool:
    return not path.exists() or (path.is_dir() and all(entry.name == LOCK for entry in path.iterdir()))


def _check_free(path: Path, overwrite: bool) -> None:
    if _is_free(path):
        return
    from torchperc.reports.folders import is_run

    if not (path.is_dir() and is_run(path)):
        raise ParameterError(Option("folder", path), " exists and is not a run; choose another")
    if not overwrite:
        remedy = Option("overwrite", True)
        raise ParameterError(Option("folder", path), " exists already; choose another, or use ", remedy)
