"""Checksums of arrays: what a saved log, run or cache recognises its data by."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import numpy as np

_PIECE = 2**22  # bytes that are hashed at once


def of_arrays(about: str, arrays: Iterable[np.ndarray[Any, Any]], kind: str = "sha256") -> str:
    """The digest of a description and the bytes of all arrays, however these are divided.

    It is the SHA-256 of those of all pieces of 4 MB, two of which are made at a time. ``"blake2b"`` is the digest in
    logs of version 0.1.0.

    Example:
        >>> of_arrays("2", [np.zeros(2)]) == of_arrays("2", [np.zeros(1), np.zeros(1)]) != of_arrays("2", [np.ones(2)])
        True
    """
    digest = hashlib.sha256() if kind == "sha256" else hashlib.blake2b(digest_size=16)
    digest.update(about.encode())
    pieces = _in_pieces(arrays)
    if kind != "sha256":
        for piece in pieces:
            digest.update(piece)
        return digest.hexdigest()
    with ThreadPoolExecutor(2) as pool:
        while some := list(islice(pieces, 4)):  # not all at once: they may be slices of what is too large
            for part in pool.map(lambda piece: hashlib.sha256(piece).digest(), some):
                digest.update(part)
    return digest.hexdigest()


def of_named(arrays: dict[str, np.ndarray[Any, Any]]) -> str:
    """The digest of named arrays, their types and shapes included, in whatever order they are given."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()


def _in_pieces(arrays: Iterable[np.ndarray[Any, Any]]) -> Iterator[memoryview]:
    """The bytes of all arrays in pieces of one size; the last may be shorter."""
    rest = bytearray()
    for array in arrays:
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        taken = _PIECE - len(rest) if rest else 0
        rest += content[:taken]
        if len(rest) == _PIECE:
            yield memoryview(rest)
            rest = bytearray()
        content = content[taken:]
        whole = len(content) - len(content) % _PIECE
        for start in range(0, whole, _PIECE):
            yield content[start : start + _PIECE]
        rest += content[whole:]
    if rest:
        yield memoryview(rest)
