"""Tables as people have them: dates, decimal commas, encodings, codes, typos; and encoders through JSON."""

import datetime
import json
import math
import subprocess
import sys

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tables import said_by, write

import torchperc as tp
from torchperc.data import Batches, Column, PreparedData, ReadOptions, TableEncoder, read
from torchperc.data.table_encoder import in_order, similar_labels
from torchperc.data.table_files import is_absent, word

FRUIT = TableEncoder((Column("weight"), Column("colour", ("green", "red"))), "fruit", ("apple", "pear"))
words = st.text(min_size=1, max_size=4)


def labelled(cells, name="day"):
    return f"{name},label\n" + "".join(f"{cell},{'xy'[i % 2]}\n" for i, cell in enumerate(cells))


# --- dates ---


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%d.%m.%Y", "%Y/%m/%d", "%Y-%m-%d %H:%M:%S"])
def test_dates_are_days_and_parts_that_vary(tmp_path, form):
    days = [datetime.datetime(2023, 12, 20) + datetime.timedelta(days=i) for i in range(28)]
    path = write(tmp_path, labelled([day.strftime(form) for day in days]))
    made = read(path)
    assert made.names == ("day (days)", "day (year)", "day (month)", "day (weekday)")
    since = datetime.datetime(1970, 1, 1)
    wanted = [[(day - since).days, day.year, day.month, day.isoweekday()] for day in days]
    assert made.X.tolist() == wanted
    assert "column 'day' is a date" in made.notes[0]
    new = write(tmp_path, f"day\n{days[3].strftime(form)}\n", "new.csv")
    new.write_text(new.read_text().replace("day\n", "day;more\n").replace("\n", ";1\n").replace("more;1", "more"))
    assert next(iter(Batches(new, made.encoder))).X.tolist() == [wanted[3]]
    assert read(path, categories="day").X.shape == (28, 28)
    new.write_text("day;more\ntoday;1\n")
    assert "line 2, column 'day': 'today' is not a date" in said_by(lambda: list(Batches(new, made.encoder)))


def test_dates_with_gaps_in_doubt_and_in_parquet(tmp_path):
    path = write(tmp_path, labelled(["2024-01-01", "", "2024-01-03", "2024-01-05"]))
    filled = read(path, missing="mean")
    assert filled.X[1, 0].item() == pytest.approx(filled.X[[0, 2, 3], 0].mean().item())
    assert "day or the month first" in said_by(lambda: read(write(tmp_path, labelled(["01/02/2024", "03/04/2024"]))))
    frame = pd.DataFrame({"day": pd.to_datetime(["2024-01-31", "2024-02-29"]), "y": ["a", "b"]})
    frame.to_parquet(tmp_path / "d.parquet")
    assert read(tmp_path / "d.parquet").X[:, 0].tolist() == read(frame).X[:, 0].tolist() == [19753, 19782]


# --- how text is written ---


def test_decimal_commas_are_recognised_remembered_and_may_be_given(tmp_path):
    path = write(tmp_path, "weight;size;y\n72,5;180;u\n60;170;v\n81,25;190;u\n")
    made = read(path)
    assert made.X.tolist() == [[72.5, 180], [60, 170], [81.25, 190]]
    assert "decimal comma" in made.notes[0]
    encoder = TableEncoder.from_json(json.loads(json.dumps(made.encoder.to_json())))
    new = write(tmp_path, "weight;size\n1,234;1\n", "new.csv")  # in doubt, but for the training file
    assert next(iter(Batches(new, encoder))).X.tolist() == [[1.234, 1]]
    doubt = write(tmp_path, "weight;y\n1,234;u\n2,345;v\n")
    assert "decimal=','" in said_by(lambda: read(doubt))
    assert read(doubt, decimal=",").X.flatten().tolist() == [1.234, 2.345]
    quoted = write(tmp_path, 'weight,y\n"1,5",u\n"2,5",v\n')
    assert read(quoted).X.flatten().tolist() == [1.5, 2.5]


def test_encodings_are_recognised_or_given(tmp_path):
    text = "größe,ort,y\n1,Köln,ja\n2,Zürich,nein\n"
    utf16 = read(write(tmp_path, text, encoding="utf-16"))
    assert utf16.names == ("größe", "ort=Köln", "ort=Zürich")
    assert "UTF-16" in utf16.notes[0]
    cp1252 = write(tmp_path, text, encoding="cp1252")
    assert "is no text in UTF-8" in said_by(lambda: read(cp1252))
    made = read(cp1252, encoding="cp1252")
    assert made.names == utf16.names
    assert next(iter(Batches(cp1252, made.encoder))).labels == ["ja", "nein"]
    assert "encoding='klingon' is unknown" in said_by(lambda: read(cp1252, encoding="klingon"))


