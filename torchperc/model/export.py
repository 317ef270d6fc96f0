"""Fitted models for other programs: ONNX and torch.export, each run against torch before its file takes its name."""

from __future__ import annotations

import hashlib
import io
import json
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchperc._atomic import write_whole
from torchperc._lazy import requires
from torchperc.model.fitted import MODEL, Classifier, FittedModel, Outputs, answers, linear_layers, one_or_many
from torchperc.model.safetensors import read_safetensors
from torchperc.nn.modules import MLP

_OPSET, _IR = 17, 8  # of 2022: runtimes from then on read the file, and nothing newer is needed
_LARGEST = 2_000_000_000  # bytes that one protobuf message holds
_SAMPLES, _NUMBERS = 1000, 2**20  # of a check: rows, and numbers in all of them where rows are wide
_STEEPEST = 1.13  # the largest derivative of any activation, that of gelu
_ULPS = 16  # by which two libraries' exp, tanh or erf may differ, with room
_TEXTS = "torchperc.json"


@dataclass(frozen=True)
class Checked:
    """What came of running an exported file beside torch.

    Args:
        size: of the file in bytes.
        samples: how many were run through both, half of them as close to the boundary as rounding allows.
        differing: how many got another label, each within rounding of a tie.
        largest: the largest difference between two scores of a sample.
        reach: the largest score, either sign.

    Example:
        >>> Checked(300, 1000, 0, 3.2e-7, 12.5).sentence
        'checked against torch on 1,000 samples: labels equal, scores up to 12.5 within 3.2e-07'
    """

    size: int
    samples: int
    differing: int
    largest: float
    reach: float

    @property
    def sentence(self) -> str:
        """How the file was checked, in words."""
        equal = "labels equal" if not self.differing else f"labels equal but for {self.differing:,} at a tie"
        scores = (
            f"scores up to {self.reach:.3g} within {self.largest:.1e}" if self.largest else "scores equal to the bit"
        )
        return f"checked against torch on {self.samples:,} samples: {equal}, {scores}"


def save_onnx(model: FittedModel, path: str | Path) -> Checked:
    """Write a model as an ONNX file, after running it in onnxruntime against torch; it appears whole or not at all.

    The graph takes ``X`` (N, d), raw features of the net's type (see :attr:`FittedModel.input_dtype`), N free, and
    gives ``scores`` (N,) or (N, K), ``label`` (N,) int64, the place of the label in ``labels``, and of a logistic head
    ``probabilities`` (N, K). The decision is the head's own, on ties too: one score s ≥ threshold (s > 0 of a logistic
    head), or the lowest index among the largest. Labels, feature names, head and ``about`` are in the file's metadata
    properties as JSON. The file is refused if a label is not the decision on its own score, or if a score differs from
    torch's by more than rounding explains. Its SHA-256 is written beside it (``….onnx.sha256``, as sha256sum does), as
    onnxruntime takes damaged weights for weights; :func:`check_file` and ``torchperc export --check`` compare the two.

    The graph is made node by node rather than traced: a scaling, Gemm and activations are all there is, so names,
    ties and types are as said above whatever version of torch is there, and it takes milliseconds.

    Args:
        model: to write. An MLP of float64 with gelu is refused, as onnxruntime has no erf for float64.
        path: the file, in a folder that exists. A file of that name is replaced.

    Returns:
        How the file compares to torch.

    Example:
        >>> import tempfile
        >>> import torchperc as tp
        >>> model = FittedModel.of(tp.Perceptron(2, init="normal", seed=0), labels=("no", "yes"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_onnx(model, f"{folder}/model.onnx").sentence[:52]
        'checked against torch on 1,000 samples: labels equal'
    """
    requires("save_onnx", "onnx", "onnxruntime")
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
            f"cannot write {path}: onnxruntime {runtime.__version__} does not run this net ({_first_line(error)}); "
            "use a float32 net, another activation or a newer onnxruntime"
        ) from None

    def run(X: Tensor) -> Outputs:
        names = [output.name for output in session.get_outputs()]
        found = dict(zip(names, session.run(names, {"X": X.numpy()}), strict=True))
        return Outputs(**{name: torch.from_numpy(np.asarray(values)) for name, values in found.items()})

    checked = _check(model, run, len(content), f"cannot write {path}: onnxruntime", exact=False)
    _write_with_digest(Path(path), content)
    return checked


def save_model(model: FittedModel, path: str | Path) -> Checked:
    """Write a model as :meth:`FittedModel.save` does, after reading it back and running it.

    Args:
        model: to write.
        path: the file, in a folder that exists. A file of that name is replaced.

    Returns:
        How the file compares to the model.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_model(FittedModel.of(torch.nn.Linear(2, 1)), f"{folder}/model.safetensors").largest
        0.0
    """
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder, MODEL))
        again, content = FittedModel.load(folder), Path(folder, MODEL).read_bytes()
    checked = _check(model, again.outputs, len(content), f"cannot write {path}: the file", exact=True)
    write_whole(Path(path), content)
    return checked


