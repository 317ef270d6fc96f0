"""Compile the loops that most tests use, once, before parallel workers start.

Only public functions are called, with samples in float64, dense and sparse, of two and of three classes. What else a
test needs is compiled when it runs. ``python tests/compiling.py 0 2`` does the first of two halves.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

ROOT = Path(__file__).parent.parent
CACHE = ROOT / ".pytest_cache" / "numba"  # NUMBA_CACHE_DIR of tests and of the processes that they start
LAYOUTS = list(product((None, 3), (False, True)))


def data(classes, sparse):
    import numpy as np
    import scipy.sparse as sp

    X = np.random.default_rng(0).integers(-3, 4, (300, 6)).astype(float)
    y = np.where(X[:, 0] > 0, 1, -1) if classes is None else X[:, :classes].argmax(1)
    return (sp.csr_array(X) if sparse else X), y


def net(classes):
    import torch

    import torchperc as tp

    options = {"dtype": torch.float64}
    return tp.Perceptron(6, **options) if classes is None else tp.MulticlassPerceptron(6, classes, **options)


def rule():
    import torchperc as tp

    for classes, sparse in LAYOUTS:
        result = tp.RuleTrainer(max_epochs=1, engine="compiled").fit(net(classes), *data(classes, sparse))
        result.log.averaged()


def sweeps():
    import torchperc as tp

    for classes, sparse in LAYOUTS:
        tp.sweep(*data(classes, sparse), num_classes=classes, seeds=[0], max_epochs=1)


def descent():
    import torchperc as tp

    for classes, sparse in LAYOUTS:
        tp.descend(net(classes), tp.LMSHead(), *data(classes, sparse), lr=0.01)


def chains():
    import numpy as np

    import torchperc as tp

    X, y = np.random.default_rng(0).normal(size=(9, 5, 4)), np.zeros((9, 5), int)
    chain = tp.sequences.ChainPerceptron(4, 3)
    tp.RuleTrainer(1, engine="compiled").fit(chain, X, y).log.averaged()
    chain.predict(list(X))


def taggers():
    import torchperc as tp

    sentences = [[("the", "D"), ("dog", "N"), ("barks", "V")]] * 20
    words, tags = ([[pair[place] for pair in sentence] for sentence in sentences] for place in (0, 1))
    tp.sklearn.SequenceTagger().fit(words, tags).predict(words)


JOBS = [rule, sweeps, chains, descent, taggers]


def compile_once(processes: int, say: Callable[[str], object]) -> None:
    """Compile by so many processes, unless nothing has changed since it was done before."""
    stamp = CACHE / "complete"
    newest = max(path.stat().st_mtime for path in (ROOT / "torchperc").rglob("*.py"))
    if stamp.is_file() and stamp.stat().st_mtime > newest:
        return
    say("compiling the loops that most tests use, once ...")
    shutil.rmtree(CACHE, ignore_errors=True)  # numba does not see that a function called by a cached one has changed
    commands = [[sys.executable, __file__, str(part), str(processes)] for part in range(processes)]
    for process in [subprocess.Popen(command, cwd=ROOT) for command in commands]:
        process.wait()
    CACHE.mkdir(parents=True, exist_ok=True)
    stamp.touch()


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    first, step = map(int, sys.argv[1:])
    for job in JOBS[first::step]:
        job()
