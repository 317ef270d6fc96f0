"""The XOR lab: the smallest net that needs a hidden layer, trained from thousands of seeds at once.

Whether a net with one hidden layer learns XOR depends on its initial weights; so the answer is a fraction of seeds. All
members of a run are one program over stacked weights, the seeds last in memory. Members do not interact: the gradient
of the summed loss is, for each of them, the gradient of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import torch
from torch import Tensor

from torchperc._checks import Option, ParameterError, check_choice, check_int, check_number
from torchperc.data.example_data import gate
from torchperc.nn.heads import Head, LogisticHead
from torchperc.nn.modules import ACTIVATIONS, MLP
from torchperc.samples import parallel
from torchperc.theory.bounds import wilson

INPUTS = ("0/1", "-1/+1")
KINDS = ("solved", "stuck at 75 %", "stuck at 50 %", "dead units", "saddle", "diverged")
FLAT = 1e-3  # a gradient norm that counts as small
NEAR = 1e-2  # how far from the chance level still counts as at it

_VECTORS = 32  # floats in two of the widest registers, which is what torch's loops take at a time
_LOGISTIC = LogisticHead()

Weights: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor]
"""Hidden weights (h, 2, S) and biases (h, S), output weights (h, S) and bias (S,), the seeds last."""


@dataclass(frozen=True, eq=False)
class LabResult:
    """Outcome of every member of a run: S seeds, h hidden units, T recorded steps."""

    seeds: tuple[int, ...]
    hidden: int
    activation: str
    head: Head
    lr: float
    steps: int
    inputs: str
    recorded: Tensor  # (T,), the steps at which the loss was recorded; 0 is the start
    curves: Tensor  # (T, S), the loss at these steps
    weight1: Tensor  # (S, h, 2), the hidden layer at the end
    bias1: Tensor  # (S, h)
    weight2: Tensor  # (S, h), the output unit
    bias2: Tensor  # (S,), as all below, at the end
    accuracy: Tensor
    loss: Tensor
    gradient_norm: Tensor  # ‖∇L‖ over all weights and biases of a member
    dead: Tensor  # number of dead hidden units, see kind_of
    kinds: tuple[str, ...]

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many members are of each kind, in the order of ``KINDS``."""
        return {kind: self.kinds.count(kind) for kind in KINDS}

    @property
    def success_rate(self) -> float:
        """Fraction of members that solved XOR."""
        return self.counts["solved"] / len(self.seeds)

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the success rate, see :func:`wilson`."""
        return wilson(self.counts["solved"], len(self.seeds))

    def net(self, k: int) -> MLP:
        """Member ``k`` (by position, not by seed) as a net, with its final weights."""
        if not -len(self.seeds) <= k < len(self.seeds):
            raise IndexError(f"k={k} is not a member; there are {len(self.seeds)}, counted from 0")
        net = _fresh(self.seeds[k], self.hidden, self.activation, self.loss.dtype)
        ends = (self.weight1[k], self.bias1[k], self.weight2[k, None], self.bias2[k, None])
        net.load_state_dict(dict(zip(net.state_dict(), ends, strict=True)))
        return net

    @property
    def sentence(self) -> str:
        """The setting in words, and how many seeds solved XOR."""
        name = type(self.head).__name__.removesuffix("Head")
        loss = name if name.isupper() else name.lower()
        solved = f"{self.counts['solved']:,} of {len(self.seeds):,} seeds solved"
        return f"XOR by 2-{self.hidden}-1, {self.activation}, {loss} loss, learning rate {self.lr:g}: {solved}"

    def __repr__(self) -> str:
        return f"LabResult({self.sentence})"


def train(
    seeds: Iterable[int],
    hidden: int = 2,
    activation: str = "tanh",
    head: Head = _LOGISTIC,
    *,
    lr: float = 1.0,
    steps: int = 5000,
    inputs: str = "0/1",
    dtype: torch.dtype = torch.float32,
    record_every: int | None = None,
    device: torch.device | str = "cpu",
) -> LabResult:
    """Train a 2-h-1 net on XOR from every seed, by full-batch gradient descent: w ← w − η·∇L, L the mean over 4 rows.

    Member k starts from the weights of ``MLP(2, hidden=(h,), activation=…, init="uniform", seed=seeds[k])`` to the bit
    and does what ``torch.optim.SGD`` does to that net alone, up to rounding: a matrix product may add in another order,
    and the vector exp differs from the scalar one. A member's result does not depend on which others are trained
    beside it, or how many, to the bit.

    Args:
        seeds: one for each member, such as ``range(1000)``.
        hidden: h, the width of the hidden layer.
        activation: a name from ``torchperc.nn.modules.ACTIVATIONS``.
        head: gives the loss and the decision.
        lr: η.
        steps: how many updates every member makes; none stops early.
        inputs: ``"0/1"`` or ``"-1/+1"`` for the two truth values; labels are −1/+1 either way.
        dtype: ``torch.float32`` or ``torch.float64``.
        record_every: steps between two points of the loss curves; by default about 200 points are kept.
        device: where to train, such as ``"cuda"``, which never waits for the host; the result is on the CPU.

    Example:
        >>> result = train(range(50), hidden=4, steps=1000)
        >>> result.success_rate > 0.9, result.interval[1] <= 1
        (True, True)
        >>> net = result.net(result.kinds.index("solved"))
        >>> net.predict(torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]))
        tensor([-1,  1,  1, -1])
    """
    given = tuple(seeds) if isinstance(seeds, Iterable) else ()
    if not given:
        raise ValueError(f"seeds={seeds!r} must be a sequence of at least one integer, such as range(1000)")
    members = tuple(check_int("seeds", seed, at_least=0) for seed in given)
    hidden = check_int("hidden", hidden, at_least=1)
    task = _task(activation, head, inputs, dtype, device)
    lr = check_rate("lr", lr, dtype)
    steps = check_int("steps", steps, at_least=1)
    every = max(1, steps // 200) if record_every is None else check_int("record_every", record_every, at_least=1)
    # with copies of the last up to whole vectors, as torch computes the rest with other last bits
    padded = members + members[-1:] * (-len(members) % _VECTORS)
    weights = _stack([_fresh(seed, hidden, activation, dtype) for seed in padded], device)
    with parallel.one_thread():
        curves = task.descend(weights, lr, steps, every)
        accuracy, loss, norm, dead = (figure[: len(members)].cpu() for figure in task.examine(weights))
    weight1, bias1, weight2, bias2 = (w.detach().movedim(-1, 0)[: len(members)].contiguous().cpu() for w in weights)
    recorded, curves = torch.tensor([*range(0, steps, every), steps]), curves[:, : len(members)].contiguous().cpu()
    setting = (members, hidden, activation, head, lr, steps, inputs)
    kinds = task.kinds(accuracy, loss, norm, dead)
    return LabResult(*setting, recorded, curves, weight1, bias1, weight2, bias2, accuracy, loss, norm, dead, kinds)


@dataclass(frozen=True, eq=False)
class _Task:
    """The four rows of XOR, and what a member makes of them."""

    X: Tensor  # (4, 2)
    y: Tensor  # (4, 1), in the dtype of X so that no step has to convert it
    activation: Callable[[Tensor], Tensor]
    head: Head

    def kinds(self, *figures: Tensor) -> tuple[str, ...]:
        """How members ended, by what :meth:`examine` found."""
        y = self.y[:, 0]
        chance = self.head.loss(torch.full_like(y, self.head.threshold), y).item()  # of the best constant score
        rows = zip(*(figure.tolist() for figure in figures), strict=True)
        return tuple(kind_of(*row, chance=chance) for row in rows)

    def inner(self, weights: Weights) -> Tensor:
        """What goes into the activation: x·w + b, (h, 4, S)."""
        weight, bias = weights[:2]
        return weight[:, :1] * self.X[:, :1] + weight[:, 1:] * self.X[:, 1:] + bias[:, None]

    def scores(self, weights: Weights) -> Tensor:
        """One score for each row and member, (4, S)."""
        return (self.activation(self.inner(weights)) * weights[2][:, None]).sum(0) + weights[3]

    def loss(self, weights: Weights) -> Tensor:
        """Mean loss of each member, (S,)."""
        scores = self.scores(weights)
        return self.head.loss(scores, self.y.expand_as(scores), reduction="none").mean(0)

    def descend(self, weights: Weights, lr: float, steps: int, every: int) -> Tensor:
        """Change the weights by that many steps; return the losses recorded on the way, (T, S)."""
        curves = []
        for step in range(steps):
            loss = self.loss(weights)
            if step % every == 0:
                curves.append(loss.detach())
            gradients = torch.autograd.grad(loss.sum(), weights)
            with torch.no_grad():
                for weight, gradient in zip(weights, gradients, strict=True):
                    weight.add_(gradient, alpha=-lr)  # as SGD writes it
        return torch.stack([*curves, self.loss(weights).detach()])

    def examine(self, weights: Weights) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Accuracy, loss, gradient norm and dead units of each member; NaN norms mark weights that are not finite."""
        scores = self.scores(weights).detach()
        decisions = self.head.decide(scores.flatten()).view_as(scores)  # one by one: (4, S) would read as S classes
        loss = self.loss(weights)
        gradients = torch.autograd.grad(loss.sum(), weights)
        norm = torch.linalg.vector_norm(torch.cat([g.reshape(-1, g.shape[-1]) for g in gradients]), dim=0)
        finite = torch.stack([w.detach().reshape(-1, w.shape[-1]).isfinite().all(0) for w in weights]).all(0)
        accuracy = (decisions == self.y).to(loss.dtype).mean(0)
        return accuracy, loss.detach(), norm.masked_fill(~finite, math.nan), self.dead(weights)

    def dead(self, weights: Weights) -> Tensor:
        """Number of hidden units of each member whose activation and its derivative are 0 on all rows, (S,)."""
        inner = self.inner(weights).detach().requires_grad_()
        outer = self.activation(inner)
        (slope,) = torch.autograd.grad(outer.sum(), inner)
        return ((outer == 0) & (slope == 0)).all(1).sum(0)


