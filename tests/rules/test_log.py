"""The mistake log: its models are those trained directly, it is saved and read; streams: chunks are one pass."""

import itertools
import json
import pickle
import random
import tracemalloc
import zipfile

import numpy as np
import oracles
import pytest
import torch
from scipy.sparse import csr_array

import torchperc as tp

CASES = list(itertools.product(range(4), (None, 2, 4), ("dense", "csr")))


def trained(seed, classes, kind="dense", **options):
    X, y = oracles.integers(seed, classes=classes)
    net = tp.Perceptron(3) if classes is None else tp.MulticlassPerceptron(3, classes)
    data = csr_array(np.array(X, dtype=np.float64)) if kind == "csr" else X
    result = tp.RuleTrainer(max_epochs=6, **options).fit(net, data, y)
    return X, y, net, result, oracles.perceptron(X, y, classes=classes, passes=result.epochs)


def as_state(model):
    return tuple((b, tuple(w)) for b, w in zip(model.bias.tolist(), model.weight.tolist(), strict=True))


@pytest.mark.parametrize(("seed", "classes", "kind"), CASES)
def test_every_model_is_that_of_the_plain_loop(seed, classes, kind):
    X, y, net, result, run = trained(seed, classes, kind)
    log, rows = result.log, [[1, 2, 3], [-4, 0, 1], [0, 0, 0], *X]
    assert [as_state(log.state_at(t)) for t in range(len(log) + 1)] == run.states
    assert as_state(log.last()) == as_state(net) == run.last
    exact = oracles.mean_state(run)
    averaged = trained(seed, classes, kind, select="averaged")[2]
    assert torch.equal(averaged.weight, torch.tensor([[float(v) for v in w] for _, w in exact]).float())
    assert torch.equal(averaged.bias, torch.tensor([float(b) for b, _ in exact]).float())
    voted = trained(seed, classes, kind, select="voted")
    ballots = [oracles.votes(run, x, classes) for x in rows]
    assert voted[3].scores(rows).reshape(len(rows), -1).tolist() == ballots
    assert voted[3].predict(rows).tolist() == [oracles.decide(each) for each in ballots]
    assert torch.equal(voted[2].weight, averaged.weight)  # the nearest single vector
    count = [oracles.errors(state, X, y) for state in run.states]
    best = count.index(min(count))
    assert log.errors().tolist() == count
    assert log.pocket_index("every") == best
    assert as_state(log.pocket(ratchet="every")) == run.states[best]
    assert as_state(trained(seed, classes, kind, select="pocket")[2]) == run.states[log.pocket_index()]


def test_a_good_start_stays_in_the_pocket():
    """The first sample is a mistake of the start, which has one error; what replaces it must have none."""
    X, y = [[-1], [1], [2], [3], [4], [-2]], [1, 1, 1, 1, 1, -1]
    net = tp.Perceptron(1)
    net.load_state_dict({"weight": torch.tensor([[1.0]]), "bias": torch.zeros(1)})
    result = tp.RuleTrainer(max_epochs=1, select="pocket").fit(net, X, y)
    errors = result.log.errors().tolist()
    assert errors[0] == 1 <= min(errors)
    assert result.log.pocket_index() == 0
    assert net.weight.item() == 1


def gallant(seed):
    """A small set with ties, options of the rule, and the order in which the rule presents the samples."""
    chosen = random.Random(seed)
    classes = chosen.choice([None, 2, 4])
    X, y = oracles.integers(seed, count=chosen.choice([6, 12, 30]), classes=classes, spread=chosen.choice([1, 4]))
    tie, epochs = chosen.choice(["update", "sign", "strict"]), chosen.choice([1, 3, 8])
    margin = chosen.choice([0, 2]) if tie != "sign" else 0
    weights = [chosen.randint(1, 4) for _ in X] if seed % 3 == 0 else None
    order = [chosen.sample(range(len(X)), len(X)) for _ in range(epochs)]
    if tie == "strict":
        margin = 2  # which leaves zero weights
    return X, y, classes, epochs, order, {"tie": tie, "margin": margin}, weights


