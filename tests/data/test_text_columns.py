"""Columns of free text: their features against scikit-learn's, how they are named, what is refused."""

from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from messages import messages, save

from torchperc.data import Batches, CsrParts, PreparedData, TableEncoder, load, read
from torchperc.data.text_features import MOST, Counts, ngrams

TOKEN = r"\w+(?:['’]\w+)*|[^\w\s]+"


def vectorizer(**options):
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(token_pattern=TOKEN, ngram_range=(1, 2), sublinear_tf=True, **options)


@given(st.lists(st.text("ab ,!é\n'’1_Ⅷß", max_size=12), min_size=1, max_size=6))
def test_any_text_is_a_row_as_of_sklearn(texts):
    counts = Counts()
    counts.add(Counter(texts))
    if not any(map(ngrams, texts)):
        return
    vocabulary = counts.vocabulary()
    X, oracle = vocabulary.features(texts), vectorizer(vocabulary=list(vocabulary.words)).fit(texts)
    np.testing.assert_allclose(X.toarray(), oracle.transform(texts).toarray(), rtol=1e-15, atol=0)
    once = [vocabulary.features([text]).toarray()[0].tolist() for text in texts]
    assert X.toarray().tolist() == once  # to the bit, whatever is beside it


def test_words_and_which_of_them_are_kept():
    assert ngrams("") == ngrams(" \n") == []
    assert ngrams("Ich weiß 😀👍!") == ["ich", "weiß", "😀👍!", "ich weiß", "weiß 😀👍!"]
    assert ngrams("cafe\u0301") == ngrams("CAFÉ") == ["café"]
    counts, many = Counts(), Counts()
    counts.add({"a b": 1, "c": 1})
    assert counts.vocabulary().words == ("a", "a b", "b", "c")  # as nothing is in two rows
    counts.add({"a": 1})
    assert counts.vocabulary().words == ("a",)
    many.add({f"w{number}": 2 for number in range(MOST)} | {"zebra": 3})
    kept = many.vocabulary().words
    assert len(kept) == MOST
    assert ("zebra" in kept, f"w{MOST - 1}" in kept, "w99999" in kept) == (True, True, False)  # the last to sort goes


def test_text_beside_numbers_and_categories(tmp_path):
    rows = [
        (i or "", ["red", "green", ""][i % 3] if i > 5 else "red", text, text.split()[0], label)
        for i, (text, label) in enumerate(messages(60))
    ]
    names = ("age", "colour", "message", "first", "label")
    path = save(tmp_path / "m.csv", rows, names)
    made = read(path, missing="mean", text=["message", "first"])
    assert made.encoder.text_columns == ("message", "first")
    frame = pd.read_csv(path)
    assert made.X.has_sorted_indices
    X = made.X.toarray()
    start = 3 + len(made.encoder.columns[2].features)
    oracle = vectorizer(min_df=2).fit_transform(frame.message).toarray()
    np.testing.assert_allclose(X[:, 3:start], oracle, rtol=1e-13, atol=1e-16)
    np.testing.assert_allclose(X[:, start:], vectorizer(min_df=2).fit_transform(frame["first"]).toarray(), rtol=1e-13)
    dense = read(
        save(tmp_path / "d.csv", [(*row[:2], row[-1]) for row in rows], ("age", "colour", "label")), missing="mean"
    )
    assert np.array_equal(X[:, :3], dense.X.numpy())
    assert made.missing_positions.tolist() == dense.missing_positions.tolist()
    assert made.encoder.imputed_values == (*dense.encoder.imputed_values, *[0.0] * (X.shape[1] - 3))
    streamed = read(path, missing="mean", text=["message", "first"], stream=True)
    assert isinstance(streamed.X, CsrParts)
    assert np.array_equal(streamed.X.load(0).toarray(), X)
    assert streamed.missing_positions.tolist() == made.missing_positions.tolist()
    assert streamed.encoder == made.encoder
    cut = PreparedData(made)
    fills = np.array(cut.encoder.imputed_values)
    assert not fills[3:].any()
    assert np.array_equal(fills[:3], PreparedData(dense).encoder.imputed_values)
    assert TableEncoder.from_json(cut.encoder.to_json()) == cut.encoder


def test_new_files_and_missing_texts(tmp_path):
    rows = messages(80)
    rows[7] = ("", "ham")
    path = save(tmp_path / "m.csv", rows)
    with pytest.raises(ValueError, match=r"line \d+, column 'message': the value is missing .*missing='drop'"):
        read(path, text="message")
    assert read(path, missing="drop", text="message").dropped == 1
    made = read(path, missing="mean", text="message")
    assert made.X[[7]].nnz == 0
    assert not len(made.missing_positions)
    (new,) = Batches(path, made.encoder)
    assert (made.X != new.X).nnz == 0
    unknown = save(tmp_path / "u.csv", [("unheard 文", "x")])
    assert next(iter(Batches(unknown, made.encoder))).X.nnz == 0
    strict = read(save(tmp_path / "s.csv", messages(80)), text="message").encoder
    with pytest.raises(
        ValueError, match="column 'message': the value is missing; fill it in, or train with missing='mean'"
    ):
        list(Batches(path, strict))


def column_of(tmp_path, values, **options):
    path = save(tmp_path / "c.csv", [(value, "ab"[i % 2]) for i, value in enumerate(values)], ("c", "label"))
    return read(path, **options).encoder.columns[0]


@pytest.mark.parametrize("value", ["A{0:05}", "number {0} of these many words"])
def test_text_is_never_recognised_by_itself(tmp_path, value):
    values = [value.format(number) for number in range(60)]
    with pytest.raises(ValueError, match=r"looks like an identifier: .*ignore='c'.*categories='c'.*text='c'"):
        column_of(tmp_path, values)
    assert column_of(tmp_path, values, text="c").vocabulary is not None
    assert column_of(tmp_path, values, categories="c").levels is not None
    assert column_of(tmp_path, values[:50]).levels is not None  # few are levels


def test_text_in_other_files(tmp_path):
    rows = messages(60)
    table = pa.table({"message": [text for text, _ in rows], "label": [label for _, label in rows]})
    pq.write_table(table, tmp_path / "m.parquet")
    made, same = load(tmp_path / "m.parquet", text=["message"]), read(save(tmp_path / "m.csv", rows), text=1)
    assert made.encoder == same.encoder
    assert (made.X != same.X).nnz == 0
    broken = pa.Array.from_buffers(pa.string(), 2, [None, *pa.array([b"caf\xe9", b"a b"], pa.binary()).buffers()[1:]])
    pq.write_table(pa.table({"m": broken, "label": ["x", "y"]}), tmp_path / "broken.parquet")
    with pytest.raises(ValueError, match="Invalid UTF8"):
        read(tmp_path / "broken.parquet", text="m")
