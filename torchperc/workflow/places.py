"""Where a run is written, and the config that makes it again."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchperc._atomic import LOCK, FolderInUseError, claimed
from torchperc._checks import Option, ParameterError

if TYPE_CHECKING:
    from torchperc.data.tabular import SplitTable


def claimed_folder(
    source: str | Path | Sequence[str | Path],
    folder: str | Path | None,
    overwrite: bool,
    stack: contextlib.ExitStack,
) -> Path:
    """The folder of a run, claimed until the stack is closed; refused if something else is there."""
    first = Path(source if isinstance(source, str | Path) else source[0])
    stem = (
        re.sub(r"[-_]*[*?\[\]]+", "", first.name.split(".")[0]) or re.sub(r"[*?\[\]]", "", first.parent.name) or "data"
    )
    if folder is not None or overwrite:
        path = Path("runs", stem) if folder is None else Path(folder)
        _check_free(path, overwrite)
        stack.enter_context(claimed(path))
        _check_free(path, overwrite)  # another process may have been quicker
        return path
    for path in (Path("runs", stem if n == 1 else f"{stem}-{n}") for n in itertools.count(1)):
        with contextlib.suppress(FolderInUseError), contextlib.ExitStack() as attempt:
            if _is_free(path):
                attempt.enter_context(claimed(path))
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


def cosine(epochs: int) -> dict[str, Any]:
    """Learning rates that fall to 0 in so many epochs, as a config describes them.

    Example:
        >>> cosine(50)["init_args"]
        {'T_max': 50}
    """
    return {"class_path": "torch.optim.lr_scheduler.CosineAnnealingLR", "init_args": {"T_max": epochs}}


def config(kind: str, options: dict[str, Any], data: SplitTable, folder: Path, epochs: int) -> str:
    """A run as ``torchperc fit --config`` reads it: its module by class and options, its data by their settings."""
    import yaml

    net, settings = "Perceptron" if data.classes is None else "MulticlassPerceptron", data.settings
    dtype = {} if settings["dtype"] == "float32" else {"dtype": f"torch.{settings['dtype']}"}
    task = {"task": data.task} if data.task == "regression" or settings["task"] else {}  # not to be guessed again
    given = {name: settings[name] for name in ("source", "options", "split", "scale", "seed", "dtype")}
    content = {
        "seed_everything": 0,
        "out": str(folder),
        "trainer": {"max_epochs": epochs},
        "data": {**given, **task, "batch_size": "full", "order": "given"},
        "model": {
            "class_path": f"torchperc.lightning.{kind}",
            "init_args": {**options, "net": {"class_path": f"torchperc.{net}", "init_args": dtype}},
        },
    }
    text: str = yaml.safe_dump(content, sort_keys=False)
    return text
