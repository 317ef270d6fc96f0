"""Exact stochastic descent, one step per sample in order, without autograd: for linear nets and every head.

For a linear score s = w·x + b the gradient of any loss ℓ(s, y) is ℓ'(s)·x, so a step is w ← w − η·ℓ'(s)·x. A whole
pass of such steps is one call, by the same engines as the rule's: a plain loop, a compiled one, or blocks by matrix
products. Within a block, the slopes e solve e_i = ℓ'(S_i − η·Σ_{j<i} K_ij·e_j) with the Gram matrix K: for squares a
triangular system, for the others a triangular fixed point, reached by a few sweeps.

With weights c_i and a penalty the sample's loss is c_i·(ℓ(s, y) + ½·l2·‖w‖²), so that its step is
w ← (1 − η·c_i·l2)·w − η·c_i·ℓ'(s)·x: a sample of weight 2 takes a step twice as long.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from torchperc import _checks as checks
from torchperc.nn import derivatives
from torchperc.nn.heads import Head, PerceptronHead, RegressionHead, SquaredHead, labels_or_targets, loss_code
from torchperc.nn.modules import LinearNet as LinearNet
from torchperc.rules.conventions import STEP_ENGINES
from torchperc.rules.engines.blocked import BlockedEngine
from torchperc.rules.engines.choice import engine_name
from torchperc.rules.orders import sample_numbers
from torchperc.rules.problem import linear_problem
from torchperc.samples import compiling
from torchperc.samples.rows import Rows

SWEEPS = 4  # between two looks at whether anything still changes, for which the host waits for the device


@torch.no_grad()
def descend(
    net: LinearNet,
    head: Head,
    X: checks.Data,
    y: checks.Data,
    lr: float,
    *,
    engine: str = "auto",
    sample_weight: checks.Data | None = None,
    l2: float = 0.0,
    order: checks.Data | None = None,
) -> Tensor:
    """Run through the samples in order, one step each; return the scores (N,) or (N, K) before each sample's own step.

    Args:
        net: a linear net; its weights are changed in place.
        head: whose loss is lowered.
        X: samples (N, d): a tensor of the net's type, a numpy array, or on the CPU a sparse matrix or tensor.
        y: labels −1/+1, or class indices; for :class:`RegressionHead` real targets (N,), or (N, K) for K outputs.
        lr: the learning rate η.
        engine: ``"reference"``, ``"compiled"``, ``"blocked"``, or ``"auto"`` for the fastest.
        sample_weight: a factor for each sample's step; 0 leaves the sample as it is.
        l2: the weight of the penalty ½·l2·‖w‖², which each step lowers too; the bias is not penalised.
        order: sample numbers in the order in which they are presented, repeated as often as they are named; all
            samples as they are given by default.

    Example:
        >>> from torchperc import LMSHead, Perceptron
        >>> descend(Perceptron(1), LMSHead(), torch.tensor([[1.0], [1.0]]), torch.tensor([1, 1]), lr=0.25)
        tensor([0.0000, 0.5000])
        >>> descend(Perceptron(1), RegressionHead(), [[1.0], [1.0]], [60.0, 64.0], lr=0.25)
        tensor([ 0., 30.])
    """
    net = check_linear(net)
    loss_code(head)  # refuses a head of another kind
    space, _ = linear_problem(net, X)
    rows = space.rows
    labels = labels_or_targets(head, y, len(rows), len(net.weight), both=False).to(rows.device)
    if isinstance(head, RegressionHead):  # as the net's type holds them, which is what its loss would see
        labels = _held(labels, net.weight.dtype)
    steps = _steps(rows, lr, sample_weight, l2, order)
    run = {"reference": _plain, "compiled": _compiled, "blocked": _blocked}
    name = engine_name(checks.one_of("engine", engine, STEP_ENGINES), space)
    scores = run[name](net, head, rows, labels, steps)
    return scores.squeeze(-1) if len(net.weight) == 1 else scores


def _held(targets: Tensor, dtype: torch.dtype) -> Tensor:
    """Targets rounded to the net's type, in float64."""
    rounded = targets.to(dtype).double()
    if not torch.isfinite(rounded).all():
        raise ValueError(f"y holds values up to {float(targets.abs().max()):g}, which {dtype} cannot hold; scale y")
    return rounded


