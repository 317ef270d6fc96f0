"""Tables larger than memory: converted once, a part at a time, into files that can be mapped or read in pieces."""

from __future__ import annotations

import hashlib
import os
import shutil
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from torchperc._files import hidden_folder, hidden_path, remove
from torchperc.data.io.blocks import Array

if TYPE_CHECKING:
    from torchperc.samples.mapped import CsrParts


class DenseFile:
    """Rows one after the other into an ``.npy`` file of a known shape."""

    def __init__(self, path: Path, shape: tuple[int, int], dtype: str) -> None:
        self.path, self.dtype = path, np.dtype(dtype)
        header = {"descr": self.dtype.str, "fortran_order": False, "shape": shape}
        with path.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, header)

    def add(self, blocks: Iterable[Any], seen: Callable[[Any], None] = lambda data: None) -> None:
        """Write the next rows, and show their bytes to someone else."""
        with self.path.open("ab") as file:
            for rows in blocks:
                data = np.ascontiguousarray(rows, self.dtype).data
                seen(data)
                file.write(data)


def stacked(pieces: list[Any]) -> Any:
    """CSR arrays, one below the other, as one."""
    from scipy.sparse import csr_array, vstack

    return pieces[0] if len(pieces) == 1 else csr_array(vstack(pieces, format="csr"))


class SparseFiles:
    """CSR arrays into ``.npz`` files in a folder, by a name and their number; with hidden names if there is none."""

    def __init__(self, folder: Path, name: str | None = None) -> None:
        self._folder, self._name, self.paths, self.nbytes = folder, name, list[Path](), 0

    def add(self, blocks: Iterable[Any], seen: Callable[[Any], None] = lambda data: None) -> None:
        """Write the next rows to a file, and show their bytes to someone else."""
        from scipy.sparse import save_npz

        X = stacked(list(blocks))
        name = f"{self._name}-{len(self.paths)}.npz"
        self.paths.append(self._folder / name if self._name else hidden_path(self._folder))
        with self.paths[-1].open("wb") as file:
            save_npz(file, X, compressed=False)
        for array in (X.indptr, X.indices, X.data):
            seen(np.ascontiguousarray(array).data)
            self.nbytes += array.nbytes


class Cache:
    """A folder for converted tables, one entry for each: its name has a digest of what is in it.

    So two tables, or two processes, never write to the same name unless they write the same. Entries are written
    atomically and stay until the user removes them; none is ever read again by itself. Without a folder it is a
    temporary one, which goes away with what is read from it, with the process, or if its block is left by an error.
    """

    def __init__(self, folder: str | Path | None) -> None:
        self.temporary = folder is None
        with _told("make a folder for the converted table"):
            self.folder = hidden_folder("cache") if folder is None else Path(folder)
            self.folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self.temporary and error is not None:
            remove(self.folder)

    def dense(self, rows: Iterable[Array], shape: tuple[int, int], dtype: str) -> Any:
        """Write matrices, one below the other, of this shape together as ``X-<digest>.npy``, and map it."""
        digest, part = hashlib.sha256(repr((shape, np.dtype(dtype).str)).encode()), hidden_path(self.folder)
        try:
            with _told(f"write the converted table to {self.folder}"):
                size, free = shape[0] * shape[1] * np.dtype(dtype).itemsize, shutil.disk_usage(self.folder).free
                if size > free:
                    raise OSError(f"it takes {size / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB are free")
                DenseFile(part, shape, dtype).add(rows, digest.update)
            complete = self.folder / f"X-{digest.hexdigest()[:32]}.npy"
            os.replace(part, complete)
        finally:
            remove(part)
        X = np.load(complete, mmap_mode="r")
        if self.temporary:
            remove_with(X._mmap, self.folder)
        return X

    def sparse(self, pieces: Iterable[Any]) -> CsrParts:
        """Write CSR arrays as ``X-<digest>-<number>.npz`` files and read them in parts."""
        digest, files = hashlib.sha256(), SparseFiles(self.folder)
        try:
            with _told(f"write the converted table to {self.folder}"):
                for piece in pieces:
                    digest.update(repr(piece.shape).encode())
                    files.add([piece], digest.update)
                stem = f"X-{digest.hexdigest()[:32]}"
                complete = [self.folder / f"{stem}-{number:05}.npz" for number in range(len(files.paths))]
                for part, path in zip(files.paths, complete, strict=True):
                    os.replace(part, path)
        finally:
            for part in files.paths:
                remove(part)
        from torchperc.samples.mapped import CsrParts  # which needs torch, and the survey does without

        X = CsrParts(complete)
        if self.temporary:
            remove_with(X, self.folder)
        return X


def remove_with(owner: object, folder: Path) -> None:
    """Remove a folder as soon as its owner is gone, in the process that made it."""
    weakref.finalize(owner, _remove, folder, os.getpid())


def _remove(folder: Path, process: int) -> None:
    if os.getpid() == process:  # a forked child that ends leaves it alone
        remove(folder)


@contextmanager
def _told(doing: str) -> Iterator[None]:
    """Say in one line what could not be done when the disk is full or forbidden."""
    try:
        yield
    except OSError as error:
        said = f"cannot {doing}: {error.strerror or error}; choose another folder with cache"
        raise (OSError(said) if error.errno is None else OSError(error.errno, said)) from None