def save_exported(model: FittedModel, path: str | Path) -> Checked:
    """Write a model with ``torch.export``, after reading it back and running it; it appears whole or not at all.

    ``torch.export.load(path).module()`` gives back a module that needs torch and nothing else: raw features X (N, d),
    N free, to (scores, label), or (scores, label, probabilities), as :meth:`FittedModel.module` says, to the bit.
    Labels and feature names are JSON in the extra file ``torchperc.json``. The file's SHA-256 is written beside it; see
    :func:`check_file`.

    Args:
        model: to write.
        path: the file, in a folder that exists, usually ``….pt2``. A file of that name is replaced.

    Returns:
        How the file compares to torch.

    Example:
        >>> import tempfile
        >>> import torchperc as tp
        >>> model = FittedModel.of(tp.Perceptron(2, init="normal", seed=0), labels=("no", "yes"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_exported(model, f"{folder}/model.pt2").sentence
        ...     extra = {"torchperc.json": ""}
        ...     again = torch.export.load(f"{folder}/model.pt2", extra_files=extra).module()
        'checked against torch on 1,000 samples: labels equal, scores equal to the bit'
        >>> again(torch.tensor([[9.0, 2.0]]))[1], json.loads(extra["torchperc.json"])["labels"]
        (tensor([1]), ['no', 'yes'])
    """
    buffer = io.BytesIO()
    sample = torch.zeros(3, model.width, dtype=model.input_dtype)  # neither 0 nor 1 rows, which would be special
    with _quiet():
        program = torch.export.export(model.module(), (sample,), dynamic_shapes={"X": {0: torch.export.Dim("N")}})
        torch.export.save(program, buffer, extra_files={_TEXTS: json.dumps(_texts(model))})
        again = torch.export.load(io.BytesIO(buffer.getvalue())).module()

    def run(X: Tensor) -> Outputs:
        return Outputs(*again(X))

    content = buffer.getvalue()
    checked = _check(model, run, len(content), f"cannot write {path}: torch.export", exact=True)
    _write_with_digest(Path(path), content)
    return checked


def _write_with_digest(path: Path, content: bytes) -> None:
    """Neither onnxruntime nor torch.export notices a flipped byte in the weights, so a file for it lies beside them."""
    write_whole(path, content)
    write_whole(_digest_file(path), f"{hashlib.sha256(content).hexdigest()}  {path.name}\n".encode())


def _digest_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def check_file(path: str | Path) -> str:
    """Check that an exported file is as it was written.

    Args:
        path: a file that :func:`save_onnx` or :func:`save_exported` wrote, with its ``.sha256`` file beside it; or a
            safetensors file, which has its checksum inside.

    Returns:
        What was checked, in words.

    Raises:
        ValueError: if the file is damaged, or there is nothing to check it by.

    Example:
        >>> path = Path(tempfile.mkdtemp(), "model.onnx")
        >>> _ = save_onnx(FittedModel.of(torch.nn.Linear(2, 1)), path)
        >>> check_file(path)[:17]
        'as written, sha25'
        >>> _ = path.write_bytes(path.read_bytes()[:-1])
        >>> check_file(path)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: ...model.onnx is not as it was written: its digest differs from that in model.onnx.sha256; export...
    """
    path = Path(path)
    beside = _digest_file(path)
    if path.suffix == ".safetensors" and path.is_file() and not beside.exists():
        if not read_safetensors(path)[2]:
            raise ValueError(f"{path} has no checksum to check it by; export it again with torchperc")
        return "as written, by the checksum in it"
    for file in (path, beside):
        if not file.is_file():
            raise ValueError(f"cannot check {path}: there is no file {file}; export the model again, which writes both")
    wanted = beside.read_bytes()[:64].decode(errors="replace")
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != wanted:
        raise ValueError(
            f"{path} is not as it was written: its digest differs from that in {beside.name}; export the model again"
        )
    return f"as written, sha256 {found}"


