"""Parameter mixing in several processes, against a plain loop in fractions."""

import builtins
import os
import re
import signal
from fractions import Fraction
from functools import partial

import numpy as np
import oracles
import processes
import pytest
import torch
from refusals import refusals
from scipy.sparse import csr_array

import torchperc as tp
from torchperc.rules.conventions import Verdict
from torchperc.rules.engines import reference
from torchperc.samples import process_group


def _net(width=3, dtype=torch.float64):
    return tp.Perceptron(width, dtype=dtype)


def _columns(log):
    return [getattr(log, name) for name in ("sample", "step", "coef", "predicted")]


def _own(X, rank, size):
    return X[process_group.own_slice(X.shape[0], rank, size)]


def _data(seed, count=24, kind="integers"):
    X, y = oracles.integers(seed, count=count)
    X = np.array(X, float)
    if kind == "floats":
        X = X + np.random.default_rng(seed).normal(size=X.shape)
    return X, np.array(y)


def _mixed_by_hand(X, y, size, epochs):
    """Iterative parameter mixing in fractions: the weights after each pass, the log, and Σ μ·k."""
    cuts = [process_group.own_slice(len(y), rank, size) for rank in range(size)]
    w, log, total = [Fraction(0)] * (X.shape[1] + 1), [], Fraction(0)
    for epoch in range(epochs):
        moves, counts, entries = [], [], []
        for cut in cuts:
            v, made = list(w), []
            for i in range(cut.start, cut.stop):
                x = [*map(Fraction, X[i].tolist()), Fraction(1)]
                if int(y[i]) * sum(a * b for a, b in zip(v, x, strict=True)) <= 0:
                    v = [a + int(y[i]) * b for a, b in zip(v, x, strict=True)]
                    made.append((i, epoch * len(y) + i, int(y[i])))
            moves.append([a - b for a, b in zip(v, w, strict=True)])
            counts.append(len(made))
            entries.append(made)
        every = sum(counts)
        mu = [Fraction(1, size)] * size
        w = [a + sum(m * move[j] for m, move in zip(mu, moves, strict=True)) for j, a in enumerate(w)]
        total += sum(m * k for m, k in zip(mu, counts, strict=True))
        log += [(i, step, m * c) for m, made in zip(mu, entries, strict=True) for i, step, c in made]
        if not every:
            break
    return w, log, total


def _mix(rank, size, X, y, options):
    net = _net(X.shape[1])
    run = tp.RuleTrainer(**options).start(net, _own(X, rank, size), _own(y, rank, size))
    while run.verdict is None:
        run.epoch()
    result, theory = run.result(), run.theory(run.survey()[1])
    result.write_to(net)
    return (
        _columns(result.log),
        net.weight.data,
        net.bias.data,
        result.verdict,
        theory,
        result.log.bind(X, y).last().weight,
    )


@pytest.mark.processes
@pytest.mark.parametrize("size", [2, 3])
def test_mix_is_parameter_mixing(size):
    # halves are exact in binary; thirds are not, and a score of 0 would be decided by their rounding
    exact = size == 2
    X, y = _data(5, count=31, kind="integers" if exact else "floats")
    w, log, total = _mixed_by_hand(X, y, size, 4)
    options = {"max_epochs": 4, "distributed": "mix"}
    for columns, weight, bias, _, theory, rebuilt in processes.run(size, _mix, X, y, options):
        expected = np.array([float(value) for value in w])
        np.testing.assert_allclose([*weight[0].tolist(), bias.item()], expected, rtol=0, atol=1e-12)
        assert columns[0].tolist() == [i for i, _, _ in log]
        assert columns[1].tolist() == [step for _, step, _ in log]
        np.testing.assert_allclose(columns[2], [float(c) for _, _, c in log], rtol=1e-15)
        torch.testing.assert_close(rebuilt, weight, rtol=0, atol=0 if exact else 1e-12)  # the log adds up to them
        assert theory["theory/mistakes"] == pytest.approx(float(total), rel=1e-12)


@pytest.mark.processes
def test_mix_separates_within_its_bound():
    X = np.random.default_rng(2).integers(-9, 10, (60, 4)).astype(float)
    y = np.where(X @ np.array([3.0, -2.0, 1.0, 2.0]) > 0.5, 1, -1)
    bound, margin = tp.theory.mistake_bound(X, y), tp.theory.max_margin(X, y, regularize_bias=True).margin
    options = {"max_epochs": 500, "distributed": "mix", "order": "shuffled"}
    for columns, weight, bias, verdict, theory, _ in processes.run(3, _mix, X, y, options):
        assert verdict is Verdict.SEPARATED
        assert (y * (X @ weight[0].numpy() + bias.item()) > 0).all()
        assert float(columns[2].abs().sum()) <= bound
        assert theory["theory/mistakes"] <= bound <= theory["theory/bound"] * (1 + 1e-12)
        assert theory["theory/lower"] <= margin * (1 + 1e-9) <= theory["theory/upper"] * (1 + 2e-9)


