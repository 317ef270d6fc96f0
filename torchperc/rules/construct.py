"""Networks built by the rule: units are added until no sample is wrong, each trained by the pocket algorithm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import combinations, count
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from torchperc._checks import Data, check_choice, check_int, check_labels
from torchperc.nn.functional import decide
from torchperc.nn.modules import Perceptron
from torchperc.nn.threshold import ThresholdNet, ball_unit
from torchperc.rules.run import RuleResult
from torchperc.rules.trainer import RuleTrainer
from torchperc.samples import convert

METHODS = ("tower", "pyramid", "upstart", "tiling", "madaline")


class BuildStep(NamedTuple):
    """An added unit, or an epoch of MADALINE Rule II, and the net after it."""

    role: str  # what the unit is for
    net: ThresholdNet  # on the CPU
    wrong: Tensor  # the samples that the net decides wrongly, by number
    corrected: Tensor  # the samples that were wrong before, or not decided, and are right now
    result: RuleResult | None  # the unit's run with its log, unless all its targets are equal
    constructed: bool  # whether the unit is that of the proof, because the pocket's leaves too many errors

    @property
    def errors(self) -> int:
        """The number of samples that the net decides wrongly."""
        return len(self.wrong)


@dataclass(frozen=True, eq=False)
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
    updates: int
    reason: str
    steps: tuple[BuildStep, ...] = field(repr=False)


def build(
    X: Data,
    y: Data,
    method: str = "tower",
    *,
    hidden: int | None = None,
    max_units: int = 200,
    max_epochs: int = 100,
    seed: int = 0,
    log: Callable[[int, int], object] | None = None,
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
    hyperplane divides any sample from all others, as on the corners of a cube; on other samples, ‖x‖² is appended to
    the inputs, with which one does (Parekh, Yang & Honavar 2000). Each unit of a tower, pyramid or upstart and each
    master leaves fewer errors than before. Where the pocket finds no such unit, it is constructed: it says what was
    said before, except in the ball around a wrong sample that corrects most. Rule II has no theorem.

    Args:
        X: samples (N, d).
        y: labels −1/+1.
        method: as above.
        hidden: the number of hidden units of ``"madaline"``, by default 2.
        max_units: maximum number of units.
        max_epochs: of each unit's training, shuffled; or of Rule II.
        seed: random seed of the orders, and of the first weights of Rule II.
        log: called with (step, errors) after every step, such as a logger's method.

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
    if log is not None and not callable(log):
        raise TypeError(f"log must be a function of (step, errors), found {type(log).__name__}")
    most, epochs = check_int("max_units", max_units, at_least=1), check_int("max_epochs", max_epochs, at_least=1)
    width = check_int("hidden", 2 if hidden is None else hidden, at_least=1)
    if method == "madaline" and width >= most:
        raise ValueError(f"hidden={width} makes {width + 1} units, but max_units={most}; raise it")
    random = torch.Generator().manual_seed(check_int("seed", seed, at_least=0))
    given = convert.features(X, dtype=torch.float64, convert=True)
    samples, labels = given.cpu(), check_labels(y, len(given), None).cpu()
    group, sizes = _mixed_groups(samples, labels)
    if len(mixed := torch.nonzero(sizes[group] <= len(labels))[:, 0]):
        i, j = mixed[0], torch.nonzero((group == group[mixed[0]]) & (labels != labels[mixed[0]]))[0, 0]
        pair = f"X[{i}] and X[{j}] are equal, but y is {labels[i]} and {labels[j]}"
        raise ValueError(f"{pair}; {len(mixed)} samples contradict one another, leave them out")
    units = _Units(samples, labels, most, epochs, random)
    grow = {"tower": units.tower(1), "pyramid": units.tower(most), "madaline": units.madaline(width)}
    steps, before, reason = list[BuildStep](), units.all, ""
    try:
        for role, weight in {**grow, "upstart": units.upstart(), "tiling": units.tiling()}[method]:
            net = ThresholdNet(samples.shape[1], len(weight), quadratic=units.quadratic, dtype=torch.float64)
            net.load_state_dict({"weight": weight[:, 1:-1], "bias": weight[:, 0]})
            wrong = torch.nonzero(net.predict(samples) != labels)[:, 0]
            steps.append(BuildStep(role, net, wrong, before[~torch.isin(before, wrong)], *units.made))
            before, units.errors = wrong, len(wrong)
            if log is not None:
                log(len(steps), units.errors)
            if not units.errors:
                break
    except _NoProgressError as stop:
        reason = str(stop)
    best = min(steps, key=lambda step: step.errors)
    return BuildResult(method, deepcopy(best.net).to(given.device), best.errors, units.updates, reason, tuple(steps))


class _NoProgressError(Exception):
    """Why building ends with errors left."""


def _mixed_groups(rows: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return which group of equal rows each row is in, and sizes of groups, N + 1 for those of one class."""
    _, group = rows.unique(dim=0, return_inverse=True)
    sizes = group.bincount()
    return group, sizes.masked_fill(sizes == group.bincount(y.double()).abs(), len(y) + 1)


