"""The family of rules: each is the plain loop of its paper, in every engine, log and place where rules are used."""

import math
import pickle
import warnings

import numpy as np
import plain
import pytest
import torch
from scipy.sparse import csr_array

import torchperc as tp
from torchperc.rules import ALMA, ROMMA, AggressiveROMMA, PassiveAggressive, PerceptronRule, UnevenMargins

RULES = [
    UnevenMargins(2.0, 0.5), PassiveAggressive(variant=None), PassiveAggressive(0.1), PassiveAggressive(0.5, "II"), ROMMA(),
    AggressiveROMMA(), ALMA(), ALMA(0.5),
]  # fmt: skip
MANY = RULES[1:]  # that learn K classes
BOUNDED = [RULES[0], RULES[4], *RULES[6:]]  # whose bounds are about all updates, not of m ≤ 0 only
CLOSE = {"rtol": 1e-10, "atol": 1e-12}


def step_of_the_paper(rule, w, z, label, k):
    """The new weights if the sample leads to an update, with coefficient and factor; else None."""
    m, zz, ww = float(w @ z), float(z @ z), float(w @ w)
    if isinstance(rule, UnevenMargins):
        return (w + z, 1.0, 1.0) if m <= (rule.positive if label == 1 else rule.negative) else None
    if isinstance(rule, PassiveAggressive):
        if m >= 1 - 1e-12:
            return None
        tau = {None: (1 - m) / zz, "I": min(rule.C, (1 - m) / zz), "II": (1 - m) / (zz + 1 / (2 * rule.C))}[
            rule.variant
        ]
        return w + tau * z, tau, 1.0
    if isinstance(rule, ROMMA):
        if m >= 1 - 1e-12 or (m > 0 and type(rule) is ROMMA):
            return None
        if m >= zz * ww:
            return z / zz, 1 / zz, 0.0
        d = zz * ww - m * m
        f, c = (zz * ww - m) / d, ww * (1 - m) / d
        return f * w + c * z, c, f
    unit, limit = z / math.sqrt(zz), (1 - rule.alpha) * math.sqrt(8) / rule.alpha / math.sqrt(k)
    if w @ unit > limit:
        return None
    moved = w + math.sqrt(2 / k) * unit
    f = 1 / max(1.0, float(np.linalg.norm(moved)))
    return f * moved, f * math.sqrt(2 / k) / math.sqrt(zz), f


def plain_loop(rule, X, y, classes=None, passes=1):
    """Entries, the weights after every step, and the number of updates with m ≤ 0."""
    phi = np.column_stack((X, np.ones(len(X))))
    w = np.zeros((classes or 1, phi.shape[1]))
    entries, after, wrong = [], [], 0
    for _ in range(passes):
        for i, (x, label) in enumerate(zip(phi, y, strict=True)):
            z, rival, s = np.zeros_like(w), -label, w @ x
            if classes is None:
                z[0] = label * x
            else:
                rival = max((k for k in range(classes) if k != label), key=lambda k: (s[k], -k))
                z[label], z[rival] = x, -x
            made = step_of_the_paper(rule, w.ravel(), z.ravel(), label, len(entries) + 1)
            if made is not None:
                wrong += float((w * z).sum()) <= 0
                entries.append((i, len(after), made[1] * (label if classes is None else 1), rival, made[2]))
                w = made[0].reshape(w.shape)
            after.append(w)
    return entries, after, wrong


def samples(seed, classes=None, count=60, width=8, noise=0.1):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((count, width)) * (rng.random((count, width)) < 0.7)
    s = X @ rng.standard_normal((width, classes or 1))
    y = np.where(s[:, 0] > 0, 1, -1) if classes is None else s.argmax(1)
    flipped = rng.random(count) < noise
    y[flipped] = rng.choice([-1, 1] if classes is None else classes, flipped.sum())
    return X, y


def net_for(X, classes=None, **options):
    kind = (tp.Perceptron, X.shape[1]) if classes is None else (tp.MulticlassPerceptron, X.shape[1], classes)
    return kind[0](*kind[1:], **{"dtype": torch.float64, **options})


