"""What processes tell each other."""

import os
import signal

import processes
import pytest
import torch

from torchperc.samples import process_group

pytestmark = pytest.mark.processes


def _talk(rank, size):
    mine = torch.tensor([float(rank), 1.0])
    return (
        process_group.rank_and_size(),
        process_group.all_reduce(mine),
        process_group.all_stack(mine),
        process_group.gather(rank),
    )


def test_collectives():
    for rank, (here, total, every, ranks) in enumerate(processes.run(3, _talk)):
        assert here == (rank, 3)
        assert total.tolist() == [3, 3]
        assert every.tolist() == [[float(each), 1.0] for each in range(3)]
        assert ranks == [0, 1, 2]
        assert process_group.gather(rank) == [rank]  # there is no group here


def _compared(rank, size):
    same = {"lr": 0.5, "class_weight": {1: 2.0, -1: 1.0}, "kernel": lambda a, b: a @ b.T}
    process_group.check_same_options(same)
    return [_agrees(name, value) for name, value in {"lr": rank, "class_weight": {1: rank}, "order": [0, 1]}.items()]


def _agrees(name, value):
    try:
        process_group.check_same_options({name: value})
    except ValueError:
        return False
    return True


def test_options_that_differ_are_refused():
    assert processes.run(2, _compared) == [[False, False, True]] * 2


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
