"""Tables larger than memory: converted once, a part at a time, into files that can be mapped or read in pieces."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from torchperc.data.blocks import Array
from torchperc.rules.parts import CsrParts

_PIECE = re.compile(r"X-[0-9a-f]{32}-\d{5,}\.npz")


class Cache:
    """A folder for converted tables. Files in it appear whole or not at all; nothing in it is ever taken up again.

    Args:
        folder: where; ``None``: a temporary one that goes away with what is read from it, or with the process.
    """

    def __init__(self, folder: str | Path | None) -> None:
        self.temporary = folder is None
        with told("make a folder for the converted table"):
            if folder is None:
                self.folder = Path(tempfile.mkdtemp(prefix="torchperc-"))
            else:
                self.folder = Path(folder)
                self.folder.mkdir(parents=True, exist_ok=True)

    def keep_for(self, owner: object) -> None:
        """Remove a temporary folder as soon as its owner is gone."""
        if self.temporary:
            weakref.finalize(owner, _remove, self.folder, os.getpid())

    def abandon(self) -> None:
        """Remove a temporary folder at once."""
        if self.temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def array(self, rows: Iterator[Array], shape: tuple[int, int], dtype: str) -> Any:
        """Write rows as ``X.npy`` and map it.

        Args:
            rows: matrices, which are written one below the other.
            shape: of all together.
            dtype: float32 or float64.
        """
        part, whole = self.folder / f".X-{uuid.uuid4().hex}.part", self.folder / "X.npy"
        try:
            with told(f"write the converted table to {self.folder}"), part.open("wb") as file:
                header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(file, header)
                for some in rows:
                    file.write(np.ascontiguousarray(some, dtype).data)
            os.replace(part, whole)
        finally:
            part.unlink(missing_ok=True)
        X = np.load(whole, mmap_mode="r")
        self.keep_for(X._mmap)
        return X

    def pieces(self, pieces: Iterator[Any]) -> CsrParts:
        """Write CSR arrays as ``.npz`` files and read them in parts."""
        from scipy.sparse import save_npz

        token, made = uuid.uuid4().hex, []
        parts: list[Path] = []
        try:
            with told(f"write the converted table to {self.folder}"):
                for number, piece in enumerate(pieces):
                    parts.append(self.folder / f".X-{token}-{number:05}.part.npz")
                    save_npz(parts[-1], piece, compressed=False)
                old = [path for path in self.folder.iterdir() if _PIECE.fullmatch(path.name)]
                for number, part in enumerate(parts):
                    made.append(self.folder / f"X-{token}-{number:05}.npz")
                    os.replace(part, made[-1])
                for path in old:  # of an earlier table in the same folder
                    path.unlink(missing_ok=True)
        finally:
            for part in parts:
                part.unlink(missing_ok=True)
        X = CsrParts(made)
        self.keep_for(X)
        return X


def _remove(folder: Path, process: int) -> None:
    if os.getpid() == process:  # a forked child that ends leaves it alone
        shutil.rmtree(folder, ignore_errors=True)


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
        raise OSError(error.errno, said) from None
