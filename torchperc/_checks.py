"""Argument checks: each error names the parameter, the value found and the remedy. No check changes its arguments."""

from __future__ import annotations

import copy
import importlib.util
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import lazy_loader
import numpy as np

if TYPE_CHECKING:
    import torch
    from scipy.sparse import csr_array
    from torch import Tensor
else:
    torch = lazy_loader.load("torch")  # a bad file is refused before torch is imported

Data: TypeAlias = Any
"""What data may come as: a tensor, a numpy array or nested lists; where sparse samples are accepted, also a scipy
sparse matrix or a tensor of the layout ``torch.sparse_csr`` or ``torch.sparse_coo``."""

EXTRAS = {
    "joblib": "sklearn",
    "jsonargparse": "cli",
    "matplotlib": "plots",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "onnxscript": "onnx",
    "pyarrow": "files",
    "sklearn": "sklearn",
    "tensorboard": "tensorboard",
}
"""Optional packages, each with the extra that installs it."""

_REGRESSION = "for real-valued targets use RegressionHead(), or LMSRegressor of torchperc.sklearn"


class Option(NamedTuple):
    """A parameter with its value, as part of an error's text.

    Example:
        >>> str(Option("missing", "drop"))
        "missing='drop'"
    """

    name: str
    value: object

    def __str__(self) -> str:
        return f"{self.name}={self.value if isinstance(self.value, Path) else repr(self.value)}"


class ParameterError(ValueError):
    """A ``ValueError`` that holds its parameters as data, so that the command line can name its options.

    Args:
        parts: the text in pieces; parameters in it are :class:`Option`, the wrong one or the remedy.

    Example:
        >>> error = ParameterError("row 3 has no label; drop such rows with ", Option("missing", "drop"))
        >>> str(error)
        "row 3 has no label; drop such rows with missing='drop'"
        >>> error.text(lambda option: f"--{option.name} {option.value}")
        'row 3 has no label; drop such rows with --missing drop'
    """

    def text(self, spell: Callable[[Option], str] = str) -> str:
        """The message, each parameter spelled by a function."""
        return "".join(spell(part) if isinstance(part, Option) else part for part in self.args)

    def __str__(self) -> str:
        return self.text()


class MissingPackageError(ModuleNotFoundError, ValueError):
    """A package of an extra is not installed; also a ``ValueError``, which commands print in one line."""


def require_packages(what: str, *packages: str) -> None:
    """Raise :class:`MissingPackageError`, naming the extra to install, if ``what`` needs a package that is missing."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            remedy = f"install it with: pip install 'torchperc[{EXTRAS[package]}]'"
            called = package.replace("sklearn", "scikit-learn")
            raise MissingPackageError(f"{what} needs {called}; {remedy}", name=package)


def weights_overflow(score: float = math.inf) -> ValueError:
    """Return the error for weights so large that a score is infinite or NaN."""
    return ValueError(f"a score became {score}: the weights overflow; scale X down or lower the learning rate lr")


def first_line(error: Exception) -> str:
    """Return the first line of another library's message, or the name of its error."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def check_choice(name: str, value: object, choices: Sequence[str]) -> str:
    """Return ``value`` if it is one of ``choices``."""
    if not isinstance(value, str) or value not in choices:
        raise ParameterError(Option(name, value), f" is unknown; choose one of {', '.join(map(repr, choices))}")
    return value


def check_number(name: str, value: object, *, above: float = -math.inf, at_least: float = -math.inf) -> float:
    """Return ``value`` as a finite float with ``value > above`` and ``value >= at_least``."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name} must be a number, found {type(value).__name__} {value!r}")
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    if not math.isfinite(result) or result <= above or result < at_least:
        limit = f" > {above:g}" if above > at_least else f" >= {at_least:g}" if at_least > -math.inf else ""
        raise ParameterError(Option(name, value), f" must be a finite number{limit}")
    return result


def check_int(name: str, value: object, *, at_least: int) -> int:
    """Return ``value`` as an int with ``value >= at_least``."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an integer, found {type(value).__name__} {value!r}")
    if not at_least <= value < 2**63:
        limit = f"at least {at_least}" if value < at_least else "below 2**63"
        raise ParameterError(Option(name, value), f" must be {limit}")
    return int(value)


