"""Samples larger than memory: written once, a chunk at a time, to files that are mapped or read in pieces."""

from __future__ import annotations

import hashlib
import os
import shutil
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from torchperc._files import hidden_folder, hidden_path, remove

if TYPE_CHECKING:
    from torchperc.samples.mapped import CsrParts


class ArrayFolder:
    """A folder of arrays, each in files whose name has a digest of their content.

    So two tables, or two processes, never write to the same name unless they write the same. Arrays are written
    atomically and stay until the user removes them. A temporary folder is removed along with the arrays read from it,
    with the process, or if its block is left by an error.

    Args:
        folder: where; the system's temporary folder by default.
        temporary: make a temporary folder inside it.
    """

    def __init__(self, folder: str | Path | None, temporary: bool = False) -> None:
        self.temporary = temporary or folder is None
        with _one_line("make a folder for the converted table"):
            if folder is not None:
                Path(folder).mkdir(parents=True, exist_ok=True)
            self.folder = hidden_folder("cache", folder) if self.temporary else Path(folder or "")

    def __enter__(self) -> ArrayFolder:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self.temporary and error is not None:
            remove(self.folder)

    def dense(self, rows: Iterable[Any], shape: tuple[int, int], dtype: str = "float64") -> Any:
        """Write matrices, one below the other, of this shape together, and map the file."""
        kind = np.dtype(dtype)
        digest, part = hashlib.sha256(repr((shape, kind.str)).encode()), hidden_path(self.folder)
        try:
            with _one_line(f"write the converted table to {self.folder}"):
                size, free = shape[0] * shape[1] * kind.itemsize, shutil.disk_usage(self.folder).free
                if size > free:
                    raise OSError(f"it takes {size / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB are free")
                with part.open("wb") as file:
                    header = {"descr": kind.str, "fortran_order": False, "shape": shape}
                    np.lib.format.write_array_header_1_0(file, header)
                    for some in rows:
                        data = np.ascontiguousarray(some, kind).data
                        digest.update(data)
                        file.write(data)
            (path,) = self._named([part], digest.hexdigest(), ".npy")
        finally:
            remove(part)
        X = np.load(path, mmap_mode="r")
        self._tie(X._mmap)
        return X

    def sparse(self, pieces: Iterable[Any]) -> CsrParts:
        """Write CSR arrays, one per file, and read them in parts."""
        from scipy.sparse import save_npz

        from torchperc.samples.mapped import CsrParts

        digest, parts = hashlib.sha256(), list[Path]()
        try:
            with _one_line(f"write the converted table to {self.folder}"):
                for piece in pieces:
                    parts.append(hidden_path(self.folder))
                    with parts[-1].open("wb") as file:
                        save_npz(file, piece, compressed=False)
                    for array in (np.array(piece.shape), piece.indptr, piece.indices, piece.data):
                        digest.update(np.ascontiguousarray(array).data)
            X = CsrParts(self._named(parts, digest.hexdigest(), ".npz"))
        finally:
            for part in parts:
                remove(part)
        self._tie(X)
        return X

    def _named(self, parts: list[Path], digest: str, suffix: str) -> list[Path]:
        """Rename complete files."""
        numbers = [""] if suffix == ".npy" else [f"-{number:05}" for number in range(len(parts))]
        paths = [self.folder / f"X-{digest[:32]}{number}{suffix}" for number in numbers]
        for part, path in zip(parts, paths, strict=True):
            os.replace(part, path)
        return paths

    def _tie(self, owner: object) -> None:
        """Remove a temporary folder as soon as its owner is gone."""
        if self.temporary:
            weakref.finalize(owner, _remove, self.folder, os.getpid())


def free_memory() -> int:
    """Bytes that can be had without swapping, within what this process is given."""
    try:
        words = Path("/proc/meminfo").read_text().split()
        free = 1024 * int(words[words.index("MemAvailable:") + 1])
    except (OSError, ValueError):
        try:
            free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
        except (AttributeError, OSError, ValueError):
            free = 2**32  # nothing is known; a small machine of today
    try:
        limit, used = (int(Path(f"/sys/fs/cgroup/memory.{what}").read_text()) for what in ("max", "current"))
        return max(0, min(free, limit - used))
    except (OSError, ValueError):  # no limit
        return free


def _remove(folder: Path, process: int) -> None:
    if os.getpid() == process:  # a forked child that ends leaves it alone
        remove(folder)


@contextmanager
def _one_line(doing: str) -> Iterator[None]:
    """Say in one line what could not be done when the disk is full or forbidden."""
    try:
        yield
    except OSError as error:
        said = f"cannot {doing}: {error.strerror or error}; choose another folder with cache"
        raise (OSError(said) if error.errno is None else OSError(error.errno, said)) from None
