"""The compiled loops, shared out to parallel workers, so that in a fresh clone each is compiled once and not by all."""

import io
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import torchperc as tp

LAYOUTS = list(product((None, 3), (False, True)))


def data(classes, sparse, dtype=np.float64):
    X = np.random.default_rng(0).integers(-3, 4, (300, 6)).astype(dtype)
    y = np.where(X[:, 0] > 0, 1, -1) if classes is None else X[:, :classes].argmax(1)
    return (sp.csr_array(X) if sparse else X), y


def net(classes, dtype=torch.float64):
    return tp.Perceptron(6, dtype=dtype) if classes is None else tp.MulticlassPerceptron(6, classes, dtype=dtype)


def rule():
    for dtype, (classes, sparse) in product(("float64", "float32"), LAYOUTS):
        X, y = data(classes, sparse, dtype)
        tp.RuleTrainer(max_epochs=1, engine="compiled").fit(net(classes, getattr(torch, dtype)), X, y)


def two_cores():
    from torchperc.rules.engines import compiled
    from torchperc.samples import compiling

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling, "cores", lambda: 2)
        for name in ("_STRETCH", "_LOOK", "_SPARSE_STRETCH", "_SPARSE_LOOK"):
            patch.setattr(compiled, name, 1)
        for classes, sparse in LAYOUTS:
            tp.RuleTrainer(max_epochs=2, engine="compiled").fit(net(classes), *data(classes, sparse))


def sweeps():
    for classes, sparse in LAYOUTS:
        tp.sweep(*data(classes, sparse), num_classes=classes, seeds=[0], max_epochs=1)


def descent():
    for (classes, sparse), weights in product(LAYOUTS, (None, np.ones(300))):
        X, y = data(classes, sparse)
        tp.descend(net(classes), tp.LMSHead(), X, y, lr=0.01, engine="compiled", sample_weight=weights)
        if classes is None:  # real targets are numbers of another type
            tp.descend(net(None), tp.RegressionHead(), X, y + 0.5, lr=0.01, engine="compiled", sample_weight=weights)


def chains():
    X, y = np.random.default_rng(0).integers(0, 2, (9, 5, 4)).astype(float), np.zeros((9, 5), int)
    for scale in (1.0, 0.5):  # integers learn in float32
        result = tp.RuleTrainer(1, engine="compiled").fit(tp.sequences.ChainPerceptron(4, 3), scale * X, y)
        result.predict(X)
        result.log.averaged()
    tp.sequences.ChainPerceptron(4, 3, dtype=torch.float64).predict(list(X))


def taggers():
    corpus = tp.sequences.Corpus.of(tp.data.tagged_sentences(200))
    for buckets in (None, 2**8):
        tagger = tp.sequences.Tagger.fit(corpus, epochs=1, buckets=buckets)
        list(tagger.tagged_lines(io.BytesIO(b"The dog. A cat")))
    tagger.evaluate(corpus)


def token_features():
    from torchperc.sequences import Corpus, FeatureMap, iter_blocks

    corpus = Corpus.of([["the", "dög"]])
    for features in (FeatureMap(), FeatureMap(buckets=64)):
        features.fit(corpus)
        features.transform(corpus)
    for text in (b"a b\n\n", b"a/b\n"):
        list(iter_blocks(io.BytesIO(text)))


LOOPS = {
    "loops.learn": chains,
    "learn.learn": rule,
    "token_loops.split_text": taggers,
    "many.sweep_one": sweeps,
    "loops.descend": descent,
    "two_cores.learn_ahead": two_cores,
    "feature_loops.number_features": token_features,
}


def compile_some(worker: int, workers: int) -> None:
    """What one worker compiles, unless it was compiled before; two workers take about as long as each other."""
    for name in list(LOOPS)[worker::workers]:
        if not any(Path(tp.__file__).parent.rglob(f"{name}-*.nbi")):
            LOOPS[name]()
