"""The nets: one linear unit, K of them, one joint vector over φ(x, k), and layers of units."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchperc._checks import check_bool, check_choice, check_float_dtype, check_int
from torchperc.nn import functional as tpf


def identity(x: Tensor) -> Tensor:
    """x as it is."""
    return x


INITS = ("zeros", "uniform", "normal")
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": F.relu,
    "sigmoid": torch.sigmoid,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "gelu": F.gelu,
    "silu": F.silu,
    "softplus": F.softplus,
    "identity": identity,
}


class _LinearNet(nn.Module):
    """Weight (K, d) and bias (K,) under the names that ``nn.Linear`` gives them."""

    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(
        self,
        in_features: int,
        rows: int,
        bias: bool,
        init: str,
        seed: int | None,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        self.in_features = check_int("in_features", in_features, at_least=1)
        self.init = check_choice("init", init, INITS)
        check_bool("bias", bias)
        self.seed = None if seed is None else check_int("seed", seed, at_least=0)
        dtype = check_float_dtype("dtype", dtype or torch.get_default_dtype())
        self.weight = nn.Parameter(torch.empty(rows, in_features, dtype=dtype, device=device))
        self.register_parameter("bias", nn.Parameter(torch.empty(rows, dtype=dtype, device=device)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weights back to their start: zeros, U(−1, 1) or N(0, 1), drawn with the seed."""
        own = (self.weight,) if self.bias is None else (self.weight, self.bias)  # and no parameters of features
        _fill(own, self.init, self.seed)

    def forward(self, x: Tensor) -> Tensor:
        """Scores w·x + b, one for each row of the weight."""
        return tpf.linear(x, self.weight, self.bias)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        """Class indices, or labels −1/+1 of a single unit: (N, d) → (N,) int64."""
        scores = tpf.finite_scores(self(x))
        return tpf.decide_class(scores) if scores.dim() == x.dim() else tpf.decide(scores)

    def extra_repr(self) -> str:
        """The sizes, for ``print(net)``."""
        return f"in_features={self.in_features}, bias={self.bias is not None}"


