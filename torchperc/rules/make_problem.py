"""From a net and data to a problem that an engine can learn, with every check."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from torchperc._checks import (
    Data,
    check_choice,
    check_float_dtype,
    check_int,
    check_labels,
    check_number,
    check_sample_weight,
)
from torchperc.nn.functional import balanced_weights
from torchperc.nn.modules import JointPerceptron, MulticlassPerceptron, Perceptron
from torchperc.rules.decision import PerceptronRule, host
from torchperc.rules.family import RuleProblem
from torchperc.rules.models import Net
from torchperc.rules.problem import Array, JointProblem, Problem, Weights
from torchperc.samples.mapped import Chunked, as_samples
from torchperc.samples.rows import Samples

if TYPE_CHECKING:
    from torchperc.theory.certificate import Certificate


def check_net(net: object) -> Net:
    """Return a net that the rule can train."""
    if not isinstance(net, Net):
        raise TypeError(
            "net must be a linear net (Perceptron, MulticlassPerceptron, JointPerceptron or nn.Linear), found "
            f"{type(net).__name__}; the rule cannot train hidden layers; use gradient descent, or tp.rules.build"
        )
    dtype = check_float_dtype("net.weight's dtype", net.weight.dtype)
    given = {"weight": net.weight} if net.bias is None else {"weight": net.weight, "bias": net.bias}
    for name, values in given.items():
        if not isinstance(values, nn.Parameter) or values.is_inference() or values.is_meta:
            raise TypeError(
                f"net.{name} must be a plain parameter that can be written, found {type(values).__name__} on "
                f"{values.device}; remove parametrizations and pruning first, and make the net outside inference_mode"
            )
        if values.dtype != dtype:
            raise TypeError(f"net.{name} is {values.dtype} but net.weight is {dtype}; use net.to({dtype})")
    return net


def weights_of(net: Net, *, to_cpu: bool) -> Weights:
    """Return a copy of a net's weights; on the CPU if loops can be compiled for them there."""
    weight = net.weight.detach()
    bias = weight.new_zeros(len(weight)) if net.bias is None else net.bias.detach()
    if to_cpu and weight.dtype in (torch.float32, torch.float64) and not isinstance(net, JointPerceptron):
        weight, bias = weight.cpu(), bias.cpu()
    weights = Weights(weight, bias).clone()
    if not all(bool(values.isfinite().all()) for values in weights):
        raise ValueError("net has weights that are not finite; reset them first")
    return weights


def classes_of(net: Net) -> int | None:
    """Return the number of classes of a net, ``None`` for labels −1/+1."""
    if isinstance(net, JointPerceptron):
        return net.num_classes
    return len(net.weight) if len(net.weight) > 1 else None


def zero_net(samples: Samples, num_classes: int | None) -> Perceptron | MulticlassPerceptron:
    """Return a net of zero weights for these samples."""
    width, kind = samples.n_features, dict[str, Any](dtype=samples.dtype, device=samples.device)
    return Perceptron(width, **kind) if num_classes is None else MulticlassPerceptron(width, num_classes, **kind)


def dtype_of(X: Data, dtype: torch.dtype | None = None, default: torch.dtype | None = None) -> torch.dtype:
    """Return the dtype to compute in: as given, else X's if floating, else the default or torch's."""
    if dtype is not None:
        return check_float_dtype("dtype", dtype)
    own = getattr(X, "dtype", None)
    if isinstance(own, torch.dtype) and own.is_floating_point:
        return own
    return getattr(torch, str(own)) if str(own) in ("float32", "float64") else default or torch.get_default_dtype()


def check_class_weight(class_weight: Mapping[int, float] | str | None) -> Mapping[int, float] | str | None:
    """Return ``class_weight`` if it is ``None``, ``"balanced"`` or a factor per label."""
    if class_weight is None or isinstance(class_weight, str):
        return class_weight and check_choice("class_weight", class_weight, ("balanced",))
    if not isinstance(class_weight, Mapping):
        raise TypeError(f"class_weight must be a mapping {{label: factor}}, found {type(class_weight).__name__}")
    return {label: check_number(f"class_weight[{label!r}]", w, at_least=0) for label, w in class_weight.items()}


def sample_weights(
    y: Array, sample_weight: Data | None, class_weight: Mapping[int, float] | str | None, num_classes: int | None
) -> Array:
    """Return sample weight times class weight in float64: (N,)."""
    found = np.ones(len(y))
    if sample_weight is not None:
        found = check_sample_weight(sample_weight, len(y)).cpu().numpy().copy()
    if isinstance(class_weight, str):
        class_weight = balanced_weights(torch.from_numpy(y[found > 0]))
    known = (-1, 1) if num_classes is None else range(num_classes)
    for label, factor in (class_weight or {}).items():
        if label not in known:
            raise ValueError(f"class_weight names label {label!r}; the labels are {', '.join(map(str, known))}")
        found = np.where(y == label, found * factor, found)
    return found


def bias_step_of(net: object, bias_step: str | None, samples: Samples, ids: Array) -> float:
    """Return the bias step as a number: 1, R² or 0, with R the largest norm of the samples that take part."""
    has_bias = getattr(net, "bias", None) is not None
    if net is not None and not has_bias and bias_step not in (None, "none"):
        raise ValueError(f"bias_step={bias_step!r} but the net has no bias; use bias_step='none', or a net with a bias")
    name = bias_step or ("unit" if has_bias else "none")
    if name != "radius":
        return float(name == "unit")
    step = float(host(samples.squared_norms())[ids].max())
    if step == 0.0:
        raise ValueError("bias_step='radius' is 0: the squares of X vanish; scale X up, or use bias_step='unit'")
    return step


