"""How fast files are read: torchperc against pyarrow and polars on one CSV file, and against scikit-learn on svmlight.

Runs take turns, so that a busy minute of the machine hits all of them; the best of each counts. Another process reads
the CSV file as a stream, and says how much memory that took.

    python experiments/benchmarks/reading.py --megabytes 1000
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from torchperc.data import read

FEATURES = 50
_PEAK = """
import sys, time
from pathlib import Path
from torchperc.data import read
import pyarrow.csv, numpy, torch
def resident(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024
before = resident("VmRSS")
start = time.perf_counter()
table = read(sys.argv[1], stream=sys.argv[2] == "stream")
took = time.perf_counter() - start
print(took, resident("VmHWM") - before, table.X.nbytes / 2**20)
"""


def write_csv(path: Path, megabytes: float, words: bool = False) -> None:
    """Normal numbers with six decimals and two labels; with words, a column of five colours too."""
    draw = np.random.default_rng(0)
    rows = 20_000
    columns: dict[str, object] = {f"f{j}": draw.normal(size=rows).round(6) for j in range(FEATURES)}
    if words:
        columns["colour"] = np.array(["red", "green", "blue", "black", "white"])[draw.integers(0, 5, rows)]
    columns["label"] = np.array(["cat", "dog"])[draw.integers(0, 2, rows)]
    table, header = pa.table(columns), True
    with path.open("wb") as file:
        while file.tell() < megabytes * 1e6:
            pa.csv.write_csv(table, file, pa.csv.WriteOptions(include_header=header))
            header = False


def write_svmlight(path: Path, megabytes: float, digits: int) -> None:
    """Fifty entries a line among 100,000 features."""
    draw = np.random.default_rng(0)
    lines = []
    for _ in range(5_000):
        index = np.unique(draw.integers(1, 100_001, FEATURES))
        values = draw.normal(size=len(index))
        entries = " ".join(f"{j}:{value:.{digits}g}" for j, value in zip(index, values, strict=True))
        lines.append(f"{draw.choice(['+1', '-1'])} {entries}\n")
    content = "".join(lines).encode()
    with path.open("wb") as file:
        while file.tell() < megabytes * 1e6:
            file.write(content)


def in_turn(readers: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The best time of each, in seconds."""
    best = dict.fromkeys(readers, float("inf"))
    for _ in range(repeats):
        for name, reader in readers.items():
            start = time.perf_counter()
            result = reader()
            best[name] = min(best[name], time.perf_counter() - start)
            del result
    return best


def show(path: Path, best: dict[str, float]) -> None:
    size = path.stat().st_size / 1e6
    print(f"\n{path.name}, {size:,.0f} MB")
    ours = best["torchperc"]
    for name, seconds in best.items():
        print(f"  {name:26} {seconds:7.2f} s  {size / seconds:7.0f} MB/s   torchperc takes {ours / seconds:5.2f} of it")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--out", "--folder", dest="folder", type=Path, help="where the files are made; a temporary folder by default"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for name, words in (("numbers.csv", False), ("words.csv", True)):
            path = Path(folder) / name
            write_csv(path, options.megabytes, words)
            readers: dict[str, Callable[[], object]] = {
                "torchperc": lambda path=path: read(path, stream=False),
                "pyarrow.csv.read_csv": lambda path=path: pa.csv.read_csv(path),
            }
            if find_spec("polars"):
                import polars

                readers["polars.read_csv"] = lambda path=path: polars.read_csv(path)
            show(path, in_turn(readers, options.repeats))
            for kind in ("stream", "memory"):
                command = [sys.executable, "-c", _PEAK, str(path), kind]
                said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
                took, peak, held = map(float, said)
                print(f"  by {kind:8}{took:7.2f} s, {peak:6.0f} MiB more at the peak, for {held:.0f} MiB of features")
            path.unlink()
        for name, digits in (("six_digits.svm", 6), ("all_digits.svm", 17)):
            from sklearn.datasets import load_svmlight_file

            path = Path(folder) / name
            write_svmlight(path, options.megabytes / 10, digits)
            read(path, stream=False)
            peers: dict[str, Callable[[], object]] = {
                "torchperc": lambda path=path: read(path, stream=False),
                "sklearn.load_svmlight_file": lambda path=path: load_svmlight_file(str(path)),
            }
            show(path, in_turn(peers, options.repeats))


if __name__ == "__main__":
    main()
