"""A file of 4 GB learned by rule: how long, and with how much memory.

The samples are written to a temporary folder first. Resident memory is read from the system (Linux) before the run and
at its peak; the pages of the mapped file count, which is why they are given back after each part.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

import torchperc as tp


def resident(field: str) -> float:
    """Resident memory in MB: ``VmRSS`` now, ``VmHWM`` at its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def written(folder: Path, rows: int, width: int) -> tuple[Path, np.ndarray]:
    """A file of integer-valued float32 samples, and their labels, of which one in a hundred is wrong."""
    rng = np.random.default_rng(0)
    normal = rng.integers(-3, 4, size=width)
    X = np.lib.format.open_memmap(folder / "X.npy", mode="w+", dtype=np.float32, shape=(rows, width))
    y = np.empty(rows, np.int64)
    for start in range(0, rows, 100_000):
        part = slice(start, min(start + 100_000, rows))
        X[part] = rng.integers(-5, 6, size=(part.stop - part.start, width), dtype=np.int8)
        y[part] = np.where((X[part] @ normal >= 0) ^ (rng.random(part.stop - part.start) < 0.01), 1, -1)
    X.flush()
    return folder / "X.npy", y


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=4.0)
    parser.add_argument("--width", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    rows = int(options.gigabytes * 1e9 / (4 * options.width))
    with tempfile.TemporaryDirectory() as folder:
        path, y = written(Path(folder), rows, options.width)
        X = np.load(path, mmap_mode="r")
        trainer = tp.RuleTrainer(max_epochs=options.epochs)
        trainer.fit(tp.Perceptron(options.width), np.array(X[:1000]), y[:1000])  # loads the compiled loops
        X._mmap.madvise(4)  # gives back what writing has left: MADV_DONTNEED
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
        before, start = resident("VmRSS"), time.perf_counter()
        result = trainer.fit(tp.Perceptron(options.width), X, y)
        seconds = time.perf_counter() - start
        print(f"{X.nbytes / 1e9:.1f} GB, {rows:,} × {options.width} float32: {result.sentence}")
        print(
            f"{seconds:.1f} s, {1e9 * seconds / (rows * options.epochs):.0f} ns a row; resident memory {before:.0f} MB "
            f"before, {resident('VmHWM') - before:.0f} MB more at its peak"
        )


if __name__ == "__main__":
    main()
