"""Input checks, written once: each error names the parameter, the value found and the remedy.

Nothing here changes its arguments, so a caller that checks first loses nothing when a check fails.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Data: TypeAlias = Any
"""Anything data comes in as: a torch tensor, a numpy array, nested lists; where sparse samples are taken, a scipy
sparse matrix or a tensor of the layout ``torch.sparse_csr`` or ``torch.sparse_coo``."""

_SPARSE_LAYOUTS = (torch.sparse_csr, torch.sparse_coo)


def one_of(name: str, value: object, choices: Sequence[str]) -> str:
    """Return ``value`` if it is one of ``choices``.

    Example:
        >>> one_of("tie", "sign", ("update", "sign"))
        'sign'
    """
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name}={value!r} is unknown; choose one of {', '.join(map(repr, choices))}")
    return value


def number(name: str, value: object, *, above: float = -math.inf, at_least: float = -math.inf) -> float:
    """Return ``value`` as a finite float with ``value > above`` and ``value >= at_least``.

    Example:
        >>> number("lr", 1, above=0)
        1.0
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name} must be a number, found {type(value).__name__} {value!r}")
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    limit = f"> {above:g}" if above > at_least else f">= {at_least:g}" if at_least > -math.inf else ""
    if not math.isfinite(result) or result <= above or result < at_least:
        raise ValueError(f"{name}={value!r} must be a finite number {limit}".rstrip())
    return result


