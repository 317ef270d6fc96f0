"""Fitted models for other programs: each file is run against torch before it is written."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchperc._checks import first_line, require_packages
from torchperc._files import write_atomically
from torchperc.model.model import FittedModel
from torchperc.model.model_file import MODEL

_SAMPLES, _NUMBERS = 1000, 2**20  # of a check: rows, and numbers in all of them where rows are wide
_OPSET = 18  # of 2022: runtimes from then on read the file
_SHAPES = {"X": {0: torch.export.Dim("N")}}
_TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-12}  # of a score, as a fraction of the largest score


class Checked(NamedTuple):
    """The outcome of running an exported file beside torch: bytes, samples, largest difference, largest score.

    Example:
        >>> Checked(300, 1000, 3.2e-7, 12.5).sentence
        'checked against torch on 1,000 samples: scores up to 12.5 within 3.2e-07'
    """

    size: int
    samples: int
    largest: float
    reach: float

    @property
    def sentence(self) -> str:
        """How the file was checked, in words."""
        within = f"up to {self.reach:.3g} within {self.largest:.1e}" if self.largest else "equal to the bit"
        return f"checked against torch on {self.samples:,} samples: scores {within}"


def save_model(model: FittedModel, path: str | Path) -> Checked:
    """Write a model as :meth:`FittedModel.save` does, after reading it back and running it."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder, MODEL))
        again, content = FittedModel.load(folder), Path(folder, MODEL).read_bytes()
    return _write(model, path, content, again, "the file")


def save_exported(model: FittedModel, path: str | Path) -> Checked:
    """Write a model with ``torch.export``, atomically, after reading it back and running it.

    ``torch.export.load(path).module()`` is a module that needs torch and nothing else, as :meth:`FittedModel.forward`
    describes it. Labels and feature names are JSON in the extra file ``torchperc.json``.

    Args:
        model: to write.
        path: the file, in a folder that exists, usually ``….pt2``. A file of that name is replaced.

    Example:
        >>> import torchperc as tp
        >>> model = FittedModel(tp.Perceptron(2, init="normal", seed=0), labels=("no", "yes"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_exported(model, f"{folder}/model.pt2").samples
        ...     extra = {"torchperc.json": ""}
        ...     again = torch.export.load(f"{folder}/model.pt2", extra_files=extra).module()
        1000
        >>> again(torch.tensor([[9.0, 2.0]]))[1], json.loads(extra["torchperc.json"])["labels"]
        (tensor([1]), ['no', 'yes'])
    """
    buffer = io.BytesIO()
    with _quiet():
        program = _program(model, "torch.export")
        torch.export.save(program, buffer, extra_files={"torchperc.json": json.dumps(_texts(model))})
        again = torch.export.load(io.BytesIO(buffer.getvalue())).module()
    return _write(model, path, buffer.getvalue(), again, "torch.export")


def save_onnx(model: FittedModel, path: str | Path) -> Checked:
    """Write a model as an ONNX file, atomically, after running it in onnxruntime against torch.

    The graph takes ``X`` (N, d), raw features of type :attr:`FittedModel.input_dtype`, and gives ``scores``, ``label``
    and of a logistic head ``probabilities``; a regression gives ``prediction``: see :meth:`FittedModel.forward`.
    Labels, feature names, head and ``about`` are in the file's metadata properties as JSON. The file is refused if a
    label is not the decision on its own score, or if a score differs from torch's by more than 1e-5 of the largest
    score (1e-12 in float64).

    Args:
        model: to write. An MLP of float64 with gelu or leaky_relu is refused, which onnxruntime has in float32 only.
        path: the file, in a folder that exists. A file of that name is replaced.

    Example:
        >>> import torchperc as tp
        >>> model = FittedModel(tp.Perceptron(2, init="normal", seed=0), labels=("no", "yes"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_onnx(model, f"{folder}/model.onnx").samples
        1000
    """
    require_packages("save_onnx", "onnx", "onnxscript", "onnxruntime")
    import onnxruntime as runtime

    content = _onnx_file(model)
    options = runtime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads, options.inter_op_num_threads = 3, 1, 1
    try:
        session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its own kinds of errors, such as an operation that this version has in float32 only
        why = f"onnxruntime {runtime.__version__} does not run this net ({first_line(error)})"
        raise ValueError(f"cannot write {path}: {why}; use a float32 net or another activation") from None
    run: Any = lambda X: map(torch.as_tensor, session.run(None, {"X": X.numpy()}))  # noqa: E731
    return _write(model, path, content, run, "onnxruntime")


