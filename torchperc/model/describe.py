"""Nets, optimizers and schedulers as plain types in checkpoints and model files, and back.

A class with arguments is ``{"class_path": …, "init_args": {…}}``, as in LightningCLI's configs. A file is data, not a
program: only torchperc's nets, ``nn.Linear`` and torch's optimizers and schedulers are made; nothing is imported.
"""

from __future__ import annotations

import inspect
import json
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
from torchperc.nn.threshold import ThresholdNet

Description = dict[str, Any]

NETS: dict[str, type[nn.Module]] = {
    "torchperc.Perceptron": Perceptron,
    "torchperc.MulticlassPerceptron": MulticlassPerceptron,
    "torchperc.JointPerceptron": JointPerceptron,
    "torchperc.MLP": MLP,
    "torchperc.nn.ThresholdNet": ThresholdNet,
    "torch.nn.Linear": nn.Linear,
}
"""What scores samples, and can be saved as a model."""

_FACTORIES = {
    f"{home.__name__}.{name}": kind
    for home in (torch.optim, lr_scheduler)
    for name, kind in vars(home).items()
    if isinstance(kind, type) and issubclass(kind, Optimizer | LRScheduler)
}
_DTYPES = {str(dtype): dtype for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)}
_NOT_SAVED = "not saved"


def described_net(net: nn.Module, nets: Mapping[str, type[nn.Module]] = NETS) -> Description:
    """Describe a net by class and arguments; by class alone if that cannot rebuild it."""
    path = next((path for path, kind in nets.items() if type(net) is kind), None)
    if path is None or (path in NETS and why_not_described(net)):
        return {"class_path": f"{type(net).__module__}.{type(net).__qualname__}"}
    names = [name for name in inspect.signature(type(net)).parameters if name != "device"]
    options: dict[str, Any] = {name: getattr(net, name, None) for name in names}
    if isinstance(net, JointPerceptron):  # whose bias is a constant feature
        options["bias"] = options.pop("features").keywords["bias"]
    elif "bias" in options:
        options["bias"] = net.bias is not None
    if isinstance(net, MLP):
        options |= {"hidden": list(net.hidden), "activation": net.activation_name}
    return {"class_path": path, "init_args": {**options, "dtype": str(next(net.parameters()).dtype)}}


def why_not_described(net: object) -> str | None:
    """Why a net cannot be made again from its class and arguments, or ``None``."""
    if type(net) not in NETS.values():
        return f"net must be one of {', '.join(NETS)}, found {type(net).__name__}"
    if isinstance(net, MLP) and ACTIVATIONS.get(net.activation_name) is not net.activation:
        return f"net has a custom activation, {net.activation_name!r}; use one of {', '.join(ACTIVATIONS)}"
    if isinstance(net, JointPerceptron) and getattr(net.features, "func", None) is not tpf.joint_features:
        return "net has custom features, which cannot be saved in a file; use block features"
    return None


def as_net(net: object, nets: Mapping[str, type[nn.Module]] = NETS) -> nn.Module:
    """A net, or the one out of ``nets`` that a checkpoint describes, its weights yet to be loaded."""
    if isinstance(net, nn.Module):
        return net
    if not isinstance(net, Mapping):
        raise TypeError(f"net must be a module that gives scores, found {type(net).__name__}")
    name, options = str(net.get("class_path")), net.get("init_args")
    if name not in nets or not isinstance(options, Mapping):
        raise ValueError(f"net is a {name}, which a checkpoint cannot describe; load_from_checkpoint(path, net=...)")
    if (dtype := _DTYPES.get(str(options.get("dtype")))) is None:
        raise ValueError(f"net has dtype={options.get('dtype')!r}; choose one of {', '.join(_DTYPES)}")
    with torch.random.fork_rng(devices=[]):  # nn.Linear draws weights, which are replaced anyway
        return nets[name](**{**options, "dtype": dtype})


def described_factory(make: Callable[..., Any] | None) -> Description | str | None:
    """Describe an optimizer or scheduler of torch with plain arguments; others are not saved."""
    if make is None:
        return None
    options: dict[str, Any] = {}
    if isinstance(make, partial):  # LightningCLI's are of a function of its own, with the class as its last argument
        options, make = make.keywords, make.args[-1] if make.args else make.func
    path = next((path for path, kind in _FACTORIES.items() if kind is make), None)
    try:
        json.dumps(options)
    except TypeError:
        return _NOT_SAVED
    return {"class_path": path, "init_args": options} if path else _NOT_SAVED


def as_factory(name: str, make: object) -> Callable[..., Any] | None:
    """A function that makes an optimizer or a scheduler, or the one that a checkpoint describes."""
    if isinstance(make, partial):  # numbers of numpy would end up in the optimizer's state, which is saved, too
        return partial(make, **{k: v.item() if isinstance(v, np.generic) else v for k, v in make.keywords.items()})
    if make is None or callable(make):
        return make
    if make == _NOT_SAVED:
        remedy = f"pass it again, load_from_checkpoint(path, {name}=...)"
        raise ValueError(f"the {name} of this checkpoint is a custom function, which cannot be saved; {remedy}")
    if not isinstance(make, Mapping) or make.get("class_path") not in _FACTORIES:
        raise TypeError(f"{name} must be a function that makes a torch {name}, found {make!r}")
    return partial(_FACTORIES[make["class_path"]], **make.get("init_args", {}))
