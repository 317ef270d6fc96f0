"""The tagger: against a plain averaged perceptron, against itself from a file, and with whatever it may be given."""

import io
import json
import os
import pickle
import select
from collections import defaultdict
from itertools import pairwise, product

import numpy as np
import pytest
import torch

from torchperc.data import tagged_sentences
from torchperc.samples.sealed import read_sealed, write_sealed
from torchperc.sequences import Corpus, FeatureMap, Tagger, Templates, evaluate
from torchperc.sequences.tagger import DESCRIPTION

TEMPLATES = Templates("U0:%x[0,0]\nU1:%x[-1,0]\nU2:%suffix[0,0,2]")
SENTENCES = tagged_sentences(60, seed=0)
TOY = [[("the", "D"), ("dog", "N"), ("runs", "V")], [("dogs", "N"), ("run", "V")], [("a", "D"), ("cat", "N")]]


@pytest.fixture(scope="module")
def tagger():
    return Tagger.fit(Corpus.of(SENTENCES), epochs=3, seed=1)


def words_of(sentences):
    return [[token[0] for token in sentence] for sentence in sentences]


# --- a plain averaged perceptron over all tag sequences ---


def active(words, place):
    before = words[place - 1] if place else "_B-1"
    return [f"U0:{words[place]}", f"U1:{before}", f"U2:{words[place][-2:]}"]


def parts(words, tags):
    found = [(name, tag) for place, tag in enumerate(tags) for name in active(words, place)]
    return [
        *found,
        ("start", tags[0]),
        *(("pair", *pair) for pair in pairwise(tags)),
        ("end", tags[-1]),
    ]


def plain(sentences, epochs, weights=None, total=None, tags="DNV"):
    """Averaged weights by brute force over all sequences of tags; ties count as mistakes, as tie='update' has it."""
    weights, total = weights or defaultdict(int), total or defaultdict(int)
    for _ in range(epochs):
        for sentence in sentences:
            words, true = [w for w, _ in sentence], tuple(t for _, t in sentence)
            ranked = sorted(
                product(range(len(tags)), repeat=len(words)),
                key=lambda codes: (-sum(weights[p] for p in parts(words, [tags[k] for k in codes])), codes[::-1]),
            )
            first = tuple(tags[k] for k in ranked[0])
            second = tuple(tags[k] for k in ranked[1])
            score = lambda found, words=words: sum(weights[p] for p in parts(words, found))  # noqa: E731
            wrong = first if first != true else second if score(second) == score(true) else None
            if wrong is not None:
                for part in parts(words, true):
                    weights[part] += 1
                for part in parts(words, wrong):
                    weights[part] -= 1
            for part, value in weights.items():
                total[part] += value
    return weights, total


def as_plain(tagger, kept):
    """The weights of a tagger by the names of their features."""
    found, names = {}, tagger.features.names()
    rows = np.repeat(kept.features, np.diff(kept.indptr))
    for row, tag, value in zip(rows, kept.tags, kept.values, strict=True):
        found[names[row], tagger.tags[tag]] = int(value)
    count = len(tagger.tags)
    found |= {("start", tagger.tags[k]): int(kept.trans[count, k]) for k in range(count)}
    pairs = product(range(count), repeat=2)
    found |= {("pair", tagger.tags[a], tagger.tags[b]): int(kept.trans[a, b]) for a, b in pairs}
    found |= {("end", tagger.tags[k]): int(kept.end[k]) for k in range(count)}
    return {name: value for name, value in found.items() if value}


def without_zeros(weights):
    return {name: value for name, value in weights.items() if value}


def test_weights_are_those_of_the_plain_program():
    found = Tagger.fit(Corpus.of(TOY), templates=TEMPLATES, epochs=3, order="given")
    epochs = found.epochs
    last, total = plain(TOY, epochs)
    assert as_plain(found, found.rest.last) == without_zeros(last)
    assert as_plain(found, found.rest.total) == without_zeros(total)
    assert found.rest.steps == epochs * len(TOY)
    expected = found.rest.total.values / found.rest.steps
    assert np.array_equal(found.weights.rows[found.weights.rows != 0], expected.astype(np.float32)[expected != 0])
    assert set(found.rest.last.features) | set(found.rest.total.features) == set(range(found.features.width))


def test_learning_goes_on_where_it_was():
    other = [[("the", "D"), ("cat", "N"), ("sleeps", "V")], [("soon", "A"), ("dogs", "N")]]
    first = Tagger.fit(Corpus.of(TOY), templates=TEMPLATES, epochs=1, order="given")
    both = first.fit_more(Corpus.of(other), epochs=1, order="given")
    last, total = plain(other, 1, *plain(TOY, 1), tags="DNVA")
    assert as_plain(both, both.rest.last) == without_zeros(last)
    assert as_plain(both, both.rest.total) == without_zeros(total)
    assert (both.rest.steps, both.epochs) == (5, 2)
    assert "sleeps" in both.vocabulary
    assert "sleeps" not in first.vocabulary


