"""Learning chains by rule: against all tag sequences in plain Python and autograd, the log and its models."""

import brute
import numpy as np
import pytest
import torch

import torchperc as tp
from torchperc.sequences import ChainPerceptron, Sequences
from torchperc.sequences.rule import ChainProblem


def integers(seed=0, count=10, features=3, longest=4, tags=3, low=0, high=2):
    generator = np.random.default_rng(seed)
    X = brute.sequences(generator, count, features, longest, low, high)
    return X, [generator.integers(0, tags, len(x)).tolist() for x in X]


def entries(log):
    return [(each.sample, each.step, each.predicted) for each in log]


def tensors(model):
    return model.weight, model.transition, model.end


def same(model, weights):
    return [each.tolist() for each in tensors(model)] == [each.tolist() for each in weights]


@pytest.mark.parametrize("layout", ["numbers", "binary"])
@pytest.mark.parametrize("margin", [0, 1, 2])
def test_the_rule_by_brute_force(layout, margin):
    for seed in range(3):
        X, y = integers(seed)
        expected, last, _ = brute.learn(X, y, 3, [range(10)] * 4, margin=margin)
        net, data = ChainPerceptron(3, 3), Sequences.of(X)
        if layout == "binary":
            data = Sequences(data.offsets, data.n_features, data.indptr, data.ids)
        result = tp.RuleTrainer(4, margin=margin).fit(net, data, y)
        assert entries(result.log) == expected
        assert same(net, last)
        assert same(result.log.last(), last)


def test_models_of_a_log():
    X, y = integers(3, 12)
    coefs = [1, 2, 0, 3] * 3
    order = [i for i in range(12) if coefs[i]]
    expected, last, states = brute.learn(X, y, 3, [order] * 4, coefs=coefs)
    net = ChainPerceptron(3, 3, dtype=torch.float64)
    result = tp.RuleTrainer(4, select="averaged").fit(net, X, y, sample_weight=coefs)
    log = result.log
    assert entries(log) == expected
    assert log.coef.tolist() == [coefs[i] for i, _, _ in expected]
    mean = [sum(part) / len(states) for part in zip(*states, strict=True)]  # of integers, so rounded once
    assert same(net, mean)
    assert same(log.averaged(), mean)
    # every state in turn: the start, then the one after each mistake
    every = [[np.zeros_like(each) for each in last], *(states[each.step] for each in log)]
    for t in (0, 1, len(log) // 2, len(log)):
        assert same(log.state_at(t), every[t])
    decided = [[brute.ranked(x @ w[0].T, w[1], w[2])[0][1] for x in X] for w in every]
    errors = [sum(c * (a != tuple(b)) for a, b, c in zip(each, y, coefs, strict=True)) for each in decided]
    assert log.errors().tolist() == errors
    assert same(log.pocket(ratchet="every"), every[int(np.argmin(errors))])
    for select in ("pocket", "last"):
        again = tp.RuleTrainer(4, select=select).fit(ChainPerceptron(3, 3), X, y, sample_weight=coefs)
        assert again.log.equals(log)
        assert [e.tolist() for e in again.predict(X)] == [e.tolist() for e in getattr(log, select)().predict(X)]


def test_verdicts():
    y = integers(count=30)[1]
    X = [np.eye(3)[tags] for tags in y]
    result = tp.RuleTrainer(100).fit(ChainPerceptron(3, 3), X, y)
    assert (result.verdict, result.history[-1].mistakes) == (tp.Verdict.SEPARATED, 0)
    assert [each.tolist() for each in result.predict(X)] == y
    twice = [X[0], X[0]], [y[0], [(tag + 1) % 3 for tag in y[0]]]
    assert tp.RuleTrainer(50).fit(ChainPerceptron(3, 3), *twice).verdict is tp.Verdict.CYCLING
    assert tp.RuleTrainer(2).fit(ChainPerceptron(3, 3), *integers()).verdict is tp.Verdict.BUDGET
    assert tp.RuleTrainer(3, order=[0]).fit(ChainPerceptron(3, 3), X, y).verdict is not tp.Verdict.SEPARATED


def test_each_mistake_is_replayed_once_for_all_averages(monkeypatch):
    X, y = integers(2, 12)
    replay, counts = ChainProblem.replay, []
    monkeypatch.setattr(ChainProblem, "replay", lambda *args: counts.append(len(args[2].sample)) or replay(*args))
    run, net = tp.RuleTrainer(5, select="averaged").start(ChainPerceptron(3, 3), X, y), ChainPerceptron(3, 3)
    while run.verdict is None:
        run.epoch()
        run.write_to(net)
    assert sum(counts) == len(run.log()) > 20
    assert same(net, tensors(run.log().averaged()))


def test_a_run_resumes_exactly(tmp_path):
    X, y = integers(7, 12)
    trainer = tp.RuleTrainer(6, 0.3, order="shuffled", select="averaged", seed=3)
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
    assert (result.history, result.verdict) == (whole.history, whole.verdict)
    assert torch.equal(result.single.weight, whole.single.weight)
    with pytest.raises(ValueError, match="log of a chain run"):
        result.log.save(tmp_path / "log.npz")
    with pytest.raises(ValueError, match="other data"):
        trainer.start(ChainPerceptron(3, 3), X[:5], y[:5]).load_state_dict(run.state_dict())


@pytest.mark.parametrize("select", ["last", "averaged"])
def test_a_stream_is_one_pass(select):
    X, y = integers(8, 15)
    whole = tp.RuleTrainer(1, 0.3, select=select).fit(ChainPerceptron(3, 3), X, y)
    net, trainer = ChainPerceptron(3, 3), tp.RuleTrainer(lr=0.3, select=select)
    results = [trainer.partial_fit(net, X[a:b], y[a:b]) for a, b in ((0, 1), (1, 6), (6, 15))]
    assert sum(result.mistakes for result in results) == len(whole.log)
    assert same(net, tensors(whole.single))
    assert [e.tolist() for e in results[-1].predict(X)] == [e.tolist() for e in whole.predict(X)]


MEANINGLESS = {"class_weight": {0: 2.0}, "bias_step": "unit", "prove": True, "order": "random-mistake"}
MEANINGLESS |= {"tie": "strict", "kernel": "linear", "engine": "reference", "select": "voted"}


@pytest.mark.parametrize("name", MEANINGLESS)
def test_options_that_mean_nothing(name):
    net, (X, y) = ChainPerceptron(3, 3), integers()
    with pytest.raises(ValueError, match=f"{name}=.* is not for sequences"):
        tp.RuleTrainer(1, **{name: MEANINGLESS[name]}).fit(net, X, y)
    assert not net.weight.any()


def test_bad_data():
    X, y = integers()
    trainer, net = tp.RuleTrainer(1), ChainPerceptron(3, 3)
    for arguments, options, says in (
        (([x[:, :2] for x in X], y), {}, "X has 2 features but 3"),
        ((X, y), {"sample_weight": [1.0]}, "sample_weight has 1"),
        ((X, y), {"validation": (X, y[:2])}, "validation y"),
        (([np.full((3, 3), 1e200)] * 2, [[0, 1, 2], [1, 1, 1]]), {}, "overflow"),
    ):
        with pytest.raises(ValueError, match=says):
            trainer.fit(ChainPerceptron(3, 3, dtype=torch.float64), *arguments, **options)
    with pytest.raises(ValueError, match="features and 4 tags"):
        trainer.fit(net, X, y).write_to(ChainPerceptron(3, 4))
    net.weight.data[0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"net\.weight is not finite"):
        trainer.fit(net, X, y)
