"""A model as one safetensors file: the weights, and all else as JSON in the file's metadata."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from torchperc._checks import check_bool, check_choice, check_int
from torchperc.model.describe import NETS, as_net, described_net
from torchperc.model.places import MODEL as MODEL
from torchperc.model.places import model_file
from torchperc.model.safetensors import load_safetensors, read_safetensors
from torchperc.nn.modules import MLP

FORMAT = 2  # the newest that is read
WITHOUT_TEXT = 1  # the format of models that need nothing newer, so that older programs read them
DESCRIPTION = "torchperc.model"
_T = TypeVar("_T")


def read_model(path: Path, make: Callable[[nn.Module, dict[str, Any]], _T]) -> _T:
    """What a function makes of the net and the description in a file, or in that of a run's folder."""
    path = model_file(path)
    tensors, texts, sealed = read_safetensors(path)
    state = _described(path, texts, sealed)
    try:
        with torch.device("meta"):  # sizes are compared before a net of those sizes takes memory
            net = net_from_state(state["net"])
        described, found = (
            {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in each.items()}
            for each in (net.state_dict(), tensors)
        )
        if found != described:
            raise ValueError(f"it describes a net of {described} and holds {found}")
        load_safetensors(path, net.to_empty(device="cpu"))
        return make(net, state)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else error
        raise ValueError(f"{path} does not hold a model that can be used: {what}; export it again") from None


def _described(path: Path, texts: Mapping[str, str], sealed: bool) -> dict[str, Any]:
    """The description in a file's text, if it is one that can be trusted and understood."""
    if DESCRIPTION not in texts:
        own = "load them with load_safetensors into a net of yours and save FittedModel.of(net, …)"
        raise ValueError(f"{path} holds weights but no description of a model; {own}, or name the {MODEL} of a run")
    if not sealed:
        raise ValueError(f"{path} has lost its checksum, so another program has written it; export it again")
    try:
        state = json.loads(texts[DESCRIPTION])
        found = check_int("format", state["format"], at_least=1)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"{path} has an unknown description of its model ({error}); export it again") from None
    if found > FORMAT:
        why = f"{path} is of format {found}, written by torchperc {state.get('torchperc')}"
        raise ValueError(f"{why}; this one reads up to format {FORMAT}: pip install -U torchperc")
    return dict(state)


# --- nets, flat and by class name: older than the description in a checkpoint ---


def net_state(net: nn.Module, scores: int) -> dict[str, Any]:
    """A net as a model's file describes it."""
    options = described_net(net)["init_args"]
    state = {"class": type(net).__name__, "dtype": options["dtype"].removeprefix("torch.")}
    state |= {"in_features": options["in_features"], "scores": scores}
    if isinstance(net, MLP):
        state |= {"hidden": options["hidden"], "many": net.num_classes is not None}
        return {**state, "activation": options["activation"]}
    return {**state, "bias": options["bias"]}


def net_from_state(state: Mapping[str, Any]) -> nn.Module:
    """The described net, its weights yet to be loaded."""
    paths = {path.rpartition(".")[2]: path for path in NETS}
    kind = check_choice("class", state["class"], tuple(paths))
    scores = check_int("scores", state["scores"], at_least=1)
    if scores > 1 and (kind == "Perceptron" or (kind == "MLP" and not state["many"])):
        raise ValueError(f"scores={scores} must be 1 for this {kind}")
    dtype = check_choice("dtype", state["dtype"], ("float32", "float64"))
    options = {"in_features": state["in_features"], "dtype": f"torch.{dtype}"}
    if kind == "MLP":
        options |= {"hidden": state["hidden"], "activation": state["activation"]}
        options["num_classes"] = scores if state["many"] else None
    else:
        options["bias"] = check_bool("bias", state["bias"])
        options |= {} if kind == "Perceptron" else {"out_features" if kind == "Linear" else "num_classes": scores}
    return as_net({"class_path": paths[kind], "init_args": options})
