"""The rule in several processes, against one process and against a plain loop."""

import random
import re
from fractions import Fraction

import numpy as np
import oracles
import processes
import pytest
import torch
from scipy.sparse import csr_array

import torchperc as tp
from torchperc.rules.conventions import Verdict
from torchperc.samples import shards

SIZES = [2, pytest.param(3, marks=pytest.mark.processes)]


def _net(classes, width=3, dtype=torch.float64):
    if classes is None:
        return tp.Perceptron(width, dtype=dtype)
    return tp.MulticlassPerceptron(width, classes, dtype=dtype)


def _columns(log):
    return [getattr(log, name) for name in ("index", "step", "coef", "wrong")]


def _outcome(result, net):
    """What can be sent back and compared: the log's columns, the weights, and how the run ended."""
    return _columns(result.log), net.weight.data, net.bias.data, result.verdict.name, result.history, result.cycle


def _own(X, rank, size):
    return X[shards.own_slice(X.shape[0], rank, size)]


def _fit(rank, size, X, y, classes, options, weight=None, dtype=torch.float64):
    net = _net(classes, X.shape[1], dtype)
    held = (X.toarray() if hasattr(X, "toarray") else X)[:7], y[:7]
    given = {} if weight is None else {"sample_weight": _own(weight, rank, size)}
    trainer = tp.RuleTrainer(**options)
    result = trainer.fit(net, _own(X, rank, size), _own(y, rank, size), validation=held, **given)
    return _outcome(result, net)


def _alone(X, y, classes, options, weight=None, dtype=torch.float64):
    net = _net(classes, X.shape[1], dtype)
    held = (X.toarray() if hasattr(X, "toarray") else X)[:7], y[:7]
    options = {name: value for name, value in options.items() if name != "distributed"}
    return _outcome(tp.RuleTrainer(**options).fit(net, X, y, validation=held, sample_weight=weight), net)


def _same(found, expected):
    for one, other in zip(found[0], expected[0], strict=True):
        assert torch.equal(one, other)
    assert torch.equal(found[1], expected[1])
    assert torch.equal(found[2], expected[2])
    assert found[3:] == expected[3:]


def _data(seed, count=24, width=3, classes=None, kind="integers"):
    X, y = oracles.integers(seed, count=count, width=width, classes=classes)
    X = np.array(X, float)
    if kind == "floats":
        X = X + np.random.default_rng(seed).normal(size=X.shape)
    return X, np.array(y)


def _many(rank, size, cases):
    return [_fit(rank, size, *case) for case in cases]


CASES = [
    ("given", "last", "update", "unit", 0.0, 1.0),
    ("shuffled", "averaged", "sign", "none", 0.0, 0.5),
    ("shuffled", "voted", "update", "radius", 2.0, 1.0),
    ("given", "pocket", "strict", "unit", 1.5, 0.25),
    ("random-mistake", "best-validation", "update", "unit", 0.0, 1.0),
    ("given", "voted", "sign", "unit", 0.0, 1.0),
    (list(range(23, -1, -1)), "averaged", "sign", "radius", 0.0, 1.0),
]


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("classes", [None, pytest.param(3, marks=pytest.mark.processes)])
def test_exact_makes_the_mistakes_of_one_process(size, classes):
    cases = []
    for number, (order, select, tie, bias_step, margin, lr) in enumerate(CASES):
        options = {"max_epochs": 2, "order": order, "select": select, "tie": tie, "bias_step": bias_step}
        options |= {"margin": margin, "lr": lr, "distributed": "exact", "seed": number}
        kind, dtype = ("floats", torch.float32) if number % 2 else ("integers", torch.float64)
        X, y = _data(number, classes=classes, kind=kind)
        weight = np.random.default_rng(number).integers(0, 3, len(y)) * 0.5 if number in (1, 2, 3) else None
        cases.append((X, y, classes, options, weight, dtype))
    for of_rank in processes.run(size, _many, cases):
        assert not isinstance(of_rank, Exception), of_rank
        for found, case in zip(of_rank, cases, strict=True):
            _same(found, _alone(*case))