@contextmanager
def _quiet() -> Iterator[None]:
    """torch warns of its own deprecated ways while it exports."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _texts(model: FittedModel) -> dict[str, Any]:
    return {
        "labels": list(model.labels),
        "features": list(model.names),
        "head": repr(model.head),
        "about": dict(model.about),
        "torchperc": version("torchperc"),
    }


# --- the ONNX graph ---


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
    outputs = _many(graph, model) if value == "scores" else _one(graph, model, value)
    return _file(graph, model, outputs)


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


def _one(graph: _Graph, model: FittedModel, value: str) -> list[str]:
    """One score a sample: against the threshold, on which the head itself says what holds."""
    kind, threshold = _numpy(model.dtype), model.head.threshold
    scores = graph.add("Squeeze", value, np.array([1]), name="scores")
    at_it = answers(model.head, torch.tensor([threshold], dtype=model.dtype)).label
    above = graph.add("GreaterOrEqual" if at_it else "Greater", scores, kind(threshold))
    label = graph.add("Cast", above, to=graph.onnx.TensorProto.INT64, name="label")
    if not _is_logistic(model):
        return [scores, label]
    both = graph.add("Sigmoid", value), graph.add("Sigmoid", graph.add("Neg", value))
    return [scores, label, graph.add("Concat", both[1], both[0], axis=1, name="probabilities")]


def _many(graph: _Graph, model: FittedModel) -> list[str]:
    """K scores a sample: the first of the largest."""
    label = graph.add("ArgMax", "scores", axis=1, keepdims=0, select_last_index=0, name="label")
    chances = [graph.add("Softmax", "scores", axis=1, name="probabilities")] if _is_logistic(model) else []
    return ["scores", label, *chances]


def _is_logistic(model: FittedModel) -> bool:
    return answers(model.head, torch.zeros(1)).probabilities is not None


def _numpy(dtype: torch.dtype) -> Callable[[float], np.ndarray[Any, Any]]:
    def constant(value: float) -> np.ndarray[Any, Any]:
        return np.array(value, np.float32 if dtype == torch.float32 else np.float64)

    return constant


def _activated(graph: _Graph, x: str, name: str, dtype: torch.dtype) -> str:
    """An activation in operators that onnxruntime has for float32 and float64 alike."""
    number, add = _numpy(dtype), graph.add
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
        raise ValueError(
            "onnxruntime has no erf for float64, which gelu needs; use a float32 net or another activation"
        )
    whole = add("Add", add("Erf", add("Mul", x, number(0.5**0.5))), number(1))
    return add("Mul", add("Mul", x, number(0.5)), whole)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _file(graph: _Graph, model: FittedModel, outputs: list[str]) -> bytes:
    onnx, helper = graph.onnx, graph.onnx.helper
    kinds = {torch.float32: onnx.TensorProto.FLOAT, torch.float64: onnx.TensorProto.DOUBLE}
    classes = len(model.labels)
    own = ["N"] if len(linear_layers(model.net)[-1][0]) == 1 else ["N", classes]
    shapes = {"scores": own, "label": ["N"], "probabilities": ["N", classes]}
    types = {**dict.fromkeys(shapes, kinds[model.dtype]), "label": onnx.TensorProto.INT64}
    made = helper.make_graph(
        graph.nodes,
        "torchperc",
        [helper.make_tensor_value_info("X", kinds[model.input_dtype], ["N", model.width])],
        [helper.make_tensor_value_info(name, types[name], shapes[name]) for name in outputs],
        graph.constants,
    )
    file = helper.make_model(
        made, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR, producer_name="torchperc"
    )
    texts = _texts(model)
    file.producer_version = texts["torchperc"]
    helper.set_model_props(file, {name: json.dumps(value, ensure_ascii=False) for name, value in texts.items()})
    onnx.checker.check_model(file, full_check=True)
    content: bytes = file.SerializeToString()
    return content


# --- the check ---


@torch.no_grad()
def _check(model: FittedModel, run: Callable[[Tensor], Outputs], size: int, who: str, *, exact: bool) -> Checked:
    """Run a file beside torch; a difference that rounding does not explain is an error."""
    module = model.module()
    X = samples(model, module)
    torchs = Outputs(*module(X))
    theirs = run(X)
    alone = run(X[:1])  # a batch of one, where shapes go wrong first
    if _shapes(theirs) != _shapes(torchs) or _shapes(alone) != _shapes(Outputs(*module(X[:1]))):
        raise ValueError(f"{who} gives {_shapes(theirs)} and torch {_shapes(torchs)}; please report this")
    slack = torch.zeros_like(torchs.scores, dtype=torch.float64) if exact else rounding(model, X)
    off = (torchs.scores.double() - theirs.scores.double()).abs()
    if not (off <= slack).all():
        row = int((~(off <= slack)).reshape(len(X), -1).any(1).nonzero()[0])
        raise ValueError(
            f"{who} scores sample {X[row].tolist()[:8]} {theirs.scores[row].tolist()} and torch "
            f"{torchs.scores[row].tolist()}, which is more than rounding; please report this"
        )
    own = answers(model.head, theirs.scores)
    if not torch.equal(own.label, theirs.label):
        raise ValueError(f"{who} decides otherwise than {model.head} on the same scores; please report this")
    if own.probabilities is not None and theirs.probabilities is not None:
        off_by = (own.probabilities - theirs.probabilities).abs()
        if not (off_by <= _ULPS * torch.finfo(model.dtype).eps).all():
            raise ValueError(f"{who} gives other probabilities than torch for the same scores; please report this")
    differing = int((torchs.label != theirs.label).sum())
    return Checked(size, len(X), differing, float(off.max()), float(torchs.scores.abs().max()))


def _shapes(outputs: Outputs) -> list[tuple[int, ...]]:
    return [tuple(values.shape) for values in outputs if values is not None]


def samples(model: FittedModel, module: Classifier) -> Tensor:
    """Seeded raw features for a check: where the training data lay, far outside, at 0, and along the boundary.

    Args:
        model: whose scaling says where the training data lay.
        module: its :meth:`FittedModel.module`.

    Shape:
        (1000, d); fewer rows where d is above some thousands, or where scores would overflow.

    Example:
        >>> model = FittedModel.of(torch.nn.Linear(2, 1))
        >>> samples(model, model.module()).shape
        torch.Size([1000, 2])
    """
    generator = torch.Generator().manual_seed(0)
    shift, scale = model.scaling() or (torch.zeros(model.width), torch.ones(model.width))
    half = min(_SAMPLES, max(_NUMBERS // model.width, 8)) // 2
    Z = torch.randn(half, model.width, dtype=torch.float64, generator=generator)
    Z *= torch.tensor([1.0, 1.0, 10.0, 100.0]).repeat(half)[:half, None]
    Z[0], Z[1::7] = 0, Z[1::7].round()
    X = (shift + scale * Z).to(model.input_dtype)
    X = torch.cat([X, _boundary(model, module, X)])
    limits = torch.finfo(model.dtype)
    kept = X[(rounding(model, X) < limits.eps * limits.max).reshape(len(X), -1).all(1)]  # no partial sum overflows
    if not len(kept):
        raise ValueError("the weights are so large that every score overflows; train on scaled features")
    return kept


def _boundary(model: FittedModel, module: Classifier, X: Tensor) -> Tensor:
    """Each sample moved towards one of another label, as far as it keeps its own and rounding cannot change it."""
    label = module(X)[1]
    first = {int(k): int((label != k).nonzero()[0]) if (label != k).any() else 0 for k in label.unique()}
    here, there = X.double(), X[[first[k] for k in label.tolist()]].double()
    for _ in range(20 if model.dtype == torch.float32 else 50):
        middle = (here + there) / 2
        kept = _clearly(model, module, middle.to(X.dtype), label)[:, None]
        here, there = torch.where(kept, middle, here), torch.where(kept, there, middle)
    return here.to(X.dtype)


def _clearly(model: FittedModel, module: Classifier, X: Tensor, label: Tensor) -> Tensor:
    """Where samples have a label by more than rounding."""
    scores, found = module(X)[:2]
    slack, ahead = 2 * rounding(model, X), scores.double() - model.head.threshold
    if scores.dim() == 2:
        highest = ahead.topk(2).values
        slack, ahead = slack.amax(1), highest[:, 0] - highest[:, 1]
    return torch.logical_and(found == label, ahead.abs() > slack)


def rounding(model: FittedModel, X: Tensor) -> Tensor:
    """How far apart two ways to sum up the same net may come to lie: a bound for each score, layer by layer.

        |Δs| ≤ (m + 2)·ε·(|W|·|a| + |b|) + |W|·|Δa|

    for a layer of m inputs a, whatever the order of its sums; ε is the distance from 1 to the next number.

    Args:
        model: whose net is summed up.
        X: raw features.

    Shape:
        X (N, d) → as the scores, float64.

    Example:
        >>> model = FittedModel.of(torch.nn.Linear(2, 1))
        >>> bool(rounding(model, torch.ones(1, 2)) < 1e-5)
        True
    """
    eps = torch.finfo(model.dtype).eps
    shift, scale = model.scaling() or (torch.zeros(()), torch.ones(()))
    value = ((X.double() - shift) / scale).to(model.dtype).double()
    apart: Tensor | float = 0.0
    layers = linear_layers(model.net)
    for i, (weight, bias) in enumerate(layers):
        w, b = weight.double(), torch.zeros(()) if bias is None else bias.double()
        carried = apart @ w.abs().T if isinstance(apart, Tensor) else 0.0
        sums = value.abs() @ w.abs().T + carried + b.abs()
        apart = carried + (w.shape[1] + 2) * eps * sums + torch.finfo(model.dtype).tiny
        value = value @ w.T + b
        if i < len(layers) - 1:
            assert isinstance(model.net, MLP)
            value = model.net.activation(value)
            apart = _STEEPEST * apart + _ULPS * eps * (1 + value.abs())
    assert isinstance(apart, Tensor)
    return one_or_many(apart)
