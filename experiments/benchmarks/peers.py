"""The peers, called as their users call them, and what is compared between them and us.

Every function here gives a call without arguments that learns from scratch and returns what it :class:`Learned`.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.timing import Finding
from torchperc.nn.modules import MulticlassPerceptron, Perceptron
from torchperc.rules.run import RuleResult
from torchperc.rules.trainer import RuleTrainer

Array = npt.NDArray[Any]


class Learned(NamedTuple):
    """What a contender learned: weights (K, d) and biases (K,), and what else it told.

    Example:
        >>> Learned(np.zeros((1, 2)), np.zeros(1)).result is None
        True
    """

    weight: Array
    bias: Array
    result: RuleResult | None = None
    seconds: float = 0.0


Call = Callable[[], Learned]


def by_rule(X: Any, y: Array, epochs: int, *, classes: int | None = None, bias: bool = True, **options: Any) -> Call:
    """Ours: ``RuleTrainer(**options).fit`` on a new net of the data's dtype.

    Example:
        >>> call = by_rule(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([1, -1]), epochs=2)
        >>> call().weight
        array([[-1.,  1.]])
    """
    dtype = torch.float32 if X.dtype == np.float32 else torch.float64

    def call() -> Learned:
        width = X.shape[1]
        if classes is None:
            net: Perceptron | MulticlassPerceptron = Perceptron(width, bias=bias, dtype=dtype)
        else:
            net = MulticlassPerceptron(width, classes, bias=bias, dtype=dtype)
        result = RuleTrainer(max_epochs=epochs, **options).fit(net, X, y)
        return learned(net, result)

    return call


def learned(net: Perceptron | MulticlassPerceptron, result: RuleResult | None = None) -> Learned:
    """The weights of a net of ours, as arrays.

    Example:
        >>> learned(Perceptron(2, bias=False)).bias
        array([0.], dtype=float32)
    """
    weight = net.weight.detach().numpy()
    bias = np.zeros_like(weight[:, 0]) if net.bias is None else net.bias.detach().numpy()
    return Learned(weight, bias, result)


def scikit_learn(estimator: str, X: Any, y: Array, **options: Any) -> Call:
    """An estimator of ``sklearn.linear_model`` or ``sklearn.svm``, by name.

    Example:
        >>> X, y = np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([1, -1])
        >>> scikit_learn("Perceptron", X, y, shuffle=False, tol=None, max_iter=2)().weight
        array([[-1.,  1.]])
    """
    module = import_module("sklearn.svm" if estimator.endswith("SVC") else "sklearn.linear_model")
    make = getattr(module, estimator)

    def call() -> Learned:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the epochs did not suffice, which is meant
            model = make(**options).fit(X, y)
        return Learned(np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_))

    return call


def compiled_loop(X: Any, y: Array, *, classes: int | None = None, bias: bool = True) -> Call:
    """The loop that ``fit`` calls for an epoch, on samples that were checked and laid out before.

    Example:
        >>> compiled_loop(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([1, -1]))().weight
        array([[-1.,  1.]])
    """
    from torchperc.rules.engines import compiled
    from torchperc.rules.problem import Problem, Weights
    from torchperc.samples.mapped import as_samples

    dtype = torch.float32 if X.dtype == np.float32 else torch.float64
    ones, order = np.ones(len(y)), np.arange(len(y))
    problem = Problem(as_samples(X, dtype=dtype), y.astype(np.int64), classes, ones, ones, bias_step=float(bias))

    def call() -> Learned:
        zeros = torch.zeros(problem.outputs, X.shape[1], dtype=dtype)
        weights = problem.laid_out(Weights(zeros, zeros[:, 0].clone()))
        compiled(problem, weights, order)
        return Learned(weights.weight.numpy(), weights.bias.numpy())

    return call


def estimator(X: Any, y: Array, epochs: int, *, bias: bool = True) -> Call:
    """Ours as a scikit-learn user calls it: ``PerceptronClassifier.fit``, samples in the given order.

    Example:
        >>> estimator(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([1, -1]), epochs=2)().weight
        array([[-1.,  1.]])
    """
    make = import_module("torchperc.sklearn").PerceptronClassifier

    def call() -> Learned:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = make(max_iter=epochs, shuffle=False, fit_intercept=bias).fit(X, y)
        return Learned(model.coef_, np.atleast_1d(model.intercept_))

    return call


def torch_loop(X: Array, y: Array, epochs: int) -> Call:
    """The rule as a bare loop over the rows of tensors.

    Example:
        >>> torch_loop(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([1, -1]), epochs=2)().weight
        array([[-1.,  1.]])
    """

    def call() -> Learned:
        rows, labels = torch.from_numpy(X), y.tolist()
        w, b = torch.zeros(rows.shape[1], dtype=rows.dtype), 0.0
        for _ in range(epochs):
            for x, label in zip(rows, labels, strict=True):
                if label * (torch.dot(w, x).item() + b) <= 0:
                    w.add_(x, alpha=label)
                    b += label
        return Learned(w.numpy()[None], np.array([b]))

    return call


def river(estimator: str, X: Array, y: Array, epochs: int, lr: float = 1.0) -> Call:
    """A linear model of river by name, told one sample after the other.

    The samples are dictionaries before the clock starts, as they are in a stream.

    Example:
        >>> X, y = np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([1, -1])
        >>> river("Perceptron", X, y, epochs=2)().weight if _there("river") else np.array([[-1.0, 1.0]])
        array([[-1.,  1.]])
    """
    samples = [dict(enumerate(row)) for row in X.tolist()]
    labels = y.tolist() if estimator == "LinearRegression" else (y > 0).tolist()

    def call() -> Learned:
        linear_model, optim = import_module("river.linear_model"), import_module("river.optim")
        rate = lr / 2 if estimator == "LinearRegression" else lr  # its squared loss has no ½
        options = {} if estimator == "Perceptron" else {"optimizer": optim.SGD(rate), "intercept_lr": rate}
        model = getattr(linear_model, estimator)(**options)
        for _ in range(epochs):
            for x, label in zip(samples, labels, strict=True):
                model.learn_one(x, label)
        weight = [model.weights.get(column, 0.0) for column in range(X.shape[1])]
        return Learned(np.array([weight]), np.array([model.intercept]))

    return call


def mlxtend(X: Array, y: Array, epochs: int) -> Call:
    """mlxtend's ``Perceptron``, in random orders from a random start, as it has no others.

    Example:
        >>> X, y = np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([1, -1])
        >>> mlxtend(X, y, epochs=2)().weight.shape if _there("mlxtend") else (1, 2)
        (1, 2)
    """

    def call() -> Learned:
        make = import_module("mlxtend.classifier").Perceptron
        model = make(eta=0.5, epochs=epochs, random_seed=0).fit(X, (y + 1) // 2)  # η·(y − ŷ) is then ±1
        return Learned(model.w_.T, model.b_)

    return call


def vowpal_wabbit(loss: str, X: Array, y: Array, epochs: int, lr: float) -> Call:
    """Vowpal Wabbit with plain steps of a constant rate, ``loss`` ``"squared"`` or ``"logistic"``.

    It reads its text format from a file, as its users have it; the file is written before the clock starts. It computes
    in float32.

    Example:
        >>> X, y = np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([1, -1])
        >>> call = vowpal_wabbit("logistic", X, y, epochs=1, lr=0.5)
        >>> call().weight.shape if _there("vowpalwabbit") else (1, 2)
        (1, 2)
    """
    text = "".join(
        f"{label} | {' '.join(f'{column}:{value:.9g}' for column, value in enumerate(row))}\n"
        for label, row in zip(y.tolist(), X.tolist(), strict=True)
    )
    rate = lr / 2 if loss == "squared" else lr  # its squared loss has no ½

    def call() -> Learned:
        workspace = import_module("vowpalwabbit").Workspace
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "samples.vw")
            path.write_text(text)
            start = time.perf_counter()
            model = workspace(
                f"--quiet -d {path} --cache_file {path}.cache -k --passes {epochs} --holdout_off --sgd --power_t 0 "
                f"-l {rate!r} --loss_function {loss} --min_prediction -1000 --max_prediction 1000"
            )
            seconds = time.perf_counter() - start
            weight = [model.get_weight(column) for column in range(X.shape[1])]
            bias = model.get_weight(_VW_CONSTANT)
            model.finish()
        return Learned(np.array([weight]), np.array([bias]), seconds=seconds)

    return call


_VW_CONSTANT = 11650396 % 2**18  # where its constant feature falls among 2¹⁸ weights


def _there(library: str) -> bool:
    return find_spec(library) is not None


# --- what is compared ---------------------------------------------------------------------------------------------


def same_weights(ours: Learned, theirs: Learned, tolerance: float = 0.0) -> Finding:
    """Whether weights and biases are equal, or differ by no more than a fraction of the largest of ours.

    Example:
        >>> a, b = Learned(np.array([[1.0, 2.0]]), np.zeros(1)), Learned(np.array([[1.0, 2.0 + 1e-12]]), np.zeros(1))
        >>> same_weights(a, a), same_weights(a, b), same_weights(a, b, 1e-9).ok
        (Finding(ok=True, text='same weights'), Finding(ok=False, text='weights differ by 5e-13'), True)
    """
    if ours.weight.shape != theirs.weight.shape:
        return Finding(False, f"weights {ours.weight.shape} and {theirs.weight.shape}")
    largest = max(float(np.abs(ours.weight).max()), float(np.abs(ours.bias).max())) or 1.0
    apart = max(float(np.abs(a - b).max()) for a, b in zip(ours[:2], theirs[:2], strict=True)) / largest
    if apart == 0:
        return Finding(True, "same weights")
    if apart <= tolerance:
        return Finding(True, f"same weights to {apart:.0e}")
    return Finding(False, f"weights differ by {apart:.1g}" + (f", allowed {tolerance:.0e}" if tolerance else ""))


def errors(found: Learned, X: Any, y: Array) -> float:
    """The fraction of samples that the weights decide wrongly.

    Example:
        >>> found = Learned(np.array([[1.0]]), np.zeros(1))
        >>> errors(found, np.array([[1.0], [2.0], [-1.0], [3.0]]), np.array([1, 1, 1, 1]))
        0.25
    """
    scores = X @ found.weight.T + found.bias
    decided = scores.argmax(1) if len(found.weight) > 1 else np.where(scores[:, 0] >= 0, 1, -1)
    return float((decided != y).mean())


def same_mistakes(found: Learned, reference: Learned, epochs: int) -> Finding:
    """Whether a run made the mistakes that a reference run made on its first rows in one epoch, and all its epochs.

    Example:
        >>> X, y = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), np.array([1, -1, 1])
        >>> same_mistakes(by_rule(X, y, 1)(), by_rule(X[:2], y[:2], 1, engine="reference")(), epochs=1)
        Finding(ok=True, text='100 % mistakes per row; the first 2 rows as the reference')
    """
    assert found.result is not None
    assert reference.result is not None
    log, expected = found.result.log, reference.result.log
    first = log.step < expected.steps
    pairs = ((log.sample, expected.sample), (log.step, expected.step), (log.predicted, expected.predicted))
    share = len(log) / log.steps
    rate = f"{100 * share:.{0 if share >= 0.095 else 1 if share >= 0.01 else 2}f} % mistakes per row"
    if not all(torch.equal(a[first], b) for a, b in pairs):
        return Finding(False, f"{rate}; not the mistakes of the reference on the first {expected.steps:,} rows")
    if found.result.epochs != epochs:
        return Finding(False, f"{rate}; stopped after {found.result.epochs} of {epochs} epochs")
    return Finding(True, f"{rate}; the first {expected.steps:,} rows as the reference")