def test_a_delimiter_and_a_sign_for_missing_values_are_remembered(tmp_path):
    path = write(tmp_path, "a^b^y\n1^red^u\n-^blue^v\n3^-^u\n4^red^v\n", "x.dat")
    made = read(path, delimiter="^", na="-", missing="mean")
    assert made.X[1, 0].item() == pytest.approx(8 / 3)
    assert made.notes == ("missing values imputed: 1 in 'a', 1 in 'b'",)
    assert made.encoder.to_json()["options"] == {"na": ["-"], "delimiter": "^"}
    assert torch.equal(next(iter(Batches(path, made.encoder))).X, made.X)
    assert tp.data.load(str(path), delimiter="^", na=["-"], missing="drop").dropped == 2
    frame = pd.DataFrame({"a": ["1", "-", "3"], "y": ["u", "v", "u"]})
    frame.to_parquet(tmp_path / "d.parquet")
    for source in (frame, tmp_path / "d.parquet"):
        made = read(source, na="-", missing="mean")
        assert made.X.flatten().tolist() == [1, 2, 3]
    assert next(iter(Batches(tmp_path / "d.parquet", made.encoder))).X.flatten().tolist() == [1, 2, 3]
    assert made.encoder.transform([{"a": "-"}]).tolist() == [[2]]


# --- what only the user can decide ---


def test_all_problems_are_one_message_with_what_settles_them(tmp_path):
    rows = [f"c{i},{i if i != 7 else ''},{i},k{i},{'xy'[i % 2]}" for i in range(60)]
    path = write(tmp_path, "id,age,n,code,label\n" + "\n".join(rows) + "\n")
    said = said_by(lambda: read(path))
    assert "3 problems: " in said
    assert "line 9, column 'age': the value is missing" in said
    assert all(f"column '{name}' has 60 different values" in said for name in ("id", "code"))
    assert said.endswith("missing='mean' ignore=['id', 'code']")
    made = read(path, missing="mean", ignore=["id", "code"])
    assert made.names == ("age", "n")
    assert torch.equal(read(path, missing="mean", ignore="id,code").X, made.X)
    path.write_text(path.read_text().replace("c9,9,", "c9,4o,"))  # a typo, which may be counted as missing
    said = said_by(lambda: read(path, ignore=["id", "code"]))
    assert said.endswith("missing='mean' na=['4o']")
    assert len(read(path, missing="mean", na="4o", ignore=["id", "code"]).missing_positions) == 2


def test_what_may_be_a_mistake_is_said(tmp_path):
    zips = write(tmp_path, "id,zip,y\n" + "".join(f"{i + 1},0{i % 7 + 1067},{'ab'[i % 2]}\n" for i in range(30)))
    notes = read(zips).notes
    assert ("'id' counts the rows" in notes[0], "'zip' has numbers with leading zeros" in notes[1]) == (True, True)
    assert similar_labels(("No", "Yes", "n", "no", "y", "yes", "yess")) == (
        "labels that may be the same: 'No' and 'no', 'Yes' and 'yes', 'Yes' and 'yess', 'yes' and 'yess'"
    )
    typos = write(tmp_path, "a,y\n5,yes\n2,no\n3,Yes\n4, yes\n5,no\n")
    assert read(typos).notes == ("labels that may be the same: 'Yes' and 'yes'",)
    assert similar_labels(("cat", "dog", "type1", "type2", "1", "11")) == ""


# --- new data ---


