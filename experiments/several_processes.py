"""The rule in several processes: each learns its own samples, and all end with the same weights.

    torchrun --nproc-per-node 2 experiments/several_processes.py

``distributed="mix"`` makes a pass over the samples of each process, then mixes the weights. In one process (plain
``python``) it is the rule itself. Process 0 compares the result with that of one process that has all samples.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as dist

import torchperc as tp


def main(quick: bool = False) -> dict[str, float]:
    rank, size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    epochs = 3 if quick else 10
    X, y = samples(500 if quick else 20_000)  # of your own data, each process would read a file of its own
    net = tp.Perceptron(X.shape[1], dtype=torch.float64)
    result = tp.RuleTrainer(max_epochs=epochs, distributed="mix").fit(net, X[rank::size], y[rank::size])
    alone = tp.Perceptron(X.shape[1], dtype=torch.float64)
    one = tp.RuleTrainer(max_epochs=epochs).fit(alone, X, y)
    errors = {
        name: float((trained.predict(torch.from_numpy(X)).numpy() != y).mean())
        for name, trained in (("mixed", net), ("alone", alone))
    }
    if rank == 0:
        print(f"{size} processes: {result.sentence}; error {100 * errors['mixed']:.1f} %")
        print(f"one process: {one.sentence}; error {100 * errors['alone']:.1f} %")
    return {"mix": float(result.mistakes), "alone": float(one.mistakes), **errors}


def samples(rows: int, features: int = 20) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, features))
    return X, np.where(X @ rng.normal(size=features) + 0.05 * rng.normal(size=rows) > 0, 1, -1)


if __name__ == "__main__":
    if dist.is_torchelastic_launched():
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    main()
    if dist.is_initialized():
        dist.destroy_process_group()
