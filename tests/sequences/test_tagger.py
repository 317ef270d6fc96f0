"""The tagger against brute force and itself from a file; evaluation against plain loops, scikit-learn and seqeval."""

import math
import pickle
from itertools import chain

import brute
import numpy as np
import pytest
import torch
from refusals import refusals
from seqeval.metrics.sequence_labeling import precision_recall_fscore_support as lenient
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import GridSearchCV

import torchperc as tp
from torchperc.data import tagged_sentences
from torchperc.rules.conventions import Order
from torchperc.samples.checksummed import write_checksummed
from torchperc.sequences import ChainPerceptron, FeatureMap, Sequences, Tagger, Templates, evaluate
from torchperc.sequences.evaluation import Counts
from torchperc.sklearn import SequenceTagger

TEMPLATES = Templates("U0:%x[0,0]\nU1:%x[-1,0]\nU2:%suffix[0,0,2]")
SENTENCES = tagged_sentences(60, seed=0)
TOY = [[("the", "D"), ("dog", "N"), ("runs", "V")], [("dogs", "N"), ("run", "V")], [("a", "D"), ("cat", "N")]]


@pytest.fixture(scope="module")
def tagger():
    return Tagger.fit(SENTENCES, epochs=3, seed=1)


def words_of(sentences):
    return [[token[0] for token in sentence] for sentence in sentences]


def test_weights_are_the_averages_of_brute_force():
    found, X = Tagger.fit(TOY, templates=TEMPLATES, epochs=2), FeatureMap(TEMPLATES).fit_transform(words_of(TOY))
    assert [epoch.wrong_sentences > 0 for epoch in found.history] == [True, True]
    tokens = np.zeros((X.tokens, X.n_features))
    tokens[np.repeat(np.arange(X.tokens), np.diff(X.indptr)), X.ids] = 1
    y = [["DNV".index(tag) for _, tag in sentence] for sentence in TOY]
    shuffled = Order("shuffled", torch.arange(len(TOY)), 0, 2)
    orders = [torch.cat(list(shuffled.epoch(epoch))).tolist() for epoch in range(2)]
    states = brute.learn(np.split(tokens, X.offsets[1:-1]), y, 3, orders)[2]
    mean = [(sum(part) / len(states)).astype(np.float32).tolist() for part in zip(*states, strict=True)]
    weights = found.weights
    assert [weights.weight.tolist(), weights.transition.tolist(), weights.end.tolist()] == mean


def test_it_learns_a_grammar(tagger):
    new = tagged_sentences(100, seed=9)
    found = tagger.evaluate(new)
    assert found == evaluate([[t for _, t in s] for s in new], tagger.apply(words_of(new)), words_of(new), tagger.words)
    assert found.accuracy > 0.85
    assert found.known[0] / found.known[1] > found.unknown[0] / found.unknown[1] > 0.5
    assert tagger.apply(new) == tagger.apply(words_of(new))
    text = "\n\n".join(" ".join(words) for words in words_of(new))
    assert [[tag for _, tag in each] for each in tagger.tag(text)] == tagger.apply(new)
    assert tagger.apply([]) == tagger.tag(" \n") == []


def test_dev_is_evaluated_whether_it_is_watched_or_not():
    dev, seen = tagged_sentences(20, seed=3), []
    watched = Tagger.fit(SENTENCES, dev=dev, epochs=3, watch=seen.append)
    alone = Tagger.fit(SENTENCES, dev=dev, epochs=3)
    assert list(watched.history) == seen
    assert [epoch.dev for epoch in alone.history] == [epoch.dev for epoch in seen]
    for epochs, record in enumerate(seen, 1):
        assert record.dev == Tagger.fit(SENTENCES, epochs=epochs).evaluate(dev).accuracy
        assert record.epoch == epochs
        assert record.accuracy == 1 - record.wrong_tokens / sum(map(len, SENTENCES))


def test_columns_behind_the_tags_are_no_features():
    wide = [[(word, tag, f"gold-{tag}") for word, tag in each] for each in SENTENCES]
    new = tagged_sentences(30, seed=4)
    for column in (1, -2):
        made = Tagger.fit(wide, column, epochs=2)
        assert made.columns == 1
        assert made.apply(new) == Tagger.fit(SENTENCES, epochs=2).apply(new)
    assert Tagger.fit(wide, epochs=2).evaluate(wide).accuracy == 1  # by both columns


def test_a_file_gives_the_same_tagger(tmp_path, tagger):
    tagger.save(tmp_path / "m")
    read, new = Tagger.load(tmp_path / "m"), tagged_sentences(30, seed=5)
    assert read.evaluate(new) == tagger.evaluate(new)
    assert (read.tags, read.columns, read.words) == (tagger.tags, tagger.columns, tagger.words)
    read.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "m").read_bytes()
    assert pickle.loads(pickle.dumps(read)).apply(new) == tagger.apply(new)
    arrays = tagger.features.arrays()
    for name, table in arrays.items():
        with pytest.raises(ValueError, match="empty"):
            FeatureMap.from_state(tagger.features.templates.text, (), {**arrays, name: table[:0]})


def test_bad_files_are_refused(tmp_path):
    path = tmp_path / "m"
    for content in (b"", b"the DT\n"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="is not a safetensors file, or is damaged"):
            Tagger.load(path)
    write_checksummed(path, {"x": torch.ones(1)}, {"other": "text"})
    with pytest.raises(ValueError, match="is not a tagger"):
        Tagger.load(path)


test_what_does_not_fit_is_refused = refusals(
    (lambda: Tagger.fit(TOY, epochs=0), "epochs=0"),
    (lambda: Tagger.fit(TOY, 0), "column=0 cannot be that of the tags"),
    (lambda: Tagger.fit(TOY, 2), "column=2 cannot be that of the tags: tokens have 2"),
    (lambda: Tagger.fit(words_of(TOY)), "tokens have 1"),
    (lambda: Tagger.fit([[("a", "X"), ("b", "X")]]), r"has 1 different tags \('X'"),
    (lambda: Tagger.fit(TOY, templates=Templates("U:%x[0,1]")), "templates name column 1"),
    (lambda: Tagger.fit(TOY, dev=words_of(TOY)), "tokens have"),
    (lambda: Tagger.fit(TOY).evaluate(TOY, 7), "column=7: tokens have 2"),
    (lambda: Tagger.fit([[(str(k), str(k)) for k in range(2**15 + 1)]]), "32,769 different tags"),
    error=ValueError,
)


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
