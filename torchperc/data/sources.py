"""Data sets by name: gates, synthetic data, scikit-learn's five small classics, files."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lazy_loader

from torchperc._checks import Option, ParameterError, check_choice
from torchperc.data.classics import NAMES, classic
from torchperc.data.gates import GATES, gate, is_gate
from torchperc.data.io.files import read
from torchperc.data.io.opening import is_table
from torchperc.data.task import TASKS
from torchperc.samples.streams import is_pattern

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from torchperc.data.dataset import Dataset
else:
    torch = lazy_loader.load("torch")

__all__ = ["SOURCES", "load"]

_SYNTHETIC = {
    "separable-blobs": "separable_blobs",
    "noisy-blobs": "noisy_blobs",
    "moons": "moons",
    "circles": "circles",
}
_REAL = ("diabetes",)
_SKLEARN = tuple(name for name in NAMES if name not in _REAL)

SOURCES = (*GATES, *_SYNTHETIC, *_SKLEARN, *_REAL)


def load(source: str | Path | Sequence[str | Path], **options: Any) -> Dataset:
    """A data set by name, or from files.

    Args:
        source: one of ``SOURCES`` (with a number for the n of ``parity-n``), or the path of a file: any ``Path``, or a
            string that is no such name; a pattern such as ``data/part-*.parquet``, or a list of files.
        options: of the source: the arguments of the function that makes synthetic data (``samples``, ``seed``, …) or of
            :func:`~torchperc.data.read`; scikit-learn's sets accept ``positive``, a label to be +1 against the rest.
            Each accepts ``task``: ``"regression"`` is that of ``"diabetes"`` and of files with a target of numbers.

    Example:
        >>> load("AND").y.tolist()
        [-1, -1, -1, 1]
        >>> load("moons", samples=10, noise=0).X.shape
        torch.Size([10, 2])
        >>> iris = load("iris")
        >>> iris.classes, iris.decode(iris.y[[0, 149]])
        (3, ['setosa', 'virginica'])
        >>> load("iris", positive="setosa").labels
        ('not setosa', 'setosa')
        >>> load("diabetes").task, load("diabetes").y[:3].tolist()
        ('regression', [151.0, 75.0, 141.0])
    """
    if not isinstance(source, str | Path | list | tuple):
        raise TypeError(f"source must be a name or a path, found {type(source).__name__} {source!r}")
    known = isinstance(source, str) and (source in SOURCES or is_gate(source))
    if not isinstance(source, str) or is_table(source) or is_pattern(source) or (not known and Path(source).is_file()):
        _check_options(source, options, _arguments(read)[1:])
        return read(source, **options)
    _check_task(source, options.pop("task", None))
    if is_gate(source):
        _check_options(source, options, ())
        name = source.upper() if source.upper() in GATES else source.lower()
        return _two_signs(*gate(source, dtype=torch.float64), name)
    if source in _SYNTHETIC:
        from torchperc.data import synthetic

        make = getattr(synthetic, _SYNTHETIC[source])
        _check_options(source, options, _arguments(make))
        X, y = make(**options)
        return _two_signs(X, y, source)
    if source in _SKLEARN:
        _check_options(source, options, ("positive",))
        made = classic(source)
        return made.against_rest(options["positive"]) if options.get("positive") is not None else made
    if source in _REAL:
        _check_options(source, options, ())
        return classic(source)
    if Path(source).is_dir():
        raise ValueError(f"source={source!r} is a folder; name a table (.csv, .tsv, .parquet, .svm, .npy, .npz, …)")
    raise ValueError(
        f"source={source!r} is unknown; choose one of {', '.join(SOURCES)}, or the path of a .csv file "
        "or another kind of table (.tsv, .parquet, .svm, .npy, .npz, …)"
    )


def _check_task(source: str, task: str | None) -> None:
    if task is None or (source not in SOURCES and not is_gate(source)):
        return
    own = TASKS[source in _REAL]
    if check_choice("task", task, TASKS) != own:
        has = "a target of numbers" if source in _REAL else "classes"
        why = f" is not possible with source {source!r}, which has {has}; leave it out"
        raise ParameterError(Option("task", task), why)


def _arguments(function: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)


def _check_options(source: object, options: dict[str, Any], known: Sequence[str]) -> None:
    for option, value in options.items():
        if option not in known:
            remedy = f"it takes {', '.join(known)}" if known else "it takes none"
            why = f" is not an option of source {str(source)!r}; {remedy}"
            raise ParameterError(Option(option, value), why)


def _two_signs(X: Tensor, y: Tensor, name: str) -> Dataset:
    from torchperc.data.dataset import Dataset

    return Dataset(X, y, ("-1", "+1"), tuple(f"x{j + 1}" for j in range(X.shape[1])), name=name)