@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.processes
def test_exact_looks_far_ahead_where_mistakes_are_rare(classes):
    rng = np.random.default_rng(6)
    X = rng.normal(size=(2000, 5))
    scores = X @ rng.normal(size=(5, classes or 1)) + 0.01 * rng.normal(size=(2000, classes or 1))
    y = np.where(scores[:, 0] >= 0, 1, -1) if classes is None else scores.argmax(1)
    cases = [
        (X, y, classes, {"max_epochs": 2, "order": order, "distributed": "exact"}) for order in ("given", "shuffled")
    ]
    expected = [_alone(*case) for case in cases]
    assert expected[0][4][1].mistakes < 150
    for of_rank in processes.run(2, _many, cases):
        for found, alone in zip(of_rank, expected, strict=True):
            _same(found, alone)


@pytest.mark.slow
@pytest.mark.parametrize("classes", [None, 4])
def test_exact_on_sparse_samples_and_a_separable_set(classes):
    rng = np.random.default_rng(1)
    X = csr_array(rng.integers(-3, 4, (60, 30)) * (rng.random((60, 30)) < 0.2), dtype=float)
    truth = rng.normal(size=(30, classes or 1))
    scores = X @ truth
    y = np.where(scores[:, 0] >= 0, 1, -1) if classes is None else scores.argmax(1)
    case = (X, y, classes, {"max_epochs": 200, "distributed": "exact"})
    expected = _alone(*case)
    assert expected[3] == "SEPARATED"
    for found in processes.run(2, _fit, *case):
        _same(found, expected)


def _near_ties(rank, size, X, y):
    return _fit(rank, size, X, y, None, {"max_epochs": 3, "distributed": "exact"})


def test_exact_decides_near_ties_as_one_process():
    rng = random.Random(0)
    rows = [[rng.choice([0.1, 0.2, 0.3, -0.3, -0.2, -0.1]) for _ in range(3)] for _ in range(80)]
    X, y = np.array(rows), np.array([rng.choice([-1, 1]) for _ in rows])
    expected = _alone(X, y, None, {"max_epochs": 3})
    for found in processes.run(2, _near_ties, X, y):
        _same(found, expected)