class _Steps(NamedTuple):
    """The learning rate η·c of each sample in float64, the penalty and the order; ``uniform`` for no weights and l2."""

    lr: float
    rates: Tensor
    l2: float
    order: Tensor
    uniform: bool


def _steps(rows: Rows, lr: float, sample_weight: checks.Data | None, l2: float, order: checks.Data | None) -> _Steps:
    lr = checks.number("lr", lr, at_least=0)
    rates = torch.full((1,), lr, dtype=torch.float64, device=rows.device).expand(len(rows))
    if sample_weight is not None:
        rates = lr * checks.nonnegative_weights(sample_weight, len(rows)).to(rows.device)
    l2 = checks.number("l2", l2, at_least=0)
    if l2 and l2 * float(rates.max()) >= 1:
        raise ValueError(f"l2={l2:g} with steps of up to {float(rates.max()):g} flips weights; lower l2 or lr")
    if order is None:
        on_cpu = rows.device.type == "cpu"  # in numpy, which wakes no threads for it
        index = torch.from_numpy(np.arange(len(rows))) if on_cpu else torch.arange(len(rows), device=rows.device)
    else:
        index = sample_numbers(order).to(rows.device)
        if index.dim() != 1 or not len(index) or index.min() < 0 or index.max() >= len(rows):
            raise ValueError(f"order must be sample numbers 0 to {len(rows) - 1} in one dimension")
    return _Steps(lr, rates, l2, index, sample_weight is None and not l2)


def check_linear(net: nn.Module) -> LinearNet:
    """A net that :func:`descend` can train, or an error that names the alternative.

    Example:
        >>> check_linear(nn.Linear(2, 1))
        Linear(in_features=2, out_features=1, bias=True)
    """
    if not isinstance(net, LinearNet):
        raise TypeError(
            f"update='sample' needs a linear net (Perceptron, MulticlassPerceptron, nn.Linear), found "
            f"{type(net).__name__}; use update='batch' with batch_size=1, which makes the same steps for any net"
        )
    return net


def _plain(net: LinearNet, head: Head, rows: Rows, y: Tensor, steps: _Steps) -> Tensor:
    weight, bias, units = net.weight, net.bias, len(net.weight)
    kind, tie, low = loss_code(head)
    nothing, largest = weight.new_zeros(units), torch.finfo(weight.dtype).max
    seen, slope = [], [0.0] * units
    rates: list[float] = steps.rates[steps.order].tolist()
    for i, label, rate in zip(steps.order.tolist(), y[steps.order].tolist(), rates, strict=True):
        seen.append(rows.score(i, weight, nothing if bias is None else bias))
        scores = seen[-1].tolist()
        if kind == derivatives.PERCEPTRON and not all(map(math.isfinite, scores)):
            raise checks.weights_overflow(max(scores, key=abs))
        if steps.l2:
            weight.mul_(1.0 - rate * steps.l2)
        if isinstance(head, RegressionHead):
            slope = [s - t for s, t in zip(scores, label if units > 1 else [label], strict=True)]
        elif units == 1:
            slope[0] = derivatives.slope(scores[0], label, kind, tie, low)
        else:
            derivatives.slopes(scores, label, units, kind, tie, low, slope)
        for k, value in enumerate(slope):
            step = -rate * value
            if abs(step) > largest:
                step = math.copysign(math.inf, step)  # as autograd would: the run diverges, which others look out for
            if step:
                rows.add(i, step, weight[k])
                if bias is not None:
                    bias[k].add_(step)
    return torch.stack(seen)


def _compiled(net: LinearNet, head: Head, rows: Rows, y: Tensor, steps: _Steps) -> Tensor:
    if not isinstance(head, RegressionHead) or len(net.weight) == 1:
        return _by_loop(net.weight, net.bias, head, rows, y, steps)
    columns = []
    for k, target in enumerate(y.T):  # no step of one output depends on another
        one = slice(k, k + 1)
        columns.append(
            _by_loop(net.weight[one], None if net.bias is None else net.bias[one], head, rows, target, steps)
        )
    return torch.cat(columns, 1)


