"""Tables larger than memory: converted once, a part at a time, into files that can be mapped or read in pieces."""

from __future__ import annotations

import hashlib
import os
import shutil
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from torchperc._atomic import hidden, remove, temporary
from torchperc.data.io.blocks import Array
from torchperc.samples.parts import CsrParts


class Cache:
    """A folder for converted tables, one entry for each: its name has a digest of what is in it.

    So two tables, or two processes, never write to the same name unless they write the same. Entries are written
    atomically and stay until the user removes them; none is ever read again by itself.

    Args:
        folder: where; ``None``: a temporary one that goes away with what is read from it, or with the process.
    """

    def __init__(self, folder: str | Path | None) -> None:
        self.temporary = folder is None
        with told("make a folder for the converted table"):
            if folder is None:
                self.folder = temporary("cache")
            else:
                self.folder = Path(folder)
                self.folder.mkdir(parents=True, exist_ok=True)

    def abandon(self) -> None:
        """Remove a temporary folder at once."""
        if self.temporary:
            remove(self.folder)

    def array(self, rows: Iterator[Array], shape: tuple[int, int], dtype: str) -> Any:
        """Write rows as ``X-<digest>.npy`` and map it.

        Args:
            rows: matrices, which are written one below the other.
            shape: of all together.
            dtype: float32 or float64.
        """
        kind = np.dtype(dtype)
        digest, part = _digest(shape, kind.str), hidden(self.folder)
        try:
            with told(f"write the converted table to {self.folder}"), part.open("wb") as file:
                self._check_room(shape[0] * shape[1] * kind.itemsize)
                np.lib.format.write_array_header_1_0(file, {"descr": kind.str, "fortran_order": False, "shape": shape})
                for some in rows:
                    data = np.ascontiguousarray(some, dtype).data
                    digest.update(data)
                    file.write(data)
            whole = self.folder / f"X-{digest.hexdigest()[:32]}.npy"
            os.replace(part, whole)
        finally:
            remove(part)
        X = np.load(whole, mmap_mode="r")
        if self.temporary:
            remove_with(X._mmap, self.folder)
        return X

    def _check_room(self, size: int) -> None:
        free = shutil.disk_usage(self.folder).free
        if size > free:
            raise OSError(f"it takes {size / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB are free")

    def pieces(self, pieces: Iterator[Any]) -> CsrParts:
        """Write CSR arrays as ``X-<digest>-<number>.npz`` files and read them in parts."""
        from scipy.sparse import save_npz

        digest, parts, made = _digest(), [], []
        try:
            with told(f"write the converted table to {self.folder}"):
                for piece in pieces:
                    parts.append(hidden(self.folder))
                    with parts[-1].open("wb") as file:
                        save_npz(file, piece, compressed=False)
                    digest.update(repr(piece.shape).encode())
                    for array in (piece.indptr, piece.indices, piece.data):
                        digest.update(np.ascontiguousarray(array).data)
                for number, part in enumerate(parts):
                    made.append(self.folder / f"X-{digest.hexdigest()[:32]}-{number:05}.npz")
                    os.replace(part, made[-1])
        finally:
            for part in parts:
                remove(part)
        X = CsrParts(made)
        if self.temporary:
            remove_with(X, self.folder)
        return X


def _digest(*about: object) -> Any:
    return hashlib.sha256(repr(about).encode())


def remove_with(owner: object, folder: Path) -> None:
    """Remove a folder as soon as its owner is gone, in the process that made it."""
    weakref.finalize(owner, _remove, folder, os.getpid())


def _remove(folder: Path, process: int) -> None:
    if os.getpid() == process:  # a forked child that ends leaves it alone
        remove(folder)


@contextmanager
def told(doing: str) -> Iterator[None]:
    """Say in one line what could not be done when the disk is full or forbidden.

    Example:
        >>> with told("write here"):
        ...     raise OSError(28, "No space left on device")
        Traceback (most recent call last):
        OSError: [Errno 28] cannot write here: No space left on device; choose another folder with cache
    """
    try:
        yield
    except OSError as error:
        said = f"cannot {doing}: {error.strerror or error}; choose another folder with cache"
        raise (OSError(said) if error.errno is None else OSError(error.errno, said)) from None
