"""Sweeps: thousands of runs of the rule over the same data, to compare the mistakes with the bound."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchperc import _checks as checks
from torchperc.nn import functional as tpf
from torchperc.rules.conventions import BIAS_STEPS, ENGINES, TIES, Verdict
from torchperc.rules.engines import compiled
from torchperc.rules.engines.choice import rule_engine_name
from torchperc.rules.engines.reference import Task
from torchperc.rules.engines.rounding import nearness
from torchperc.rules.engines.triton import ManyRuns
from torchperc.rules.models import LinearModel
from torchperc.rules.problem import check_steps, dtype_of, learning_margin, with_bias_step, zero_net
from torchperc.rules.spaces import LinearSpace, Space, Weights
from torchperc.rules.trainer import RuleTrainer
from torchperc.samples import compiling, jobs
from torchperc.samples.parts import as_rows
from torchperc.samples.rows import Rows

_NUMBERS = 2**22
_NARROW, _COPIED = 128, 2**22  # features and bytes of samples up to which they are copied, signed and padded
_ORDERS = 2**27  # sample numbers in the orders of one launch: 1 GB
_VERDICTS = (Verdict.SEPARATED, Verdict.CYCLING, Verdict.BUDGET)


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
        best = self.gamma if gamma is None else checks.number("gamma", gamma, above=0)
        extra = torch.tensor([2 * member.margin / member.lr for member in self.members], dtype=torch.float64)
        squared = self.radius**2 + extra
        return squared / best**2 if best else torch.full_like(squared, torch.inf)

    def trainer(self, m: int) -> RuleTrainer:
        """A trainer that makes member m's run by itself, with its log."""
        return _solo(self.members[m], self._orders, self._options)


def sweep(
    X: checks.Data,
    y: checks.Data,
    *,
    orders: checks.Data | None = None,
    seeds: Sequence[int] | None = None,
    lr: float | Sequence[float] = 1.0,
    margin: float | Sequence[float] = 0.0,
    tie: str = "update",
    bias_step: str = "unit",
    max_epochs: int = 100,
    num_classes: int | None = None,
    dtype: torch.dtype | None = None,
    n_jobs: int | None = None,
    engine: str = "auto",
) -> Sweep:
    """Run the rule from zero weights in every combination of order, learning rate and margin; each equals its solo run.

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
        n_jobs: spread the runs by joblib: over so many processes, −1 for all cores, or as a context says, such as
            ``joblib.parallel_config("dask")`` for many machines; each run is the same to the bit. By default one
            process makes them all on its cores, unless there is such a context.
        engine: as for :class:`RuleTrainer`. ``"compiled"`` makes all runs on all cores, ``"triton"`` an epoch of all
            runs by one launch on a GPU, other engines one run after the other; ``"auto"`` is the fastest of them.

    Shape:
        X (N, d), y (N,), orders (P, N); M is the product of the numbers of orders, learning rates and margins.

    Example:
        >>> import torchperc as tp
        >>> X, y = tp.data.gate("OR")
        >>> sweep(X, y, orders=[[0, 1, 2, 3], [3, 2, 1, 0]], lr=[1, 0.5]).mistakes
        tensor([9, 9, 7, 7])
    """
    options = {
        "tie": checks.one_of("tie", tie, TIES),
        "bias_step": checks.one_of("bias_step", bias_step, BIAS_STEPS),
        "max_epochs": checks.whole("max_epochs", max_epochs, at_least=1),
        "engine": checks.one_of("engine", engine, ENGINES),
    }
    rows = as_rows(X, dtype=dtype_of(X, dtype))
    net = zero_net(rows, num_classes)
    space = with_bias_step(LinearSpace(rows, num_classes, 0.0), net, bias_step, torch.arange(len(rows)))
    labels = checks.labels(y, len(rows), num_classes).to(rows.device)
    if seeds is not None and orders is not None:
        raise ValueError("orders and seeds are two ways to order the samples; give one of them")
    table = None if seeds is not None else _table(orders, len(labels))
    members = _members(table, seeds, lr, margin)
    for step, least in {(member.lr, member.margin) for member in members}:
        RuleTrainer(lr=step, margin=least, tie=tie)  # checks the arguments
        check_steps(step, torch.ones(1, dtype=torch.float64), space)
    if engine == "triton" and n_jobs is not None:
        raise ValueError(
            f"n_jobs={n_jobs} spreads runs over processes, engine='triton' makes them on one device; leave one out"
        )
    if engine != "triton" and jobs.workers(n_jobs):
        sent = None if table is None else table.numpy()
        found = jobs.spread(
            _elsewhere, members, n_jobs, _sent(space.rows), labels.cpu().numpy(), sent, num_classes, options
        )
        results, weight, bias = (
            torch.cat([torch.from_numpy(part) for part in parts]) for parts in zip(*found, strict=True)
        )
    else:
        results, weight, bias = _run(space, labels, table, members, options)
    mistakes, epochs, codes = results.unbind(1)
    verdicts = tuple(_VERDICTS[code] for code in codes.tolist())
    weight, bias = weight.to(rows.device), bias.to(rows.device)
    radius, margins = math.sqrt(space.squared_radius()), _margins(space, labels, weight, bias).cpu()
    return Sweep(members, mistakes, epochs, verdicts, weight, bias, radius, margins, options, table)


