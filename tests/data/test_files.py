"""Reading files: plain loops over csv, pandas, scikit-learn and pyarrow as oracles, floats to the bit, lines named."""

import bz2
import csv
import datetime
import decimal
import errno
import gc
import gzip
import importlib
import json
import math
import os
import re
from fractions import Fraction
from functools import partial
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sklearn.datasets
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array, save_npz
from tables import said_by, write

from torchperc.data import Batches, CsrParts, PreparedData, TableEncoder, load, read, svmlight, table_files

reading = importlib.import_module("torchperc.data.read")


@pytest.fixture(params=["whole", "in pieces"])
def pieces(request, monkeypatch):
    """Every file once in one piece, and once in pieces of a few bytes or rows."""
    if request.param == "in pieces":
        shrink(monkeypatch)


def shrink(monkeypatch, size=64):
    for module, name, value in ((table_files, "BLOCK", size), (svmlight, "PIECE", size), (table_files, "ROWS", 3)):
        monkeypatch.setattr(module, name, value)


def same(a, b):
    """Two data sets, to the bit."""
    X, Z = (np.asarray(d.X.numpy() if isinstance(d.X, torch.Tensor) else d.X) for d in (a, b))
    assert X.shape == Z.shape
    assert np.array_equal(X.astype(np.float64).view(np.int64), Z.astype(np.float64).view(np.int64))
    assert torch.equal(a.y, b.y)
    assert (a.labels, a.names, a.encoder, a.dropped) == (b.labels, b.names, b.encoder, b.dropped)
    assert (a.missing_positions is None) == (b.missing_positions is None)
    assert a.missing_positions is None or torch.equal(a.missing_positions, b.missing_positions)


# text against a plain loop

GAPS = ("", "NA", "N/A", "n/a", "nan", "NaN", "null", "NULL", "?")


def by_hand(table, missing):
    """Plain loops: numbers, one-hot, labels; rows with gaps dropped, or gaps filled with means; where these are."""
    kinds = [all(re.fullmatch(r"[-+.\de]+", cell) for cell in column if cell not in GAPS) for column in table]
    rows = list(zip(*table, strict=True))
    rows = [row for row in rows if missing != "drop" or not any(cell in GAPS for cell in row)]
    X, names, gaps = [[] for _ in rows], [], []
    for j, column in enumerate(list(zip(*rows, strict=True))[:-1]):
        there = [cell for cell in column if cell not in GAPS]
        levels = [None] if kinds[j] else sorted(set(there))
        for level in levels:
            names.append(f"c{j}" if level is None else f"c{j}={level}")
            values = [Fraction(float(cell)) if level is None else int(cell == level) for cell in there]
            mean, left = float(sum(values, Fraction(0)) / max(1, len(there))), iter(values)
            gaps += [[i, len(names) - 1] for i, cell in enumerate(column) if cell in GAPS]
            for out, cell in zip(X, column, strict=True):
                out.append(mean if cell in GAPS else float(next(left)))
    return X, [row[-1] for row in rows], names, sorted(gaps)


floats = st.floats(allow_nan=False, allow_infinity=False)
shown = st.one_of(
    floats.map(repr), st.integers(-(10**20), 10**20).map(str), st.floats(-1e300, 1e300).map(lambda x: f"{x:+.3e}")
)
plain_words = st.sampled_from(["red", "green", "sky blue", "a,b", 'say "hi"', "two\nlines", "ä", ";", "1 2"])


@given(
    st.data(), st.sampled_from(["error", "drop", "mean"]), st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.sampled_from([",", ";", "\t", "|"]), st.sampled_from(["\n", "\r\n"]), st.sampled_from([16, 64, 2**25]),
)  # fmt: skip
def test_tables_come_back_to_the_bit_and_gaps_as_by_hand(
    tmp_path_factory, data, missing, quoting, delimiter, end, size
):
    rows, table = data.draw(st.integers(2, 12)), []
    for _ in range(data.draw(st.integers(1, 4))):
        column = data.draw(st.lists(data.draw(st.sampled_from([shown, plain_words])), min_size=rows, max_size=rows))
        if missing != "error":
            keep, gap = data.draw(st.integers(0, rows - 1)), data.draw(st.sampled_from(GAPS))
            empty = data.draw(st.lists(st.booleans(), min_size=rows, max_size=rows))
            column = [gap if empty[i] and i != keep else cell for i, cell in enumerate(column)]
        table.append(column)
    table.append(["yes", "no", *(data.draw(st.sampled_from(["yes", "no", "perhaps"])) for _ in range(rows - 2))])
    path = tmp_path_factory.mktemp("t") / "data.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter, quoting=quoting, lineterminator=end)
        writer.writerows([[f"c{j}" for j in range(len(table))], *zip(*table, strict=True)])
    X, y, names, gaps = by_hand(table, missing)
    how = {"missing": missing, "delimiter": delimiter}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_files, "BLOCK", size)
        if len(set(y)) < 2:
            assert "one label only" in (said := said_by(lambda: read(path, **how))) or "missing" in said
            return
        made = read(path, **how)
        same(read(path, **how, stream=True), made)
    assert (made.names, made.decode(made.y), made.dropped) == (tuple(names), y, rows - len(y))
    if missing != "drop":
        again, labels = table_of(new := Batches(path, made.encoder))
        assert np.array_equal(again, made.X.numpy())
        assert labels == y
        assert len(list(new)) == len(list(new))  # may be gone through again
    X, known = np.array(X), np.ones_like(X, bool)
    known[tuple(np.array(gaps, int).reshape(-1, 2).T)] = False
    assert np.array_equal(made.X.numpy()[known], X[known])
    np.testing.assert_allclose(made.X.numpy(), X, rtol=1e-12, atol=1e-12 * np.abs(X).max())
    assert (made.missing_positions is None) == (missing != "mean")
    for i, feature in gaps:
        assert made.X[i, feature] == made.encoder.imputed_values[feature]
    assert missing != "mean" or made.missing_positions.tolist() == gaps


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("header", [True, False])
def test_delimiters_and_headers_are_found(tmp_path, delimiter, header):
    lines = ["wéight length fruit"] * header + ["1.5 2 apple", "3 -4e2 pear", "5 6 apple"]
    path = write(tmp_path, "\ufeff" + "\r\n".join(lines).replace(" ", delimiter), "fruit.txt")
    made = read(path)
    assert made.X.tolist() == [[1.5, 2], [3, -400], [5, 6]]
    assert made.names == (("wéight", "length") if header else ("1", "2"))
    assert made.encoder.n_columns == (None if header else 3)
    assert made.decode(made.y) == ["apple", "pear", "apple"]