class Perceptron(_LinearNet):
    """One linear unit: scores s = w·x + b, (N, d) → (N,), decision s ≥ 0 → +1, else −1; weight (1, d), bias (1,).

    Its ``state_dict`` loads into ``nn.Linear(d, 1)`` and back. Weights start at zero, as the rule has it.

    Args:
        in_features: d.
        bias: ``False`` for a hyperplane through the origin.
        init: ``"zeros"``, ``"uniform"`` for U(−1, 1) or ``"normal"`` for N(0, 1).
        seed: makes a random start repeatable; ``None`` draws from torch's global generator.
        device, dtype: as for any module.

    Example:
        >>> net = Perceptron(2)
        >>> _ = net.load_state_dict({"weight": torch.tensor([[3.0, 2.0]]), "bias": torch.tensor([-4.0])})
        >>> net.predict(torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
        tensor([-1, 1])
    """

    def __init__(
        self,
        in_features: int,
        bias: bool = True,
        *,
        init: str = "zeros",
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_features, 1, bias, init, seed, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Scores w·x + b."""
        return super().forward(x).squeeze(-1)

    def unit_normal(self) -> Tensor:
        """w/‖w‖, the direction of the +1 side; see :func:`torchperc.nn.functional.unit_normal`."""
        return tpf.unit_normal(self.weight.detach())

    def offset(self) -> Tensor:
        """Signed distance of the boundary from the origin: −b/‖w‖."""
        bias = self.weight.new_zeros(1) if self.bias is None else self.bias
        return tpf.offset(self.weight.detach(), bias.detach())

    @torch.no_grad()
    def signed_distance(self, x: Tensor) -> Tensor:
        """Signed distance of points from the boundary: (w·x + b)/‖w‖."""
        return tpf.signed_distance(x, self.weight, self.bias)

    @torch.no_grad()
    def margin(self, x: Tensor, y: Tensor) -> Tensor:
        """The geometric margin min y·(w·x + b)/‖w‖; see :func:`torchperc.nn.functional.geometric_margin`."""
        return tpf.geometric_margin(x, y, self.weight, self.bias)


class MulticlassPerceptron(_LinearNet):
    """K linear units, one weight vector per class: scores s_k = w_k·x + b_k, decision argmax (lowest index on ties).

    x (N, d) → (N, K); weight (K, d), bias (K,).

    Args:
        in_features: d.
        num_classes: K, at least 2.
        bias: ``False`` for hyperplanes through the origin.
        init, seed, device, dtype: as for :class:`Perceptron`.

    Example:
        >>> net = MulticlassPerceptron(64, 10)
        >>> net(torch.zeros(3, 64)).shape, net.predict(torch.zeros(3, 64))
        (torch.Size([3, 10]), tensor([0, 0, 0]))
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        bias: bool = True,
        *,
        init: str = "zeros",
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        rows = check_int("num_classes", num_classes, at_least=2)
        super().__init__(in_features, rows, bias, init, seed, device, dtype)
        self.num_classes = rows

    def extra_repr(self) -> str:
        """The sizes, for ``print(net)``."""
        return f"in_features={self.in_features}, num_classes={self.num_classes}, bias={self.bias is not None}"


LinearNet: TypeAlias = Perceptron | MulticlassPerceptron | nn.Linear
"""Nets of one linear score, or one per class."""


class JointPerceptron(_LinearNet):
    """One weight vector over joint features: scores s_k = w·φ(x, k), decision argmax.

    x (N, d) → (N, K); weight (1, D) with D = K·(d + 1) by default.

    With the block features of :func:`torchperc.nn.functional.joint_features` (the default) this is
    :class:`MulticlassPerceptron` written as one vector; any other φ, such as features that classes share, is as good.

    Args:
        in_features: d.
        num_classes: K, at least 2.
        bias: append a 1 to x in the default block features; not with ``features``.
        features: φ as a function from x (N, d) to (N, K, D).
        init, seed, device, dtype: as for :class:`Perceptron`.

    Example:
        >>> net = JointPerceptron(2, 3)
        >>> net.weight.shape, net(torch.zeros(5, 2)).shape
        (torch.Size([1, 9]), torch.Size([5, 3]))
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        bias: bool = True,
        *,
        features: Callable[[Tensor], Tensor] | None = None,
        init: str = "zeros",
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        num_classes = check_int("num_classes", num_classes, at_least=2)
        in_features = check_int("in_features", in_features, at_least=1)
        if features is not None and not callable(features):
            raise TypeError(f"features must be a function from (N, d) to (N, K, D), found {type(features).__name__}")
        if features is not None and not bias:
            raise ValueError("bias=False needs the block features; features of your own have the constant you give")
        joint = features or partial(tpf.joint_features, num_classes=num_classes, bias=bias)
        probe = joint(torch.zeros(1, in_features, dtype=dtype, device=device))
        if not isinstance(probe, Tensor) or probe.dim() != 3 or probe.shape[:2] != (1, num_classes):
            found = tuple(probe.shape) if isinstance(probe, Tensor) else type(probe).__name__
            raise ValueError(f"features must map (N, {in_features}) to (N, {num_classes}, D), found {found} for N = 1")
        super().__init__(probe.shape[2], 1, False, init, seed, device, dtype)
        self.in_features = in_features
        self.num_classes = num_classes
        self.features = joint

    def forward(self, x: Tensor) -> Tensor:
        """Scores w·φ(x, k), (…, d) → (…, K); φ is ``net.features``, called with (N, d)."""
        if tpf.is_sparse(x):
            raise TypeError("x is sparse, which joint features are not made for; pass x.to_dense()")
        if x.dim() == 2:
            return self.features(x) @ self.weight[0]
        rows = x.reshape(-1, x.shape[-1])  # in any memory format
        return (self.features(rows) @ self.weight[0]).reshape(*x.shape[:-1], -1)

    def extra_repr(self) -> str:
        """The sizes, for ``print(net)``."""
        return f"in_features={self.in_features}, num_classes={self.num_classes}, joint={self.weight.shape[1]}"


class MLP(nn.Module):
    """Layers of units: what a single perceptron cannot do, such as XOR; (N, d) → (N,), or (N, K) with ``num_classes``.

    Args:
        in_features: d.
        hidden: the width of each hidden layer; ``()`` leaves a linear net.
        num_classes: ``None`` for one score per sample, K ≥ 2 for K.
        activation: a name from ``tanh relu sigmoid leaky_relu elu gelu silu softplus identity``, or a function. The
            step function of the perceptron itself is not among them: its derivative is 0 wherever it has one.
        init: ``"default"`` as ``nn.Linear`` does it, ``"uniform"`` for U(−1, 1) or ``"normal"`` for N(0, 1),
            weights and biases alike.
        seed: makes the start repeatable without touching torch's global generator.
        device, dtype: as for any module.

    Example:
        >>> net = MLP(2, hidden=(2,), activation="tanh", seed=0)
        >>> net(torch.zeros(4, 2)).shape
        torch.Size([4])
    """

    def __init__(
        self,
        in_features: int,
        hidden: Sequence[int] = (2,),
        *,
        num_classes: int | None = None,
        activation: str | Callable[[Tensor], Tensor] = "tanh",
        init: str = "default",
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_features = check_int("in_features", in_features, at_least=1)
        if not isinstance(hidden, Sequence):
            raise TypeError(f"hidden must be a sequence of widths such as (2,), found {type(hidden).__name__}")
        self.hidden = tuple(check_int("hidden", width, at_least=1) for width in hidden)
        self.num_classes = None if num_classes is None else check_int("num_classes", num_classes, at_least=2)
        self.init = check_choice("init", init, ("default", "uniform", "normal"))
        self.seed = None if seed is None else check_int("seed", seed, at_least=0)
        self.activation = _activation(activation)
        self.activation_name = activation if isinstance(activation, str) else getattr(activation, "__name__", "custom")
        widths = (in_features, *self.hidden, num_classes or 1)
        made: dict[str, Any] = {
            "device": device,
            "dtype": check_float_dtype("dtype", dtype or torch.get_default_dtype()),
        }
        with torch.random.fork_rng(devices=[]):  # nn.Linear draws as it is made; reset_parameters draws again
            self.layers = nn.ModuleList(nn.Linear(m, n, **made) for m, n in pairwise(widths))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew, from the seed if there is one."""
        _fill(self.parameters(), self.init, self.seed)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the last layer; the first one takes sparse samples too."""
        last = len(self.layers) - 1
        for i, layer in enumerate(self.layers):
            x = scores_of(layer, x)
            if i < last:
                x = self.activation(x)
        return x.squeeze(-1) if self.num_classes is None else x

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        """Labels −1/+1, or class indices: (N, d) → (N,) int64."""
        scores = tpf.finite_scores(self(x))
        return tpf.decide(scores) if self.num_classes is None else tpf.decide_class(scores)

    def extra_repr(self) -> str:
        """The activation, for ``print(net)``."""
        return f"activation={self.activation_name!r}, init={self.init!r}"


def scores_of(net: nn.Module, x: Tensor) -> Tensor:
    """Output of a net; of an ``nn.Linear`` on sparse samples by :func:`torchperc.nn.functional.linear`.

    Example:
        >>> scores_of(nn.Linear(2, 3), torch.zeros(4, 2).to_sparse_csr()).shape
        torch.Size([4, 3])
    """
    if isinstance(net, nn.Linear) and tpf.is_sparse(x):
        return tpf.linear(x, net.weight, net.bias)
    scores: Tensor = net(x)
    return scores


def _activation(activation: str | Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    if activation in ("sign", "step", torch.sign, torch.sgn):
        raise ValueError(
            f"activation={activation!r} has derivative 0 almost everywhere, so gradient descent cannot train it; "
            "use 'tanh', its smooth relative"
        )
    if callable(activation):
        return activation
    return ACTIVATIONS[check_choice("activation", activation, tuple(ACTIVATIONS))]


@torch.no_grad()
def _fill(parameters: Iterable[nn.Parameter], init: str, seed: int | None) -> None:
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    bound = 1.0
    for parameter in parameters:
        if init == "zeros":
            parameter.zero_()
            continue
        start = torch.zeros(parameter.shape, dtype=parameter.dtype)  # drawn on the CPU: the same on every device
        if init == "default" and start.dim() == 2:
            bound = start.shape[1] ** -0.5  # what nn.Linear draws from: U(−1/√d, 1/√d), its bias too
        if init == "normal":
            start.normal_(generator=generator)
        else:
            start.uniform_(-bound, bound, generator=generator)
        parameter.copy_(start)


@contextmanager
def resting(module: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while, so that a look at a net neither draws for its dropout nor moves its statistics."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode
