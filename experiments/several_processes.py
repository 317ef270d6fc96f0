"""The rule in several processes: each reads its shard of a file, and all end with the same weights.

    torchrun --nproc-per-node 2 experiments/several_processes.py

``distributed="exact"`` makes the mistakes of one process, which process 0 checks by training alone;
``distributed="mix"`` makes a pass over each shard and mixes the weights. In one process (plain ``python``) both are the
rule itself.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

import torchperc as tp
from torchperc.samples import shards


def main(rows: int = 20_000, features: int = 20, epochs: int = 10) -> dict[str, int]:
    rank, size = shards.here()
    mistakes = {}
    with tempfile.TemporaryDirectory() as folder:
        place = shards.gathered(folder)[0]  # one file for all, on a disk they share
        if rank == 0:
            write(Path(place), rows, features)
        shards.gathered(None)  # wait until it is there
        X, y = (np.load(Path(place) / name, mmap_mode="r") for name in ("X.npy", "y.npy"))
        own = shards.own_slice(len(y), rank, size)
        for mode in ("exact", "mix"):
            net, alone = (tp.Perceptron(features, dtype=torch.float64) for _ in range(2))
            result = tp.RuleTrainer(max_epochs=epochs, distributed=mode).fit(net, np.array(X[own]), np.array(y[own]))
            mistakes[mode] = result.mistakes
            if rank == 0:
                print(f"{mode}, {size} process{'es' * (size > 1)}: {result.sentence}")
            if rank == 0 and mode == "exact":
                log = tp.RuleTrainer(max_epochs=epochs).fit(alone, np.array(X), np.array(y)).log
                same, equal = log.equals(result.log), torch.equal(alone.weight, net.weight)
                print(f"the log of one process: {same}; its weights: {equal}")
                mistakes["alone"] = len(log) if same and equal else -1
        shards.gathered(None)  # the file goes when all are done
    return mistakes


def write(folder: Path, rows: int, features: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, features))
    y = np.where(X @ rng.normal(size=features) + 0.05 * rng.normal(size=rows) > 0, 1, -1)
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", y)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    if dist.is_torchelastic_launched():
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    main(parser.parse_args().rows)
    if dist.is_initialized():
        dist.destroy_process_group()
