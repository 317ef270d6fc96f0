"""The tagger: against a plain averaged perceptron, against itself from a file, and with whatever it may be given."""

import pickle
from collections import defaultdict
from itertools import pairwise, product

import numpy as np
import pytest
import torch

from torchperc.data import tagged_sentences
from torchperc.rules.conventions import Order
from torchperc.samples.checksummed import write_checksummed
from torchperc.sequences import ChainPerceptron, Tagger, Templates, evaluate

TEMPLATES = Templates("U0:%x[0,0]\nU1:%x[-1,0]\nU2:%suffix[0,0,2]")
SENTENCES = tagged_sentences(60, seed=0)
TOY = [[("the", "D"), ("dog", "N"), ("runs", "V")], [("dogs", "N"), ("run", "V")], [("a", "D"), ("cat", "N")]]


@pytest.fixture(scope="module")
def tagger():
    return Tagger.fit(SENTENCES, epochs=3, seed=1)


def words_of(sentences):
    return [[token[0] for token in sentence] for sentence in sentences]


# --- a plain averaged perceptron over all tag sequences ---


def active(words, place):
    before = words[place - 1] if place else "_B-1"
    return [f"U0:{words[place]}", f"U1:{before}", f"U2:{words[place][-2:]}"]


def parts(words, tags):
    found = [(name, tag) for place, tag in enumerate(tags) for name in active(words, place)]
    return [*found, ("start", tags[0]), *(("pair", *pair) for pair in pairwise(tags)), ("end", tags[-1])]


def best(words, weights, tags):
    score = lambda codes: sum(weights[part] for part in parts(words, [tags[k] for k in codes]))  # noqa: E731
    codes = min(product(range(len(tags)), repeat=len(words)), key=lambda codes: (-score(codes), codes[::-1]))
    return [tags[k] for k in codes]


def plain(sentences, epochs, tags="DNV"):
    """The sum of the weights after each sentence, by brute force over all sequences of tags, and how many they were."""
    weights, total, steps = defaultdict(int), defaultdict(int), 0
    orders = Order("shuffled", torch.arange(len(sentences)), 0, epochs)
    for epoch in range(epochs):
        for i in torch.cat(list(orders.epoch(epoch))).tolist():
            words, true = zip(*sentences[i], strict=True)
            for sign, found in ((1, list(true)), (-1, best(words, weights, tags))):
                for part in parts(words, found):
                    weights[part] += sign
            for part, value in weights.items():
                total[part] += value
            steps += 1
    return total, steps


def test_weights_are_those_of_the_plain_program():
    found = Tagger.fit(TOY, templates=TEMPLATES, epochs=2)
    assert [epoch.wrong_sentences > 0 for epoch in found.history] == [True, True]
    total, steps = plain(TOY, 2)
    pairs = [[total["pair", tag, after] for after in found.tags] for tag in found.tags]
    starts, ends = ([total[place, tag] for tag in found.tags] for place in ("start", "end"))
    assert found.weights.transition.tolist() == (np.array([*pairs, starts]) / steps).astype(np.float32).tolist()
    assert found.weights.end.tolist() == (np.array(ends) / steps).astype(np.float32).tolist()
    net = ChainPerceptron(found.features.n_features, 3)
    found.weights.write_to(net)
    for words in words_of(TOY):
        scores = net(found.features.transform([words]).padded()).emission[0]
        for place in range(len(words)):
            own = [sum(total[name, tag] for name in active(words, place)) / steps for tag in found.tags]
            assert scores[place].tolist() == pytest.approx(own, abs=1e-6)
        assert found.apply([words]) == [best(words, total, "DNV")]


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
    assert [epoch.dev for epoch in Tagger.fit(SENTENCES, epochs=2).history] == [None, None]


def test_columns_behind_the_tags_are_no_features():
    wide = [[(word, tag, f"gold-{tag}") for word, tag in each] for each in SENTENCES]
    new = tagged_sentences(30, seed=4)
    for column in (1, -2):
        made = Tagger.fit(wide, column, epochs=2)
        assert made.columns == 1
        assert made.apply(new) == Tagger.fit(SENTENCES, epochs=2).apply(new)
    both = Tagger.fit(wide, epochs=2)
    assert (both.columns, both.tags[0][:5]) == (2, "gold-")
    assert both.evaluate(wide).accuracy == 1
    with pytest.raises(ValueError, match="1 column, and 2 are needed"):
        both.apply(words_of(new))


def test_a_file_gives_the_same_tagger(tmp_path, tagger):
    tagger.save(tmp_path / "m")
    read, new = Tagger.load(tmp_path / "m"), tagged_sentences(30, seed=5)
    assert read.evaluate(new) == tagger.evaluate(new)
    assert (read.tags, read.columns, read.words) == (tagger.tags, tagger.columns, tagger.words)
    read.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "m").read_bytes()
    assert pickle.loads(pickle.dumps(read)).apply(new) == tagger.apply(new)


def test_bad_files_are_refused(tmp_path, tagger):
    path = tmp_path / "m"
    tagger.save(path)
    content = path.read_bytes()
    with pytest.raises(ValueError, match="no such tagger"):
        Tagger.load(tmp_path / "nowhere")
    for damaged in (b"", content[:-9], content[:3000] + b"x" + content[3001:], b"the DT\n"):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="is not a safetensors file, or is damaged"):
            Tagger.load(path)
    write_checksummed(path, {"x": torch.ones(1)}, {"other": "text"})
    with pytest.raises(ValueError, match="is not a tagger"):
        Tagger.load(path)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Tagger.fit(TOY, epochs=0), "epochs=0"),
        (lambda: Tagger.fit(TOY, 0), "column=0 cannot be that of the tags"),
        (lambda: Tagger.fit(TOY, 2), "column=2 cannot be that of the tags: tokens have 2"),
        (lambda: Tagger.fit(words_of(TOY)), "tokens have 1"),
        (lambda: Tagger.fit([[("a", "X"), ("b", "X")]]), r"has 1 different tags \('X'"),
        (lambda: Tagger.fit(TOY, templates=Templates("U:%x[0,1]")), "templates name column 1"),
        (lambda: Tagger.fit(TOY, dev=words_of(TOY)), "tokens have"),
        (lambda: Tagger.fit(TOY).evaluate(TOY, 7), "column=7: tokens have 2"),
        (lambda: Tagger.fit([[(str(k), str(k)) for k in range(2**15 + 1)]]), "32,769 different tags"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
