"""The kernel perceptron on 60,000 × 784: how long it learns, and how many support vectors it keeps.

The data are made: twenty prototypes of 784 pixels, each seen through heavy noise, ten of them positive. A degree-2
polynomial kernel separates them with about a thousand support vectors.
"""

from __future__ import annotations

import time

import torch

import torchperc as tp


def pictures(count: int, seed: int, noise: float = 0.87) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    prototypes = torch.rand(20, 784, generator=generator) * (torch.rand(20, 784, generator=generator) < 0.2)
    generator = torch.Generator().manual_seed(seed)
    which = torch.randint(20, (count,), generator=generator)
    X = prototypes[which] + noise * torch.randn(count, 784, generator=generator)
    return X, torch.where(which < 10, 1, -1)


def main() -> None:
    X, y = pictures(60_000, seed=1)
    X_test, y_test = pictures(10_000, seed=2)
    start = time.perf_counter()
    result = tp.RuleTrainer(kernel="poly", degree=2, max_epochs=10).fit(None, X, y)
    print(f"learned 60,000 × 784, degree 2: {time.perf_counter() - start:.1f} s")
    print(result.sentence)
    print(f"support vectors: {len(result.log.sample.unique())}, from {result.mistakes} mistakes")
    for name, model in (
        ("last", result.log.last()),
        ("averaged", result.log.averaged()),
        ("voted", result.log.voted()),
    ):
        start = time.perf_counter()
        error = float((model.predict(X_test) != y_test).double().mean())
        print(f"{name:9} test error {100 * error:.2f} % on 10,000, predicted in {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
