"""The mathematics as pure functions: scores, decisions, losses, mistakes, geometry, feature maps.

``s`` is a score w·x + b, ``y`` a label −1/+1; with K classes ``s`` has a last dimension of K and ``y`` holds class
indices. Losses check the values of their labels where that costs nothing: not on a GPU, which a look would stall, and
not under ``torch.compile`` or ``vmap``.
"""

from __future__ import annotations

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
POSITIONS = ("first", "last")


# --- scores and decisions -----------------------------------------------------------------------------------------


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

    Forward and backward of a sparse x (``torch.sparse_csr`` or ``torch.sparse_coo``) are one sparse product each, on
    the CPU by scipy, with gradients to weight and bias.

    Example:
        >>> weight = torch.tensor([[3.0, 2.0]], requires_grad=True)
        >>> linear(torch.tensor([[0.0, 1.0], [1.0, 1.0]]).to_sparse(), weight).sum().backward()
        >>> weight.grad
        tensor([[1., 2.]])
    """
    if not is_sparse(x):
        return F.linear(x, weight, bias)
    if x.dim() != 2 or x.shape[1] != weight.shape[1]:
        raise ValueError(
            f"x has shape {tuple(x.shape)} but (N, {weight.shape[1]}) is needed, as weight has so many columns"
        )
    if x.dtype != weight.dtype or x.device != weight.device:
        raise TypeError(
            f"x is {x.dtype} on {x.device} but weight is {weight.dtype} on {weight.device}; convert one of them"
        )
    product: Tensor = _SparseProduct.apply(x, weight)  # type: ignore[no-untyped-call]
    return product if bias is None else product + bias


class _SparseProduct(torch.autograd.Function):
    """X·Wᵀ for sparse X, and gᵀ·X backwards."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64):
            ctx.x = x
            return x @ weight.T
        ctx.x = as_csr(x)
        return torch.from_numpy(ctx.x @ weight.detach().numpy().T)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor | None]:
        if not ctx.needs_input_grad[1]:
            return None, None
        if isinstance(ctx.x, Tensor):
            return None, (ctx.x.t() @ grad).T
        return None, torch.from_numpy((ctx.x.T @ grad.numpy()).T)


def decide(s: Tensor, threshold: float = 0.0) -> Tensor:
    """Two-class decision: s ≥ threshold → +1, else −1 (int64).

    Example:
        >>> decide(torch.tensor([-0.5, 0.0, 2.0]))
        tensor([-1,  1,  1])
    """
    return signs_of(s >= threshold)


def finite_scores(s: Tensor) -> Tensor:
    """Return scores that are all finite; NaN and infinity have no decision. A compiled program does not look."""
    if not torch.compiler.is_compiling() and not torch.isfinite(s).all():
        bad = s.detach()[~torch.isfinite(s)].reshape(-1)[0].item()
        raise ValueError(f"a score is {bad}, which has no decision; x or the weights are not finite, or too large")
    return s


def signs_of(positive: Tensor) -> Tensor:
    """+1 where true, else −1 (int64); more than twice as fast as ``torch.where`` with two numbers."""
    return positive.long() * 2 - 1


def decide_class(s: Tensor) -> Tensor:
    """K-class decision, the lowest index among the largest scores: (…, K) → (…,).

    Example:
        >>> decide_class(torch.tensor([[0.0, 2.0, 2.0]]))
        tensor([1])
    """
    return s.argmax(-1)


