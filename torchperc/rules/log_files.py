"""Mistake logs on disk: ``.npz`` with a hash of the data, or JSON with the data inside, checked by one validator.

The JSON is what the interactive page downloads and shows; its entries are described at the top of
``torchperc/lab/play/js/log.js``, which reads and writes the same.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import Data, check_labels
from torchperc._files import write_atomically
from torchperc.nn import functional as tpf
from torchperc.rules.decision import PerceptronRule
from torchperc.rules.joint import JointProblem
from torchperc.rules.kernel import Kernel, KernelProblem
from torchperc.rules.problem import Array, Mistakes, Problem, Weights
from torchperc.samples import digest
from torchperc.samples.dense import Samples
from torchperc.samples.mapped import as_samples

NPZ_FORMAT, JSON_FORMAT, JSON_VERSION = 3, "torchperc mistake log", 1
DTYPES = ("float32", "float64", "float16", "bfloat16")
_JSON_NAMES = {"sample": "index", "predicted": "wrong", "sample_weight": "cost", "num_classes": "classes",
               "bias_step": "bias_scale", "weight": "start.weight", "bias": "start.bias"}  # fmt: skip
_INTEGER_COLUMNS = ("sample", "step", "predicted", "epoch_ends")
_Parts = tuple[Problem, Any, tuple[Mistakes, ...], Tensor, dict[str, Any]]


class FormatError(ValueError):
    """What is wrong with a file."""


def save(log: Any, path: Path) -> None:
    """Write a ``MistakeLog`` atomically, in the format that the extension of the file names."""
    if path.suffix.lower() == ".json":
        write_atomically(path, f"{to_json(log)}\n".encode())
        return
    problem = log.problem
    about = {
        "format": NPZ_FORMAT,
        "data": problem.samples.hash(log.y),
        "conventions": log.conventions,
        "steps": log.steps,
        **problem.describe(),
    }
    arrays = {**log.mistakes._asdict(), "epoch_ends": log.epoch_ends.numpy(), "sample_weight": problem.sample_weight}
    if isinstance(log.start, Weights):
        arrays |= {name: values.double().numpy() for name, values in log.start.state_dict().items()}
    arrays["about"] = np.array(json.dumps(about))
    content = io.BytesIO()
    np.savez_compressed(content, **arrays, checksum=np.array(digest.of_named(arrays)))
    write_atomically(path, content.getvalue())


def load(
    path: Path,
    X: Data | None,
    y: Data | None,
    kernel: Callable[[Any, Any], Any] | None,
    features: Callable[[Tensor], Tensor] | None,
) -> _Parts:
    """Return the parts of a log from a file, bound to its data; other data are refused."""
    try:
        content = path.read_bytes()
    except OSError as error:
        what = f"cannot read {path}: {error.strerror}; a mistake log is one file, as MistakeLog.save writes it"
        raise type(error)(error.errno, what) from None
    if path.suffix.lower() == ".json":
        _check_given("kernel", kernel, False)
        _check_given("features", features, False)
        return _load_json(path, content, X, y)
    if X is None or y is None:
        raise TypeError(f"{path} holds a hash of its data only; pass X and y, the data the log was made on")
    try:
        about, arrays = _read_npz(content)
    except Exception as error:  # whatever zip, zlib, numpy and json make of a damaged file
        raise ValueError(f"{path} is not a mistake log, or is damaged ({error}); save it again") from None
    if about["format"] != NPZ_FORMAT:
        raise ValueError(f"{path} has log format {about['format']!r}; this torchperc reads format {NPZ_FORMAT}")
    try:
        _validate_about(about)
        samples = as_samples(X, dtype=getattr(torch, about["dtype"]))
        labels = check_labels(y, len(samples), about["num_classes"], both=False)
    except FormatError as error:
        raise ValueError(f"{path} does not hold a log that fits its data ({error}); save it again") from None
    if samples.hash(labels) != about["data"]:
        raise ValueError(f"{path} belongs to other data: X and y are not those the log was made on")
    _check_given("kernel", kernel, about.get("kernel") == "function")
    _check_given("features", features, about["kind"] == "joint" and about["block_bias"] is None)
    try:
        _validate_arrays(about, arrays, labels.numpy(), samples.n_features)
    except (FormatError, KeyError) as error:
        raise ValueError(f"{path} does not hold a log that fits its data ({error}); save it again") from None
    return _assemble(about, arrays, labels.numpy(), samples, kernel, features)


def _read_npz(content: bytes) -> tuple[dict[str, Any], dict[str, Array]]:
    if not content.startswith(b"PK"):
        raise ValueError("it is no .npz file")
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    if str(arrays.pop("checksum")) != digest.of_named(arrays):
        raise ValueError("its checksum does not match")
    about = json.loads(str(arrays.pop("about")))
    if not {"kind", "classes"} & about.keys():  # the latter in logs of earlier versions
        raise ValueError("it is a log of something else")
    _ = about["format"], about["data"]
    return about, arrays


def _assemble(
    about: dict[str, Any],
    arrays: dict[str, Array],
    labels: Array,
    samples: Samples,
    kernel: Callable[[Any, Any], Any] | None = None,
    features: Callable[[Tensor], Tensor] | None = None,
) -> _Parts:
    """Return the parts of a log from checked arrays."""
    mistakes = Mistakes(*(arrays[name] for name in Mistakes._fields))
    steps = arrays["sample_weight"].copy()
    steps[mistakes.sample] = np.abs(mistakes.coef)
    given = (samples, labels, about["num_classes"], arrays["sample_weight"], steps)
    rule = PerceptronRule(about.get("tie", "update"), about.get("margin", 0.0))
    common = (*given, rule, about["bias_step"], about["scale"])
    rest = (mistakes,), torch.from_numpy(arrays["epoch_ends"]), about.get("conventions", {})
    if about["kind"] == "kernel":
        own = Kernel(kernel or about["kernel"], about["degree"], about["gamma"])
        problem = KernelProblem(*common, kernel=own)
        return problem, problem.start(), *rest
    start = Weights(*(torch.from_numpy(arrays[name]).to(samples.dtype) for name in Weights._fields))
    if about["kind"] == "joint":
        block = partial(tpf.joint_features, num_classes=about["num_classes"], bias=about["block_bias"])
        return JointProblem(*common, features=features or block), start, *rest
    linear = Problem(*common)
    return linear, linear.laid_out(start) if linear.can_compile else start, *rest


def _check_given(name: str, value: object, needed: bool) -> None:
    if needed and not callable(value):
        raise ValueError(f"{name}={value!r}, but this log was made with a function of your own; pass it again")
    if value is not None and not needed:
        raise ValueError(f"{name} was given, but this log was made without a function of your own; leave it out")


# --- JSON ---------------------------------------------------------------------------------------------------------


def to_json(log: Any) -> str:
    """Return the log of a linear net with its data as JSON; what has its usual value is left out."""
    problem = log.problem
    about = problem.describe()
    if about["kind"] != "linear":
        raise ValueError(f"a log of a {about['kind']} run has no weights for each feature; save it as .npz")
    start = {name: values.double().tolist() for name, values in log.start.state_dict().items()}
    entries: dict[str, Any] = {
        "format": JSON_FORMAT,
        "version": JSON_VERSION,
        "points": problem.samples.double().dense().tolist(),
        "labels": problem.y.tolist(),
        "classes": problem.num_classes,
        "bias_scale": float(problem.bias_step),
        "scale": float(problem.scale),
        "start": start,
        "index": log.mistakes.sample.tolist(),
        "step": log.mistakes.step.tolist(),
        "coef": log.coef.tolist(),
        "wrong": log.mistakes.predicted.tolist(),
        "epoch_ends": log.epoch_ends.tolist(),
        "steps": log.steps,
    }
    if about["dtype"] != "float64":
        entries["dtype"] = about["dtype"]
    if (problem.sample_weight != 1).any():
        entries["cost"] = problem.sample_weight.tolist()
    if log.conventions:
        entries["conventions"] = log.conventions
    return json.dumps(entries, allow_nan=False)


def from_json(text: str | bytes, name: str, samples: Samples | None = None) -> _Parts:
    """Return the parts of a log from JSON, on its own data or on the same as they are given."""
    try:
        about, arrays, points, labels = _parse_json(text)
    except FormatError as error:
        raise ValueError(f"{name} is not a mistake log, or is damaged: {error}; save it again") from None
    dtype = getattr(torch, about["dtype"])
    samples = as_samples(torch.from_numpy(points).to(dtype), dtype=dtype) if samples is None else samples
    return _assemble(about, arrays, labels, samples)


def _load_json(path: Path, content: bytes, X: Data | None, y: Data | None) -> _Parts:
    if (X is None) != (y is None):
        raise TypeError(f"{'X' if X is None else 'y'} is missing; pass X and y, the data of the log, or neither")
    parts = from_json(content, str(path))
    if X is None:
        return parts
    problem = parts[0]
    samples = as_samples(X, dtype=problem.samples.dtype)
    labels = check_labels(y, len(samples), problem.num_classes, both=False).numpy()
    if not (torch.equal(samples.dense(), problem.samples.dense()) and np.array_equal(labels, problem.y)):
        raise ValueError(f"{path} belongs to other data: X and y are not those the log was made on")
    return from_json(content, str(path), samples)


def _parse_json(text: str | bytes) -> tuple[dict[str, Any], dict[str, Array], Array, Array]:
    """Return a description, columns, samples and labels from JSON, every entry checked."""
    try:
        found = json.loads(text, parse_constant=lambda name: _fail(None, f"it holds {name}, which is no finite number"))
    except FormatError:
        raise
    except (ValueError, RecursionError) as error:  # also bytes that are no text
        raise FormatError(f"it is not JSON ({error})") from None
    if not isinstance(found, dict) or found.get("format") != JSON_FORMAT:
        raise FormatError(f'it does not have "format": "{JSON_FORMAT}"')
    if found.get("version") != JSON_VERSION:
        raise FormatError(f"it has version {found.get('version')!r}; this torchperc reads version {JSON_VERSION}")
    if found.get("projection") is not None:
        raise FormatError("it shows a run with more features in two of them, without the others")
    start = found.get("start")
    if not isinstance(start, dict) or not {"weight", "bias"} <= set(start):
        _fail("start", "must have weight and bias")
    entries = {**found, "start.weight": start["weight"], "start.bias": start["bias"]}
    for name in ("points", "labels", "classes", "bias_scale", "scale", "index", "step", "coef", "wrong", "steps",
                 "epoch_ends"):  # fmt: skip
        if name not in entries:
            _fail(name, "is missing")
    about = {"kind": "linear", "num_classes": entries["classes"], "bias_step": entries["bias_scale"],
             "scale": entries["scale"], "steps": entries["steps"], "dtype": entries.get("dtype", "float64"),
             "conventions": entries.get("conventions") or {}}  # fmt: skip
    _validate_about(about)
    points = _array(entries, "points", np.float64, 2)
    labels = _array(entries, "labels", np.int64)
    entries.setdefault("cost", [1] * len(points))
    arrays = {name: _array(entries, _JSON_NAMES.get(name, name), np.int64) for name in _INTEGER_COLUMNS}
    arrays |= {name: _array(entries, _JSON_NAMES.get(name, name), np.float64) for name in ("coef", "sample_weight")}
    arrays |= {"weight": _array(entries, "start.weight", np.float64, 2), "bias": _array(entries, "start.bias", float)}
    known = (-1, 1) if about["num_classes"] is None else range(about["num_classes"])
    if len(labels) != len(points):
        _fail("labels", f"has {len(labels)} entries where {len(points)} are needed")
    if not np.isin(labels, known).all():
        _fail("labels", f"must hold {', '.join(map(str, known))}")
    largest = torch.finfo(getattr(torch, about["dtype"])).max
    for name, values in (("points", points), ("start.weight", arrays["weight"]), ("start.bias", arrays["bias"])):
        if (np.abs(values) > largest).any():
            _fail(name, f"holds a number too large for {about['dtype']}")
    _validate_arrays(about, arrays, labels, points.shape[1])
    if about["scale"] != 1.0:  # coefficients are written scaled, and learned with steps of the sample weight
        sign = labels[arrays["sample"]] if about["num_classes"] is None else 1
        arrays["coef"] = arrays["sample_weight"][arrays["sample"]] * sign
    return about, arrays, points, labels


def _array(entries: dict[str, Any], name: str, dtype: type[Any], ndim: int = 1) -> Array:
    """Return a list of numbers, or of rows of numbers, as an array; integers must be written as such."""
    try:
        found = np.asarray(entries[name])
    except ValueError:
        _fail(name, "must have rows of equal length")
    if found.ndim != ndim or (found.size and found.dtype.kind not in ("i" if dtype is np.int64 else "if")):
        what = "integers" if dtype is np.int64 else "numbers"
        _fail(name, f"must be a list of {what}, found {found.dtype} of shape {found.shape}")
    return found.astype(dtype)


# --- one validator ------------------------------------------------------------------------------------------------


def _fail(name: str | None, what: str) -> NoReturn:
    raise FormatError(what if name is None else f'"{name}" {what}')


def _validate_about(about: dict[str, Any]) -> None:
    """Refuse a description whose type, classes or factors make no sense."""
    if about.get("dtype") not in DTYPES:
        _fail("dtype", f"is {about.get('dtype')!r}; choose one of {', '.join(DTYPES)}")
    classes = about.get("num_classes")
    if classes is not None and (type(classes) is not int or not 2 <= classes < 2**31):
        _fail("classes", f"must be an integer of at least 2, found {classes!r}")
    for name in ("bias_step", "scale"):
        value = about.get(name)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < np.inf:
            _fail(_JSON_NAMES.get(name, name), f"must be a number of at least 0, found {value!r}")
    if type(about.get("steps")) is not int or not 0 <= about["steps"] < 2**63:
        _fail("steps", f"must be an integer of at least 0, found {about.get('steps')!r}")


def _validate_arrays(about: dict[str, Any], arrays: dict[str, Array], labels: Array, width: int) -> None:
    """Refuse columns that do not fit the data: loops would read and write outside of them."""
    classes, steps, count = about["num_classes"], about["steps"], len(arrays["sample"])
    outputs = classes or 1
    low, stop = (-1, 2) if classes is None else (0, classes)
    ends = arrays["epoch_ends"]
    for name, length, least, end in (
        ("sample", count, 0, len(labels)),
        ("step", count, 0, max(steps, 1)),
        ("predicted", count, low, stop),
        ("epoch_ends", len(ends) if ends.ndim == 1 else -1, 0, steps + 1),
    ):
        _check_integers(_JSON_NAMES.get(name, name), arrays[name], length, least, end)
    shapes: dict[str, tuple[int, ...]] = {"coef": (count,), "sample_weight": (len(labels),)}
    if about["kind"] == "linear":
        shapes |= {"weight": (outputs, width), "bias": (outputs,)}
    for name, shape in shapes.items():
        _check_floats(_JSON_NAMES.get(name, name), arrays[name], shape)
    if about["kind"] == "joint":
        _check_floats("start.weight", arrays["weight"], (1, arrays["weight"].size))
    own = labels[arrays["sample"]]
    for name, values in (("step", arrays["step"]), ("epoch_ends", ends)):
        if (np.diff(values) < 0).any():
            _fail(name, "must not fall")
    if steps != (int(ends[-1]) if len(ends) else 0):
        _fail("epoch_ends", f"ends at {ends[-1] if len(ends) else 0}, and there are {steps} steps")
    if (arrays["sample_weight"] < 0).any():
        _fail("cost", "must hold numbers >= 0")
    if (arrays["predicted"] == own).any() or (classes is None and (arrays["predicted"] == 0).any()):
        _fail("wrong", "names a sample's own label, or 0")
    if (arrays["coef"] * (own if classes is None else 1) < 0).any():
        _fail("coef", "moves a sample away from its label")


def _check_integers(name: str, values: Array, count: int, low: int, stop: int) -> None:
    if values.dtype != np.int64 or values.ndim != 1:
        _fail(name, f"must hold integers, found {values.dtype} of shape {values.shape}")
    if len(values) != count:
        _fail(name, f"has {len(values)} entries where {count} are needed")
    if count and not (low <= values.min() and values.max() < stop):
        _fail(name, f"must hold integers from {low} to {stop - 1}, found {values.min()} to {values.max()}")


def _check_floats(name: str, values: Array, shape: tuple[int, ...]) -> None:
    if values.dtype != np.float64 or values.shape != shape:
        _fail(name, f"has {len(values)} entries of {values.dtype} where {shape} numbers are needed")
    if not np.isfinite(values).all():
        _fail(name, "must hold finite numbers")
