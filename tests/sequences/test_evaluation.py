"""Evaluation of tags: counted by plain loops, by scikit-learn and by the seqeval package."""

from itertools import chain

import numpy as np
import pytest
from seqeval.metrics.sequence_labeling import precision_recall_fscore_support as lenient
from sklearn.metrics import confusion_matrix

from torchperc.sequences.evaluation import Counts, are_entities, evaluate

PREFIXES = {"IOB2": "BI", "IOB1": "BI", "IOBES": "BIES", "BILOU": "BILU"}


def drawn(rng, tags, sentences=30):
    """Random tags, so mostly malformed."""
    return [rng.choice(tags, size=rng.integers(1, 9)).tolist() for _ in range(sentences)]


def well_formed(rng, name, types, sentences=30):
    found = []
    for _ in range(sentences):
        tags, before = [], None
        for _ in range(rng.integers(1, 5)):
            kind, length = rng.choice([*types, None]), int(rng.integers(1, 4))
            if kind is None:
                tags += ["O"] * length
            elif name == "IOB2":
                tags += [f"B-{kind}"] + [f"I-{kind}"] * (length - 1)
            elif name == "IOB1":
                tags += [f"{'B' if before == kind else 'I'}-{kind}"] + [f"I-{kind}"] * (length - 1)
            else:
                end, single = ("E", "S") if name == "IOBES" else ("L", "U")
                inner = [f"B-{kind}"] + [f"I-{kind}"] * (length - 2) + [f"{end}-{kind}"]
                tags += [f"{single}-{kind}"] if length == 1 else inner
            before = kind
        found.append(tags)
    return found


def disturbed(rng, sentences, tags, fraction=0.2):
    return [[str(rng.choice(tags)) if rng.random() < fraction else tag for tag in each] for each in sentences]


def as_seqeval(sentences):
    """seqeval reads L and U in its strict mode only."""
    table = str.maketrans("LU", "ES")
    return [[tag[0].translate(table) + tag[1:] for tag in sentence] for sentence in sentences]


def check_against_seqeval(found, true, predicted):
    scores = lenient(true, predicted, average=None, zero_division=0)
    rows = list(found.entities.values())
    for name, values in zip(("precision", "recall", "f1", "true"), scores, strict=True):
        assert [getattr(each, name) for each in rows] == pytest.approx(list(values), abs=1e-12)
    *scores, _ = lenient(true, predicted, average="micro", zero_division=0)
    micro = found.all_entities
    assert [micro.precision, micro.recall, micro.f1] == pytest.approx(scores, abs=1e-12)


@pytest.mark.parametrize("name", PREFIXES)
@pytest.mark.parametrize("seed", range(4))
def test_entities_as_seqeval_counts_them(name, seed):
    rng = np.random.default_rng(seed)
    tags = ["O", *(f"{prefix}-{kind}" for prefix in PREFIXES[name] for kind in ("PER", "LOC-X"))]
    proper = well_formed(rng, name, ["PER", "LOC-X"])
    for true, predicted in (
        (proper, disturbed(rng, proper, tags)),
        (disturbed(rng, proper, tags, 0.1), disturbed(rng, proper, tags, 0.4)),
        ([["O"], *drawn(rng, tags)], None),
    ):
        if predicted is None:
            predicted = [rng.choice(tags, size=len(each)).tolist() for each in true]
        check_against_seqeval(evaluate(true, predicted), as_seqeval(true), as_seqeval(predicted))


def test_tags_that_are_no_entities():
    assert evaluate([["NN", "O"]], [["NN", "VB"]]).entities is None
    assert not are_entities(["O"])
    assert are_entities(["O", "B"])
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
    counts = [confusion[2] for confusion in found.confusions]
    assert counts == sorted(counts, reverse=True)
    seen = np.array([word in "xy" for word in chain.from_iterable(words)])
    assert found.known == ((right & seen).sum(), seen.sum())
    assert found.unknown == ((right & ~seen).sum(), (~seen).sum())
    assert evaluate(true, predicted).known is None


def test_what_does_not_fit_together_is_refused():
    with pytest.raises(ValueError, match="predicted and true differ in sentences or tokens"):
        evaluate([["a"]], [["a", "a"]])
    with pytest.raises(ValueError, match="true has no tokens"):
        evaluate([], [])
