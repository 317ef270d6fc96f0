"""The mathematics as pure functions: scores, decisions, losses, mistakes, geometry, feature maps.

``s`` is a score w·x + b, ``y`` a label −1/+1; with K classes ``s`` has a last dimension of K and ``y`` holds class
indices. Losses check their labels on the CPU only, and not under ``torch.compile`` or ``vmap``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from torchperc._checks import as_csr, check_bool, check_choice, check_number, check_targets, is_sparse

REDUCTIONS = ("mean", "sum", "none")
TIES = ("update", "sign", "strict")
TARGETS = ("-1/+1", "0/1")
REAL = "real"  # targets of regression: any finite numbers


def scores(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Linear scores s = w·x + b: (…, d) → (…,) with a weight (1, d), (…, K) with a weight (K, d).

    Example:
        >>> scores(torch.tensor([[1.0, 1.0]]), torch.tensor([[3.0, 2.0]]), torch.tensor([-4.0]))
        tensor([1.])
    """
    result = linear(x, weight, bias)
    return result.squeeze(-1) if weight.shape[0] == 1 else result


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x·Wᵀ + b like ``torch.nn.functional.linear``, for sparse x too: (…, d) → (…, K).

    A sparse x (``torch.sparse_csr`` or ``torch.sparse_coo``) gives gradients to weight and bias, none to itself.

    Example:
        >>> weight = torch.tensor([[3.0, 2.0]], requires_grad=True)
        >>> linear(torch.tensor([[0.0, 1.0], [1.0, 1.0]]).to_sparse(), weight).sum().backward()
        >>> weight.grad
        tensor([[1., 2.]])
    """
    if not is_sparse(x):
        return F.linear(x, weight, bias)
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a tensor, found {type(x).__name__}; use torch.sparse_csr_tensor, or x.toarray()")
    if x.dim() != 2 or x.shape[1] != weight.shape[1]:
        raise ValueError(f"x has shape {tuple(x.shape)} but (N, {weight.shape[1]}) is needed by the weight")
    if x.dtype != weight.dtype or x.device != weight.device:
        raise TypeError(f"x is {x.dtype} on {x.device} but weight is {weight.dtype} on {weight.device}; convert one")
    product: Tensor = _SparseProduct.apply(x, weight)  # type: ignore[no-untyped-call]
    return product if bias is None else product + bias


class _SparseProduct(torch.autograd.Function):
    """X·Wᵀ for sparse X, and gᵀ·X backwards; on the CPU by scipy."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        by_scipy = x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
        ctx.x = as_csr(x) if by_scipy else x
        return torch.from_numpy(ctx.x @ weight.detach().numpy().T) if by_scipy else x @ weight.T

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        if isinstance(ctx.x, Tensor):
            return None, (ctx.x.t() @ grad).T
        return None, torch.from_numpy((ctx.x.T @ grad.numpy()).T)


def decide(s: Tensor, threshold: float = 0.0) -> Tensor:
    """Two-class decision: s ≥ threshold → +1, else −1 (int64).

    Example:
        >>> decide(torch.tensor([-0.5, 0.0, 2.0]))
        tensor([-1,  1,  1])
    """
    return (s >= threshold).long() * 2 - 1  # more than twice as fast as torch.where with two numbers


def finite_scores(s: Tensor) -> Tensor:
    """Return scores if all are finite, else raise; not checked under ``torch.compile``."""
    if not torch.compiler.is_compiling() and not torch.isfinite(s).all():
        bad = s.detach()[~torch.isfinite(s)].reshape(-1)[0].item()
        raise ValueError(f"a score is {bad}, which has no decision; x or the weights are not finite, or too large")
    return s


def decide_class(s: Tensor) -> Tensor:
    """K-class decision, the lowest index among the largest scores: (…, K) → (…,).

    Example:
        >>> decide_class(torch.tensor([[0.0, 2.0, 2.0]]))
        tensor([1])
    """
    return s.argmax(-1)