@pytest.mark.parametrize("kind", ["dense", "csr", "joint"])
def test_the_pocket_is_that_of_gallant(kind):
    seen = set()
    for seed in range(60):
        X, y, classes, epochs, order, options, weights = gallant(seed)
        if kind == "joint" and classes is None:
            continue
        made = {None: tp.Perceptron(3)}.get(classes) or tp.MulticlassPerceptron(3, classes or 2)
        net = tp.JointPerceptron(3, classes) if kind == "joint" else made
        data = csr_array(np.array(X, dtype=np.float64)) if kind == "csr" else X
        trainer = tp.RuleTrainer(max_epochs=epochs, order=order, select="pocket", **options)
        result = trainer.fit(net, data, y, sample_weight=weights)
        presented = [i for each in order[: result.epochs] for i in each]
        expected = oracles.pocket(X, y, presented, classes=classes, weights=weights, **options)
        if len(presented) > result.mistakes:  # else there are no runs
            assert result.log.pocket_index() == expected, seed
            assert torch.equal(result.log.state_at(expected).weight, net.weight)
            seen.add((expected == result.log.pocket_index("every"), expected > 0))
    assert len(seen) > 2  # not the lowest error of all, and not the start


def test_without_runs_every_state_is_looked_at():
    X, y = oracles.integers(1, count=10)
    result = tp.RuleTrainer(max_epochs=3, order="random-mistake", select="pocket").fit(tp.Perceptron(3), X, y)
    assert result.log.steps == len(result.log) > 3
    assert result.log.pocket_index() == result.log.pocket_index("every") == int(result.log.errors().argmin())
    assert torch.equal(result.model.weight, result.log.pocket().weight)


@pytest.mark.parametrize("classes", [None, 3])
def test_best_validation(classes):
    for seed in range(6):
        X, y = oracles.integers(seed, count=20, classes=classes)
        Xv, yv = oracles.integers(seed + 100, count=15, classes=classes)
        net = tp.Perceptron(3) if classes is None else tp.MulticlassPerceptron(3, classes)
        result = tp.RuleTrainer(max_epochs=6, select="best-validation").fit(net, X, y, validation=(Xv, yv))
        ends, wrong = [], []
        for epochs in range(1, result.epochs + 1):
            state = oracles.perceptron(X, y, classes=classes, passes=epochs).last
            ends.append(state)
            wrong.append(oracles.errors(state, Xv, yv) / 15)
        assert [record.validation_error for record in result.history] == pytest.approx(wrong)
        assert as_state(net) == ends[wrong.index(min(wrong))]
        assert torch.equal(result.log.best_validation(Xv, yv).weight, net.weight)


@pytest.mark.parametrize("classes", [None, 3])
def test_dual_and_survivals(classes):
    X, _y, net, result, _ = trained(3, classes)
    dual = result.log.dual().reshape(len(X), -1)
    assert torch.equal((dual.T @ torch.tensor(X, dtype=torch.float64)).float(), net.weight)
    assert torch.equal(dual.sum(0).float(), net.bias)
    lives = result.log.survivals()
    assert lives.sum() == result.log.steps == len(X) * result.epochs
    assert (lives >= 0).all()
    assert len(lives) == len(result.log) + 1


def test_voting_walks_through_long_logs_in_chunks(monkeypatch):
    X, _, _, result, run = trained(2, None)
    monkeypatch.setattr("torchperc.rules.problem._STATES", 7)
    assert len(result.log) > 7
    assert result.log.voted().scores(X).tolist() == [oracles.votes(run, x)[0] for x in X]
    assert result.log.errors().tolist() == [oracles.errors(s, X, trained(2, None)[1]) for s in run.states]


@pytest.mark.parametrize("count", [1, 6])
def test_one_column_of_a_table_is_known_again(count, tmp_path):
    X, y = np.asfortranarray(np.arange(18.0).reshape(6, 3))[:count, 1:2], [1, -1, 1, -1, 1, 1][:count]
    trainer, net = tp.RuleTrainer(), tp.Perceptron(1, dtype=torch.float64)
    log = trainer.partial_fit(net, X, y).log
    log.save(tmp_path / "log.npz")
    assert tp.MistakeLog.load(tmp_path / "log.npz", X.copy(), y).equals(log)


