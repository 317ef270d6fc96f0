"""Evaluation of tags: counted by plain loops, by scikit-learn and by the seqeval package."""

from itertools import chain

import numpy as np
import pytest
from seqeval import scheme
from seqeval.metrics import v1
from seqeval.metrics.sequence_labeling import precision_recall_fscore_support as lenient
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

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


def check_against_seqeval(found, true, predicted, **options):
    pairs = ((None, None), ("micro", found.micro), ("macro", found.macro), ("weighted", found.weighted))
    for average, ours in pairs:
        count = v1.precision_recall_fscore_support if options else lenient
        *scores, support = count(true, predicted, average=average, zero_division=0, **options)
        if average is None:
            rows = list(found.counts.values())
            assert [each.true for each in rows] == list(support)
            for name, values in zip(("precision", "recall", "f1"), scores, strict=True):
                assert [getattr(each, name) for each in rows] == list(values)
        else:
            assert [ours.precision, ours.recall, ours.f1] == pytest.approx(scores, abs=1e-12)


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
        found = evaluate(true, predicted).entities
        check_against_seqeval(found, as_seqeval(true), as_seqeval(predicted))
        if name != "IOB1":
            strict = evaluate(true, predicted, strict=True).entities
            if strict.scheme == name:
                check_against_seqeval(strict, true, predicted, scheme=getattr(scheme, name))


@pytest.mark.parametrize("name", PREFIXES)
def test_the_scheme_is_recognised_and_what_is_well_formed_is_not_complained_of(name):
    rng = np.random.default_rng(0)
    true = well_formed(rng, name, ["PER", "LOC"])
    found = evaluate(true, true).entities
    assert found.scheme == name
    assert list(found.notes()) == []
    assert found.micro.f1 == 1


def test_malformed_tags_are_counted_and_named():
    true = [["B-A", "I-A", "O", "I-A", "I-B"], ["I-B", "I-B"]]
    found = evaluate(true, [["B-A", "O", "O", "I-B", "O"], ["O", "O"]]).entities
    assert list(found.notes()) == [
        "3 true tags begin with I- without a B- before them; they are counted as conlleval counts them",
        "1 predicted tag begins with I- without a B- before it; it is counted as conlleval counts them",
    ]
    found = evaluate([["B-A", "E-A", "S-A", "I-A", "B-A", "O"]], [["O"] * 6]).entities
    assert found.malformed == {"continues an entity that has not begun": 1, "begins an entity that does not end": 2}


def test_tags_that_are_no_entities():
    assert evaluate([["NN", "O"]], [["NN", "VB"]]).entities is None
    assert not are_entities(["O"])
    assert are_entities(["O", "B"])
    plain = evaluate([["O", "B", "I", "I"]], [["O", "B", "I", "O"]]).entities
    assert plain.counts == {"_": Counts(0, 1, 1)}


def test_accuracy_per_tag_and_confusion_as_scikit_learn_counts_them():
    rng = np.random.default_rng(1)
    true = drawn(rng, ["a", "b", "c"])
    predicted = [rng.choice(["a", "b", "c", "d"], size=len(each)).tolist() for each in true]
    found = evaluate(true, predicted)
    flat_true, flat_predicted = (list(chain.from_iterable(tags)) for tags in (true, predicted))
    assert found.accuracy == np.mean(np.array(flat_true) == np.array(flat_predicted))
    assert found.right_sentences == sum(a == b for a, b in zip(true, predicted, strict=True))
    assert found.sentences == len(true)
    expected = confusion_matrix(flat_true, flat_predicted, labels=list(found.tags))
    assert found.confusion.tolist() == expected.tolist()
    rows = precision_recall_fscore_support(flat_true, flat_predicted, labels=list(found.tags), zero_division=0)
    for name, values in zip(("precision", "recall", "f1", "true"), rows, strict=True):
        assert [getattr(each, name) for each in found.per_tag.counts.values()] == pytest.approx(list(values))


def test_the_worst_confusions_have_words_and_examples():
    words = [["a", "run", "run"], [*"bcdefghijklmnopqrstuvwxyz", "run", "walk"]]
    true = [["x", "v", "v"], [*"x" * 25, "v", "v"]]
    predicted = [["x", "n", "n"], ["v", *"x" * 24, "n", "n"]]
    first, second = evaluate(true, predicted, words).worst
    assert first[:4] == ("v", "n", 4, (("run", 3), ("walk", 1)))
    assert [example[:3] for example in first.examples] == [(0, 1, 0), (0, 2, 0), (1, 25, 13)]
    assert first.examples[2].words[25 - 13] == "run"
    assert first.examples[2].words[-1] == "walk"
    assert second[:3] == ("x", "v", 1)
    assert len(evaluate(true, predicted, worst=1).worst) == 1


def test_what_does_not_fit_together_is_refused():
    with pytest.raises(ValueError, match="predicted and true differ in sentences or tokens"):
        evaluate([["a"]], [["a", "a"]])
    with pytest.raises(ValueError, match="there are no tokens"):
        evaluate([], [])
