"""Evaluation of tags: counted by plain loops, by scikit-learn and by the seqeval package."""

from itertools import chain

import numpy as np
import pytest
from seqeval.metrics.sequence_labeling import precision_recall_fscore_support as lenient
from sklearn.metrics import confusion_matrix

from torchperc.sequences import evaluate
from torchperc.sequences.evaluation import Counts

PREFIXES = {"IOB": "BI", "IOBES": "BIES", "BILOU": "BILU"}


def drawn(rng, tags, sentences=60):
    """Random tags, in part malformed."""
    return [rng.choice(tags, size=rng.integers(1, 9)).tolist() for _ in range(sentences)]


def disturbed(rng, sentences, tags, fraction):
    return [[str(rng.choice(tags)) if rng.random() < fraction else tag for tag in each] for each in sentences]


def as_seqeval(sentences):
    """seqeval reads L and U in its strict mode only."""
    table = str.maketrans("LU", "ES")
    return [[tag[0].translate(table) + tag[1:] for tag in sentence] for sentence in sentences]


@pytest.mark.parametrize("name", PREFIXES)
@pytest.mark.parametrize("seed", range(4))
def test_entities_as_seqeval_counts_them(name, seed):
    rng = np.random.default_rng(seed)
    tags = ["O", *(f"{prefix}-{kind}" for prefix in PREFIXES[name] for kind in ("PER", "LOC-X"))]
    for kinds, fraction in ((tags, 0.2), (tags[:1] + tags[1::2], 0.2), (tags, 0.9)):  # two types, one, mostly wrong
        true = drawn(rng, kinds)
        found = evaluate(true, predicted := disturbed(rng, true, kinds, fraction))
        given = as_seqeval(true), as_seqeval(predicted)
        scores = lenient(*given, average=None, zero_division=0)
        for key, values in zip(("precision", "recall", "f1", "true"), scores, strict=True):
            assert [getattr(each, key) for each in found.entities.values()] == pytest.approx(list(values), abs=1e-12)
        *scores, _ = lenient(*given, average="micro", zero_division=0)
        micro = found.all_entities
        assert [micro.precision, micro.recall, micro.f1] == pytest.approx(scores, abs=1e-12)


def test_tags_that_are_no_entities():
    assert evaluate([["NN", "O"]], [["NN", "VB"]]).entities is None
    assert evaluate([["O"]], [["O"]]).entities is None
    plain = evaluate([["O", "B", "I", "I"]], [["O", "B", "I", "O"]]).entities
    assert plain == {"_": Counts(0, 1, 1)}


def test_accuracy_and_confusions_as_scikit_learn_counts_them():
    rng = np.random.default_rng(1)
    true = drawn(rng, ["a", "b", "c"])
    predicted = [rng.choice(["a", "b", "c", "d"], size=len(each)).tolist() for each in true]
    words = [rng.choice(["x", "y", "z"], size=len(each)).tolist() for each in true]
    found = evaluate(true, predicted, words, {"x", "y"})
    flat_true, flat_predicted = (list(chain.from_iterable(tags)) for tags in (true, predicted))
    right = np.array(flat_true) == np.array(flat_predicted)
    assert found.accuracy == np.mean(right)
    assert found.right_sentences == sum(a == b for a, b in zip(true, predicted, strict=True))
    assert (found.sentences, found.tokens) == (len(true), len(right))
    matrix = confusion_matrix(flat_true, flat_predicted, labels=list("abcd"))
    expected = {(a, b): matrix[i, j] for i, a in enumerate("abcd") for j, b in enumerate("abcd") if i != j}
    assert {pair[:2]: pair[2] for pair in found.confusions} == {pair: n for pair, n in expected.items() if n}
    assert [-n for *_, n in found.confusions] == sorted(-n for *_, n in found.confusions)
    seen = np.array([word in "xy" for word in chain.from_iterable(words)])
    assert found.known == ((right & seen).sum(), seen.sum())
    assert found.unknown == ((right & ~seen).sum(), (~seen).sum())
    assert evaluate(true, predicted).known is None


def test_what_does_not_fit_together_is_refused():
    with pytest.raises(ValueError, match="predicted and true differ in sentences or tokens"):
        evaluate([["a"]], [["a", "a"]])
    with pytest.raises(ValueError, match="true has no tokens"):
        evaluate([], [])
