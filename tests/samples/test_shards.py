"""What processes tell each other."""

import os
import signal

import processes
import pytest
import torch

from torchperc.samples import process_group

pytestmark = pytest.mark.processes


def _die(rank, size):
    process_group.all_reduce(torch.ones(1))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return process_group.all_reduce(torch.ones(1))


def test_a_killed_process_is_noticed():
    survivor, killed = processes.run(2, _die)
    assert killed == -signal.SIGKILL
    assert isinstance(survivor, process_group.ProcessError)
    assert "one of them has ended" in str(survivor)


def _late(rank, size):
    if rank:
        signal.alarm(5)
        signal.pause()
    return process_group.all_reduce(torch.ones(1))


def test_a_process_that_does_not_answer_is_given_up_after_the_time_out():
    waiting, _ = processes.run(2, _late, seconds=1, timeout=10)
    assert isinstance(waiting, process_group.ProcessError)


@pytest.mark.parametrize("count", [0, 1, 5, 6, 7])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_shards_are_all_samples_once(count, size):
    parts = [range(count)[process_group.own_slice(count, rank, size)] for rank in range(size)]
    assert [i for part in parts for i in part] == list(range(count))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
