"""Fitted models for other programs: each file is run against torch, sample by sample, before it is written."""

from __future__ import annotations

import hashlib
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

from torchperc._atomic import write_whole
from torchperc.model.fitted import Classifier, FittedModel, Outputs, answers, linear_layers, one_or_many
from torchperc.model.format import MODEL
from torchperc.model.safetensors import read_safetensors
from torchperc.nn.modules import MLP

_SAMPLES, _NUMBERS = 1000, 2**20  # of a check: rows, and numbers in all of them where rows are wide
_STEEPEST = 1.13  # the largest derivative of any activation, that of gelu
_ULPS = 16  # by which two libraries' exp, tanh or erf may differ, with room


@dataclass(frozen=True)
class Checked:
    """What came of running an exported file beside torch.

    Example:
        >>> Checked(300, 1000, 0, 3.2e-7, 12.5).sentence
        'checked against torch on 1,000 samples: labels equal, scores up to 12.5 within 3.2e-07'
        >>> Checked(300, 1000, None, 0.0, 9e5).sentence
        'checked against torch on 1,000 samples: predictions equal to the bit'
    """

    size: int  # of the file in bytes
    samples: int  # run through both, half of them as close to the boundary as rounding allows
    differing: int | None  # got another label, each within rounding of a tie; None where there are no labels
    largest: float  # difference between two scores of a sample
    reach: float  # the largest score, either sign

    @property
    def sentence(self) -> str:
        """How the file was checked, in words."""
        within = f"up to {self.reach:.3g} within {self.largest:.1e}" if self.largest else "equal to the bit"
        if self.differing is None:
            return f"checked against torch on {self.samples:,} samples: predictions {within}"
        equal = "labels equal" if not self.differing else f"labels equal but for {self.differing:,} at a tie"
        return f"checked against torch on {self.samples:,} samples: {equal}, scores {within}"


