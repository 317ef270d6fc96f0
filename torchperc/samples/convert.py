"""What users give as samples, made into the tensors and CSR arrays that everything else computes with."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchperc._checks import Data, as_csr, as_tensor, check_shape, tensor_view


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

    Arrays, lists and integer tensors are converted to ``dtype`` (integers only if that is exact); a floating tensor
    must already have it, because its owner chose that precision, unless ``convert`` says otherwise.

    Args:
        X: samples in rows.
        dtype: the type of the net.
        device: where they go; where they are if ``None``.
        width: the number of features they must have, if known.
        name: the parameter's name for error messages.
        convert: convert floating tensors too.
        first: the number of the first row, where these are a slice of something larger.
        finite: check that all values are finite; not needed for checked data.

    Example:
        >>> features([[0, 1], [2, 3]], dtype=torch.float32)
        tensor([[0., 1.],
                [2., 3.]])
    """
    tensor = as_tensor(X, name)
    check_shape(tuple(tensor.shape), width, name)
    if tensor.is_floating_point() and isinstance(X, Tensor) and tensor.dtype != dtype and not convert:
        why = f"{name} has dtype {tensor.dtype} but {dtype} is needed, as in the net or training data"
        raise TypeError(f"{why}; convert one of them, with .to({dtype}) or net.to({tensor.dtype})")
    result = tensor.to(dtype=dtype, device=device)
    if not tensor.is_floating_point() and not torch.equal(result.to(tensor.dtype), tensor.to(result.device)):
        raise _inexact(name, dtype)
    # one pass: a number that is not finite never leaves a finite sum; the sum itself may overflow
    if finite and not math.isfinite(result.sum()) and not (known := torch.isfinite(result)).all():
        row, column = torch.nonzero(~known)[0].tolist()
        raise _not_finite(name, first + row, column, tensor[row, column], dtype)
    return result.detach()


def sparse_features(
    X: Data, *, dtype: torch.dtype, width: int | None = None, name: str = "X", first: int = 0, look: bool = True
) -> Any:
    """Return sparse ``X`` as a canonical, finite scipy CSR array of ``dtype`` (sorted, no duplicate entries).

    Data of that dtype and form is not copied. The parameters are those of :func:`features`; ``look=False`` leaves
    the checks of columns and values to the caller.
    """
    check_shape(tuple(X.shape), width, name)
    narrow = isinstance(X, Tensor) and X.dtype in (torch.bfloat16, torch.float16)
    if narrow or (X.is_complex() if isinstance(X, Tensor) else X.dtype.kind not in "biuf"):
        raise TypeError(f"{name} must hold real numbers of a numpy type, found dtype {X.dtype}; convert it first")
    if dtype not in (torch.float32, torch.float64):
        raise TypeError(f"{name} is sparse, which needs float32 or float64, found {dtype}; pass {name}.toarray()")
    given = as_csr(X, name, look=look)
    if look and not given.has_canonical_format:
        given = given.copy()
        given.sum_duplicates()
    with np.errstate(over="ignore"):
        result = given.astype(np.float32 if dtype == torch.float32 else np.float64, copy=False)
    if look and not np.isfinite(result.data).all():
        entry = int(np.isfinite(result.data).argmin())
        row = int(np.searchsorted(result.indptr, entry, side="right")) - 1
        raise _not_finite(name, first + row, int(result.indices[entry]), given.data[entry], dtype)
    if given.dtype.kind in "biu" and not np.array_equal(result.data.astype(given.dtype), given.data):
        raise _inexact(name, dtype)
    return result


def csr_tensor(X: Any) -> Tensor:
    """Return a sparse tensor on a CSR array's memory; do not write to it."""
    pieces = (tensor_view(X.indptr), tensor_view(X.indices), tensor_view(X.data))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(*pieces, size=X.shape, check_invariants=False)


def as_array(values: Data, name: str = "X") -> Data:
    """Return a tensor as an array, all else unchanged; masked values raise.

    Example:
        >>> as_array(torch.tensor([1.0, 2.0], requires_grad=True))
        array([1., 2.], dtype=float32)
    """
    if np.ma.is_masked(values) or isinstance(values, Tensor):
        tensor = as_tensor(values, name).cpu()
        return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return values


def _not_finite(name: str, row: int, column: int, value: Any, dtype: torch.dtype) -> ValueError:
    why = f"too large for {dtype}" if math.isfinite(value) else "not a finite number"
    return ValueError(f"{name}[{row}, {column}] = {float(value)} is {why}; remove, replace or rescale it")


def _inexact(name: str, dtype: torch.dtype) -> ValueError:
    return ValueError(f"{name} holds integers too large for {dtype} to be exact; use net.double() or scale {name}")