def check_steps(lr: float, weights: Array, bias_step: float, samples: Samples) -> None:
    """Refuse steps of samples and bias that the net's type cannot hold."""
    about, positive = torch.finfo(samples.dtype), weights[weights > 0]
    low = lr * float(positive.min()) * min(1.0, bias_step or 1.0)
    high = lr * float(positive.max()) * max(1.0, bias_step)
    if not about.tiny <= low <= high <= about.max:
        lost = low if low < about.tiny else high
        remedy = "scale it" if samples.dtype == torch.float64 else "scale it, or use net.double()"
        raise ValueError(f"lr={lr:g} makes steps of {lost:g}, which {samples.dtype} cannot hold; {remedy}")


def _check_updates(step_sizes: Array, samples: Samples) -> None:
    """Refuse samples so small that their updates vanish."""
    least = float(step_sizes[step_sizes > 0].min())
    if least >= 1.0 or samples.max_squared_norm > 1e-150:
        return
    largest = max(float(abs(piece.raw()).max()) for piece in samples.all_parts())
    if 0.0 < largest * least < torch.finfo(samples.dtype).tiny or (largest and not largest * least):
        raise ValueError(f"X is at most {largest:g} in size, so steps of {least:g} underflow; scale X up")


def make_problem(
    trainer: Any, net: Any, X: Data, y: Data, sample_weight: Data, start: Any, scale: Any, num_classes: Any, both: bool
) -> tuple[Problem, Any, Array]:
    """Return the problem of a net and data by a trainer's options, the first weights, the samples that take part.

    The first weights are ``start``, or those of the net if it is ``None``. ``scale`` is a factor of all models; for
    ``None`` the learning rate if training starts from zero weights, else 1. ``both`` requires at least two classes.
    """
    if trainer.kernel is not None:
        if net is not None:
            found = type(net).__name__
            raise TypeError(f"net must be None with a kernel, whose weights no net can hold, found {found}")
        if num_classes is not None:
            check_int("num_classes", num_classes, at_least=2)
        samples = as_samples(X, dtype=dtype_of(X, default=torch.float64))
    else:
        if start is None:
            start = weights_of(check_net(net), to_cpu=trainer.engine in ("auto", "compiled"))
            if trainer.tie == "strict" and not trainer.margin and not start.any_nonzero:
                still = "from zero weights every score is 0: nothing will ever move"
                warnings.warn(f"tie='strict' updates only where y·s < 0, but {still}; use tie='update'", stacklevel=5)
        dtype, device, num_classes = start.bias.dtype, start.bias.device, classes_of(net)
        samples = as_samples(X, dtype=dtype, device=device, n_features=net.in_features)
    if scale is None:
        scale = 1.0 if start is not None and start.any_nonzero else trainer.lr
    labels = check_labels(y, len(samples), num_classes, both=both).cpu().numpy()
    weights = sample_weights(labels, sample_weight, trainer.class_weight, num_classes)
    ids = np.arange(len(labels))
    if sample_weight is not None or trainer.class_weight is not None:
        ids = np.flatnonzero(weights)
        if not len(ids) or (both and labels[ids].min() == labels[ids].max()):
            left = "one class only; at least two classes are required" if both else "no sample"
            raise ValueError(f"sample_weight and class_weight leave {left}")
    bias_step = bias_step_of(net, trainer.bias_step, samples, ids)
    check_steps(trainer.lr, weights, bias_step, samples)
    rule = trainer.rule
    if isinstance(rule, PerceptronRule) and rule.margin:  # before scaling, rounded to the type of the scores
        rule = replace(rule, margin=float(torch.tensor(rule.margin / scale, dtype=samples.dtype)))
    step_sizes = weights if scale != 1.0 or trainer.lr == 1.0 else trainer.lr * weights
    _check_updates(step_sizes, samples)
    common = (samples, labels, num_classes, weights, step_sizes, rule, bias_step, scale)
    problem = Problem(*common)
    if trainer.kernel is not None:
        problem = trainer.kernel.problem(*common)
    elif isinstance(net, JointPerceptron):
        problem = JointProblem(*common, features=net.features)
    elif not isinstance(rule, PerceptronRule):
        problem = RuleProblem(*common)
    return problem, problem.laid_out(start), ids


def check_validation(validation: Any, problem: Problem) -> tuple[Samples, Any] | None:
    """Return checked validation samples and labels, of the training data's width and dtype."""
    if validation is None:
        return None
    if not isinstance(validation, tuple | list) or len(validation) != 2:
        raise TypeError(f"validation must be a pair (X, y), found a {type(validation).__name__}")
    return problem.labelled(validation[0], validation[1], prefix="validation ")


def chunk_bounds(samples: Samples, order: object) -> Array | None:
    """Return where chunks of samples larger than memory begin and end; warns what that means for shuffling."""
    if not isinstance(samples, Chunked):
        return None
    if isinstance(order, str) and order == "shuffled":
        what = "X is larger than memory: order='shuffled' shuffles the chunks, and the samples within each chunk"
        warnings.warn(what, UserWarning, stacklevel=5)
    return np.asarray(samples.bounds)


def prover(problem: Problem, start: Any, ids: Array) -> Callable[[], Certificate]:
    """Return a function that decides whether the samples that take part are separable."""
    if type(problem) is not Problem:
        raise ValueError("prove=True is for nets with one weight vector per class, not joint features; omit it")
    if not problem.bias_step and start.bias.any():
        raise ValueError("prove=True with bias_step='none' needs a bias of 0; reset net.bias first")

    def prove() -> Certificate:
        from torchperc.theory import separability

        samples = problem.samples.take(torch.from_numpy(ids).to(problem.samples.device)).raw()
        return separability(samples, problem.y[ids], bias=bool(problem.bias_step), num_classes=problem.num_classes)

    return prove