def whole(name: str, value: object, *, at_least: int) -> int:
    """Return ``value`` as an int with ``value >= at_least``.

    Example:
        >>> whole("max_epochs", 3, at_least=1)
        3
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be a whole number, found {type(value).__name__} {value!r}")
    if not at_least <= value < 2**63:
        limit = f"at least {at_least}" if value < at_least else "below 2**63"
        raise ValueError(f"{name}={value!r} must be {limit}")
    return int(value)


def flag(name: str, value: object) -> bool:
    """Return ``value`` if it is True or False.

    Example:
        >>> flag("bias", True)
        True
    """
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, found {type(value).__name__} {value!r}")
    return value


def is_sparse(X: object) -> bool:
    """Whether ``X`` is a scipy sparse matrix or a sparse tensor (CSR or COO); does not import scipy to find out.

    Example:
        >>> is_sparse(torch.zeros(2, 2)), is_sparse(torch.zeros(2, 2).to_sparse())
        (False, True)
    """
    if isinstance(X, Tensor):
        return X.layout in _SPARSE_LAYOUTS
    module = sys.modules.get("scipy.sparse")
    return module is not None and bool(module.issparse(X))


def floating(name: str, dtype: torch.dtype) -> torch.dtype:
    """Return ``dtype`` if it is a real floating type.

    Example:
        >>> floating("dtype", torch.float64)
        torch.float64
    """
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


def features(
    X: Data,
    *,
    dtype: torch.dtype,
    device: torch.device | None = None,
    width: int | None = None,
    name: str = "X",
    convert: bool = False,
    first: int = 0,
    finite: bool = True,
) -> Tensor:
    """Return dense ``X`` as a finite tensor of shape (N, d), N and d at least 1.

    numpy arrays, lists and integer tensors are converted to ``dtype`` (integers only if that is exact); a floating
    tensor must already have it, because its owner chose that precision, unless ``convert`` says otherwise.

    Args:
        X: samples in rows.
        dtype: the type of the net that will see them.
        device: where they go; where they are if ``None``.
        width: the number of features they must have, if known.
        name: the parameter's name for error messages.
        convert: convert floating tensors too.
        first: the number of the first row, where these are part of something larger.
        finite: look at every number; not needed for what has been looked at before.

    Shape:
        (N, d) in and out.

    Example:
        >>> features([[0, 1], [2, 3]], dtype=torch.float32)
        tensor([[0., 1.],
                [2., 3.]])
    """
    tensor = _as_tensor(X, name)
    shape(tuple(tensor.shape), width, name)
    if tensor.is_floating_point() and isinstance(X, Tensor) and tensor.dtype != dtype and not convert:
        raise TypeError(
            f"{name} has dtype {tensor.dtype} but {dtype} is needed, as the net or training data has; "
            f"convert one of them, with .to({dtype}) or net.to({tensor.dtype})"
        )
    result = tensor.to(dtype=dtype, device=device)
    if not tensor.is_floating_point() and not torch.equal(result.to(tensor.dtype), tensor.to(result.device)):
        raise ValueError(_inexact(name, dtype))
    if finite:
        _check_finite(result, tensor, name, first)
    return result.detach()


def as_csr(X: Data, name: str = "X") -> csr_array:
    """A sparse matrix or tensor as a scipy CSR array, on its own memory where that is possible.

    Column numbers and row pointers are checked first: scipy and torch let one build arrays that point outside their
    memory, and read whatever lies there. The values are not looked at.

    Example:
        >>> as_csr(torch.tensor([[0.0, 2.0]]).to_sparse()).toarray()
        array([[0., 2.]], dtype=float32)
    """
    from scipy.sparse import coo_array, csr_array

    if len(X.shape) != 2:
        shape(tuple(X.shape), name=name)
    if isinstance(X, Tensor):
        if X.is_meta:
            raise TypeError(f"{name} is on the meta device, which holds no numbers; move it to the CPU first")
        values, size = X.detach().cpu(), tuple(X.shape)
        if values.layout == torch.sparse_coo:
            _in_bounds(values._indices().numpy(), values._values().shape, size, name)
            values = values.coalesce()
            return csr_array(coo_array((values.values().numpy(), tuple(values.indices().numpy())), shape=size))
        pieces = (values.values().numpy(), values.col_indices().numpy(), values.crow_indices().numpy())
        _pointers_fit(*pieces, size, name)
        return csr_array(pieces, shape=size)
    if X.format in ("csr", "csc"):
        _pointers_fit(X.data, X.indices, X.indptr, X.shape if X.format == "csr" else X.shape[::-1], name)
        given = csr_array(X)
        used = int(given.indptr[-1])  # scipy allows arrays with room to spare
        if used == len(given.indices):
            return given
        return csr_array((given.data[:used], given.indices[:used], given.indptr), shape=given.shape)
    if X.format == "bsr":
        blocks = tuple(length // block for length, block in zip(X.shape, X.blocksize, strict=True))
        _pointers_fit(X.data[:, 0, 0], X.indices, X.indptr, blocks, name)
        return csr_array(X)
    given = X.tocoo()
    _in_bounds(np.stack(given.coords), given.data.shape, given.shape, name)
    return csr_array(given)


def _pointers_fit(
    values: np.ndarray[Any, Any],
    columns: np.ndarray[Any, Any],
    starts: np.ndarray[Any, Any],
    size: tuple[int, ...],
    name: str,
) -> None:
    """Refuse arrays of a compressed matrix, rows first, that do not fit each other."""
    rows, width = size
    fit = values.ndim == columns.ndim == starts.ndim == 1 and len(values) == len(columns) and len(starts) == rows + 1
    if not fit or starts[0] != 0 or starts[-1] > len(columns) or bool((starts[1:] < starts[:-1]).any()):
        raise ValueError(
            f"{name} is a damaged sparse matrix: its row pointers do not fit its {len(columns)} entries in {rows} "
            "rows; build it again, for example from scipy.sparse.coo_array"
        )
    used = int(starts[-1])
    _in_bounds(columns[None, :used], (used,), (width,), name)


def _in_bounds(index: np.ndarray[Any, Any], count: tuple[int, ...], size: tuple[int, ...], name: str) -> None:
    """Refuse indices of non-zeros, a row for each dimension, that lie outside a matrix of this size."""
    if index.shape != (len(size), *count):
        raise ValueError(
            f"{name} is a damaged sparse matrix: it has indices of shape {index.shape} for values of shape {count}"
        )
    if not index.size:
        return
    for numbers, limit in zip(index, size, strict=True):
        low, high = int(numbers.min()), int(numbers.max())
        if low < 0 or high >= limit:
            raise ValueError(
                f"{name} is a damaged sparse matrix: it names index {low if low < 0 else high} where 0 to {limit - 1} "
                "exist; build it again with the right shape"
            )


def csr_tensor(X: csr_array) -> Tensor:
    """A scipy CSR array as a sparse tensor on its own memory; not to be written to.

    Example:
        >>> from scipy.sparse import csr_array
        >>> csr_tensor(csr_array([[0, 2.0]])).values()
        tensor([2.], dtype=torch.float64)
    """
    pieces = (shared(X.indptr), shared(X.indices), shared(X.data))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(*pieces, size=X.shape, check_invariants=False)


def sparse_features(
    X: Data, *, dtype: torch.dtype, width: int | None = None, name: str = "X", first: int = 0
) -> csr_array:
    """Return sparse ``X`` as a canonical, finite scipy CSR array of ``dtype`` (sorted, no duplicate entries).

    Scipy's matrices and sparse tensors alike; what has the type and the form already is not copied.

    Example:
        >>> from scipy.sparse import csr_array
        >>> sparse_features(csr_array([[0, 2.0]]), dtype=torch.float32).dtype
        dtype('float32')
    """
    shape(tuple(X.shape), width, name)
    narrow = isinstance(X, Tensor) and X.dtype in (torch.bfloat16, torch.float16)
    if narrow or (X.is_complex() if isinstance(X, Tensor) else X.dtype.kind not in "biuf"):
        raise TypeError(f"{name} must hold real numbers that numpy knows, found dtype {X.dtype}; convert it first")
    if dtype not in (torch.float32, torch.float64):
        raise TypeError(f"{name} is sparse, which needs float32 or float64, found {dtype}; pass {name}.toarray()")
    given = as_csr(X, name)
    if not given.has_canonical_format:
        given = given.copy()
        given.sum_duplicates()
    with np.errstate(over="ignore"):
        result = given.astype(np.float32 if dtype == torch.float32 else np.float64, copy=False)
    if not math.isfinite(shared(result.data).sum()) and not np.isfinite(result.data).all():
        entry = int(np.flatnonzero(~np.isfinite(result.data))[0])
        row = int(np.searchsorted(result.indptr, entry, side="right")) - 1
        _not_finite(name, first + row, int(result.indices[entry]), float(given.data[entry]), dtype)
    if given.dtype.kind in "biu" and not np.array_equal(result.data.astype(given.dtype), given.data):
        raise ValueError(_inexact(name, dtype))
    return result


def signs(y: Data, count: int, *, name: str = "y", both: bool = True) -> Tensor:
    """Return labels as an int64 tensor of −1 and +1; any other value is an error that names what was found.

    Args:
        y: the labels.
        count: how many there must be.
        name: the parameter's name for error messages.
        both: demand that both classes occur.

    Shape:
        (N,) in and out.

    Example:
        >>> signs([1.0, -1.0], 2)
        tensor([ 1, -1])
    """
    values = _labels(y, count, name)
    plus, minus = int((values == 1).sum()), int((values == -1).sum())  # to uint8, −1 is 255
    if values.dtype not in (torch.bool, torch.uint8) and plus + minus == count and ((plus and minus) or not both):
        return values.to(torch.int64, copy=True)
    found = torch.unique(values).tolist()
    if values.dtype == torch.bool or any(value not in (-1, 1) for value in found):
        raise ValueError(f"{name} must hold -1 and +1, found {_some(found)}; map your two labels to -1 and +1 first")
    raise ValueError(
        f"{name} has one class only, found {_some(found)}; there is nothing to separate "
        "(online learning with partial_fit takes single-class chunks)"
    )


def class_indices(y: Data, count: int, num_classes: int, *, name: str = "y", both: bool = True) -> Tensor:
    """Return labels as an int64 tensor of class indices 0 … K−1.

    Example:
        >>> class_indices([0, 2, 1], 3, 3)
        tensor([0, 2, 1])
    """
    values = _labels(y, count, name)
    if not values.is_floating_point() and values.dtype != torch.bool:
        lowest, highest = (int(value) for value in values.aminmax())
        if lowest >= 0 and highest < num_classes and (lowest < highest or not both):
            return values.to(torch.int64, copy=True)
    found = torch.unique(values).tolist()
    if any(value not in range(num_classes) for value in found):
        raise ValueError(
            f"{name} must hold class indices 0 to {num_classes - 1}, found {_some(found)}; "
            "number your classes from 0 or give the net more of them"
        )
    if both and len(found) < 2:
        raise ValueError(f"{name} has one class only, found {_some(found)}; there is nothing to tell apart")
    return values.to(torch.int64, copy=True)


def nonnegative_weights(weights: Data, count: int, *, name: str = "sample_weight", all_zero: bool = False) -> Tensor:
    """Return per-sample weights as float64, finite and at least 0; not all 0, unless that is allowed.

    Example:
        >>> nonnegative_weights([1, 0.5], 2)
        tensor([1.0000, 0.5000], dtype=torch.float64)
    """
    values = _labels(weights, count, name).to(torch.float64)
    if not torch.isfinite(values).all() or (values < 0).any():
        bad = values[~torch.isfinite(values) | (values < 0)][0].item()
        raise ValueError(f"{name} must hold finite numbers >= 0, found {bad}; a weight of 0 leaves the sample out")
    if not all_zero and not (values > 0).any():
        raise ValueError(f"{name} is 0 everywhere; at least one sample must count")
    return values


def as_array(values: Data, name: str = "X") -> Data:
    """A tensor as an array; all else as it is, unless a mask hides some of it.

    Example:
        >>> as_array(torch.tensor([1.0, 2.0], requires_grad=True))
        array([1., 2.], dtype=float32)
    """
    if isinstance(values, Tensor):
        tensor = _as_tensor(values, name).cpu()
        return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    if np.ma.is_masked(values):
        raise ValueError(f"{name} has masked values; fill them or leave them out")
    return values


def _as_tensor(values: Data, name: str) -> Tensor:
    if isinstance(values, Tensor):
        if values.layout in _SPARSE_LAYOUTS:
            raise TypeError(f"{name} is a sparse tensor, which is not taken here; pass {name}.to_dense()")
        if values.is_complex() or values.layout != torch.strided or values.is_meta or values.is_quantized:
            raise TypeError(
                f"{name} must be a dense tensor of real numbers, found {values.dtype} on {values.device}, layout "
                f"{values.layout}; convert it first"
            )
        return values.detach()
    if is_sparse(values):
        raise TypeError(f"{name} is a sparse matrix, which is not taken here; pass {name}.toarray()")
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} must be rectangular, its rows equally long: {error}") from None
    if array.dtype.kind not in "biuf":
        raise TypeError(
            f"{name} must hold real numbers, found dtype {array.dtype} in a {type(values).__name__}; "
            "convert it to numbers first"
        )
    if np.ma.is_masked(values):
        raise ValueError(f"{name} has masked values; fill them or leave them out")
    return shared(np.asarray(array, _torch_dtype(array, name)))


def shared(array: np.ndarray[Any, Any]) -> Tensor:
    """A tensor on an array's own memory, copied only if torch cannot have it as it lies; not to be written to.

    Example:
        >>> shared(np.arange(3.0)[::2])
        tensor([0., 2.], dtype=torch.float64)
    """
    if any(stride < 0 or stride % array.itemsize for stride in array.strides) or not array.flags.aligned:
        array = array.copy()
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


def shape(shape: tuple[int, ...], width: int | None = None, name: str = "X") -> None:
    """Refuse samples that are not N rows of d numbers, or not of the given width.

    Example:
        >>> shape((4, 2), width=2)
    """
    if len(shape) != 2:
        raise ValueError(
            f"{name} must have two dimensions (samples, features), found shape {shape}; "
            f"use {name}.reshape(-1, 1) for one feature or {name}.reshape(1, -1) for one sample"
        )
    if 0 in shape:
        raise ValueError(f"{name} is empty, found shape {shape}; give at least one sample with one feature")
    if width is not None and shape[1] != width:
        raise ValueError(f"{name} has {shape[1]} features but {width} are needed, as the net or training data has")


def _check_finite(result: Tensor, given: Tensor, name: str, first: int) -> None:
    if math.isfinite(result.sum()):  # one pass; a number that is not finite never leaves a finite sum
        return
    finite = torch.isfinite(result)  # the sum itself may have overflowed
    if not finite.all():
        row, column = torch.nonzero(~finite)[0].tolist()
        _not_finite(name, first + row, column, float(given[row, column]), result.dtype)


def _not_finite(name: str, row: int, column: int, value: float, dtype: torch.dtype) -> None:
    why = f"too large for {dtype}" if math.isfinite(value) else "not a finite number"
    raise ValueError(f"{name}[{row}, {column}] = {value} is {why}; remove, replace or rescale it")


def _inexact(name: str, dtype: torch.dtype) -> str:
    return f"{name} holds integers too large for {dtype} to be exact; use net.double() or scale {name}"


def _labels(y: Data, count: int, name: str) -> Tensor:
    values = _as_tensor(y, name).detach()
    if values.dim() != 1:
        raise ValueError(f"{name} must have one dimension, found shape {tuple(values.shape)}; use {name}.reshape(-1)")
    if len(values) != count:
        raise ValueError(f"{name} has {len(values)} values for {count} samples; they must be equally many")
    return values


def _some(values: list[Any]) -> str:
    shown = ", ".join(str(value) for value in values[:5])
    return f"{shown}, … ({len(values)} different values)" if len(values) > 5 else shown


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
