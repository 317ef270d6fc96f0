"""Learning chains by rule: against all tag sequences in plain Python, engine against engine, the log and its models."""

import pickle
from fractions import Fraction

import brute
import numpy as np
import pytest
import scipy.sparse as sp
import torch

import torchperc as tp
from torchperc.samples.digest import of_named
from torchperc.sequences import ChainLog, ChainPerceptron, Sequences

ENGINES = ("reference", "compiled")


def integers(seed=0, count=10, features=3, longest=4, tags=3, low=0, high=2):
    generator = np.random.default_rng(seed)
    X = brute.sequences(generator, count, features, longest, low, high)
    return X, [generator.integers(0, tags, len(x)).tolist() for x in X]


def separable(seed=0, count=30, features=4, tags=3):
    """Sequences tagged by weights, by which the best differs from the second best by at least 2."""
    generator = np.random.default_rng(seed)
    weights = brute.weights(generator, features, tags)
    X, y = [], []
    while len(X) < count:
        (x,) = brute.sequences(generator, 1, features, 4, -2, 3)
        (best, tags_), (second, _) = brute.ranked(x @ weights[0].T, *weights[1:])[:2]
        if best - second >= 2:
            X.append(x)
            y.append(list(tags_))
    return X, y, weights


def entries(log):
    return [(each.sequence, each.step, tuple(each.wrong.tolist())) for each in log]


def same(model, weights):
    found = (model.weight, model.transition, model.end)
    return all(own.tolist() == np.asarray(each).tolist() for own, each in zip(found, weights, strict=True))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("margin", [0, 1, 2])
def test_the_rule_by_brute_force(engine, margin):
    for seed in range(3):
        X, y = integers(seed)
        expected, last, _ = brute.learn(X, y, 3, [range(10)] * 4, margin=margin)
        net = ChainPerceptron(3, 3)
        result = tp.RuleTrainer(4, margin=margin, engine=engine).fit(net, X, y)
        assert entries(result.log) == expected
        assert same(net, last)
        assert same(result.log.last(), last)
        assert result.mistakes == len(expected) == len(result.log)


@pytest.mark.parametrize("layout", ["dense", "sparse", "binary"])
def test_engines_agree(layout):
    for seed in range(3):
        X, y = integers(seed, 40, 6, 9, 5, 0, 2 if layout == "binary" else 4)
        data = Sequences.of(X if layout == "dense" else [sp.csr_array(x) for x in X])
        if layout == "binary":
            data = Sequences(data.offsets, data.width, data.indptr, data.ids)
        weights = np.random.default_rng(seed).integers(0, 3, 40)
        runs = [
            tp.RuleTrainer(6, 0.3, order="shuffled", seed=seed, engine=engine, select="averaged")
            .fit(ChainPerceptron(6, 5), data, y, sample_weight=weights, validation=(X[:5], y[:5]))
            for engine in ENGINES
        ]  # fmt: skip
        assert runs[0].log.equals(runs[1].log)
        assert runs[0].history == runs[1].history
        assert all(torch.equal(a, b) for a, b in zip(*(run.model._tensors for run in runs), strict=True))
        assert set(runs[0].log.index.tolist()) <= set(weights.nonzero()[0].tolist())


