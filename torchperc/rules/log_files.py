"""Mistake logs on disk: ``.npz`` with a hash of the data, or JSON with the data inside, checked by one validator.

The JSON is what the interactive page downloads and shows; its entries are described at the top of
``torchperc/lab/play/js/log.js``, which reads and writes the same.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import Data, check_choice, check_int, check_labels, check_number
from torchperc._files import write_atomically
from torchperc.nn import functional as tpf
from torchperc.rules.decision import PerceptronRule, Rule
from torchperc.rules.family import RuleProblem, ScaledMistakes, check_rule
from torchperc.rules.kernel import KERNELS, Kernel, KernelProblem
from torchperc.rules.problem import Array, JointProblem, Mistakes, Problem, Weights
from torchperc.samples.mapped import as_samples
from torchperc.samples.rows import Samples

NPZ_FORMAT, JSON_FORMAT, JSON_VERSION = 3, "torchperc mistake log", 1
DTYPES = ("float32", "float64", "float16", "bfloat16")
KINDS = ("linear", "joint", "kernel")
_Parts = tuple[Problem, Any, tuple[Mistakes, ...], Tensor, dict[str, Any]]


@contextmanager
def naming(name: str | Path) -> Iterator[None]:
    """Add the file's name to errors of reading it."""
    try:
        yield
    except Exception as error:  # whatever zip, zlib, numpy and json make of a damaged file, and what is checked here
        what = f"it has no entry {error}" if isinstance(error, KeyError) else error
        raise ValueError(f"{name} is not a mistake log, or is damaged ({what}); save it again") from None


def save(log: Any, path: Path) -> None:
    """Write a ``MistakeLog`` atomically, in the format that the extension of the file names."""
    if path.suffix.lower() == ".json":
        write_atomically(path, f"{to_json(log)}\n".encode())
        return
    about, arrays = _contents(log)
    arrays["about"] = np.array(json.dumps({"format": NPZ_FORMAT, "data": log.problem.data_hash(), **about}))
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    write_atomically(path, content.getvalue())