def _run(
    space: Space, y: Tensor, table: Tensor | None, members: tuple[Member, ...], options: dict[str, Any]
) -> tuple[Tensor, Tensor, Tensor]:
    engine, way = options["engine"], _one_by_one
    if rule_engine_name(engine, space) == "triton":
        way = _on_device
    elif engine in ("auto", "compiled") and compiled.obstacle(space) is None and _draws_as_torch():
        way = _together
    return way(space, y, table, members, options)


def _sent(rows: Rows) -> Any:
    """Samples as arrays, which joblib maps into the memory of its processes."""
    X = rows.raw()
    return X.cpu().numpy() if isinstance(X, Tensor) else X


def _elsewhere(
    members: tuple[Member, ...], X: Any, y: Any, table: Any, classes: int | None, options: dict[str, Any]
) -> list[np.ndarray[Any, Any]]:
    """Some members, made in another process from arrays."""
    X = np.asarray(X) if isinstance(X, np.ndarray) else X  # mapped, but not larger than memory
    rows = as_rows(X, dtype=dtype_of(X, None))
    net = zero_net(rows, classes)
    space = with_bias_step(LinearSpace(rows, classes, 0.0), net, options["bias_step"], torch.arange(len(rows)))
    orders = None if table is None else torch.from_numpy(np.array(table))
    return [part.numpy() for part in _run(space, torch.from_numpy(np.array(y)), orders, members, options)]


def _table(orders: checks.Data | None, count: int) -> Tensor:
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
        starts = [(None, checks.whole("seeds", seed, at_least=0)) for seed in seeds or ()]  # type: ignore[misc]
    if not starts or not rates or not margins:
        raise ValueError("orders, seeds, lr and margin must not be empty")
    return tuple(Member(*start, float(rate), float(m)) for start, rate, m in itertools.product(starts, rates, margins))


def _several(name: str, value: Any) -> list[float]:
    values = list(value) if np.ndim(value) else [value]
    return [checks.number(name, v.item() if isinstance(v, Tensor) else v) for v in values]


def _solo(member: Member, table: Tensor | None, options: dict[str, Any]) -> RuleTrainer:
    order = "shuffled" if table is None else table[member.order]
    return RuleTrainer(order=order, seed=member.seed or 0, lr=member.lr, margin=member.margin, **options)


@cache
def _draws_as_torch() -> bool:
    """Whether the compiled permutations are those of this torch."""
    from torchperc.rules.loops import many

    generator = torch.Generator().manual_seed(5489)
    theirs = torch.stack([torch.randperm(700, generator=generator) for _ in range(2)])
    return np.array_equal(many.permutations(5489, 700, 2), theirs.numpy())


def _together(
    space: Space, y: Tensor, table: Tensor | None, members: tuple[Member, ...], options: dict[str, Any]
) -> tuple[Tensor, Tensor, Tensor]:
    from torchperc.rules.loops import many

    rows, classes = space.rows, space.outputs
    laid = compiling.laid_out(torch.zeros(classes, rows.width, dtype=rows.dtype), rows.sparse).loop
    signed = _signed(rows, y, many.EIGHT) if classes == 1 else np.empty((0, 0), laid.dtype)
    size = signed.shape[1] or laid.size
    states = np.zeros((len(members), size + classes), laid.dtype)
    results = np.empty((len(members), 3), np.int64)
    orders = np.empty((1, 0), np.uint64) if table is None else table.numpy().view(np.uint64)
    which = np.array([member.order or 0 for member in members])
    seeds = np.array([member.seed or 0 for member in members])
    kinds = {member[2:] for member in members}
    scaled = {(lr, margin): learning_margin(margin, replace(space, scale=lr)) for lr, margin in kinds}
    margins = np.array([scaled[member[2:]] for member in members])
    given = (rows.plain(), signed, y.numpy().astype(laid.dtype), y.numpy(), orders, which, seeds, margins)
    near, epochs = nearness(space), int(options["max_epochs"])
    settings = (compiling.TIES[options["tie"]], float(space.bias_scale), epochs, near)
    if classes == 1:
        runs = partial(many.sweep_one, *given, *settings, states, results)
    else:
        runs = partial(many.sweep_many, *given, *settings, laid.shape, states, results)
    compiling.on_all_cores(runs, len(members))
    if (results[:, 0] < 0).any():
        raise checks.weights_overflow()
    weight = torch.from_numpy(states[:, : laid.size].reshape(len(members), *np.atleast_2d(laid).shape))
    if rows.sparse and classes > 1:
        weight = weight[:, :, :classes].transpose(1, 2)
    scales = torch.tensor([member.lr for member in members], dtype=rows.dtype)[:, None]
    bias = torch.from_numpy(states[:, size:]) * scales
    return torch.from_numpy(results), weight.contiguous() * scales[:, None], bias


