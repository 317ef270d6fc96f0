"""Fitted models for other programs: each file is run against torch before it is written."""

from __future__ import annotations

import io
import json
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchperc._files import write_atomically
from torchperc.model.fitted import FittedModel, Outputs, answers
from torchperc.model.format import MODEL

_SAMPLES, _NUMBERS = 1000, 2**20  # of a check: rows, and numbers in all of them where rows are wide
TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-12}
"""How far a score may differ from torch's, as a fraction of the largest score."""


@dataclass(frozen=True)
class Checked:
    """The outcome of running an exported file beside torch.

    Example:
        >>> Checked(300, 1000, 3.2e-7, 12.5).sentence
        'checked against torch on 1,000 samples: scores up to 12.5 within 3.2e-07'
    """

    size: int  # of the file in bytes
    samples: int  # run through both
    largest: float  # difference between two scores of a sample
    reach: float  # the largest score, either sign

    @property
    def sentence(self) -> str:
        """How the file was checked, in words."""
        within = f"up to {self.reach:.3g} within {self.largest:.1e}" if self.largest else "equal to the bit"
        return f"checked against torch on {self.samples:,} samples: scores {within}"


def save_model(model: FittedModel, path: str | Path) -> Checked:
    """Write a model as :meth:`FittedModel.save` does, after reading it back and running it."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder, MODEL))
        again, content = FittedModel.load(folder), Path(folder, MODEL).read_bytes()
    checked = compare(model, again.outputs, len(content), f"cannot write {path}: the file")
    write_atomically(Path(path), content)
    return checked


def save_exported(model: FittedModel, path: str | Path) -> Checked:
    """Write a model with ``torch.export``, atomically, after reading it back and running it.

    ``torch.export.load(path).module()`` gives back a module that needs torch and nothing else: raw features X (N, d), N
    free, to (scores, label), (scores, label, probabilities) or (predictions,), as :meth:`FittedModel.module` says.
    Labels and feature names are JSON in the extra file ``torchperc.json``.

    Args:
        model: to write.
        path: the file, in a folder that exists, usually ``….pt2``. A file of that name is replaced.

    Example:
        >>> import torchperc as tp
        >>> model = FittedModel.of(tp.Perceptron(2, init="normal", seed=0), labels=("no", "yes"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_exported(model, f"{folder}/model.pt2").samples
        ...     extra = {"torchperc.json": ""}
        ...     again = torch.export.load(f"{folder}/model.pt2", extra_files=extra).module()
        1000
        >>> again(torch.tensor([[9.0, 2.0]]))[1], json.loads(extra["torchperc.json"])["labels"]
        (tensor([1]), ['no', 'yes'])
    """
    refuse_text(model, "torch.export")
    buffer = io.BytesIO()
    sample = torch.zeros(3, model.width, dtype=model.input_dtype)  # neither 0 nor 1 rows, which would be special
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of its own deprecated ways while it exports
        program = torch.export.export(model.module(), (sample,), dynamic_shapes={"X": {0: torch.export.Dim("N")}})
        torch.export.save(program, buffer, extra_files={"torchperc.json": json.dumps(texts(model))})
        again = torch.export.load(io.BytesIO(buffer.getvalue())).module()
    content, who = buffer.getvalue(), f"cannot write {path}: torch.export"
    checked = compare(model, lambda X: Outputs(*again(X)), len(content), who)
    write_atomically(Path(path), content)
    return checked


def refuse_text(model: FittedModel, what: str) -> None:
    """Refuse a model whose features are words, where a file takes numbers only."""
    if model.encoding is not None and model.encoding.text_columns:
        column = f"the model reads free text (column {model.encoding.text_columns[0]!r}), and {what} takes numbers only"
        raise ValueError(f"{column}; export it to safetensors, which FittedModel.load and torchperc apply read")


def texts(model: FittedModel) -> dict[str, Any]:
    """What an exported file says of its model."""
    about: dict[str, Any] = {"head": repr(model.head), "about": dict(model.about), "torchperc": version("torchperc")}
    if model.regression:
        about["target"] = model.target
    return {"labels": list(model.labels), "features": list(model.names), **about}


@torch.no_grad()
def compare(model: FittedModel, run: Callable[[Tensor], Outputs], size: int, who: str) -> Checked:
    """Run a file beside torch; refuse other labels for its scores, and scores outside :data:`TOLERANCES`."""
    module = model.module()
    X = _samples(model)
    torchs, theirs = Outputs(*module(X)), run(X)
    alone = run(X[:1])  # a batch of one, where shapes go wrong first
    if _shapes(theirs) != _shapes(torchs) or _shapes(alone) != _shapes(Outputs(*module(X[:1]))):
        raise ValueError(f"{who} gives {_shapes(theirs)} and torch {_shapes(torchs)}; please report this")
    tolerance, reach = TOLERANCES[model.dtype], float(torchs.scores.abs().max())
    off = (torchs.scores.double() - theirs.scores.double()).abs()
    if not (off <= tolerance * reach).all():
        row = int((~(off <= tolerance * reach)).reshape(len(X), -1).any(1).nonzero()[0])
        both = f"{theirs.scores[row].tolist()} and torch {torchs.scores[row].tolist()}"
        why = f"further apart than {tolerance} of the largest score, {reach:.3g}; train on scaled features"
        raise ValueError(f"{who} scores sample {X[row].tolist()[:8]} {both}, {why}")
    own = answers(model.head, theirs.scores)
    if own.label is not None and theirs.label is not None and not torch.equal(own.label, theirs.label):
        raise ValueError(f"{who} decides otherwise than {model.head} on the same scores; please report this")
    ours, others = own.probabilities, theirs.probabilities
    if ours is not None and others is not None and not torch.allclose(ours, others, rtol=0, atol=tolerance):
        raise ValueError(f"{who} gives other probabilities than torch for the same scores; please report this")
    return Checked(size, len(X), float(off.max()), reach)


def _shapes(outputs: Outputs) -> list[tuple[int, ...]]:
    return [tuple(values.shape) for values in outputs if values is not None]


def _samples(model: FittedModel) -> Tensor:
    """Seeded raw features (N, d) where the training data lay, some of them far outside, and at 0."""
    generator = torch.Generator().manual_seed(0)
    shift, scale = model.scaling() or (torch.zeros(model.width), torch.ones(model.width))
    count = min(_SAMPLES, max(_NUMBERS // model.width, 8))
    Z = torch.randn(count, model.width, dtype=torch.float64, generator=generator)
    Z *= torch.tensor([1.0, 1.0, 10.0, 100.0]).repeat(count)[:count, None]
    Z[0], Z[1::7] = 0, Z[1::7].round()
    return (shift + scale * Z).to(model.input_dtype)
