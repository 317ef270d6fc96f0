"""Scaling of features and targets, fitted on the training set alone, and the way back for data and for models."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from torchperc._checks import Data, Option, ParameterError, as_tensor, check_choice, is_sparse
from torchperc.nn.modules import MLP, LinearNet
from torchperc.samples import convert
from torchperc.samples.mapped import Chunked, chunked, is_chunked

_S = TypeVar("_S", bound="Scaler")
_N = TypeVar("_N", bound=nn.Module)
Chunks: TypeAlias = Callable[[], Iterator[Any]]  # samples in float64, from the first piece again with each call


@dataclass(frozen=True, eq=False)  # tensors have no single answer to ==
class Scaler:
    """What all scalers are: one shift and one scale per feature, z = (x − shift) / scale.

    A feature that is constant in the training data gets scale 1: it becomes 0 there, and elsewhere the difference to
    that constant; nothing is divided by zero and the way back exists. Statistics are float64 on the CPU.

    Args:
        shift: what is subtracted from each feature (d,); ``None`` before :meth:`fit`.
        scale: what the difference is divided by (d,), above 0.

    Example:
        >>> MinMax().fit([[0.0, 5.0], [4.0, 5.0]]).transform([[1.0, 5.0], [4.0, 7.0]]).tolist()
        [[0.25, 0.0], [1.0, 2.0]]
        >>> Standard().fit([[1.0], [3.0]]).transform([[1.0], [3.0], [4.0]]).tolist()
        [[-1.0], [1.0], [2.0]]
    """

    shift: Tensor | None = None
    scale: Tensor | None = None
    kind: ClassVar[str]

    def fit(self: _S, X: Data, rows: Tensor | None = None) -> _S:
        """Return a new scaler of this kind fitted on ``X``; this one is not changed.

        Args:
            X: the training samples (N, d). Dense or sparse; a ``numpy.memmap`` and
                :class:`~torchperc.data.CsrParts` are read a part at a time.
            rows: which samples of ``X`` are the training samples, in ascending order; all of them by default.
        """
        chunks = in_chunks(X, rows)
        if self.kind in ("minmax", "standard") and is_sparse(next(chunks())):
            raise self._makes_dense()
        shift, scale = _statistics(self.kind, chunks)
        finite = torch.isfinite(shift) & torch.isfinite(scale)
        if not finite.all():
            column = int((~finite).nonzero()[0])
            raise ValueError(f"X[:, {column}] spans more than float64 holds; divide it by a constant first")
        return type(self)(shift, torch.where(scale == 0, 1.0, scale))

    def _makes_dense(self) -> ParameterError:
        why = f"{type(self).__name__} subtracts a number from every value, so no zero of sparse X would stay zero; use "
        return ParameterError(why, Option("scale", "maxabs"))

    def fit_target(self: _S, y: Data) -> _S:
        """A new scaler of this kind with the statistics of real targets (N,), or (N, K) for K of them.

        :meth:`transform` and :meth:`inverse` of a scaler of one target take and give (N,) just so.

        Example:
            >>> scaler = MinMax().fit_target([50.0, 70.0, 90.0])
            >>> scaler.transform([50.0, 70.0]).tolist(), scaler.inverse([0.0, 0.5]).tolist()
            ([0.0, 0.5], [50.0, 70.0])
        """
        targets = as_tensor(y, "y")
        column = targets[:, None] if targets.dim() == 1 else targets
        return self.fit(convert.features(column, dtype=torch.float64, name="y", convert=True))

    def transform(self, X: Data) -> Any:
        """Scaled samples (N, d): z = (x − shift) / scale, computed in float64, in the floating type that ``X`` has.

        Sparse samples stay sparse, as a CSR array, which needs a scaler without shifts. With one feature, as a single
        target is, (N,) is as good as (N, 1).
        """
        shift, scale = self._fitted()
        if is_chunked(X):
            raise TypeError("X is larger than memory; use torchperc.data.PreparedData, or smaller X")
        if not is_sparse(X):
            return self._map(X, "X", lambda x, shift, scale: (x - shift).div_(scale))
        if shift.any():
            raise self._makes_dense()
        made = convert.sparse_features(X, dtype=torch.float64, width=len(shift)).copy()
        made.data /= scale.numpy()[made.indices]
        return made.astype(np.float32 if X.dtype in (np.float32, torch.float32) else np.float64, copy=False)

    def inverse(self, Z: Data) -> Tensor:
        """The samples (N, d) that :meth:`transform` scaled, up to rounding: x = z·scale + shift."""
        return self._map(Z, "Z", lambda z, shift, scale: z * scale + shift)

    def _map(self, values: Data, name: str, function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
        """A function of dense samples (N, d), or (N,) of one feature, shift and scale; in the type of the samples."""
        given = as_tensor(values, name)
        width = len(self._fitted()[0])
        line = width == given.dim() == 1
        kind: Any = {"dtype": torch.float64, "width": width, "name": name, "convert": True}
        dense = convert.features(given[:, None] if line else given, **kind)
        made = function(dense, *self._fitted(dense))
        made = made.to(given.dtype) if isinstance(values, Tensor) and values.is_floating_point() else made
        return made[:, 0] if line else made

    def state(self) -> dict[str, Any]:
        """The scaler as plain types, for a checkpoint or a JSON file."""
        shift, scale = self._fitted()
        return {"kind": self.kind, "shift": shift.tolist(), "scale": scale.tolist()}

    @staticmethod
    def from_state(state: Mapping[str, Any]) -> Scaler:
        """The scaler that :meth:`state` described, of its kind and to the bit.

        Example:
            >>> state = MinMax().fit([[0.0], [4.0]]).state()
            >>> state
            {'kind': 'minmax', 'shift': [0.0], 'scale': [4.0]}
            >>> Scaler.from_state(state).transform([[1.0]]).tolist()
            [[0.25]]
        """
        if lost := {"kind", "shift", "scale"} - set(state):
            raise ValueError(f"state has no {min(lost)!r}, found {sorted(state)}; give what state() returned")
        shift, scale = convert.features([state["shift"], state["scale"]], dtype=torch.float64, name="state")
        if not (scale > 0).all():
            raise ValueError(f"state['scale'] must be above 0, found {scale.min():g}; give what state() returned")
        return type(make_scaler(state["kind"]))(shift, scale)

    def _fitted(self, like: Tensor | None = None, width: int | None = None) -> tuple[Tensor, Tensor]:
        """Shift and scale, on the device of a tensor, for a number of columns."""
        if self.shift is None or self.scale is None:
            raise ValueError(f"{type(self).__name__} is not fitted; call fit(X) with the training samples first")
        if width not in (None, len(self.shift)):
            raise ValueError(f"{type(self).__name__} has {len(self.shift)} columns, but the weights need {width}")
        return (self.shift, self.scale) if like is None else (self.shift.to(like.device), self.scale.to(like.device))


class MinMax(Scaler):
    """Each feature from its smallest to its largest training value onto 0 to 1, both ends exactly."""

    kind = "minmax"


class Standard(Scaler):
    """Each feature to mean 0 and standard deviation 1 over the training samples, σ² = Σ (x − μ)² / N."""

    kind = "standard"


class MaxAbs(Scaler):
    """Each feature divided by its largest absolute training value: onto −1 to 1, zeros and sparse samples stay so."""

    kind = "maxabs"


class Identity(Scaler):
    """Every feature as it is."""

    kind = "none"


_KINDS: dict[str, type[Scaler]] = {scaler.kind: scaler for scaler in (MinMax, Standard, MaxAbs, Identity)}
SCALINGS = tuple(_KINDS)


def make_scaler(kind: str) -> Scaler:
    """A scaler by name, ``"minmax"``, ``"standard"``, ``"maxabs"`` or ``"none"``, not yet fitted."""
    return _KINDS[check_choice("kind", kind, SCALINGS)]()


def _statistics(kind: str, chunks: Chunks) -> tuple[Tensor, Tensor]:
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
    and b − (w / scale)·shift; that of the targets makes those of the last layer scale·w and scale·b + shift.

    Args:
        net: a Perceptron, MulticlassPerceptron, ``nn.Linear`` or MLP.
        scaler: of the samples; ``None`` if they were not scaled.
        target_scaler: of the targets, by :meth:`Scaler.fit_target`; ``None`` if they were not scaled.

    Example:
        >>> X, y = torch.tensor([[160.0], [180.0]]).double(), [60.0, 72.0]
        >>> of_X, of_y = MinMax().fit(X), MinMax().fit_target(y)
        >>> net = nn.Linear(1, 1).double()  # in scaled units the line is z ↦ z
        >>> _ = net.load_state_dict({"weight": torch.ones(1, 1), "bias": torch.zeros(1)})
        >>> unscaled(net, of_X, of_y)(X).round(decimals=9).tolist()
        [[60.0], [72.0]]
    """
    copied = copy.deepcopy(net)
    if not isinstance(copied, MLP | LinearNet):
        kinds = "a Perceptron, MulticlassPerceptron, nn.Linear or MLP, into whose weights a scaling can be folded"
        raise TypeError(f"net must be {kinds}; found {type(net).__name__}")
    layers: Any = copied.layers if isinstance(copied, MLP) else [copied]
    for layer, scalers in ((layers[0], (scaler, None)), (layers[-1], (None, target_scaler))):
        bias = layer.weight.new_zeros(len(layer.weight)) if layer.bias is None else layer.bias
        weight, bias = unscaled_weights(layer.weight, bias, *scalers)
        if layer.bias is not None:
            layer.bias.copy_(bias)
        elif bias.any():
            raise ValueError("net has no bias to fold a shift into; learn with a bias, or scale with MaxAbs")
        layer.weight.copy_(weight)
    return copied


