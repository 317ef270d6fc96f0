"""Scaling of features and targets, fitted on the training set alone, and the way back for data and for models."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
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
class Scaler(ABC):
    """What all scalers are: one shift and one scale per feature, z = (x − shift) / scale.

    A feature that is constant in the training data gets scale 1: it becomes 0 there, and elsewhere the difference to
    that constant; nothing is divided by zero and the way back exists. Statistics are float64 on the CPU.

    Args:
        shift: what is subtracted from each feature (d,); ``None`` before :meth:`fit`.
        scale: what the difference is divided by (d,), above 0.
    """

    shift: Tensor | None = None
    scale: Tensor | None = None
    kind: ClassVar[str]

    def fit(self: _S, X: Data, rows: Tensor | None = None) -> _S:
        """A new scaler of this kind with the statistics of ``X``; this one stays as it is.

        Args:
            X: the training samples (N, d). Dense or sparse; a ``numpy.memmap`` and
                :class:`~torchperc.data.CsrParts` are read a part at a time.
            rows: which samples of ``X`` are the training samples, in ascending order; all of them by default.
        """
        return self.fit_chunks(in_chunks(X, rows))

    def fit_target(self: _S, y: Data) -> _S:
        """A new scaler of this kind with the statistics of real targets (N,), or (N, K) for K of them.

        :meth:`transform` and :meth:`inverse` of a scaler of one target take and give (N,) just so.

        Example:
            >>> scaler = MinMax().fit_target([50.0, 70.0, 90.0])
            >>> scaler.transform([50.0, 70.0]).tolist(), scaler.inverse([0.0, 0.5]).tolist()
            ([0.0, 0.5], [50.0, 70.0])
        """
        targets = as_tensor(y, "y")
        if targets.dim() not in (1, 2):
            raise ValueError(f"y must be of shape (N,) or (N, K), found {tuple(targets.shape)}")
        column = targets[:, None] if targets.dim() == 1 else targets
        return self.fit(convert.features(column, dtype=torch.float64, name="y", convert=True))

    def fit_chunks(self: _S, given: Chunks) -> _S:
        """A new scaler of this kind with the statistics of samples that come in pieces, which are read up to thrice."""
        shift, scale = self._statistics(given)
        finite = torch.isfinite(shift) & torch.isfinite(scale)
        if not finite.all():
            column = int((~finite).nonzero()[0])
            raise ValueError(f"X[:, {column}] spans more than float64 holds; divide it by a constant first")
        return type(self)(shift, torch.where(scale == 0, 1.0, scale))

    def transform(self, X: Data) -> Any:
        """Scaled samples (N, d): z = (x − shift) / scale, computed in float64, in the floating type that ``X`` has.

        Sparse samples stay sparse, as a CSR array, which needs a scaler without shifts. With one feature, as a single
        target is, (N,) is as good as (N, 1).
        """
        shift, scale = self._fitted()
        if len(shift) == 1 and (line := _line(X, "X")) is not None:
            return self.transform(line[:, None])[:, 0]
        if is_chunked(X):
            raise TypeError("X is larger than memory; use torchperc.data.PreparedData, or smaller X")
        if is_sparse(X):
            if shift.any():
                raise _shifted(type(self).__name__)
            made = convert.sparse_features(X, dtype=torch.float64, width=len(shift)).copy()
            made.data /= scale.numpy()[made.indices]
            return made.astype(np.float32 if X.dtype in (np.float32, torch.float32) else np.float64, copy=False)
        dense = convert.features(X, dtype=torch.float64, width=len(shift), convert=True)
        return (dense - shift.to(dense.device)).div_(scale.to(dense.device)).to(_floating_type(X))

    def inverse(self, Z: Data) -> Tensor:
        """The samples (N, d) that :meth:`transform` scaled, up to rounding: x = z·scale + shift."""
        shift, scale = self._fitted()
        if len(shift) == 1 and (line := _line(Z, "Z")) is not None:
            return self.inverse(line[:, None])[:, 0]
        given = convert.features(Z, dtype=torch.float64, width=len(shift), name="Z", convert=True)
        return (given * scale.to(given.device) + shift.to(given.device)).to(_floating_type(Z))

    def unscale(self, weight: Data, bias: Data) -> tuple[Tensor, Tensor]:
        """The same linear model for samples as they were before scaling.

            w′ = w / scale,  b′ = b − w′·shift,  so that  w′·x + b′ = w·z + b.

        Shape:
            weight (d,) or (K, d), bias () or (K,); the same out.

        Example:
            >>> scaler = MinMax().fit([[0.0, 10.0], [2.0, 50.0]])
            >>> weight, bias = scaler.unscale([[1.0, 2.0]], [0.5])
            >>> weight.tolist(), bias.tolist()
            ([[0.5, 0.05]], [0.0])
        """
        shift, scale = self._fitted()
        w, b = _double(weight, "weight"), _double(bias, "bias")
        if w.dim() not in (1, 2) or w.shape[-1] != len(shift):
            raise ValueError(f"weight has shape {tuple(w.shape)} but ({len(shift)},) or (K, {len(shift)}) is needed")
        if b.numel() != w[..., 0].numel():
            raise ValueError(f"bias has {b.numel()} values for {w[..., 0].numel()} rows of weight; give one per row")
        w = w / scale.to(w.device)
        b = b - w @ shift.to(w.device)
        return w.to(_floating_type(weight)), b.to(_floating_type(weight))

    def unscale_target(self, weight: Data, bias: Data) -> tuple[Tensor, Tensor]:
        """The same linear model for targets as they were before scaling.

            w′ = scale·w,  b′ = scale·b + shift,  so that  w′·x + b′ = scale·(w·x + b) + shift.

        Shape:
            weight (d,) or (K, d), bias () or (K,), K being the number of targets; the same out.

        Example:
            >>> weight, bias = MinMax().fit_target([50.0, 90.0]).unscale_target([[0.5, 1.0]], [0.25])
            >>> weight.tolist(), bias.tolist()
            ([[20.0, 40.0]], [60.0])
        """
        shift, scale = self._fitted()
        w, b = _double(weight, "weight"), _double(bias, "bias")
        rows = w[..., 0].numel()
        if w.dim() not in (1, 2) or len(shift) != rows:
            raise ValueError(
                f"weight has shape {tuple(w.shape)} but one row for each of {len(shift)} targets is needed"
            )
        if b.numel() != rows:
            raise ValueError(f"bias has {b.numel()} values for {rows} rows of weight; give one per row")
        shift, scale = (values.to(w.device).reshape(b.shape) for values in (shift, scale))
        return (w * scale[..., None]).to(_floating_type(weight)), (b * scale + shift).to(_floating_type(weight))

    def state(self) -> dict[str, Any]:
        """The scaler as plain types, for a checkpoint or a JSON file."""
        shift, scale = self._fitted()
        return {"kind": self.kind, "shift": shift.tolist(), "scale": scale.tolist()}

    @classmethod
    def from_state(cls: type[_S], state: Mapping[str, Any]) -> _S:
        """The scaler that :meth:`state` described, to the bit. ``Scaler.from_state`` accepts every kind.

        Example:
            >>> state = MinMax().fit([[0.0], [4.0]]).state()
            >>> state
            {'kind': 'minmax', 'shift': [0.0], 'scale': [4.0]}
            >>> Scaler.from_state(state).transform([[1.0]]).tolist()
            [[0.25]]
        """
        missing = [key for key in ("kind", "shift", "scale") if key not in state]
        if missing:
            raise ValueError(f"state has no {missing[0]!r}, found {sorted(state)}; give what state() returned")
        kinds = {kind: scaler for kind, scaler in _KINDS.items() if issubclass(scaler, cls)}
        scaler = kinds[check_choice("state['kind']", state["kind"], tuple(kinds))]
        shift, scale = convert.features([state["shift"], state["scale"]], dtype=torch.float64, name="state")
        if not (scale > 0).all():
            raise ValueError(f"state['scale'] must be above 0, found {scale.min():g}; give what state() returned")
        return scaler(shift, scale)

    @abstractmethod
    def _statistics(self, given: Chunks) -> tuple[Tensor, Tensor]:
        """Shift and scale of each feature; a scale of 0 stands for a constant one."""

    def _fitted(self) -> tuple[Tensor, Tensor]:
        if self.shift is None or self.scale is None:
            raise ValueError(f"{type(self).__name__} is not fitted; call fit(X) with the training samples first")
        return self.shift, self.scale


class MinMax(Scaler):
    """Each feature from its smallest to its largest training value onto 0 to 1, both ends exactly.

        z = (x − min) / (max − min)

    Example:
        >>> scaler = MinMax().fit([[0.0, 5.0], [4.0, 5.0]])
        >>> scaler.transform([[1.0, 5.0], [4.0, 7.0]]).tolist()
        [[0.25, 0.0], [1.0, 2.0]]
    """

    kind = "minmax"

    def _statistics(self, given: Chunks) -> tuple[Tensor, Tensor]:
        low, high, _ = _overview(given, "MinMax")
        return low, high - low


class Standard(Scaler):
    """Each feature to mean 0 and standard deviation 1 over the training samples.

        z = (x − μ) / σ,  σ² = Σ (x − μ)² / N

    Example:
        >>> scaler = Standard().fit([[1.0], [3.0]])
        >>> scaler.transform([[1.0], [3.0], [4.0]]).tolist()
        [[-1.0], [1.0], [2.0]]
    """

    kind = "standard"

    def _statistics(self, given: Chunks) -> tuple[Tensor, Tensor]:
        low, high, count = _overview(given, "Standard")
        mean = sum(piece.sum(0) for piece in given()) / count
        mean = torch.where(low == high, low, mean)  # the mean of ten times 0.1 is not 0.1 to the last bit
        peak = torch.maximum(high - mean, mean - low)
        unit = torch.where(peak == 0, 1.0, peak)  # squares of fractions of it neither overflow nor vanish
        squares = sum(((piece - mean) / unit).square_().sum(0) for piece in given())
        return mean, peak * (squares / count).sqrt()


class MaxAbs(Scaler):
    """Each feature divided by its largest absolute training value: onto −1 to 1, zeros staying zeros.

        z = x / max ``|x|``

    There is no shift, so sparse samples stay sparse. A feature that is 0 in all training samples stays as it is.

    Example:
        >>> from scipy.sparse import csr_array
        >>> scaler = MaxAbs().fit(csr_array([[0.0, -5.0], [4.0, 0.0]]))
        >>> scaler.transform(csr_array([[1.0, 10.0]])).toarray()
        array([[0.25, 2.  ]])
    """

    kind = "maxabs"

    def _statistics(self, given: Chunks) -> tuple[Tensor, Tensor]:
        largest = torch.zeros((), dtype=torch.float64)
        for piece in given():
            dense = isinstance(piece, Tensor)
            peaks = piece.abs().amax(dim=0) if dense else torch.from_numpy(abs(piece).max(axis=0).toarray().reshape(-1))
            largest = torch.maximum(largest, peaks)
        return torch.zeros_like(largest), largest


class Identity(Scaler):
    """Every feature as it is: z = x.

    Example:
        >>> Identity().fit([[1.0, 2.0]]).transform([[3.0, 4.0]]).tolist()
        [[3.0, 4.0]]
    """

    kind = "none"

    def _statistics(self, given: Chunks) -> tuple[Tensor, Tensor]:
        width = next(given()).shape[1]
        return torch.zeros(width, dtype=torch.float64), torch.ones(width, dtype=torch.float64)


_KINDS: dict[str, type[Scaler]] = {scaler.kind: scaler for scaler in (MinMax, Standard, MaxAbs, Identity)}
SCALINGS = tuple(_KINDS)


def make_scaler(kind: str) -> Scaler:
    """A scaler by name, ``"minmax"``, ``"standard"``, ``"maxabs"`` or ``"none"``, not yet fitted.

    Example:
        >>> make_scaler("minmax").fit([[0.0], [2.0]]).transform([[1.0]]).tolist()
        [[0.5]]
    """
    return _KINDS[check_choice("kind", kind, SCALINGS)]()


@torch.no_grad()
def unscaled(net: _N, scaler: Scaler | None = None, target_scaler: Scaler | None = None) -> _N:
    """A copy of a net that was learned on scaled samples and targets: it takes samples and gives targets as they were.

    The scalings are folded into the weights, in float64: that of the samples into the first layer, that of the targets
    into the last, see :meth:`Scaler.unscale` and :meth:`Scaler.unscale_target`.

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
    layers: Any = copied.layers if isinstance(copied, MLP) else [copied]
    if not isinstance(copied, MLP | LinearNet):
        raise TypeError(
            "net must be a Perceptron, MulticlassPerceptron, nn.Linear or MLP, into whose weights a scaling can be "
            f"folded; found {type(net).__name__}"
        )
    for layer, fold in (
        (layers[0], None if scaler is None else scaler.unscale),
        (layers[-1], None if target_scaler is None else target_scaler.unscale_target),
    ):
        if fold is not None:
            bias = layer.weight.new_zeros(len(layer.weight)) if layer.bias is None else layer.bias
            weight, bias = fold(layer.weight.double(), bias.double())
            if layer.bias is not None:
                layer.bias.copy_(bias)
            elif bias.any():
                raise ValueError("net has no bias to fold a shift into; learn with a bias, or scale with MaxAbs")
            layer.weight.copy_(weight)
    return copied