RUNS = {
    "two classes": lambda: (tp.Perceptron(3), {}, {}, None),
    "many classes": lambda: (tp.MulticlassPerceptron(3, 3), {}, {}, 3),
    "joint": lambda: (tp.JointPerceptron(3, 3), {}, {}, 3),
    "own features": lambda: (tp.JointPerceptron(3, 3, features=shared), {}, {"features": shared}, 3),
    "poly": lambda: (None, {"kernel": "poly", "degree": 2}, {}, None),
    "own kernel": lambda: (None, {"kernel": dot}, {"kernel": dot}, None),
    "double": lambda: (tp.Perceptron(3, dtype=torch.float64), {}, {}, None),
    "rate": lambda: (tp.MulticlassPerceptron(3, 4), {"lr": 0.3, "order": "random-mistake", "tie": "sign"}, {}, 4),
    "margin": lambda: (tp.Perceptron(3), {"bias_step": "radius", "margin": 0.5, "order": "shuffled"}, {}, None),
}


def dot(a, b):
    return a @ b.T


def shared(x):
    return torch.stack([x * k for k in (1.0, -1.0, 0.5)], 1)


LINEAR = ("two classes", "many classes", "double", "rate", "margin")  # whose logs have JSON, too


@pytest.mark.parametrize(("name", "ending"), [*((name, "npz") for name in RUNS), *((name, "json") for name in LINEAR)])
def test_a_log_comes_back_as_it_was(name, ending, tmp_path):
    net, options, given, classes = RUNS[name]()
    X, y = oracles.integers(4, classes=classes)
    result = tp.RuleTrainer(max_epochs=4, **options).fit(net, X, y)
    path = tmp_path / f"log.{ending}"
    result.log.save(path)
    assert list(tmp_path.iterdir()) == [path]
    loaded = [tp.MistakeLog.load(path, X, y, **given)]
    if ending == "json":
        loaded.append(tp.MistakeLog.load(path))
        assert loaded[1].to_json() == result.log.to_json()
        assert json.loads(path.read_text())["coef"] == result.log.coef.tolist()
    else:
        with zipfile.ZipFile(path) as file:
            assert not any(b"pickle" in file.read(part) for part in file.namelist())
    for log in loaded:
        assert log.equals(result.log)
        for model in ("last", "averaged", "voted", "pocket"):
            assert torch.equal(getattr(log, model)().scores(X), getattr(result.log, model)().scores(X))
        assert torch.equal(log.epoch_ends, result.log.epoch_ends)


def saved(tmp_path, ending="npz"):
    X, y = oracles.integers(4)
    tp.RuleTrainer(max_epochs=4).fit(tp.Perceptron(3), X, y).log.save(tmp_path / f"log.{ending}")
    return tmp_path / f"log.{ending}", X, y


@pytest.mark.parametrize("ending", ["npz", "json"])
def test_other_data_are_refused(ending, tmp_path):
    path, X, y = saved(tmp_path, ending)
    tp.MistakeLog.load(path, np.array(X, dtype=float), torch.tensor(y))  # the same data in other clothes
    X[3][1] += 1
    with pytest.raises(ValueError, match="other data"):
        tp.MistakeLog.load(path, X, y)
    X[3][1] -= 1
    with pytest.raises(ValueError, match="other data"):
        tp.MistakeLog.load(path, X, [-label for label in y])
    with pytest.raises(ValueError, match="other data"):
        tp.MistakeLog.load(path, X[:-1], y[:-1])