@pytest.mark.parametrize("margin", [0, 0.7])
def test_engines_agree_on_any_numbers(margin):
    generator = np.random.default_rng(5)
    X = [generator.normal(size=(generator.integers(1, 8), 5)) for _ in range(40)]
    y = [generator.integers(0, 4, len(x)) for x in X]
    nets = [ChainPerceptron(5, 4, dtype=torch.float64) for _ in ENGINES]
    for net in nets:
        net.weight.data.copy_(torch.from_numpy(np.random.default_rng(1).normal(size=(4, 5))))
    runs = [
        tp.RuleTrainer(5, 0.1, margin=margin, engine=engine).fit(net, X, y)
        for net, engine in zip(nets, ENGINES, strict=True)
    ]
    assert runs[0].log.equals(runs[1].log)
    assert len(runs[0].log) > 50
    for one, other in zip(*(net.parameters() for net in nets), strict=True):
        assert torch.equal(one, other)
    for one, other in zip(nets[1].parameters(), runs[1].log.last()._tensors, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("engine", ENGINES)
def test_models_of_a_log(engine):
    X, y = integers(3, 12)
    coefs = [1, 2, 0, 3] * 3
    order = [i for i in range(12) if coefs[i]]
    expected, last, states = brute.learn(X, y, 3, [order] * 4, coefs=coefs)
    net = ChainPerceptron(3, 3, dtype=torch.float64)
    result = tp.RuleTrainer(4, engine=engine, select="averaged").fit(net, X, y, sample_weight=coefs)
    log = result.log
    assert entries(log) == expected
    assert log.coef.tolist() == [coefs[i] for i, _, _ in expected]
    mean = [
        np.vectorize(lambda v: float(Fraction(int(v), len(states))))(sum(part)) for part in zip(*states, strict=True)
    ]
    assert same(net, mean)
    assert same(log.averaged(), mean)
    assert same(log.last(), last)
    assert same(log.state_at(0), [np.zeros_like(each) for each in last])
    for t in (1, len(log) // 2):
        assert same(log.state_at(t), states[log[t - 1].step])
    assert log.mistakes_by_epoch().tolist() == [record.mistakes for record in result.history]
    assert int(log.survivals().sum()) == log.steps == len(states)
    # every state in turn: the start, then the one after each mistake
    every = [[np.zeros_like(each) for each in last], *(states[each.step] for each in log)]
    decided = [[brute.ranked(x @ w[0].T, w[1], w[2])[0][1] for x in X] for w in every]
    errors = [sum(c * brute.hamming(a, b) for a, b, c in zip(each, y, coefs, strict=True)) for each in decided]
    assert log.errors().tolist() == errors
    assert same(log.pocket(ratchet="every"), every[int(np.argmin(errors))])
    runs, made_at = [0], {step for _, step, _ in expected}
    for step in range(log.steps):
        runs = [*runs, 0] if step in made_at else [*runs[:-1], runs[-1] + 1]
    assert log.runs().tolist() == runs
    pocket, run, fewest = 0, 0, sum(c * len(x) for c, x in zip(coefs, X, strict=True))
    for state, (lived, wrong) in enumerate(zip(runs, errors, strict=True)):
        if lived > run and wrong < fewest:
            pocket, run, fewest = state, lived, wrong
    assert log.pocket_index() == pocket > 0
    assert same(log.pocket(), every[pocket])
    votes = [np.zeros((len(x), 3)) for x in X]
    for tags, count in zip(decided, log.survivals().tolist(), strict=True):
        for vote, each in zip(votes, tags, strict=True):
            vote[np.arange(len(each)), list(each)] += count
    assert [each.tolist() for each in log.voted().predict(X)] == [vote.argmax(1).tolist() for vote in votes]
    for select in ("pocket", "voted", "last"):
        twin = tp.RuleTrainer(4, engine=engine, select=select).fit(net_like(net), X, y, sample_weight=coefs)
        assert twin.log.equals(log)
        assert [e.tolist() for e in twin.predict(X)] == [e.tolist() for e in getattr(log, select)().predict(X)]
        if select == "voted":
            assert same(twin.single, mean)


def net_like(net):
    return ChainPerceptron(net.features, net.tags, dtype=net.weight.dtype)


def test_the_learning_rate_only_scales():
    X, y = integers(2, 12)
    one, half = (tp.RuleTrainer(5, lr).fit(ChainPerceptron(3, 3), X, y) for lr in (1, 0.5))
    assert entries(one.log) == entries(half.log)
    assert (half.log.coef * 2).tolist() == one.log.coef.tolist()
    assert torch.equal(one.model.weight, 2 * half.model.weight)
    assert half.history[-1].norm * 2 == pytest.approx(one.history[-1].norm)


def test_best_validation():
    X, y = integers(4, 16)
    held = integers(5, 8)
    net = ChainPerceptron(3, 3)
    result = tp.RuleTrainer(6, select="best-validation").fit(net, X, y, validation=held)
    errors = [record.validation_error for record in result.history]
    best = int(np.argmin(errors))
    count = sum(record.mistakes for record in result.history[: best + 1])
    assert torch.equal(net.weight, result.log.state_at(count).weight)
    flat = torch.cat([torch.tensor(each) for each in held[1]])
    assert errors[best] == (torch.cat(net.predict(held[0])) != flat).double().mean().item()


def test_verdicts():
    X, y, _ = separable()
    result = tp.RuleTrainer(100).fit(ChainPerceptron(4, 3), X, y)
    assert result.verdict is tp.Verdict.SEPARATED
    assert result.history[-1].mistakes == 0
    assert [each.tolist() for each in result.predict(X)] == y
    assert "SEPARATED after" in result.sentence
    assert "ChainResult(SEPARATED" in repr(result)
    twice = [X[0], X[0]], [y[0], [(tag + 1) % 3 for tag in y[0]]]
    cycling = tp.RuleTrainer(50).fit(ChainPerceptron(4, 3), *twice)
    assert cycling.verdict is tp.Verdict.CYCLING
    assert cycling.period >= 1
    assert tp.RuleTrainer(2).fit(ChainPerceptron(3, 3), *integers()).verdict is tp.Verdict.BUDGET
    left_out = tp.RuleTrainer(3, order=[0]).fit(ChainPerceptron(4, 3), X, y)
    assert left_out.verdict is not tp.Verdict.SEPARATED


@pytest.mark.parametrize("margin", [0, 1])
@pytest.mark.parametrize("seed", range(3))
def test_mistakes_stay_below_collins_bound(seed, margin):
    X, y, weights = separable(seed)
    result = tp.RuleTrainer(500, margin=margin).fit(ChainPerceptron(4, 3), X, y)
    assert result.verdict is tp.Verdict.SEPARATED
    gaps, norm = [], np.sqrt(sum((each**2).sum() for each in weights))
    radius = 0.0
    for x, tags in zip(X, y, strict=True):
        order = brute.ranked(x @ weights[0].T, *weights[1:])
        gaps.append((order[0][0] - order[1][0]) / norm)
        own = brute.phi(x, tags, 3)
        for _, other in order:
            away = sum(((a - b) ** 2).sum() for a, b in zip(own, brute.phi(x, other, 3), strict=True))
            radius = max(radius, away)
    exact = (radius + 2 * margin * max(map(len, X))) / min(gaps) ** 2
    assert 0 < len(result.log) <= exact
    # the other half of the proof: no margin is larger than ‖w‖/Σ c
    assert min(gaps) <= result.history[-1].upper


def test_length_one_is_the_multiclass_rule():
    generator = np.random.default_rng(0)
    X, y = generator.integers(-2, 3, (40, 3)).astype(np.float64), generator.integers(0, 4, 40)
    # the start and the end are two more features that are always 1
    ones = np.hstack((X, np.ones((40, 2))))
    chain, flat = ChainPerceptron(3, 4), tp.MulticlassPerceptron(5, 4, bias=False)
    trainer = tp.RuleTrainer(6, tie="sign", select="averaged")
    one, other = trainer.fit(chain, X[:, None], y), trainer.fit(flat, ones, y)
    assert [(a.sequence, a.step, a.coef, int(a.wrong)) for a in one.log] == [tuple(each) for each in other.log]
    assert len(one.log) > 40
    joined = torch.cat((chain.weight, chain.transition[4:].T, chain.end[:, None]), 1)
    assert torch.equal(joined, flat.weight)
    assert not chain.transition[:4].any()
    assert torch.cat(chain.predict(X[:, None])).tolist() == flat.predict(torch.tensor(ones).float()).tolist()


# --- files, resuming, online ---


def test_logs_on_disk(tmp_path):
    X, y = integers(6, 12)
    net = ChainPerceptron(3, 3)
    net.transition.data[0, 1] = 0.5
    log = tp.RuleTrainer(3, 0.25, engine="compiled").fit(net, X, y).log
    log.save(tmp_path / "log.npz")
    again = ChainLog.load(tmp_path / "log.npz", X, y)
    assert again.equals(log)
    assert again.epoch_ends.tolist() == log.epoch_ends.tolist()
    for one, other in ((log.last(), again.last()), (log.averaged(), again.averaged())):
        assert all(torch.equal(a, b) for a, b in zip(one._tensors, other._tensors, strict=True))
    with pytest.raises(ValueError, match="other data"):
        ChainLog.load(tmp_path / "log.npz", X, [[0] * len(x) for x in X])
    with np.load(tmp_path / "log.npz") as file:
        arrays = dict(file)
    np.savez(tmp_path / "changed.npz", **{**arrays, "wrong": arrays["wrong"] + 1})
    (tmp_path / "cut.npz").write_bytes((tmp_path / "log.npz").read_bytes()[:-9])
    for name in ("changed", "cut"):
        with pytest.raises(ValueError, match="damaged"):
            ChainLog.load(tmp_path / f"{name}.npz", X, y)
    with pytest.raises(ValueError, match="is not a mistake log"):
        tp.MistakeLog.load(tmp_path / "log.npz", [[0.0]], [1])


BAD_ARRAYS = {
    "sequence": (lambda a: a + 100, lambda a: a[:-1], lambda a: a.astype(np.int32)),
    "wrong": (lambda a: a + 3, lambda a: a[:-1]),
    "step": (lambda a: a - 1, lambda a: a + 10**6),
    "epoch_ends": (lambda a: a - 100, lambda a: a + 10**6),
    "active": (lambda a: a + 1000, lambda a: a * 0),
    "weight": (lambda a: a[:, :-1], lambda a: a[:-1], lambda a: a * np.nan),
    "transition": (lambda a: a[:-1], lambda a: a.astype(np.int64)),
    "end": (lambda a: a[:-1],),
    "cost": (lambda a: a[:-1],),
    "about": tuple(
        (lambda a, old=old, new=new: np.array(str(a).replace(old, new)))
        for old, new in (
            ('"dtype": "float32"', '"dtype": "nn"'), ('"tags": 3', '"tags": "3"'), ('"steps": ', '"steps": -'),
            ('"lr": ', '"rate": '),
        )
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_ARRAYS)
def test_a_log_that_points_outside_its_data_is_refused(name, tmp_path):
    X, y = integers(6, 12)
    net, path = ChainPerceptron(3, 3), tmp_path / "log.npz"
    net.weight.data[:, 1:] = 0.25
    tp.RuleTrainer(3).fit(net, X, y).log.save(path)
    with np.load(path) as file:
        arrays = {key: file[key] for key in file.files if key != "checksum"}
    for change in BAD_ARRAYS[name]:
        changed = {**arrays, name: change(arrays[name])}
        assert str(changed["about"]) != str(arrays["about"]) or name != "about"
        np.savez(path, **changed, checksum=of_named(changed))
        with pytest.raises(ValueError, match="does not hold a log that fits its data; save it again"):
            ChainLog.load(path, X, y)
    if name != "about":
        del changed[name]
        np.savez(path, **changed, checksum=of_named(changed))
        with pytest.raises(ValueError, match="does not hold a log that fits"):
            ChainLog.load(path, X, y)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_resumes_exactly(engine, tmp_path):
    X, y = integers(7, 12)
    trainer = tp.RuleTrainer(6, 0.3, order="shuffled", select="averaged", engine=engine, seed=3)
    whole = trainer.fit(ChainPerceptron(3, 3), X, y, validation=(X, y))
    run = trainer.start(ChainPerceptron(3, 3), X, y, validation=(X, y))
    for _ in range(2):
        run.epoch()
    torch.save(run.state_dict(), tmp_path / "run.pt")
    again = trainer.start(ChainPerceptron(3, 3), X, y, validation=(X, y))
    again.load_state_dict(torch.load(tmp_path / "run.pt", weights_only=True))
    while again.verdict is None:
        again.epoch()
    result = again.result()
    assert result.log.equals(whole.log)
    assert result.history == whole.history
    assert result.verdict is whole.verdict
    assert torch.equal(result.single.weight, whole.single.weight)
    net = ChainPerceptron(3, 3)
    again.write_to(net)
    assert torch.equal(net.weight, whole.single.weight)
    with pytest.raises(ValueError, match="other data"):
        trainer.start(ChainPerceptron(3, 3), X[:5], y[:5]).load_state_dict(run.state_dict())


@pytest.mark.parametrize("select", ["last", "averaged", "voted"])
def test_a_stream_is_one_pass(select):
    X, y = integers(8, 15)
    whole = tp.RuleTrainer(1, 0.3, select=select).fit(ChainPerceptron(3, 3), X, y)
    net, trainer = ChainPerceptron(3, 3), tp.RuleTrainer(lr=0.3, select=select)
    results = [trainer.partial_fit(net, X[a:b], y[a:b]) for a, b in ((0, 1), (1, 6), (6, 15))]
    assert sum(result.mistakes for result in results) == len(whole.log)
    for one, other in zip(net.parameters(), whole.single._tensors, strict=True):
        assert torch.equal(one, other)
    assert [e.tolist() for e in results[-1].predict(X)] == [e.tolist() for e in whole.predict(X)]
    assert pickle.loads(pickle.dumps(trainer)).select == select


def test_a_stream_resumes():
    X, y = integers(9, 15)
    trainer = tp.RuleTrainer(lr=0.3, select="averaged")
    net, stream = ChainPerceptron(3, 3), ChainPerceptron(3, 3).rule_stream()
    trainer.learn_chunk(stream, net, X[:7], y[:7])
    other = net.rule_stream()
    other.load_state_dict(stream.state_dict())
    twin = ChainPerceptron(3, 3)
    twin.load_state_dict(net.state_dict())
    for each, its in ((net, stream), (twin, other)):
        trainer.learn_chunk(its, each, X[7:], y[7:])
    assert torch.equal(net.weight, twin.weight)
    whole = tp.RuleTrainer(1, 0.3, select="averaged").fit(ChainPerceptron(3, 3), X, y)
    assert torch.equal(net.weight, whole.model.weight)


# --- bad input ---


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"class_weight": {0: 2.0}}, "sample_weight, one per sequence"),
        ({"bias_step": "unit"}, "feature that is always 1"),
        ({"prove": True}, "prove=True"),
        ({"order": "random-mistake"}, "random-mistake"),
        ({"tie": "strict"}, "tie='strict'"),
        ({"kernel": "linear"}, "kernel"),
        ({"order": [99]}, "sample 99"),
        ({"select": "best-validation"}, "needs validation"),
    ],
)
def test_options_that_mean_nothing(options, says):
    net, (X, y) = ChainPerceptron(3, 3), integers()
    with pytest.raises(ValueError, match=says):
        tp.RuleTrainer(**{"max_epochs": 1, **options}).fit(net, X, y)
    assert not net.weight.any()


