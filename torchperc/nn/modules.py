"""The nets: one linear unit, K of them, one joint vector over φ(x, k), and layers of units."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchperc._checks import check_bool, check_choice, check_float_dtype, check_int, is_sparse
from torchperc.nn import functional as tpf

Activation: TypeAlias = Callable[[Tensor], Tensor]

INITS = ("zeros", "uniform", "normal")
_NAMES = ("tanh", "relu", "sigmoid", "leaky_relu", "elu", "gelu", "silu", "softplus")
ACTIVATIONS: dict[str, Activation] = {**{name: getattr(F, name) for name in _NAMES}, "identity": torch.positive}


class _Net(nn.Module):
    """A net with a start from a seed, and decisions."""

    num_classes: int | None = None

    def _check_options(
        self, in_features: int, init: str, seed: int | None, dtype: torch.dtype | None, inits: Sequence[str] = INITS
    ) -> torch.dtype:
        """Keep the checked options, and return the type of the parameters."""
        self.in_features = check_int("in_features", in_features, at_least=1)
        self.init = check_choice("init", init, inits)
        self.seed = None if seed is None else check_int("seed", seed, at_least=0)
        return check_float_dtype("dtype", dtype or torch.get_default_dtype())

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Set the net's own parameters, or those of its layers, to their start, drawn with the seed if there is one."""
        generator = None if self.seed is None else torch.Generator().manual_seed(self.seed)
        own, bound = getattr(self, "layers", self), 1.0
        for parameter in own.parameters(recurse=own is not self):
            start = torch.zeros(parameter.shape, dtype=parameter.dtype)  # drawn on the CPU: the same on every device
            if self.init == "default" and start.dim() == 2:
                bound = start.shape[1] ** -0.5  # what nn.Linear draws from: U(−1/√d, 1/√d), its bias too
            if self.init == "normal":
                start.normal_(generator=generator)
            elif self.init != "zeros":
                start.uniform_(-bound, bound, generator=generator)
            parameter.copy_(start)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        """Return labels −1/+1 of a single score, else class indices: (N, d) → (N,) int64."""
        scores = tpf.finite_scores(self(x))
        return tpf.decide(scores) if self.num_classes is None else tpf.decide_class(scores)