def rival_scores(s: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Score and index of the strongest wrong class (the lowest index among the largest): (…, K), (…,) → two (…,).

    A tie sends its gradient to this one class, where ``amax`` would send it to all.

    Example:
        >>> rival_scores(torch.tensor([[1.0, 3.0, 3.0]]), torch.tensor([1]))
        (tensor([3.]), tensor([2]))
    """
    index = s.detach().masked_fill(_one_hot(y, s.shape[-1]), float("-inf")).argmax(-1)
    index = torch.where(index == y, (y == 0).long(), index)  # all others are −inf: the lowest of them
    return _at(s, index), index


def functional_margins(s: Tensor, y: Tensor) -> Tensor:
    """Return functional margins: y·s, or s_y − s_r against the strongest wrong class r.

    Example:
        >>> functional_margins(torch.tensor([2.0, -1.0]), torch.tensor([1, 1]))
        tensor([ 2., -1.])
    """
    return _at(s, y) - rival_scores(s, y)[0] if s.dim() > y.dim() else y * s


def mistakes(s: Tensor, y: Tensor, *, tie: str = "update", margin: float | Tensor = 0.0) -> Tensor:
    """Return which samples are mistakes, by the margin m = y·s, or m = s_y − max_{r≠y} s_r with K classes.

    Args:
        s: scores.
        y: labels −1/+1, or class indices if ``s`` has one dimension more.
        tie: ``"update"``: m ≤ margin · ``"strict"``: m < margin · ``"sign"``: the decision differs from y.
        margin: the required margin, which every sample must exceed; not with ``"sign"``.

    Example:
        >>> s, y = torch.tensor([0.0, 0.0, 1.0]), torch.tensor([1, -1, 1])
        >>> [mistakes(s, y, tie=tie).tolist() for tie in ("update", "sign", "strict")]
        [[True, True, False], [False, True, False], [False, False, False]]
    """
    check_choice("tie", tie, TIES)
    if tie == "sign" and (margin.any() if isinstance(margin, Tensor) else margin):
        raise ValueError(f"margin={margin} has no effect with tie='sign'; use tie='update' or tie='strict'")
    differs, m = _decisions(s, y) != y, functional_margins(s, y)
    # written as "not >" so that a score that is not a number counts as a mistake, never as a success
    return differs | m.isnan() if tie == "sign" else ~(m > margin) if tie == "update" else ~(m >= margin)


def _decisions(s: Tensor, y: Tensor) -> Tensor:
    return decide_class(s) if _has_classes(s, y) else decide(s)


def _at(s: Tensor, y: Tensor) -> Tensor:
    """Return one class's score per sample: (…, K), (…,) → (…,)."""
    return s.gather(-1, y.long().unsqueeze(-1)).squeeze(-1)


def _one_hot(y: Tensor, classes: int) -> Tensor:
    """As ``F.one_hot`` but boolean, for any integer type, and under vmap."""
    return torch.arange(classes, device=y.device) == y.unsqueeze(-1)


def perceptron_loss(s: Tensor, y: Tensor, *, reduction: str = "mean", tie: str = "update") -> Tensor:
    r"""Perceptron criterion: L = max(0, −y·s), for K classes L = max(0, max_{r≠y} s_r − s_y).

    Args:
        s: scores.
        y: labels −1/+1 of the same shape, or class indices.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        tie: the derivative in s at the kink y·s = 0 (K classes: s_y = max s_r): ``"update"`` takes −y, which is the
            perceptron rule; ``"strict"`` takes 0, so zero weights never move; ``"sign"`` takes −y where the decision
            (s ≥ 0 → +1) is wrong, that is for y = −1 only.

    Example:
        >>> s = torch.tensor([2.0, -1.0, 0.0], requires_grad=True)
        >>> perceptron_loss(s, torch.tensor([-1, -1, 1]), reduction="sum").backward()
        >>> s.grad
        tensor([ 1., 0., -1.])
        >>> perceptron_loss(torch.tensor([[1.0, 3.0, 0.0]]), torch.tensor([0]))
        tensor(2.)
    """
    _check_labels(s, y)
    wrong, m = mistakes(s.detach(), y, tie=tie), functional_margins(s, y)
    return reduce(torch.where(wrong, -m, torch.zeros_like(m)), reduction)


def lms_loss(s: Tensor, y: Tensor, *, reduction: str = "mean", targets: str = "-1/+1") -> Tensor:
    """Least mean squares: L = ½(t − s)², with t = y, or t = (y + 1)/2 for ``targets="0/1"``; labels stay −1/+1.

    For K classes L = ½ Σ_k (t_k − s_k)², with t = 1 for the sample's class and the lower target for the others.

    Args:
        s: scores.
        y: labels −1/+1, or class indices; with ``targets="real"`` any finite numbers of the scores' shape.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        targets: ``"-1/+1"`` and ``"0/1"`` for classes, ``"real"`` for regression, where t = y.

    Example:
        >>> lms_loss(torch.tensor([0.5, 0.5]), torch.tensor([1, -1]), reduction="none")
        tensor([0.1250, 1.1250])
        >>> lms_loss(torch.tensor([[1.0, -1.0, 0.0]]), torch.tensor([0]))
        tensor(0.5000)
    """
    classes = False
    if check_choice("targets", targets, (*TARGETS, REAL)) == REAL:
        if _has_classes(s, y):
            raise ValueError(f"scores have shape {tuple(s.shape)} and y {tuple(y.shape)}; give one target per score")
        if _holds_anywhere(~torch.isfinite(y)):
            bad = y[~torch.isfinite(y)].reshape(-1)[0].item()
            raise ValueError(f"targets must be finite numbers, found {bad}; drop or fill such samples")
        s = s.float() if s.dtype.itemsize < 4 else s  # as torch's squared error under autocast: few digits are left
    elif classes := _check_labels(s, y):
        y = torch.where(_one_hot(y, s.shape[-1]), 1, -1)
    t = (y.to(s.dtype) + 1) / 2 if targets == "0/1" else y.to(s.dtype)
    losses = (t - s).square() / 2
    return reduce(losses.sum(-1) if classes else losses, reduction)


def logistic_loss(s: Tensor, y: Tensor, *, reduction: str = "mean") -> Tensor:
    """Logistic loss: L = log(1 + exp(−y·s)), for K classes L = log Σ_k exp(s_k) − s_y; no score overflows.

    Example:
        >>> logistic_loss(torch.tensor([-1e4, 1e4]), torch.tensor([1, 1]), reduction="none")
        tensor([10000., 0.])
        >>> logistic_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([1]))
        tensor(0.6931)
    """
    if _check_labels(s, y):
        return reduce(-_at(s.log_softmax(-1), y), reduction)
    # from 40 on log(1 + eˣ) is x in double precision; logaddexp's gradient would wake threads even for small batches
    return reduce(F.softplus(-(y * s), threshold=40.0), reduction)


def zero_one_loss(s: Tensor, y: Tensor, *, reduction: str = "mean") -> Tensor:
    """Zero-one loss: 1 where the decision differs from y, NaN where a score is. It has no gradient.

    Example:
        >>> zero_one_loss(torch.tensor([1.0, -1.0]), torch.tensor([1, 1]))
        tensor(0.5000)
    """
    unknown = s.isnan().any(-1) if _check_labels(s, y) else s.isnan()
    return reduce((_decisions(s, y) != y).to(s.dtype).masked_fill(unknown, torch.nan), reduction)


def cost_loss(s: Tensor, y: Tensor, *, fp: float = 1.0, fn: float = 1.0, reduction: str = "mean") -> Tensor:
    """Asymmetric cost: ``fp`` for a false positive, ``fn`` for a false negative, 0 for a right decision.

    Example:
        >>> cost_loss(torch.tensor([1.0, -1.0]), torch.tensor([-1, 1]), fp=1, fn=10, reduction="none")
        tensor([ 1., 10.])
    """
    fp, fn = check_number("fp", fp, at_least=0), check_number("fn", fn, at_least=0)
    if _check_labels(s, y):
        raise ValueError(f"scores have shape {tuple(s.shape)}; a cost is for two classes, scores (…,) and labels -1/+1")
    price = torch.where(y > 0, torch.full_like(s, fn), torch.full_like(s, fp))
    return reduce(price * zero_one_loss(s, y, reduction="none"), reduction)


def reduce(values: Tensor, reduction: str) -> Tensor:
    """Return the mean, the sum, or the values themselves."""
    check_choice("reduction", reduction, REDUCTIONS)
    return values.mean() if reduction == "mean" else values.sum() if reduction == "sum" else values


def _check_labels(s: Tensor, y: Tensor) -> bool:
    """Return whether y holds class indices; raise if it holds neither those nor −1/+1."""
    real = "for real-valued targets use RegressionHead(), or LMSLoss(targets='real')"
    if (classes := _has_classes(s, y)) and y.is_floating_point():
        raise TypeError(f"class indices must be integers, found {y.dtype}; use y.long(), and {real}")
    if _holds_anywhere((y < 0) | (y >= s.shape[-1]) if classes else (y if y.dtype == torch.bool else y.abs()) != 1):
        known = f"class indices 0 to {s.shape[-1] - 1}" if classes else "-1 and +1"
        found, remedy = y.unique().tolist()[:5], "number yours from 0"
        if not classes:
            remedy = "use 2 * y - 1" if found == [0, 1] else "for several classes use MulticlassPerceptron"
        raise ValueError(f"labels must be {known}, found {found}; {remedy}; {real}")
    return classes


def _has_classes(s: Tensor, y: Tensor) -> bool:
    """Return whether s holds a score per class; raise if the shapes fit neither that nor one score per sample."""
    for name, values in (("scores", s), ("labels", y)):
        if not isinstance(values, Tensor) or values.is_complex():
            found = getattr(values, "dtype", type(values).__name__)
            raise TypeError(f"{name} must be a tensor, found {found}; use torch.as_tensor, and real numbers")
    if s.shape != y.shape and (s.shape[:-1] != y.shape or s.shape[-1] < 2):
        found = f"scores have shape {tuple(s.shape)} and y {tuple(y.shape)}"
        raise ValueError(f"{found}; they must be equal (use squeeze(-1) on one), or for K classes (…, K) and (…,)")
    return s.shape != y.shape


def _holds_anywhere(condition: Tensor) -> bool:
    """Whether a condition holds for any entry; False where looking would stall a device or break a trace."""
    if torch.compiler.is_compiling() or condition.device.type != "cpu":
        return False
    try:
        return bool(torch.count_nonzero(condition))  # several times as fast as any()
    except RuntimeError:  # under vmap there is no single answer
        return False


def unit_normal(weight: Tensor) -> Tensor:
    """Unit normal of the hyperplane, w/‖w‖: (1, d) → (d,).

    Example:
        >>> unit_normal(torch.tensor([[3.0, 4.0]]))
        tensor([0.6000, 0.8000])
    """
    return (weight / _norm(weight))[0]


def offset(weight: Tensor, bias: Tensor) -> Tensor:
    """Signed distance of the hyperplane from the origin along its normal, −b/‖w‖: (1, d), (1,) → scalar.

    Example:
        >>> offset(torch.tensor([[3.0, 4.0]]), torch.tensor([-10.0]))
        tensor(2.)
    """
    return -bias[0] / _norm(weight)


def signed_distance(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Signed distance of points from the hyperplane, (w·x + b)/‖w‖, positive on the +1 side: (…, d) → (…,).

    Example:
        >>> signed_distance(torch.tensor([[3.0, 4.0]]), torch.tensor([[3.0, 4.0]]), torch.tensor([-10.0]))
        tensor([3.])
    """
    return scores(x, weight, bias) / _norm(weight)


def geometric_margin(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Geometric margin γ = min_n y_n·(w·x_n + b)/‖w‖ of a hyperplane; negative if a point is on the wrong side.

    :func:`torchperc.theory.margin` divides by ‖(w, b)‖, as the mistake bound needs it.

    Example:
        >>> x, y = torch.tensor([[0.0], [4.0]]), torch.tensor([-1, 1])
        >>> geometric_margin(x, y, torch.tensor([[1.0]]), torch.tensor([-1.0]))
        tensor(1.)
    """
    distance = signed_distance(x, weight, bias)
    if distance.shape != y.shape:  # (N, 1) against (N,) would broadcast to (N, N) without a word
        raise ValueError(f"labels must be of shape {tuple(distance.shape)}, one per sample, found {tuple(y.shape)}")
    return (y * distance).min()


def _norm(weight: Tensor) -> Tensor:
    if weight.dim() != 2 or len(weight) != 1:
        raise ValueError(f"weight has shape {tuple(weight.shape)}; one hyperplane has (1, d)")
    norm: Tensor = torch.linalg.vector_norm(weight)
    if _holds_anywhere(norm == 0):
        raise ValueError("the weights are all zero, so they define no hyperplane; train the net first")
    return norm


def two_sample_start(x: Tensor, y: Tensor, *, targets: str = "-1/+1") -> tuple[Tensor, Tensor]:
    """Starting weights (1, d) and bias (1,): the flattest plane s = w·x + b through the first sample of either class.

    w = (t₂ − t₁)·(x₂ − x₁)/‖x₂ − x₁‖² and b = t₁ − w·x₁. For regression the plane goes through the first sample and
    the next one whose x differs from it.

    Args:
        x: samples (N, d).
        y: labels −1/+1, both of which must occur; with ``targets="real"`` finite numbers.
        targets: ``"-1/+1"`` or ``"0/1"``, the plane's values at the two samples; ``"real"`` for those of y.

    Example:
        >>> two_sample_start(torch.tensor([[1.0], [3.0]]), torch.tensor([-1, 1]))
        (tensor([[1.]]), tensor([-2.]))
        >>> two_sample_start(torch.tensor([[1.0], [3.0]]), torch.tensor([60.0, 72.0]), targets="real")
        (tensor([[6.]]), tensor([54.]))
    """
    if check_choice("targets", targets, (*TARGETS, REAL)) == REAL:
        x = x if x.is_floating_point() else x.to(torch.get_default_dtype())
        t, groups = check_targets(y, len(x)).to(x), (torch.ones(1), (x != x[0]).any(-1))
    else:
        t, groups = torch.where(y == 1, 1.0, 0.0 if targets == "0/1" else -1.0).to(x), (y == -1, y == 1)
    rows = [int(group.nonzero()[0, 0]) for group in groups if group.any()]
    if len(rows) < 2 or not (step := x[rows[1]] - x[rows[0]]).any():
        raise ValueError(f"y={y.tolist()[:5]}: two samples that differ are needed, one per class unless 'real'")
    first, second = rows
    weight = (t[second] - t[first]) * step / step.square().sum()
    return weight[None], (t[first] - weight @ x[first])[None]


def balanced_weights(y: Tensor | Mapping[int, int]) -> dict[int, float]:
    """Weights N/(K·N_label) of the K labels in y, as ``class_weight`` takes them: each class weighs the same.

    Args:
        y: labels, or the number of samples with each label.

    Example:
        >>> balanced_weights(torch.tensor([1, -1, -1, -1]))
        {-1: 0.6666666666666666, 1: 2.0}
    """
    counts = y
    if not isinstance(counts, Mapping):
        counts = dict(zip(*map(Tensor.tolist, torch.as_tensor(y).unique(return_counts=True)), strict=True))
    if not counts:
        raise ValueError("y is empty; weights of classes need at least one label")
    return {label: sum(counts.values()) / (len(counts) * count) for label, count in counts.items()}


def homogeneous(x: Tensor, position: str = "last", value: float = 1.0) -> Tensor:
    """Homogeneous coordinates, x with a constant feature, so that the bias becomes a weight: (…, d) → (…, d + 1).

    Args:
        x: samples.
        position: ``"last"`` gives (x, 1), ``"first"`` gives (1, x).
        value: the constant; R instead of 1 makes a unit step on the weight a step of R² on the bias.

    Example:
        >>> homogeneous(torch.tensor([[5.0, 6.0]]), "first")
        tensor([[1., 5., 6.]])
    """
    value = check_number("value", value, above=0)
    x = x if x.is_floating_point() else x.to(torch.get_default_dtype())
    constant = x.new_full((*x.shape[:-1], 1), value)
    return torch.cat((constant, x) if _goes_first(position) else (x, constant), -1)


def fold_bias(weight: Tensor, bias: Tensor, position: str = "last") -> Tensor:
    """Weights of the same model in homogeneous coordinates, (w, b) or (b, w): (K, d), (K,) → (K, d + 1).

    Example:
        >>> fold_bias(torch.tensor([[3.0, 2.0]]), torch.tensor([-4.0]), "first")
        tensor([[-4., 3., 2.]])
    """
    column = bias.unsqueeze(-1)
    return torch.cat((column, weight) if _goes_first(position) else (weight, column), -1)


def unfold_bias(weight: Tensor, position: str = "last") -> tuple[Tensor, Tensor]:
    """Inverse of :func:`fold_bias`: (K, d + 1) → (K, d), (K,).

    Example:
        >>> unfold_bias(torch.tensor([[-4.0, 3.0, 2.0]]), "first")
        (tensor([[3., 2.]]), tensor([-4.]))
    """
    return (weight[:, 1:], weight[:, 0]) if _goes_first(position) else (weight[:, :-1], weight[:, -1])


def joint_features(x: Tensor, num_classes: int, *, bias: bool = True) -> Tensor:
    """Joint features φ(x, k) for every class k: (x, 1) in the k-th of K blocks, zeros elsewhere.

    One vector w over φ then scores class k as w·φ(x, k), which is w_k·x + b_k with the blocks of w as rows:
    (N, d) → (N, K, K·(d + 1)), or (N, K, K·d) without bias.

    Example:
        >>> joint_features(torch.tensor([[5.0]]), 2)
        tensor([[[5., 1., 0., 0.],
                 [0., 0., 5., 1.]]])
    """
    block = homogeneous(x) if check_bool("bias", bias) else x
    eye = torch.eye(num_classes, dtype=x.dtype, device=x.device)
    return torch.einsum("kl,nd->nkld", eye, block).flatten(-2)


def _goes_first(position: str) -> bool:
    return check_choice("position", position, ("first", "last")) == "first"