def _fit(rank, size, X, y, options, weight):
    net = _net(X.shape[1]) if y.min() < 0 else tp.MulticlassPerceptron(X.shape[1], 3, dtype=torch.float64)
    weight = None if weight is None else _own(weight, rank, size)
    result = tp.RuleTrainer(distributed="mix", max_epochs=5, **options).fit(
        net, _own(X, rank, size), _own(y, rank, size), validation=(X[rank::size], y[rank::size]), sample_weight=weight
    )
    errors = [record.validation_error for record in result.history]
    with pytest.raises(ValueError, match=re.escape("use log.bind(X, y)")):
        result.log.errors()
    with pytest.raises(ValueError, match="not the labels of this log"):
        result.log.bind(X, np.roll(y, 1))
    return net.weight.data, errors, result.log.bind(X, y), result.verdict


@pytest.mark.processes
def test_selections_weights_and_storage():
    X, y = _data(7)
    sample_weight = np.arange(24) % 3 * 0.5
    for weight, _, log, _ in processes.run(2, _fit, X, y, {"select": "averaged"}, sample_weight):
        torch.testing.assert_close(weight, log.averaged().weight, rtol=0, atol=1e-12)
        assert set(log.sample.tolist()).isdisjoint(range(0, 24, 3))  # of weight 0
        assert set(log.coef.abs().tolist()) == {0.25, 0.5}
    for weight, errors, *_ in processes.run(2, _fit, csr_array(X), y, {"select": "best-validation"}, None):
        best = errors.index(min(errors)) + 1
        w, _, _ = _mixed_by_hand(X, y, 2, best)
        assert weight[0].tolist() == [float(value) for value in w[:-1]]
    for _, _, log, _ in processes.run(2, _fit, X, y, {"class_weight": "balanced"}, None):
        expected = {24 / (2 * (y == label).sum()) / 2 for label in (-1, 1)}
        assert set(log.coef.abs().tolist()) == expected
    classes = (np.arange(24) + (X[:, 0] > 0)) % 3
    for weight, _, log, _ in processes.run(2, _fit, X, classes, {"bias_step": "radius"}, None):
        torch.testing.assert_close(weight, log.last().weight, rtol=0, atol=1e-12)
        assert log.problem.bias_step == np.square(X).sum(1).max()
    X, y = (np.tile(part.numpy(), (2, 1) if part.dim() == 2 else 2) for part in tp.data.gate("XOR"))
    assert {each[3] for each in processes.run(2, _fit, X.astype(float), y, {}, None)} == {Verdict.CYCLING}


def _epochs(rank, size, X, y, options, state, count):
    net = _net(X.shape[1])
    run = tp.RuleTrainer(**options).start(net, _own(X, rank, size), _own(y, rank, size))
    if state is not None:
        run.load_state_dict(state)
    for _ in range(count):
        run.epoch()
    saved = run.state_dict()
    result = run.result()
    return saved, (_columns(result.log), result.model.weight, result.history)


@pytest.mark.processes
def test_resuming_is_the_undisturbed_run():
    X, y = _data(9, count=50)
    options = {"distributed": "mix", "select": "averaged", "order": "shuffled", "max_epochs": 9}
    whole = processes.run(2, _epochs, X, y, options, None, 6)[0][1]
    state = processes.run(2, _epochs, X, y, options, None, 2)[0][0]  # what process 0 writes
    state = processes.run(2, _epochs, X, y, options, state, 1)[0][0]
    for _, found in processes.run(2, _epochs, X, y, options, state, 3):
        assert all(map(torch.equal, found[0], whole[0]))
        assert torch.equal(found[1], whole[1])
        assert found[2] == whole[2]
    for error in processes.run(3, _epochs, X, y, options, state, 1):
        assert isinstance(error, ValueError)
        assert "2 processes, found 3" in str(error)
    for error in processes.run(2, _epochs, X[::-1].copy(), y[::-1].copy(), options, state, 1):
        assert isinstance(error, ValueError)
        assert "belongs to other data" in str(error)


def _failing(kind, problem, weights, ids):
    if kind is not None:
        raise kind("odd sample")
    return reference(problem, weights, ids)