class _Linear(_Net, nn.Linear):
    """``nn.Linear`` that starts at zero or from a seed, and takes sparse samples."""

    bias: nn.Parameter | None  # type: ignore[assignment]  # as nn.Linear has it, whatever it says

    def __init__(
        self, in_features: int, units: int, bias: bool, init: str, seed: int | None, device: Any, dtype: Any
    ) -> None:
        dtype = self._check_options(in_features, init, seed, dtype)  # which reset_parameters needs
        nn.Linear.__init__(self, in_features, units, check_bool("bias", bias), device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores w·x + b, one for each row of the weight."""
        return tpf.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Return the sizes, for ``print(net)``."""
        classes = "" if self.num_classes is None else f"num_classes={self.num_classes}, "
        return f"in_features={self.in_features}, {classes}bias={self.bias is not None}"


class Perceptron(_Linear):
    """One linear unit: scores s = w·x + b, (N, d) → (N,), decision s ≥ 0 → +1, else −1; weight (1, d), bias (1,).

    It is an ``nn.Linear(d, 1)`` whose last dimension is squeezed. Weights start at zero, as the rule has it.

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
        """Return the scores w·x + b."""
        return super().forward(x).squeeze(-1)

    @torch.no_grad()
    def margin(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the geometric margin, min y·(w·x + b)/‖w‖."""
        return tpf.geometric_margin(x, y, self.weight, self.bias)


class MulticlassPerceptron(_Linear):
    """K linear units, one weight vector per class: scores s_k = w_k·x + b_k, decision argmax (lowest index on ties).

    It is an ``nn.Linear(d, K)``: x (N, d) → (N, K); weight (K, d), bias (K,).

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

    num_classes: int

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
        self.num_classes = check_int("num_classes", num_classes, at_least=2)
        super().__init__(in_features, num_classes, bias, init, seed, device, dtype)


LinearNet: TypeAlias = nn.Linear
"""Nets of one linear score, or one per class: all of them are ``nn.Linear``."""


class JointPerceptron(_Net):
    """One weight vector over joint features: scores s_k = w·φ(x, k), (N, d) → (N, K), decision argmax; weight (1, D).

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

    num_classes: int
    bias: None = None

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
        super().__init__()
        dtype = self._check_options(in_features, init, seed, dtype)
        self.num_classes = check_int("num_classes", num_classes, at_least=2)
        if features is not None and not callable(features):
            raise TypeError(f"features must be a function from (N, d) to (N, K, D), found {type(features).__name__}")
        if features is not None and not bias:
            raise ValueError("bias=False needs the block features; custom features include their own constant")
        self.features = features or partial(tpf.joint_features, num_classes=num_classes, bias=bias)
        probe = self.features(torch.zeros(1, in_features, dtype=dtype, device=device))
        shape = tuple(getattr(probe, "shape", ()))
        if len(shape) != 3 or shape[:2] != (1, num_classes):
            raise ValueError(f"features must map (N, {in_features}) to (N, {num_classes}, D), found {shape} for N = 1")
        self.weight = nn.Parameter(torch.empty(1, probe.shape[2], dtype=dtype, device=device))
        self.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores w·φ(x, k), (…, d) → (…, K); φ is ``net.features``, called with (N, d)."""
        if is_sparse(x):
            raise TypeError("x is sparse, which joint features do not support; pass x.to_dense()")
        scores = self.features(x.reshape(-1, x.shape[-1])) @ self.weight[0]
        return scores.reshape(*x.shape[:-1], self.num_classes)

    def extra_repr(self) -> str:
        """Return the sizes, for ``print(net)``."""
        return f"in_features={self.in_features}, num_classes={self.num_classes}, joint={self.weight.shape[1]}"


class MLP(_Net):
    """Multilayer perceptron, which can learn XOR: (N, d) → (N,), or (N, K) with ``num_classes``.

    Args:
        in_features: d.
        hidden: the number of units of each hidden layer; ``()`` leaves a linear net.
        num_classes: ``None`` for one score per sample, K ≥ 2 for K.
        activation: a name from ``tanh relu sigmoid leaky_relu elu gelu silu softplus identity``, or a function. The
            perceptron's step function is not among them: its derivative is 0 wherever it has one.
        init: ``"default"`` as ``nn.Linear`` does it, ``"uniform"`` for U(−1, 1) or ``"normal"`` for N(0, 1).
        seed, device, dtype: as for :class:`Perceptron`.

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
        activation: str | Activation = "tanh",
        init: str = "default",
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        dtype = self._check_options(in_features, init, seed, dtype, ("default", "uniform", "normal"))
        if not isinstance(hidden, Sequence):
            raise TypeError(f"hidden must be a sequence of sizes such as (2,), found {type(hidden).__name__}")
        self.hidden = tuple(check_int("hidden", size, at_least=1) for size in hidden)
        self.num_classes = None if num_classes is None else check_int("num_classes", num_classes, at_least=2)
        if activation in ("sign", "step", torch.sign, torch.sgn):
            raise ValueError(f"activation={activation!r} has derivative 0 almost everywhere; use 'tanh' instead")
        self.activation_name = activation if isinstance(activation, str) else getattr(activation, "__name__", "custom")
        if not callable(activation):
            activation = ACTIVATIONS[check_choice("activation", activation, tuple(ACTIVATIONS))]
        self.activation = activation
        sizes = pairwise((in_features, *self.hidden, num_classes or 1))
        with torch.random.fork_rng(devices=[]):  # nn.Linear draws as it is made; reset_parameters draws again
            self.layers = nn.ModuleList(nn.Linear(*size, device=device, dtype=dtype) for size in sizes)
        self.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of the last layer; the first one takes sparse samples, too."""
        first, *others = self.layers
        x = scores_of(first, x)
        for layer in others:
            x = layer(self.activation(x))
        return x.squeeze(-1) if self.num_classes is None else x

    def extra_repr(self) -> str:
        """Return the activation, for ``print(net)``."""
        return f"activation={self.activation_name!r}, init={self.init!r}"


def scores_of(net: nn.Module, x: Tensor) -> Tensor:
    """Return the output of a net, also of an ``nn.Linear`` on sparse samples."""
    if isinstance(net, nn.Linear) and not isinstance(net, _Linear) and is_sparse(x):
        return tpf.linear(x, net.weight, net.bias)
    scores: Tensor = net(x)
    return scores


@contextmanager
def eval_mode(module: nn.Module) -> Iterator[None]:
    """Switch a module to evaluation mode and back, submodule by submodule."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode
