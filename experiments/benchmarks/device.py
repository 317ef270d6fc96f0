"""What an epoch of the rule asks of a GPU: launches, bytes and waits of ``blocked`` and ``triton``, and an estimate.

What ``blocked`` does on a device is counted on the CPU, operation by operation; what ``triton`` does follows from the
mistakes of the epoch and the tiles in which its program reads samples. No GPU is used: the times are an estimate from
the figures in :class:`GPU`: those of its data sheet, and round guesses of latencies and of the time of a launch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import torchperc as tp
from torchperc.rules.engines.triton import Tile


@dataclass(frozen=True)
class GPU:
    """A device as the estimate sees it; an A100 80GB by default."""

    name: str = "A100 80GB"
    clock: float = 1.41e9
    processors: int = 108
    memory: float = 2.0e12  # bytes per second
    cache: float = 40e6  # bytes of L2
    cache_speed: float = 4.0e12  # bytes per second, of L2
    stream: float = 40.0  # bytes per cycle that one program can read
    latency: float = 500.0  # cycles until memory answers: sample numbers first, then the samples
    near: float = 250.0  # cycles until the cache answers
    reduction: float = 100.0  # cycles of a sum over all threads of a program
    multiplications: float = 64.0  # per cycle and processor, in single precision; half of it in double
    launch: float = 5e-6  # seconds from one small kernel to the next
    wait: float = 20e-6  # seconds until the host has a number of the device
    bus: float = 25e9  # bytes per second to the host, and at which the host learns
    threads: int = 2048  # of a processor
    registers: int = 65536


class Case(NamedTuple):
    """Made data: N samples of d numbers, two or K classes; how many runs are made at once; which epoch is looked at."""

    samples: int
    width: int
    classes: int | None = None
    runs: int = 1
    epoch: int = 1

    def __str__(self) -> str:
        many = f", {self.runs:,} runs" if self.runs > 1 else ""
        return f"{self.samples:,} × {self.width}, {self.classes or 2} classes{many}, epoch {self.epoch}"


CASES = (
    Case(100_000, 60),
    Case(100_000, 60, epoch=8),
    Case(60_000, 784),
    Case(60_000, 784, epoch=8),
    Case(20_000, 784, 10),
    Case(10_000, 20, runs=1000),
    Case(60_000, 784, runs=1000),
)
FIELDS = 3 * 8  # bytes beside the numbers of a sample: its place, its number and its label
# operations that are no kernels: views, allocations, and reading a number, which is a wait
FREE = (
    "view", "_unsafe_view", "reshape", "expand", "slice", "select", "unsqueeze", "squeeze", "t", "transpose", "permute",
    "detach", "alias", "as_strided", "unbind", "split", "split_with_sizes", "diagonal", "empty", "empty_like",
    "empty_strided", "new_empty", "lift_fresh", "_local_scalar_dense",
)  # fmt: skip


class Epoch(NamedTuple):
    """What an epoch of one engine needs; ``bytes`` are all that its kernels read and write, from cache or memory."""

    kernels: int
    bytes: float
    waits: int
    seconds: float


class Operations(TorchDispatchMode):
    """Counts operations that would be kernels, and the bytes of the tensors that they read and write."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kernels, self.bytes = 0, 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name not in FREE:
            self.kernels += 1
            read = args[1:] if name == "index" else args  # of which a few rows are taken
            tensors = [leaf for leaf in tree_leaves((read, kwargs, result)) if isinstance(leaf, Tensor)]
            self.bytes += sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        return result


class Reads:
    """What the host reads of a device, by ``Tensor.cpu``: how often it waits, and the bytes that come."""

    def __init__(self) -> None:
        self.waits, self.bytes, self._plain = 0, 0.0, Tensor.cpu

    def __enter__(self) -> Reads:
        def cpu(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            self.waits += 1
            self.bytes += tensor.numel() * tensor.element_size()
            return self._plain(tensor, *args, **kwargs)

        Tensor.cpu = cpu  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *error: object) -> None:
        Tensor.cpu = self._plain  # type: ignore[method-assign]


