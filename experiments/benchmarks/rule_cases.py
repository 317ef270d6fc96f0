"""Cases of the rule: dense and sparse rows, two and many classes, what the hardware allows, growth, many orders."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks import peers, samples
from benchmarks.peers import Learned
from benchmarks.timing import Comparison, Contender, Finding, Goal
from torchperc.nn.modules import Perceptron
from torchperc.rules.sweep import Sweep, sweep
from torchperc.rules.trainer import RuleTrainer

Array = npt.NDArray[Any]
Results = Mapping[str, Any]

OURS, ESTIMATOR = "RuleTrainer.fit", "PerceptronClassifier.fit"
_SKLEARN = "scikit-learn Perceptron"
_PLAIN = {"shuffle": False, "tol": None}  # the same order, and all the epochs
_FEW = 2_000  # rows for contenders that take a row at a time in Python, and for the reference engine
_SOME = 10_000  # rows for contenders that take long


# --- dense rows, two classes --------------------------------------------------------------------------------------

_KINDS: dict[str, dict[str, Any]] = {
    "noisy": {"flips": 0.1},
    "clean": {"flips": 0.0},
    "few mistakes": {"flips": 0.003, "gap": 0.6},
    "few mistakes, fractions": {"flips": 0.003, "gap": 0.6, "fractions": True},
}
_FACTORS = {"noisy": (3, 5), "clean": (3, 5), "few mistakes": (7, 7), "few mistakes, fractions": (7, 7)}
_WIDE = {"noisy": (2.5, 4), "few mistakes": (7, 7), "few mistakes, fractions": (7, 7)}
_DTYPES = ("float64", "float32")


def dense_100(quick: bool) -> Iterator[Comparison]:
    """The rule on 100,000 × 100: noisy labels, clean ones, and data with at most 1 % mistakes per row."""
    rows, width, epochs = (1_000, 20, 3) if quick else (100_000, 100, 5)
    yield from _kinds(rows, width, epochs, _FACTORS, more="noisy", judge=not quick)


def dense_784(quick: bool) -> Iterator[Comparison]:
    """The rule on 50,000 × 784: noisy labels, and data with at most 1 % mistakes per row."""
    rows, width, epochs = (500, 50, 2) if quick else (50_000, 784, 5)
    yield from _kinds(rows, width, epochs, _WIDE, judge=not quick)


def _kinds(
    rows: int,
    width: int,
    epochs: int,
    factors: Mapping[str, tuple[float, float]],
    *,
    judge: bool,
    more: str | None = None,
) -> Iterator[Comparison]:
    """A comparison for each kind of data and type."""
    for kind, both in factors.items():
        for dtype, factor in zip(_DTYPES, both, strict=True):
            options = {**_KINDS[kind], "gap": int(_KINDS[kind].get("gap", 0) * width)}
            X, y = samples.planes(rows, width, dtype=dtype, **options)
            title = f"{kind}, {rows:,} × {width} {dtype}, {epochs} epochs"
            share = 0.01 if judge and kind.startswith("few mistakes") else 1.0
            yield _dense(title, X, y, epochs, factor, more=(kind, dtype) == (more, "float64"), share=share)


def _dense(
    title: str, X: Array, y: Array, epochs: int, factor: float, *, more: bool = False, share: float = 1.0
) -> Comparison:
    """Ours against scikit-learn, and on request against everybody else; ``share`` is of mistakes allowed a row."""
    few = slice(0, _FEW)
    reference = peers.by_rule(X[few], y[few], 1, engine="reference")()
    total, options = epochs * len(y), {"max_iter": epochs, **_PLAIN}
    loops = _loops(X[few], y[few]) if more else []
    others = _others(X, y, epochs) if more else []
    contenders = [
        Contender(OURS, peers.by_rule(X, y, epochs), total),
        Contender(_SKLEARN, peers.scikit_learn("Perceptron", X, y, **options), total, Goal("at least", factor)),
        Contender(ESTIMATOR, peers.estimator(X, y, epochs), total),
    ]

    def check(results: Results) -> dict[str, Finding]:
        ours = results[OURS]
        findings = {OURS: _allowed(peers.same_mistakes(ours, reference, epochs), ours, share)}
        findings |= {name: peers.same_weights(ours, results[name]) for name in (_SKLEARN, ESTIMATOR)}
        for name in results.keys() & {contender.name for contender in loops}:
            findings[name] = peers.same_weights(reference, results[name])
        for name in results.keys() & {contender.name for contender in others}:
            wrong = [100 * peers.errors(found, X, y) for found in (results[name], ours)]
            findings[name] = Finding(None, f"another way: {wrong[0]:.1f} % training errors, ours {wrong[1]:.1f} %")
        return findings

    return Comparison(title, [*contenders, *loops, *others], check)


def _loops(X: Array, y: Array) -> list[Contender]:
    """The rule, a row at a time in Python, one epoch."""
    river = peers.river("Perceptron", X, y, 1)
    return [
        Contender(f"bare torch loop, {len(y):,} rows", peers.torch_loop(X, y, 1), len(y)),
        Contender(f"river Perceptron, {len(y):,} rows", river, len(y), needs="river"),
    ]


def _others(X: Array, y: Array, epochs: int) -> list[Contender]:
    """Linear classifiers that learn in another way, or order."""
    few, some = min(_FEW, len(y)), min(_SOME, len(y))
    svm = peers.scikit_learn("LinearSVC", X[:some], y[:some], loss="hinge", max_iter=epochs, random_state=0)
    return [
        Contender(f"LIBLINEAR, LinearSVC(hinge), {some:,} rows", svm, epochs * some),
        Contender(f"mlxtend Perceptron, {few:,} rows", peers.mlxtend(X[:few], y[:few], 1), few, needs="mlxtend"),
    ]


def _allowed(finding: Finding, found: Learned, share: float) -> Finding:
    """The finding, unless more mistakes were made than the case is about."""
    assert found.result is not None
    log = found.result.log
    if len(log) > share * log.steps:
        return Finding(False, f"{finding.text}; this case is of at most {100 * share:g} % mistakes per row")
    return finding


# --- many classes, sparse rows ------------------------------------------------------------------------------------


def classes(quick: bool) -> Iterator[Comparison]:
    """Ten classes on 60,000 × 784 float32, against one-vs-rest, with no more training errors."""
    rows, width, epochs = (1_000, 300, 2) if quick else (60_000, 784, 5)
    X, y = samples.pictures(rows, width, 10)
    title = f"10 classes, {rows:,} × {width} float32, {epochs} epochs"
    yield _many(title, X, y, epochs, Goal("at least", 12), fewer=True)


def sparse(quick: bool) -> Iterator[Comparison]:
    """CSR rows, 100,000 × 50,000 with 50 entries each; two classes and ten; no bias, as scikit-learn slows it."""
    rows, width, filled, epochs = (500, 1_000, 10, 2) if quick else (100_000, 50_000, 50, 5)
    size = f"CSR {rows:,} × {width:,}, {filled} entries per row, {epochs} epochs"
    X, y = samples.words(rows, width, filled, 2, flips=0.02)
    reference = peers.by_rule(X[:_FEW], y[:_FEW], 1, bias=False, engine="reference")()
    theirs = peers.scikit_learn("Perceptron", X, y, max_iter=epochs, fit_intercept=False, **_PLAIN)
    contenders = [
        Contender(OURS, peers.by_rule(X, y, epochs, bias=False), epochs * rows),
        Contender(_SKLEARN, theirs, epochs * rows, Goal("at least", 3)),
        Contender(ESTIMATOR, peers.estimator(X, y, epochs, bias=False), epochs * rows),
    ]

    def check(results: Results) -> dict[str, Finding]:
        ours = results[OURS]
        findings = {name: peers.same_weights(ours, results[name]) for name in (_SKLEARN, ESTIMATOR)}
        return {OURS: peers.same_mistakes(ours, reference, epochs), **findings}

    yield Comparison(f"2 classes, {size}", contenders, check)
    X, y = samples.words(rows, width, filled, 10, flips=0.02)
    yield _many(f"10 classes, {size}", X, y, epochs, Goal("at least", 6), fewer=False, bias=False)


def _many(title: str, X: Any, y: Array, epochs: int, goal: Goal, *, fewer: bool, bias: bool = True) -> Comparison:
    """Ours against one-vs-rest, which learns other weights: training errors are compared, and judged if ``fewer``."""
    reference = peers.by_rule(X[:_FEW], y[:_FEW], 1, classes=10, bias=bias, engine="reference")()
    options = {"max_iter": epochs, "fit_intercept": bias, **_PLAIN}
    total = epochs * len(y)
    contenders = [
        Contender(OURS, peers.by_rule(X, y, epochs, classes=10, bias=bias), total),
        Contender(f"{_SKLEARN}, one-vs-rest", peers.scikit_learn("Perceptron", X, y, **options), total, goal),
    ]
    if fewer:
        both = peers.scikit_learn("Perceptron", X, y, n_jobs=-1, **options)
        contenders.append(Contender(f"{_SKLEARN}, n_jobs=-1", both, total))

    def check(results: Results) -> dict[str, Finding]:
        share = {name: peers.errors(found, X, y) for name, found in results.items()}
        findings = {OURS: peers.same_mistakes(results[OURS], reference, epochs)}
        for contender in contenders[1:]:
            ok = share[OURS] <= share[contender.name] if fewer else None
            text = f"{100 * share[contender.name]:.1f} % training errors, ours {100 * share[OURS]:.1f} %"
            findings[contender.name] = Finding(ok, text)
        return findings

    return Comparison(title, contenders, check)


# --- what the hardware allows -------------------------------------------------------------------------------------


def limit(quick: bool) -> Iterator[Comparison]:
    """An epoch against one pass over X, the product X·w: the least that any rule has to do."""
    rows, width, epochs = (1_000, 20, 3) if quick else (100_000, 100, 20)
    for dtype in _DTYPES:
        X, y = samples.planes(rows, width, flips=0.003, gap=60, dtype=dtype)
        tensor, w = torch.from_numpy(X), torch.ones(width, dtype=getattr(torch, dtype))
        everyone = os.cpu_count() or 1
        reference = peers.by_rule(X[:_FEW], y[:_FEW], 1, engine="reference")()
        fit = peers.by_rule(X, y, epochs)
        contenders = [
            Contender(OURS, fit, epochs * rows),
            Contender("one pass X·w, one thread", _passes(tensor, w), 5 * rows, Goal("at most", 1.3), threads=1),
            Contender("one pass X·w, all threads", _passes(tensor, w), 5 * rows, threads=everyone),
        ]
        if everyone > 1:
            contenders.append(Contender(f"{OURS}, one thread", fit, epochs * rows, threads=1))
        yield Comparison(f"{rows:,} × {width} {dtype}, {epochs} epochs", contenders, _limit_check(X, reference, epochs))


def _passes(X: torch.Tensor, w: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Five passes, as one is over too soon to be timed well."""

    def call() -> torch.Tensor:
        for _ in range(5):
            scores = torch.mv(X, w)
        return scores

    return call