def _contents(log: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a file holds of a log: a description, and arrays by name."""
    problem = log.problem
    about = {**problem.describe(), "conventions": log.conventions, "steps": log.steps}
    if about["kind"] not in KINDS:
        raise ValueError(f"a log of a {about['kind']} run has no file format; keep state_dict() of RuleTrainer.start")
    arrays = {**problem.columns(log.mistakes), "epoch_ends": log.epoch_ends.numpy()}
    arrays["sample_weight"] = problem.sample_weight
    if not isinstance(problem, KernelProblem):  # which starts at zero
        arrays |= {name: values.double().numpy() for name, values in log.start.state_dict().items()}
    return about, arrays


def load(path: Path, X: Data | None, y: Data | None, kernel: Any, features: Any) -> _Parts:
    """Return the parts of a log from a file, bound to its data; other data are refused.

    ``kernel`` and ``features`` are the user's functions, if the run used any.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        what = f"cannot read {path}: {error.strerror}; a mistake log is one file, as MistakeLog.save writes it"
        raise type(error)(error.errno, what) from None
    if path.suffix.lower() == ".json":
        _check_given(kernel, features, {})
        return from_json(content, str(path), X, y)
    if X is None or y is None:
        raise TypeError(f"{path} holds a hash of its data only; pass X and y, the data the log was made on")
    with naming(path):
        about, arrays = read_npz(content)
        check_choice("kind", about["kind"], KINDS)
        _validate_about(about)
    samples = as_samples(X, dtype=getattr(torch, about["dtype"]))
    labels = check_labels(y, len(samples), about["num_classes"], both=False)
    if samples.hash(labels) != about["data"]:
        raise _other_data(path)
    _check_given(kernel, features, about)
    with naming(path):
        _validate_arrays(about, arrays, labels.numpy(), samples.n_features)
    return _assemble(about, arrays, labels.numpy(), samples, kernel, features)


def read_npz(content: bytes) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the description and the arrays of a log, which zipfile checks, and check the format."""
    if not content.startswith(b"PK"):
        raise ValueError("it is no .npz file")
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    about = json.loads(str(arrays.pop("about")))
    if about["format"] != NPZ_FORMAT:
        raise ValueError(f"it has log format {about['format']!r}; this torchperc reads format {NPZ_FORMAT}")
    return about, arrays


def _assemble(
    about: dict[str, Any], arrays: dict[str, Array], y: Array, samples: Samples, kernel: Any, features: Any
) -> _Parts:
    """Return the parts of a log from checked arrays."""
    kind: Any = ScaledMistakes if "rule" in about else Mistakes
    mistakes = kind(*(arrays[name] for name in kind._fields))
    step_sizes = arrays["sample_weight"].copy()
    step_sizes[mistakes.sample] = np.abs(mistakes.coef)
    rule: Rule = PerceptronRule(about.get("tie", "update"), about.get("margin", 0.0))
    rule = check_rule(about["rule"]) if "rule" in about else rule
    given = (samples, y, about["num_classes"], arrays["sample_weight"], step_sizes)
    common = (*given, rule, about["bias_step"], about["scale"])
    problem, start = (RuleProblem if "rule" in about else Problem)(*common), None
    if about["kind"] == "joint":
        block = partial(tpf.joint_features, num_classes=about["num_classes"], bias=about["block_bias"])
        problem = JointProblem(*common, features=features or block)
    if about["kind"] == "kernel":
        problem = KernelProblem(*common, kernel=Kernel(kernel or about["kernel"], about["degree"], about["gamma"]))
    else:
        start = Weights(*(torch.from_numpy(arrays[name]).to(samples.dtype) for name in Weights._fields))
    ends = torch.from_numpy(arrays["epoch_ends"])
    return problem, problem.laid_out(start), (mistakes,), ends, about.get("conventions", {})


def _check_given(kernel: object, features: object, about: dict[str, Any]) -> None:
    """Refuse functions that are missing, or that the log was made without."""
    own_kernel, own_features = about.get("kernel") == "function", about.get("block_bias", True) is None
    for name, value, needed in (("kernel", kernel, own_kernel), ("features", features, own_features)):
        if needed and not callable(value):
            raise ValueError(f"{name}={value!r}, but this log was made with a custom {name}; pass it again")
        if value is not None and not needed:
            raise ValueError(f"{name} was given, but this log was made without a custom {name}; omit it")


def _other_data(name: str | Path) -> ValueError:
    return ValueError(f"{name} belongs to other data; pass the X and y that the log was made on")


_ABOUT = {"classes": "num_classes", "bias_scale": "bias_step", "scale": "scale", "steps": "steps", "dtype": "dtype",
          "conventions": "conventions"}  # fmt: skip
_ARRAYS = {"index": "sample", "step": "step", "wrong": "predicted", "epoch_ends": "epoch_ends", "coef": "coef",
           "cost": "sample_weight"}  # fmt: skip
"""Entries of the JSON, and what they are called here."""


def to_json(log: Any) -> str:
    """Return the log of a linear net with its data as JSON; what has its usual value is left out."""
    about, arrays = _contents(log)
    if about["kind"] != "linear" or "rule" in about:
        kind = "run of another rule than the perceptron" if "rule" in about else f"{about['kind']} run"
        raise ValueError(f"a log of a {kind} is not for the interactive page; save it as .npz")
    arrays["coef"] = arrays["coef"] * about["scale"]
    entries: dict[str, Any] = {
        "format": JSON_FORMAT,
        "version": JSON_VERSION,
        "points": log.problem.samples.dense().double().tolist(),
        "labels": log.problem.y.tolist(),
        **{entry: about[name] for entry, name in _ABOUT.items()},
        "start": {name: arrays[name].tolist() for name in Weights._fields},
        **{entry: arrays[name].tolist() for entry, name in _ARRAYS.items()},
    }
    usual = {"dtype": "float64", "conventions": {}, "cost": [1.0] * len(log.problem.y)}
    told = {name: entry for name, entry in entries.items() if name not in usual or entry != usual[name]}
    return json.dumps(told, allow_nan=False)


def from_json(text: str | bytes, name: str, X: Data | None = None, y: Data | None = None) -> _Parts:
    """Return the parts of a log from JSON, on its own samples or on the same as they are given."""
    if (X is None) != (y is None):
        raise TypeError(f"{'X' if X is None else 'y'} is missing; pass X and y, the data of the log, or neither")
    with naming(name):
        about, arrays, points, labels = _parse_json(text)
    dtype = getattr(torch, about["dtype"])
    samples = as_samples(torch.from_numpy(points).to(dtype), dtype=dtype)
    if X is not None:
        own, samples = samples, as_samples(X, dtype=dtype)
        given = check_labels(y, len(samples), about["num_classes"], both=False).numpy()
        if not torch.equal(samples.dense(), own.dense()) or not np.array_equal(given, labels):
            raise _other_data(name)
    return _assemble(about, arrays, labels, samples, None, None)


def _parse_json(text: str | bytes) -> tuple[dict[str, Any], dict[str, Array], Array, Array]:
    """Return a description, columns, samples and labels from JSON, every entry checked."""
    entries = json.loads(text, parse_constant=lambda name: _fail("number", f"{name} is not finite"))
    if not isinstance(entries, dict) or entries.get("format") != JSON_FORMAT:
        raise ValueError(f'it does not have "format": "{JSON_FORMAT}"')
    if entries.get("version") != JSON_VERSION:
        raise ValueError(f"it has version {entries.get('version')!r}; this torchperc reads version {JSON_VERSION}")
    if entries.get("projection") is not None:
        raise ValueError("it is a two-feature view of a run with more features")
    points = _array("points", entries["points"], 2)
    entries = {"dtype": "float64", "conventions": {}, "cost": [1] * len(points), **entries}
    about = {"kind": "linear", **{name: entries[entry] for entry, name in _ABOUT.items()}}
    _validate_about(about)
    given = _array("labels", entries["labels"], integers=True)
    labels = check_labels(given, len(points), about["num_classes"], name="labels", both=False).numpy()
    whole = ("index", "step", "wrong", "epoch_ends")
    arrays = {name: _array(entry, entries[entry], integers=entry in whole) for entry, name in _ARRAYS.items()}
    arrays["weight"] = _array("start.weight", entries["start"]["weight"], 2)
    arrays["bias"] = _array("start.bias", entries["start"]["bias"])
    largest = torch.finfo(getattr(torch, about["dtype"])).max
    for name, values in (("points", points), ("start.weight", arrays["weight"]), ("start.bias", arrays["bias"])):
        if (np.abs(values) > largest).any():
            _fail(name, f"holds a number too large for {about['dtype']}")
    _validate_arrays(about, arrays, labels, points.shape[1])
    if about["scale"] != 1.0:  # coefficients are written scaled, and learned with steps of the sample weight
        sign = labels[arrays["sample"]] if about["num_classes"] is None else 1
        arrays["coef"] = arrays["sample_weight"][arrays["sample"]] * sign
    return about, arrays, points, labels


def _array(name: str, given: Any, ndim: int = 1, integers: bool = False) -> Array:
    """Return a list of numbers, or of rows of numbers, as an array; integers must be written as such."""
    try:
        found = np.asarray(given)
    except ValueError:
        _fail(name, "must have rows of equal length")
    if found.ndim != ndim or (found.size and found.dtype.kind not in ("i" if integers else "if")):
        what = "integers" if integers else "numbers"
        _fail(name, f"must be a list of {what}, found {found.dtype} of shape {found.shape}")
    return found.astype(np.int64 if integers else np.float64)


def _fail(name: str, what: str) -> NoReturn:
    raise ValueError(f'"{name}" {what}')


def _validate_about(about: dict[str, Any]) -> None:
    """Refuse a description whose type, classes or factors make no sense."""
    check_choice("dtype", about["dtype"], DTYPES)
    check_choice("kernel", about.get("kernel", "function"), (*KERNELS, "function"))
    if about["num_classes"] is not None:
        check_int("classes", about["num_classes"], at_least=2)
    check_number("bias_scale", about["bias_step"], at_least=0)
    check_number("scale", about["scale"], at_least=0)
    check_int("steps", about["steps"], at_least=0)


def _validate_arrays(about: dict[str, Any], arrays: dict[str, Array], labels: Array, width: int) -> None:
    """Refuse columns that do not fit the data: loops would read and write outside of them."""
    classes, steps, ends, count = about["num_classes"], about["steps"], arrays["epoch_ends"], arrays["sample"].size
    _check_integers("index", arrays["sample"], count, 0, len(labels))
    _check_integers("step", arrays["step"], count, 0, max(steps, 1))
    _check_integers("wrong", arrays["predicted"], count, *((-1, 2) if classes is None else (0, classes)))
    _check_integers("epoch_ends", ends, ends.size, 0, steps + 1)
    shapes: dict[str, tuple[int, ...]] = {"coef": (count,), "sample_weight": (len(labels),)}
    shapes |= {"factor": (count,)} if "rule" in about else {}
    if about["kind"] == "linear":
        shapes |= {"weight": (classes or 1, width), "bias": (classes or 1,)}
    if about["kind"] == "joint":
        shapes |= {"weight": (1, arrays["weight"].size), "bias": (1,)}
    for name, shape in shapes.items():
        found = arrays[name]
        if found.dtype != np.float64 or found.shape != shape or not np.isfinite(found).all():
            _fail(name, f"must hold finite numbers of shape {shape}, found {found.dtype} of shape {found.shape}")
    for name in ("step", "epoch_ends"):
        if (np.diff(arrays[name]) < 0).any():
            _fail(name, "must not fall")
    if steps != (int(ends[-1]) if len(ends) else 0):
        _fail("epoch_ends", f"ends at {ends[-1] if len(ends) else 0}, and there are {steps} steps")
    if (arrays["sample_weight"] < 0).any():
        _fail("cost", "must hold numbers >= 0")
    own, predicted = labels[arrays["sample"]], arrays["predicted"]
    if (predicted == own).any() or (classes is None and (predicted == 0).any()):
        _fail("wrong", "names a sample's own label, or 0")
    if (arrays["coef"] * (own if classes is None else 1) < 0).any():
        _fail("coef", "has the wrong sign for its label")


def _check_integers(name: str, values: Array, count: int, low: int, stop: int) -> None:
    if values.dtype != np.int64 or values.shape != (count,):
        _fail(name, f"must hold {count} integers, found {values.dtype} of shape {values.shape}")
    if count and not (low <= values.min() and values.max() < stop):
        _fail(name, f"must hold integers from {low} to {stop - 1}, found {values.min()} to {values.max()}")