def save_model(model: FittedModel, path: str | Path) -> Checked:
    """Write a model as :meth:`FittedModel.save` does, after reading it back and running it."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder, MODEL))
        again, content = FittedModel.load(folder), Path(folder, MODEL).read_bytes()
    checked = compare(model, again.outputs, len(content), f"cannot write {path}: the file", exact=True)
    write_whole(Path(path), content)
    return checked


def save_exported(model: FittedModel, path: str | Path) -> Checked:
    """Write a model with ``torch.export``, atomically, after reading it back and running it.

    ``torch.export.load(path).module()`` gives back a module that needs torch and nothing else: raw features X (N, d), N
    free, to (scores, label), (scores, label, probabilities) or (predictions,), as :meth:`FittedModel.module` says, to
    the bit. Labels and feature names are JSON in the extra file ``torchperc.json``. Its SHA-256 is written beside it;
    see :func:`check_file`.

    Args:
        model: to write.
        path: the file, in a folder that exists, usually ``….pt2``. A file of that name is replaced.

    Example:
        >>> import torchperc as tp
        >>> model = FittedModel.of(tp.Perceptron(2, init="normal", seed=0), labels=("no", "yes"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_exported(model, f"{folder}/model.pt2").sentence
        ...     extra = {"torchperc.json": ""}
        ...     again = torch.export.load(f"{folder}/model.pt2", extra_files=extra).module()
        'checked against torch on 1,000 samples: labels equal, scores equal to the bit'
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
    checked = compare(model, lambda X: Outputs(*again(X)), len(content), who, exact=True)
    write_with_digest(Path(path), content)
    return checked


def refuse_text(model: FittedModel, what: str) -> None:
    """Refuse a model whose features are words, where a file takes numbers only."""
    if model.encoding is not None and model.encoding.texts:
        column = f"the model reads free text (column {model.encoding.texts[0]!r}), and {what} takes numbers only"
        raise ValueError(f"{column}; export it to safetensors, which FittedModel.load and torchperc apply read")


def texts(model: FittedModel) -> dict[str, Any]:
    """What an exported file says of its model."""
    about: dict[str, Any] = {"head": repr(model.head), "about": dict(model.about), "torchperc": version("torchperc")}
    if model.regression:
        about["target"] = model.target
    return {"labels": list(model.labels), "features": list(model.names), **about}


# --- the digest beside a file, as neither onnxruntime nor torch.export notices a flipped byte in the weights ---


def write_with_digest(path: Path, content: bytes) -> None:
    """Write a file and, beside it, its SHA-256 as sha256sum does."""
    write_whole(path, content)
    write_whole(_digest_file(path), f"{hashlib.sha256(content).hexdigest()}  {path.name}\n".encode())


def _digest_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def check_file(path: str | Path) -> str:
    """Check that an exported file is as it was written, and say by what; a damaged one is a ``ValueError``.

    It is one that :func:`save_onnx` or :func:`save_exported` wrote, with its ``.sha256`` file beside it, or a
    safetensors file, which has its checksum inside.

    Example:
        >>> path = Path(tempfile.mkdtemp(), "model.pt2")
        >>> write_with_digest(path, b"hello")
        >>> _ = path.write_bytes(b"hallo")
        >>> check_file(path)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: ...model.pt2 is not as it was written: its digest differs from that in model.pt2.sha256; export...
    """
    path = Path(path)
    beside = _digest_file(path)
    if path.suffix == ".safetensors" and path.is_file() and not beside.exists():
        if not read_safetensors(path)[2]:
            raise ValueError(f"{path} has no checksum to check it by; export it again with torchperc")
        return "as written, by the checksum in it"
    for file in (path, beside):
        if not file.is_file():
            raise ValueError(f"cannot check {path}: there is no file {file}; export the model again, which writes both")
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != beside.read_bytes()[:64].decode(errors="replace"):
        why = f"its digest differs from that in {beside.name}; export the model again"
        raise ValueError(f"{path} is not as it was written: {why}")
    return f"as written, sha256 {found}"


@torch.no_grad()
def compare(model: FittedModel, run: Callable[[Tensor], Outputs], size: int, who: str, *, exact: bool) -> Checked:
    """Run a file beside torch; a difference that rounding does not explain is an error."""
    module = model.module()
    X = samples(model, module)
    torchs, theirs = Outputs(*module(X)), run(X)
    alone = run(X[:1])  # a batch of one, where shapes go wrong first
    if _shapes(theirs) != _shapes(torchs) or _shapes(alone) != _shapes(Outputs(*module(X[:1]))):
        raise ValueError(f"{who} gives {_shapes(theirs)} and torch {_shapes(torchs)}; please report this")
    slack = torch.zeros_like(torchs.scores, dtype=torch.float64) if exact else _slack(model, X, torchs.scores)
    off = (torchs.scores.double() - theirs.scores.double()).abs()
    if not (off <= slack).all():
        row = int((~(off <= slack)).reshape(len(X), -1).any(1).nonzero()[0])
        both = f"{theirs.scores[row].tolist()} and torch {torchs.scores[row].tolist()}"
        why = "which is more than rounding; please report this"
        raise ValueError(f"{who} scores sample {X[row].tolist()[:8]} {both}, {why}")
    if torchs.label is None or theirs.label is None:
        return Checked(size, len(X), None, float(off.max()), float(torchs.scores.abs().max()))
    own = answers(model.head, theirs.scores)
    assert own.label is not None
    if not torch.equal(own.label, theirs.label):
        raise ValueError(f"{who} decides otherwise than {model.head} on the same scores; please report this")
    if own.probabilities is not None and theirs.probabilities is not None:
        off_by = (own.probabilities - theirs.probabilities).abs()
        if not (off_by <= _ULPS * torch.finfo(model.dtype).eps).all():
            raise ValueError(f"{who} gives other probabilities than torch for the same scores; please report this")
    differing = int((torchs.label != theirs.label).sum())
    return Checked(size, len(X), differing, float(off.max()), float(torchs.scores.abs().max()))


def _slack(model: FittedModel, X: Tensor, scores: Tensor) -> Tensor:
    """How far apart two ways to compute the same outputs may lie: the bound of a score, on the target's scale."""
    slack = rounding(model, X)
    if not model.regression:
        return slack
    shift, scale = model.target_scaling()
    return slack * scale + _ULPS * torch.finfo(torch.float64).eps * (scores.abs() + abs(shift))


def _shapes(outputs: Outputs) -> list[tuple[int, ...]]:
    return [tuple(values.shape) for values in outputs if values is not None]


def samples(model: FittedModel, module: Classifier) -> Tensor:
    """Seeded raw features for a check: where the training data lay, far outside, at 0, and along the boundary.

    Shape:
        (1000, d); fewer rows where d is above some thousands, or where scores would overflow. A regression has no
        boundary.
    """
    generator = torch.Generator().manual_seed(0)
    shift, scale = model.scaling() or (torch.zeros(model.width), torch.ones(model.width))
    half = min(_SAMPLES, max(_NUMBERS // model.width, 8)) // (1 if model.regression else 2)
    Z = torch.randn(half, model.width, dtype=torch.float64, generator=generator)
    Z *= torch.tensor([1.0, 1.0, 10.0, 100.0]).repeat(half)[:half, None]
    Z[0], Z[1::7] = 0, Z[1::7].round()
    X = (shift + scale * Z).to(model.input_dtype)
    if not model.regression:
        X = torch.cat([X, _boundary(model, module, X)])
    limits = torch.finfo(model.dtype)
    kept = X[(rounding(model, X) < limits.eps * limits.max).reshape(len(X), -1).all(1)]  # no partial sum overflows
    if not len(kept):
        raise ValueError("the weights are so large that every score overflows; train on scaled features")
    return kept


def _boundary(model: FittedModel, module: Classifier, X: Tensor) -> Tensor:
    """Each sample moved towards one of another label, as far as it keeps its own and rounding cannot change it."""
    label = module(X)[1]
    first = {int(k): int((label != k).nonzero()[0]) if (label != k).any() else 0 for k in label.unique()}
    here, there = X.double(), X[[first[k] for k in label.tolist()]].double()
    for _ in range(20 if model.dtype == torch.float32 else 50):
        middle = (here + there) / 2
        kept = _clearly(model, module, middle.to(X.dtype), label)[:, None]
        here, there = torch.where(kept, middle, here), torch.where(kept, there, middle)
    return here.to(X.dtype)


def _clearly(model: FittedModel, module: Classifier, X: Tensor, label: Tensor) -> Tensor:
    """Where samples have a label by more than rounding."""
    scores, found = module(X)[:2]
    slack, ahead = 2 * rounding(model, X), scores.double() - model.head.threshold
    if scores.dim() == 2:
        highest = ahead.topk(2).values
        slack, ahead = slack.amax(1), highest[:, 0] - highest[:, 1]
    return torch.logical_and(found == label, ahead.abs() > slack)


def rounding(model: FittedModel, X: Tensor) -> Tensor:
    """How far apart two ways to sum up the same net may come to lie: a bound for each score, layer by layer.

        |Δs| ≤ (m + 2)·ε·(|W|·|a| + |b|) + |W|·|Δa|

    for a layer of m inputs a, whatever the order of its sums; ε is the distance from 1 to the next number.
    """
    eps = torch.finfo(model.dtype).eps
    shift, scale = model.scaling() or (torch.zeros(()), torch.ones(()))
    value = ((X.double() - shift) / scale).to(model.dtype).double()
    apart: Tensor | float = 0.0
    layers = linear_layers(model.net)
    for i, (weight, bias) in enumerate(layers):
        w, b = weight.double(), torch.zeros(()) if bias is None else bias.double()
        carried = apart @ w.abs().T if isinstance(apart, Tensor) else 0.0
        sums = value.abs() @ w.abs().T + carried + b.abs()
        apart = carried + (w.shape[1] + 2) * eps * sums + torch.finfo(model.dtype).tiny
        value = value @ w.T + b
        if i < len(layers) - 1:
            assert isinstance(model.net, MLP)
            value = model.net.activation(value)
            apart = _STEEPEST * apart + _ULPS * eps * (1 + value.abs())
    assert isinstance(apart, Tensor)
    return one_or_many(apart)
