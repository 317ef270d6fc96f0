"""What an epoch asks of a GPU: counted, and the estimate that follows from it."""

import pytest
import torch
from benchmarks import device

import torchperc as tp


@pytest.mark.parametrize("size", [1, 3, 8])
def test_tiles_are_scored_as_often_as_by_the_loop(size):
    for seed in range(20):
        steps = torch.randperm(40, generator=torch.Generator().manual_seed(seed))[: seed % 7].sort().values.tolist()
        place, scored = 0, 0
        while place < 40:
            end = min(place + size, 40)
            while place < end:
                scored += 1
                place = min([step + 1 for step in steps if place <= step < end], default=end)
        assert device.scorings(steps, 40, size) == scored


def test_operations_and_waits_are_counted():
    rows = torch.tensor([1, 2])
    with device.Operations() as seen, device.Reads() as reads:
        X = torch.ones(4, 8)
        (X[rows] + 1).sum().cpu()
    assert seen.kernels == 4  # ones, index, add and sum
    assert seen.bytes == 128 + (16 + 64) + (64 + 64) + (64 + 4)
    torch.ones(1).cpu()
    assert (reads.waits, reads.bytes) == (1, 4)


def test_the_table(capsys):
    case = device.Case(256, 5)
    kernels, moved, waits, read = device.operations(case)
    assert kernels > 20
    assert 1 <= waits < kernels
    assert 0 < read < moved
    one, mistakes = device.triton(case, device.GPU())
    assert (one.kernels, one.waits) == (1, 1)
    assert mistakes == tp.RuleTrainer(1).fit(tp.Perceptron(5), *device.data(case)).mistakes
    assert 256 * (5 * 4 + device.FIELDS) <= one.bytes < moved
    many, _ = device.triton(case._replace(runs=1000), device.GPU())
    assert (many.kernels, many.waits, many.bytes) == (1, 1, 1000 * one.bytes)
    assert one.seconds <= many.seconds < 1000 * one.seconds
    lines = device.table((case, device.Case(256, 5, 3, runs=2, epoch=2)))
    assert [line.count("|") for line in lines] == [8] * 6
    assert lines[5].startswith("| 256 × 5, 3 classes, 2 runs, epoch 2 |")
