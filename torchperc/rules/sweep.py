"""Sweeps: many runs of the rule over the same data, to compare the mistakes with the bound."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import Data, check_choice, check_int, check_labels, check_number
from torchperc.nn import functional as tpf
from torchperc.rules.conventions import BIAS_STEPS, TIES, Verdict
from torchperc.rules.make_problem import bias_step_of, dtype_of, zero_net
from torchperc.rules.problem import Problem
from torchperc.rules.trainer import RuleTrainer
from torchperc.samples import parallel
from torchperc.samples.mapped import as_samples

_SCORES = 2**22  # computed at a time


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
    _options: dict[str, Any]
    _orders: Tensor | None

    def __len__(self) -> int:
        return len(self.members)

    def __repr__(self) -> str:
        separated = sum(verdict is Verdict.SEPARATED for verdict in self.verdicts)
        low, middle, high = (int(self.mistakes.double().quantile(q)) for q in (0.0, 0.5, 1.0))
        return (
            f"Sweep({len(self)} runs, {separated} separated; mistakes {low} to {high}, median {middle}; "
            f"bound {self.bound:.0f})"
        )

    @property
    def gamma(self) -> float:
        """The largest margin that any member reached; 0 if none separates."""
        return max(0.0, float(self.margins.max()))

    @property
    def bound(self) -> float:
        """The largest of the members' bounds, see :meth:`bounds`."""
        return float(self.bounds().max())

    def bounds(self, gamma: float | None = None) -> Tensor:
        """The mistake bound of each member, (R² + 2m/η)/γ²; infinite if γ is unknown: (M,).

        Args:
            gamma: a margin that some unit vector has on the data; by default the largest that a member reached.
        """
        best = self.gamma if gamma is None else check_number("gamma", gamma, above=0)
        extra = torch.tensor([2 * member.margin / member.lr for member in self.members], dtype=torch.float64)
        squared = self.radius**2 + extra
        return squared / best**2 if best else torch.full_like(squared, torch.inf)

    def trainer(self, m: int) -> RuleTrainer:
        """A trainer that makes member m's run by itself, with its log."""
        return _solo(self.members[m], self._orders, self._options)


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
) -> Sweep:
    """Run the rule from zero weights in every combination of order, learning rate and margin.

    Each member is the run that :class:`RuleTrainer` makes with the same options, see :meth:`Sweep.trainer`.

    Args:
        X: samples, dense or CSR.
        y: labels −1/+1, or class indices with ``num_classes``.
        orders: a permutation of the samples per row, the same in every epoch; the given order by default.
        seeds: instead of ``orders``, of runs that shuffle in every epoch.
        lr: one learning rate or several.
        margin: one margin or several.
        tie, bias_step, max_epochs: as for :class:`RuleTrainer`.
        num_classes: K, for class indices.
        dtype: of the arithmetic; that of X if it is floating, else torch's default.
        n_jobs: number of joblib workers (−1: all cores). By default one process runs the members on a thread per core,
            unless there is a context such as ``joblib.parallel_config("dask")``.

    Shape:
        X (N, d), y (N,), orders (P, N); M is the product of the numbers of orders, learning rates and margins.

    Example:
        >>> import torchperc as tp
        >>> X, y = tp.data.gate("OR")
        >>> sweep(X, y, orders=[[0, 1, 2, 3], [3, 2, 1, 0]], lr=[1, 0.5]).mistakes
        tensor([9, 9, 7, 7])
    """
    options = {
        "tie": check_choice("tie", tie, TIES),
        "bias_step": check_choice("bias_step", bias_step, BIAS_STEPS),
        "max_epochs": check_int("max_epochs", max_epochs, at_least=1),
    }
    rows = as_samples(X, dtype=dtype_of(X, dtype))
    beta = bias_step_of(zero_net(rows, num_classes), bias_step, rows, np.arange(len(rows)))
    labels = check_labels(y, len(rows), num_classes).to(rows.device)
    if seeds is not None and orders is not None:
        raise ValueError("orders and seeds are two ways to order the samples; give one of them")
    table = None if seeds is not None else _table(orders, len(labels))
    members = _members(table, seeds, lr, margin)
    for rate, slack in {(member.lr, member.margin) for member in members}:
        RuleTrainer(lr=rate, margin=slack, tie=tie)  # checks the arguments
    if parallel.joblib_workers(n_jobs):
        sent = rows.raw().cpu().numpy() if isinstance(rows.raw(), Tensor) else rows.raw()  # which joblib maps
        chunks = parallel.joblib_map(_run, members, n_jobs, sent, labels.cpu().numpy(), table, num_classes, options)
        outcomes = [outcome for chunk in chunks for outcome in chunk]
    else:
        outcomes = _run(members, rows, labels, table, num_classes, options)
    mistakes, epochs, verdicts, weights, biases = zip(*outcomes, strict=True)
    weight, bias = (torch.stack(values).to(rows.device) for values in (weights, biases))
    ones = np.ones(len(labels))
    problem = Problem(rows, labels.cpu().numpy(), num_classes, ones, ones, bias_step=beta)
    radius = math.sqrt(problem.squared_radius(np.arange(len(labels))))
    margins = _margins(problem, labels, weight, bias).cpu()
    counts = torch.tensor(mistakes), torch.tensor(epochs)
    return Sweep(members, *counts, verdicts, weight, bias, radius, margins, options, table)


