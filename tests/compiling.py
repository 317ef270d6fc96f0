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


def learners():
    import numpy as np
    import scipy.sparse as sp
    import torch

    import torchperc as tp

    samples = np.random.default_rng(0).integers(-3, 4, (300, 6)).astype(float)
    for classes, sparse in product((None, 3), (False, True)):
        y = samples[:, :classes].argmax(1) if classes else np.where(samples[:, 0] > 0, 1, -1)
        X = sp.csr_array(samples) if sparse else samples
        net = tp.MulticlassPerceptron(6, classes) if classes else tp.Perceptron(6)
        net = net.to(torch.float64)
        tp.RuleTrainer(max_epochs=1, engine="compiled").fit(net, X, y).log.averaged()
        tp.sweep(X, y, num_classes=classes, seeds=[0], max_epochs=1)
        tp.descend(net, tp.LMSHead(), X, y, lr=0.01)


def sequences():
    import numpy as np

    import torchperc as tp

    X, y = np.random.default_rng(0).normal(size=(9, 5, 4)), np.zeros((9, 5), int)
    chain = tp.sequences.ChainPerceptron(4, 3)
    tp.RuleTrainer(1, engine="compiled").fit(chain, X, y).log.averaged()
    chain.predict(list(X))
    words, tags = [["the", "dog", "barks"]] * 20, [["D", "N", "V"]] * 20
    tp.sklearn.SequenceTagger().fit(words, tags).predict(words)


JOBS = [learners, sequences]


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