def test_damaged_files_are_refused(tmp_path):
    path, X, y = saved(tmp_path)
    whole = path.read_bytes()
    for damaged in (b"", b"hello", whole[: len(whole) // 2], whole[:200] + b"\0" * 50 + whole[250:]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="not a mistake log"):
            tp.MistakeLog.load(path, X, y)
    np.savez(path, sample=np.zeros(3))
    with pytest.raises(ValueError, match="not a mistake log"):
        tp.MistakeLog.load(path, X, y)


@pytest.mark.parametrize("classes", [None, 3])
def test_a_log_that_points_outside_its_data_is_refused(classes, tmp_path):
    X, y = oracles.integers(4, classes=classes)
    net, path = tp.Perceptron(3) if classes is None else tp.MulticlassPerceptron(3, classes), tmp_path / "log.npz"
    tp.RuleTrainer(max_epochs=4).fit(net, X, y).log.save(path)
    with np.load(path) as file:
        arrays = dict(file)
    for name, change in (
        ("sample", lambda a: a + 10**6), ("sample", lambda a: a - 10**6), ("sample", lambda a: a[:-1]),
        ("sample", lambda a: a.astype(float)), ("predicted", lambda a: a + 9), ("predicted", lambda a: a - 9),
        ("step", lambda a: a + 10**6), ("step", lambda a: -a - 1), ("coef", lambda a: a[:-1]),
        ("coef", lambda a: a * np.nan), ("epoch_ends", lambda a: a[None]), ("sample_weight", lambda a: a[:-1]),
        ("weight", lambda a: a[:, :-1]), ("bias", lambda a: a[:0]), ("bias", lambda a: a.astype(str)),
        ("about", lambda a: np.array(str(a).replace("float32", "nn"))),
        ("about", lambda a: np.array(json.dumps({**json.loads(str(a)), "format": 99}))),
    ):  # fmt: skip
        changed = {**arrays, name: change(arrays[name])}
        np.savez(path, **changed)
        said = "it has log format 99.*" if "99" in str(changed["about"]) else ""
        with pytest.raises(ValueError, match=rf"log\.npz .*{said}; save it again"):
            tp.MistakeLog.load(path, X, y)


def test_functions_of_the_user_must_be_given_again(tmp_path):
    for name, word in (("own kernel", "kernel"), ("own features", "features")):
        net, options, _, classes = RUNS[name]()
        X, y = oracles.integers(4, classes=classes)
        tp.RuleTrainer(max_epochs=2, **options).fit(net, X, y).log.save(tmp_path / "log.npz")
        with pytest.raises(ValueError, match=f"{word}=None, but this log"):
            tp.MistakeLog.load(tmp_path / "log.npz", X, y)


def test_moments_beyond_the_log_and_unknown_ratchets_are_refused():
    log = trained(1, None)[3].log
    with pytest.raises(ValueError, match="ratchet='each' is unknown; choose one of 'runs', 'every'"):
        log.pocket("each")
    for t in (-1, len(log) + 1):
        with pytest.raises(ValueError, match=f"t={t}"):
            log.state_at(t)


def test_what_cannot_be_read_says_what_was_expected(tmp_path):
    for path, error in ((tmp_path / "none.npz", FileNotFoundError), (tmp_path, IsADirectoryError)):
        with pytest.raises(error, match=f"cannot read {path}.*one file"):
            tp.MistakeLog.load(path, [[1.0]], [1])


CHUNKS = [(0, 1), (1, 2), (2, 6), (6, 7), (7, 12)]


@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize("select", ["last", "averaged"])
def test_a_stream_is_one_pass(classes, select):
    X, y = oracles.integers(9, classes=classes)
    net, trainer = (
        tp.Perceptron(3) if classes is None else tp.MulticlassPerceptron(3, classes),
        tp.RuleTrainer(select=select),
    )
    results = [trainer.partial_fit(net, X[a:b], y[a:b]) for a, b in CHUNKS]
    run = oracles.perceptron(X, y, classes=classes, passes=1)
    expected = run.last if select == "last" else oracles.mean_state(run)
    assert torch.equal(net.weight, torch.tensor([[float(v) for v in w] for _, w in expected]).float())
    assert torch.equal(net.bias, torch.tensor([float(b) for b, _ in expected]).float())
    assert sum(result.mistakes for result in results) == len(run.entries)
    assert torch.equal(results[-1].scores(X), net(torch.tensor(X, dtype=torch.float32)))


NOT_ONLINE = [
    *({"select": select} for select in ("voted", "pocket", "best-validation")),
    {"kernel": "rbf"}, {"prove": True}, {"order": "shuffled"}, {"order": [0]}, {"bias_step": "radius"}, {"class_weight": "balanced"},
]  # fmt: skip


@pytest.mark.parametrize("options", NOT_ONLINE, ids=str)
def test_what_a_stream_cannot_do(options):
    name, value = next(iter(options.items()))
    with pytest.raises(
        ValueError, match=f"{name}='{value}' needs all .*partial_fit" if name == "select" else "partial_fit"
    ):
        tp.RuleTrainer(**options).partial_fit(tp.Perceptron(1), [[1.0]], [1])


def test_weights_from_outside_begin_the_stream_anew():
    X, y = oracles.integers(9)
    net, trainer = tp.Perceptron(3), tp.RuleTrainer(select="averaged")
    trainer.partial_fit(net, X[:6], y[:6])
    net.reset_parameters()
    trainer.partial_fit(net, X[6:], y[6:])
    fresh = tp.Perceptron(3)
    tp.RuleTrainer(select="averaged").partial_fit(fresh, X[6:], y[6:])
    assert torch.equal(net.weight, fresh.weight)


def test_sample_weights_in_a_stream():
    net = tp.Perceptron(1)
    tp.RuleTrainer().partial_fit(net, [[2.0], [3.0]], [1, -1], sample_weight=[4, 0])
    assert net.weight.item() == 8


def test_a_net_in_another_type_begins_a_new_stream():
    net, trainer = tp.Perceptron(1), tp.RuleTrainer()
    trainer.partial_fit(net, [[2.0]], [1])
    trainer.partial_fit(net.double(), [[1.0]], [-1])
    assert net.weight.item() == 1


@pytest.mark.parametrize("kind", ["list", "numpy", "backwards", "integers", "tensor", "csr"])
@pytest.mark.parametrize(
    ("classes", "options"),
    [(None, {"lr": 0.1, "select": "averaged"}), (None, {"tie": "sign", "bias_step": "none"}), (3, {"margin": 0.5})],
)
def test_a_sample_at_a_time_is_learned_as_one_chunk(kind, classes, options):
    rng = np.random.default_rng(len(kind))
    X = rng.integers(-3, 4, (40, 5)) / (1 if kind == "integers" else 10)
    y = rng.integers(0, 3, 40) if classes else rng.choice([-1, 1], 40)
    given = {
        "list": lambda x: x.tolist(),
        "backwards": lambda x: x[:, ::-1].copy()[:, ::-1],
        "integers": lambda x: x.astype(np.int32),
        "tensor": torch.from_numpy,
        "csr": csr_array,
    }.get(kind, np.asarray)
    one, whole = ((tp.Perceptron(5) if classes is None else tp.MulticlassPerceptron(5, 3)).double() for _ in range(2))
    trainer = tp.RuleTrainer(**options)
    results = [trainer.partial_fit(one, given(X[i : i + 1]), y[i : i + 1]) for i in range(40)]
    expected = trainer.partial_fit(whole, given(X), y)
    assert [result.mistakes for result in results] == [int(i in expected.log.sample) for i in range(40)]
    torch.testing.assert_close(one.weight, whole.weight, rtol=1e-14, atol=1e-15)
    torch.testing.assert_close(one.bias, whole.bias, rtol=1e-14, atol=1e-15)
    last = results[-1].log
    assert torch.equal(last.last().weight, results[-1].model.weight) or options.get("select") == "averaged"


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.float32])
def test_one_label_of_any_type(dtype):
    net = tp.Perceptron(2)
    assert tp.RuleTrainer().partial_fit(net, [[2.0, 1.0]], np.array([1], dtype)).mistakes == 1
    assert net.weight.tolist() == [[2, 1]]