class _Units:
    """Units of a net under construction; each method adds some, yielding what the last is for and all weights.

    ``seen`` (N, 1 + m + K) holds 1, m inputs and what K units say of every sample, ``weight`` (K, 1 + m + K) the units.
    New units see the columns ``inputs``: 1 and ``points``, with ‖points‖² = seen[:, :len(norm)] · norm.
    """

    def __init__(self, X: Tensor, y: Tensor, most: int, epochs: int, random: torch.Generator) -> None:
        self.points, self.y, self.most, self.epochs, self.random = X, y, most, epochs, random
        self.all, self.errors, self.updates = torch.arange(len(y)), len(y) + 1, 0
        self.made: tuple[RuleResult | None, bool] = None, False
        squares, self.seen = X.square().sum(1, keepdim=True), F.pad(X, (1, 0), value=1.0)
        if not squares.isfinite().all():
            raise ValueError(f"X holds {X.abs().max():g}, of which the square is too large; scale X down")
        fitted = torch.linalg.lstsq(self.seen, squares, driver="gelsd").solution  # exact on the corners of a cube
        self.quadratic = bool((self.seen @ fitted - squares).abs().max() > 1e-10 * squares.max())
        self.norm = F.pad(X.new_ones(1), (X.shape[1] + 1, 0)) if self.quadratic else fitted[:, 0]
        self.seen = torch.cat((self.seen, squares[:, : self.quadratic]), 1)
        self.first = self.seen.shape[1]
        self.weight, self.inputs = X.new_zeros(0, self.first), [*range(self.first)]

    def add(self, targets: Tensor, rows: Tensor, allowed: int | None, units: Sequence[int] = ()) -> int:
        """Add a unit with at most ``allowed`` errors on rows, or one that divides them if it is ``None``.

        It sees the inputs and other units, by column. A constructed one says outside its ball what the last unit that
        it sees says, or −1 if there is none or it is to divide. Return its column.
        """
        if len(self.weight) == self.most:
            raise _NoProgressError(f"max_units={self.most} is reached")
        columns, labels = [*self.inputs, *units], targets[rows]
        seen, weight = self.seen[:, columns], self.points.new_zeros(len(columns))

        def enough() -> bool:
            said = decide(seen @ weight)[rows]
            return bool(said.min() < said.max()) if allowed is None else int((said != labels).sum()) <= allowed

        weight[0], self.made = labels[0], (None, False)
        if labels.min() < labels.max():
            seed = int(torch.randint(2**31, (), generator=self.random))
            trainer, net = RuleTrainer(self.epochs, order="shuffled", seed=seed), Perceptron(len(columns) - 1)
            part = torch.zeros(len(targets)).index_fill(0, rows, 1)
            result = trainer.fit(net.double(), seen[:, 1:], targets, sample_weight=part)
            best: Any = result.log.pocket("every")  # of all states
            weight, self.updates = torch.cat((best.bias, best.weight[0])), self.updates + result.mistakes
            self.made = replace(result, select="pocket", model=best), not enough()
            if not enough():
                now = None if allowed is None or columns[-1] < self.first else seen[:, -1]
                norm = F.pad(self.norm, (0, len(columns) - len(self.norm)))
                weight = ball_unit(self.points, norm, targets, rows, now)
            if not enough():
                raise _NoProgressError("no unit was found that leaves fewer errors; centre and scale X")
        self.weight = F.pad(self.weight, (0, 1, 0, 1))
        self.weight[-1, columns] = weight
        self.seen = torch.cat((self.seen, decide(seen @ weight)[:, None]), 1)
        return self.seen.shape[1] - 1

    def tower(self, height: int) -> Iterator[tuple[str, Tensor]]:
        """Add units that see the inputs and the last ``height`` units."""
        while True:
            self.add(self.y, self.all, self.errors - 1, range(self.first, self.seen.shape[1])[-height:])
            yield f"unit {len(self.weight)}", self.weight

    def upstart(self) -> Iterator[tuple[str, Tensor]]:
        """Add daughters, each for samples on which her mother says the same and is wrong on some."""
        work = [(self.add(self.y, self.all, len(self.y)), self.all, self.y)]
        yield "first unit", self.weight
        while work:
            mother, rows, targets = work[-1]
            said, weight = self.seen[rows, mother], self.weight[mother - self.first]
            if not (wrong := said != targets[rows]).any():
                work.pop()
                continue
            side = int(said[wrong].max())
            part, turned = rows[said == side], torch.where(targets == side, -1, 1)
            turn = -side * (float((self.seen @ weight).abs().max()) + 1)
            work.append((self.add(turned, part, int(wrong[said == side].sum()) - 1), part, turned))
            self.weight[mother - self.first, [0, -1]] += turn  # where the daughter says +1, twice, else not at all
            for unit, *_ in reversed(work[:-1]):
                self.seen[:, unit] = decide(self.seen @ self.weight[unit - self.first]).to(self.seen)
            order = [*range(self.first), *reversed(range(self.first, self.seen.shape[1]))]  # daughters before mothers
            yield f"daughter of unit {mother - self.first + 1} where it says {side:+d}", self.weight.flip(0)[:, order]
        raise _NoProgressError("scores are within rounding of 0; centre and scale X")

    def tiling(self) -> Iterator[tuple[str, Tensor]]:
        """Add layers until the master of one is right on all samples."""
        for layer in count(1):
            units = [self.add(self.y, self.all, self.errors - 1)]
            yield f"master of layer {layer}", (weight := self.weight)
            while True:
                group, sizes = _mixed_groups(self.seen[:, units], self.y)
                if (size := int(sizes.min())) > len(self.y):
                    break
                units.insert(0, self.add(self.y, torch.nonzero(group == sizes.argmin())[:, 0], None))
                yield f"unit of layer {layer} that divides {size} samples", weight  # the master says what the net says
            self.inputs, self.points = [0, *units], self.seen[:, units]
            self.norm = self.norm.new_full((1,), len(units))

    def madaline(self, hidden: int) -> Iterator[tuple[str, Tensor]]:
        """Train a net of fixed shape by MADALINE Rule II."""
        weight = 2 * torch.rand(hidden + 1, self.first + hidden + 1, dtype=torch.float64, generator=self.random) - 1
        weight[:-1, self.first :], weight[-1, 1 : self.first] = 0, 0
        first, last, x = weight[:-1, : self.first].numpy(), weight[-1, :-1].numpy(), self.seen.numpy()
        for epoch in range(1, self.epochs + 1):
            for i in torch.randperm(len(self.y), generator=self.random).tolist():
                scores, right = first @ x[i], bool(self.y[i] > 0)
                signs = np.where(scores >= 0, 1, -1)
                said = np.concatenate(([1], np.zeros(self.first - 1), signs))
                total, terms = last @ said, (last * said)[self.first :]
                if (total >= 0) == right:
                    continue
                order = np.abs(scores).argsort()
                trials = [list(trial) for size in (1, 2) for trial in combinations(order, size)]
                turned = next((trial for trial in trials if (total - 2 * terms[trial].sum() >= 0) == right), [])
                for k in turned:  # by least mean squares: the score becomes 1 on the other side
                    first[k] -= (scores[k] + signs[k]) / (x[i] @ x[i]) * x[i]
                if not turned:
                    last -= (total + (1 if total >= 0 else -1)) / (hidden + 1) * said
                self.updates += max(1, len(turned))
            yield f"epoch {epoch}", weight
        raise _NoProgressError(f"max_epochs={self.epochs} is reached; try another seed, or more hidden units")