def rival_scores(s: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Score and index of the strongest wrong class (the lowest index among the largest): (…, K), (…,) → two (…,).

    The score is gathered at the index, so that a tie sends its gradient to one class and not, as ``amax``, to all.

    Example:
        >>> rival_scores(torch.tensor([[1.0, 3.0, 3.0]]), torch.tensor([1]))
        (tensor([3.]), tensor([2]))
    """
    index = s.detach().masked_fill(_one_hot(y, s.shape[-1]), float("-inf")).argmax(-1)
    index = torch.where(index == y, (y == 0).long(), index)  # all others are −inf: the lowest of them
    return s.gather(-1, index.unsqueeze(-1)).squeeze(-1), index


def slacks(s: Tensor, y: Tensor) -> Tensor:
    """Return functional margins: y·s, or s_y − s_r against the strongest wrong class r.

    Example:
        >>> slacks(torch.tensor([2.0, -1.0]), torch.tensor([1, 1]))
        tensor([ 2., -1.])
    """
    return own_scores(s, y) - rival_scores(s, y)[0] if s.dim() > y.dim() else y * s


def own_scores(s: Tensor, y: Tensor) -> Tensor:
    """Return the score of each sample's own class: (…, K), (…,) → (…,)."""
    return s.gather(-1, y.long().unsqueeze(-1)).squeeze(-1)


def mistakes(s: Tensor, y: Tensor, *, tie: str = "update", margin: float = 0.0) -> Tensor:
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
    if margin and tie == "sign":
        raise ValueError(f"margin={margin} has no effect with tie='sign'; use tie='update' or tie='strict'")
    differs, slack = _decisions(s, y) != y, slacks(s, y)
    # written as "not >" so that a score that is not a number counts as a mistake, never as a success
    return differs | slack.isnan() if tie == "sign" else ~(slack > margin) if tie == "update" else ~(slack >= margin)


def _decisions(s: Tensor, y: Tensor) -> Tensor:
    return decide_class(s) if _has_classes(s, y) else decide(s)


# --- losses: scores (…,) with labels −1/+1, or scores (…, K) with class indices (…,) ------------------------------


def perceptron_loss(s: Tensor, y: Tensor, *, reduction: str = "mean", tie: str = "update") -> Tensor:
    r"""Perceptron criterion: L = max(0, −y·s), for K classes L = max(0, max_{r≠y} s_r − s_y).

    At the kink y·s = 0 the value is 0 and the derivative in s is a choice: ``"update"`` takes −y, which is the
    perceptron rule; ``"strict"`` takes 0, so zero weights never move; ``"sign"`` takes −y where the decision
    (s ≥ 0 → +1) is wrong, that is for y = −1 only. With K classes s_y − max s_r stands in place of y·s.

    Args:
        s: scores.
        y: labels −1/+1 of the same shape, or class indices.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        tie: the choice at the kink.

    Example:
        >>> s = torch.tensor([2.0, -1.0, 0.0], requires_grad=True)
        >>> perceptron_loss(s, torch.tensor([-1, -1, 1]), reduction="sum").backward()
        >>> s.grad
        tensor([ 1., 0., -1.])
        >>> perceptron_loss(torch.tensor([[1.0, 3.0, 0.0]]), torch.tensor([0]))
        tensor(2.)
    """
    _check_labels(s, y)
    wrong, slack = mistakes(s.detach(), y, tie=tie), slacks(s, y)
    return reduce(torch.where(wrong, -slack, torch.zeros_like(slack)), reduction)


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
        _check_real(s, y)
        s = s.float() if s.dtype.itemsize < 4 else s  # as torch's squared error under autocast: few digits are left
    elif classes := _check_labels(s, y):
        y = torch.where(_one_hot(y, s.shape[-1]), 1, -1)
    t = y.to(s.dtype)
    if targets == "0/1":
        t = (t + 1) / 2
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
        return reduce(-own_scores(s.log_softmax(-1), y), reduction)
    slack = y * s
    return reduce(torch.logaddexp(-slack, torch.zeros_like(slack)), reduction)


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
    classes = _has_classes(s, y)
    if not classes:
        if _seen((y != 1) & (y != -1)):
            raise ValueError(
                f"labels must be -1 and +1, found {y.unique().tolist()[:5]}; map your two labels first, and for "
                "real-valued targets use LMSLoss(targets='real'), RegressionHead(), or LitRegressor under a Trainer"
            )
    elif y.is_floating_point():
        raise TypeError(
            f"class indices must be integers, found {y.dtype}; use y.long(), and for real-valued targets "
            "RegressionHead()"
        )
    elif _seen((y < 0) | (y >= s.shape[-1])):
        raise ValueError(f"labels must be class indices 0 to {s.shape[-1] - 1}, found {y.unique().tolist()[:5]}")
    return classes


def _has_classes(s: Tensor, y: Tensor) -> bool:
    """Return whether s holds a score per class; raise if the shapes fit neither that nor one score per sample."""
    for name, values in (("scores", s), ("labels", y)):
        if not isinstance(values, Tensor):
            raise TypeError(f"{name} must be a tensor, found {type(values).__name__}; use torch.as_tensor({name})")
    if s.shape == y.shape:
        return False
    if s.dim() != y.dim() + 1 or s.shape[:-1] != y.shape or s.shape[-1] < 2:
        raise ValueError(
            f"scores have shape {tuple(s.shape)} and labels {tuple(y.shape)}; one score per sample needs equal shapes "
            "(scores.squeeze(-1) drops a last dimension of 1), K classes need (…, K) and (…,)"
        )
    return True


def _check_real(s: Tensor, y: Tensor) -> None:
    if not isinstance(y, Tensor) or y.is_complex():
        found = y.dtype if isinstance(y, Tensor) else type(y).__name__
        raise TypeError(f"targets must be a tensor of real numbers, found {found}")
    if s.shape != y.shape:
        raise ValueError(
            f"scores have shape {tuple(s.shape)} and targets {tuple(y.shape)}; they must be equal: one target per score"
        )
    if y.is_floating_point() and _seen(~torch.isfinite(y)):
        bad = y[~torch.isfinite(y)].reshape(-1)[0].item()
        raise ValueError(f"targets must be finite numbers, found {bad}; drop or fill such samples")


def _seen(condition: Tensor) -> bool:
    """Return whether the condition holds anywhere, where a look neither stalls a device nor breaks a trace."""
    if torch.compiler.is_compiling() or condition.device.type != "cpu":
        return False
    try:
        return bool(condition.any())
    except RuntimeError:  # under vmap there is no single answer
        return False


def _one_hot(y: Tensor, classes: int) -> Tensor:
    """As ``F.one_hot`` but boolean, for any integer type, and under vmap."""
    return torch.arange(classes, device=y.device) == y.unsqueeze(-1)


# --- geometry of the hyperplane -----------------------------------------------------------------------------------


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

    :func:`torchperc.theory.margin` divides by ‖(w, b)‖, the bias in the norm as the mistake bound needs it, and
    ``RuleTrainer(margin=)`` is a required margin y·s, divided by nothing.

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
    if _seen(norm == 0):
        raise ValueError("the weights are all zero, so they define no hyperplane; train the net first")
    return norm


def two_sample_start(x: Tensor, y: Tensor, *, targets: str = "-1/+1") -> tuple[Tensor, Tensor]:
    """Starting weights (1, d) and bias (1,): the flattest plane s = w·x + b through the first sample of either class.

    w = (t₂ − t₁)·(x₂ − x₁)/‖x₂ − x₁‖² and b = t₁ − w·x₁; with one feature this is the slope (t₂ − t₁)/(x₂ − x₁).
    For regression the plane goes through the first sample and the next one whose x differs from it.

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
        t = check_targets(y, len(x)).to(x)
        others = (x != x[0]).any(-1).nonzero()
        first, second = 0, int(others[0, 0]) if len(others) else 0
    else:
        t = torch.where(y == 1, 1.0, 0.0 if targets == "0/1" else -1.0).to(x)
        if not ((y == 1).any() and (y == -1).any()):
            raise ValueError(
                f"y must hold -1 and +1, found {y.unique().tolist()[:5]}; for real-valued targets use targets='real'"
            )
        first, second = (int((y == label).nonzero()[0, 0]) for label in (-1, 1))
    step = x[second] - x[first]
    if not step.any():
        raise ValueError("x has equal samples where two that differ are needed; shuffle x, or add other samples")
    weight = (t[second] - t[first]) * step / step.square().sum()
    return weight[None], (t[first] - weight @ x[first])[None]


def balanced_weights(y: Tensor) -> dict[int, float]:
    """Weights N/(K·N_label) of the K labels in y, as ``class_weight`` takes them: each class weighs the same.

    Example:
        >>> balanced_weights(torch.tensor([1, -1, -1, -1]))
        {-1: 0.6666666666666666, 1: 2.0}
    """
    labels, counts = torch.as_tensor(y).unique(return_counts=True)
    if not len(labels):
        raise ValueError("y is empty; weights of classes need at least one label")
    return dict(zip(labels.tolist(), (counts.sum() / (len(labels) * counts.double())).tolist(), strict=True))


# --- feature maps -------------------------------------------------------------------------------------------------


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
    return _put(x, x.new_full((*x.shape[:-1], 1), value), position)


def fold_bias(weight: Tensor, bias: Tensor, position: str = "last", value: float = 1.0) -> Tensor:
    """Weights of the same model in homogeneous coordinates, (w, b/value): (K, d), (K,) → (K, d + 1).

    Example:
        >>> fold_bias(torch.tensor([[3.0, 2.0]]), torch.tensor([-4.0]), "first")
        tensor([[-4., 3., 2.]])
    """
    return _put(weight, bias.unsqueeze(-1) / check_number("value", value, above=0), position)


def unfold_bias(weight: Tensor, position: str = "last", value: float = 1.0) -> tuple[Tensor, Tensor]:
    """Inverse of :func:`fold_bias`: (K, d + 1) → (K, d), (K,).

    Example:
        >>> unfold_bias(torch.tensor([[-4.0, 3.0, 2.0]]), "first")
        (tensor([[3., 2.]]), tensor([-4.]))
    """
    first, value = check_choice("position", position, POSITIONS) == "first", check_number("value", value, above=0)
    return (weight[:, 1:], weight[:, 0] * value) if first else (weight[:, :-1], weight[:, -1] * value)


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


def _put(values: Tensor, column: Tensor, position: str) -> Tensor:
    first = check_choice("position", position, POSITIONS) == "first"
    return torch.cat((column, values) if first else (values, column), -1)
