"""A net of step units, which mistake-driven rules build and gradients cannot train."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchperc._checks import check_bool, check_int, is_sparse
from torchperc.nn import functional as tpf
from torchperc.nn.modules import _Net


class ThresholdNet(_Net):
    """Step units in a row, each of which sees the inputs and all units before it: (N, d) → (N,).

    A unit says +1 where its score w·z + b is at least 0, else −1. Weights of 0 are no connections: so towers, pyramids,
    trees and layers are of this form. The net returns the score of its last unit, and ``predict`` and heads work as for
    any net; no gradient passes a step, so :func:`torchperc.rules.build` trains it. Samples are converted to its type.
    Weights (K, d + K − 1) are those of the inputs, then of the units; biases (K,); all start at 0.

    Args:
        in_features: d.
        units: K.
        quadratic: append ‖x‖² to the inputs, so that a unit can be a ball; the weights have one column more.
        device, dtype: as for any module.

    Example:
        >>> net = ThresholdNet(2, 2)  # AND; then OR, except where AND says +1
        >>> weight = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, -1.0]])
        >>> _ = net.load_state_dict({"weight": weight, "bias": torch.tensor([-1.5, -1.5])})
        >>> net.predict(torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]))
        tensor([-1,  1,  1, -1])
    """

    def __init__(
        self,
        in_features: int,
        units: int = 1,
        *,
        quadratic: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        dtype = self._check_options(in_features, "zeros", None, dtype)
        self.units, self.quadratic = check_int("units", units, at_least=1), check_bool("quadratic", quadratic)
        seen = in_features + quadratic + units - 1
        self.weight = nn.Parameter(torch.zeros(units, seen, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(units, device=device, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        """Return the score of the last unit: (…, d) → (…,)."""
        if is_sparse(x):
            raise TypeError("x is sparse, which a ThresholdNet does not support; pass x.to_dense()")
        seen = x.to(self.weight.dtype)
        if self.quadratic:
            seen = torch.cat((seen, seen.square().sum(-1, keepdim=True)), -1)
        for weight, bias in zip(self.weight[:-1], self.bias[:-1], strict=True):
            said = tpf.decide(seen @ weight[: seen.shape[-1]] + bias)
            seen = torch.cat((seen, said.to(seen.dtype).unsqueeze(-1)), -1)
        return seen @ self.weight[-1] + self.bias[-1]

    def extra_repr(self) -> str:
        """Return the sizes, for ``print(net)``."""
        return f"in_features={self.in_features}, units={self.units}, quadratic={self.quadratic}"


def ball_unit(points: Tensor, norm: Tensor, targets: Tensor, rows: Tensor, now: Tensor | None) -> Tensor:
    """Return weights of a unit that says what is said now, except in the ball around a wrong sample that corrects most.

    Let p be the centre, a the largest squared distance inside, b the smallest outside, M the largest of all,
    D = (M + b)/2 and c = (M − a)/2. The score D − ‖x − p‖² + c·o is positive inside, and has the sign of o = ±1
    outside. ``norm`` has the factors of ‖x‖² for what the unit sees, of which ``now`` is the last.
    """
    said = torch.full_like(targets, -1) if now is None else now.long()
    centres = rows[said[rows] != targets[rows]][:256]  # for all of them, distances take much memory
    distance = torch.cdist(points[centres], points[rows], compute_mode="donot_use_mm_for_euclid_dist").square()
    near, order = distance.sort(1)
    side, gap = targets[centres], near.diff(dim=1)
    gain = torch.where(targets[rows][order] == side[:, None], 1.0, -1.0)
    gain = gain.masked_fill(said[rows][order] == side[:, None], 0.0).cumsum(1)[:, :-1]
    value = (gain + gap / (2 * gap.max())).masked_fill(gap <= 1e-12 * near[:, -1:], -torch.inf)  # widest of equals
    k, size = divmod(int(value.argmax()), gap.shape[1])
    p, inside, outside, farthest = points[centres[k]], near[k, size], near[k, size + 1], near[k, -1]
    weight = -norm
    weight[0] += (farthest + outside) / 2 - p @ p
    weight[1 : len(p) + 1] += 2 * p
    weight *= side[k]
    weight[0 if now is None else -1] += (farthest - inside) / 2 * (-1 if now is None else 1)
    return weight