def test_an_average_goes_on_with_another_learning_rate():
    net, trainer = tp.Perceptron(1, dtype=torch.float64), tp.RuleTrainer(lr=0.5, select="averaged")
    trainer.partial_fit(net, [[2.0]], [1])  # w = 1
    trainer.lr = 0.25
    trainer.partial_fit(net, [[1.0]], [-1])  # w = 0.75
    assert net.weight.item() == (1 + 0.75) / 2


BAD = [
    ([[float("nan"), 1.0]], [1]), ([[1e300, 1.0]], [1]), ([[1.0]], [1]), ([[1.0, 2.0]], [2]), ([[1.0, 2.0]], [True]),
    ([["a", "b"]], [1]), ([[1.0, 2.0]], [1, 1]), ([[1.0, 2.0]], []), (torch.zeros(1, 2, dtype=torch.float64), [1]),
    ([[1.0, [2.0]]], [1]), (np.array([[2**40 + 1, 0]]), [1]), (np.array([[1j, 0]]), [1]), ([[1.0, 2.0]], [0.5]),
    ([[1.0, 2.0]], [None]), (None, [1]), ([[1.0, 2.0]], 1),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BAD)))
def test_bad_samples_get_the_errors_of_a_chunk_and_change_nothing(number):
    net, trainer = tp.Perceptron(2), tp.RuleTrainer(select="averaged")
    for _ in range(3):
        trainer.partial_fit(net, [[1.0, 2.0]], [1])
        trainer.partial_fit(net, [[2.0, 1.0]], [-1])
    fresh, before = tp.Perceptron(2), net.weight.clone()
    messages = []
    for each, by in ((net, trainer), (fresh, tp.RuleTrainer(select="averaged"))):
        with pytest.raises((TypeError, ValueError)) as caught:
            by.partial_fit(each, *BAD[number])
        messages.append((type(caught.value), str(caught.value)))
    assert messages[0] == messages[1]
    assert torch.equal(net.weight, before)