def data(case: Case) -> tuple[Tensor, Tensor]:
    """Samples on two sides of a plane, or of K classes that planes separate."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(case.samples, case.width, generator=generator)
    scores = X @ torch.randn(case.width, case.classes or 1, generator=generator)
    y = torch.where(scores[:, 0] > 0, 1, -1) if case.classes is None else scores.argmax(1)
    return X, y


def run(case: Case, engine: str) -> Any:
    """A run that begins with the epoch that is looked at."""
    X, y = data(case)
    net = tp.Perceptron(case.width) if case.classes is None else tp.MulticlassPerceptron(case.width, case.classes)
    if case.epoch > 1:
        tp.RuleTrainer(max_epochs=case.epoch - 1).fit(net, X, y)
    return tp.RuleTrainer(engine=engine).start(net, X, y)


def scorings(steps: list[int], count: int, size: int) -> int:
    """How often a program scores a tile: once, and again after each mistake, unless nothing is behind it.

    Example:
        >>> scorings([], 100, 8), scorings([3, 4, 99], 100, 8)
        (13, 15)
    """
    ends = {min(first + size, count) - 1 for first in range(0, count, size)}
    return len(ends) + len(steps) - len(ends.intersection(steps))


@cache
def operations(case: Case) -> tuple[int, float, int, float]:
    """Kernels, bytes, waits and bytes to the host, in the epoch by the engine ``blocked``."""
    begun = run(case, "blocked")
    begun._engine._waits = True  # as it works on a device
    if case.epoch > 1:
        begun._engine._rate = 0.0  # mistakes are rare by then, of which it has learned
    with Operations() as seen, Reads() as reads:
        begun.epoch()
    return seen.kernels, seen.bytes, reads.waits, reads.bytes


def blocked(case: Case, gpu: GPU) -> Epoch:
    """Run by run and kernel by kernel; samples that the host learns are read by it once more."""
    kernels, moved, waits, read = (case.runs * figure for figure in operations(case._replace(runs=1)))
    work = max(kernels * gpu.launch, moved / gpu.memory)
    return Epoch(int(kernels), moved, int(waits), work + waits * gpu.wait + 2 * read / gpu.bus)


def triton(case: Case, gpu: GPU) -> tuple[Epoch, int]:
    """The epoch by the engine ``triton``, if the host has no near tie to decide, and its mistakes."""
    begun = run(case, "compiled")
    mistakes, steps = begun.epoch().mistakes, begun.result().log.step.tolist()
    classes = case.classes or 1
    tile = Tile.of(classes, case.width, 4)
    tiles, scored = -(-case.samples // tile.T), scorings(steps, case.samples, tile.T)
    sample, weights = 4 * case.width, 4 * case.width * classes
    again = 0 if tile.ON_CHIP else scored * (tile.T * sample + weights) + mistakes * 4 * sample
    moved = case.samples * (sample + FIELDS) + again
    work = scored * tile.T * tile.K * tile.D * -(-case.width // tile.D) / gpu.multiplications
    sums, judged = (2, 2) if classes == 1 else (5, 9)
    cycles = tiles * 2 * gpu.latency + moved / gpu.stream + work + scored * sums * gpu.reduction
    cycles += mistakes * (2 * gpu.near + judged * gpu.reduction)
    if not tile.ON_CHIP:
        cycles += (scored + 2 * mistakes) * gpu.near
    beside = max(1, min(gpu.threads, gpu.registers // 128) // (32 * tile.num_warps))
    alone = math.ceil(case.runs / (gpu.processors * beside)) * cycles / gpu.clock
    busy = math.ceil(case.runs / gpu.processors) * work / gpu.clock
    speed = gpu.cache_speed if case.samples * sample < gpu.cache else gpu.memory
    seconds = gpu.launch + gpu.wait + max(alone, busy, case.runs * moved / speed)
    return Epoch(1, case.runs * moved, 1, seconds), mistakes


def size(number: float) -> str:
    """A number of bytes in words.

    Example:
        >>> size(1500), size(2.5e9), size(0)
        ('1.5 kB', '2.5 GB', '0.0 B')
    """
    power = min(4, int(math.log10(number) // 3)) if number >= 1 else 0
    return f"{number / 1000**power:.1f} {('B', 'kB', 'MB', 'GB', 'TB')[power]}"


def table(cases: tuple[Case, ...] = CASES, gpu: GPU = GPU()) -> list[str]:  # noqa: B008  it is frozen
    """Lines of a table in Markdown."""
    lines = [
        f"| float32 | mistakes | engine | launches | bytes read and written | host waits | {gpu.name}, estimated |",
        "|---|---|---|---|---|---|---|",
    ]
    for case in cases:
        launched, mistakes = triton(case, gpu)
        for name, epoch in (("blocked", blocked(case, gpu)), ("triton", launched)):
            figures = f"{epoch.kernels:,} | {size(epoch.bytes)} | {epoch.waits:,} | {1e3 * epoch.seconds:,.1f} ms"
            lines.append(f"| {case} | {mistakes:,} | `{name}` | {figures} |")
    return lines


def main() -> None:
    gpu = GPU()
    print(*table(gpu=gpu), sep="\n")
    print(f"\nAn estimate, not a measurement. Assumed of the {gpu.name}:")
    for name, value in vars(gpu).items():
        print(f"  {name}: {value}")


if __name__ == "__main__":
    main()
