"""Checksums of arrays: what a saved log, run or cache recognises its data by."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np


def of_arrays(about: str, arrays: Iterable[np.ndarray[Any, Any]]) -> str:
    """Return the SHA-256 of a description and the bytes of all arrays, however these are divided.

    Example:
        >>> of_arrays("2", [np.zeros(2)]) == of_arrays("2", [np.zeros(1), np.zeros(1)]) != of_arrays("2", [np.ones(2)])
        True
    """
    digest = hashlib.sha256(about.encode())
    for array in arrays:
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def of_named(arrays: dict[str, np.ndarray[Any, Any]]) -> str:
    """Return the digest of named arrays, their types and shapes included, in whatever order they are given."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()
