"""SequenceTagger: three kinds of sequences, and what scikit-learn does with estimators."""

import math
import pickle

import numpy as np
import pytest
import torch
from refusals import refusals
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV

import torchperc as tp
from torchperc.data import tagged_sentences
from torchperc.sequences import ChainPerceptron, Sequences, Tagger
from torchperc.sklearn import SequenceTagger

SENTENCES = tagged_sentences(60, seed=0)
WORDS, TAGS = ([[token[k] for token in sentence] for sentence in SENTENCES] for k in (0, 1))
NEW = [[word for word, _ in sentence] for sentence in tagged_sentences(20, seed=4)]


def test_words_are_tagged_as_by_the_tagger():
    ours = SequenceTagger(max_iter=3, random_state=2).fit(WORDS, TAGS)
    other = Tagger.fit(SENTENCES, epochs=3, seed=2)
    assert ours.predict(NEW) == other.apply(NEW)
    assert ours.classes_.tolist() == list(other.tags)
    assert ours.n_iter_ == len(ours.history_) == 3
    assert ours.score(WORDS, TAGS) == other.evaluate(SENTENCES).accuracy
    assert SequenceTagger(max_iter=3, random_state=2, n_jobs=-1).fit(WORDS, TAGS).predict(NEW) == ours.predict(NEW)


def test_dictionaries():
    dicts = [[{"word": word, "suffix": word[-2:], "long": len(word) > 4} for word in words] for words in WORDS]
    made = SequenceTagger(max_iter=3).fit(dicts, TAGS)
    assert made.score(dicts, TAGS) > 0.8
    with pytest.raises(TypeError, match="X has lists of words"):
        made.predict(WORDS)
    with pytest.raises(ValueError, match="templates="):
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
    again = clone(made).set_params(max_iter=3)
    assert "SequenceTagger(max_iter=3, " in repr(again)
    with pytest.raises(NotFittedError):
        again.predict(NEW)
    search = GridSearchCV(made, {"max_iter": [1, 3], "select": ["averaged", "last"]}, cv=2).fit(WORDS, TAGS)
    assert search.best_score_ > 0.5
    made.fit(WORDS, TAGS)
    assert pickle.loads(pickle.dumps(made)).predict(NEW) == made.predict(NEW)


test_data_that_do_not_fit_are_refused = refusals(
    (([], []), "X is empty"),
    ((["words"], [["x"]]), "X must be a list"),
    ((WORDS, TAGS[:-1]), "y has 59 sequences but X has 60"),
    (([["a", "b"]], [["x"]]), "one tag only"),
    (([["a", "b"], ["c"]], [["x", "y"], ["x", "y"]]), "sequence 1 has 2 tags for 1 tokens"),
    (([["a"]], ["x"]), "y must be a list"),
    (([["a", "b"]], [["x", 1]]), "found int, str"),
    (([["a", "b"], ["c"]], [[0, 1], [math.nan]]), "NaN"),
    by=lambda data: SequenceTagger().fit(*data),
)
test_wrong_options_are_refused = refusals(
    ({"select": "best-validation"}, "needs validation data"),
    ({"max_iter": 0}, "max_iter=0"),
    ({"n_jobs": 0}, "n_jobs=0"),
    by=lambda options: SequenceTagger(**options).fit(WORDS, TAGS),
)
