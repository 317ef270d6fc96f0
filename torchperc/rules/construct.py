"""Networks built by the rule: units are added until no sample is wrong, each trained by the pocket algorithm."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import Data, check_bool, check_choice, check_int, check_labels
from torchperc.nn.functional import decide
from torchperc.nn.modules import Perceptron
from torchperc.nn.threshold import ThresholdNet, Unit
from torchperc.rules.run import RuleResult
from torchperc.rules.trainer import RuleTrainer
from torchperc.samples import convert

METHODS = ("tower", "pyramid", "upstart", "tiling", "madaline")
_CENTRES = 256  # wrong samples that are tried as the centre of a ball


@dataclass(frozen=True, eq=False)
class BuildStep:
    """An added unit, or an epoch of MADALINE Rule II, and the net after it.

    Args:
        role: what the unit is for.
        net: the net after the step.
        errors: the number of samples that this net decides wrongly.
        corrected: the samples that were wrong before the step and are right after it; at first, those that are right.
        spoiled: the samples that were right before and are wrong after it.
        result: the unit's pocket run with its log; ``None`` for an epoch, and where all targets are of one class.
        constructed: whether the unit is the one of the theorem's proof, because the pocket's corrects too little.
    """

    role: str
    net: ThresholdNet
    errors: int
    corrected: Tensor
    spoiled: Tensor
    result: RuleResult | None = None
    constructed: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class BuildResult:
    """What :func:`build` returns: the net, the steps that led to it, and why they ended.

    Example:
        >>> import torchperc as tp
        >>> result = build(*tp.data.gate("XOR"), method="upstart")
        >>> [(step.role, step.errors) for step in result.steps]
        [('first unit', 1), ('daughter of unit 1, which corrects +1', 0)]
    """

    method: str
    net: ThresholdNet
    steps: tuple[BuildStep, ...]
    updates: int  # of all units
    errors: int  # training samples that the net decides wrongly
    X: Tensor
    y: Tensor
    reason: str = ""  # why building ended with errors left

    def __repr__(self) -> str:
        return f"BuildResult({self.sentence})"

    @property
    def sentence(self) -> str:
        """What was built, and why building ended with errors left, in words."""
        units, wrong = f"{self.net.units} unit{'s' * (self.net.units != 1)}", f"{self.errors} of {len(self.y)} samples"
        return f"{self.method}: {units} after {self.updates} updates, {wrong} wrong" + f"; {self.reason}" * bool(self.reason)


def build(
    X: Data,
    y: Data,
    method: str = "tower",
    *,
    hidden: Sequence[int] | None = None,
    quadratic: bool | None = None,
    max_units: int = 200,
    max_epochs: int = 100,
    seed: int = 0,
    log: Any = None,
) -> BuildResult:
    """Build a net of step units that decides all samples of two classes rightly.

    - ``"tower"`` (Gallant 1990): each unit sees the inputs and the unit before it, and learns y.
    - ``"pyramid"`` (Gallant 1990): each unit sees the inputs and all units before it.
    - ``"upstart"`` (Frean 1990): a daughter learns where its parent says +1 wrongly, and turns that round; another one
      where it says −1 wrongly. Daughters have daughters. A daughter is finished before its sister begins.
    - ``"tiling"`` (Mézard & Nadal 1989): a layer has a master unit that learns y, and further units that divide samples
      of both classes on which the layer agrees; the next layer sees this layer only.
    - ``"madaline"``, Rule II (Winter & Widrow 1988): a net of fixed shape, from random weights; on a wrong sample, the
      hidden units with the smallest scores whose turn makes it right are turned, else the last unit.

    The first four end without an error, by their theorems, which need a hyperplane between any one sample and all others.
    Corners of a cube and points of a sphere have it; so has any set with the coordinate ‖x‖² (Parekh, Yang & Honavar
    2000). Every tower or pyramid unit, every master and every daughter leaves fewer errors than there were before. Where
    the pocket finds no such unit, it is constructed: the inside of a ball around a wrong sample is turned round. Rule II
    has no such theorem; the net is the best of all epochs.

    Args:
        X: samples (N, d).
        y: labels −1/+1.
        method: one of the above.
        hidden: the sizes of the hidden layers of ``"madaline"``; one layer of two units by default.
        quadratic: append ‖x‖² to the inputs; by default if the theorems need it.
        max_units: maximum number of units.
        max_epochs: of each unit's training, in a new order each epoch; or of Rule II.
        seed: random seed of orders, and of the first weights of Rule II.
        log: called with (number of units or epochs, errors) after each step; or a Lightning logger, which gets
            ``error/train``.

    Example:
        >>> import torchperc as tp
        >>> build(*tp.data.gate("parity-4"), method="tower", log=print)
        1 5
        2 1
        3 0
        BuildResult(tower: 3 units after 1214 updates, 0 of 16 samples wrong)
    """
    check_choice("method", method, METHODS)
    if hidden is not None and method != "madaline":
        raise ValueError(f"hidden={hidden!r} is the shape of method='madaline', and {method!r} has its own; leave it out")
    samples = convert.features(X, dtype=torch.float64, convert=True)
    labels, device, samples = check_labels(y, len(samples), None).cpu(), samples.device, samples.cpu()
    _check_consistent(samples, labels)
    quadratic = method != "madaline" and None if quadratic is None else check_bool("quadratic", quadratic)
    most, epochs = check_int("max_units", max_units, at_least=1), check_int("max_epochs", max_epochs, at_least=1)
    made = _Builder(samples, labels, quadratic, most, epochs, check_int("seed", seed, at_least=0), _log_to(log))
    reason = ""
    try:
        if method == "madaline":
            made.madaline((2,) if hidden is None else hidden, seed)
        else:
            getattr(made, method)()
    except _NoProgress as stop:
        reason = str(stop)
    getattr(log, "finalize", str)("success")
    best = min(made.steps, key=lambda step: step.errors)
    return BuildResult(method, best.net.to(device), tuple(made.steps), made.updates, best.errors, samples, labels, reason)


def _check_consistent(X: Tensor, y: Tensor) -> None:
    """Refuse equal samples with different labels, which no net can tell apart."""
    _, group = X.unique(dim=0, return_inverse=True)
    both = torch.isin(group, group[y > 0]) & torch.isin(group, group[y < 0])
    if both.any():
        rows = torch.nonzero(both & (group == group[both][0]))[:, 0].tolist()
        pair = f"X[{rows[0]}] and X[{next(k for k in rows if y[k] != y[rows[0]])}]"
        raise ValueError(f"{pair} are equal, but y is not; {int(both.sum())} samples contradict each other; leave them out")


def _log_to(log: Any) -> Callable[[int, int, int], None]:
    """Return a function of (number of units, errors, samples) that tells the user's function or logger."""
    if hasattr(log, "log_metrics"):
        return lambda number, errors, samples: log.log_metrics({"error/train": errors / samples}, number)
    if log is not None and not callable(log):
        raise TypeError(f"log must be a function of (units, errors) or a Lightning logger, found {type(log).__name__}")
    return lambda number, errors, _: None if log is None else log(number, errors)


