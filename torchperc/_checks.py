"""Argument checks: each error names the parameter, the value found and the remedy. No check changes its arguments."""

from __future__ import annotations

import copy
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from torchperc._lazy import Late

if TYPE_CHECKING:
    import torch
    from scipy.sparse import csr_array
    from torch import Tensor
else:
    torch = Late("torch")

Data: TypeAlias = Any
"""What data may come as: a tensor, a numpy array or nested lists; where sparse samples are accepted, also a scipy
sparse matrix or a tensor of the layout ``torch.sparse_csr`` or ``torch.sparse_coo``."""

_REGRESSION = "for real-valued targets use RegressionHead(), or LMSRegressor of torchperc.sklearn"


# --- parameters ---------------------------------------------------------------------------------------------------


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
    """A ``ValueError`` that holds the parameters it speaks of as data, so that the command line can name its options.

    Args:
        parts: the text in pieces; parameters in it are :class:`Option`, the wrong one or the remedy.

    Example:
        >>> error = ParameterError("row 3 has no label; drop such rows with ", Option("missing", "drop"))
        >>> str(error), error.name, error.value
        ("row 3 has no label; drop such rows with missing='drop'", 'missing', 'drop')
        >>> error.text(lambda option: f"--{option.name} {option.value}")
        'row 3 has no label; drop such rows with --missing drop'
    """

    def __init__(self, *parts: str | Option) -> None:
        super().__init__(*parts)
        first = next((part for part in parts if isinstance(part, Option)), Option("", None))
        self.name, self.value = first

    def text(self, spell: Callable[[Option], str] = str) -> str:
        """The message, each parameter spelled by a function."""
        return "".join(spell(part) if isinstance(part, Option) else part for part in self.args)

    def __str__(self) -> str:
        return self.text()


def one_of(name: str, value: object, choices: Sequence[str]) -> str:
    """Return ``value`` if it is one of ``choices``."""
    if not isinstance(value, str) or value not in choices:
        raise ParameterError(Option(name, value), f" is unknown; choose one of {', '.join(map(repr, choices))}")
    return value


def number(name: str, value: object, *, above: float = -math.inf, at_least: float = -math.inf) -> float:
    """Return ``value`` as a finite float with ``value > above`` and ``value >= at_least``."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name} must be a number, found {type(value).__name__} {value!r}")
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    limit = f"> {above:g}" if above > at_least else f">= {at_least:g}" if at_least > -math.inf else ""
    if not math.isfinite(result) or result <= above or result < at_least:
        raise ParameterError(Option(name, value), f" must be a finite number {limit}".rstrip())
    return result


def whole(name: str, value: object, *, at_least: int) -> int:
    """Return ``value`` as an int with ``value >= at_least``."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an integer, found {type(value).__name__} {value!r}")
    if not at_least <= value < 2**63:
        limit = f"at least {at_least}" if value < at_least else "below 2**63"
        raise ParameterError(Option(name, value), f" must be {limit}")
    return int(value)


