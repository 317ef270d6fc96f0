"""How the rule and gradient descent grow with the number of processes on this machine.

Every case has the same samples in all, cut into as many shards as there are processes, each of which computes on one
core. Times are the best of several passes; the ratio is that to one process, measured in the same run.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import start_processes

import torchperc as tp
from torchperc.samples import process_group


def samples(rank: int, size: int, rows: int, width: int, noise: float, gap: float = 0.02) -> tuple[Tensor, Tensor]:
    """This process's shard of samples that a hyperplane separates but for some noise."""
    own = process_group.own_slice(rows, rank, size)
    truth = torch.randn(width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    generator = torch.Generator().manual_seed(1 + rank)
    X = torch.randn(own.stop - own.start, width, generator=generator, dtype=torch.float64)
    score = X @ truth / truth.norm()
    X += torch.sign(score)[:, None] * gap * truth / truth.norm()
    flipped = torch.rand(len(X), generator=generator) < noise
    return X, torch.where((score >= 0) ^ flipped, 1, -1)


def rule(rank: int, size: int, rows: int, width: int) -> dict[str, float]:
    X, y = samples(rank, size, rows, width, noise=0.01)
    net = tp.Perceptron(width, dtype=torch.float64)
    run = tp.RuleTrainer(max_epochs=10**6, distributed="mix").start(net, X, y)
    run.epoch()
    best, made = float("inf"), 0
    for _ in range(4):
        dist.barrier()
        start = time.perf_counter()
        made = run.epoch().mistakes
        best = min(best, time.perf_counter() - start)
    return {"seconds": best, "mistakes": float(made)}


def descent(rank: int, size: int, rows: int, width: int) -> dict[str, float]:
    X, y = samples(rank, size, rows, width, noise=0.0)
    net, loss = tp.Perceptron(width, dtype=torch.float64), tp.LogisticLoss()
    model: Any = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    best = float("inf")
    for _ in range(8):
        dist.barrier()
        start = time.perf_counter()
        optimizer.zero_grad()
        loss(model(X), y).backward()
        optimizer.step()
        best = min(best, time.perf_counter() - start)
    return {"seconds": best, "mistakes": 0.0}


CASES = {"rule, mix": rule, "full-batch descent, DDP": descent}


def work(rank: int, size: int, folder: str, rows: int, width: int) -> None:
    torch.set_num_threads(1)
    os.environ["NUMBA_NUM_THREADS"] = "1"
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank % len(os.sched_getaffinity(0))]})
    store = f"file://{folder}/store-{size}"
    dist.init_process_group("gloo", store, rank=rank, world_size=size, timeout=timedelta(minutes=5))
    found = {name: measure(rank, size, rows, width) for name, measure in CASES.items()}
    if rank == 0:
        torch.save(found, Path(folder) / f"{size}.pt")
    dist.barrier()
    dist.destroy_process_group()


def main(rows: int = 400_000, width: int = 100, sizes: tuple[int, ...] = (1, 2, 4)) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = {}
        for size in sizes:
            start_processes(work, (size, folder, rows, width), size)
            found[size] = torch.load(Path(folder) / f"{size}.pt", weights_only=True)
    print(f"{rows:,} × {width} float64, {os.cpu_count()} cores")
    for name in CASES:
        one = found[sizes[0]][name]["seconds"]
        times = (
            f"{n}: {1e3 * found[n][name]['seconds']:.1f} ms ({one / found[n][name]['seconds']:.2f} ×)" for n in sizes
        )
        print(f"{name:23} {found[sizes[-1]][name]['mistakes']:6.0f} mistakes per pass; processes {', '.join(times)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    main(parser.parse_args().rows)
