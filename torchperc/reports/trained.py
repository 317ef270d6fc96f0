"""The report of a net after its training and of its data, however it was trained."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import is_sparse
from torchperc.data.prepared_data import PreparedData
from torchperc.lightning.outcome import wrong_decisions
from torchperc.reports.budget import ENTRIES
from torchperc.reports.page import Block, Section
from torchperc.reports.report import Report
from torchperc.reports.sections import curve_picture
from torchperc.reports.subject import Curves, Rows, Subject
from torchperc.reports.text import number
from torchperc.rules.run import RuleResult
from torchperc.samples.mapped import CsrParts, chunked, is_chunked
from torchperc.theory.certificate import Certificate

SETS = ("training", "validation", "test")
_LOOKED_AT = 2 * 10**7
"""How many numbers of a sparse set, or of one that is larger than memory, a page looks at: more than a proof needs."""
_STORED = 1000  # numbers that a sparse sample has at most, where it is not known before it is read
_COMPARED = {"error/train": (100, "training error"), "error/val": (100, "validation error")}
_COMPARED |= {"rmse/train": (1, "training RMSE"), "rmse/val": (1, "validation RMSE")}


def of_model(
    title: str,
    module: Any,
    data: PreparedData,
    *,
    how: Rows,
    result: RuleResult | None = None,
    margin: float = 0.0,
    curves: Curves | None = None,
    again: Sequence[Block] = (),
    sentence: str = "",
    certificate: Certificate | None = None,
) -> Report:
    """Report a module with ``net`` and ``head``, and the data it was trained on.

    ``certificate`` is a proof about the training data that was made before.
    """
    every = {name: given for name, given in zip(SETS, data.parts, strict=True) if len(given[1])}
    parts = {name: _looked_at(*given) for name, given in every.items()}
    some = {name: (len(y), len(every[name][1])) for name, (_, y) in parts.items() if len(y) < len(every[name][1])}
    few = [f"{count:,} of {total:,} {name} samples" for name, (count, total) in some.items()]
    table, kind = data.dataset, data.scaler.kind
    scaled = [] if kind == "none" else [("weights", f"of the features as scaled ({kind}, by the training set)")]
    looked_at = [("looked at for this page", f"{', '.join(few)}, evenly spaced")] if few else []
    subject = Subject(
        module if result is None else result,
        parts,
        names=table.names,
        labels=table.labels,
        how=[*how, *scaled],
        about=[*about_data(data), *looked_at],
        curves=curves or {},
        margin=margin,
        image_shape=table.image_shape,
        again=again,
        sentence=sentence,
        counted={name: (wrong_decisions(module, *every[name]), total) for name, (_, total) in some.items()},
        certificate=certificate,
        scaled=kind != "none",
    )
    return Report.of_subject(title, subject)


def about_data(data: PreparedData) -> list[tuple[str, str]]:
    """Where data come from, and how they were split, scaled and cut into batches if they were."""
    batches = {name: getattr(data, name, usual) for name, usual in (("batch_size", "full"), ("order", "given"))}
    cut = batches if tuple(batches.values()) != ("full", "given") else {}
    real = {"task": data.task} if data.task == "regression" else {"scale_target": None}
    known = {**data.settings, **cut, **data.options, **real}.items()
    return [(name, word(value)) for name, value in known if name != "options" and value is not None]


def compared_curves(found: Mapping[str, Curves]) -> list[Section]:
    """The errors of several runs by name, on one chart each; a run of one step is a level beside the others."""
    pictures = []
    for tag, (scale, what) in _COMPARED.items():
        curves = {name: curves[tag] for name, curves in found.items() if tag in curves}
        last = max((steps[-1] for steps, _ in curves.values()), default=1)
        for name, (steps, values) in curves.items():
            if len(steps) == 1 < last:
                curves[name] = np.array([1.0, last]), np.repeat(values, 2)
        if (picture := curve_picture(curves, scale, f"{what} (%)" if scale == 100 else what, what)) is not None:
            pictures.append(picture)
    return [Section("All runs", pictures)] if pictures else []


def word(value: object) -> str:
    """A value as a page shows it."""
    return number(value) if isinstance(value, float) else str(value)


def _looked_at(X: Any, y: Tensor) -> tuple[Any, Tensor]:
    """Samples as a page shows them, in memory: all of them, or evenly spaced ones if they have too many numbers.

    Sparse ones stay sparse unless they are so small that a proof is to be found.
    """
    if isinstance(X, Tensor):
        return X, y
    stored = X.nnz if is_sparse(X) else X.shape[0] * min(X.shape[1], _STORED if _sparse(X) else X.shape[1])
    index = torch.arange(0, X.shape[0], max(1, math.ceil(stored / _LOOKED_AT)))
    some = chunked(X).take(index).raw() if is_chunked(X) else X[index.numpy()]
    small = is_sparse(some) and math.prod(some.shape) <= ENTRIES
    return torch.from_numpy(some.toarray()) if small else some, y[index]


def _sparse(X: Any) -> bool:
    return is_sparse(X) or isinstance(X, CsrParts)