def _bad(rank, size, what):
    X, y = (torch.tensor(part) for part in _data(1))
    options, net, X, y = {"distributed": "mix"}, _net(), _own(X, rank, size), _own(y, rank, size)
    weight = -torch.ones(len(y)) if what == "sample_weight" else None
    last = rank == size - 1
    if what == "overflow":
        X = X * 1e200
    elif what == "width" and last:
        X, net = X[:, :2], _net(2)
    elif what == "options" and last:
        options["lr"] = 0.5
    elif what == "class_weight":
        options["class_weight"] = {1: 2.0, -1: 1.0 + last}
    elif what == "start" and last:
        torch.nn.init.ones_(net.weight)
    elif what == "labels" and last:
        y = y * 2
    elif what == "nan" and last:
        X[0, 0] = torch.nan
    elif what == "empty" and last:
        X, y = X[:0], y[:0]
    elif what == "one class" and last:
        y = torch.ones_like(y)
    elif what == "type" and last:
        net = net.float()
    elif what in ("ValueError", "TypeError", "KeyError"):
        options["engine"] = partial(_failing, getattr(builtins, what) if last else None)
    return tp.RuleTrainer(**options).fit(net, X, y, sample_weight=weight).verdict.name


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("width", "X differs between processes: 'dense, torch.float64, 3 features' in process 0"),
        ("options", "lr differs between processes: 1.0 in process 0, 0.5 in process 1"),
        ("class_weight", "class_weight differs between processes"),
        ("start", "net.weight differs between processes"),
        ("labels", "process 1 of 2: y must hold -1 and +1"),
        ("nan", "process 1 of 2: X[0, 0] = nan"),
        ("empty", "process 1 of 2: X"),
        ("one class", "process 1 of 2: y"),
        ("type", "process 1 of 2: X has dtype torch.float64"),
        ("sample_weight", "sample_weight must hold finite numbers"),
        ("overflow", "overflow"),
        ("ValueError", "process 1 of 2: odd sample"),
        ("TypeError", "process 1 of 2: odd sample"),
        ("KeyError", "process 1 of 2: 'odd sample'"),
    ],
)
@pytest.mark.processes
def test_bad_input_is_one_error_on_every_process(what, text):
    for error in processes.run(2, _bad, what):
        assert isinstance(error, RuntimeError if what == "KeyError" else ValueError | TypeError), error
        assert text in str(error)


def _engine():
    def own(problem, weights, ids):
        return reference(problem, weights, ids)

    return own


def _own_engine(rank, size, X, y):
    engines = [_engine() for _ in range(size)]  # the same function elsewhere in memory, as processes may have it
    trainer = tp.RuleTrainer(distributed="mix", max_epochs=3, engine=engines[rank])
    return trainer.fit(_net(), _own(X, rank, size), _own(y, rank, size)).mistakes


@pytest.mark.processes
def test_an_engine_of_ones_own_is_the_same_in_every_process():
    first, second = processes.run(2, _own_engine, *_data(1, count=30))
    assert first == second > 0


test_options_without_meaning_are_refused = refusals(
    ({"distributed": "exact"}, "distributed='exact' is unknown"),
    ({"distributed": "mix", "kernel": "rbf"}, "a kernel cannot be used with distributed='mix'"),
    ({"distributed": "mix", "prove": True}, "prove=True cannot be used"),
    ({"distributed": "mix", "order": "random-mistake"}, "order='random-mistake' cannot be used"),
    ({"distributed": "mix", "select": "pocket"}, "select='pocket' cannot be used"),
    by=lambda options: tp.RuleTrainer(**options),
    error=ValueError,
)


def test_one_process_without_a_group_is_the_plain_rule(monkeypatch):
    X, y = _data(4)
    plain, mixed = (tp.RuleTrainer(max_epochs=5, distributed=mode).fit(_net(), X, y) for mode in (None, "mix"))
    assert plain.log.equals(mixed.log)
    assert mixed.log.errors().equal(plain.log.errors())
    with pytest.raises(ValueError, match="use fit"):
        tp.RuleTrainer(distributed="mix").partial_fit(_net(), X, y)
    with pytest.raises(TypeError, match="joint features"):
        tp.RuleTrainer(distributed="mix").fit(tp.JointPerceptron(3, 2).double(), X, (y + 1) // 2)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="no process group"):
        tp.RuleTrainer(distributed="mix").fit(_net(), X, y)


def _talk(rank, size):
    mine = torch.tensor([float(rank), 1.0])
    return process_group.all_reduce(mine).tolist(), process_group.all_stack(mine).tolist(), process_group.gather(rank)


@pytest.mark.processes
def test_collectives_are_in_the_order_of_the_processes():
    assert processes.run(3, _talk) == [([3, 3], [[0, 1], [1, 1], [2, 1]], [0, 1, 2])] * 3


def _die(rank, size):
    process_group.all_reduce(torch.ones(1))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return process_group.all_reduce(torch.ones(1))


@pytest.mark.processes
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


@pytest.mark.processes
def test_a_process_that_does_not_answer_is_given_up_after_the_time_out():
    waiting, _ = processes.run(2, _late, seconds=1, timeout=10)
    assert isinstance(waiting, process_group.ProcessError)


@pytest.mark.parametrize("count", [0, 1, 5, 6, 7])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_shards_are_all_samples_once(count, size):
    parts = [range(count)[process_group.own_slice(count, rank, size)] for rank in range(size)]
    assert [i for part in parts for i in part] == list(range(count))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
