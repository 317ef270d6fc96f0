"""Scaling of features, fitted on the training part alone, and the way back for data and for linear models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor

from torchperc import checks
from torchperc.checks import Data

_S = TypeVar("_S", bound="Scaler")


@dataclass(frozen=True, eq=False)  # tensors have no single answer to ==
class Scaler(ABC):
    """What all scalers are: one shift and one scale for each feature, z = (x − shift) / scale.

    A feature that is constant in the training data gets scale 1: it becomes 0 there, and elsewhere the difference to
    that constant; nothing is divided by zero and the way back exists. Statistics are float64 on the CPU.

    Args:
        shift: what is subtracted from each feature; ``None`` before :meth:`fit`.
        scale: what the difference is divided by, above 0.

    Shape:
        shift (d,), scale (d,).
    """

    shift: Tensor | None = None
    scale: Tensor | None = None
    kind: ClassVar[str]

    def fit(self: _S, X: Data) -> _S:
        """A new scaler of this kind with the statistics of ``X``; this one stays as it is.

        Args:
            X: the training samples, and no others.

        Shape:
            (N, d).
        """
        given = checks.features(X, dtype=torch.float64, device=torch.device("cpu"), convert=True)
        shift, scale = self._statistics(given)
        finite = torch.isfinite(shift) & torch.isfinite(scale)
        if not finite.all():
            column = int((~finite).nonzero()[0])
            raise ValueError(f"X[:, {column}] spans more than float64 holds; divide it by a constant first")
        return type(self)(shift, torch.where(scale == 0, 1.0, scale))

    def transform(self, X: Data) -> Tensor:
        """Scaled samples: z = (x − shift) / scale, computed in float64, in the floating type that ``X`` has.

        Args:
            X: samples with the features the scaler was fitted on.

        Shape:
            (N, d) in and out.
        """
        shift, scale = self._fitted()
        given = checks.features(X, dtype=torch.float64, width=len(shift), convert=True)
        return ((given - shift.to(given.device)) / scale.to(given.device)).to(_floating_type(X))

    def inverse(self, Z: Data) -> Tensor:
        """The samples that :meth:`transform` scaled, up to rounding: x = z·scale + shift.

        Args:
            Z: scaled samples.

        Shape:
            (N, d) in and out.
        """
        shift, scale = self._fitted()
        given = checks.features(Z, dtype=torch.float64, width=len(shift), name="Z", convert=True)
        return (given * scale.to(given.device) + shift.to(given.device)).to(_floating_type(Z))

    def unscale(self, weight: Data, bias: Data) -> tuple[Tensor, Tensor]:
        """The same linear model for samples as they were before scaling.

            w′ = w / scale,  b′ = b − w′·shift,  so that  w′·x + b′ = w·z + b.

        Args:
            weight: of a model of scaled samples.
            bias: its bias, one for each row of ``weight``.

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
            raise ValueError(f"bias has {b.numel()} values for {w[..., 0].numel()} rows of weight; give one a row")
        w = w / scale.to(w.device)
        b = b - w @ shift.to(w.device)
        return w.to(_floating_type(weight)), b.to(_floating_type(weight))

    def state(self) -> dict[str, Any]:
        """The scaler as plain types, for a checkpoint or a JSON file."""
        shift, scale = self._fitted()
        return {"kind": self.kind, "shift": shift.tolist(), "scale": scale.tolist()}

    @classmethod
    def from_state(cls: type[_S], state: Mapping[str, Any]) -> _S:
        """The scaler that :meth:`state` described, to the bit. ``Scaler.from_state`` takes every kind.

        Args:
            state: with the keys kind, shift and scale.

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
        scaler = kinds[checks.one_of("state['kind']", state["kind"], tuple(kinds))]
        shift, scale = checks.features([state["shift"], state["scale"]], dtype=torch.float64, name="state")
        if not (scale > 0).all():
            raise ValueError(
                f"state['scale'] must be above 0, found {scale.min().item():g}; give what state() returned"
            )
        made: _S = scaler(shift, scale)
        return made

    @abstractmethod
    def _statistics(self, X: Tensor) -> tuple[Tensor, Tensor]:
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

    def _statistics(self, X: Tensor) -> tuple[Tensor, Tensor]:
        low, high = X.aminmax(dim=0)
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

    def _statistics(self, X: Tensor) -> tuple[Tensor, Tensor]:
        low, high = X.aminmax(dim=0)
        mean = torch.where(low == high, low, X.mean(dim=0))  # the mean of ten times 0.1 is not 0.1 to the last bit
        away = X - mean
        peak = away.abs().amax(dim=0)
        unit = away / torch.where(peak == 0, 1.0, peak)  # squares of these neither overflow nor vanish
        return mean, peak * unit.square().mean(dim=0).sqrt()


class Identity(Scaler):
    """Every feature as it is: z = x.

    Example:
        >>> Identity().fit([[1.0, 2.0]]).transform([[3.0, 4.0]]).tolist()
        [[3.0, 4.0]]
    """

    kind = "none"

    def _statistics(self, X: Tensor) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(X[0]), torch.ones_like(X[0])


_KINDS: dict[str, Any] = {scaler.kind: scaler for scaler in (MinMax, Standard, Identity)}
SCALINGS = tuple(_KINDS)


def scaler(kind: str) -> Scaler:
    """A scaler by name, not yet fitted.

    Args:
        kind: ``"minmax"``, ``"standard"`` or ``"none"``.

    Example:
        >>> scaler("minmax").fit([[0.0], [2.0]]).transform([[1.0]]).tolist()
        [[0.5]]
    """
    made: Scaler = _KINDS[checks.one_of("kind", kind, SCALINGS)]()
    return made


def _floating_type(values: Data) -> torch.dtype:
    return values.dtype if isinstance(values, Tensor) and values.is_floating_point() else torch.float64


def _double(values: Data, name: str) -> Tensor:
    tensor = values.detach() if isinstance(values, Tensor) else torch.as_tensor(np.asarray(values, dtype=np.float64))
    if not torch.isfinite(tensor).all():
        raise ValueError(f"{name} holds values that are not finite numbers; there is no model to unscale")
    return tensor.to(torch.float64)