def test_header_may_be_said(tmp_path):
    words = write(tmp_path, "red,yes\nblue,no\nred,no\nred,yes\n")
    assert read(words).names == ("red=blue", "red=red")
    assert read(words, header=False).X.tolist() == [[0, 1], [1, 0], [0, 1], [0, 1]]
    assert read(write(tmp_path, "1,2\n5,yes\n6,no\n"), header=True).X.tolist() == [[5], [6]]
    assert read(write(tmp_path, "1,a|b,x\n2,c|d,y\n1,a|b,y\n", "b.csv")).names == ("1", "2=a|b", "2=c|d")
    quoted = read(write(tmp_path, 'n,text,label\n1,"a;b;c",x\n2,"d;e;f",y\n', "c.csv"))
    assert quoted.names == ("n", "text=a;b;c", "text=d;e;f")


def test_means_of_huge_numbers_are_finite(tmp_path):
    made = read(write(tmp_path, "a,y\n1.5e308,u\n,v\n1.7e308,u\n"), missing="mean")
    assert made.X[1, 0].item() == pytest.approx(1.6e308)


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".zst", None)])
def test_packed_files_are_unpacked(tmp_path, pieces, ending, pack):
    content = "a,b\n" + "".join(f"{i},{'xy'[i % 2]}\n" for i in range(100))
    packed = pack(content.encode()) if pack else pa.compress(content.encode(), "zstd", asbytes=True)
    path = write(tmp_path, packed, f"data.csv{ending}")
    made = load(str(path))
    assert made.X.flatten().tolist() == list(range(100))
    same(read(path, stream=True), made)


def test_text_in_odd_shapes_is_read(tmp_path, pieces):
    tables = {
        "blanks around": " a , b ,c\n 1 , 2 ,x\n  3,4  , y \n",
        "plus signs": "a,b,c\n+1,+2.0,x\n3,4,y\n",
        "quoted numbers": '"a","b","c"\n"1","2","x"\n"3","4","y"\n',
        "blank after the comma": 'a,b,c\n1, "2",x\n3, 4,"y"\n',
        "empty lines": "\n\na,b,c\n\n1,2,x\n\n\n3,4,y\n\n",
        "no line end": "a,b,c\n1,2,x\n3,4,y",
        "old line ends": "a,b,c\r1,2,x\r3,4,y\r",
    }
    for name, content in tables.items():
        made = read(write(tmp_path, content))
        assert (made.X.tolist(), made.names, made.labels) == ([[1, 2], [3, 4]], ("a", "b"), ("x", "y")), name
        same(read(tmp_path / "data.csv", stream=True), made)
    inches = read(write(tmp_path, 'size,n,c\n5" pipe,1,x\n6" pipe,2,y\n5" pipe,3,"x\nz"\n'))
    assert (inches.names, inches.labels) == (('size=5" pipe', 'size=6" pipe', "n"), ("x", "x\nz", "y"))
    text = 'n,t,c\n1,u,x\n NA , "say ""hi""",y\n,,x\n4," ""hi"" you",y\n'
    filled = read(write(tmp_path, text), missing="mean")
    assert filled.names == ("n", 't="hi" you', 't=say "hi"', "t=u")
    third = pytest.approx(1 / 3)
    assert filled.X.tolist() == [[1, 0, 0, 1], [2.5, 0, 1, 0], [2.5, third, third, third], [4, 1, 0, 0]]