class _NoProgress(Exception):
    """Why building ends with errors left."""


class _View(NamedTuple):
    """What a unit sees: ``seen`` (N, m) begins with ``points`` (N, p), and ‖points‖² = seen·norm + constant."""

    points: Tensor
    seen: Tensor
    norm: Tensor | None
    constant: float


class _Builder:
    """A net under construction: its units, what each of them says of every sample, and the steps so far."""

    def __init__(self, X: Tensor, y: Tensor, quadratic: bool | None, most: int, epochs: int, seed: int, log: Any) -> None:
        self.X, self.y, self.most, self.epochs, self.log = X, y, most, epochs, log
        self.random = torch.Generator().manual_seed(seed)
        self.all, self.wrong, self.updates = torch.arange(len(y)), torch.ones(len(y), dtype=torch.bool), 0
        self.steps, self.units, self.said = list[BuildStep](), list[Unit](), list[Tensor]()
        self.last: tuple[RuleResult | None, bool] = (None, False)
        # where ‖x‖² is affine in x on all samples, as on the corners of a cube, a ball is a half-space already
        squares, known = X.square().sum(1, keepdim=True), torch.cat((X, X.new_ones(len(X), 1)), 1)
        affine = torch.linalg.lstsq(known, squares, driver="gelsd").solution[:, 0]
        exact = bool((known @ affine - squares[:, 0]).abs().max() <= 1e-10 * squares.max())
        self.quadratic = not exact if quadratic is None else quadratic
        if self.quadratic:
            X, affine, exact = torch.cat((X, squares), 1), torch.eye(X.shape[1] + 2).to(X)[-2], True
        self.inputs = _View(self.X, X, affine[:-1] if exact else None, float(affine[-1]))

    def view(self, sources: Sequence[int] = (), deep: bool = False) -> _View:
        """Return what a unit sees: the inputs, unless it is ``deep``, and what other units say."""
        said = torch.stack([self.said[k] for k in sources], 1).to(self.X) if sources else self.X[:, :0]
        if deep:
            return _View(said, said, torch.zeros(len(sources)).to(said), len(sources))
        points, seen, norm, constant = self.inputs
        norm = None if norm is None else torch.cat((norm, norm.new_zeros(len(sources))))
        return _View(points, torch.cat((seen, said), 1), norm, constant)

    def train(
        self, targets: Tensor, rows: Tensor, allowed: int | None, sources: Sequence[int] = (), deep: bool = False
    ) -> int:
        """Add a unit with at most ``allowed`` errors on rows, or one that divides them if it is ``None``.

        The constructed unit repeats the last of its sources outside a ball; without sources, or to divide, it says −1.
        """
        if len(self.units) == self.most:
            raise _NoProgress(f"max_units={self.most} is reached")
        view, labels, carried = self.view(sources, deep), targets[rows], bool(sources) and allowed is not None
        seen = torch.cat((view.seen, view.seen.new_ones(len(targets), 1)), 1)

        def enough(weight: Tensor) -> bool:
            said = decide(seen @ weight)[rows]
            return bool(said.min() < said.max()) if allowed is None else int((said != labels).sum()) <= allowed

        weight, self.last = seen.new_zeros(seen.shape[1]), (None, False)
        if labels.min() == labels.max():
            weight[-1] = labels[0]
        else:
            net, used = Perceptron(seen.shape[1] - 1, dtype=torch.float64), torch.zeros(len(targets)).index_fill(0, rows, 1)
            seed = int(torch.randint(2**31, (1,), generator=self.random))
            trainer = RuleTrainer(self.epochs, order="shuffled", select="pocket", seed=seed)
            result = trainer.fit(net, view.seen, targets, sample_weight=used)
            weight, self.updates = torch.cat((net.weight[0], net.bias)).detach(), self.updates + result.mistakes
            self.last = result, not enough(weight)
            if self.last[1]:
                weight = _ball(view, targets, rows, self.said[sources[-1]] if carried else None)
                if weight is None or not enough(weight):
                    why = "no unit was found that leaves fewer errors"
                    raise _NoProgress(why if self.quadratic else f"{why}; quadratic=True has one for any samples")
        first = 0 if deep else self.inputs.seen.shape[1]
        own = self.inputs.seen.new_zeros(self.inputs.seen.shape[1]) if deep else weight[:first]
        sourced = dict(zip(sources, weight[first:-1].tolist(), strict=True))
        self.units.append(Unit(own, float(weight[-1]), sourced))
        self.said.append(decide(seen @ weight))
        return len(self.units) - 1

    def record(self, role: str, net: ThresholdNet | int) -> int:
        """Note a step to a net, or to the one in which a unit answers; return its errors."""
        if isinstance(net, int):
            net = ThresholdNet.of(self.units, self.X.shape[1], quadratic=self.quadratic, answer=net)
        before, self.wrong = self.wrong, net.predict(self.X) != self.y
        errors, changed = int(self.wrong.sum()), [torch.nonzero(where)[:, 0] for where in (before & ~self.wrong, self.wrong & ~before)]
        self.steps.append(BuildStep(role, net, errors, *changed, *self.last))
        self.log(len(self.steps), errors, len(self.y))
        return errors

    def tower(self, height: int = 1) -> None:
        """Add units that see the inputs and the last ``height`` units."""
        errors = len(self.y) + 1
        while errors:
            count = len(self.units)
            errors = self.record("next unit", self.train(self.y, self.all, errors - 1, range(count)[-height:]))

    def pyramid(self) -> None:
        """Add units that see the inputs and all units."""
        self.tower(self.most)

    def upstart(self) -> None:
        """Add daughters to units that are wrong, each for the samples on which its mother says the same."""
        self.record("first unit", self.train(self.y, self.all, len(self.y)))
        work = [(0, self.all, self.y)]
        while work:
            unit, rows, targets = work[-1]
            said = self.said[unit][rows]
            wrong = said != targets[rows]
            if not wrong.any():
                work.pop()
                continue
            side = int(said[wrong].max())
            part, turned = rows[said == side], torch.where(targets == side, -1, 1)
            daughter = self.train(turned, part, int(wrong[said == side].sum()) - 1)
            own = self.units[unit]
            weight = -side * (self.score(unit).abs().max().item() + 1)  # together with the bias more than any score
            self.units[unit] = own._replace(bias=own.bias + weight, sources={**own.sources, daughter: weight})
            for mother, *_ in reversed(work):
                self.said[mother] = decide(self.score(mother))
            work.append((daughter, part, turned))
            self.record(f"daughter of unit {unit + 1} where it says {side:+d}", 0)

    def score(self, unit: int) -> Tensor:
        """Return the scores of a unit on all samples, (N,)."""
        weight, bias, sources = self.units[unit]
        return self.inputs.seen @ weight + bias + sum(value * self.said[k] for k, value in sources.items())

    def tiling(self) -> None:
        """Add layers, until the master of one of them is always right."""
        below, errors, layer = list[int](), len(self.y) + 1, 0
        while True:
            master, layer = self.train(self.y, self.all, errors - 1, below, bool(below)), layer + 1
            if not (errors := self.record(f"master of layer {layer}", master)):
                return
            units = [master]  # which stays the last
            while len(rows := self.mixed(units)):
                units.insert(0, self.train(self.y, rows, None, below, bool(below)))
                self.record(f"unit of layer {layer} that divides {len(rows)} samples", master)
            below = units

    def mixed(self, units: list[int]) -> Tensor:
        """Return the smallest set of samples of both classes of which all these units say the same."""
        _, group = torch.stack([self.said[k] for k in units], 1).unique(dim=0, return_inverse=True)
        sizes = group.bincount()
        sizes[group.bincount(self.y.double()).abs() == sizes] = len(group) + 1  # these are of one class
        return torch.nonzero(group == sizes.argmin())[:, 0] if sizes.min() <= len(group) else group[:0]

    def madaline(self, hidden: Sequence[int], seed: int) -> None:
        """Turn hidden units of small scores where that makes a wrong sample right, epoch by epoch."""
        net = ThresholdNet(self.X.shape[1], (*hidden, 1), quadratic=self.quadratic, init="uniform", seed=seed, dtype=torch.float64)
        widths = (self.inputs.seen.shape[1], *net.sizes)
        parts = [
            torch.cat((layer.weight[:, -width:], layer.bias[:, None]), 1).detach().numpy()
            for layer, width in zip(net.layers, widths, strict=False)
        ]

        def run(x: Any, at: int = -1, turned: Any = ()) -> tuple[int, list[Any], list[Any]]:
            seen, scores = [np.append(x, 1.0)], []
            for k, part in enumerate(parts):
                scores.append(part @ seen[-1])
                said = np.where(scores[-1] >= 0, 1.0, -1.0)
                if k == at:
                    said[list(turned)] *= -1
                seen.append(np.append(said, 1.0))
            return int(seen[-1][0]), scores, seen

        for epoch in range(1, self.epochs + 1):
            for i in torch.randperm(len(self.y), generator=self.random).tolist():
                x, label = self.inputs.seen[i].numpy(), int(self.y[i])
                said, scores, seen = run(x)
                if said == label:
                    continue
                at, turned = len(hidden), (0,)
                for k in range(len(hidden)):
                    order = np.argsort(np.abs(scores[k])).tolist()
                    trials = (*combinations(order, 1), *combinations(order, 2))
                    found = [trial for trial in trials if run(x, k, trial)[0] == label]
                    if found: 
                        at, turned = k, found[0]
                        break
                for k in turned:  # by LMS: the score becomes ±1 on the other side
                    goal = -1.0 if scores[at][k] >= 0 else 1.0
                    parts[at][k] += (goal - scores[at][k]) * seen[at] / (seen[at] @ seen[at])
                self.updates += len(turned)
            net = copy.deepcopy(net)
            with torch.no_grad():
                for layer, part in zip(net.layers, parts, strict=True):
                    layer.weight.zero_()
                    layer.weight[:, 1 - part.shape[1]:], layer.bias[:] = torch.from_numpy(part[:, :-1]), torch.from_numpy(part[:, -1])
            if not self.record(f"epoch {epoch}", net):
                return
        raise _NoProgress(f"max_epochs={self.epochs} is reached; other seeds or more hidden units may do better")


