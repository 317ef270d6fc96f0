"""Sweeps: many runs of the rule over the same data, to compare the mistakes with the bound."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import Data, check_int, check_labels, check_number, require_packages
from torchperc.rules.conventions import Verdict
from torchperc.rules.make_problem import dtype_of, zero_net
from torchperc.rules.problem import Problem, Weights
from torchperc.rules.trainer import RuleTrainer
from torchperc.samples import parallel
from torchperc.samples.mapped import as_samples


class Member(NamedTuple):
    """One run of a sweep: the row of ``orders`` or the seed of its shuffling, its learning rate and margin."""

    order: int | None
    seed: int | None
    lr: float
    margin: float


@dataclass(frozen=True, eq=False, repr=False)
class Sweep:
    """The results of a sweep, one per member.

    Args:
        members: what was different about each.
        mistakes: per member: (M,).
        epochs: per member: (M,).
        verdicts: how each ended.
        weight: the last weights: (M, K, d), K = 1 for two classes.
        bias: (M, K).
        radius: R, the length of the longest sample, the bias step included.
        margins: of each member's last weights, the bias in the norm; negative where they do not separate.

    Example:
        >>> import torchperc as tp
        >>> sweep = tp.sweep(*tp.data.gate("AND"), seeds=range(100))
        >>> sweep
        Sweep(100 runs, 100 separated; mistakes 13 to 22, median 19; bound 51)
        >>> int(sweep.mistakes.max()) <= sweep.bound
        True
    """

    members: tuple[Member, ...]
    mistakes: Tensor
    epochs: Tensor
    verdicts: tuple[Verdict, ...]
    weight: Tensor
    bias: Tensor
    radius: float
    margins: Tensor
    _trainers: tuple[RuleTrainer, ...]

    def __len__(self) -> int:
        return len(self.members)

    def __repr__(self) -> str:
        separated = sum(verdict is Verdict.SEPARATED for verdict in self.verdicts)
        low, middle, high = (int(self.mistakes.double().quantile(q)) for q in (0.0, 0.5, 1.0))
        mistakes = f"mistakes {low} to {high}, median {middle}; bound {self.bound:.0f}"
        return f"Sweep({len(self)} runs, {separated} separated; {mistakes})"

    @property
    def gamma(self) -> float:
        """The largest margin that any member reached; 0 if none separates."""
        return max(0.0, float(self.margins.max()))

    @property
    def bound(self) -> float:
        """The largest of the members' bounds, see :meth:`bounds`."""
        return float(self.bounds().max())

    def bounds(self, gamma: float | None = None) -> Tensor:
        """The mistake bound of each member, by its rule; infinite if γ is unknown: (M,).

        Args:
            gamma: a margin that some unit vector has on the data; by default the largest that a member reached.
        """
        best = self.gamma if gamma is None else check_number("gamma", gamma, above=0)
        found = [each.rule.bound(self.radius**2, best, each.lr) if best else math.inf for each in self._trainers]
        return torch.tensor(found, dtype=torch.float64)

    def trainer(self, m: int) -> RuleTrainer:
        """Return a trainer that repeats member m's run."""
        return self._trainers[m]


def sweep(
    X: Data,
    y: Data,
    *,
    orders: Data | None = None,
    seeds: Sequence[int] | None = None,
    lr: float | Sequence[float] = 1.0,
    margin: float | Sequence[float] = 0.0,
    tie: str = "update",
    bias_step: str = "unit",
    max_epochs: int = 100,
    num_classes: int | None = None,
    dtype: torch.dtype | None = None,
    n_jobs: int | None = None,
    rule: Any = None,
) -> Sweep:
    """Run the rule from zero weights in every combination of order, learning rate and margin.

    Each member is the run that :class:`RuleTrainer` makes with the same options, see :meth:`Sweep.trainer`.

    Args:
        X: samples, dense or CSR.
        y: labels −1/+1, or class indices with ``num_classes``.
        orders: sample numbers per row, presented in this order in every epoch; the given order by default.
        seeds: instead of ``orders``, of runs that shuffle in every epoch.
        lr: one learning rate or several.
        margin: one margin or several.
        tie, bias_step, max_epochs: as for :class:`RuleTrainer`.
        num_classes: K, for class indices.
        dtype: of the arithmetic; that of X if it is floating, else torch's default.
        n_jobs: number of joblib workers (−1: all), of the backend that ``joblib.parallel_config`` names. By default
            this process runs the members on a thread per core.
        rule: of all members, as for :class:`RuleTrainer`.

    Shape:
        X (N, d), y (N,), orders (P, N); M is the product of the numbers of orders, learning rates and margins.

    Example:
        >>> import torchperc as tp
        >>> X, y = tp.data.gate("OR")
        >>> sweep(X, y, orders=[[0, 1, 2, 3], [3, 2, 1, 0]], lr=[1, 0.5]).mistakes
        tensor([9, 9, 7, 7])
    """
    rows = as_samples(X, dtype=dtype_of(X, dtype))
    labels = check_labels(y, len(rows), num_classes).cpu().numpy()
    if seeds is not None and orders is not None:
        raise ValueError("orders and seeds cannot be combined; give one of them")
    starts: list[Any] = [(k, None, order) for k, order in enumerate(["given"] if orders is None else orders)]
    if seeds is not None:
        starts = [(None, check_int("seeds", seed, at_least=0), "shuffled") for seed in seeds]
    choices = itertools.product(starts, *(np.ravel(values).tolist() for values in (lr, margin)))
    runs = [(Member(number, seed, rate, m), order) for (number, seed, order), rate, m in choices]
    if not runs:
        raise ValueError("orders, seeds, lr and margin must not be empty")
    make = partial(RuleTrainer, max_epochs, tie=tie, bias_step=bias_step, rule=rule)
    trainers = tuple(make(m.lr, order=order, seed=m.seed or 0, margin=m.margin) for m, order in runs)
    problem, _, ids = trainers[0].problem_for(zero_net(rows, num_classes), rows, labels, None, None, 1.0)
    run = partial(_run, problem=problem)
    if n_jobs is None:
        with ThreadPoolExecutor(parallel.threads(None)) as pool:
            outcomes = list(pool.map(run, trainers))
    else:
        parallel.threads(n_jobs)  # refuses what is no number of workers
        require_packages("n_jobs", "joblib")
        import joblib

        outcomes = joblib.Parallel(n_jobs=n_jobs)(joblib.delayed(run)(trainer) for trainer in trainers)
    mistakes, epochs, verdicts, weights, biases, margins = zip(*outcomes, strict=True)
    radius, reached = math.sqrt(problem.squared_radius(ids)), torch.tensor(margins, dtype=torch.float64)
    figures = torch.tensor(mistakes), torch.tensor(epochs), verdicts, torch.stack(weights), torch.stack(biases)
    return Sweep(tuple(member for member, _ in runs), *figures, radius, reached, trainers)


def _run(trainer: RuleTrainer, problem: Problem) -> tuple[int, int, Verdict, Tensor, Tensor, float]:
    """Return mistakes, epochs, verdict, weight, bias and margin of one member."""
    net = zero_net(problem.samples, problem.num_classes)
    result = trainer.fit(net, problem.samples, problem.y)
    weights = Weights(*(values.detach() for values in net.parameters()))
    norm = problem.norm(weights)
    margin = float(problem.functional_margins(weights).min()) / norm if norm else 0.0
    return result.mistakes, result.epochs, result.verdict, *weights, margin