def test_long_cells_are_read_or_named(tmp_path, monkeypatch):
    path = write(tmp_path, f"a,c\n1,x\n2,{'y' * 200_000}\n")
    assert [*map(len, read(path).labels)] == [1, 200_000]
    write(tmp_path, f"a,c\n1,x\n2,{'y' * 5000}\n")
    shrink(monkeypatch)
    assert "is no table that can be read: straddling object" in said_by(lambda: read(path))


def test_columns_by_name_and_position(tmp_path):
    path = write(tmp_path, "id,a,zip,label\nx1,1,10,u\nx2,2,20,v\nx3,3,10,u\n")
    made = read(path, ignore="id", categories=["zip"])
    assert made.names == ("a", "zip=10", "zip=20")
    same(read(path, 4, ignore=[1], categories=3), made)
    other = read(path, "a", ignore=("id", "label"))
    assert (other.labels, other.names, other.X.tolist()) == (("1", "2", "3"), ("zip",), [[10], [20], [10]])
    assert read(path, ignore=1, positive="v").y.tolist() == [-1, 1, -1]
    levels = read(write(tmp_path, "k,c\n10,x\n9,y\n1.0,x\n+1,y\n"), categories="k")
    assert levels.names == ("k=1", "k=9", "k=10")


def test_a_column_that_turns_out_to_be_words_is_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "_HEAD", 64)
    shrink(monkeypatch)
    cells = ["1", "2.0", *["1"] * 20, *(["red", "green"] * 50), "2"]
    path = write(tmp_path, "k,c\n" + "".join(f"{cell},{'xy'[i % 2]}\n" for i, cell in enumerate(cells)))
    made = read(path)
    assert made.names == ("k=1", "k=2", "k=green", "k=red")
    assert made.X.sum(0).tolist() == [21, 2, 50, 50]
    same(read(path, stream=True), made)


# what is wrong, and where