def _log_of(rank, size, X, y, options):
    result = tp.RuleTrainer(**options).fit(_net(None), _own(X, rank, size), _own(y, rank, size))
    log, said = result.log, []
    for call in (log.errors, lambda: log.save("log.npz"), lambda: log.bind(X, -y)):
        with pytest.raises(ValueError) as error:  # noqa: PT011  # the text is looked at by the test
            call()
        said.append(str(error.value))
    bound = log.bind(X, y)
    models = [log.averaged(), log.state_at(len(log) // 2)] if options["distributed"] == "exact" else []
    return said, [(m.weight, m.bias) for m in (*models, bound.averaged(), bound.last())], result.model.weight


@pytest.mark.processes
def test_the_log_of_exact_is_whole_on_every_process():
    X, y = _data(3, count=80)
    log = tp.RuleTrainer(max_epochs=1).fit(_net(None), X, y).log
    expected = [log.averaged(), log.state_at(len(log) // 2), log.averaged(), log.last()]
    for said, models, _ in processes.run(3, _log_of, X, y, {"max_epochs": 1, "distributed": "exact"}):
        assert all("log.bind(X, y)" in text for text in said[:2])
        assert "y are not the labels of this log" in said[2]
        for (weight, bias), model in zip(models, expected, strict=True):
            assert torch.equal(weight, model.weight)
            assert torch.equal(bias, model.bias)


# --- parameter mixing ---


def _mixed_by_hand(X, y, size, epochs, mixing, tie_margin=0):
    """Iterative parameter mixing in fractions: the weights after each pass, the log, and Σ μ·k."""
    cuts = [shards.own_slice(len(y), rank, size) for rank in range(size)]
    w, log, total = [Fraction(0)] * (X.shape[1] + 1), [], Fraction(0)
    for epoch in range(epochs):
        moves, counts, entries = [], [], []
        for cut in cuts:
            v, made = list(w), []
            for i in range(cut.start, cut.stop):
                x = [*map(Fraction, X[i].tolist()), Fraction(1)]
                if int(y[i]) * sum(a * b for a, b in zip(v, x, strict=True)) <= tie_margin:
                    v = [a + int(y[i]) * b for a, b in zip(v, x, strict=True)]
                    made.append((i, epoch * len(y) + i, int(y[i])))
            moves.append([a - b for a, b in zip(v, w, strict=True)])
            counts.append(len(made))
            entries.append(made)
        every = sum(counts)
        mu = [Fraction(k, every) if mixing == "mistakes" and every else Fraction(1, size) for k in counts]
        w = [a + sum(m * move[j] for m, move in zip(mu, moves, strict=True)) for j, a in enumerate(w)]
        total += sum(m * k for m, k in zip(mu, counts, strict=True))
        log += [(i, step, m * c) for m, made in zip(mu, entries, strict=True) for i, step, c in made]
        if not every:
            break
    return w, log, total


def _mix(rank, size, X, y, options):
    net = _net(None, X.shape[1])
    run = tp.RuleTrainer(**options).start(net, _own(X, rank, size), _own(y, rank, size))
    theory = []
    while run.verdict is None:
        run.epoch()
        theory.append(run.theory(run.survey()[1]))
    result = run.result()
    result.write_to(net)
    return _outcome(result, net), theory, result.log.bind(X, y).last().weight


@pytest.mark.slow
@pytest.mark.parametrize("mixing", ["uniform", "mistakes"])
@pytest.mark.parametrize("size", SIZES)
def test_mix_is_parameter_mixing(size, mixing):
    # halves are exact in binary; thirds are not, and a score of 0 would be decided by their rounding
    exact = size == 2 and mixing == "uniform"
    X, y = _data(5, count=31, kind="integers" if exact else "floats")
    w, log, total = _mixed_by_hand(X, y, size, 4, mixing)
    options = {"max_epochs": 4, "distributed": "mix", "mixing": mixing}
    for found, theory, rebuilt in processes.run(size, _mix, X, y, options):
        columns, weight, bias, *_ = found
        expected = np.array([float(value) for value in w])
        np.testing.assert_allclose([*weight[0].tolist(), bias.item()], expected, rtol=0, atol=1e-12)
        assert columns[0].tolist() == [i for i, _, _ in log]
        assert columns[1].tolist() == [step for _, step, _ in log]
        np.testing.assert_allclose(columns[2], [float(c) for _, _, c in log], rtol=1e-15)
        # the log adds up to the mixed weights
        torch.testing.assert_close(rebuilt, weight, rtol=0, atol=1e-12)
        by_hand = columns[2] @ torch.tensor(X)[columns[0]]
        torch.testing.assert_close(by_hand, weight[0], rtol=0, atol=1e-12)
        if exact:
            assert torch.equal(rebuilt, weight)
            assert torch.equal(by_hand, weight[0])
            assert weight[0].tolist() == expected[:-1].tolist()
        assert theory[-1]["theory/mistakes"] == pytest.approx(float(total), rel=1e-12)


def _separable(seed, count=60):
    rng = np.random.default_rng(seed)
    X = rng.integers(-9, 10, (count, 4)).astype(float)
    y = np.where(X @ np.array([3.0, -2.0, 1.0, 2.0]) > 0.5, 1, -1)
    return X, y


@pytest.mark.parametrize("mixing", ["uniform", "mistakes"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.processes
def test_mix_separates_within_its_bound(size, mixing):
    X, y = _separable(2)
    bound = tp.theory.mistake_bound(X, y)
    options = {"max_epochs": 500, "distributed": "mix", "mixing": mixing, "order": "shuffled"}
    for (columns, weight, bias, verdict, *_), theory, _ in processes.run(size, _mix, X, y, options):
        assert verdict == "SEPARATED"
        assert (y * (X @ weight[0].numpy() + bias.item()) > 0).all()
        assert tp.theory.mixed_mistakes(columns[2]) <= bound
        assert [each["theory/mistakes"] for each in theory] == sorted(each["theory/mistakes"] for each in theory)
        last = theory[-1]
        assert last["theory/mistakes"] <= bound <= last["theory/bound"] * (1 + 1e-12)
        margin = tp.theory.max_margin(X, y, bias="counted").margin
        assert last["theory/lower"] <= margin * (1 + 1e-9)
        assert margin <= last["theory/upper"] * (1 + 1e-9)


def _verdicts(rank, size):
    X, y = tp.data.gate("XOR")
    X, y = X.repeat(size, 1), y.repeat(size)
    return tp.RuleTrainer(distributed="mix").fit(tp.Perceptron(2), _own(X, rank, size), _own(y, rank, size)).verdict


@pytest.mark.processes
def test_mix_sees_a_cycle():
    assert processes.run(2, _verdicts) == [Verdict.CYCLING] * 2


def _selected(rank, size, X, y, select):
    options = {"max_epochs": 5, "distributed": "mix", "select": select}
    net = _net(None)
    result = tp.RuleTrainer(**options).fit(net, _own(X, rank, size), _own(y, rank, size), validation=(X[:9], y[:9]))
    return (
        net.weight.data,
        result.log.bind(X, y).averaged().weight,
        [record.validation_error for record in result.history],
    )


@pytest.mark.processes
def test_mix_selects_averaged_and_best_validation():
    X, y = _data(7)
    for weight, averaged, _ in processes.run(2, _selected, X, y, "averaged"):
        torch.testing.assert_close(weight, averaged, rtol=0, atol=1e-12)
    for weight, _, errors in processes.run(2, _selected, X, y, "best-validation"):
        best = errors.index(min(errors)) + 1
        w, _, _ = _mixed_by_hand(X, y, 2, best, "uniform")
        assert weight[0].tolist() == [float(value) for value in w[:-1]]


# --- resuming ---


def _epochs(rank, size, X, y, options, state, count):
    net = _net(None, X.shape[1])
    run = tp.RuleTrainer(**options).start(net, _own(X, rank, size), _own(y, rank, size))
    if state is not None:
        run.load_state_dict(state)
    for _ in range(count):
        run.epoch()
    saved = run.state_dict()
    result = run.result()
    return saved, (_columns(result.log), result.model.weight, result.history)


@pytest.mark.parametrize("mode", ["exact", "mix"])
@pytest.mark.parametrize("select", ["last", "averaged"])
@pytest.mark.processes
def test_resuming_is_the_undisturbed_run(mode, select):
    X, y = _data(9, count=50)
    options = {"distributed": mode, "select": select, "order": "shuffled", "max_epochs": 9}
    whole = processes.run(2, _epochs, X, y, options, None, 6)[0][1]
    state = processes.run(2, _epochs, X, y, options, None, 2)[0][0]  # what process 0 writes
    state = processes.run(2, _epochs, X, y, options, state, 1)[0][0]
    for _, found in processes.run(2, _epochs, X, y, options, state, 3):
        assert all(map(torch.equal, found[0], whole[0]))
        assert torch.equal(found[1], whole[1])
        assert found[2] == whole[2]


@pytest.mark.processes
def test_exact_resumes_with_another_number_of_processes_and_mix_refuses():
    X, y = _data(9, count=50)
    options = {"distributed": "exact", "select": "averaged", "max_epochs": 9}
    whole = processes.run(1, _epochs, X, y, options, None, 6)[0][1]
    state = processes.run(2, _epochs, X, y, options, None, 2)[0][0]
    state = processes.run(1, _epochs, X, y, options, state, 1)[0][0]
    for _, found in processes.run(3, _epochs, X, y, options, state, 3):
        assert all(map(torch.equal, found[0], whole[0]))
        assert torch.equal(found[1], whole[1])
    options["distributed"] = "mix"
    state = processes.run(2, _epochs, X, y, options, None, 2)[0][0]
    for error in processes.run(3, _epochs, X, y, options, state, 1):
        assert isinstance(error, ValueError)
        assert "made by 2 processes, found 3" in str(error)
    for error in processes.run(2, _epochs, X[::-1].copy(), y[::-1].copy(), options, state, 1):
        assert isinstance(error, ValueError)
        assert "belongs to other data" in str(error)


# --- bad input ---


def _bad(rank, size, what, mode):
    X, y = (torch.tensor(part) for part in _data(1))
    options, net, X, y = {"distributed": mode}, _net(None), _own(X, rank, size), _own(y, rank, size)
    weight = None
    last = rank == size - 1
    if what == "width" and last:
        X, net = X[:, :2], _net(None, 2)
    elif what == "options" and last:
        options["lr"] = 0.5
    elif what == "start" and last:
        torch.nn.init.ones_(net.weight)
    elif what == "labels" and last:
        y = y * 2
    elif what == "nan" and last:
        X[0, 0] = torch.nan
    elif what == "empty" and last:
        X, y = X[:0], y[:0]
    elif what == "one class" or (what == "one class here" and last):
        y = torch.ones_like(y)
    elif what == "type" and last:
        net = net.float()
    elif what == "sample_weight":
        weight = -torch.ones(len(y))
    elif what == "overflow":
        X = X * 1e200
    return tp.RuleTrainer(**options).fit(net, X, y, sample_weight=weight).verdict.name


@pytest.mark.parametrize("mode", ["exact", "mix"])
@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("width", "X differs between processes: 'dense torch.float64 samples of 3 features"),
        ("options", "the options of the rule differ"),
        ("start", "the net's weights before training differ"),
        ("labels", "process 1 of 2: y must hold -1 and +1"),
        ("nan", "process 1 of 2: X[0, 0] = nan"),
        ("empty", "process 1 of 2: X"),
        ("one class", "at least two classes are required"),
        ("type", "process 1 of 2: X has dtype torch.float64"),
        ("sample_weight", "sample_weight must hold finite numbers"),
        ("overflow", "overflow"),
    ],
)
@pytest.mark.processes
def test_bad_input_is_one_error_on_every_process(what, text, mode):
    for error in processes.run(2, _bad, what, mode):
        assert isinstance(error, ValueError | TypeError), error
        assert text in str(error)


@pytest.mark.processes
def test_a_shard_of_one_class():
    assert processes.run(2, _bad, "one class here", "exact") == ["CYCLING"] * 2
    for error in processes.run(2, _bad, "one class here", "mix"):
        assert "process 1 of 2: its shard has samples of class 1 only; shuffle the samples" in str(error)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"distributed": "both"}, "distributed='both' is unknown"),
        ({"distributed": "exact", "kernel": "rbf"}, "kernel='rbf' cannot be used with distributed='exact'"),
        ({"distributed": "mix", "prove": True}, "prove=True cannot be used"),
        ({"distributed": "exact", "engine": "compiled"}, "engine='compiled' cannot be used"),
        ({"distributed": "mix", "order": "random-mistake"}, "order='random-mistake' cannot be used"),
        ({"distributed": "mix", "select": "pocket"}, "select='pocket' cannot be used"),
        ({"distributed": "exact", "mixing": "mistakes"}, "mixing='mistakes' needs distributed='mix'"),
        ({"distributed": "mix", "mixing": "most"}, "mixing='most' is unknown"),
    ],
)
def test_options_without_meaning_are_refused(options, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        tp.RuleTrainer(**options)


def test_one_process_without_a_group_is_the_plain_rule(monkeypatch):
    X, y = _data(4)
    plain, exact, mixed = (
        tp.RuleTrainer(max_epochs=5, distributed=mode).fit(_net(None), X, y) for mode in (None, "exact", "mix")
    )
    assert plain.log.equals(exact.log)
    assert plain.log.equals(mixed.log)
    assert exact.log.errors().equal(plain.log.errors())
    with pytest.raises(ValueError, match="use fit"):
        tp.RuleTrainer(distributed="exact").partial_fit(_net(None), X, y)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="no process group"):
        tp.RuleTrainer(distributed="exact").fit(_net(None), X, y)
    monkeypatch.delenv("WORLD_SIZE")
    with pytest.raises(TypeError, match="joint features"):
        tp.RuleTrainer(distributed="exact").fit(tp.JointPerceptron(3, 2).double(), X, (y + 1) // 2)
