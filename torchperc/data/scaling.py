"""Scaling of features and targets, fitted on the training set alone, and the way back for data and for models."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from torchperc._checks import Data, Option, ParameterError, as_tensor, check_choice, is_sparse
from torchperc.nn.modules import MLP, LinearNet
from torchperc.samples import convert
from torchperc.samples.mapped import chunked, is_chunked

_N = TypeVar("_N", bound=nn.Module)
SCALINGS = ("minmax", "standard", "maxabs", "none")


@dataclass(frozen=True, eq=False)  # tensors have no single answer to ==
class Scaler:
    """One shift and one scale per feature, z = (x − shift) / scale, made by :meth:`fit`.

    A feature that is constant in the training data gets scale 1: it becomes 0 there (unless nothing is subtracted), and
    elsewhere the difference to that constant. Statistics are float64 on the CPU.

    Args:
        kind: ``"minmax"``: from the smallest to the largest training value onto 0 to 1, both ends exactly;
            ``"standard"``: to mean 0 and standard deviation 1, σ² = Σ (x − μ)² / N; ``"maxabs"``: divided by the
            largest absolute value, so that zeros and sparse samples stay so; ``"none"``: as it is.
        shift: what is subtracted from each feature (d,).
        scale: what the difference is divided by (d,), above 0.

    Example:
        >>> Scaler.fit("minmax", [[0.0, 5.0], [4.0, 5.0]]).transform([[1.0, 5.0], [4.0, 7.0]]).tolist()
        [[0.25, 0.0], [1.0, 2.0]]
        >>> Scaler.fit("standard", [[1.0], [3.0]]).transform([[1.0], [3.0], [4.0]]).tolist()
        [[-1.0], [1.0], [2.0]]
        >>> target = Scaler.fit("minmax", [50.0, 70.0, 90.0])
        >>> target.transform([50.0, 70.0]).tolist(), target.inverse([0.0, 0.5]).tolist()
        ([0.0, 0.5], [50.0, 70.0])
    """

    kind: str
    shift: Tensor
    scale: Tensor

    @classmethod
    def fit(cls, kind: str, X: Data) -> Scaler:
        """Return the scaler of a kind for training samples.

        Args:
            kind: see the class.
            X: the training samples (N, d), or targets (N,). Dense or sparse; a ``numpy.memmap`` and
                :class:`~torchperc.data.CsrParts` are read a part at a time; or a function that yields parts in float64.
        """
        chunks = in_chunks(X)
        if check_choice("kind", kind, SCALINGS) in ("minmax", "standard") and is_sparse(next(chunks())):
            raise _makes_dense(kind)
        shift, scale = _statistics(kind, chunks)
        finite = torch.isfinite(shift) & torch.isfinite(scale)
        if not finite.all():
            column = int((~finite).nonzero()[0])
            raise ValueError(f"X[:, {column}] spans more than float64 holds; divide it by a constant first")
        return cls(kind, shift, torch.where(scale == 0, 1.0, scale))

    def transform(self, X: Data) -> Any:
        """Scaled samples (N, d): z = (x − shift) / scale, computed in float64, in the floating type that ``X`` has.

        Sparse samples stay sparse, as a CSR array, which needs a scaler without shifts. One feature or target may come
        as (N,), and is returned so.
        """
        if is_chunked(X):
            raise TypeError("X is larger than memory; use torchperc.data.PreparedData, or smaller X")
        if not is_sparse(X):
            return self._map(X, "X", lambda x, shift, scale: (x - shift).div_(scale))
        if self.shift.any():
            raise _makes_dense(self.kind)
        made = convert.sparse_features(X, dtype=torch.float64, width=len(self.scale)).copy()
        made.data /= self.scale.numpy()[made.indices]
        return made.astype(np.float32 if X.dtype in (np.float32, torch.float32) else np.float64, copy=False)

    def inverse(self, Z: Data) -> Tensor:
        """The samples (N, d) that :meth:`transform` scaled, up to rounding: x = z·scale + shift."""
        return self._map(Z, "Z", lambda z, shift, scale: z * scale + shift)

    def _map(self, values: Data, name: str, function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
        """A function of dense samples (N, d), or (N,) of one feature, shift and scale; in the type of the samples."""
        given, width = as_tensor(values, name), len(self.scale)
        line = width == given.dim() == 1
        kind: Any = {"dtype": torch.float64, "width": width, "name": name, "convert": True}
        dense = convert.features(given[:, None] if line else given, **kind)
        made = function(dense, self.shift.to(dense.device), self.scale.to(dense.device))
        made = made.to(given.dtype) if isinstance(values, Tensor) and values.is_floating_point() else made
        return made[:, 0] if line else made

    def state(self) -> dict[str, Any]:
        """The scaler as plain types, for a checkpoint or a JSON file."""
        return {"kind": self.kind, "shift": self.shift.tolist(), "scale": self.scale.tolist()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Scaler:
        """The scaler that :meth:`state` described, to the bit.

        Example:
            >>> Scaler.from_state({"kind": "minmax", "shift": [0.0], "scale": [4.0]}).transform([[1.0]]).tolist()
            [[0.25]]
        """
        if lost := {"kind", "shift", "scale"} - set(state):
            raise ValueError(f"state has no {min(lost)!r}, found {sorted(state)}; give what state() returned")
        shift, scale = convert.features([state["shift"], state["scale"]], dtype=torch.float64, name="state")
        if not (scale > 0).all():
            raise ValueError(f"state['scale'] must be above 0, found {scale.min():g}; give what state() returned")
        return cls(check_choice("kind", state["kind"], SCALINGS), shift, scale)


def _makes_dense(kind: str) -> ParameterError:
    why = " subtracts a number from every value, so no zero of sparse X would stay zero; use "
    return ParameterError(Option("scale", kind), why, Option("scale", "maxabs"))


def _statistics(kind: str, chunks: Callable[[], Iterator[Any]]) -> tuple[Tensor, Tensor]:
    """Shift and scale of each feature; a scale of 0 stands for a constant one."""
    ends, count = list[Tensor](), 0
    for piece in chunks():
        both = (piece.min(0).toarray(), piece.max(0).toarray()) if is_sparse(piece) else piece.aminmax(dim=0)
        ends += [torch.as_tensor(end).reshape(-1) for end in both]
        count += piece.shape[0]
    low, high = torch.stack(ends).aminmax(dim=0)
    if kind == "minmax":
        return low, high - low
    if kind != "standard":
        return torch.zeros_like(low), torch.maximum(-low, high) if kind == "maxabs" else torch.ones_like(low)
    mean = sum(piece.sum(0) for piece in chunks()) / count
    mean = torch.where(low == high, low, mean)  # the mean of ten times 0.1 is not 0.1 to the last bit
    peak = torch.maximum(high - mean, mean - low)
    unit = torch.where(peak == 0, 1.0, peak)  # squares of fractions of it neither overflow nor vanish
    squares = sum(((piece - mean) / unit).square_().sum(0) for piece in chunks())
    return mean, peak * (squares / count).sqrt()


@torch.no_grad()
def unscaled(net: _N, scaler: Scaler | None = None, target_scaler: Scaler | None = None) -> _N:
    """A copy of a net that was learned on scaled samples and targets, for those before scaling.

    The scalings are folded into the weights, in float64. That of the samples makes those of the first layer w / scale
    and b − (w / scale)·shift; that of the targets makes those of the last layer scale·w and scale·b + shift. A layer
    without a bias gets one if a shift needs it.

    Args:
        net: a Perceptron, MulticlassPerceptron, ``nn.Linear`` or MLP.
        scaler: of the samples; ``None`` if they were not scaled.
        target_scaler: of the targets; ``None`` if they were not scaled.

    Example:
        >>> X, y = torch.tensor([[160.0], [180.0]]).double(), [60.0, 72.0]
        >>> net = nn.Linear(1, 1).double()  # in scaled units the line is z ↦ z
        >>> _ = net.load_state_dict({"weight": torch.ones(1, 1), "bias": torch.zeros(1)})
        >>> raw = unscaled(net, Scaler.fit("minmax", X), Scaler.fit("minmax", y))
        >>> raw(X).round(decimals=9).tolist()
        [[60.0], [72.0]]
    """
    copied = copy.deepcopy(net)
    if not isinstance(copied, MLP | LinearNet):
        kinds = "a Perceptron, MulticlassPerceptron, nn.Linear or MLP, into whose weights a scaling can be folded"
        raise TypeError(f"net must be {kinds}; found {type(net).__name__}")
    layers: Any = copied.layers if isinstance(copied, MLP) else [copied]
    for layer, of_inputs, of_outputs in ((layers[0], scaler, None), (layers[-1], None, target_scaler)):
        w = layer.weight.cpu().double()
        b = w.new_zeros(len(w)) if layer.bias is None else layer.bias.cpu().double()
        for name, given, width in (("scaler", of_inputs, w.shape[1]), ("target_scaler", of_outputs, len(w))):
            if given is not None and len(given.scale) != width:
                why = f"has {len(given.scale)} columns, but the weights need {width}; use those of one run"
                raise ValueError(f"{name} {why}")
        if of_inputs is not None:
            w = w / of_inputs.scale
            b = b - w @ of_inputs.shift
        if of_outputs is not None:
            w, b = w * of_outputs.scale[:, None], b * of_outputs.scale + of_outputs.shift
        layer.weight.copy_(w)
        if layer.bias is not None:
            layer.bias.copy_(b)
        elif b.any():
            layer.bias = nn.Parameter(b.to(layer.weight))
    return copied


def in_chunks(X: Data) -> Callable[[], Iterator[Any]]:
    """Yield samples in float64, checked, as one piece or as many as memory asks for; ``X`` as of :meth:`Scaler.fit`."""
    if callable(X):
        return X  # type: ignore[no-any-return]
    if is_chunked(X):
        parts = chunked(X, torch.float64)
        return lambda: (some.raw() for some in parts.all_parts())
    if is_sparse(X):
        whole: Any = convert.sparse_features(X, dtype=torch.float64)
    else:
        given = as_tensor(X, "X")
        column = given[:, None] if given.dim() == 1 else given
        whole = convert.features(column, dtype=torch.float64, device=torch.device("cpu"), convert=True)
    return lambda: iter((whole,))
