"""How columns become features: names and widths counted by hand, round trips through JSON, every wrong state refused."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchperc.data import Column, Encoding
from torchperc.data.encoding import in_order, is_absent, word

FRUIT = Encoding((Column("weight"), Column("colour", ("green", "red"))), "fruit", ("apple", "pear"))
words = st.text(min_size=1, max_size=4)


@st.composite
def encodings(draw):
    labels = tuple(draw(st.lists(words, min_size=2, max_size=4, unique=True)))
    missing = draw(st.sampled_from(["error", "drop", "mean"]))
    if draw(st.booleans()):
        return Encoding(
            (), None, labels, missing, sparse=True, size=draw(st.integers(1, 9)), first=draw(st.integers(0, 1))
        )
    names = draw(st.lists(words, min_size=1, max_size=5, unique=True))
    levels = st.none() | st.lists(words, min_size=1, max_size=3, unique=True).map(tuple)
    made = Encoding(tuple(Column(name, draw(levels)) for name in names[1:] or names), None, labels, missing)
    if missing != "mean":
        return made
    numbers = st.floats(allow_nan=False, allow_infinity=False)
    return made.with_fills(draw(st.lists(numbers, min_size=made.width, max_size=made.width)))


@given(encodings())
def test_the_state_comes_back_through_json(encoding):
    back = Encoding.from_state(json.loads(json.dumps(encoding.state())))
    assert back == encoding
    assert (back.names, back.width) == (encoding.names, len(encoding.names))


def test_names_and_width():
    assert FRUIT.names == ("weight", "colour=green", "colour=red")
    sparse = Encoding((), None, ("a", "b"), sparse=True, size=3, first=0)
    assert (sparse.names, sparse.width) == (("0", "1", "2"), 3)


def test_fills_are_kept_for_each_feature():
    assert FRUIT.with_fills([1, 0.5, 0.5]).fills == (1.0, 0.5, 0.5)
    assert FRUIT.fills is None


def test_words_and_their_order():
    assert [word(cell) for cell in ("1.0", "+1", "-0", "1e3", "1_0", "a", "0x1")] == [
        "1",
        "1",
        "0",
        "1000",
        "1_0",
        "a",
        "0x1",
    ]
    assert in_order({"b", "10", "9", "-1", "a"}) == ("-1", "9", "10", "a", "b")
    assert all(is_absent(cell) for cell in ("", "NA", "N/A", "n/a", "nan", "NaN", "null", "NULL", "?", "-nan"))
    assert not any(is_absent(cell) for cell in ("0", "none", "-", "inf", "na!"))


def state(**changes):
    return FRUIT.state() | changes


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Encoding((Column("a"), Column("a")), None, ("x", "y")), "column names must be unique, found 'a'"),
        (lambda: Encoding((Column("a"),), "a", ("x", "y")), "column names must be unique, found 'a'"),
        (lambda: Encoding((Column("a", ("u", "u")),), None, ("x", "y")), "column 'a' has the levels ('u', 'u')"),
        (lambda: Encoding((Column("a", ()),), None, ("x", "y")), "column 'a' has the levels ()"),
        (lambda: Encoding((Column("a"),), None, ("x",)), "labels=('x',) must be at least two different names"),
        (lambda: Encoding((Column("a"),), None, ("x", "y"), "guess"), "missing='guess' is unknown"),
        (lambda: Encoding((), None, ("x", "y")), "sparse=False cannot be combined with 0 columns"),
        (lambda: Encoding((), None, ("x", "y"), sparse=True), "size=0 must be at least 1"),
        (lambda: Encoding((), None, ("x", "y"), sparse=True, size=2, first=2), "first=2 must be 0 or 1"),
        (lambda: FRUIT.with_fills([1.0]), "fills has 1 numbers for 3 features"),
        (lambda: FRUIT.with_fills([1.0, math.nan, 0.0]), "fills[1]=nan must be a finite number"),
        (lambda: Encoding.from_state({}), "KeyError('columns')"),
        (lambda: Encoding.from_state(3), "state is not what state() returned"),
        (lambda: Encoding.from_state(state(columns=[["a"]])), "not enough values"),
        (lambda: Encoding.from_state(state(fills=["x", 1, 2])), "fills[0] must be a number"),
        (lambda: Encoding.from_state(state(positions=1)), "positions=1 must be at least 2"),
        (lambda: Encoding.from_state(state(more=1)), "more"),
    ],
)  # fmt: skip
def test_wrong_encodings_are_refused(call, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is looked at below
        call()
    assert message in str(caught.value)