def test_unknown_levels_kept_columns_and_missing_values(tmp_path):
    path = write(tmp_path, "id,weight,colour\n007,1.50,mauve\n008,2,red\n")
    assert "unknown='ignore'" in said_by(lambda: list(Batches(path, FRUIT)))
    (batch,) = Batches(path, FRUIT, unknown="ignore", keep=["id", "weight"])
    assert batch.X.tolist() == [[1.5, 0, 0], [2, 0, 1]]
    assert batch.kept == {"id": ["007", "008"], "weight": ["1.50", "2"]}
    assert list(next(iter(Batches(path, FRUIT, unknown="ignore", keep="all"))).kept) == ["id", "weight", "colour"]
    assert "keep='no'" in said_by(lambda: Batches(path, FRUIT, keep=["no"]))
    encoder = FRUIT.with_imputed_values([1, 0.5, 0.5])
    assert encoder.impute([[math.nan, 1, 0]]).tolist() == [[1, 1, 0]]
    frame = pd.DataFrame({"colour": ["red", None], "weight": [math.nan, 3]})
    wanted = [[1, 0, 1], [3, 0.5, 0.5]]
    assert (
        encoder.transform(frame).tolist()
        == encoder.transform(frame.astype(object).to_dict("records")).tolist()
        == wanted
    )
    assert "missing='mean'" in said_by(lambda: FRUIT.impute([[math.nan, 1, 0]]))


def test_a_data_frame_is_a_table_and_a_data_set_is_prepared():
    frame = pd.DataFrame({"a": [1.0, 2, 3, 4, 5, 6] * 5, "b": list("uvwuvw") * 5, "y": ["p", "q"] * 15})
    made = read(frame, "y")
    assert made.names == ("a", "b=u", "b=v", "b=w")
    data = PreparedData(frame, {"target": "y"}, scale="standard")
    assert torch.equal(data.parts[0][0], PreparedData(made, scale="standard").parts[0][0])
    assert data.settings["source"] is None
    assert "the data frame, row 2, column 'a'" in said_by(lambda: read(frame.assign(a=[1.0, math.nan] * 15)))


@st.composite
def encoders(draw):
    labels = tuple(draw(st.lists(words, min_size=2, max_size=4, unique=True)))
    if draw(st.booleans()):
        return TableEncoder((), None, labels, indices=(draw(st.integers(0, 1)), draw(st.integers(1, 9))))
    names = draw(st.lists(words, min_size=1, max_size=5, unique=True))
    levels = st.none() | st.lists(words, min_size=1, max_size=3, unique=True).map(tuple)
    columns = (*(Column(name, draw(levels)) for name in names), Column("a date", date=("days", "year")))
    made = TableEncoder(columns, None, labels, options=ReadOptions(decimal=",", na="-"))
    return made.with_imputed_values(range(made.n_features)) if draw(st.booleans()) else made


@given(encoders())
def test_encoders_come_back_through_json(encoder):
    back = TableEncoder.from_json(json.loads(json.dumps(encoder.to_json())))
    assert back == encoder
    assert back.n_features == len(back.feature_names)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: TableEncoder((Column("a"), Column("a")), None, ("x", "y")), "'a' more than once"),
        (lambda: TableEncoder((Column("a"),), "a", ("x", "y")), "'a' more than once"),
        (lambda: FRUIT.with_imputed_values([1.0]), "imputed_values must be 3"),
        (lambda: TableEncoder.from_json({}), "columns"),
        (lambda: TableEncoder.from_json(3), "to_json()"),
        (lambda: TableEncoder.from_json(FRUIT.to_json() | {"more": 1}), "more"),
        (lambda: ReadOptions(decimal=";"), "decimal=';' is unknown; choose one of '.', ','"),
        (lambda: ReadOptions(encoding="base64"), "encoding='base64' is unknown"),
        (lambda: ReadOptions(positive="a", task="regression"), "positive='a'"),
    ],
)
def test_wrong_encoders_and_options_are_refused(call, message):
    assert message in said_by(call)


def test_words_and_their_order():
    cells = ("1.0", "+1", "-0", "1e3", "1_0", "a", "0x1")
    assert [word(cell) for cell in cells] == ["1", "1", "0", "1000", "1_0", "a", "0x1"]
    assert in_order({"b", "10", "9", "-1", "a"}) == ("-1", "9", "10", "a", "b")
    assert all(map(is_absent, ("", "NA", "N/A", "n/a", "nan", "NaN", "null", "NULL", "?", "-nan")))
    assert not any(map(is_absent, ("0", "none", "-", "inf", "na!")))


def test_files_are_read_without_pandas(tmp_path):
    svm = write(tmp_path, "".join(f"{i % 2} 1:{i} 3:1.5\n" for i in range(20_000)), "data.svm")
    csv = write(tmp_path, "a,y\n" + "".join(f"{i},{'uv'[i % 2]}\n" for i in range(20_000)))
    code = (
        f"import sys, torchperc as tp; [*map(tp.data.read, {[str(svm), str(csv)]!r})]; print('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