def test_bad_data():
    X, y = integers()
    trainer, net = tp.RuleTrainer(1), ChainPerceptron(3, 3)
    for arguments, options, says in (
        ((X, y[:-1]), {}, "y has 9 sequences"),
        (([x[:, :2] for x in X], y), {}, "X has 2 features but 3"),
        ((X, y), {"sample_weight": [1.0]}, "sample_weight has 1"),
        ((X, y), {"validation": X}, "pair"),
        ((X, y), {"validation": (X, y[:2])}, "validation y"),
        ((X, y), {"num_classes": 3}, "num_classes"),
    ):
        with pytest.raises((ValueError, TypeError), match=says):
            trainer.fit(net, *arguments, **options)
    with pytest.raises(ValueError, match="beyond the log"):
        trainer.fit(net, X, y).log.state_at(1000)
    with pytest.raises(ValueError, match="features and 4 tags"):
        trainer.fit(net, X, y).write_to(ChainPerceptron(3, 4))
    with pytest.raises(ValueError, match="no epoch yet"):
        trainer.start(net, X, y).result()
    net.weight.data[0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"net\.weight is not finite"):
        trainer.fit(net, X, y)
    big = ChainPerceptron(3, 3, dtype=torch.float64)
    for engine in ENGINES:
        with pytest.raises(ValueError, match="overflow"):
            tp.RuleTrainer(3, engine=engine).fit(big, [np.full((3, 3), 1e200)] * 2, [[0, 1, 2], [1, 1, 1]])


