"""What processes tell each other."""

import os
import signal

import processes
import pytest
import torch

from torchperc.samples import shards


def _talk(rank, size):
    mine = torch.tensor([float(rank), 1.0])
    return shards.here(), shards.summed(mine), shards.least(mine), shards.told(mine, size - 1), shards.stacked(mine)


@pytest.mark.parametrize("size", [2, 3])
def test_collectives(size):
    for rank, (here, total, smallest, last, every) in enumerate(processes.run(size, _talk)):
        assert here == (rank, size)
        assert total.tolist() == [sum(range(size)), size]
        assert smallest.tolist() == [0, 1]
        assert last.tolist() == [size - 1, 1]
        assert every.tolist() == [[float(each), 1.0] for each in range(size)]
        assert shards.gathered(rank) == [rank]  # there is no group here


def _disagree(rank, size):
    return shards.agreed("margin", rank // 2)


def test_what_differs_is_an_error_everywhere():
    for error in processes.run(3, _disagree):
        assert isinstance(error, ValueError)
        assert "margin differs between processes: 0 in process 0, 1 in process 2" in str(error)


def _fail(rank, size):
    def check():
        if rank == 1:
            raise TypeError("no labels")
        return rank

    return shards.together(check)


@pytest.mark.slow
def test_an_error_of_one_is_raised_by_all():
    for error in processes.run(3, _fail):
        assert isinstance(error, TypeError)
        assert str(error) == "process 1 of 3: no labels"


def _die(rank, size):
    shards.summed(torch.ones(1))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return shards.summed(torch.ones(1))


def test_a_killed_process_is_noticed():
    survivor, killed = processes.run(2, _die)
    assert killed == -signal.SIGKILL
    assert isinstance(survivor, shards.ProcessError)
    assert "one of them has ended" in str(survivor)


def _late(rank, size):
    if rank:
        signal.alarm(5)
        signal.pause()
    return shards.summed(torch.ones(1))


@pytest.mark.processes
def test_a_process_that_does_not_answer_is_given_up_after_the_time_out():
    waiting, _ = processes.run(2, _late, seconds=1, timeout=10)
    assert isinstance(waiting, shards.ProcessError)


@pytest.mark.parametrize("count", [0, 1, 5, 6, 7])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_shards_are_all_samples_once(count, size):
    parts = [range(count)[shards.own_slice(count, rank, size)] for rank in range(size)]
    assert [i for part in parts for i in part] == list(range(count))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