def _limit_check(X: Array, reference: Learned, epochs: int) -> Callable[[Results], dict[str, Finding]]:
    expected = torch.from_numpy(X.sum(1))

    def check(results: Results) -> dict[str, Finding]:
        findings = {}
        for name, found in results.items():
            if isinstance(found, Learned):
                findings[name] = peers.same_mistakes(found, reference, epochs)
            else:
                findings[name] = Finding(torch.equal(found, expected), "the scores of all rows")
        return findings

    return check


def first_epoch(quick: bool) -> Iterator[Comparison]:
    """What ``fit`` costs beside its loop: a call of one epoch against the compiled loop alone, dense and CSR rows."""
    for title, X, y, many, bias in _first_epochs(quick):
        reference = peers.by_rule(X[:_FEW], y[:_FEW], 1, classes=many, bias=bias, engine="reference")()
        loop = "the compiled loop alone"
        contenders = [
            Contender(OURS, peers.by_rule(X, y, 1, classes=many, bias=bias, engine="compiled"), len(y)),
            Contender(loop, peers.compiled_loop(X, y, classes=many, bias=bias), len(y), Goal("at most", 1.3)),
            Contender(ESTIMATOR, peers.estimator(X, y, 1, bias=bias), len(y)),
        ]

        def check(results: Results, reference: Learned = reference, loop: str = loop) -> dict[str, Finding]:
            findings = {name: peers.same_weights(results[OURS], results[name]) for name in (loop, ESTIMATOR)}
            return {OURS: peers.same_mistakes(results[OURS], reference, 1), **findings}

        yield Comparison(f"one epoch, {title}", contenders, check)