def flag(name: str, value: object) -> bool:
    """Return ``value`` if it is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, found {type(value).__name__} {value!r}")
    return value


def floating(name: str, dtype: torch.dtype) -> torch.dtype:
    """Return ``dtype`` if it is a real floating type."""
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(f"{name}={dtype} must be a floating type such as torch.float32 or torch.float64")
    return dtype


def representable(name: str, values: Tensor, dtype: torch.dtype) -> Tensor:
    """Return positive ``values`` if a net of ``dtype`` can hold each of them with all its digits.

    Example:
        >>> representable("lr", torch.tensor([0.5], dtype=torch.float64), torch.float32)
        tensor([0.5000], dtype=torch.float64)
    """
    there = values.to(dtype)
    lost = values[(there < torch.finfo(dtype).tiny) & (values > 0) | ~torch.isfinite(there)]
    if len(lost):
        raise ValueError(
            f"{name} makes steps of {lost[0].item():g}, which {dtype} cannot hold; scale it"
            + (", or use net.double()" if dtype != torch.float64 else "")
        )
    return values


# --- labels and weights -------------------------------------------------------------------------------------------


def labels(y: Data, count: int, classes: int | None, *, name: str = "y", both: bool = True) -> Tensor:
    """Return labels as int64: −1/+1 for ``classes=None``, else class indices 0 … K − 1.

    Args:
        y: one label per sample; any other value is an error that names what was found.
        count: the number of samples.
        classes: K, or ``None`` for labels −1/+1.
        name: the parameter's name for error messages.
        both: require at least two classes.

    Example:
        >>> labels([1.0, -1.0], 2, None), labels([0, 2, 1], 3, 3)
        (tensor([ 1, -1]), tensor([0, 2, 1]))
    """
    return (
        signs(y, count, name=name, both=both)
        if classes is None
        else class_indices(y, count, classes, name=name, both=both)
    )


def signs(y: Data, count: int, *, name: str = "y", both: bool = True) -> Tensor:
    """:func:`labels` −1/+1."""
    values = _one_per_sample(y, count, name)
    if values.dtype not in (torch.bool, torch.uint8):  # to uint8, −1 is 255
        numbers = in_numpy(values)
        count_of = np.count_nonzero if isinstance(numbers, np.ndarray) else torch.count_nonzero
        plus, minus = int(count_of(numbers == 1)), int(count_of(numbers == -1))
        if plus + minus == count and ((plus and minus) or not both):
            return _integers(numbers)
    found = torch.unique(values).tolist()
    if values.dtype == torch.bool or any(value not in (-1, 1) for value in found):
        remedy = "map your two labels to -1 and +1 first"
        if sum(value == value for value in found) > 2:  # NaN is no label
            remedy = f"use MulticlassPerceptron (num_classes=) for more than two classes; {_REGRESSION}"
            if any(not float(value).is_integer() for value in found if math.isfinite(value)):
                remedy = _REGRESSION
        raise ValueError(f"{name} must hold -1 and +1, found {_some(found)}; {remedy}")
    if both:
        raise _one_class(name, found)
    return _integers(in_numpy(values))  # of type uint8


def class_indices(y: Data, count: int, num_classes: int, *, name: str = "y", both: bool = True) -> Tensor:
    """:func:`labels` 0 … K − 1."""
    values = _one_per_sample(y, count, name)
    if not values.is_floating_point() and values.dtype != torch.bool:
        numbers = in_numpy(values)
        lowest, highest = int(numbers.min()), int(numbers.max())
        if lowest >= 0 and highest < num_classes and (lowest < highest or not both):
            return _integers(numbers)
    found = torch.unique(values).tolist()
    if any(value not in range(num_classes) for value in found):
        real = any(not float(value).is_integer() for value in found if math.isfinite(value))
        remedy = _REGRESSION if real else "number your classes from 0 or give the net more of them"
        raise ValueError(f"{name} must hold class indices 0 to {num_classes - 1}, found {_some(found)}; {remedy}")
    if both and len(found) < 2:
        raise _one_class(name, found)
    return _integers(in_numpy(values))


def _integers(numbers: Any) -> Tensor:
    """A copy of an array or tensor as int64."""
    if isinstance(numbers, torch.Tensor):
        return numbers.to(torch.int64, copy=True)
    return torch.from_numpy(numbers.astype(np.int64))


def real_targets(y: Data, count: int, units: int = 1, *, name: str = "y") -> Tensor:
    """Return the targets of a regression as float64: finite numbers (N,), or (N, K) for K > 1 outputs.

    Example:
        >>> real_targets([70, 61.5], 2)
        tensor([70.0000, 61.5000], dtype=torch.float64)
    """
    values = as_tensor(y, name) if units > 1 else _one_per_sample(y, count, name)
    if units > 1 and values.shape != (count, units):
        raise ValueError(
            f"{name} has shape {tuple(values.shape)} but ({count}, {units}) is needed: one target for each output "
            "of the net"
        )
    bad = values[~torch.isfinite(values)]
    if len(bad):
        raise ValueError(f"{name} must hold finite numbers, found {bad[0].item()}; drop or fill such samples")
    return values.to(torch.float64, copy=True)


def _one_class(name: str, found: list[Any]) -> ValueError:
    return ValueError(
        f"{name} has one class only, found {_some(found)}; at least two classes are required "
        "(online learning with partial_fit accepts single-class chunks)"
    )


def nonnegative_weights(weights: Data, count: int, *, name: str = "sample_weight", all_zero: bool = False) -> Tensor:
    """Return per-sample weights as float64, finite and at least 0; not all 0, unless that is allowed.

    Example:
        >>> nonnegative_weights([1, 0.5], 2)
        tensor([1.0000, 0.5000], dtype=torch.float64)
    """
    values = _one_per_sample(weights, count, name).to(torch.float64)
    wrong = ~torch.isfinite(values) | (values < 0)
    if wrong.any():
        bad = values[wrong][0].item()
        raise ValueError(f"{name} must hold finite numbers >= 0, found {bad}; a weight of 0 leaves the sample out")
    if not all_zero and not (values > 0).any():
        raise ValueError(f"{name} is 0 everywhere; at least one sample must count")
    return values


def _one_per_sample(y: Data, count: int, name: str) -> Tensor:
    values = as_tensor(y, name)
    shape = tuple(values.shape)
    if len(shape) != 1:
        raise ValueError(f"{name} must have one dimension, found shape {shape}; use {name}.reshape(-1)")
    if shape[0] != count:
        raise ValueError(f"{name} has {shape[0]} values for {count} samples; they must have the same length")
    return values


def _some(values: list[Any]) -> str:
    shown = ", ".join(str(value) for value in values[:5])
    return f"{shown}, … ({len(values)} different values)" if len(values) > 5 else shown


# --- tensors and matrices -----------------------------------------------------------------------------------------


def is_sparse(X: object) -> bool:
    """Whether ``X`` is a scipy sparse matrix or a sparse tensor (CSR or COO); does not import scipy to find out."""
    if isinstance(X, torch.Tensor):
        return X.layout in (torch.sparse_csr, torch.sparse_coo)
    module = sys.modules.get("scipy.sparse")
    return module is not None and bool(module.issparse(X))


def shape(shape: tuple[int, ...], width: int | None = None, name: str = "X") -> None:
    """Refuse samples that are not N rows of d numbers, or not of the given width."""
    if len(shape) != 2:
        raise ValueError(
            f"{name} must have two dimensions (samples, features), found shape {shape}; "
            f"use {name}.reshape(-1, 1) for one feature or {name}.reshape(1, -1) for one sample"
        )
    if 0 in shape:
        raise ValueError(f"{name} is empty, found shape {shape}; give at least one sample with one feature")
    if width is not None and shape[1] != width:
        raise ValueError(f"{name} has {shape[1]} features but {width} are needed, as the net or training data has")


def as_csr(X: Data, name: str = "X", *, look: bool = True) -> csr_array:
    """A sparse matrix or tensor as a scipy CSR array, on its own memory where that is possible.

    Indices are checked first: scipy and torch let one build arrays that point outside their memory, and read whatever
    lies there. The values are not looked at. ``look=False`` leaves the indices of CSR, too, to be checked by who calls.

    Example:
        >>> as_csr(torch.tensor([[0.0, 2.0]]).to_sparse()).toarray()
        array([[0., 2.]], dtype=float32)
    """
    from scipy.sparse import coo_array, csr_array

    if len(X.shape) != 2:
        shape(tuple(X.shape), name=name)
    if isinstance(X, torch.Tensor) and X.is_meta:
        raise TypeError(f"{name} is on the meta device, which holds no numbers; move it to the CPU first")
    try:
        if isinstance(X, torch.Tensor):
            values, size = X.detach().cpu(), tuple(X.shape)
            if values.layout == torch.sparse_coo:
                return csr_array(coo_array((values._values().numpy(), tuple(values._indices().numpy())), shape=size))
            pieces = (values.values().numpy(), values.col_indices().numpy(), values.crow_indices().numpy())
            given = csr_array(pieces, shape=size)
        elif X.format in ("csr", "csc", "bsr"):
            given = copy.copy(X)  # the check drops what is allocated and not used
        else:
            coo = X.tocoo()
            return csr_array(coo_array((coo.data, coo.coords), shape=coo.shape))
        given.check_format(full_check=look or given.format != "csr")
    except (IndexError, TypeError, ValueError) as error:
        raise ValueError(
            f"{name} is a damaged sparse matrix: {error}; build it again, for example from scipy.sparse.coo_array"
        ) from None
    return csr_array(given)


def as_tensor(values: Data, name: str) -> Tensor:
    """Dense real numbers as a detached tensor, on their own memory where that is possible; not to be written to."""
    if isinstance(values, torch.Tensor):
        if values.layout in (torch.sparse_csr, torch.sparse_coo):
            raise TypeError(f"{name} is a sparse tensor, which is not accepted here; pass {name}.to_dense()")
        if values.is_complex() or values.layout != torch.strided or values.is_meta or values.is_quantized:
            raise TypeError(
                f"{name} must be a dense tensor of real numbers, found {values.dtype} on {values.device}, layout "
                f"{values.layout}; convert it first"
            )
        return values.detach()
    if not isinstance(values, np.ndarray) and is_sparse(values):
        raise TypeError(f"{name} is a sparse matrix, which is not accepted here; pass {name}.toarray()")
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} must be rectangular, with rows of equal length: {error}") from None
    if array.dtype.kind not in "biuf":
        raise TypeError(
            f"{name} must hold real numbers, found dtype {array.dtype} in a {type(values).__name__}; "
            "convert it to numbers first"
        )
    unmasked(values, name)
    return shared(np.asarray(array, _torch_dtype(array, name)))


def in_numpy(values: Tensor) -> Any:
    """A tensor of the CPU as an array on its own memory, any other as it is: what both can do is done without threads.

    torch wakes its threads for large tensors and waits for them, which takes long where another core is busy.

    Example:
        >>> in_numpy(torch.tensor([1.0, 2.0])).max()
        np.float32(2.0)
    """
    plain = values.detach()
    return plain.numpy() if plain.is_cpu and plain.dtype != torch.bfloat16 and type(plain) is torch.Tensor else plain


def unmasked(values: Data, name: str) -> Data:
    """Return ``values`` unless a numpy mask hides some of them."""
    if np.ma.is_masked(values):
        raise ValueError(f"{name} has masked values; fill them or leave them out")
    return values


def shared(array: np.ndarray[Any, Any]) -> Tensor:
    """A tensor on an array's own memory, copied only if torch cannot have it as it lies; not to be written to."""
    flags = array.flags
    if not (flags.c_contiguous and flags.aligned) and (
        not flags.aligned or any(stride < 0 or stride % array.itemsize for stride in array.strides)
    ):
        array = array.copy()
    if flags.writeable:
        return torch.from_numpy(array)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def _torch_dtype(array: np.ndarray[Any, Any], name: str) -> np.dtype[Any]:
    """The nearest type that torch has: unsigned to signed, long double to double, in native byte order."""
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        if array.size and array.max() > np.iinfo(np.int64).max:
            raise ValueError(f"{name} holds {array.max()}, too large for a signed integer; convert it to float first")
        return np.dtype(np.int64)
    return np.dtype(np.float64) if array.dtype.itemsize > 8 else array.dtype.newbyteorder("=")


def first_line(error: Exception) -> str:
    """The first line of what another library says, or the name of its error.

    Example:
        >>> first_line(ValueError("too long\\nsee the manual"))
        'too long'
    """
    return (str(error).splitlines() or [type(error).__name__])[0]


def non_finite(tensors: Iterable[tuple[str, Tensor]]) -> str | None:
    """Say which of some named tensors is the first with NaN or an infinity; ``None`` if all are finite.

    Example:
        >>> non_finite({"weight": torch.ones(2), "bias": torch.tensor([float("nan")])}.items())
        'bias holds nan'
    """
    for name, tensor in tensors:
        values = tensor.detach().to_dense() if tensor.layout != torch.strided else tensor.detach()
        bad = ~torch.isfinite(values)
        if bad.any():
            return f"{name} holds {values[bad][0].item()}"
    return None


def weights_overflow(score: float = math.inf) -> ValueError:
    """The error to raise where training has made weights so large that a score is infinite or NaN.

    Example:
        >>> raise weights_overflow()
        Traceback (most recent call last):
        ValueError: a score became inf: the weights overflow; scale X down or lower the learning rate lr
    """
    return ValueError(f"a score became {score}: the weights overflow; scale X down or lower the learning rate lr")