def unscaled_weights(
    weight: Tensor, bias: Tensor, scaler: Scaler | None = None, target_scaler: Scaler | None = None
) -> tuple[Tensor, Tensor]:
    """Weights (K, d) and bias (K,), float64, of the same linear model for samples and targets before scaling."""
    w, b = weight.detach().double(), bias.detach().double()
    if not (torch.isfinite(w).all() and torch.isfinite(b).all()):
        raise ValueError("weight holds values that are not finite numbers, or bias does; train it again")
    if scaler is not None:
        shift, scale = scaler._fitted(w, w.shape[1])
        w = w / scale
        b = b - w @ shift
    if target_scaler is not None:
        shift, scale = target_scaler._fitted(w, len(w))
        w, b = w * scale[:, None], b * scale + shift
    return w, b


def in_chunks(X: Data, rows: Tensor | None = None) -> Chunks:
    """Samples of any kind in float64, checked, as one piece or as many as memory asks for; arguments as of ``fit``."""
    if is_chunked(X) or isinstance(X, Chunked):
        parts = X if isinstance(X, Chunked) else chunked(X, torch.float64)
        order = torch.arange(len(parts)) if rows is None else rows
        return lambda: (some.raw() for some in parts.blocks(order))
    if is_sparse(X):
        whole: Any = convert.sparse_features(X, dtype=torch.float64)
    else:
        whole = convert.features(X, dtype=torch.float64, device=torch.device("cpu"), convert=True)
    some = whole if rows is None else whole[rows.numpy()]
    return lambda: iter((some,))
