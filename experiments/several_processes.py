"""The rule in several processes: each reads its own shard of a file, and all end with the same weights.

    torchrun --nproc-per-node 2 experiments/several_processes.py

``distributed="exact"`` makes the mistakes of one process, which process 0 checks by training alone;
``distributed="mix"`` makes a pass over each shard and mixes the weights. In one process (plain ``python``) both are the
rule itself.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

import torchperc as tp

FOLDER = Path("runs/several_processes")


def main(folder: Path = FOLDER, quick: bool = False) -> dict[str, float]:
    file, epochs = folder / "table.csv", 3 if quick else 10
    if first():
        write(file, 500 if quick else 20_000)
    wait()
    shard = tp.data.read(file, shard="auto")
    mistakes: dict[str, float] = {}
    for mode in ("exact", "mix"):
        net = tp.Perceptron(shard.X.shape[1], dtype=shard.X.dtype)
        result = tp.RuleTrainer(max_epochs=epochs, distributed=mode).fit(net, shard.X, shard.y)
        mistakes[mode] = float(result.mistakes)
        if first():
            print(f"{mode}: {result.sentence}")
        if first() and mode == "exact":
            table, alone = tp.data.read(file), tp.Perceptron(shard.X.shape[1], dtype=shard.X.dtype)
            log = tp.RuleTrainer(max_epochs=epochs).fit(alone, table.X, table.y).log
            print("the log of one process:", log.equals(result.log))
            print("its weights:", torch.equal(alone.weight, net.weight))
            mistakes["alone"] = float(len(log))
    return mistakes


def write(file: Path, rows: int, features: int = 20) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, features))
    y = np.where(X @ rng.normal(size=features) + 0.05 * rng.normal(size=rows) > 0, 1, -1)
    file.parent.mkdir(parents=True, exist_ok=True)
    names = ",".join([*(f"x{number}" for number in range(features)), "label"])
    np.savetxt(
        file, np.column_stack((X, y)), delimiter=",", header=names, comments="", fmt=["%.6f"] * features + ["%d"]
    )


def first() -> bool:
    return not dist.is_initialized() or dist.get_rank() == 0


def wait() -> None:
    if dist.is_initialized():
        dist.barrier()


if __name__ == "__main__":
    if dist.is_torchelastic_launched():
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    main()
    if dist.is_initialized():
        dist.destroy_process_group()
