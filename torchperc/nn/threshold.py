"""Nets of step units, which mistake-driven rules build and gradients cannot train."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from torchperc._checks import check_bool, check_int, is_sparse
from torchperc.nn import functional as tpf
from torchperc.nn.modules import _Net


class Unit(NamedTuple):
    """A step unit: its weights for the inputs, its bias, and its weights for other units by their number.

    Example:
        >>> Unit(torch.tensor([1.0, 1.0]), -1.5).sources
        {}
    """

    weight: Tensor
    bias: float
    sources: Mapping[int, float] = {}


class ThresholdNet(_Net):
    """Layers of step units, each of which sees the inputs and all units of earlier layers: (N, d) → (N,).

    A unit says +1 where its score w·z + b is at least 0, else −1. Towers, pyramids, cascades and plain layers differ in
    the weights that are 0. The net returns the score of its last unit, so that ``predict`` and heads work as for any
    net; no gradient passes a step, so :func:`torchperc.rules.build` trains it. Samples are converted to its type.

    Args:
        in_features: d.
        sizes: the number of units of each layer; the last layer is the unit that answers.
        quadratic: append ‖x‖² to the inputs: a unit may then be the inside of a sphere.
        init, seed, device, dtype: as for :class:`torchperc.nn.Perceptron`.

    Example:
        >>> first, second = Unit(torch.tensor([1.0, 1.0]), -1.5), Unit(torch.tensor([1.0, 1.0]), -1.5, {0: -1.0})
        >>> net = ThresholdNet.of([first, second], 2)  # AND, and OR except where the first unit says +1
        >>> net.predict(torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]))
        tensor([-1,  1,  1, -1])
    """

    def __init__(
        self,
        in_features: int,
        sizes: Sequence[int] = (1,),
        *,
        quadratic: bool = False,
        init: str = "zeros",
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        dtype = self._check_options(in_features, init, seed, dtype)
        self.sizes = tuple(check_int("sizes", size, at_least=1) for size in sizes)
        if not self.sizes or self.sizes[-1] != 1:
            raise ValueError(f"sizes={sizes!r} must end with 1, the unit that answers")
        self.quadratic = check_bool("quadratic", quadratic)
        self.layers, seen = nn.ModuleList(), in_features + self.quadratic
        with torch.random.fork_rng(devices=[]):  # nn.Linear draws as it is made; reset_parameters draws again
            for size in self.sizes:
                self.layers.append(nn.Linear(seen, size, device=device, dtype=dtype))
                seen += size
        self.reset_parameters()

    @classmethod
    def of(cls, units: Sequence[Unit], in_features: int, *, quadratic: bool = False, answer: int = -1) -> ThresholdNet:
        """Return the net of float64 whose answer is that of a unit; units that do not lead to it are left out."""
        layer, todo = dict[int, int](), [answer % len(units)]
        while todo:  # a unit lies in the layer behind the last of its sources
            unit = todo[-1]
            if missing := [source for source in units[unit].sources if source not in layer]:
                todo += missing
            else:
                layer[todo.pop()] = 1 + max((layer[source] for source in units[unit].sources), default=-1)
        order = sorted(layer, key=lambda unit: (layer[unit], unit))
        sizes = [list(layer.values()).count(k) for k in range(max(layer.values()) + 1)]
        net = cls(in_features, sizes, quadratic=quadratic, dtype=torch.float64)
        place = {unit: in_features + quadratic + k for k, unit in enumerate(order)}
        rows = iter(order)
        with torch.no_grad():
            for part in net.layers:
                for k in range(len(part.bias)):
                    weight, bias, sources = units[next(rows)]
                    part.weight[k, : in_features + quadratic], part.bias[k] = weight, bias
                    for source, value in sources.items():
                        part.weight[k, place[source]] = value
        return net

    @property
    def units(self) -> int:
        """The number of units, the one that answers among them."""
        return sum(self.sizes)

    def inputs(self, x: Tensor) -> Tensor:
        """Return what units see of samples: x in the net's type, with ‖x‖² if ``quadratic``."""
        if is_sparse(x):
            raise TypeError("x is sparse, which a ThresholdNet does not support; pass x.to_dense()")
        x = x.to(self.layers[0].weight.dtype)
        return torch.cat((x, x.square().sum(-1, keepdim=True)), -1) if self.quadratic else x

    def forward(self, x: Tensor) -> Tensor:
        """Return the score of the last unit: (…, d) → (…,)."""
        seen, last = self.inputs(x), len(self.layers) - 1
        for layer in self.layers[:last]:
            seen = torch.cat((seen, tpf.decide(layer(seen)).to(seen.dtype)), -1)
        scores: Tensor = self.layers[last](seen)
        return scores.squeeze(-1)

    def extra_repr(self) -> str:
        """Return the sizes, for ``print(net)``."""
        return f"in_features={self.in_features}, sizes={self.sizes}, quadratic={self.quadratic}"