# --- rule and autograd ---


def descended(X, y, tags, epochs, lr, margin):
    """The net after steps down the gradient of the loss, sequence by sequence, and which of them moved it."""
    net = ChainPerceptron(X[0].shape[1], tags, dtype=torch.float64)
    loss, optimizer, moved = tp.StructuredPerceptronLoss("sum", margin), torch.optim.SGD(net.parameters(), lr), []
    for step in range(epochs * len(X)):
        optimizer.zero_grad()
        i = step % len(X)
        loss(net(torch.from_numpy(X[i])), torch.tensor(y[i])).backward()
        moved += [i] * any(bool(values.grad.any()) for values in net.parameters())
        optimizer.step()
    return net, moved


@pytest.mark.parametrize("margin", [0, 1])
def test_rule_and_autograd_agree_to_the_bit_on_integers(margin):
    X, y = integers(2, 10)
    for engine in ENGINES:
        ours = ChainPerceptron(3, 3, dtype=torch.float64)
        result = tp.RuleTrainer(3, 0.5, margin=margin, engine=engine).fit(ours, X, y)
        net, moved = descended(X, y, 3, result.epochs, 0.5, margin)
        assert result.log.index.tolist() == moved
        assert len(moved) > 10
        for one, other in zip(ours.parameters(), net.parameters(), strict=True):
            assert torch.equal(one, other)


