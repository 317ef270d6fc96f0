"""Reading files: plain loops over csv, pandas, scikit-learn and pyarrow as oracles, floats to the bit, lines named."""

import bz2
import csv
import errno
import gc
import gzip
import importlib
import json
import lzma
import math
import os
import pickle
import random
from fractions import Fraction
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sklearn.datasets
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array, save_npz

from torchperc.data import Batches, CsrParts, TableEncoder, load, read, svmlight, table_files

reading = importlib.import_module("torchperc.data.read")

WHOLE = table_files.BLOCK, svmlight.PIECE, table_files.ROWS


@pytest.fixture(params=["whole", "in pieces"])
def pieces(request, monkeypatch):
    """Every file once in one piece, and once in pieces of a few bytes or rows."""
    if request.param == "in pieces":
        shrink(monkeypatch)
    return request.param


def shrink(monkeypatch, size=64):
    monkeypatch.setattr(table_files, "BLOCK", size)
    monkeypatch.setattr(svmlight, "PIECE", size)
    monkeypatch.setattr(table_files, "ROWS", 3)


def write(folder, content, name="data.csv"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def message_of(call, kind=ValueError):
    with pytest.raises(kind) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


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


def by_hand(path, target=-1, missing="error", delimiter=","):
    """Python's csv and loops: header, numbers, one-hot, labels; missing rows dropped or filled with means."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = [[cell.strip() for cell in row] for row in csv.reader(file, delimiter=delimiter)]
    names, rows = rows[0], [row for row in rows[1:] if any(row)]
    kinds = []
    for column in zip(*rows, strict=True):
        there = [cell for cell in column if cell not in GAPS]
        kinds.append(all(is_float(cell) for cell in there))
    if missing == "drop":
        rows = [row for row in rows if not any(cell in GAPS for cell in row)]
    target = range(len(names))[target]
    X, found = [[] for _ in rows], []
    for j, name in enumerate(names):
        column = [row[j] for row in rows]
        there = [cell for cell in column if cell not in GAPS]
        if j == target:
            continue
        if kinds[j]:
            found.append(name)
            mean = float(sum(Fraction(float(cell)) for cell in there) / max(1, len(there)))
            for out, cell in zip(X, column, strict=True):
                out.append(mean if cell in GAPS else float(cell))
        else:
            for level in sorted(set(there)):
                found.append(f"{name}={level}")
                for out, cell in zip(X, column, strict=True):
                    out.append(there.count(level) / len(there) if cell in GAPS else float(cell == level))
    return X, [row[target] for row in rows], found


def is_float(cell):
    try:
        float(cell)
    except ValueError:
        return False
    return True


floats = st.floats(allow_nan=False, allow_infinity=False)
shown = st.one_of(
    floats.map(repr), st.integers(-(10**20), 10**20).map(str), st.floats(-1e300, 1e300).map(lambda x: f"{x:+.3e}")
)
plain_words = st.sampled_from(["red", "green", "sky blue", "a,b", 'say "hi"', "two\nlines", "ä", ";", "1 2"])


@st.composite
def text_tables(draw, gaps=()):
    rows, width = draw(st.integers(2, 12)), draw(st.integers(1, 4))
    table = []
    for _ in range(width):
        kind = draw(st.sampled_from([shown, plain_words]))
        column = draw(st.lists(kind, min_size=rows, max_size=rows))
        if gaps:
            holes = draw(st.lists(st.booleans(), min_size=rows, max_size=rows))
            keep = draw(st.integers(0, rows - 1))
            hole = draw(st.sampled_from(gaps))
            column = [
                hole if empty and i != keep else cell for i, (cell, empty) in enumerate(zip(column, holes, strict=True))
            ]
        table.append(column)
    labels = [
        "yes",
        "no",
        *draw(st.lists(st.sampled_from(["yes", "no", "perhaps"]), min_size=rows - 2, max_size=rows - 2)),
    ]
    return [*table, labels]


def save(path, table, quoting=csv.QUOTE_MINIMAL, delimiter=",", end="\n"):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter, quoting=quoting, lineterminator=end)
        writer.writerow([f"c{j}" for j in range(len(table))])
        writer.writerows(zip(*table, strict=True))
    return path


@given(
    text_tables(), st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]), st.sampled_from([",", ";", "\t", "|"]),
    st.sampled_from(["\n", "\r\n"]), st.sampled_from([16, 64, 2**25]),
)  # fmt: skip
def test_tables_come_back_to_the_bit(tmp_path_factory, table, quoting, delimiter, end, size):
    path = save(tmp_path_factory.mktemp("t") / "data.csv", table, quoting, delimiter, end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_files, "BLOCK", size)
        made = read(path, delimiter=delimiter)
    X, y, names = by_hand(path, delimiter=delimiter)
    assert made.names == tuple(names)
    assert made.decode(made.y) == y
    assert np.array_equal(made.X.numpy(), np.array(X))
    assert (made.missing_positions, made.dropped, made.encoder.feature_names, made.encoder.labels) == (
        None,
        0,
        made.names,
        made.labels,
    )


@given(text_tables(gaps=GAPS), st.sampled_from(["drop", "mean"]), st.sampled_from([32, 2**25]))
def test_gaps_are_dropped_or_filled_as_by_hand(tmp_path_factory, table, missing, size):
    path = save(tmp_path_factory.mktemp("t") / "data.csv", table)
    X, y, names = by_hand(path, missing=missing)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_files, "BLOCK", size)
        if len(set(y)) < 2:
            assert "one label only" in (said := message_of(lambda: read(path, missing=missing))) or "missing" in said
            return
        made = read(path, missing=missing)
        streamed = read(path, missing=missing, stream=True)
    assert made.names == tuple(names)
    assert made.decode(made.y) == y
    np.testing.assert_allclose(made.X.numpy(), np.array(X), rtol=1e-12, atol=1e-12 * np.abs(np.array(X)).max())
    assert made.dropped == (len(table[0]) - len(y) if missing == "drop" else 0)
    same(streamed, made)
    if missing == "mean":
        widths = [1 if column.levels is None else len(column.levels) for column in made.encoder.columns]
        begins = np.cumsum([0, *widths])
        holes = [
            [i, feature]
            for i in range(len(y))
            for j in range(len(widths))
            if table[j][i] in GAPS
            for feature in range(begins[j], begins[j + 1])
        ]
        assert made.missing_positions.tolist() == holes
        for i, feature in holes:
            assert made.X[i, feature] == made.encoder.imputed_values[feature]


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


def test_delimiters_of_difficult_files(tmp_path):
    piped = write(tmp_path, "1,a|b,x\n2,c|d,y\n1,a|b,y\n", "b.csv")
    assert read(piped).names == ("1", "2=a|b", "2=c|d")
    quoted = write(tmp_path, 'n,text,label\n1,"a;b;c",x\n2,"d;e;f",y\n', "c.csv")
    assert read(quoted).names == ("n", "text=a;b;c", "text=d;e;f")
    told = write(tmp_path, "a:b\n1:x\n2:y\n", "d.csv")
    assert read(told, delimiter=":").X.tolist() == [[1], [2]]


def test_header_may_be_said(tmp_path):
    words = write(tmp_path, "red,yes\nblue,no\nred,no\nred,yes\n")
    assert read(words).names == ("red=blue", "red=red")
    assert read(words, header=False).X.tolist() == [[0, 1], [1, 0], [0, 1], [0, 1]]
    numbers = write(tmp_path, "1,2\n5,yes\n6,no\n")
    assert read(numbers, header=True).names == ("1",)
    assert read(numbers, header=True).X.tolist() == [[5], [6]]


@pytest.mark.parametrize(
    ("ending", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress), (".zst", None)]
)
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
        "empty lines": "\n\na,b,c\n\n1,2,x\n   \n3,4,y\n\n,,\n,,,,\n",
        "no line end": "a,b,c\n1,2,x\n3,4,y",
        "old line ends": "a,b,c\r1,2,x\r3,4,y\r",
    }
    for name, content in tables.items():
        made = read(write(tmp_path, content))
        assert (made.X.tolist(), made.names, made.labels) == ([[1, 2], [3, 4]], ("a", "b"), ("x", "y")), name
        same(read(tmp_path / "data.csv", stream=True), made)
    inches = read(write(tmp_path, 'size,n,c\n5" pipe,1,x\n6" pipe,2,y\n5" pipe,3,x\n'))
    assert inches.names == ('size=5" pipe', 'size=6" pipe', "n")


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


def test_labels_are_numbers_in_one_way(tmp_path, pieces):
    path = write(tmp_path, "a,y\n1,1\n2,1.0\n3,+2\n4, 2 \n5,10\n")
    made = read(path)
    assert (made.labels, made.decode(made.y)) == (("1", "2", "10"), ["1", "1", "2", "2", "10"])


def test_means_of_huge_numbers_are_finite(tmp_path):
    made = read(write(tmp_path, "a,y\n1.5e308,u\n,v\n1.7e308,u\n"), missing="mean")
    assert made.X[1, 0].item() == pytest.approx(1.6e308)


# what is wrong, and where

BAD = {
    "word in numbers": ("a,b,c\n1,2,x\n1,two,y\n5,6,x\n", {}, "line 3, column 'b': 'two' is not a number; correct it"),
    "word after numbers": ("a,c\n" + "1,x\n" * 40 + "oops,y\n" + "2,x\n" * 5, {}, "line 42, column 'a': 'oops' is not a number"),
    "word after quoted lines": ('t,a,c\n"p\nq",1,x\n"p\n\nq",2,y\n"p\nq",z,x\n"p\nq",4,y\n', {}, "line 7, column 'a': 'z' is not a number"),
    "missing": ("a,b,c\n1,2,x\n1,,x\n1,2,y\n", {}, "line 3, column 'b': the value is missing; correct it, or say what to do about such rows: missing='drop'"),
    "question mark": ("a,b,c\n1,2,x\n1,?,x\n1,2,y\n", {}, "line 3, column 'b': the value is missing, written '?'"),
    "missing after empty lines": ("a,c\n\n \n1,x\n\n,y\n", {}, "line 6, column 'a': the value is missing"),
    "missing label": ("a,c\n1,x\n2,\n3,y\n", {}, "line 3, column 'c': the label is missing"),
    "missing label cannot be filled": ("a,c\n1,x\n2,?\n3,y\n", {"missing": "mean"}, "line 3, column 'c': the label is missing"),
    "infinite": ("a,c\n1,x\n-inf,y\n", {}, "line 3, column 'a': '-inf' is not a finite number"),
    "too large": ("a,c\n1,x\n1e999,y\n", {}, "line 3, column 'a': '1e999' is not a finite number"),
    "ragged": ("a,b,c\n1,2,x\n1,2\n", {}, "line 3: 2 columns where the first line has 3"),
    "ragged after quoted lines": ('t,c\n"p\nq",x\n"p\nq",x,y\n', {}, "line 4: 3 columns where the first line has 2"),
    "open quote": ('a,c\n1,x\n2,"y\n3,x\n4,y\n', {}, "line 3: a quote is opened and not closed"),
    "one label": ("a,c\n1,x\n2,x\n", {}, "column 'c' has one label only: 'x'; at least two classes are required"),
    "all dropped": ("a,b,c\n,1,x\n2,,y\n", {"missing": "drop"}, "a missing value in every one of its 2 rows"),
    "empty column": ("a,b,c\n1,,x\n2,,y\n", {"missing": "mean"}, "column 'b' has no values at all; ignore it (ignore='b')"),
    "header only": ("a,b,c\n", {}, "has a header but no rows of data"),
    "one column": ("a\n1\n2\n", {}, "has one column; a feature and a label are needed, separated by commas, semicolons"),
    "blank": ("\n \n", {}, "is empty"),
    "latin-1": ("a,c\n1,x\n2,caf\u00e9\n".encode("latin-1"), {}, "is not a CSV file in UTF-8: line 3 holds the byte 0xe9; if it comes from Windows or an old Excel, read it with encoding='cp1252'"),
    "identifier": ("id,c\n" + "".join(f"n{i},{'xy'[i % 2]}\n" for i in range(60)), {}, "column 'id' has 60 different values in 60 rows, such as 'n0', 'n1', 'n2'; it looks like an identifier: ignore it (ignore='id')"),
    "identifier as label": ("a,y\n" + "".join(f"1,n{i}\n" for i in range(60)), {}, "column 'y' has 60 different labels in 60 rows; it looks like a quantity or an identifier"),
    "index of pandas": (",a,c\n0,5,x\n1,6,y\n", {}, "column 1 has no name in the header, as an index that pandas wrote; name it, or ignore it with ignore=1"),
    "name twice": ("a,a,c\n1,2,x\n3,4,y\n", {}, "has the column 'a' twice, in positions 1 and 2"),
    "no such target": ("a,c\n1,x\n", {"target": "label"}, "it has 'a', 'c'"),
    "ignored target": ("a,b,c\n1,2,x\n", {"ignore": "c"}, "ignore names column 'c'"),
    "category of labels": ("a,c\n1,x\n", {"categories": "c"}, "categories names column 'c'"),
    "no such column to ignore": ("a,c\n1,x\n", {"ignore": ["d"]}, "ignore='d' is no column"),
    "missing unknown": ("a,c\n1,x\n", {"missing": "zero"}, "missing='zero' is unknown; choose one of 'error', 'drop', 'mean'"),
    "long delimiter": ("a,c\n1,x\n", {"delimiter": "::"}, "delimiter='::' must be one character"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_tables_are_one_line_that_names_the_place(tmp_path, pieces, name):
    content, options, message = BAD[name]
    path = write(tmp_path, content)
    for stream in (False, True):
        said = message_of(partial(read, path, **({"stream": stream} | options)))
        assert message in said
        assert str(path) in said or "=" in said


def test_several_files_are_one_table_and_errors_name_the_file(tmp_path, pieces):
    write(tmp_path, "a,c\n1,x\n,,\n2,y\n,\n", "a.csv")
    second = write(tmp_path, "3,x\n\n4,y\n5,x\n", "b.csv")  # only the first has a header
    made = read(str(tmp_path / "*.csv"))
    assert made.X.flatten().tolist() == [1, 2, 3, 4, 5]
    same(read(str(tmp_path / "*.csv"), stream=True), made)
    write(tmp_path, "3,x\n\noops,y\n5,x\n", "b.csv")
    assert f"{second}, line 3, column 'a': 'oops'" in message_of(lambda: read(str(tmp_path / "*.csv")))
    write(tmp_path, "3,x,4\n", "b.csv")
    assert "same columns" in message_of(lambda: read(str(tmp_path / "*.csv")))


@given(st.data())
def test_the_first_gap_is_named_wherever_it_is(tmp_path_factory, data):
    rows = data.draw(
        st.lists(st.sampled_from(['"two\nlines",1,x', "one,2,y", "", '"",3,x'][:3]), min_size=3, max_size=30)
    )
    rows = ["one,1,x", "one,2,y", *rows]
    at = data.draw(st.integers(0, len(rows)))
    rows.insert(at, "one,?,x")
    path = write(tmp_path_factory.mktemp("t"), "t,a,c\n" + "\n".join(rows) + "\n")
    line = 2 + sum(1 + row.count("\n") for row in rows[:at])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_files, "BLOCK", data.draw(st.integers(20, 80)))
        assert f"line {line}, column 'a'" in message_of(lambda: read(path))


def test_files_that_are_not_what_they_are_called(tmp_path):
    packed = gzip.compress(b"a,b\n1,x\n2,y\n" * 2000)
    cases = [
        (b"", "data.csv", "is empty"),
        (b"", "data.npy", "is empty"),
        (packed, "data.csv", "is compressed with gzip, although it is called .csv"),
        (packed[:-20], "data.csv.gz", "is damaged or cut off"),
        (packed[:30] + b"garbage" + packed[30:], "data.csv.gz", "is damaged or cut off"),
        (b"a,b\n1,x\n", "data.csv.gz", "is not compressed with gzip"),
        (b"PAR1 and nothing", "data.parquet", "is not a complete Parquet file"),
        (b"a,b\n1,x\n", "data.parquet", "is not a Parquet file, although it is called .parquet"),
        (b"PAR1....", "data.csv", "is a Parquet file, although it is called .csv"),
        (b"PK\x03\x04 excel", "data.csv", "is a zip archive, as .npz and .xlsx are"),
        (b"\x93NUMPY\x01\x00", "data.npy", "is not a complete array"),
        (b"text", "data.npy", "is not a numpy array"),
        (b"PK\x03\x04", "data.npz", "is not a complete archive"),
        (b"1 1:2", "data.npz", "is not a zip archive"),
        (packed, "data.npy.gz", "is compressed twice"),
        (bytes(range(256)), "data.csv", "is not a CSV file"),
        (lzma.compress(b"a,b\n" * 999)[:-9], "data.csv.xz", "is damaged or cut off"),
        (bz2.compress(b"a,b\n" * 999)[:-9], "data.csv.bz2", "is damaged or cut off"),
        (pa.compress(b"a,b\n" * 999, "zstd", asbytes=True)[:-5], "data.csv.zst", "is damaged or cut off"),
    ]  # fmt: skip
    for content, name, message in cases:
        path = write(tmp_path, content, name)
        said = message_of(lambda path=path: read(path))
        assert message in said, name
        assert str(path) in said
    assert "Is a directory" in message_of(lambda: read(tmp_path))
    assert "No such file" in message_of(lambda: read(tmp_path / "none.csv"))
    os.mkfifo(tmp_path / "pipe.csv")
    assert "it is a pipe or a device" in message_of(lambda: read(tmp_path / "pipe.csv"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_forbidden_files(tmp_path):
    path = write(tmp_path, "a,b\n1,x\n")
    path.chmod(0)
    assert "Permission denied" in message_of(lambda: read(path))


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
    path = parquet(
        tmp_path / "data.pq",
        a=[1.0, None, 3.0, math.nan, 2.0],
        b=["u", "v", None, "u", "u"],
        y=["p", "q", "p", "q", "q"],
    )
    assert "row 2, column 'a': the value is missing" in message_of(lambda: read(path))
    assert (read(path, missing="drop").X.tolist(), read(path, missing="drop").dropped) == ([[1, 1], [2, 1]], 3)
    filled = read(path, missing="mean")
    assert filled.X.tolist() == [[1, 1, 0], [2, 0, 1], [3, 0.75, 0.25], [2, 1, 0], [2, 1, 0]]
    assert filled.missing_positions.tolist() == [[1, 0], [2, 1], [2, 2], [3, 0]]
    same(read(path, missing="mean", stream=True), filled)


def test_parquet_in_other_types(tmp_path):
    import datetime
    import decimal

    a = pa.array([decimal.Decimal("1.50"), decimal.Decimal("2.25")])
    made = read(
        parquet(tmp_path / "a.parquet", a=a, b=pa.array(["1", "2"], pa.large_string()), y=pa.array([True, False]))
    )
    assert (made.X.tolist(), made.labels, made.y.tolist()) == ([[1.5, 1], [2.25, 2]], ("False", "True"), [1, -1])
    days = [datetime.date(2020, 1, 1), datetime.date(2020, 3, 2)]
    days = parquet(tmp_path / "b.parquet", day=days, a=[1, 2], y=["p", "q"])
    assert read(days).names == ("day (days)", "day (month)", "day (weekday)", "a")
    lists = parquet(tmp_path / "c.parquet", a=[[1], [2]], y=["p", "q"])
    assert "column 'a' holds list" in message_of(lambda: read(lists))
    nothing = parquet(tmp_path / "d.parquet", a=pa.nulls(2), b=[1, 2], y=["p", "q"])
    assert "column 'a' has no values at all" in message_of(lambda: read(nothing, missing="mean"))
    assert "column 'a' has no values at all" in message_of(lambda: read(nothing, missing="mean", categories="a"))
    assert "no rows of data" in message_of(
        lambda: read(parquet(tmp_path / "e.parquet", a=pa.array([], "int64"), y=pa.array([], "string")))
    )
    assert "header=True needs text files" in message_of(lambda: read(days, header=True))


def test_damaged_parquet_is_one_line(tmp_path):
    path = parquet(tmp_path / "data.parquet", a=np.arange(5000.0), y=["p", "q"] * 2500)
    content = bytearray(path.read_bytes())
    content[100:2000] = bytes(1900)
    path.write_bytes(content)
    assert "is not a complete Parquet file" in message_of(lambda: read(path))


# numpy


def test_matrices(tmp_path, pieces):
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(10, 3)), rng.integers(0, 2, 10)
    path = tmp_path / "data.npy"
    np.save(path, np.column_stack([X, y]))
    made = read(path)
    assert np.array_equal(made.X.numpy(), X)
    assert (made.labels, made.names, made.decode(made.y)) == (("0", "1"), ("1", "2", "3"), [str(value) for value in y])
    same(read(path, stream=True), made)
    np.save(path, np.column_stack([y, X]).astype(np.float32))
    assert np.array_equal(read(path, 1).X.numpy(), X.astype(np.float32).astype(float))
    with_gap = np.column_stack([X, y])
    with_gap[4, 1] = math.nan
    np.save(path, with_gap)
    assert "row 5, column '2': the value is missing" in message_of(lambda: read(path))
    assert read(path, missing="drop").dropped == 1


def test_archives(tmp_path):
    X, y = np.arange(6.0).reshape(3, 2), np.array(["u", "v", "u"])
    path = tmp_path / "data.npz"
    for names in (("X", "y"), ("data", "target")):
        np.savez(path, **dict(zip(names, (X, y), strict=True)))
        made = read(path)
        assert (made.X.tolist(), made.labels, made.y.tolist()) == (X.tolist(), ("u", "v"), [-1, 1, -1])
    np.savez(path, X, y)
    assert read(path).X.tolist() == X.tolist()
    np.savez(path, X=X, kind=y)
    assert read(path, "kind").labels == ("u", "v")


def test_dense_archives_are_tables(tmp_path):
    for name, scale in (("a", 1), ("b", 2)):
        np.savez(tmp_path / f"{name}.npz", X=np.array([[1, math.nan], [3, 4], [5, 6]]) * scale, y=["u", "v", "u"])
    made = read(str(tmp_path / "*.npz"), missing="drop")
    assert (made.X.tolist(), made.dropped) == ([[3, 4], [5, 6], [6, 8], [10, 12]], 2)
    same(read(str(tmp_path / "*.npz"), missing="drop", stream=True), made)
    assert "delimiter=','" in message_of(lambda: read(tmp_path / "a.npz", delimiter=","))


class Trap:
    def __reduce__(self):
        return os.mkdir, ("trap",)


def test_bad_arrays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X = np.eye(3)
    trapped = np.array([[Trap(), 1], [2, 3]], dtype=object)
    path, archive = tmp_path / "data.npy", tmp_path / "data.npz"
    bad = {
        "holds an array of float64 of shape (3,)": np.ones(3),
        "holds an array of float64 of shape (2, 2, 2)": np.ones((2, 2, 2)),
        "holds an array of <U1": np.array([["a", "b"]]),
        "holds an array of complex128": np.eye(2) * 1j,
        "is not a complete array of numbers": trapped,
        "has one column": np.ones((3, 1)),
    }
    for message, array in bad.items():
        np.save(path, array, allow_pickle=True)
        assert message in message_of(lambda: read(path)), message
    archives = {
        "has no labels: it holds X and no array 'y'": {"X": X},
        "holds a (3, 3) float64, b (3,) float64; a matrix of numbers X is needed": {"a": X, "b": X[0]},
        "y has shape (2,) for 3 samples": {"X": X, "y": [1, 2]},
        "column 'y' has one label only": {"X": X, "y": [1, 1, 1]},
        "row 2, column '1': the value is missing": {"X": [[1.0], [math.nan]], "y": [1, 2]},
        "is not a complete archive of arrays": {"X": trapped, "y": [1, 2]},
    }  # fmt: skip
    for message, arrays in archives.items():
        np.savez(archive, **arrays)
        assert message in message_of(lambda: read(archive)), message
    save_npz(archive, csr_array(X))
    assert "save sparse samples as svmlight" in message_of(lambda: read(archive))
    write(tmp_path, pickle.dumps(Trap()), "data.npy")
    assert "is not a numpy array" in message_of(lambda: read(path))
    np.save(path, np.eye(40))
    path.write_bytes(path.read_bytes()[:-100])
    assert "is not a complete array" in message_of(lambda: read(path))
    assert not (tmp_path / "trap").exists()


# svmlight


@pytest.mark.parametrize("zero_based", [True, False])
def test_svmlight_is_read_as_by_sklearn(tmp_path, pieces, zero_based):
    rng = np.random.default_rng(3)
    X = csr_array(random_array((40, 12), density=0.3, rng=rng))
    X.data = X.data * 10.0 ** rng.integers(-300, 300, X.nnz)
    X = csr_array(np.vstack([X.toarray(), np.eye(1, 12)]))  # the first feature occurs
    y = rng.integers(0, 3, 41)
    path = tmp_path / "data.svm"
    sklearn.datasets.dump_svmlight_file(X, y, str(path), zero_based=zero_based, comment="made up")
    theirs, labels = sklearn.datasets.load_svmlight_file(str(path), zero_based=zero_based)
    made = read(path)
    assert made.X.dtype == np.float64
    assert made.X.shape == theirs.shape
    for part in ("data", "indices", "indptr"):
        assert np.array_equal(getattr(made.X, part), getattr(theirs, part))
    assert made.decode(made.y) == [str(int(label)) for label in labels]
    assert made.names == tuple(str(j + (not zero_based)) for j in range(12))
    streamed = read(path, stream=True)
    assert isinstance(streamed.X, CsrParts)
    whole = csr_array(np.vstack([streamed.X.load(k).toarray() for k in range(len(streamed.X.pieces))]))
    assert np.array_equal(whole.toarray(), made.X.toarray())
    assert torch.equal(streamed.y, made.y)
    packed = write(tmp_path, gzip.compress(path.read_bytes()), "data.libsvm.gz")
    assert np.array_equal(read(packed).X.toarray(), made.X.toarray())


@given(
    st.lists(st.lists(st.tuples(st.integers(1, 50), shown), max_size=5), min_size=2, max_size=20), st.integers(8, 200)
)
@pytest.mark.filterwarnings("ignore:overflow encountered in reduce")
def test_svmlight_numbers_come_back_to_the_bit(tmp_path_factory, rows, size):
    rows = [sorted(dict(row).items()) for row in [*rows, [(1, "1")]]]
    lines = [f"{'ab'[i % 2]} " + " ".join(f"{j}:{value}" for j, value in row) for i, row in enumerate(rows)]
    path = write(tmp_path_factory.mktemp("t"), "\n".join(lines), "data.svmlight")
    dense = np.zeros((len(rows), max(j for row in rows for j, _ in row)))
    for i, row in enumerate(rows):
        for j, value in row:
            dense[i, j - 1] = float(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(svmlight, "PIECE", size)
        made = read(path)
    assert np.array_equal(made.X.toarray(), dense)
    assert made.decode(made.y) == ["ab"[i % 2] for i in range(len(rows))]


def test_svmlight_with_all_its_liberties(tmp_path, pieces):
    content = "# a comment: 1:2\n\n+1 qid:3 1:1 2:2 # qid\n-1\t3:.5\r\n1.0 2:-1e-2\n-1\n  1 1:+3 10:0\n"
    made = read(write(tmp_path, "\ufeff" + content, "data.svm"))
    assert made.labels == ("-1", "1")
    assert made.y.tolist() == [1, -1, 1, -1, 1]
    dense = np.zeros((5, 10))
    dense[0, :2], dense[1, 2], dense[2, 1], dense[4, 0] = (1, 2), 0.5, -0.01, 3
    assert np.array_equal(made.X.toarray(), dense)


BAD_LINES = {
    "falling": ("1 2:1 1:1", "line 31: index 1 comes behind 2; indices must rise within a line"),
    "twice": ("1 2:1 2:1", "line 31: index 2 comes twice"),
    "several labels": ("1,2 1:1", "line 31: '1,2' is several labels"),
    "no label": ("1:1 2:1", "line 31: '1:1' stands where the label should be; a line is: label index:value"),
    "no colon": ("1 1:1 2", "line 31: '2' is not index:value"),
    "word": ("1 1:one", "line 31: 'one' in '1:one' is not a number"),
    "no value": ("1 1:", "line 31: '' in '1:' is not a number"),
    "half a value": ("1 1:2e", "line 31: '2e' in '1:2e' is not a number"),
    "negative": ("1 -1:2", "line 31: '-1:2' is not index:value"),
    "huge": ("1 99999999999:2", "line 31: index 99999999999 is too large"),
    "missing label": ("? 1:2", "line 31: the label is missing, written '?'"),
    "nan": ("1 1:nan", "line 31: index 1 has the value nan, which is not a finite number"),
    "infinite": ("1 1:1e999", "line 31: index 1 has the value inf, which is not a finite number"),
    "not UTF-8": (b"caf\xe9 1:2", "line 31: the label b'caf\\xe9' is not in UTF-8"),
    "query elsewhere": ("1 1:2 qid:3", "line 31: 'qid:3' is not index:value"),
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_bad_lines_of_svmlight_are_named(tmp_path, pieces, name):
    line, message = BAD_LINES[name]
    line = line if isinstance(line, bytes) else line.encode()
    path = write(tmp_path, b"1 1:1\n# comment\n0 2:1\n" * 10 + line + b"\n0 1:2\n", "data.svm")
    assert f"{path}, {message}" in message_of(lambda: read(path))


def test_svmlight_without_samples_or_features(tmp_path):
    cases = {
        "# nothing\n": "has no samples in it",
        "1\n0\n": "has no features in it",
        "1 1:1\n1 2:1\n": "has one label only: '1'",
        "1:1 2:1\n": "has no labels: its lines begin with index:value",
    }
    for content, message in cases.items():
        path = write(tmp_path, content, "data.svm")
        assert message in message_of(lambda path=path: read(path))
    assert "target='a' needs columns" in message_of(lambda: read(write(tmp_path, "1 1:1\n", "data.svm"), "a"))


# streaming


def mixed_table(path, rows=300, seed=0):
    draw = random.Random(seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "colour", "note", "b", "label"])
        for i in range(rows):
            a = draw.choice([repr(draw.gauss(0, 1)), "", "?"] if i % 7 == 3 else [repr(draw.gauss(0, 1))])
            note = draw.choice(["one, two", "three\nlines", 'a "quote"'])
            writer.writerow([a, draw.choice(["red", "blue", "NA"]), note, draw.randint(0, 9), draw.choice("xyz")])
    return path


def test_streaming_is_chosen_by_free_memory(tmp_path, monkeypatch):
    path = mixed_table(tmp_path / "data.csv")
    size = read(path, missing="mean").X.nbytes
    for free, kind in ((size * 8, torch.Tensor), (size * 2, np.memmap)):
        monkeypatch.setattr(reading, "free_memory", lambda free=free: free)
        assert isinstance(read(path, missing="mean").X, kind)
    svm = write(tmp_path, "1 1:1\n0 1:2\n", "data.svm")
    monkeypatch.setattr(reading, "free_memory", lambda: 1)
    assert isinstance(read(svm).X, CsrParts)


def test_the_cache_is_whole_and_never_stale(tmp_path):
    path, cache = write(tmp_path, "a,c\n1,x\n2,y\n"), tmp_path / "cache"
    first = read(path, stream=True, cache=cache)
    assert [file.suffix for file in cache.iterdir()] == [".npy"]
    write(tmp_path, "a,c\n3,x\n4,y\n5,x\n")
    second = read(path, stream=True, cache=cache)
    assert (np.array(first.X).tolist(), np.array(second.X).tolist()) == ([[1], [2]], [[3], [4], [5]])
    write(tmp_path, "a,c\n3,x\nfour,y\n5,x\n")
    message_of(lambda: read(path, stream=True, cache=cache))
    assert sorted(np.load(file).tolist() for file in cache.iterdir()) == [[[1], [2]], [[3], [4], [5]]]
    svm = write(tmp_path, "1 1:1\n0 1:2\n", "data.svm")
    for _ in range(2):
        read(svm, stream=True, cache=cache)
        assert len(list(cache.iterdir())) == 3


def test_temporary_caches_go_away(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    for name, content in (("data.csv", "a,c\n1,x\n2,y\n"), ("data.svm", "1 1:1\n0 1:2\n")):
        made = read(write(tmp_path, content, name), stream=True)
        X, folder = made.X, list((tmp_path / "tmp").iterdir())
        assert len(folder) == 1
        assert folder[0].name.startswith(
            f".torchperc-cache-{os.getpid()}-"
        )  # by which others know when it is left over
        del made
        gc.collect()
        assert folder[0].exists()  # X is still held
        del X
        gc.collect()
        assert not folder[0].exists()


def test_a_full_disk_is_one_line(tmp_path, monkeypatch):
    path, cache = write(tmp_path, "a,c\n1,x\n2,y\n"), tmp_path / "cache"

    def full(file, header):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array_header_1_0", full)
    said = message_of(lambda: read(path, stream=True, cache=cache), OSError)
    assert f"cannot write the converted table to {cache}: No space left on device" in said
    assert not list(cache.iterdir())
    assert "cannot make a folder" in message_of(lambda: read(path, stream=True, cache=path), OSError)


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


@pytest.mark.parametrize("rows", [1, 2, 65536])
def test_the_training_file_goes_through_its_own_encoding(tmp_path, pieces, rows):
    path = mixed_table(tmp_path / "data.csv", rows=60)
    made = read(path, missing="mean")
    X, labels = table_of(Batches(path, made.encoder, rows=rows))
    assert np.array_equal(X, made.X.numpy())
    assert labels == made.decode(made.y)
    assert all(part.X.shape[0] <= rows for part in Batches(path, made.encoder, rows=rows))


def test_columns_are_found_by_name(tmp_path, pieces):
    made, encoding = encoding_of(tmp_path)
    new = Batches(write(tmp_path, "id;b;colour;a\nu;5;red;1\nv;6; green;2\n\nw;7;red;3.5\n"), encoding)
    assert (new.extra, new.labelled) == (("id",), False)
    X, labels = table_of(new)
    assert np.array_equal(X, made.X.numpy())
    assert labels is None
    pq.write_table(pa.table({"colour": ["red"], "b": [1], "label": ["x"], "a": [2.5]}), tmp_path / "new.parquet")
    X, labels = table_of(Batches(tmp_path / "new.parquet", encoding))
    assert (X.tolist(), labels) == ([[2.5, 0, 1, 1]], ["x"])
    twice = list(Batches(tmp_path / "data.csv", encoding))
    assert len(twice) == len(list(new))  # may be gone through again


def test_labels_of_new_files_may_be_unknown_or_absent(tmp_path):
    _, encoding = encoding_of(tmp_path)
    _, labels = table_of(Batches(write(tmp_path, "a,colour,b,label\n1,red,5,?\n1,red,5,z\n1,red,5,1.0\n"), encoding))
    assert labels == ["", "z", "1"]


def test_columns_without_names_go_by_position(tmp_path):
    content = "u,1,red\nv,2,green\nu,3,red\n"
    made, encoding = encoding_of(tmp_path, content, target=1)
    assert encoding.n_columns == 3
    for content in ("u,1,red\nv,2,green\nu,3,red\n", "1,red\n2,green\n3,red\n"):
        X, labels = table_of(Batches(write(tmp_path, content), encoding))
        assert np.array_equal(X, made.X.numpy())
        assert labels == (["u", "v", "u"] if content[0] == "u" else None)
    said = message_of(lambda: Batches(write(tmp_path, "1,2,3,4\n"), encoding))
    assert "has 4 columns where training had 3, or 2 without that of the labels" in said


def test_arrays_through_their_encoding(tmp_path):
    X, y = np.arange(6.0).reshape(3, 2), np.array([0, 1, 0])
    np.savez(tmp_path / "data.npz", X=X, y=y)
    np.save(tmp_path / "data.npy", np.column_stack([X, y]))
    np.save(tmp_path / "new.npy", X)
    np.savez(tmp_path / "new.npz", X=X)
    for name in ("data.npz", "data.npy"):
        encoding = read(tmp_path / name).encoder
        for new in ("data.npz", "new.npz", "new.npy", *(["data.npy"] if name == "data.npy" else [])):
            found, labels = table_of(Batches(tmp_path / new, encoding, rows=2))
            assert np.array_equal(found, X)
            assert labels == (["0", "1", "0"] if new.startswith("data") else None)
    _, named = encoding_of(tmp_path)
    assert "has no names of columns, but they go by name" in message_of(lambda: Batches(tmp_path / "new.npy", named))


def test_svmlight_through_its_encoding(tmp_path, pieces):
    made, encoding = encoding_of(tmp_path, "1 1:1 3:2\n0 2:5\n1 1:7\n", "train.svm")
    X, labels = table_of(Batches(tmp_path / "train.svm", encoding, rows=2))
    assert np.array_equal(X, made.X.toarray())
    assert labels == ["1", "0", "1"]
    X, labels = table_of(Batches(write(tmp_path, "1:3\n# comment\n2:1 3:1\n", "new.svm"), encoding))
    assert (X.tolist(), labels) == ([[3, 0, 0], [0, 1, 1]], None)
    for line, index in (("0 4:1", 4), ("1 0:1", 0)):
        path = write(tmp_path, f"1 1:1\n# comment\n{line}\n", "new.svm")
        said = message_of(lambda path=path: list(Batches(path, encoding)))
        assert f"line 3: index {index} did not occur in training, where indices went from 1 to 3" in said
    assert "but training had numbered features" in message_of(lambda: Batches(write(tmp_path, TRAIN), encoding))
    _, columns = encoding_of(tmp_path)
    assert "but training had columns: 'a', 'colour', 'b'" in message_of(
        lambda: Batches(tmp_path / "train.svm", columns)
    )


BAD_NEW = {
    "lost columns": ("colour,label\nred,x\n", "has no columns 'a', 'b', which training had; it has 'colour', 'label'"),
    "lost column": ("colour,a\nred,1\n", "has no column 'b', which training had"),
    "no header": ("1,red,5\n", "has no names of columns, but they go by name: 'a', 'colour', 'b'"),
    "column twice": ("a,a,b,colour\n1,2,3,red\n", "has 2 columns 'a'"),
    "unknown level": ("a,b,colour\n1,2,red\n1,2,mauve\n", "line 3, column 'colour': 'mauve' did not occur in training; known are 'green', 'red'"),
    "word": ("a,b,colour\n1,2,red\n1,two,red\n", "line 3, column 'b': 'two' is not a number, as it was in training"),
    "missing": ("a,b,colour\n1,2,red\n\n1,,red\n", "line 4, column 'b': the value is missing"),
    "missing word": ("a,b,colour\n1,2,red\n1,2,?\n", "line 3, column 'colour': the value is missing"),
    "infinite": ("a,b,colour\n1,inf,red\n", "line 2, column 'b': 'inf' is not a finite number"),
    "first of several": ("a,b,colour\n1,2,red\n1,2,mauve\n1,two,red\nx,2,red\n", "line 3, column 'colour'"),
    "ragged": ("a,b,colour\n1,2,red\n1,2\n", "line 3: 2 columns where the first line has 3"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_NEW)
def test_bad_new_files_are_one_line_that_names_the_place(tmp_path, pieces, name):
    content, message = BAD_NEW[name]
    _, encoding = encoding_of(tmp_path)
    path = write(tmp_path, content, "new.csv")
    said = message_of(lambda: list(Batches(path, encoding)))
    assert message in said
    assert str(path) in said
    if "column" in name or name == "no header":  # known before the first row
        message_of(lambda: Batches(path, encoding))


def test_missing_values_of_new_files_become_the_means(tmp_path):
    _, encoding = encoding_of(tmp_path, missing="mean")
    X, _ = table_of(Batches(write(tmp_path, "a,b,colour\n,?,\n1,2,red\n"), encoding.with_imputed_values([1, 2, 3, 4])))
    assert X.tolist() == [[1, 2, 3, 4], [1, 0, 1, 2]]
    # a line in which nothing is written is no row, though
    X, _ = table_of(Batches(write(tmp_path, "a,b,colour\n,,\n1,2,red\n"), encoding))
    assert X.tolist() == [[1, 0, 1, 2]]


def test_heavy_libraries_load_late(fresh):
    code = "import torchperc.data, sys; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = fresh(code).split()
    assert "torchperc" in loaded
    assert not {"pyarrow", "scipy", "sklearn", "pandas", "numba", "rich"} & set(loaded)