def check_bool(name: str, value: object) -> bool:
    """Return ``value`` if it is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, found {type(value).__name__} {value!r}")
    return value


def check_float_dtype(name: str, dtype: torch.dtype) -> torch.dtype:
    """Return ``dtype`` if it is a real floating type."""
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(f"{name}={dtype} must be a floating type such as torch.float32 or torch.float64")
    return dtype


def check_labels(y: Data, count: int, classes: int | None, *, name: str = "y", both: bool = True) -> Tensor:
    """Return labels as int64: −1/+1 for ``classes=None``, else class indices 0 … K − 1.

    Args:
        y: one label per sample; any other value is an error that names what was found.
        count: the number of samples.
        classes: K, or ``None`` for labels −1/+1.
        name: the parameter's name for error messages.
        both: require at least two classes.

    Example:
        >>> check_labels([1.0, -1.0], 2, None), check_labels([0, 2, 1], 3, 3)
        (tensor([ 1, -1]), tensor([0, 2, 1]))
    """
    values = _one_per_sample(y, count, name)
    numbers = (values.float() if values.dtype == torch.bfloat16 else values).cpu().numpy()
    if classes is None:
        right = (numbers == 1) | (numbers == -1)
    else:
        right = (numbers >= 0) & (numbers < classes) & (numbers % 1 == 0 if numbers.dtype.kind == "f" else True)
    if numbers.dtype.kind == "b" or not right.all():
        raise ValueError(f"{name} must hold {_expected_labels(name, np.unique(numbers).tolist(), classes)}")
    if both and numbers.min() == numbers.max():
        remedy = "at least two classes are required (online learning with partial_fit accepts single-class chunks)"
        raise ValueError(f"{name} has one class only, found {numbers[0]}; {remedy}")
    return torch.from_numpy(numbers.astype(np.int64)).to(values.device)


def _expected_labels(name: str, found: list[Any], classes: int | None) -> str:
    shown = ", ".join(map(str, found[:5])) + (f", … ({len(found)} different values)" if len(found) > 5 else "")
    several = classes is not None or sum(value == value for value in found) > 2  # NaN is no label
    remedy = "map your two labels to -1 and +1 first"
    if isinstance(found[0], bool):
        remedy = f"convert True and False, for example with torch.where({name}, 1, -1)"
    elif several and any(value % 1 for value in found if math.isfinite(value)):
        remedy = _REGRESSION
    elif classes is not None:
        remedy = "number your classes from 0 or give the net more of them"
    elif several:
        remedy = f"use MulticlassPerceptron (num_classes=) for more than two classes; {_REGRESSION}"
    return f"{'-1 and +1' if classes is None else f'class indices 0 to {classes - 1}'}, found {shown}; {remedy}"


def check_targets(y: Data, count: int, units: int = 1, *, name: str = "y") -> Tensor:
    """Return the targets of a regression as float64: finite numbers (N,), or (N, K) for K > 1 outputs.

    Example:
        >>> check_targets([70, 61.5], 2)
        tensor([70.0000, 61.5000], dtype=torch.float64)
    """
    values = _one_per_sample(y, count, name, units)
    bad = values[~torch.isfinite(values)]
    if len(bad):
        raise ValueError(f"{name} must hold finite numbers, found {bad[0].item()}; drop or fill such samples")
    return values.to(torch.float64, copy=True)


def check_sample_weight(weights: Data, count: int, *, name: str = "sample_weight", all_zero: bool = False) -> Tensor:
    """Return per-sample weights as float64, finite and at least 0; not all 0, unless that is allowed.

    Example:
        >>> check_sample_weight([1, 0.5], 2)
        tensor([1.0000, 0.5000], dtype=torch.float64)
    """
    values = _one_per_sample(weights, count, name).to(torch.float64)
    wrong = ~torch.isfinite(values) | (values < 0)
    if wrong.any():  # for which the host waits once; it need not look for the places
        bad = values[wrong][0].item()
        raise ValueError(f"{name} must hold finite numbers >= 0, found {bad}; a weight of 0 ignores the sample")
    if not all_zero and not values.any():
        raise ValueError(f"{name} is 0 everywhere; at least one sample must count")
    return values


def _one_per_sample(y: Data, count: int, name: str, units: int = 1) -> Tensor:
    values = as_tensor(y, name)
    shape = tuple(values.shape)
    if units > 1 and shape != (count, units):
        needed = f"({count}, {units}) is needed: one target for each output of the net"
        raise ValueError(f"{name} has shape {shape} but {needed}")
    if units == 1 and len(shape) != 1:
        raise ValueError(f"{name} must have one dimension, found shape {shape}; use {name}.reshape(-1)")
    if shape[0] != count:
        raise ValueError(f"{name} has {shape[0]} values for {count} samples; they must have the same length")
    return values


def is_sparse(X: object) -> bool:
    """Whether ``X`` is a scipy sparse matrix or a sparse tensor (CSR or COO); does not import scipy to find out."""
    module = sys.modules.get("scipy.sparse")
    if module is not None and module.issparse(X):
        return True
    return isinstance(X, torch.Tensor) and X.layout in (torch.sparse_csr, torch.sparse_coo)


def check_shape(shape: tuple[int, ...], width: int | None = None, name: str = "X") -> None:
    """Refuse samples that are not N rows of d numbers, or not of the given width."""
    if len(shape) != 2:
        raise ValueError(
            f"{name} must have two dimensions (samples, features), found shape {shape}; "
            f"use {name}.reshape(-1, 1) for one feature or {name}.reshape(1, -1) for one sample"
        )
    if 0 in shape:
        raise ValueError(f"{name} is empty, found shape {shape}; give at least one sample with one feature")
    if width is not None and shape[1] != width:
        raise ValueError(f"{name} has {shape[1]} features but {width} are needed, as in the net or training data")


def as_csr(X: Data, name: str = "X", *, look: bool = True) -> csr_array:
    """Return a sparse matrix or tensor as a scipy CSR array that shares its memory if possible.

    Indices are checked, because scipy and torch accept arrays that point outside their memory; values are not.
    ``look=False`` leaves the check of a CSR matrix to the caller.

    Example:
        >>> as_csr(torch.tensor([[0.0, 2.0]]).to_sparse()).toarray()
        array([[0., 2.]], dtype=float32)
    """
    from scipy.sparse import coo_array, csr_array

    if len(X.shape) != 2:
        check_shape(tuple(X.shape), name=name)
    if isinstance(X, torch.Tensor) and X.is_meta:
        raise TypeError(f"{name} is on the meta device, which has no data; move it to the CPU first")
    try:
        if isinstance(X, torch.Tensor):
            shape, values = tuple(X.shape), X.detach().cpu()
            if X.layout == torch.sparse_coo:
                X = coo_array((values._values().numpy(), tuple(values._indices().numpy())), shape=shape)
            else:
                pieces = (values.values().numpy(), values.col_indices().numpy(), values.crow_indices().numpy())
                X = csr_array(pieces, shape=shape)
        if X.format not in ("csr", "csc", "bsr"):
            coo = X.tocoo()
            return csr_array(coo_array((coo.data, coo.coords), shape=coo.shape))  # which checks the indices
        given = copy.copy(X)  # the check drops what is allocated and not used
        given.check_format(full_check=look or given.format != "csr")
    except (IndexError, TypeError, ValueError) as error:
        remedy = "build it again, for example from scipy.sparse.coo_array"
        raise ValueError(f"{name} is a damaged sparse matrix: {error}; {remedy}") from None
    return csr_array(given)


def as_tensor(values: Data, name: str) -> Tensor:
    """Return dense real numbers as a detached tensor that shares their memory if possible; do not write to it."""
    if is_sparse(values):
        kind, dense = ("tensor", "to_dense") if isinstance(values, torch.Tensor) else ("matrix", "toarray")
        raise TypeError(f"{name} is a sparse {kind}, which is not accepted here; pass {name}.{dense}()")
    if isinstance(values, torch.Tensor):
        if values.is_complex() or values.layout != torch.strided or values.is_meta or values.is_quantized:
            found = f"{values.dtype} on {values.device}, layout {values.layout}"
            raise TypeError(f"{name} must be a dense tensor of real numbers, found {found}; convert it first")
        return values.detach()
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} must be rectangular, with rows of equal length: {error}") from None
    if array.dtype.kind not in "biuf":
        found = f"dtype {array.dtype} in a {type(values).__name__}"
        raise TypeError(f"{name} must hold real numbers, found {found}; convert it to numbers first")
    if np.ma.is_masked(values):
        raise ValueError(f"{name} has masked values; fill them or leave them out")
    return tensor_view(np.asarray(array, np.float64 if array.dtype.itemsize > 8 else array.dtype.newbyteorder("=")))


def tensor_view(array: np.ndarray[Any, Any]) -> Tensor:
    """Return a tensor on an array's memory, copied only if its rows do not follow one another; do not write to it."""
    array = np.require(array, requirements=["C", "A"])
    if array.flags.writeable:
        return torch.from_numpy(array)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def find_non_finite(tensors: Iterable[tuple[str, Tensor]]) -> str | None:
    """Return the name of the first tensor with NaN or infinity, ``None`` if all are finite."""
    for name, tensor in tensors:
        values = tensor.detach().to_dense() if tensor.layout != torch.strided else tensor.detach()
        bad = ~torch.isfinite(values)
        if bad.any():
            return f"{name} holds {values[bad][0].item()}"
    return None