def _first_epochs(quick: bool) -> Iterator[tuple[str, Any, Array, int | None, bool]]:
    """Title, samples, labels, number of classes, whether there is a bias."""
    for rows, width in ((1_000, 20), (500, 50)) if quick else ((100_000, 100), (40_000, 784)):
        for dtype in _DTYPES:
            X, y = samples.planes(rows, width, flips=0.1, dtype=dtype)
            yield f"{rows:,} × {width} {dtype}", X, y, None, True
    rows, width = (500, 50) if quick else (40_000, 784)
    X, y = samples.pictures(rows, width, 10)
    yield f"10 classes, {rows:,} × {width} float32", X, y, 10, True
    rows, width, filled = (500, 1_000, 10) if quick else (100_000, 50_000, 50)
    for classes in (2, 10):
        X, y = samples.words(rows, width, filled, classes, flips=0.02)
        title = f"{classes} classes, CSR {rows:,} × {width:,}, {filled} entries per row"
        yield title, X, y, None if classes == 2 else classes, False


def pocket(quick: bool) -> Iterator[Comparison]:
    """``select="pocket"`` on noisy data, 50,000 × 50, against the weights after the last epoch."""
    rows, width, epochs = (500, 10, 2) if quick else (50_000, 50, 5)
    X, y = samples.planes(rows, width, flips=0.1)
    plain = f"{OURS}, last weights"
    contenders = [
        Contender(f"{OURS}, pocket", peers.by_rule(X, y, epochs, select="pocket"), epochs * rows),
        Contender(plain, peers.by_rule(X, y, epochs), epochs * rows, Goal("at most", 3)),
    ]

    def check(results: Results) -> dict[str, Finding]:
        kept, last = (peers.errors(results[contender.name], X, y) for contender in contenders)
        text = f"{100 * kept:.1f} % training errors, the last weights {100 * last:.1f} %"
        return {contenders[0].name: Finding(kept <= last, text)}

    yield Comparison(f"noisy, {rows:,} × {width}, {epochs} epochs", contenders, check)


