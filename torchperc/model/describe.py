"""Arguments as a checkpoint keeps them: nets, heads, optimizers and schedulers as plain types, and back.

A class with arguments is written as LightningCLI writes it, ``{"class_path": …, "init_args": {…}}``, so that a config
and a checkpoint read alike. A checkpoint is data, not a program: only torchperc's own nets, ``nn.Linear`` and torch's
optimizers and schedulers are made from one, and nothing is imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from torchperc.nn import functional as tpf
from torchperc.nn.modules import ACTIVATIONS, MLP, JointPerceptron, MulticlassPerceptron, Perceptron

Description = dict[str, Any]

NETS: dict[str, type[nn.Module]] = {
    "torchperc.Perceptron": Perceptron,
    "torchperc.MulticlassPerceptron": MulticlassPerceptron,
    "torchperc.JointPerceptron": JointPerceptron,
    "torchperc.MLP": MLP,
    "torch.nn.Linear": nn.Linear,
}
"""What scores samples, and can be saved as a model."""

_DTYPES = {str(dtype): dtype for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)}
_NOT_SAVED = "not saved"


def described_net(net: nn.Module, nets: Mapping[str, type[nn.Module]] = NETS) -> Description:
    """A net as its class and arguments; one that cannot be made again from those as its class alone."""
    net = uncompiled(net)
    path = next((path for path, kind in nets.items() if type(net) is kind), None)
    if path is None or (path in NETS and why_not_described(net)):
        return {"class_path": f"{type(net).__module__}.{type(net).__qualname__}"}
    options = {name: getattr(net, name, None) for name in inspect.signature(type(net)).parameters}
    if "bias" in options:
        options["bias"] = has_bias(net)
    if isinstance(net, MLP):
        options |= {"hidden": list(net.hidden), "activation": net.activation_name}
    options["dtype"] = str(next(net.parameters()).dtype)
    unsaved = ("device", "features") if isinstance(net, JointPerceptron) else ("device",)
    return {"class_path": path, "init_args": {name: v for name, v in options.items() if name not in unsaved}}


def why_not_described(net: object) -> str | None:
    """Why a net cannot be made again from its class and arguments, or ``None``."""
    if type(net) not in NETS.values():
        known = "Perceptron, MulticlassPerceptron, JointPerceptron, MLP or nn.Linear"
        return f"net must be a {known}, found {type(net).__name__}"
    if isinstance(net, MLP) and ACTIVATIONS.get(net.activation_name) is not net.activation:
        own = f"the MLP has a custom activation, {net.activation_name!r}, which cannot be saved in a file"
        return f"{own}; use one of {', '.join(ACTIVATIONS)}"
    if isinstance(net, JointPerceptron) and getattr(net.features, "func", None) is not tpf.joint_features:
        return "the JointPerceptron has custom features, which cannot be saved in a file; use block features"
    return None


def has_bias(net: nn.Module) -> bool:
    """Whether a net has a bias; that of joint features is a constant feature."""
    if isinstance(net, JointPerceptron):
        assert isinstance(net.features, partial)
        return bool(net.features.keywords["bias"])
    return getattr(net, "bias", None) is not None


def uncompiled(net: nn.Module) -> nn.Module:
    """The net inside ``torch.compile(net)``; any other net as it is."""
    inner = getattr(net, "_orig_mod", None)
    return inner if isinstance(inner, nn.Module) else net


def as_net(net: object, nets: Mapping[str, type[nn.Module]] = NETS) -> nn.Module:
    """A net, or the one out of ``nets`` that a checkpoint describes, its weights yet to be loaded."""
    if isinstance(net, nn.Module):
        return net
    if not isinstance(net, Mapping):
        raise TypeError(f"net must be a module that gives scores, found {type(net).__name__}")
    name, options = str(net.get("class_path")), net.get("init_args")
    if name not in nets or not isinstance(options, Mapping):
        remedy = "pass your own, load_from_checkpoint(path, net=...)"
        raise ValueError(f"net is a {name}, which a checkpoint cannot describe; {remedy}")
    dtype = _DTYPES.get(str(options.get("dtype")))
    if dtype is None:
        raise ValueError(f"net has dtype={options.get('dtype')!r}; choose one of {', '.join(_DTYPES)}")
    with torch.random.fork_rng(devices=[]):  # nn.Linear draws weights, which are replaced anyway
        return nets[name](**{**options, "dtype": dtype})


def described_factory(make: Callable[..., Any] | None) -> Description | str | None:
    """A function that makes an optimizer or a scheduler, if it is one of torch's classes with plain arguments."""
    if make is None:
        return None
    options: dict[str, Any] = {}
    if isinstance(make, partial):
        options = {name: x.item() if isinstance(x, np.generic) else x for name, x in make.keywords.items()}
        if make.func.__module__.partition(".")[0] == "jsonargparse":
            make = make.args[-1]  # LightningCLI gives partials of a function of its own, with the class at its end
        elif not make.args:
            make = make.func
    path = _class_path(make)
    return {"class_path": path, "init_args": options} if path and _is_plain(options) else _NOT_SAVED


def _class_path(kind: object) -> str | None:
    packages: tuple[tuple[Any, type], ...] = ((torch.optim, Optimizer), (lr_scheduler, LRScheduler))
    for package, base in packages:
        name = getattr(kind, "__name__", "")
        if isinstance(kind, type) and issubclass(kind, base) and getattr(package, name, None) is kind:
            return f"{package.__name__}.{name}"
    return None


def _is_plain(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, str)


def as_factory(name: str, make: object) -> Callable[..., Any] | None:
    """A function that makes an optimizer or a scheduler, or the one that a checkpoint describes."""
    if isinstance(make, partial):  # numbers of numpy would end up in the optimizer's state, which is saved, too
        numbers = {key: value.item() for key, value in make.keywords.items() if isinstance(value, np.generic)}
        return partial(make, **numbers) if numbers else make
    if make is None or callable(make):
        return make
    home: Any = {"optimizer": torch.optim, "scheduler": lr_scheduler}[name]
    if isinstance(make, Mapping):
        path, options = str(make.get("class_path")), make.get("init_args", {})
        package, _, kind = path.rpartition(".")
        found = getattr(home, kind, None) if package == home.__name__ else None
        if isinstance(found, type) and _class_path(found) == path and isinstance(options, Mapping):
            return partial(found, **options)
    if make == _NOT_SAVED:
        remedy = f"pass it again, load_from_checkpoint(path, {name}=...)"
        raise ValueError(f"the {name} of this checkpoint is a custom function, which cannot be saved; {remedy}")
    raise TypeError(f"{name} must be a function that makes a torch {name}, found {make!r}")
