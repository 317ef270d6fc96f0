"""SequenceTagger: three kinds of sequences, and what scikit-learn does with estimators."""

import math
import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score

import torchperc as tp
from torchperc.data import tagged_sentences
from torchperc.sequences import ChainPerceptron, Sequences, Tagger
from torchperc.sklearn import SequenceTagger

SENTENCES = tagged_sentences(60, seed=0)
WORDS = [[word for word, _ in sentence] for sentence in SENTENCES]
TAGS = [[tag for _, tag in sentence] for sentence in SENTENCES]
NEW = [[word for word, _ in sentence] for sentence in tagged_sentences(20, seed=4)]


def test_words_are_tagged_as_by_the_tagger():
    ours = SequenceTagger(max_iter=3, random_state=2).fit(WORDS, TAGS)
    other = Tagger.fit(SENTENCES, epochs=3, seed=2)
    assert ours.predict(NEW) == other.apply(NEW)
    assert ours.classes_.tolist() == list(other.tags)
    assert (ours.n_iter_, len(ours.history_)) == (3, 3)
    flat = [
        a == b for true, found in zip(TAGS, ours.predict(WORDS), strict=True) for a, b in zip(true, found, strict=True)
    ]
    assert ours.score(WORDS, TAGS) == np.mean(flat)
    assert SequenceTagger(max_iter=3, random_state=2, n_jobs=-1).fit(WORDS, TAGS).predict(NEW) == ours.predict(NEW)


def test_dictionaries():
    dicts = [[{"word": word, "suffix": word[-2:], "long": len(word) > 4} for word in words] for words in WORDS]
    made = SequenceTagger(max_iter=3).fit(dicts, TAGS)
    assert made.score(dicts, TAGS) > 0.8
    with pytest.raises(
        TypeError, match="X has lists of words, or of tuples of strings, but fit was given lists of dict"
    ):
        made.predict(WORDS)
    with pytest.raises(ValueError, match=r"templates=.* is for words"):
        SequenceTagger(templates="U:%x[0,0]").fit(dicts, TAGS)


@pytest.mark.parametrize("select", ["averaged", "last", "pocket"])
def test_arrays_are_learned_as_by_the_trainer(select):
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(rng.integers(2, 6), 3)) for _ in range(12)]
    y = [(x[:, 0] > 0).astype(int).tolist() for x in X]
    ours = SequenceTagger(max_iter=2, select=select, random_state=3).fit(X, y)
    net = ChainPerceptron(3, 2, dtype=torch.float64)
    result = tp.RuleTrainer(max_epochs=2, select=select, order="shuffled", seed=3).fit(net, Sequences.of(X), y)
    assert ours.predict(X) == [tags.tolist() for tags in result.predict(X)]
    assert (ours.mistakes_, ours.verdict_) == (result.mistakes, result.verdict)
    assert type(ours.predict(X)[0][0]) is int
    with pytest.raises(ValueError, match="features"):
        ours.predict([np.ones((2, 4))])


@pytest.mark.slow
def test_scikit_learn_does_what_it_does_with_estimators():
    made = SequenceTagger(max_iter=2, templates="U0:%x[0,0]\nU1:%suffix[0,0,2]")
    assert made.get_params()["max_iter"] == 2
    again = clone(made).set_params(max_iter=3)
    assert again.max_iter == 3
    assert "SequenceTagger(" in repr(again)
    with pytest.raises(NotFittedError):
        again.predict(NEW)
    scores = cross_val_score(made, WORDS, TAGS, cv=3)
    assert scores.shape == (3,)
    assert scores.min() > 0.5
    search = GridSearchCV(made, {"max_iter": [1, 3], "select": ["averaged", "last"]}, cv=2).fit(WORDS, TAGS)
    assert search.best_estimator_.predict(NEW) == search.predict(NEW)
    made.fit(WORDS, TAGS)
    assert pickle.loads(pickle.dumps(made)).predict(NEW) == made.predict(NEW)


@pytest.mark.parametrize(
    ("X", "y", "error", "message"),
    [
        ([], [], ValueError, "X is empty"),
        ("words", ["x"], TypeError, "X must be a list of sequences"),
        (["words"], [["x"]], TypeError, "each a list of tokens"),
        ([["a"], []], [["x"], []], ValueError, "one tag only|empty"),
        (WORDS, TAGS[:-1], ValueError, "X has 60 sequences and y has 59"),
        ([["a", "b"]], [["x"]], ValueError, "one tag only"),
        ([["a", "b"], ["c"]], [["x", "y"], ["x", "y"]], ValueError, "sequence 1 has 1 tokens and 2 tags"),
        ([["a"]], ["x"], TypeError, "y must be a list with a list of tags"),
        ([["a", "b"]], [["x", 1]], TypeError, "strings, or integers"),
        ([["a", "b"], ["c"]], [["x", "y"], [None]], TypeError, "NoneType"),
        ([["a", "b"], ["c"]], [[0, 1], [math.nan]], TypeError, "NaN"),
        ([["a", "b"]], [[("x", 1), ("y", 2)]], TypeError, "tuple"),
    ],
)
def test_what_does_not_fit_is_refused(X, y, error, message):
    with pytest.raises(error, match=message):
        SequenceTagger().fit(X, y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"select": "best-validation"}, "needs validation data"),
        ({"select": "x"}, "select='x' is unknown"),
        ({"max_iter": 0}, "max_iter=0"),
        ({"n_jobs": 0}, "n_jobs=0"),
    ],
)
def test_options_are_checked_by_fit(options, message):
    with pytest.raises(ValueError, match=message):
        SequenceTagger(**options).fit(WORDS[:2], TAGS[:2])