def test_rule_and_autograd_agree_on_any_numbers():
    generator = np.random.default_rng(0)
    X = [generator.normal(size=(generator.integers(1, 5), 3)) for _ in range(12)]
    y = [generator.integers(0, 3, len(x)).tolist() for x in X]
    ours = ChainPerceptron(3, 3, dtype=torch.float64)
    result = tp.RuleTrainer(3, 0.3).fit(ours, X, y)
    net, moved = descended(X, y, 3, result.epochs, 0.3, 0)
    assert result.log.index.tolist() == moved
    for one, other in zip(ours.parameters(), net.parameters(), strict=True):
        assert torch.allclose(one, other, rtol=1e-12, atol=1e-12)


def test_every_way_to_give_a_padded_batch_is_the_same():
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor([3, 1, 4, 2])
    ids, y = (torch.randint(0, high, (4, 4, *more), generator=generator) for high, more in ((5, (2,)), (3, ())))
    behind = torch.arange(4) >= lengths[:, None]
    padded, numbers = y.masked_fill(behind, -100), torch.nn.functional.one_hot(ids, 5).sum(2).float()
    listed = [row[:n] for row, n in zip(y, lengths, strict=True)]
    logs, losses = [], []
    for X, tags in (
        ([x[:n] for x, n in zip(numbers, lengths, strict=True)], listed),
        (numbers, padded),
        ((numbers, lengths), padded),
        (ids, padded),
        ((ids, lengths), listed),
        (numbers.numpy(), padded.numpy()),
    ):
        logs.append(tp.RuleTrainer(4).fit(ChainPerceptron(5, 3), X, tags, validation=(X, tags)).log)
        assert logs[-1].found.sequence.tolist() == logs[0].found.sequence.tolist()
        assert logs[-1].found.wrong.tolist() == logs[0].found.wrong.tolist()
    assert len(logs[0])
    net = ChainPerceptron(5, 3)
    tp.RuleTrainer(1).fit(net, numbers, padded)
    for margin in (0.0, 1.0):
        loss = tp.StructuredPerceptronLoss("none", margin=margin)
        losses = [loss(net(numbers, lengths), padded), loss(net(numbers), padded), loss(net(ids), padded)]
        assert torch.equal(losses[0], losses[1])
        assert torch.equal(losses[0], losses[2])
    assert torch.equal(net.score(net(numbers, lengths), y), net.score(net(numbers), padded))
    with pytest.raises(ValueError, match="sequence 0, position 1 has tag -100"):
        loss(net(numbers), padded.index_fill(1, torch.tensor([1]), -100))
    with pytest.raises(ValueError, match="has tag -100"):
        loss(net(numbers, lengths), padded.index_fill(1, torch.tensor([0]), -100))
    with pytest.raises(ValueError, match="of a batch has -100 before its end"):
        tp.RuleTrainer(1).fit(net, numbers, padded.index_fill(1, torch.tensor([0]), -100))