# --- growth and many orders ---------------------------------------------------------------------------------------


def growth(quick: bool) -> Iterator[Comparison]:
    """One epoch on 10⁴ to 10⁷ rows: the time for a row stays the same once X is larger than the cache."""
    width, most = (10, 3_000) if quick else (20, 10_000_000)
    sizes = [size for size in (100, 1_000, 3_000, 10_000, 100_000, 1_000_000, 3_000_000, 10_000_000) if size <= most]
    sizes = [size for size in sizes if quick or size >= 10_000]
    X, y = samples.planes(most, width, flips=0.003, gap=width, dtype="float32")
    names = {f"{size:,} rows": size for size in reversed(sizes)}
    contenders = []
    for name, size in names.items():
        compared = size < most and X[:size].nbytes > cache_bytes()
        goal = Goal("within", 1.3) if compared else None
        contenders.append(Contender(name, peers.by_rule(X[:size], y[:size], 1), size, goal))
    whole = contenders[0].name
    reference = peers.by_rule(X[:_FEW], y[:_FEW], 1, engine="reference")()

    def check(results: Results) -> dict[str, Finding]:
        log = results[whole].result.log
        findings = {whole: peers.same_mistakes(results[whole], reference, 1)}
        for name, size in names.items():
            if name in results and name != whole:
                same = torch.equal(results[name].result.log.sample, log.sample[log.sample < size])
                findings[name] = Finding(same, "mistakes as of the whole" if same else "not the mistakes of the whole")
        return findings

    yield Comparison(f"one epoch, × {width} float32, cache {cache_bytes() / 2**20:.0f} MiB", contenders, check)