def _signed(rows: Rows, y: Tensor, multiple: int) -> np.ndarray[Any, Any]:
    """Dense rows times their labels, padded to whole vectors; none where the copy would be large or not worth it."""
    if rows.sparse or rows.width > _NARROW or len(rows) * rows.row_bytes > _COPIED:
        return np.empty((0, 0), rows.plain()[0].dtype)
    X = rows.plain()[0]
    signed = np.zeros((len(X), -(-rows.width // multiple) * multiple), X.dtype)
    np.multiply(X, y.numpy()[:, None], out=signed[:, : rows.width], casting="unsafe")
    return signed


def _on_device(
    space: Space, y: Tensor, table: Tensor | None, members: tuple[Member, ...], options: dict[str, Any]
) -> tuple[Tensor, Tensor, Tensor]:
    """All runs by one launch per epoch, if their orders fit beside each other; otherwise some runs after the others."""
    size = max(1, _ORDERS // len(y))
    groups = [members[first : first + size] for first in range(0, len(members), size)]
    results, weights = zip(*(_launched(space, y, table, group, options) for group in groups), strict=True)
    weight, bias = (torch.cat(parts) for parts in zip(*((each.weight, each.bias) for each in weights), strict=True))
    scales = torch.tensor([member.lr for member in members], dtype=weight.dtype, device=weight.device)[:, None]
    return torch.cat(results), weight * scales[:, None], bias * scales


def _launched(
    space: Space, y: Tensor, table: Tensor | None, members: tuple[Member, ...], options: dict[str, Any]
) -> tuple[Tensor, Weights]:
    """Mistakes, epochs and verdict of each run: (M, 3); and their weights before scaling."""
    coefs = torch.ones(1, dtype=torch.float64, device=y.device).expand(len(y))
    margins = [learning_margin(member.margin, replace(space, scale=member.lr)) for member in members]
    runs = ManyRuns([Task(space, y, coefs, options["tie"], margin) for margin in margins])
    starts = dict.fromkeys(member[0] if table is not None else member[1] for member in members)
    place = {start: number for number, start in enumerate(starts)}
    which = [place[member[0] if table is not None else member[1]] for member in members]
    generators = [torch.Generator().manual_seed(int(seed or 0)) for seed in starts] if table is None else []
    orders = y[None] if table is None else table[list(starts)].to(y.device)
    seen, codes = [{state} for state in runs.digests()], [_VERDICTS.index(Verdict.BUDGET)] * len(members)
    mistakes, epochs, going = [0] * len(members), [0] * len(members), list(range(len(members)))
    while going and max(epochs) < options["max_epochs"]:
        if generators:
            orders = torch.stack([torch.randperm(len(y), generator=each) for each in generators]).to(y.device)
        found, states = runs.epoch(orders, which, going), runs.digests()
        for m in going:
            mistakes[m], epochs[m] = mistakes[m] + found[m], epochs[m] + 1
            if not found[m] and (options["tie"] != "strict" or not runs.engine(m).wrong_decisions().any()):
                codes[m] = _VERDICTS.index(Verdict.SEPARATED)
            elif not generators or not found[m]:
                if states[m] in seen[m]:
                    codes[m] = _VERDICTS.index(Verdict.CYCLING)
                seen[m].add(states[m])
        going = [m for m in going if _VERDICTS[codes[m]] is Verdict.BUDGET]
    return torch.tensor([mistakes, epochs, codes]).T, runs.weights


def _one_by_one(
    space: Space, y: Tensor, table: Tensor | None, members: tuple[Member, ...], options: dict[str, Any]
) -> tuple[Tensor, Tensor, Tensor]:
    outcomes, weights, biases = [], [], []
    for member in members:
        net = zero_net(space.rows, space.classes)
        result = _solo(member, table, options).fit(net, space.rows.raw(), y)
        outcomes.append((result.mistakes, result.epochs, _VERDICTS.index(result.verdict)))
        assert isinstance(result.model, LinearModel)
        weights.append(result.model.weight)
        biases.append(result.model.bias)
    return torch.tensor(outcomes), torch.stack(weights), torch.stack(biases)


def _margins(space: Space, y: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The smallest slack of each member over the length of its weights, some members at a time: (M,)."""
    size = max(1, _NUMBERS // (len(y) * space.outputs))
    parts = zip(weight.split(size), bias.split(size), strict=True)
    slack = torch.cat([_slacks(space, y, *part) for part in parts])
    offset = bias.double().square().sum(1) / space.bias_scale if space.bias_scale else 0.0
    length = (weight.double().square().sum((1, 2)) + offset).sqrt()
    return torch.where(length > 0, slack / length, 0.0)


def _slacks(space: Space, y: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    scores = space.rows.scores(weight.flatten(0, 1), bias.flatten()).double()
    if space.classes is not None:
        scores = scores.unflatten(1, (len(weight), space.classes))
    return tpf.slacks(scores, y[:, None].expand(-1, len(weight))).amin(0)
