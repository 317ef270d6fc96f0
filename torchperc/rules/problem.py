"""From a net and data to a task that an engine can run, with every check."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from torchperc._checks import (
    Data,
    check_float_dtype,
    check_int,
    check_labels,
    check_sample_weight,
    is_sparse,
    numpy_view,
)
from torchperc.nn.modules import JointPerceptron, MulticlassPerceptron, Perceptron
from torchperc.rules.kernels import Kernel
from torchperc.rules.models import Net, rows_like
from torchperc.rules.spaces import JointSpace, KernelSpace, LinearSpace, Space, Weights
from torchperc.samples.parts import PartRows, as_rows
from torchperc.samples.rows import Rows

if TYPE_CHECKING:
    from torchperc.theory.certificate import Certificate


def linear_problem(net: object, X: Data, *, to_cpu: bool = False) -> tuple[Space, Weights]:
    """The space of a net's weights over checked samples, with no bias step, and its current weights.

    With ``to_cpu``, samples and weights are copied to the CPU where loops are compiled for them.
    """
    net = check_net(net)
    weight, bias = net.weight.detach(), net.bias
    start = Weights(weight, torch.zeros_like(weight[:, 0]) if bias is None else bias.detach()).clone()
    if to_cpu and weight.dtype in (torch.float32, torch.float64) and not isinstance(net, JointPerceptron):
        start = start.to(torch.device("cpu"))
    device = start.bias.device
    if is_sparse(X) and device.type != "cpu":
        raise TypeError(f"X is sparse, which needs a net on the CPU, found {device}; use net.cpu() or X.toarray()")
    if not start.finite:
        raise ValueError("net has weights that are not finite; reset them first")
    rows = as_rows(X, dtype=weight.dtype, device=device, width=net.in_features)
    if isinstance(net, JointPerceptron):
        return JointSpace(rows, net.num_classes, 0.0, net.features), start
    return LinearSpace(rows, None if len(weight) == 1 else len(weight), 0.0), start


def check_net(net: object) -> Net:
    """A net that the rule can train."""
    if not isinstance(net, Net):
        raise TypeError(
            "net must be a linear net (Perceptron, MulticlassPerceptron, JointPerceptron or nn.Linear), found "
            f"{type(net).__name__}; the rule cannot train hidden layers, gradient descent can"
        )
    check_parameters(net)
    if net.bias is not None and net.bias.dtype != net.weight.dtype:
        raise TypeError(
            f"net.bias is {net.bias.dtype} but net.weight is {net.weight.dtype}; use net.to({net.weight.dtype})"
        )
    return net


def check_parameters(net: Net) -> None:
    """Refuse weights that cannot be written in place, or are no floats."""
    for name, values in (("weight", net.weight), ("bias", net.bias)):
        if values is None:
            continue
        if not isinstance(values, nn.Parameter) or values.is_inference() or values.is_meta:
            raise TypeError(
                f"net.{name} must be a plain parameter that can be written, found {type(values).__name__} on "
                f"{values.device}; remove parametrizations and pruning first, and make the net outside inference_mode"
            )
        check_float_dtype(f"net.{name}'s dtype", values.dtype)


def check_steps(lr: float, factors: Tensor, space: Space) -> Tensor:
    """The coefficient of each sample's update, if the net's type can hold it and the bias step."""
    numbers = numpy_view(factors)  # in which no threads are waited for
    least, most = float(numbers.min()) or float(numbers[numbers > 0].min()), float(numbers.max())
    beta, known = space.bias_scale or 1.0, torch.finfo(space.rows.dtype)
    low, high = lr * least * min(1.0, beta), lr * most * max(1.0, beta)
    if not known.tiny <= low <= high <= known.max:
        what = f"lr={lr:g}" if least == most == 1 else f"lr={lr:g} with sample and class weights"
        lost = low if low < known.tiny else high
        remedy = "scale it" if space.rows.dtype == torch.float64 else "scale it, or use net.double()"
        raise ValueError(f"{what} makes steps of {lost:g}, which {space.rows.dtype} cannot hold; {remedy}")
    return factors if lr == 1.0 else torch.as_tensor(lr * numbers)


def learning_margin(margin: float, space: Space) -> float:
    """A margin before scaling, rounded to the type of the scores."""
    return float(torch.tensor(margin / space.scale, dtype=space.rows.dtype)) if margin else 0.0


def warn_if_stuck(tie: str, margin: float, start: Weights, stacklevel: int) -> None:
    """Warn that a strict tie never leaves zero weights."""
    if tie == "strict" and not margin and start.at_zero:
        warnings.warn(
            "tie='strict' updates only where y·s < 0, but from zero weights every score is 0: nothing will ever "
            "move. Use tie='update' (y·s ≤ 0), or start from other weights.",
            UserWarning,
            stacklevel=stacklevel,
        )


def kernel_problem(net: object, X: Data, kernel: Kernel, num_classes: int | None) -> tuple[Space, Weights]:
    """A kernel's space over checked samples, and no support vectors."""
    if net is not None:
        raise TypeError(f"net must be None with a kernel, whose weights no net can hold, found {type(net).__name__}")
    classes = None if num_classes is None else check_int("num_classes", num_classes, at_least=2)
    rows = as_rows(X, dtype=dtype_of(X, default=torch.float64))
    zeros = torch.zeros(classes or 1, dtype=rows.dtype, device=rows.device)
    return KernelSpace(rows, classes, 0.0, kernel), Weights(zeros[:, None][:, :0], zeros)