REAL = {"task": "regression"}
BAD = {
    "word after numbers": ("a,c\n" + "1,x\n" * 40 + "oops,y\n" + "2,x\n" * 5, {}, "line 42, column 'a': 'oops' is not a number"),
    "word after quoted lines": ('t,a,c\n"p\nq",1,x\n"p\n\nq",2,y\n"p\nq",z,x\n"p\nq",4,y\n', {}, "line 7, column 'a': 'z' is not a number"),
    "missing": ("a,b,c\n1,2,x\n1,,x\n1,2,y\n", {}, "line 3, column 'b': the value is missing (in all: 1 in 'b'); correct it, impute means with missing='mean', or drop such rows with missing='drop'"),
    "missing after empty lines": ("a,c\n\n\n1,x\n\n,y\n", {}, "line 6, column 'a': the value is missing"),
    "missing label cannot be filled": ("a,c\n1,x\n2,?\n3,y\n", {"missing": "mean"}, "line 3, column 'c': the target is missing"),
    "too large": ("a,c\n1,x\n1e999,y\n", {}, "line 3, column 'a': '1e999' is not a finite number"),
    "ragged": ("a,b,c\n1,2,x\n1,2\n", {}, "line 3: 2 columns where the first line has 3"),
    "open quote": ('a,c\n1,x\n2,"y\n3,x\n4,y\n', {}, "line 3: unexpected end of data; correct it, or look for a quote that is not closed"),
    "one label": ("a,c\n1,x\n2,x\n", {}, "column 'c' has one label only: 'x'; at least two are required"),
    "empty column": ("a,b,c\n1,,x\n2,,y\n", {"missing": "mean"}, "column 'b' has no values at all; ignore it (ignore='b')"),
    "header only": ("a,b,c\n", {}, "has a header but no rows of data"),
    "one column": ("a\n1\n2\n", {}, "has one column; a feature and a label are needed"),
    "blank": ("\n \n", {}, "is empty"),
    "latin-1": ("a,c\n1,x\n2,caf\u00e9\n".encode("latin-1"), {}, "is no text in UTF-8 ('utf-8' codec can't decode byte 0xe9 in position 13: invalid continuation byte); if it comes from Windows or an old Excel, read it with encoding='cp1252'"),
    "identifier": ("id,c\n" + "".join(f"n{i},{'xy'[i % 2]}\n" for i in range(60)), {}, "column 'id' has 60 different values in 60 rows, such as 'n0', 'n1', 'n2'; it looks like an identifier: ignore it (ignore='id')"),
    "identifier as label": ("a,y\n" + "".join(f"1,n{i}\n" for i in range(60)), {}, "column 'y' has 60 different labels in 60 rows; it looks like a quantity or an identifier"),
    "index of pandas": (",a,c\n0,5,x\n1,6,y\n", {}, "column 1 has no name, like an index of pandas; rename or ignore it: ignore=1"),
    "name twice": ("a,a,c\n1,2,x\n3,4,y\n", {}, "column 1 has the name 'a' of another"),
    "no such target": ("a,c\n1,x\n", {"target": "label"}, "it has 'a', 'c'"),
    "ignored target": ("a,b,c\n1,2,x\n", {"ignore": "c"}, "ignore='c' is also in target"),
    "unknown task": ("a,c\n1,x\n", {"task": "clustering"}, "task='clustering'"),
    "word for a target": ("a,price\n1,10.5\n2,cheap\n3,12\n", REAL, "line 3, column 'price': 'cheap' is not a number; correct it or drop the row, or learn the values as classes with task='classification'"),
    "comma in a target": ('a,price\n1,10.5\n2,"9,5"\n', REAL, "line 3, column 'price': '9,5' is not a number; if that is a decimal comma, say decimal=','"),
    "long delimiter": ("a,c\n1,x\n", {"delimiter": "::"}, "delimiter='::' must be one character"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_tables_are_one_line_that_names_the_place(tmp_path, pieces, name):
    content, options, message = BAD[name]
    path = write(tmp_path, content)
    for stream in (False, True):
        said = said_by(partial(read, path, **({"stream": stream} | options)))
        assert message in said
        assert str(path) in said or "=" in said


def test_several_files_are_one_table_and_errors_name_the_file(tmp_path, pieces):
    write(tmp_path, "a,c\n1,x\n\n2,y\n", "a.csv")
    second = write(tmp_path, "a,c\n3,x\n\n4,y\n5,x\n", "b.csv")
    made = read(str(tmp_path / "*.csv"))
    assert made.X.flatten().tolist() == [1, 2, 3, 4, 5]
    same(read(str(tmp_path / "*.csv"), stream=True), made)
    write(tmp_path, "a,c\n3,x\n\noops,y\n5,x\n", "b.csv")
    assert f"{second}, line 4, column 'a': 'oops'" in said_by(lambda: read(str(tmp_path / "*.csv")))
    write(tmp_path, "3,x\n", "b.csv")
    assert f"{second} has columns '3', 'x', but" in said_by(lambda: read(str(tmp_path / "*.csv")))


PACKED = gzip.compress(b"a,b\n1,x\n2,y\n" * 2000, mtime=0)
WRONG_FILES = [
    (b"", "data.csv", "is empty"),
    (PACKED, "data.csv", "holds NUL bytes: it is compressed"),
    (PACKED[:-20], "data.csv.gz", "is not a complete file"),
    (b"a,b\n1,x\n", "data.csv.gz", "is not a complete file"),
    (b"PAR1 and nothing", "data.parquet", "is not a complete Parquet file"),
    (b"a\0,b\n1,x\n2,y\n", "data.csv", "encoding='utf-16'"),
    (b"\x93NUMPY\x01\x00", "data.npy", "is not a complete array"),
    (b"PK\x03\x04", "data.npz", "is not a complete array"),
    (PACKED, "data.npy.gz", "is not a complete array"),
    (pa.compress(b"a,b\n" * 999, "zstd", asbytes=True)[:-5], "data.csv.zst", "is not a complete file"),
    (None, "none.csv", "No such file"),
    (None, ".", "Is a directory"),
    (None, "pipe.csv", "it is a pipe or a device"),
    (b"# nothing\n", "data.svm", "has no samples in it"),
    (b"1\n0\n", "data.svm", "has no features in it"),
    (b"1 1:1\n1 2:1\n", "data.svm", "has one label only: '1'"),
    (b"1:1 2:1\n", "data.svm", "has no labels: its lines begin with index:value"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "name", "message"), WRONG_FILES)
def test_files_that_are_not_what_they_are_called(tmp_path, content, name, message):
    path = tmp_path / name if content is None else write(tmp_path, content, name)
    if name == "pipe.csv":
        os.mkfifo(path)
    said = said_by(lambda: read(path))
    assert message in said
    assert str(path) in said


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_forbidden_files(tmp_path):
    path = write(tmp_path, "a,b\n1,x\n")
    path.chmod(0)
    assert "Permission denied" in said_by(lambda: read(path))


# Parquet


def parquet(path, **columns):
    pq.write_table(pa.table(columns), path, row_group_size=5)
    return path


def test_parquet_is_read_as_the_same_table_in_text(tmp_path, pieces):
    rng = np.random.default_rng(1)
    columns = {
        "f64": rng.normal(size=30),
        "f32": rng.normal(size=30).astype(np.float32),
        "int": rng.integers(-9, 9, 30),
        "flag": rng.integers(0, 2, 30) == 1,
        "word": rng.choice(["red", "green"], 30),
        "cat": pa.array(rng.choice(["S", "M"], 30)).dictionary_encode(),
        "label": rng.integers(0, 3, 30),
    }
    path = parquet(tmp_path / "data.parquet", **columns)
    made = read(path)
    frame = pq.read_table(path).to_pandas()
    frame.astype({"f32": float}).to_csv(tmp_path / "data.csv", index=False)
    from_text = read(tmp_path / "data.csv")
    assert (made.names, made.labels) == (from_text.names, from_text.labels)
    assert torch.equal(made.X, from_text.X)
    assert torch.equal(made.y, from_text.y)
    assert made.names == ("f64", "f32", "int", "flag=False", "flag=True", "word=green", "word=red", "cat=M", "cat=S")
    same(read(path, stream=True), made)


def test_parquet_with_gaps(tmp_path, pieces):
    columns = {"a": [1.0, None, 3.0, math.nan, 2.0], "b": ["u", "v", None, "u", "u"], "y": ["p", "q", "p", "q", "q"]}
    path = parquet(tmp_path / "data.pq", **columns)
    assert "row 2, column 'a': the value is missing" in said_by(lambda: read(path))
    assert (read(path, missing="drop").X.tolist(), read(path, missing="drop").dropped) == ([[1, 1], [2, 1]], 3)
    filled = read(path, missing="mean")
    assert filled.X.tolist() == [[1, 1, 0], [2, 0, 1], [3, 0.75, 0.25], [2, 1, 0], [2, 1, 0]]
    assert filled.missing_positions.tolist() == [[1, 0], [2, 1], [2, 2], [3, 0]]
    same(read(path, missing="mean", stream=True), filled)


def test_parquet_in_other_types(tmp_path):
    decimals = pa.array([decimal.Decimal("1.50"), decimal.Decimal("2.25")])
    strings = pa.array(["1", "2"], pa.large_string())
    made = read(parquet(tmp_path / "a.parquet", a=decimals, b=strings, c=[b"3", b"4"], y=pa.array([True, False])))
    assert (made.X.tolist(), made.labels, made.y.tolist()) == ([[1.5, 1, 3], [2.25, 2, 4]], ("False", "True"), [1, -1])
    days = [datetime.date(2020, 1, 1), datetime.date(2020, 3, 2)]
    path = parquet(tmp_path / "b.parquet", day=days, a=[1, 2], y=["p", "q"])
    assert read(path).names == ("day (days)", "day (month)", "day (weekday)", "a")
    assert "b.parquet (parquet); leave it out" in said_by(lambda: read(path, header=True))
    bad = {
        "column 'a' is neither numbers nor text (Unsupported cast from list": {"a": [[1], [2]], "y": ["p", "q"]},
        "column 'a' is neither numbers nor text (Invalid UTF8": {"a": [b"\xe9", b"x"], "y": ["p", "q"]},
        "column 'a' has no values at all": {"a": pa.nulls(2), "b": [1, 2], "y": ["p", "q"]},
        "no rows of data": {"a": pa.array([], "int64"), "y": pa.array([], "string")},
    }
    for message, columns in bad.items():
        path = parquet(tmp_path / "c.parquet", **columns)
        assert message in said_by(lambda path=path: read(path, missing="mean"))
    path = parquet(path, a=np.arange(5000.0), y=["p", "q"] * 2500)
    content = bytearray(path.read_bytes())
    content[100:2000] = bytes(1900)
    path.write_bytes(content)
    assert "is not a complete Parquet file" in said_by(lambda: read(path))


# numpy


@pytest.mark.parametrize("names", [None, ("X", "y"), ("data", "target")])
def test_matrices_and_archives(tmp_path, pieces, names):
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(10, 3)), rng.integers(0, 2, 10)
    path = tmp_path / ("data.npz" if names else "data.npy")

    def saved(X):
        np.savez(path, **dict(zip(names, (X, y), strict=True))) if names else np.save(path, np.column_stack([X, y]))

    saved(X)
    made = read(path)
    assert np.array_equal(made.X.numpy(), X)
    assert (made.labels, made.names, made.decode(made.y)) == (("0", "1"), ("1", "2", "3"), [*map(str, y)])
    same(read(path, stream=True), made)
    same(read(path, "y" if names else 4), made)
    X[4, 1] = math.nan
    saved(X)
    assert "row 5, column '2': the value is missing" in said_by(lambda: read(path))
    assert read(path, missing="drop").dropped == 1
    assert "delimiter=','" in said_by(lambda: read(path, delimiter=","))
    np.save(tmp_path / "other.npy", np.column_stack([y, X[:, :1]]).astype(np.float32))
    assert np.array_equal(read(tmp_path / "other.npy", 1).X.numpy(), X[:, :1].astype(np.float32))


class Trap:
    def __reduce__(self):
        return os.mkdir, ("trap",)


TRAPPED = np.array([[Trap(), 1], [2, 3]], dtype=object)
BAD_ARRAYS = {
    "X (3,) float64": np.ones(3),
    "X (1, 2) <U1": np.array([["a", "b"]]),
    "X (2, 2) complex128": np.eye(2) * 1j,
    "is not a complete array of numbers (Array can't be memory-mapped: Python objects": TRAPPED,
    "has one column": np.ones((3, 1)),
    "target='y' is not the name of one column of": {"X": np.eye(3)},
    "holds W (3, 3) float64, y (3,) int64; a matrix of numbers X (N, d) is needed": {"W": np.eye(3), "y": [1, 2, 1]},
    "holds X (3, 3) float64, y (2,) int64": {"X": np.eye(3), "y": [1, 2]},
    "column 'y' has one label only": {"X": np.eye(3), "y": [1, 1, 1]},
    "is not a complete array of numbers": {"X": TRAPPED, "y": [1, 2]},
}


@pytest.mark.parametrize("message", BAD_ARRAYS)
def test_bad_arrays(tmp_path, monkeypatch, message):
    monkeypatch.chdir(tmp_path)
    given, path = BAD_ARRAYS[message], tmp_path / f"data.np{'z' if isinstance(BAD_ARRAYS[message], dict) else 'y'}"
    np.savez(path, **given) if isinstance(given, dict) else np.save(path, given, allow_pickle=True)
    assert message in said_by(lambda: read(path))
    save_npz(tmp_path / "data.npz", csr_array(np.eye(3)))
    assert "save sparse samples as svmlight" in said_by(lambda: read(tmp_path / "data.npz"))
    np.save(tmp_path / "data.npy", np.eye(40))
    os.truncate(tmp_path / "data.npy", 1000)
    assert "is not a complete array" in said_by(lambda: read(tmp_path / "data.npy"))
    assert not (tmp_path / "trap").exists()


# svmlight


@pytest.mark.parametrize("zero_based", [True, False])
def test_svmlight_is_read_as_by_sklearn(tmp_path, pieces, zero_based):
    rng = np.random.default_rng(3)
    X = random_array((40, 12), density=0.3, rng=rng).toarray() * 10.0 ** rng.integers(-300, 300, (40, 12))
    X, y = csr_array(np.vstack([X, np.eye(1, 12)])), rng.integers(0, 3, 41)  # the first feature occurs
    path = str(tmp_path / "data.svm")
    sklearn.datasets.dump_svmlight_file(X, y, path, zero_based=zero_based, comment="made up")
    theirs, labels = sklearn.datasets.load_svmlight_file(path, zero_based=zero_based)
    made, streamed = read(path), read(path, stream=True)
    assert (made.X.dtype, made.X.shape) == (np.float64, theirs.shape)
    for part in ("data", "indices", "indptr"):
        assert np.array_equal(getattr(made.X, part), getattr(theirs, part))
    assert made.decode(made.y) == [str(int(label)) for label in labels]
    assert made.names == tuple(str(j + (not zero_based)) for j in range(12))
    assert isinstance(streamed.X, CsrParts)
    whole = np.vstack([streamed.X.load(k).toarray() for k in range(len(streamed.X.pieces))])
    assert np.array_equal(whole, made.X.toarray())
    assert torch.equal(streamed.y, made.y)
    packed = write(tmp_path, gzip.compress((tmp_path / "data.svm").read_bytes()), "data.libsvm.gz")
    assert np.array_equal(read(packed).X.toarray(), made.X.toarray())


def test_svmlight_with_all_its_liberties(tmp_path, pieces):
    content = "# a comment: 1:2\n\n+1 1:1 2:2 # qid:3\n-1\t3:.5\r\n1.0 2:-1e-2\n-1\n  1 1:+3 10:0\n"
    made = read(write(tmp_path, "\ufeff" + content, "data.svm"))
    assert (made.labels, made.y.tolist()) == (("-1", "1"), [1, -1, 1, -1, 1])
    dense = np.zeros((5, 10))
    dense[0, :2], dense[1, 2], dense[2, 1], dense[4, 0] = (1, 2), 0.5, -0.01, 3
    assert np.array_equal(made.X.toarray(), dense)
    assert "target='a' says nothing about" in said_by(lambda: read(tmp_path / "data.svm", "a"))


BAD_LINES = (
    "1 2:1 1:1", "1,2 1:1", "1:1 2:1", "1 1:1 2", "1 1:one", "1 -1:2", "1 99999999999:2", "1 2147483647:1", "? 1:2",
    "1 1:nan", "1 1:1 1:1", "1 1:1:1", "1 :1", "1 qid:3 1:2", "caf\xe9 1:2",
)  # fmt: skip


@pytest.mark.parametrize("line", BAD_LINES)
def test_bad_lines_of_svmlight_are_named(tmp_path, pieces, line):
    path = write(tmp_path, "1 1:1\n# comment\n0 2:1\n" * 10 + f"{line}\n0 1:2\n", "data.svm", "latin-1")
    found = line.replace("\xe9", "\ufffd")
    assert f"{path}, line 31: found '{found}'; a line is: label index:value index" in said_by(lambda: read(path))


# streaming


def test_streaming_is_chosen_by_free_memory(tmp_path, monkeypatch):
    path = numbered(tmp_path / "data.csv")
    size = read(path).X.nbytes
    for free, kind in ((size * 8, torch.Tensor), (size * 2, np.memmap)):
        monkeypatch.setattr(reading, "free_memory", lambda free=free: free)
        assert isinstance(read(path).X, kind)
    svm = write(tmp_path, "1 1:1\n0 1:2\n", "data.svm")
    monkeypatch.setattr(reading, "free_memory", lambda: 1)
    assert isinstance(read(svm).X, CsrParts)


@pytest.mark.parametrize(("name", "content"), [("data.csv", "a,c\n1,x\n2,y\n"), ("data.svm", "1 1:1\n0 1:2\n")])
def test_temporary_caches_go_away(tmp_path, monkeypatch, name, content):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = read(write(tmp_path, content, name), stream=True)
    X, (folder,) = made.X, tmp_path.glob(".torchperc-cache-*")
    del made
    gc.collect()
    assert folder.exists()  # X is still held
    del X
    gc.collect()
    assert not folder.exists()


# new files through a known encoding


def table_of(new):
    parts = list(new)
    X = np.vstack([part.X.toarray() if hasattr(part.X, "toarray") else part.X.numpy() for part in parts])
    labels = None if parts[0].labels is None else [label for part in parts for label in part.labels]
    assert [part.first for part in parts] == np.cumsum([0, *(part.X.shape[0] for part in parts)])[:-1].tolist()
    return X, labels


TRAIN = "a,colour,b,label\n1,red,5,x\n2,green,6,y\n3.5,red,7,x\n"


def encoding_of(tmp_path, content=TRAIN, name="train.csv", **options):
    made = read(write(tmp_path, content, name), **options)
    return made, TableEncoder.from_json(json.loads(json.dumps(made.encoder.to_json())))


def test_columns_are_found_by_name(tmp_path, pieces):
    made, encoding = encoding_of(tmp_path)
    new = Batches(write(tmp_path, "id;b;colour;a\nu;5;red;1\nv;6; green;2\n\nw;7;red;3.5\n"), encoding)
    assert (new.extra, new.labelled) == (("id",), False)
    X, labels = table_of(new)
    assert np.array_equal(X, made.X.numpy())
    assert labels is None
    path = parquet(tmp_path / "new.parquet", colour=["red"], b=[1], label=["x"], a=[2.5])
    X, labels = table_of(Batches(path, encoding))
    assert (X.tolist(), labels) == ([[2.5, 0, 1, 1]], ["x"])


def test_arrays_through_their_encoding(tmp_path):
    X, y = np.arange(6.0).reshape(3, 2), np.array([0, 1, 0])
    np.savez(tmp_path / "data.npz", X=X, y=y)
    np.savez(tmp_path / "new.npz", X=X)
    np.save(tmp_path / "data.npy", np.column_stack([X, y]))
    np.save(tmp_path / "new.npy", X)
    for name, new in product(("data.npz", "data.npy"), ("data.npz", "new.npz", "new.npy")):
        found, labels = table_of(Batches(tmp_path / new, read(tmp_path / name).encoder))
        assert np.array_equal(found, X)
        assert labels == (["0", "1", "0"] if new == "data.npz" else None)


def test_columns_without_names_go_by_position(tmp_path):
    content = "u,1,red\nv,2,green\nu,3,red\n"
    made, encoding = encoding_of(tmp_path, content, target=1)
    assert encoding.n_columns == 3
    for content in ("u,1,red\nv,2,green\nu,3,red\n", "1,red\n2,green\n3,red\n"):
        X, labels = table_of(Batches(write(tmp_path, content), encoding))
        assert np.array_equal(X, made.X.numpy())
        assert labels == (["u", "v", "u"] if content[0] == "u" else None)
    said = said_by(lambda: Batches(write(tmp_path, "1,2,3,4\n"), encoding))
    assert "has 4 columns, but training had 3 with the target" in said


def test_svmlight_through_its_encoding(tmp_path, pieces):
    made, encoding = encoding_of(tmp_path, "1 1:1 3:2\n0 2:5\n1 1:7\n", "train.svm")
    X, labels = table_of(Batches(tmp_path / "train.svm", encoding))
    assert np.array_equal(X, made.X.toarray())
    assert labels == ["1", "0", "1"]
    X, labels = table_of(Batches(write(tmp_path, "1:3\n# comment\n2:1 3:1\n", "new.svm"), encoding))
    assert (X.tolist(), labels) == ([[3, 0, 0], [0, 1, 1]], None)
    for line, index in (("0 4:1", 4), ("1 0:1", 0)):
        path = write(tmp_path, f"1 1:1\n# comment\n{line}\n", "new.svm")
        said = said_by(lambda path=path: list(Batches(path, encoding)))
        assert f"line 3: index {index} did not occur in training, where indices went from 1 to 3" in said
    assert "but training had numbered features" in said_by(lambda: Batches(write(tmp_path, TRAIN), encoding))
    _, columns = encoding_of(tmp_path)
    assert "but training had columns 'a', 'colour', 'b'" in said_by(lambda: Batches(tmp_path / "train.svm", columns))


BAD_NEW = {
    "lost columns": ("colour,label\nred,x\n", "has no column 'a', 'b', which training had, or several of that name; it has 'colour', 'label'"),
    "no header": ("1,red,5\n", "has no column 'a', 'colour', 'b', which training had, or several of that name; it has no names"),
    "column twice": ("a,a,b,colour\n1,2,3,red\n", "has no column 'a', which training had, or several of that name"),
    "unknown level": ("a,b,colour\n1,2,red\n1,2,mauve\n", "line 3, column 'colour': 'mauve' did not occur in training; known are 'green', 'red'"),
    "word": ("a,b,colour\n1,2,red\n1,two,red\n", "line 3, column 'b': 'two' is not a number, as it was in training"),
    "missing": ("a,b,colour\n1,2,red\n\n1,,red\n", "line 4, column 'b': the value is missing"),
    "quote in an unused place": ('a,b,colour,note\n1,2,red,x\n3,4,red,"y\n5,6,red,z\n', "line 3: unexpected end of data; correct it, or look for a quote that is not closed"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_NEW)
def test_bad_new_files_are_one_line_that_names_the_place(tmp_path, pieces, name):
    content, message = BAD_NEW[name]
    _, encoding = encoding_of(tmp_path)
    path = write(tmp_path, content, "new.csv")
    said = said_by(lambda: list(Batches(path, encoding)))
    assert message in said
    assert str(path) in said
    if "column" in name or name == "no header":  # known before the first row
        said_by(lambda: Batches(path, encoding))


def test_missing_values_of_new_files_become_the_means(tmp_path):
    _, encoding = encoding_of(tmp_path, missing="mean")
    X, _ = table_of(
        Batches(write(tmp_path, "a,b,colour\n,?,\n,,\n1,2,red\n"), encoding.with_imputed_values([1, 2, 3, 4]))
    )
    assert X.tolist() == [[1, 2, 3, 4], [1, 2, 3, 4], [1, 0, 1, 2]]  # cells may all be missing


# faults: files that change, are too wide, or too large for the disk


def numbered(path, shift=0, rows=40):
    """A file of one kind with the same numbers, of which none is equal to those of another shift."""
    lines = [(i + shift, (7 * i) % 5, "xy"[i % 2]) for i in range(1, rows + 1)]
    if path.suffix == ".svm":
        path.write_text("".join(f"{label} 1:{a + 100} 2:{b}\n" for a, b, label in lines))
    elif path.suffix == ".parquet":
        columns = dict(zip(("a", "b", "c"), map(list, zip(*lines, strict=True)), strict=True))
        pq.write_table(pa.table(columns), path, row_group_size=4)
    elif path.suffix == ".npy":
        np.save(path, np.array([(a, b, label == "y") for a, b, label in lines], float))
    else:
        path.write_text("a,b,c\n" + "".join(f"{a + 100},{b},{label}\n" for a, b, label in lines))
    return path


CHANGES = {
    "truncate": lambda path: os.truncate(path, 30),
    "append": lambda path: path.write_bytes(path.read_bytes() + path.read_bytes()[-16:]),
    "replace": lambda path: os.replace(numbered(path.with_name(f"other{path.suffix}"), shift=1), path),
    "remove": os.unlink,
}
KINDS = ("csv", "svm", "parquet", "npy")
SAID = "data.{} changed while it was read; read it again"


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_file_that_changes_while_it_is_read(tmp_path, monkeypatch, kind, change):
    shrink(monkeypatch)
    path = numbered(tmp_path / f"data.{kind}")
    old = read(path)
    reader = iter(Batches(path, old.encoder))
    seen = [next(reader)]
    CHANGES[change](path)
    with pytest.raises(ValueError, match=SAID.format(kind)):
        seen.extend(reader)
    for batch in seen:
        rows = old.X[batch.first : batch.first + batch.X.shape[0]]
        assert batch.X.toarray().tolist() == rows.toarray().tolist() if kind == "svm" else batch.X.equal(rows)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_training_file_that_changes_while_it_is_read(tmp_path, monkeypatch, kind, change, stream):
    shrink(monkeypatch)
    path = numbered(tmp_path / f"data.{kind}")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def changing():  # memory is asked for between the two readings
        CHANGES[change](path)
        return 2**32

    monkeypatch.setattr(reading, "free_memory", changing)
    with pytest.raises(ValueError, match=SAID.format(kind)):
        read(path, stream=stream)
    assert not list(tmp_path.glob(".torchperc-*"))


@pytest.mark.parametrize("stream", [False, True])
def test_sparse_samples_have_indices_of_32_bits(tmp_path, stream):
    made = read(numbered(tmp_path / "data.svm"), stream=stream)
    whole = made.X.load(0) if stream else made.X
    new = next(iter(Batches(tmp_path / "data.svm", made.encoder))).X
    (train, _), *_ = PreparedData(made, scale="maxabs").parts
    for X in (whole, new, train):
        assert {X.indices.dtype, X.indptr.dtype} == {np.dtype(np.int32)}


def test_an_enormous_width_is_refused_before_memory_is_gone(tmp_path, monkeypatch):
    path = tmp_path / "wide.svm"
    path.write_text("x 1:1\ny 2147483646:1\n")
    assert "has 2,147,483,646 features, whose names and weights take 171.8 GB" in said_by(lambda: read(path))
    path.write_text("".join(f"{k} {k + 1}:1\n" for k in range(3)) + "0 300000:1\n")
    assert read(path).X.shape == (4, 300_000)
    monkeypatch.setattr(reading, "free_memory", lambda: 2**25)
    assert "has 300,000 features" in said_by(lambda: read(path))


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path, monkeypatch):
    def full(piece, dtype):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "ascontiguousarray", full)
    path = numbered(tmp_path / "data.csv")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    said = said_by(lambda: read(path, stream=True), OSError)
    assert f"cannot write the converted table to {tmp_path}" in said
    assert "No space left on device" in said
    assert list(tmp_path.iterdir()) == [path]
