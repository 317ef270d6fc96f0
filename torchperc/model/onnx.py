"""Fitted models as ONNX files, run in onnxruntime against torch before they are written."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import first_line, require_packages
from torchperc._files import write_atomically
from torchperc.model.export import Checked, compare, refuse_text, texts
from torchperc.model.fitted import FittedModel, Outputs, answers, linear_layers
from torchperc.nn.heads import LogisticHead
from torchperc.nn.modules import MLP

_OPSET, _IR = 17, 8  # of 2022: runtimes from then on read the file, and nothing newer is needed
_LARGEST = 2_000_000_000  # bytes that one protobuf message holds


def save_onnx(model: FittedModel, path: str | Path) -> Checked:
    """Write a model as an ONNX file, atomically, after running it in onnxruntime against torch.

    The graph takes ``X`` (N, d), raw features of type :attr:`FittedModel.input_dtype`, N free, and gives ``scores``
    (N,) or (N, K), ``label`` (N,) int64, the place of the label in ``labels``, and of a logistic head ``probabilities``
    (N, K); a regression gives ``prediction`` (N,) float64, in the target's units. The decision is the head's own, on
    ties too: one score s ≥ threshold (s > 0 of a logistic head), or the lowest index among the largest. Labels, feature
    names, head and ``about`` are in the file's metadata properties as JSON. The file is refused if a label is not the
    decision on its own score, or if a score differs from torch's by more than 1e-5 of the largest score (1e-12 in
    float64).

    Args:
        model: to write. An MLP of float64 with gelu is refused, as onnxruntime has no erf for float64.
        path: the file, in a folder that exists. A file of that name is replaced.

    Example:
        >>> import tempfile
        >>> import torchperc as tp
        >>> model = FittedModel.of(tp.Perceptron(2, init="normal", seed=0), labels=("no", "yes"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_onnx(model, f"{folder}/model.onnx").samples
        1000
    """
    refuse_text(model, "ONNX")
    require_packages("save_onnx", "onnx", "onnxruntime")
    import onnx
    import onnxruntime as runtime

    content = _graph(onnx, model)
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its own kinds of errors, such as an operation that this version has in float32 only
        raise ValueError(
            f"cannot write {path}: onnxruntime {runtime.__version__} does not run this net ({first_line(error)}); "
            "use a float32 net, another activation or a newer onnxruntime"
        ) from None

    def run(X: Tensor) -> Outputs:
        names = [output.name for output in session.get_outputs()]
        found = dict(zip(names, session.run(names, {"X": X.numpy()}), strict=True))
        fields = {"scores" if name == "prediction" else name: values for name, values in found.items()}
        return Outputs(**{name: torch.from_numpy(np.asarray(values)) for name, values in fields.items()})

    checked = compare(model, run, len(content), f"cannot write {path}: onnxruntime")
    write_atomically(Path(path), content)
    return checked


# --- the graph, made node by node rather than traced, so that names, ties and types are the same by any torch ---


@dataclass
class _Graph:
    """Nodes and constants as they are added; each value is known by its name."""

    onnx: Any
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def add(self, kind: str, *inputs: str | np.ndarray[Any, Any], name: str | None = None, **attributes: Any) -> str:
        """A node, and constants for the inputs that are arrays; the name of its output."""
        result = name or f"{kind.lower()}_{len(self.nodes)}"
        named = [value if isinstance(value, str) else self._constant(value) for value in inputs]
        self.nodes.append(self.onnx.helper.make_node(kind, named, [result], name=f"node_{result}", **attributes))
        return result

    def _constant(self, value: np.ndarray[Any, Any]) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name


def _graph(onnx: Any, model: FittedModel) -> bytes:
    """The model as the bytes of an ONNX file."""
    layers = linear_layers(model.net)
    if sum(weight.nbytes for weight, _ in layers) + 64 * model.width > _LARGEST:
        raise ValueError(f"the model of {model.width:,} features is over 2 GB, more than an ONNX file holds")
    graph = _Graph(onnx)
    value = _scaled(graph, model)
    for i, (weight, bias) in enumerate(layers):
        inputs = [weight.numpy()] if bias is None else [weight.numpy(), bias.numpy()]
        last = i == len(layers) - 1
        value = graph.add("Gemm", value, *inputs, transB=1, name="scores" if last and len(weight) > 1 else None)
        if not last:
            assert isinstance(model.net, MLP)
            value = _activated(graph, value, model.net.activation_name, model.dtype)
    if model.regression:
        return _file(graph, model, [_predicted(graph, model, value)])
    return _file(graph, model, _many(graph, model) if value == "scores" else _one(graph, model, value))


def _scaled(graph: _Graph, model: FittedModel) -> str:
    """Scaling in float64, then the net's type, as in training."""
    value, kinds = "X", graph.onnx.TensorProto
    scaling = model.scaling()
    if scaling is None:
        return value
    if model.input_dtype != torch.float64:
        value = graph.add("Cast", value, to=kinds.DOUBLE)
    value = graph.add("Div", graph.add("Sub", value, scaling[0].numpy()), scaling[1].numpy())
    return value if model.dtype == torch.float64 else graph.add("Cast", value, to=kinds.FLOAT)


def _predicted(graph: _Graph, model: FittedModel, value: str) -> str:
    """The one score in float64, in the units of the target."""
    shift, scale = model.target_scaling()
    score = graph.add("Squeeze", value, np.array([1]))
    if model.dtype != torch.float64:
        score = graph.add("Cast", score, to=graph.onnx.TensorProto.DOUBLE)
    return graph.add("Add", graph.add("Mul", score, np.array(scale)), np.array(shift), name="prediction")


def _one(graph: _Graph, model: FittedModel, value: str) -> list[str]:
    """One score per sample: against the threshold, on which the head itself says what holds."""
    threshold = model.head.threshold
    scores = graph.add("Squeeze", value, np.array([1]), name="scores")
    at_it = answers(model.head, torch.tensor([threshold], dtype=model.dtype)).label
    above = graph.add("GreaterOrEqual" if at_it else "Greater", scores, _constant(model.dtype)(threshold))
    label = graph.add("Cast", above, to=graph.onnx.TensorProto.INT64, name="label")
    if not isinstance(model.head, LogisticHead):
        return [scores, label]
    both = graph.add("Sigmoid", value), graph.add("Sigmoid", graph.add("Neg", value))
    return [scores, label, graph.add("Concat", both[1], both[0], axis=1, name="probabilities")]


def _many(graph: _Graph, model: FittedModel) -> list[str]:
    """K scores per sample: the first of the largest."""
    label = graph.add("ArgMax", "scores", axis=1, keepdims=0, select_last_index=0, name="label")
    if not isinstance(model.head, LogisticHead):
        return ["scores", label]
    return ["scores", label, graph.add("Softmax", "scores", axis=1, name="probabilities")]


def _constant(dtype: torch.dtype) -> Callable[[float], np.ndarray[Any, Any]]:
    return partial(np.array, dtype=str(dtype).removeprefix("torch."))


def _activated(graph: _Graph, x: str, name: str, dtype: torch.dtype) -> str:
    """An activation in operators that onnxruntime has for float32 and float64 alike."""
    number, add = _constant(dtype), graph.add
    if name == "identity":
        return x
    if name in ("tanh", "relu", "sigmoid"):
        return add(name.capitalize(), x)
    if name == "leaky_relu":  # the operator of that name keeps its slope in float32
        return add("Max", x, add("Mul", x, number(0.01)))
    if name == "elu":
        below = add("Sub", add("Exp", add("Min", x, number(0))), number(1))
        return add("Add", add("Max", x, number(0)), below)
    if name == "silu":
        return add("Mul", x, add("Sigmoid", x))
    if name == "softplus":  # torch leaves x as it is above 20
        rest = add("Log", add("Add", add("Exp", add("Neg", add("Abs", x))), number(1)))
        return add("Where", add("Greater", x, number(20)), x, add("Add", add("Max", x, number(0)), rest))
    if dtype == torch.float64:
        remedy = "use a float32 net or another activation"
        raise ValueError(f"onnxruntime has no erf for float64, which gelu needs; {remedy}")
    whole = add("Add", add("Erf", add("Mul", x, number(0.5**0.5))), number(1))
    return add("Mul", add("Mul", x, number(0.5)), whole)


def _file(graph: _Graph, model: FittedModel, outputs: list[str]) -> bytes:
    onnx, helper = graph.onnx, graph.onnx.helper
    kinds = {torch.float32: onnx.TensorProto.FLOAT, torch.float64: onnx.TensorProto.DOUBLE}
    classes = len(model.labels)
    own = ["N"] if len(linear_layers(model.net)[-1][0]) == 1 else ["N", classes]
    shapes = {"scores": own, "label": ["N"], "probabilities": ["N", classes], "prediction": ["N"]}
    types = {**dict.fromkeys(shapes, kinds[model.dtype]), "label": onnx.TensorProto.INT64}
    types["prediction"] = onnx.TensorProto.DOUBLE
    made = helper.make_graph(
        graph.nodes,
        "torchperc",
        [helper.make_tensor_value_info("X", kinds[model.input_dtype], ["N", model.width])],
        [helper.make_tensor_value_info(name, types[name], shapes[name]) for name in outputs],
        graph.constants,
    )
    opset = [helper.make_opsetid("", _OPSET)]
    file = helper.make_model(made, opset_imports=opset, ir_version=_IR, producer_name="torchperc")
    about = texts(model)
    file.producer_version = about["torchperc"]
    helper.set_model_props(file, {name: json.dumps(value, ensure_ascii=False) for name, value in about.items()})
    onnx.checker.check_model(file, full_check=True)
    content: bytes = file.SerializeToString()
    return content