def test_new_tags_are_added_behind_the_known_ones():
    first = Tagger.fit(Corpus.of(TOY), epochs=2)
    more = first.fit_more(Corpus.of([[("quickly", "ADV"), ("run", "V")]]), epochs=3)
    assert more.tags == ("D", "N", "V", "ADV")
    assert first.tags == ("D", "N", "V")
    assert more.apply([["quickly", "run"]]) == [["ADV", "V"]]


# --- files ---


@pytest.mark.parametrize("options", [{}, {"buckets": 2**10}, {"select": "last", "decode": "beam", "beam_width": 3}])
def test_a_file_gives_the_same_tagger(tmp_path, options):
    made = Tagger.fit(Corpus.of(SENTENCES), epochs=2, **options)
    made.save(tmp_path / "m")
    read = Tagger.load(tmp_path / "m")
    new = tagged_sentences(30, seed=5)
    assert read.apply(words_of(new)) == made.apply(words_of(new))
    assert (read.tags, read.layout, read.decode, read.select) == (made.tags, made.layout, made.decode, made.select)
    assert np.array_equal(read.weights.rows, made.weights.rows)
    read.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "m").read_bytes()
    more = [tagger.fit_more(Corpus.of(new), epochs=1) for tagger in (read, made)]
    assert more[0].apply(words_of(SENTENCES)) == more[1].apply(words_of(SENTENCES))