def _run(
    members: Sequence[Member], X: Any, y: Any, table: Tensor | None, classes: int | None, options: dict[str, Any]
) -> list[tuple[int, int, Verdict, Tensor, Tensor]]:
    """Mistakes, epochs, verdict, weight and bias of each member, run on a thread per core."""
    X = np.asarray(X) if isinstance(X, np.memmap) else X  # joblib maps it, but it is not larger than memory
    rows = as_samples(X, dtype=dtype_of(X))

    def run(member: Member) -> tuple[int, int, Verdict, Tensor, Tensor]:
        net = zero_net(rows, classes)
        result = _solo(member, table, options).fit(net, rows, y)
        assert net.bias is not None
        return result.mistakes, result.epochs, result.verdict, net.weight.detach(), net.bias.detach()

    with ThreadPoolExecutor(parallel.cores()) as pool:
        return list(pool.map(run, members))


def _table(orders: Data | None, count: int) -> Tensor:
    if orders is None:
        return torch.arange(count)[None]
    table = np.asarray(orders)
    if table.dtype.kind not in "iu" or table.ndim != 2 or table.shape[1] != count:
        raise ValueError(
            f"orders must be rows of {count} sample numbers, one row per order, found {table.dtype} of shape "
            f"{table.shape}"
        )
    wrong = np.flatnonzero((np.sort(table, axis=1) != np.arange(count)).any(axis=1))
    if len(wrong):
        raise ValueError(
            f"orders[{int(wrong[0])}] is not a permutation; each row must hold every sample from 0 to {count - 1} once"
        )
    return torch.from_numpy(table.astype(np.int64))


def _members(table: Tensor | None, seeds: Sequence[int] | None, lr: Any, margin: Any) -> tuple[Member, ...]:
    rates, margins = (_several(name, value) for name, value in (("lr", lr), ("margin", margin)))
    if table is not None:
        starts = [(number, None) for number in range(len(table))]
    else:
        starts = [(None, check_int("seeds", seed, at_least=0)) for seed in seeds or ()]  # type: ignore[misc]
    if not starts or not rates or not margins:
        raise ValueError("orders, seeds, lr and margin must not be empty")
    return tuple(Member(*start, float(rate), float(m)) for start, rate, m in itertools.product(starts, rates, margins))


def _several(name: str, value: Any) -> list[float]:
    values = list(value) if np.ndim(value) else [value]
    return [check_number(name, v.item() if isinstance(v, Tensor) else v) for v in values]


def _solo(member: Member, table: Tensor | None, options: dict[str, Any]) -> RuleTrainer:
    order = "shuffled" if table is None else table[member.order]
    return RuleTrainer(order=order, seed=member.seed or 0, lr=member.lr, margin=member.margin, **options)


def _margins(problem: Problem, y: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return the smallest functional margin of each member over the norm of its weights: (M,)."""
    size = max(1, _SCORES // (len(y) * problem.outputs))
    parts = zip(weight.split(size), bias.split(size), strict=True)
    slack = torch.cat([_least_margins(problem, y, *part) for part in parts])
    offset = bias.double().square().sum(1) / problem.bias_step if problem.bias_step else 0.0
    length = (weight.double().square().sum((1, 2)) + offset).sqrt()
    return torch.where(length > 0, slack / length, 0.0)


def _least_margins(problem: Problem, y: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    scores = problem.samples.scores(weight.flatten(0, 1), bias.flatten()).double()
    if problem.num_classes is not None:
        scores = scores.unflatten(1, (len(weight), problem.num_classes))
    return tpf.slacks(scores, y[:, None].expand(-1, len(weight))).amin(0)