def _task(activation: str, head: Head, inputs: str, dtype: torch.dtype, device: torch.device | str = "cpu") -> _Task:
    check_choice("activation", activation, tuple(ACTIVATIONS))
    if not isinstance(head, Head):
        raise TypeError(f"head must be a head such as LogisticHead(), found {type(head).__name__} {head!r}")
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"dtype={dtype} is not supported; use torch.float32 or torch.float64")
    X, y = gate("XOR", dtype=dtype)
    if check_choice("inputs", inputs, INPUTS) == "-1/+1":
        X = 2 * X - 1
    return _Task(X.to(device), y[:, None].to(device, dtype), ACTIVATIONS[activation], head)


def check_rate(name: str, value: float, dtype: torch.dtype = torch.float32) -> float:
    """Return a learning rate that is above 0 and finite, in ``dtype`` too."""
    rate = check_number(name, value, above=0)
    if torch.tensor(rate, dtype=dtype).item() in (0.0, math.inf):
        raise ParameterError(Option(name, rate), f" is 0 or infinite in {dtype}; choose a learning rate nearer to 1")
    return rate


def _fresh(seed: int, hidden: int, activation: str, dtype: torch.dtype) -> MLP:
    return MLP(2, hidden=(hidden,), activation=activation, init="uniform", seed=seed, dtype=dtype)