def test_weights_that_overflow_are_refused_and_left_as_they_were():
    net, trainer = tp.Perceptron(1), tp.RuleTrainer()
    for label in (1, -1, 1):
        trainer.partial_fit(net, [[1.5e19]], [label])
    before = net.weight.clone()
    trainer.lr = 1e25
    with pytest.raises(ValueError, match="the weights overflow"):
        trainer.partial_fit(net, [[1.5e19]], [-1])
    assert torch.equal(net.weight, before)


def test_torch_hears_of_single_updates():
    net, trainer = tp.Perceptron(2), tp.RuleTrainer()
    for label in (1, -1):
        trainer.partial_fit(net, [[1.0, 2.0]], [label])
    loss = net.weight.square().sum()
    assert trainer.partial_fit(net, [[1.0, 3.0]], [-1]).mistakes + trainer.partial_fit(net, [[1.0, 3.0]], [1]).mistakes
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.slow
@pytest.mark.parametrize("select", ["last", "averaged"])
def test_a_stream_takes_no_more_memory_as_it_goes_on(select):
    net, trainer = tp.Perceptron(20), tp.RuleTrainer(select=select)
    X = np.random.default_rng(0).standard_normal((50, 1, 20))
    y = [[1], [-1]] * 25

    def learn(times):
        for _ in range(times):
            for x, label in zip(X, y, strict=True):
                trainer.partial_fit(net, x, label)

    learn(2)
    tracemalloc.start()
    learn(120)  # until Python's own lists of free objects are full
    before = tracemalloc.get_traced_memory()[0]
    learn(20)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 2000  # a thousand samples of 160 bytes


def test_a_chunk_that_fails_leaves_the_stream_as_it_was():
    X, y = np.array([[1e38, 0.0], [1.0, 2.0]], np.float32), [1, -1]
    nets, trainers = [tp.Perceptron(2), tp.Perceptron(2)], [tp.RuleTrainer(select="averaged") for _ in range(2)]
    for net, trainer in zip(nets, trainers, strict=True):
        trainer.partial_fit(net, X[1:], y[1:])
    with pytest.raises(ValueError, match="overflow"):
        trainers[0].partial_fit(nets[0], np.repeat(X[:1], 9, 0), [1, -1] * 4 + [1], sample_weight=[1e1] * 9)
    for net, trainer in zip(nets, trainers, strict=True):
        trainer.partial_fit(net, [[2.0, 1.0]], [1])
    assert torch.equal(nets[0].weight, nets[1].weight)
    assert torch.equal(nets[0].bias, nets[1].bias)


def test_a_log_is_pickled_before_its_columns_are_used():
    log = tp.RuleTrainer(lr=0.5).fit(tp.Perceptron(2), *tp.data.gate("AND")).log
    assert pickle.loads(pickle.dumps(log)).equals(log)
