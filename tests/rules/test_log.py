"""The mistake log: each model it yields equals the one trained directly; it saves, loads and refuses other data."""

import itertools
import json
import random
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