def test_bad_files_are_refused(tmp_path, tagger):
    path = tmp_path / "m"
    tagger.save(path)
    good = path.read_bytes()
    for content, message in (
        (b"", "damaged"),
        (b"not a model at all", "damaged"),
        (good[:-3], "damaged"),
        (good[:-1] + bytes([good[-1] ^ 1]), "checksum does not match"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            Tagger.load(path)
    write_sealed(path, {"weight": torch.ones(2)}, {})
    with pytest.raises(ValueError, match="is not a tagger"):
        Tagger.load(path)
    with pytest.raises(ValueError, match="no such tagger"):
        Tagger.load(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="no such tagger"):
        Tagger.load(tmp_path)


def test_files_whose_parts_do_not_fit_are_refused(tmp_path, tagger):
    tagger.save(tmp_path / "m")
    tensors, texts, _ = read_sealed(tmp_path / "m")
    state = json.loads(texts[DESCRIPTION])

    def changed(**others):
        path = tmp_path / "".join(others)
        write_sealed(path, {**tensors, **others.pop("tensors", {})}, {DESCRIPTION: json.dumps({**state, **others})})
        return path

    for made, message in (
        (lambda: changed(format=9, torchperc="7.0"), "format 9, written by torchperc 7.0"),
        (lambda: changed(tags=["a", "b"]), "do not fit"),
        (lambda: changed(tensors={"total.features": tensors["total.features"] + 10**6}), "do not fit"),
        (lambda: changed(tensors={"total.tags": (tensors["total.tags"].int() + 8).to(torch.uint16)}), "do not fit"),
        (lambda: changed(tensors={"last.indptr": tensors["last.indptr"] + 1}), "do not fit"),
        (lambda: changed(tensors={"vocabulary.ends": tensors["vocabulary.ends"] + 10**6}), "ends"),
        (lambda: changed(tensors={"total.tags": tensors["total.tags"].double()}), "do not fit"),
        (lambda: changed(layout={}), "missing"),
        (lambda: changed(layout={**state["layout"], "place": -1}), "place"),
        (lambda: changed(steps="3"), "steps"),
        (lambda: changed(epochs=-1), "epochs"),
        (lambda: changed(tags=[state["tags"][0]] * len(state["tags"])), "tags are not different strings"),
        (lambda: changed(tags=list(range(len(state["tags"])))), "tags are not different strings"),
        (lambda: changed(tensors={"total.features": tensors["total.features"].flip(0)}), "do not fit"),
        (lambda: changed(tensors={"total.values": tensors["total.values"][:, None]}), "do not fit"),
        (lambda: changed(decode="best"), "decode"),
    ):
        with pytest.raises(ValueError, match=message):
            Tagger.load(made())


# --- tags ---


def test_it_learns_a_grammar(tagger):
    new = tagged_sentences(100, seed=9)
    found = tagger.evaluate(Corpus.of(new))
    predicted = tagger.apply(words_of(new))
    expected = evaluate([[tag for _, tag in sentence] for sentence in new], predicted)
    assert found.accuracy == expected.accuracy > 0.8
    known = {word for sentence in SENTENCES for word, _ in sentence}
    flags = [word in known for sentence in new for word, _ in sentence]
    assert found.known[1] == sum(flags)
    assert found.unknown[1] == len(flags) - sum(flags)
    confusion = found.worst[0]
    example = confusion.examples[0]
    assert new[example.sentence][example.place][1] == confusion.true
    assert predicted[example.sentence][example.place] == confusion.predicted


def test_columns_with_tags_or_without(tagger):
    words = words_of(SENTENCES[:5])
    expected = tagger.apply(words)
    assert tagger.apply(Corpus.of(SENTENCES[:5])) == expected
    assert tagger.apply(words, n_jobs=2) == tagger.apply(words, n_jobs=-1) == expected
    with pytest.raises(ValueError, match="3 columns, but the tagger was trained on 1 besides the tag"):
        tagger.apply([[("a", "b", "c")]])
    with pytest.raises(ValueError, match="1 column and no tags"):
        tagger.evaluate(Corpus.of(words))
    with pytest.raises(ValueError, match="one column only, so there is no column of tags"):
        Tagger.fit(Corpus.of(words))
    with pytest.raises(ValueError, match="one tag only, 'D'"):
        Tagger.fit(Corpus.of([[("the", "D")]]))


def test_any_column_may_be_the_tag():
    moved = [[(tag, word, word.upper()) for word, tag in sentence] for sentence in SENTENCES]
    made = Tagger.fit(Corpus.of(moved), 0, epochs=2)
    assert made.layout.place == 0
    pairs = [[(word, upper) for _, word, upper in sentence] for sentence in moved]
    assert made.apply(pairs) == made.apply(Corpus.of(moved))
    with pytest.raises(ValueError, match="plain text has words only"):
        list(made.tagged_lines(io.BytesIO(b"a b"), format="text"))


def test_the_true_tags_are_never_features():
    made = Tagger.fit(Corpus.of(SENTENCES), epochs=2)
    moved = Corpus.of([[(tag, word) for word, tag in sentence] for sentence in SENTENCES])
    both = made.evaluate(moved, 0), made.evaluate(Corpus.of(SENTENCES))
    assert both[0].accuracy == both[1].accuracy
    assert both[0].known == both[1].known
    dev = []
    more = [
        made.fit_more(corpus, column, dev=corpus, epochs=2, watch=dev.append)
        for corpus, column in ((moved, 0), (Corpus.of(SENTENCES), None))
    ]
    assert more[0].vocabulary.words() == more[1].vocabulary.words()
    assert np.array_equal(more[0].weights.rows, more[1].weights.rows)
    assert [each.dev for each in dev[:2]] == [each.dev for each in dev[2:]]
    with pytest.raises(ValueError, match="1 column, but the tagger was trained on 1 besides the tag"):
        made.evaluate(Corpus.of(words_of(SENTENCES)), 0)
    named = Tagger.fit(Corpus.of(SENTENCES, names=["word", "tag"]), epochs=1)
    with pytest.raises(ValueError, match="'word' was a feature in training, so it cannot be the column of tags"):
        named.evaluate(Corpus.of(SENTENCES, names=["word", "tag"]), "word")


def test_too_many_tags_are_refused_by_number():
    corpus = Corpus.of([[("a", str(number)) for number in range(2**15 + 1)]], name="x.conll")
    message = "x.conll has 32,769 different tags, and at most 32,768 are possible; is the right column chosen"
    with pytest.raises(ValueError, match=message):
        Tagger.fit(corpus)
    with pytest.raises(ValueError, match="has 32,772 different tags"):
        Tagger.fit(Corpus.of(TOY), epochs=1).fit_more(corpus)


def test_unknown_tags_count_as_wrong_and_are_named(tagger):
    found = tagger.evaluate(Corpus.of([[("the", "DET"), ("dog", "ANIMAL")], [("dog", "ANIMAL"), ("x", "Z")]]))
    assert found.strange == {"ANIMAL": 2, "Z": 1}
    assert found.correct <= 1


def test_epochs_are_told_as_they_end():
    epochs = []
    dev = Corpus.of(tagged_sentences(20, seed=3))
    made = Tagger.fit(Corpus.of(SENTENCES), epochs=2, dev=dev, watch=epochs.append)
    assert [each.epoch for each in epochs] == [1, 2]
    assert epochs[-1].dev == made.evaluate(dev).accuracy
    assert epochs[0].wrong_tokens >= epochs[0].wrong_sentences >= epochs[1].wrong_sentences
    assert epochs[0].accuracy == 1 - epochs[0].wrong_tokens / sum(map(len, SENTENCES))


def test_a_sentence_of_a_million_tokens(tagger):
    text = b"the dog " * 500_000
    (piece,) = tagger.tagged_lines(io.BytesIO(text), tokenized=True)
    assert piece.tokens == 10**6
    assert piece.lines.count(b"\n") == 10**6 + 1


@pytest.mark.parametrize("jobs", [1, 2, -1])
def test_lines_of_text_and_of_tokens(tagger, tmp_path, jobs):
    text = "".join(" ".join(words) + "\n" for words in words_of(SENTENCES) * 40).encode()
    expected = tagger.apply(words_of(SENTENCES)) * 40
    blocks = list(tagger.tagged_lines(io.BytesIO(text), tokenized=True, n_jobs=jobs))
    lines = b"".join(piece.lines for piece in blocks).decode()
    assert [[line.split("\t")[1] for line in each.split("\n")] for each in lines.strip().split("\n\n")] == expected
    path = tmp_path / "x.conll"
    path.write_text("".join("".join(f"{word} {tag}\n" for word, tag in each) + "\n" for each in SENTENCES))
    (piece,) = tagger.tagged_lines(path, n_jobs=jobs)
    first = piece.lines.decode().split("\n")[0].split("\t")
    assert first == [*SENTENCES[0][0], expected[0][0]]
    with pytest.raises(ValueError, match="tokenized=True is for plain text"):
        list(tagger.tagged_lines(path, tokenized=True))


@pytest.mark.parametrize("options", [{"tokenized": True}, {"format": "conll"}])
def test_what_has_arrived_is_tagged_before_more_is_waited_for(tagger, options):
    ends = os.pipe()

    class Arrived:
        def fileno(self):
            return ends[0]

        def read1(self, size):
            assert select.select([self], [], [], 0)[0], "reading would wait"
            return os.read(ends[0], size)

        read = read1

    pieces = tagger.tagged_lines(Arrived(), n_jobs=2, **options)
    for words in (b"the\n\n", b"dog\n\n", b"a\n\n"):
        os.write(ends[1], words)
        assert next(pieces).lines.startswith(words.strip() + b"\t")
    os.close(ends[1])
    assert list(pieces) == []
    os.close(ends[0])


def test_the_net_and_a_pickle_have_the_same_decisions(tagger):
    corpus = Corpus.of(words_of(SENTENCES[:10]))
    X = tagger.features.transform(corpus)
    assert [tag for tags in tagger.net().predict(X) for tag in tags.tolist()] == tagger.codes(corpus).tolist()
    assert pickle.loads(pickle.dumps(tagger)).apply(corpus) == tagger.apply(corpus)


def test_options_are_checked():
    for options in (
        {"select": "best"},
        {"decode": "x"},
        {"beam_width": 0},
        {"epochs": 0},
        {"margin": -1},
        {"cutoff": 0},
        {"order": "random-mistake"},
    ):
        with pytest.raises(ValueError, match=next(iter(options)).replace("epochs", "max_epochs")):
            Tagger.fit(Corpus.of(TOY), **options)


def test_what_is_compared_is_checked(tagger):
    with pytest.raises(ValueError, match="worst=-1 must be at least 0"):
        tagger.evaluate(Corpus.of(SENTENCES), worst=-1)
    with pytest.raises(TypeError, match="tags must be strings, found int 1"):
        evaluate([["A", 1]], [["A", "B"]])
    with pytest.raises(ValueError, match="predicted and true differ in sentences or tokens"):
        evaluate([["A"]], [["A", "B"]])
    with pytest.raises(ValueError, match="is empty; give at least one sentence"):
        Tagger.fit([])
    with pytest.raises(ValueError, match="token 1 of X has 1 column and token 0 has 2"):
        Tagger.fit([[("a", "b"), ("c",)]])
    iob1 = [["I-PER", "I-PER", "B-PER"]]
    assert list(evaluate(iob1, iob1, strict=True).entities.notes()) == [
        "every sequence of IOB1 tags is well formed, so strict counts as conlleval does"
    ]


@pytest.mark.parametrize("cutoff", [1, 3])
def test_features_go_on_behind_those_that_are_known(cutoff):
    first, second = Corpus.of(words_of(SENTENCES[:30])), Corpus.of(words_of(SENTENCES[30:]))
    features = FeatureMap(cutoff=cutoff).fit(first)
    known = features.names()
    X = features.fit_more(second)
    assert features.names()[: len(known)] == known
    alone = FeatureMap(cutoff=cutoff).fit(second).names()
    assert set(features.names()) == {*known, *alone}
    again = features.transform(second)
    assert (X.ids.tolist(), X.indptr.tolist()) == (again.ids.tolist(), again.indptr.tolist())
    kept = np.arange(features.width)[::-2]
    fewer = features.reduced(kept)
    names = features.names()
    assert fewer.names() == [names[k] for k in kept]
    place = {number: k for k, number in enumerate(kept.tolist())}
    assert fewer.transform(second).ids.tolist() == [place[k] for k in again.ids.tolist() if k in place]
