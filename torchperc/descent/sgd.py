"""Exact stochastic descent without autograd: one step per sample, for linear nets and every head.

For a linear score s = w·x + b the gradient of any loss ℓ(s, y) is ℓ'(s)·x, so a step is w ← w − η·ℓ'(s)·x. With weights
c_i and a penalty the sample's loss is c_i·(ℓ(s, y) + ½·l2·‖w‖²), and its step is
w ← (1 − η·c_i·l2)·w − η·c_i·ℓ'(s)·x: a sample of weight 2 takes a step twice as long.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from torchperc._checks import Data, as_tensor, check_number, check_sample_weight, is_sparse, weights_overflow
from torchperc.nn.heads import Head, RegressionHead, curvature_bound, labels_or_targets
from torchperc.nn.modules import LinearNet as LinearNet
from torchperc.samples.mapped import as_samples
from torchperc.samples.rows import Samples


@torch.no_grad()
def descend(
    net: LinearNet,
    head: Head,
    X: Data,
    y: Data,
    lr: float,
    *,
    sample_weight: Data | None = None,
    l2: float = 0.0,
    order: Data | None = None,
) -> Tensor:
    """Make one gradient step per sample; return the scores (N,) or (N, K) before each sample's own step.

    The steps are made by a compiled loop on the CPU. Samples on another device are copied there, the weights back.

    Args:
        net: a linear net; its weights are changed in place.
        head: whose loss is lowered.
        X: samples (N, d): a tensor of the net's type, a numpy array, or a sparse matrix or tensor.
        y: labels −1/+1, or class indices; for :class:`RegressionHead` real targets (N,), or (N, K) for K outputs.
        lr: the learning rate η.
        sample_weight: a factor for each sample's step; 0 leaves the sample out.
        l2: the weight of the penalty ½·l2·‖w‖², which each step lowers too; the bias is not penalised.
        order: sample numbers in the order of presentation, which may repeat; by default 0 to N − 1.

    Example:
        >>> from torchperc import LMSHead, Perceptron
        >>> descend(Perceptron(1), LMSHead(), torch.tensor([[1.0], [1.0]]), torch.tensor([1, 1]), lr=0.25)
        tensor([0.0000, 0.5000])
        >>> descend(Perceptron(1), RegressionHead(), [[1.0], [1.0]], [60.0, 64.0], lr=0.25)
        tensor([ 0., 30.])
    """
    check_linear(net)
    curvature_bound(head, 1)  # refuses a head of another kind
    X = X.detach().cpu() if isinstance(X, Tensor) and not is_sparse(X) else X
    rows = as_samples(X, dtype=net.weight.dtype, n_features=net.in_features)
    if rows.dtype not in (torch.float32, torch.float64):
        rows = as_samples(rows.dense().float(), dtype=torch.float32)
    labels = labels_or_targets(head, y, len(rows), len(net.weight), both=False).cpu()
    if isinstance(head, RegressionHead):
        if (largest := float(labels.abs().max())) > torch.finfo(net.weight.dtype).max:
            raise ValueError(f"y holds values up to {largest:g}, which {net.weight.dtype} cannot hold; scale y")
        labels = labels.to(net.weight.dtype).double()
    lr, l2 = check_number("lr", lr, at_least=0), check_number("l2", l2, at_least=0)
    at = np.arange(len(rows)) if order is None else as_tensor(order, "order").cpu().numpy()
    if at.dtype.kind not in "iu" or at.ndim != 1 or not at.size or at.min() < 0 or at.max() >= len(rows):
        raise ValueError(f"order must be sample numbers 0 to {len(rows) - 1} in one dimension, found {order!r:.80}")
    at, rates = at.astype(np.int64), np.full(len(rows), lr)
    if sample_weight is not None:
        rates *= check_sample_weight(sample_weight, len(rows)).cpu().numpy()
    if l2 and l2 * rates.max() >= 1:
        raise ValueError(f"l2={l2:g} with steps of up to {rates.max():g} flips weights; lower l2 or lr")
    if isinstance(head, RegressionHead) and len(net.weight) > 1:  # no step of one output depends on another
        bias: Any = [None] * len(net.weight) if net.bias is None else net.bias.split(1)
        outputs = zip(net.weight.split(1), bias, labels.T, strict=True)
        return torch.cat([_run(w, b, head, rows, target, at, rates, l2) for w, b, target in outputs], 1)
    scores = _run(net.weight, net.bias, head, rows, labels, at, rates, l2)
    return scores.squeeze(-1) if len(net.weight) == 1 else scores


def _run(
    weight: Tensor, bias: Tensor | None, head: Head, rows: Samples, y: Tensor, at: Any, rates: Any, l2: float
) -> Tensor:
    """Make all steps by a compiled loop; weight and bias are written at the end, if no score overflowed."""
    from torchperc.descent import loops

    many = len(weight) > 1
    layout = weight.detach().T if rows.sparse and many else weight.detach()
    w = np.array(layout.to("cpu", rows.dtype).numpy(), order="C")
    b = np.zeros(len(weight), w.dtype) if bias is None else bias.detach().to("cpu", rows.dtype).numpy().copy()
    loop: Any = loops.class_scores if many else loops.one_score
    labels, state = (y if many else y.double()).numpy()[at], (w if many else w.reshape(-1), b, bias is not None)
    seen, done = np.empty((len(at), len(weight)), w.dtype), 0
    for part, numbers in rows.parts(torch.from_numpy(at)):
        now = slice(done, done + len(numbers))
        arrays = tuple(map(np.ascontiguousarray, part.loop_arrays()))
        steps = (numbers.numpy(), labels[now], rates[at[now]], l2)
        made = loop(arrays, *steps, *state, loops.loss_code(head), seen[now])
        if made < len(numbers):
            raise weights_overflow(float(seen[done + made].max()))
        done += made
    weight.copy_(torch.from_numpy(w.T if rows.sparse and many else w))
    if bias is not None:
        bias.copy_(torch.from_numpy(b))
    return torch.from_numpy(seen).to(weight)


def check_linear(net: nn.Module) -> LinearNet:
    """Return a linear net whose weights are finite floats that can be written in place; refuse any other."""
    from torchperc.rules.make_problem import check_net

    if not isinstance(net, LinearNet):
        found = f"net must be a linear net such as Perceptron or nn.Linear, found {type(net).__name__}"
        raise TypeError(f"{found}; use update='batch' with batch_size=1, which makes the same steps by autograd")
    check_net(net)
    if not all(torch.isfinite(values).all() for values in net.parameters()):
        raise ValueError("net has weights that are not finite; reset them first")
    return net
