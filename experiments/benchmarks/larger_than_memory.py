"""A file of 4 GB learned by rule: how long each epoch takes, and with how much memory.

The samples are written to a temporary folder first. The process is given a quarter of the file's size for its own
memory beside the libraries (RLIMIT_DATA, Linux), and the system is told to forget the file before each epoch, so that
what is read comes from the disk. Beside it: the samples in memory.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import torchperc as tp

WAYS = ("file", "in memory")


def resident(field: str) -> float:
    """Memory in MB: ``VmRSS`` resident now, ``VmHWM`` at its peak, ``VmData`` the process's own."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def written(folder: Path, rows: int, width: int) -> None:
    """Files of integer-valued float64 samples and their labels, of which three in a thousand are wrong.

    A strip about the plane between the classes is empty, so that few samples are mistakes.
    """
    rng = np.random.default_rng(0)
    normal = rng.choice([-3, -1, 1, 3], size=width)
    X = np.lib.format.open_memmap(folder / "X.npy", mode="w+", dtype=np.float64, shape=(rows, width))
    y = np.empty(rows, np.int64)
    for start in range(0, rows, 50_000):
        part = slice(start, min(start + 50_000, rows))
        some = rng.integers(-5, 6, size=(part.stop - start, width), dtype=np.int8)
        y[part] = np.where(some @ normal >= 0, 1, -1)
        X[part] = some + y[part, None] * np.sign(normal) * (np.arange(width) < 60)
        y[part] *= np.where(rng.random(part.stop - start) < 0.003, -1, 1)
    X.flush()
    np.save(folder / "y.npy", y)


def forgotten(path: Path) -> None:
    """Have the system give back the pages of a file."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def learned(folder: Path, way: str, epochs: int, limit: int) -> dict[str, object]:
    """Seconds of each epoch, mistakes, and memory at its peak."""
    path = folder / "X.npy"
    X, y = np.load(path, mmap_mode=None if way == WAYS[1] else "r"), np.load(folder / "y.npy")
    trainer = tp.RuleTrainer(max_epochs=epochs)
    trainer.fit(tp.Perceptron(X.shape[1]).double(), np.array(X[:10_000]), y[:10_000])  # loads the compiled loops
    if way != WAYS[1]:
        limit += int(resident("VmData") * 2**20)  # beyond what the libraries take
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    run = trainer.start(tp.Perceptron(X.shape[1]).double(), X, y)
    seconds = []
    for _ in range(epochs):
        forgotten(path)
        start = time.perf_counter()
        run.epoch()
        seconds.append(time.perf_counter() - start)
    return {"seconds": seconds, "mistakes": [record.mistakes for record in run.history], "peak": resident("VmHWM")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=4.0)
    parser.add_argument("--width", type=int, default=784)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    limit = int(options.gigabytes * 1e9 / 4)
    if options.way:
        print(json.dumps(learned(Path(options.folder), options.way, options.epochs, limit)))
        return
    rows = int(options.gigabytes * 1e9 / (8 * options.width))
    with tempfile.TemporaryDirectory() as folder:
        written(Path(folder), rows, options.width)
        print(f"{options.gigabytes:g} GB, {rows:,} × {options.width} float64; {limit / 1e9:g} GB of memory")
        for way in WAYS:
            command = [sys.executable, __file__, *sys.argv[1:], "--way", way, "--folder", folder]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            seconds = ", ".join(f"{value:.3f}" for value in found["seconds"])
            print(f"{way}: {seconds} s; peak {found['peak']:.0f} MB; mistakes {found['mistakes']}", flush=True)


if __name__ == "__main__":
    main()