def _line(values: Data, name: str) -> Tensor | None:
    """Numbers of one dimension; ``None`` for all else."""
    if is_sparse(values) or is_chunked(values) or len(np.shape(values)) != 1:
        return None
    return as_tensor(values, name)


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


def _shifted(name: str) -> ValueError:
    why = f"{name} subtracts a number from every value, so no zero of sparse X would stay zero; use "
    return ParameterError(why, Option("scale", "maxabs"))


def _overview(given: Chunks, name: str) -> tuple[Tensor, Tensor, int]:
    """The smallest and the largest value of each feature of dense samples, and the number of samples."""
    low = high = torch.zeros((), dtype=torch.float64)
    count = 0
    for piece in given():
        if not isinstance(piece, Tensor):
            raise _shifted(name)
        smallest, most = piece.aminmax(dim=0)
        low, high = (torch.minimum(low, smallest), torch.maximum(high, most)) if count else (smallest, most)
        count += len(piece)
    return low, high, count


def _floating_type(values: Data) -> torch.dtype:
    return values.dtype if isinstance(values, Tensor) and values.is_floating_point() else torch.float64


def _double(values: Data, name: str) -> Tensor:
    tensor = values.detach() if isinstance(values, Tensor) else torch.as_tensor(np.asarray(values, dtype=np.float64))
    if not torch.isfinite(tensor).all():
        raise ValueError(f"{name} holds values that are not finite numbers; there is no model to unscale")
    return tensor.to(torch.float64)