def weights_of(model):
    return np.column_stack((model.weight.detach().numpy(), model.bias.detach().numpy()))


def fit(rule, X, y, classes=None, epochs=2, **options):
    net = net_for(X if hasattr(X, "shape") else np.array(X), classes)
    return net, tp.RuleTrainer(epochs, rule=rule, **options).fit(net, X, y)


CASES = [(rule, None) for rule in RULES] + [(rule, 3) for rule in MANY]


@pytest.mark.parametrize("engine", ["reference", "compiled"])
@pytest.mark.parametrize("kind", ["dense", "csr", "wide csr"])
@pytest.mark.parametrize(("rule", "classes"), CASES, ids=str)
def test_the_log_is_that_of_the_plain_loop(rule, classes, kind, engine):
    """Wide CSR rows are those whose weights shrink by a factor held apart."""
    X, y = samples(3, classes)
    wide = np.zeros((len(X), 300 if kind == "wide csr" else X.shape[1]))
    wide[:, : X.shape[1]] = X
    entries, after, _ = plain_loop(rule, wide, y, classes, passes=2)
    net, result = fit(rule, wide if kind == "dense" else csr_array(wide), y, classes, engine=engine)
    log = result.log
    assert [(m.sample, m.step, m.predicted) for m in log] == [(i, step, rival) for i, step, _, rival, _ in entries]
    np.testing.assert_allclose(log.coef, [c for _, _, c, _, _ in entries], **CLOSE)
    np.testing.assert_allclose(log.mistakes.factor, [f for *_, f in entries], **CLOSE)
    np.testing.assert_allclose(weights_of(net), after[-1], **CLOSE)
    np.testing.assert_allclose(weights_of(log.last()), weights_of(net), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(weights_of(log.averaged()), np.mean(after, axis=0), **CLOSE)
    t, (step, *_) = len(log) // 2, [entry[1] for entry in entries][len(log) // 2 - 1 :]
    np.testing.assert_allclose(weights_of(log.state_at(t)), after[step], **CLOSE)
    from_dual = log.dual().numpy().reshape(len(X), -1).T @ np.column_stack((wide, np.ones(len(X))))
    np.testing.assert_allclose(from_dual, after[-1], **CLOSE)


@pytest.mark.parametrize(("rule", "classes"), CASES, ids=str)
def test_votes_and_errors_are_those_of_all_states(rule, classes):
    X, y = samples(5, classes)
    _, after, _ = plain_loop(rule, X, y, classes)
    scores = np.stack([np.column_stack((X, np.ones(len(X)))) @ w.T for w in after])
    said = np.where(scores[..., 0] >= 0, 1, -1) if classes is None else scores.argmax(-1)
    log = fit(rule, X, y, classes, epochs=1)[1].log
    lasted, errors = log.survivals().numpy(), log.errors().numpy()
    np.testing.assert_array_equal(np.repeat(errors[1:], lasted[1:]), (said != y).sum(1))
    votes = said.sum(0) if classes is None else np.stack([(said == k).sum(0) for k in range(classes)], 1)
    np.testing.assert_array_equal(log.voted().scores(X).numpy(), votes)
    assert int((log.pocket("every").predict(X).numpy() != y).sum()) == errors.min()


def test_passive_aggressive_is_that_of_scikit_learn_and_river():
    from river import linear_model
    from sklearn.linear_model import PassiveAggressiveClassifier

    X, y = samples(7, count=200)
    lifted = np.column_stack((X, np.ones(len(X))))  # their norm of x leaves the intercept out
    for C, variant, loss, mode in ((0.1, "I", "hinge", 1), (0.5, "II", "squared_hinge", 2), (1e30, "I", "hinge", 1)):
        net = fit(PassiveAggressive(C, variant), X, y, epochs=3)[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            peer = PassiveAggressiveClassifier(C=C, loss=loss, shuffle=False, fit_intercept=False, tol=None, max_iter=3)
            peer.fit(lifted, y)
        np.testing.assert_allclose(weights_of(net), peer.coef_, rtol=0, atol=1e-12)
        other = linear_model.PAClassifier(C=C, mode=mode, learn_intercept=False)
        for row, label in list(zip(lifted.tolist(), y, strict=True)) * 3:
            other.learn_one(dict(enumerate(row)), bool(label == 1))
        np.testing.assert_allclose(weights_of(net)[0], [other.weights[j] for j in range(9)], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("rule", "classes"), CASES, ids=str)
def test_no_run_exceeds_its_bound(rule, classes):
    for seed in range(12):
        X, y = samples(seed, classes, count=30, width=6, noise=0.0)
        gamma = tp.theory.max_margin(X, y, regularize_bias=True, num_classes=classes).margin
        bound = tp.theory.mistake_bound(X, y, rule=rule, gamma=gamma, num_classes=classes)
        entries, _, wrong = plain_loop(rule, X, y, classes, passes=30)
        assert 0 < (len(entries) if rule in BOUNDED else wrong) <= bound < math.inf


def test_the_bounds_are_those_of_the_papers():
    X, y, g = [[3.0], [-4.0]], [1, -1], 0.5  # R² = 16
    bound = {rule: tp.theory.mistake_bound(X, y, bias_step="none", gamma=g, rule=rule) for rule in RULES}
    expected = [(16 + 4) * 4, 64, 64, (16 + 1) * 4, 64, 64, 128 * (2 / 0.9 - 1) ** 2 + 8 / 0.9 - 4, 128 * 9 + 12]
    np.testing.assert_allclose(list(bound.values()), expected)
    assert tp.theory.mistake_bound(X, y, bias_step="none", gamma=g, rule=PassiveAggressive(0.01)) == 400
    assert tp.theory.mistake_bound(X, y, bias_step="none", gamma=g, rule=tp.rules.Rule()) == math.inf


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_every_rule_separates_what_can_be_separated(rule):
    X, y = tp.data.separable_blobs(80, margin=1.0, seed=1)
    _, result = fit(rule, X.double(), y, epochs=2000, order="shuffled")
    assert torch.equal(result.predict(X.double()), y)
    if type(rule) is not AggressiveROMMA:  # which approaches the largest margin without end
        assert result.verdict.name == "SEPARATED"
    if isinstance(rule, ALMA):  # the margin of samples of length 1 that it promises
        phi = np.column_stack((X, np.ones(len(X))))
        phi, w = phi / np.linalg.norm(phi, axis=1, keepdims=True), weights_of(result.model)[0]
        best = tp.theory.max_margin(phi, y, regularize_bias=True, bias_step="none").margin
        assert (y.numpy() * (phi @ w)).min() / np.linalg.norm(w) >= (1 - rule.alpha) * best


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_run_in_parts_is_the_run(rule, tmp_path):
    """Online in chunks, resumed from a saved state, from samples on disk, and at random mistakes."""
    X, y = samples(9)
    net, result = fit(rule, X, y, epochs=1)
    online, trainer = net_for(X), tp.RuleTrainer(rule=rule)
    stream = tp.RuleTrainer.new_stream(online)
    for rows in (slice(0, 7), slice(7, 8), slice(8, 60)):
        trainer.learn_chunk(stream, online, X[rows], y[rows])
        saved, stream = stream, tp.RuleTrainer.new_stream(online)
        stream.load_state_dict(pickle.loads(pickle.dumps(saved.state_dict())))
    np.testing.assert_allclose(weights_of(online), weights_of(net), **CLOSE)
    runs = [tp.RuleTrainer(6, rule=rule, order="shuffled").start(net_for(X), X, y) for _ in range(3)]
    empty = pickle.loads(pickle.dumps(runs[1].state_dict()))
    for _ in range(2):
        runs[0].epoch()
    runs[1].load_state_dict(pickle.loads(pickle.dumps(runs[0].state_dict())))
    runs[2].load_state_dict(empty)
    for run in runs:
        while run.verdict is None:
            run.epoch()
    for run in runs[1:]:
        assert run.result().log.equals(runs[0].result().log)
        assert torch.equal(run.weights.weight, runs[0].weights.weight)
        assert run.history == runs[0].history
    path = tmp_path / "X.npy"
    np.save(path, X)
    assert fit(rule, np.load(path, mmap_mode="r"), y, epochs=1)[1].log.equals(result.log)
    picked = fit(rule, X, y, epochs=1, order="random-mistake")[1]
    assert len(picked.log) == picked.log.steps > 0


@pytest.mark.parametrize(("rule", "classes"), CASES, ids=str)
def test_a_log_is_saved_and_loaded(rule, classes, tmp_path):
    X, y = samples(6, classes)
    log = fit(rule, X, y, classes)[1].log
    log.save(tmp_path / "log.npz")
    again = tp.MistakeLog.load(tmp_path / "log.npz", X, y)
    assert again.equals(log)
    assert again.problem.rule == rule
    assert torch.equal(again.averaged().weight, log.averaged().weight)
    assert torch.equal(log.compact().last().weight, log.last().weight)
    with pytest.raises(ValueError, match=r"another rule .* save it as \.npz"):
        log.save(tmp_path / "log.json")
    damaged = dict(np.load(tmp_path / "log.npz"))
    del damaged["factor"]
    np.savez(tmp_path / "damaged.npz", **damaged)
    with pytest.raises(ValueError, match="no entry 'factor'"):
        tp.MistakeLog.load(tmp_path / "damaged.npz", X, y)


@pytest.mark.parametrize("rule", [RULES[2], RULES[5], RULES[6]], ids=str)
def test_estimators_sweeps_and_lightning_take_a_rule(rule, tmp_path):
    from sklearn.base import clone

    X, y = samples(8)
    net = fit(rule, X, y, epochs=3)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = clone(tp.sklearn.PerceptronClassifier(max_iter=3, rule=rule, shuffle=False)).fit(X, y)
        lit = tp.lightning.LitRule(net_for(X), rule=rule)
        trainer = plain.trained(lit, plain.loader((torch.tensor(X), torch.tensor(y))), enable_checkpointing=False)
        trainer.save_checkpoint(tmp_path / "a.ckpt")
        again = tp.lightning.LitRule.load_from_checkpoint(tmp_path / "a.ckpt", weights_only=True)
    np.testing.assert_array_equal(model.coef_, net.weight.detach().numpy())
    assert torch.equal(lit.net.weight, net.weight)
    assert torch.equal(again.net.weight, net.weight)
    assert again.rule.rule == rule
    assert again.hparams.rule == lit.hparams.rule == rule.describe()["rule"]
    assert "theory/bound" not in trainer.callback_metrics
    sweep = tp.sweep(X, y, seeds=[3], rule=rule, max_epochs=3)
    alone = fit(rule, X, y, epochs=3, order="shuffled", seed=3)[1]
    assert sweep.mistakes.tolist() == [alone.mistakes]
    assert sweep.bounds(0.1)[0] == pytest.approx(rule.bound(sweep.radius**2, 0.1))


def test_weights_and_float32():
    X, y = samples(1)
    weight = np.random.default_rng(0).choice([0.0, 0.5, 2.0], len(X))
    net = net_for(X)
    log = tp.RuleTrainer(1, rule=PassiveAggressive(0.1)).fit(net, X, y, sample_weight=weight).log
    assert not np.isin(log.sample, np.flatnonzero(weight == 0)).any()
    assert 0 < float(log.coef.abs().max()) <= 0.1 * 2
    for rule in RULES:
        small = net_for(X, dtype=torch.float32)
        tp.RuleTrainer(1, rule=rule).fit(small, X.astype(np.float32), y)
        np.testing.assert_allclose(weights_of(small), weights_of(fit(rule, X, y, epochs=1)[0]), rtol=1e-3, atol=1e-4)


def test_a_checkpoint_cannot_name_a_rule_of_ones_own():
    own = type("Own", (ALMA,), {"__module__": __name__})()
    with pytest.raises(ValueError, match=r"rule='.*test_family\.Own' is unknown"):
        tp.lightning.LitRule(net_for(np.ones((1, 2))), rule=own)


def test_a_step_that_returns_what_it_must_not():
    own = type("Own", (tp.rules.Rule,), {"step": staticmethod(lambda m, squared, norm, k, parameters: (-1.0, 1.0))})
    for engine in ("reference", "compiled"):
        with pytest.raises(ValueError, match="must return c ≥ 0, found -1"):
            fit(own(), *samples(0), engine=engine)


@pytest.mark.parametrize(
    "given", [{"C": 0}, {"C": -1.0}, {"C": math.nan}, {"variant": "III"}, {"C": 2.0, "variant": None}]
)
def test_what_rules_refuse(given):
    name, value = next(iter(given.items()))
    with pytest.raises(ValueError, match=f"{name}={value!r}"):
        PassiveAggressive(**given)
    for make, said in (
        (lambda: ALMA(0), "alpha=0"),
        (lambda: ALMA(1.5), "alpha=1.5"),
        (lambda: UnevenMargins(-1), "positive=-1"),
    ):
        with pytest.raises(ValueError, match=said):
            make()


def test_what_is_refused():
    X, y = samples(0)
    no_bias = {"net": tp.Perceptron(8, bias=False, dtype=torch.float64)}
    joint, chain = tp.JointPerceptron(8, 3, dtype=torch.float64), tp.sequences.ChainPerceptron(2, 2)
    biased = net_for(X)
    torch.nn.init.ones_(biased.bias)
    for rule, given, said in (
        ("Pasive", {}, "rule='Pasive' is unknown; choose one of 'PerceptronRule', .*'ALMA'"),
        (3, {}, "rule=3 is unknown"),
        ({"class_path": "os.system"}, {}, r"rule='os\.system' is unknown"),
        (ALMA(), {"lr": 0.5}, "lr=0.5 cannot be used with rule=ALMA"),
        (ROMMA(), {"class_weight": {1: 2.0}}, "sample_weight=2 cannot be used with rule=ROMMA"),
        (ALMA(), {"distributed": "mix"}, "distributed='mix' cannot be used with rule=ALMA"),
        (PassiveAggressive(), {"margin": 2.0}, "margin=2.0 .*rule=PassiveAggressive"),
        (PassiveAggressive(), {"engine": lambda *_: None}, "engine=.* cannot be used with rule"),
        (PerceptronRule("sign", 1.0), {}, "margin=1.0 has no effect"),
        (ALMA(), {"sample_weight": np.where(np.arange(60), 1.0, 2.0)}, "sample_weight=2.*rule=ALMA"),
        (ROMMA(), {"X": X * (np.arange(60) > 0)[:, None], **no_bias}, "a sample of length 0"),
        (ROMMA(), {"net": biased, "bias_step": "none"}, "a bias without a bias step"),
        (UnevenMargins(), {"net": net_for(X, 3), "y": y % 3}, "num_classes=3.*rule=UnevenMargins"),
        (PassiveAggressive(), {"net": joint, "y": y % 3}, "a JointPerceptron cannot"),
        (ROMMA(), {"net": chain, "X": [[[1, 0]]], "y": [[0]]}, "a ChainPerceptron cannot"),
        (ROMMA(), {"net": None, "kernel": "rbf"}, "kernel='rbf' cannot be used with rule=ROMMA"),
        (ROMMA(), {"net": net_for(X, dtype=torch.float16)}, "engine='auto' on this type or device cannot"),
    ):
        data = {"net": net_for(X), "X": X, "y": y, "sample_weight": None}
        data |= {name: given.pop(name) for name in list(given) if name in data}
        with pytest.raises(ValueError, match=said):
            tp.RuleTrainer(rule=rule, **given).fit(**data)


def test_names_and_plain_data_make_rules():
    for rule in [*RULES, PerceptronRule("strict", 0.5)]:
        assert tp.RuleTrainer(rule=tp.rules.Rule.describe(rule)["rule"]).rule == rule
    assert tp.RuleTrainer(rule="PassiveAggressive").rule == PassiveAggressive()


def test_weights_that_overflow_are_an_error():
    X, y = samples(0, count=40, width=2, noise=0.4)
    for engine in ("reference", "compiled"):
        with pytest.raises(ValueError, match="overflow"):
            fit(ROMMA(), X, y, epochs=5000, engine=engine)