def dtype_of(X: Data, dtype: torch.dtype | None = None, default: torch.dtype | None = None) -> torch.dtype:
    """The type to compute in: as given, that of X if it is floating, else the default, or torch's."""
    if dtype is not None:
        return check_float_dtype("dtype", dtype)
    own = getattr(X, "dtype", None)
    if isinstance(own, torch.dtype) and own.is_floating_point:
        return own
    known = {"float32": torch.float32, "float64": torch.float64}
    return known.get(str(own), default or torch.get_default_dtype())


def zero_net(rows: Rows, num_classes: int | None) -> Perceptron | MulticlassPerceptron:
    """A net of zero weights for these samples."""
    made: dict[str, Any] = {"dtype": rows.dtype, "device": rows.device}
    return (
        Perceptron(rows.width, **made) if num_classes is None else MulticlassPerceptron(rows.width, num_classes, **made)
    )


def with_bias_step(space: Space, net: object, bias_step: str | None, ids: Tensor) -> Space:
    """The space with a bias step of 1, R² or 0, R over the samples that take part."""
    has_bias = getattr(net, "bias", None) is not None
    if net is not None and not has_bias and bias_step not in (None, "none"):
        raise ValueError(f"bias_step={bias_step!r} but the net has no bias; use bias_step='none', or a net with a bias")
    step = bias_step or ("unit" if has_bias else "none")
    scale = float(space.rows.squared_norms()[ids].max()) if step == "radius" else float(step == "unit")
    return space if scale == space.bias_scale else replace(space, bias_scale=scale)


def held_out(validation: Data, space: Space) -> tuple[Rows, Tensor] | None:
    """Checked validation samples and labels, of the training data's width and dtype."""
    if validation is None:
        return None
    if not isinstance(validation, tuple | list) or len(validation) != 2:
        raise TypeError(f"validation must be a pair (X, y), found a {type(validation).__name__}")
    rows = rows_like(space.rows, validation[0], "validation X")
    labels = check_labels(validation[1], len(rows), space.classes, name="validation y", both=False)
    return rows, labels.to(rows.device)


def part_bounds(rows: Rows, order: object) -> Tensor | None:
    """Where chunks of samples larger than memory begin and end; warns what that means for shuffling."""
    if not isinstance(rows, PartRows):
        return None
    if isinstance(order, str) and order == "shuffled":
        warnings.warn(
            "X is larger than memory and read in chunks: order='shuffled' shuffles the chunks, and the samples within "
            "each chunk",
            UserWarning,
            stacklevel=4,
        )
    return rows.bounds


def prover(space: Space, start: Weights, y: Tensor, ids: Tensor) -> Callable[[], Certificate]:
    """A function that decides whether the samples that take part are separable."""
    if type(space) is not LinearSpace:
        raise ValueError("prove=True is for nets with one weight vector per class, not joint features; leave it out")
    if not space.bias_scale and start.bias.any():
        raise ValueError("prove=True with bias_step='none' needs a bias of 0, which would never change")

    def prove() -> Certificate:
        from torchperc.theory import separability

        samples = space.rows.take(ids).raw()
        data = samples.cpu() if isinstance(samples, Tensor) else samples
        return separability(data, y[ids].cpu(), bias=bool(space.bias_scale), num_classes=space.classes)

    return prove


def sample_factors(
    y: Tensor,
    sample_weight: Data | None,
    class_weight: Mapping[int, float] | str | None,
    classes: int | None,
    *,
    all_zero: bool = False,
) -> Tensor:
    """Sample weight times class weight, in float64."""
    factors = torch.ones(len(y), dtype=torch.float64, device=y.device)
    if sample_weight is not None:
        factors = check_sample_weight(sample_weight, len(y), all_zero=all_zero).to(y.device)
    if class_weight is not None:
        present = y[factors > 0] if isinstance(class_weight, str) else y  # which waits for a device
        for label, factor in class_factors(present, class_weight, classes).items():
            factors = torch.where(y == label, factors * factor, factors)
    return factors


def balanced(counts: Mapping[int, int]) -> Mapping[int, float]:
    """N/(K·N_label) for each label, of which there are so many."""
    return {label: sum(counts.values()) / (len(counts) * count) for label, count in counts.items()}


def class_factors(y: Tensor, class_weight: Mapping[int, float] | str, classes: int | None) -> Mapping[int, float]:
    """The factor per label: as given, or N/(K·N_label) for ``"balanced"``."""
    if isinstance(class_weight, str):
        return balanced(dict(zip(*(found.tolist() for found in y.unique(return_counts=True)), strict=True)))
    labels = (-1, 1) if classes is None else range(classes)
    if unknown := [label for label in class_weight if label not in labels]:
        raise ValueError(f"class_weight names label {unknown[0]!r}; the labels are {', '.join(map(str, labels))}")
    return class_weight
