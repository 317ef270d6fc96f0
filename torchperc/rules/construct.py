"""Networks built by the rule: units are added until no sample is wrong, each trained by the pocket algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from torchperc._checks import Data, check_bool, check_choice, check_int, check_labels
from torchperc.nn.functional import decide
from torchperc.nn.modules import Perceptron
from torchperc.nn.threshold import ThresholdNet, ball_unit
from torchperc.rules.run import RuleResult
from torchperc.rules.trainer import RuleTrainer
from torchperc.samples import convert

METHODS = ("tower", "pyramid", "upstart", "tiling", "madaline")


@dataclass(frozen=True, eq=False)
class BuildStep:
    """An added unit, or an epoch of MADALINE Rule II, and the net after it.

    Args:
        role: what the unit is for.
        net: the net after the step, on the CPU.
        wrong: the samples that this net decides wrongly, by number.
        corrected: the samples that were wrong before, and are right now; after the first step, those that are right.
        result: the unit's pocket run with its log; ``None`` for an epoch, and where all its targets are equal.
        constructed: whether the unit is that of the theorem's proof, because the pocket's leaves too many errors.
    """

    role: str
    net: ThresholdNet
    wrong: Tensor
    corrected: Tensor
    result: RuleResult | None
    constructed: bool

    @property
    def errors(self) -> int:
        """The number of samples that the net decides wrongly."""
        return len(self.wrong)


@dataclass(frozen=True, eq=False, repr=False)
class BuildResult:
    """What :func:`build` returns: net and errors of the best step, all steps, and why they ended with errors left.

    Example:
        >>> import torchperc as tp
        >>> result = build(*tp.data.gate("XOR"), method="upstart")
        >>> [(step.role, step.errors) for step in result.steps]
        [('first unit', 1), ('daughter of unit 1 where it says -1', 0)]
    """

    method: str
    net: ThresholdNet
    errors: int
    steps: tuple[BuildStep, ...]
    updates: int
    reason: str = ""

    def __repr__(self) -> str:
        units = f"{self.net.units} unit{'s' * (self.net.units != 1)}"
        made = (
            f"{units}, {self.updates} update{'s' * (self.updates != 1)}, {self.errors} error{'s' * (self.errors != 1)}"
        )
        return f"BuildResult({self.method}: {made}{f'; {self.reason}' if self.reason else ''})"


def build(
    X: Data,
    y: Data,
    method: str = "tower",
    *,
    hidden: int | None = None,
    quadratic: bool | None = None,
    max_units: int = 200,
    max_epochs: int = 100,
    seed: int = 0,
    log: Any = None,
) -> BuildResult:
    """Build a net of step units that decides the samples of two classes.

    - ``"tower"`` (Gallant 1990): each unit sees the inputs and the unit before it, and learns y.
    - ``"pyramid"`` (Gallant 1990): each unit sees the inputs and all units before it.
    - ``"upstart"`` (Frean 1990): a daughter learns where her mother says +1 wrongly and turns that round, another where
      she says −1 wrongly; daughters have daughters. One is finished before the next begins.
    - ``"tiling"`` (Mézard & Nadal 1989): a layer has a master, which learns y, and units that divide samples of both
      classes for which the layer says the same. The next layer sees this one only.
    - ``"madaline"``, Rule II (Winter & Widrow 1988), a layer of fixed size: for a wrong sample, the hidden unit or pair
      with the smallest scores whose turn makes it right is turned; if there is none, the last unit.

    A unit of the first four keeps the best weights of its run, ``log.pocket("every")``. They end without an error if a
    hyperplane divides any sample from all others, as on the corners of a cube, or of any samples with ‖x‖² among the
    inputs (Parekh, Yang & Honavar 2000). Each unit of a tower, pyramid or upstart and each master leaves fewer errors
    than before. Where the pocket finds no such unit, it is constructed: it says what was said before, except in the
    ball around a wrong sample that corrects most. Rule II has no theorem.

    Args:
        X: samples (N, d).
        y: labels −1/+1.
        method: as above.
        hidden: the number of hidden units of ``"madaline"``, by default 2.
        quadratic: append ‖x‖² to the inputs; by default where the theorems need it.
        max_units: maximum number of units.
        max_epochs: of each unit's training, shuffled; or of Rule II.
        seed: random seed of the orders, and of the first weights of Rule II.
        log: called with (step, errors) after every step; or a Lightning logger, which gets ``error/train``.

    Example:
        >>> import torchperc as tp
        >>> build(*tp.data.gate("parity-4"), method="tower", log=print).net
        1 5
        2 1
        3 0
        ThresholdNet(in_features=4, units=3, quadratic=False)
    """
    if check_choice("method", method, METHODS) != "madaline" and hidden is not None:
        raise ValueError(f"hidden={hidden!r} is for method='madaline'; {method!r} finds its own number, leave it out")
    if log is not None and not hasattr(log, "log_metrics") and not callable(log):
        raise TypeError(f"log must be a function of (step, errors) or a Lightning logger, found {type(log).__name__}")
    quadratic = check_bool("quadratic", quadratic) if quadratic is not None else False if method == "madaline" else None
    most, epochs = check_int("max_units", max_units, at_least=1), check_int("max_epochs", max_epochs, at_least=1)
    random = torch.Generator().manual_seed(check_int("seed", seed, at_least=0))
    samples = convert.features(X, dtype=torch.float64, convert=True)
    device, samples, labels = samples.device, samples.cpu(), check_labels(y, len(samples), None).cpu()
    _, group = samples.unique(dim=0, return_inverse=True)
    if len(both := torch.nonzero(torch.isin(group, group[labels > 0]) & torch.isin(group, group[labels < 0]))):
        i, *others = torch.nonzero(group == group[both[0]])[:, 0].tolist()
        j = next(j for j in others if labels[j] != labels[i])
        what = f"X[{i}] and X[{j}] are equal, but y is {labels[i]} and {labels[j]}"
        raise ValueError(f"{what}; {len(both)} samples contradict one another, leave them out")
    made = _Builder(samples, labels, quadratic, most, epochs, random, log)
    reason = ""
    try:
        if method == "madaline":
            made.madaline(check_int("hidden", 2 if hidden is None else hidden, at_least=1))
        else:
            getattr(made, method)()
    except _NoProgressError as stop:
        reason = str(stop)
    getattr(log, "finalize", str)("success")
    best = min(made.steps, key=lambda step: step.errors)
    return BuildResult(method, deepcopy(best.net).to(device), best.errors, tuple(made.steps), made.updates, reason)


class _NoProgressError(Exception):
    """Why building ends with errors left."""


class _Builder:
    """A net under construction.

    ``seen`` (N, 1 + m + K) holds 1, m inputs and what K units say of every sample, ``weight`` (K, 1 + m + K) the units.
    ``norm`` (1 + m,) has factors with ‖x‖² = seen·norm on all samples, if there are any.
    """

    def __init__(
        self, X: Tensor, y: Tensor, quadratic: bool | None, most: int, epochs: int, random: torch.Generator, log: Any
    ) -> None:
        self.X, self.y, self.most, self.epochs, self.random, self.log = X, y, most, epochs, random, log
        self.all, self.steps, self.updates = torch.arange(len(y)), list[BuildStep](), 0
        self.made: tuple[RuleResult | None, bool] = None, False
        squares, self.seen = X.square().sum(1, keepdim=True), F.pad(X, (1, 0), value=1.0)
        if not squares.isfinite().all():
            raise ValueError(f"X holds {X.abs().max():g}, of which the square is too large; scale X down")
        fitted = torch.linalg.lstsq(self.seen, squares, driver="gelsd").solution
        exact = bool((self.seen @ fitted - squares).abs().max() <= 1e-10 * squares.max())  # as on the corners of a cube
        self.norm = fitted[:, 0] if exact else None
        self.quadratic = self.norm is None if quadratic is None else quadratic
        if self.quadratic:
            self.seen, self.norm = torch.cat((self.seen, squares), 1), F.pad(X.new_ones(1), (X.shape[1] + 1, 0))
        self.weight, self.first = X.new_zeros(0, self.seen.shape[1]), self.seen.shape[1]

    def train(
        self, targets: Tensor, rows: Tensor, allowed: int | None, units: Sequence[int] = (), deep: bool = False
    ) -> int:
        """Add a unit with at most ``allowed`` errors on rows, or one that divides them if it is ``None``.

        It sees the inputs, unless it is ``deep``, and other units. A constructed one says outside its ball what the
        last of these units says, or −1 if there is none or it is to divide.
        """
        if (number := len(self.weight)) == self.most:
            raise _NoProgressError(f"max_units={self.most} is reached")
        inputs = [] if deep else [*range(1, self.first)]
        columns, labels = [0, *inputs, *(self.first + k for k in units)], targets[rows]
        seen, weight, self.made = self.seen[:, columns], self.X.new_zeros(len(columns)), (None, False)

        def enough(weight: Tensor) -> bool:
            said = decide(seen @ weight)[rows]
            return bool(said.min() < said.max()) if allowed is None else int((said != labels).sum()) <= allowed

        if labels.min() == labels.max():
            weight[0] = labels[0]
        else:
            net = Perceptron(len(columns) - 1, dtype=torch.float64)
            part = torch.zeros(len(targets)).index_fill(0, rows, 1)
            seed = int(torch.randint(2**31, (), generator=self.random))
            trainer = RuleTrainer(self.epochs, order="shuffled", seed=seed)
            result = trainer.fit(net, seen[:, 1:], targets, sample_weight=part)
            result = replace(result, select="pocket", model=result.log.pocket("every"))  # the best of all states
            result.write_to(net)
            bias, factors = (values.detach().flatten() for values in (net.get_parameter("bias"), net.weight))
            weight, self.updates = torch.cat((bias, factors)), self.updates + result.mistakes
            self.made = result, not enough(weight)
            if self.made[1]:
                now = self.seen[:, columns[-1]] if units and allowed is not None else None
                norm = F.pad(self.X.new_full((1,), len(units)), (0, len(units))) if deep else self.norm
                if norm is not None:
                    points = seen[:, 1:] if deep else self.X
                    weight = ball_unit(points, F.pad(norm, (0, len(columns) - len(norm))), targets, rows, now)
                if not enough(weight):
                    remedy = "centre and scale X" if self.norm is not None else "use quadratic=True"
                    raise _NoProgressError(f"no unit was found that leaves fewer errors; {remedy}")
        self.weight = F.pad(self.weight, (0, 1, 0, 1))
        self.weight[-1, columns] = weight
        self.seen = torch.cat((self.seen, decide(seen @ weight)[:, None]), 1)
        return number

    def net(self, weight: Tensor) -> ThresholdNet:
        """Return the net of these weights."""
        net = ThresholdNet(self.X.shape[1], len(weight), quadratic=self.quadratic, dtype=torch.float64)
        net.load_state_dict({"weight": weight[:, 1:-1], "bias": weight[:, 0]})
        return net

    def record(self, role: str, net: ThresholdNet) -> int:
        """Note a step that leads to a net; return its errors."""
        wrong = torch.nonzero(net.predict(self.X) != self.y)[:, 0]
        before = self.steps[-1].wrong if self.steps else self.all
        self.steps.append(BuildStep(role, net, wrong, before[~torch.isin(before, wrong)], *self.made))
        if hasattr(self.log, "log_metrics"):
            self.log.log_metrics({"error/train": len(wrong) / len(self.y)}, step=len(self.steps))
        elif self.log is not None:
            self.log(len(self.steps), len(wrong))
        return len(wrong)

    def tower(self, height: int = 1) -> None:
        """Add units that see the inputs and the last ``height`` units."""
        errors = len(self.y) + 1
        while errors:
            number = self.train(self.y, self.all, errors - 1, range(len(self.weight))[-height:])
            errors = self.record(f"unit {number + 1}", self.net(self.weight))

    def pyramid(self) -> None:
        """Add units that see the inputs and all units."""
        self.tower(self.most)

    def upstart(self) -> None:
        """Add daughters, each for samples on which her mother says the same and is wrong on some."""
        work, role = [(self.train(self.y, self.all, len(self.y)), self.all, self.y)], "first unit"
        while True:
            order = [*range(self.first), *reversed(range(self.first, self.seen.shape[1]))]  # daughters before mothers
            if not self.record(role, self.net(self.weight.flip(0)[:, order])):
                return
            while True:
                if not work:
                    raise _NoProgressError("scores are within rounding of 0; centre and scale X")
                mother, rows, targets = work[-1]
                said = self.seen[rows, self.first + mother]
                if (wrong := said != targets[rows]).any():
                    break
                work.pop()
            side = int(said[wrong].max())
            part, turned = rows[said == side], torch.where(targets == side, -1, 1)
            scores = self.seen @ self.weight[mother]
            daughter = self.train(turned, part, int(wrong[said == side].sum()) - 1)
            turn = -side * (float(scores.abs().max()) + 1)  # added twice where the daughter says +1, else not at all
            self.weight[mother, 0] += turn
            self.weight[mother, self.first + daughter] = turn
            for number, *_ in reversed(work):
                self.seen[:, self.first + number] = decide(self.seen @ self.weight[number]).to(self.seen)
            work.append((daughter, part, turned))
            role = f"daughter of unit {mother + 1} where it says {side:+d}"

    def tiling(self) -> None:
        """Add layers until the master of one is right on all samples."""
        below, errors, layer = list[int](), len(self.y) + 1, 0
        while errors:
            units, layer = [self.train(self.y, self.all, errors - 1, below, bool(below))], layer + 1
            errors = self.record(f"master of layer {layer}", self.net(self.weight))
            while errors:
                _, group = self.seen[:, [self.first + k for k in units]].unique(dim=0, return_inverse=True)
                sizes, sums = group.bincount(), group.bincount(self.y.double()).abs()
                if (sizes == sums).all():  # in each group, all samples are of one class
                    break
                rows = torch.nonzero(group == torch.where(sizes == sums, len(group) + 1, sizes).argmin())[:, 0]
                units.insert(0, self.train(self.y, rows, None, below, bool(below)))  # the master stays the last
                self.record(f"unit of layer {layer} that divides {len(rows)} samples", self.steps[-1].net)
            below = units

    def madaline(self, hidden: int) -> None:
        """Train a net of fixed shape by MADALINE Rule II."""
        if hidden >= self.most:
            raise ValueError(f"hidden={hidden} makes {hidden + 1} units, but max_units={self.most}; raise it")
        sees = torch.zeros(hidden + 1, self.first + hidden + 1, dtype=torch.float64).numpy()
        sees[:, 0], sees[:-1, 1 : self.first], sees[-1, self.first : -1] = 1, 1, 1
        weight = sees * (2 * torch.rand(sees.shape, dtype=torch.float64, generator=self.random).numpy() - 1)
        self.made = None, False

        def run(x: Any, turned: Sequence[int] = ()) -> tuple[Any, Any]:
            seen = np.append(x, np.zeros(hidden + 1))
            scores = weight @ seen
            seen[self.first : -1] = np.where(scores[:-1] >= 0, 1, -1)
            seen[[self.first + k for k in turned]] *= -1
            scores[-1] = weight[-1] @ seen
            return seen, scores

        for epoch in range(1, self.epochs + 1):
            for i in torch.randperm(len(self.y), generator=self.random).tolist():
                x, right = self.seen[i].numpy(), bool(self.y[i] > 0)
                seen, scores = run(x)
                if (scores[-1] >= 0) == right:
                    continue
                order = np.abs(scores[:-1]).argsort().tolist()
                trials = [*combinations(order, 1), *combinations(order, 2)]
                turned = next((trial for trial in trials if (run(x, trial)[1][-1] >= 0) == right), (hidden,))
                for k in turned:  # by least mean squares: the score becomes 1 on the other side
                    step = (-1.0 if scores[k] >= 0 else 1.0) - scores[k]
                    weight[k] += step * sees[k] * seen / (sees[k] * seen * seen).sum()
                self.updates += len(turned)
            if not self.record(f"epoch {epoch}", self.net(torch.from_numpy(weight))):
                return
        raise _NoProgressError(f"max_epochs={self.epochs} is reached; try another seed, or more hidden units")