def _onnx_file(model: FittedModel) -> bytes:
    """The bytes of an ONNX file, without the paths and source lines that torch notes in it."""
    options: dict[str, Any] = {"input_names": ["X"], "opset_version": _OPSET, "verbose": False}
    with _quiet():
        program = _program(model, "ONNX")
        names = ["prediction"] if model.regression else ["scores", "label", "probabilities"]
        made: Any = torch.onnx.export(program, output_names=names, dynamic_shapes=_SHAPES, **options)
    file = made.model_proto
    for part in (*file.graph.node, *file.graph.initializer, *file.graph.value_info, file.graph, file):
        part.ClearField("metadata_props")
    for name, value in _texts(model).items():
        file.metadata_props.add(key=name, value=json.dumps(value, ensure_ascii=False))
    file.producer_name, file.producer_version = "torchperc", version("torchperc")
    return bytes(file.SerializeToString(deterministic=True))


def _program(model: FittedModel, what: str) -> torch.export.ExportedProgram:
    """The model as a program of torch, for any number of samples; one that takes more than numbers is refused."""
    if not isinstance(model, FittedModel):
        raise TypeError(f"model must be a FittedModel, found {model!r}; FittedModel(net, …) makes one")
    if model.encoding is not None and model.encoding.text_columns:
        column = f"the model reads free text (column {model.encoding.text_columns[0]!r}), and {what} takes numbers only"
        raise ValueError(f"{column}; export it to safetensors, which FittedModel.load and torchperc apply read")
    samples = torch.zeros(3, model.width, dtype=model.input_dtype)  # 0 and 1 samples would be special
    return torch.export.export(model, (samples,), dynamic_shapes=_SHAPES)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Mute what exporters say of themselves, such as that torchvision is not installed."""
    logging.getLogger("torch.onnx._internal.exporter._registration").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _texts(model: FittedModel) -> dict[str, Any]:
    """What an exported file says of its model."""
    about: dict[str, Any] = {"head": repr(model.head), "about": model.about, "torchperc": version("torchperc")}
    about |= {"target": model.target} if model.regression else {}
    return {"labels": list(model.labels), "features": list(model.names), **about}


@torch.no_grad()
def _write(model: FittedModel, path: str | Path, content: bytes, run: Callable[[Tensor], Any], who: str) -> Checked:
    """Run a file beside torch and write it; refuse other labels, and scores outside the tolerance."""
    X, tolerance = _samples(model), _TOLERANCES[model.dtype]
    for given in (X[:1], X):  # a batch of one, where shapes go wrong first
        ours, theirs, off = model(given), tuple(run(given)), float("nan")
        reach = float(ours[0].abs().max())
        if [value.shape for value in ours] == [value.shape for value in theirs]:
            off = float((ours[0].double() - theirs[0].double()).abs().max())
        if not off <= tolerance * reach:
            both = f"scores {theirs[0][:2].tolist()}, … and torch {ours[0][:2].tolist()}, …"
            why = f"further apart than {tolerance} of {reach:.3g}; train on scaled features or use a float32 net"
            raise ValueError(f"cannot write {path}: {who} gives {both}, {why}")
    own = () if model.regression else model.answers(theirs[0])[1:]  # the head on the file's own scores
    for mine, other in zip(own, theirs[1:], strict=False):
        if mine is not None and not torch.allclose(mine, other, rtol=0, atol=tolerance):
            raise ValueError(f"cannot write {path}: {who} decides otherwise than {model.head}; please report this")
    write_atomically(Path(path), content)
    return Checked(len(content), len(X), off, reach)


def _samples(model: FittedModel) -> Tensor:
    """Seeded raw features (N, d) where the training data lay, some of them far outside, and at 0."""
    generator = torch.Generator().manual_seed(0)
    count = min(_SAMPLES, max(_NUMBERS // model.width, 8))
    Z = torch.randn(count, model.width, dtype=torch.float64, generator=generator)
    Z *= torch.tensor([1.0, 1.0, 10.0, 100.0]).repeat(count)[:count, None]
    Z[0], Z[1::7] = 0, Z[1::7].round()
    return (model.shift + model.scale * Z).to(model.input_dtype)