def _stack(nets: Sequence[MLP], device: torch.device | str | None = None) -> Weights:
    """The weights of many nets of one shape, the nets last; on their own device if none is given."""
    alike = zip(*(net.parameters() for net in nets), strict=True)
    stacked = [torch.stack([parameter.detach() for parameter in same], -1).to(device) for same in alike]
    weight1, bias1, (weight2,), (bias2,) = stacked  # there is one output unit
    return weight1.requires_grad_(), bias1.requires_grad_(), weight2.requires_grad_(), bias2.requires_grad_()


def kind_of(accuracy: float, loss: float, gradient_norm: float, dead: int, *, chance: float) -> str:
    """Return how a member ended, by the first match:

    - ``"diverged"``: the loss, the gradient or a weight is not finite.
    - ``"solved"``: all four rows are classified correctly.
    - ``"dead units"``: at least one hidden unit has activation 0 and derivative 0 on all four rows (a relu that is
      never on), so that no gradient reaches its weights.
    - ``"saddle"``: the gradient is small (norm ≤ 1e-3) and the loss at the chance level (within 0.01 of the best
      constant score's). The test is of first order: for ``"identity"``, which cannot do better, it is a minimum. The
      perceptron criterion, whose chance level is 0, comes here only with all scores at 0.
    - ``"stuck at 75 %"``: three rows of four are correct.
    - ``"stuck at 50 %"``: two, or fewer.

    ``gradient_norm`` is NaN if a weight is not finite; ``chance`` is the mean loss of the best constant score: ln 2 for
    the logistic loss, ½ for LMS with targets −1/+1.

    Example:
        >>> kind_of(0.5, 0.6931, 1e-6, 0, chance=0.6931), kind_of(0.75, 0.4774, 1e-4, 0, chance=0.6931)
        ('saddle', 'stuck at 75 %')
    """
    if not (math.isfinite(loss) and math.isfinite(gradient_norm)):
        return "diverged"
    if accuracy == 1:
        return "solved"
    if dead:
        return "dead units"
    if gradient_norm <= FLAT and abs(loss - chance) <= NEAR:
        return "saddle"
    return "stuck at 75 %" if accuracy == 0.75 else "stuck at 50 %"


def classify(nets: Sequence[MLP], head: Head = _LOGISTIC, *, inputs: str = "0/1") -> tuple[str, ...]:
    """Return how nets of one shape do on XOR, by :func:`kind_of`.

    Args:
        nets: with two inputs, one hidden layer, one score and an activation known by name; all alike.
        head: gives the loss and the decision.
        inputs: ``"0/1"`` or ``"-1/+1"``.

    Example:
        >>> net = MLP(2, hidden=(2,), activation="relu", init="uniform", seed=0)
        >>> with torch.no_grad():
        ...     _ = net.layers[0].weight.fill_(-1.0), net.layers[0].bias.fill_(-1.0)
        >>> classify([net])
        ('dead units',)
    """
    shapes = {(net.in_features, net.hidden, net.num_classes, net.activation_name) for net in nets}
    if len(shapes) != 1:
        raise ValueError(f"nets must be of one shape and one activation, found {len(shapes)} kinds of net")
    features, hidden, classes, activation = shapes.pop()
    if features != 2 or len(hidden) != 1 or classes is not None:
        raise ValueError(f"nets have sizes {features}, {hidden}, {classes}; XOR nets are MLP(2, hidden=(h,))")
    weights = _stack(nets)
    task = _task(activation, head, inputs, weights[0].dtype, weights[0].device)
    return task.kinds(*task.examine(weights))