def _ball(view: _View, targets: Tensor, rows: Tensor, carried: Tensor | None) -> Tensor | None:
    """Return weights and bias of a unit that turns round what is said in a ball, the one that corrects most.

    Let a be the largest squared distance of a sample from the centre p inside the ball, b the smallest outside, M the
    largest of all. With D = (M + b)/2 and c = (M − a)/2, the score D − ‖x − p‖² + c·o has the sign of o = ±1 outside,
    and is positive inside; so does the opposite for −1.
    """
    points, seen, norm, constant = view
    now = torch.full_like(targets, -1) if carried is None else carried
    wrong = rows[now[rows] != targets[rows]][:_CENTRES]
    if norm is None:
        return None
    distance = torch.cdist(points[wrong], points[rows], compute_mode="donot_use_mm_for_euclid_dist").square()
    near, order = distance.sort(1)
    side, gap = targets[wrong], near.diff(dim=1)
    fits = torch.where(targets[rows][order] == side[:, None], 1.0, -1.0)
    gain = fits.masked_fill(now[rows][order] == side[:, None], 0.0).cumsum(1)[:, :-1]
    value = (gain + gap / (2 * gap.max())).masked_fill(gap <= 0, -torch.inf)  # of equal gains the widest gap
    k, size = divmod(int(value.argmax()), gap.shape[1])
    p, inside, outside, farthest = points[wrong[k]], near[k, size], near[k, size + 1], near[k, -1]
    weight = torch.cat((-norm, ((farthest + outside) / 2 - p @ p - constant)[None]))
    weight[: len(p)] += 2 * p
    weight *= side[k]
    weight[-1 if carried is None else -2] += (inside - farthest) / 2 * (1 if carried is None else -1)
    return weight