def cache_bytes() -> int:
    """The size of the last cache; 32 MiB where the system does not tell.

    Example:
        >>> cache_bytes() > 0
        True
    """
    names = getattr(os, "sysconf_names", {})
    found = [os.sysconf(name) for name in ("SC_LEVEL3_CACHE_SIZE", "SC_LEVEL2_CACHE_SIZE") if name in names]
    return next((size for size in found if size > 0), 32 * 2**20)


def orders(quick: bool) -> Iterator[Comparison]:
    """A thousand orders of 1,000 × 20 at once, fixed ones and shuffled ones, against a thousand fits."""
    rows, width, epochs, count = (100, 5, 2, 20) if quick else (1_000, 20, 10, 1_000)
    X, y = samples.planes(rows, width, flips=0.05)
    size = f"{rows:,} × {width}, {epochs} epochs"
    yield _fixed(f"{count:,} fixed orders of {size}", X, y, epochs, count)
    yield _shuffled(f"{count:,} shuffled orders of {size}", X, y, epochs, count)


_FITS = f"{_SKLEARN}, fit by fit"


def _fixed(title: str, X: Array, y: Array, epochs: int, count: int) -> Comparison:
    """The same order in every epoch, which scikit-learn can be given too: all weights are compared."""
    rng = np.random.default_rng(0)
    permutations = np.stack([rng.permutation(len(y)) for _ in range(count)])
    peer = import_module("sklearn.linear_model").Perceptron

    def ours() -> Sweep:
        return sweep(X, y, orders=permutations, max_epochs=epochs)

    def theirs() -> Learned:
        models = [peer(max_iter=epochs, **_PLAIN).fit(X[order], y[order]) for order in permutations]
        return Learned(np.stack([model.coef_ for model in models]), np.stack([model.intercept_ for model in models]))

    def check(results: Results) -> dict[str, Finding]:
        found = results["sweep"]
        weights = Learned(found.weight.numpy(), found.bias.numpy())
        return {"sweep": _all_epochs(found, epochs), _FITS: peers.same_weights(weights, results[_FITS])}

    total = count * epochs * len(y)
    return Comparison(
        title, [Contender("sweep", ours, total), Contender(_FITS, theirs, total, Goal("at least", 20))], check
    )


def _shuffled(title: str, X: Array, y: Array, epochs: int, count: int) -> Comparison:
    """A new order in every epoch, drawn by each side for itself: ours are compared with single runs of ours."""
    peer = import_module("sklearn.linear_model").Perceptron
    fewer = min(200, count)  # the times of single fits add up
    fits = f"{_FITS}, {fewer:,} of them"
    expected = []
    for seed in range(min(5, count)):
        trainer = RuleTrainer(epochs, order="shuffled", engine="reference", seed=seed)
        expected.append(trainer.fit(Perceptron(X.shape[1], dtype=torch.float64), X, y).mistakes)

    def ours() -> Sweep:
        return sweep(X, y, seeds=range(count), max_epochs=epochs)

    def theirs() -> list[Any]:
        return [peer(max_iter=epochs, tol=None, random_state=seed).fit(X, y) for seed in range(fewer)]

    def check(results: Results) -> dict[str, Finding]:
        found = results["sweep"]
        right = float(np.mean([model.score(X, y) for model in results[fits]]))
        finding = _all_epochs(found, epochs)
        if found.mistakes[: len(expected)].tolist() != expected:
            finding = Finding(False, f"not the mistakes of single runs, {expected}")
        return {"sweep": finding, fits: Finding(None, f"orders of its own; {100 * (1 - right):.1f} % training errors")}

    ones = Contender(fits, theirs, fewer * epochs * len(y), Goal("at least", 20))
    return Comparison(title, [Contender("sweep", ours, count * epochs * len(y)), ones], check)


def _all_epochs(found: Sweep, epochs: int) -> Finding:
    if int(found.epochs.min()) != epochs:
        return Finding(False, f"a run stopped after {int(found.epochs.min())} of {epochs} epochs")
    return Finding(True, f"{float(found.mistakes.sum() / found.epochs.sum()):.0f} mistakes in an epoch")