def _by_loop(weight: Tensor, bias: Tensor | None, head: Head, rows: Rows, y: Tensor, steps: _Steps) -> Tensor:
    from torchperc.descent import loops

    own = compiling.laid_out(weight, rows.sparse)
    own_bias = torch.zeros_like(weight[:, 0]) if bias is None else bias.detach().clone()
    at = steps.order.contiguous().numpy().view(np.uint64)
    seen = torch.empty(len(at), len(weight), dtype=weight.dtype)
    data = (rows.plain(), at, y.contiguous().numpy())
    settings = (bias is not None, *loss_code(head), seen.numpy())
    if steps.uniform and len(weight) == 1:
        done = loops.descend(*data, own.loop, own_bias.numpy(), float(steps.lr), *settings)
    else:
        rates = steps.rates.contiguous().numpy()
        done = loops.descend_weighted(*data, rates, steps.l2, own.loop, own_bias.numpy(), *settings)
    if done < len(at):
        raise checks.weights_overflow(float(seen[done].max()))
    weight.copy_(own.tensor)
    if bias is not None:
        bias.copy_(own_bias)
    return seen


def _blocked(net: LinearNet, head: Head, rows: Rows, y: Tensor, steps: _Steps) -> Tensor:
    seen = []
    for ids in steps.order.split(BlockedEngine.block):
        part, rates = rows.take(ids), steps.rates[ids].to(net.weight.dtype)
        bias = net.weight.new_zeros(len(net.weight)) if net.bias is None else net.bias
        start, dots, later = part.scores(net.weight, bias), part.dots(part), None
        if steps.l2:  # what is left of the weights before each step, and of each step before each later one
            logs = torch.log1p(-steps.l2 * steps.rates[ids])
            before = (logs.cumsum(0) - logs).exp().to(rates.dtype)
            after = logs.cumsum(0)
            start = (start - bias).mul_(before[:, None]).add_(bias)
            dots.mul_(((after - logs)[:, None] - after).clamp_(max=0).exp_().to(dots.dtype))
            later = (after[-1] - after).exp().to(rates.dtype)
            net.weight.mul_(float(after[-1].exp()))
        earlier = dots.add_(float(net.bias is not None)).tril_(-1).mul_(-rates)
        scores, slope = _solve_block(head, start, earlier, y[ids])
        moves = slope * rates[:, None]
        net.weight.sub_(part.mix(moves if later is None else moves * later[:, None]))
        if net.bias is not None:
            net.bias.sub_(moves.sum(0))
        seen.append(scores)
    return torch.cat(seen)


def _solve_block(head: Head, start: Tensor, earlier: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The scores that each sample of a block sees and the slopes there: s = start + earlier·ℓ'(s)."""
    if isinstance(head, SquaredHead):  # a linear system: (I − earlier)·e = start − t
        target = head.target(y, start.shape[1]).to(start.dtype)
        system = torch.eye(len(y), dtype=start.dtype, device=start.device) - earlier
        error = torch.linalg.solve_triangular(system, start - target, upper=False, unitriangular=True)
        return target + error, error
    slope = torch.zeros_like(start)
    for _ in range(0, len(y) + SWEEPS, SWEEPS):
        for _ in range(SWEEPS):
            before, scores = slope, torch.addmm(start, earlier, slope)
            if isinstance(head, PerceptronHead):
                shaped = scores[:, 0] if scores.shape[1] == 1 else scores
                slope = derivatives.perceptron_slope(scores, y, head.mistakes(shaped, y))
            else:
                slope = (derivatives.logistic if scores.shape[1] == 1 else derivatives.softmax)(scores, y).slope
        if torch.equal(slope, before):
            break
    if isinstance(head, PerceptronHead) and not torch.isfinite(scores).all():
        raise checks.weights_overflow(float(scores.max()))
    return scores, slope
