"""Checks a certificate of separability against a CSV file, in exact arithmetic, by the standard library alone.

    python -m torchperc.theory.verifier certificate.json data.csv [--target NAME|POSITION]

The file runs by itself too (``python verifier.py …``): it needs neither torch nor the rest of the package, and shares
nothing with the solver that found the certificate. A float is a rational number n/2ᵏ, so every sum below is a sum of
Python integers and nothing is ever rounded. Exit code 0: the proof holds; 1: it does not; 2: the input cannot be read.

What is checked. Every sample i of class yᵢ and every other class k give one row zᵢₖ = φ(xᵢ, yᵢ) − φ(xᵢ, k), where
φ(x, k) puts (x, 1), or x without a bias, in block k of K; with labels −1/+1 the row is yᵢ·(xᵢ, 1). The blocks of a row
sum to 0, so the first is given by the others and left out where rows are added up.

- A hyperplane w: z·w for every row; the least of these, and how many are positive, must be what the certificate says.
- A witness a > 0 on some rows: Σ a·z = 0. By Gordan's theorem no w has z·w > 0 for all rows, as 0 = Σ a·(z·w) > 0.
- That no w has z·w ≥ 0 for all rows and > 0 for one either. Such a w is 0 on the rows of the witness. A further sum
  Σ b·z + Σ c·z = 0, with b > 0 on new rows and c of any sign on rows on which w is 0 already, makes it 0 on the new
  rows too. If all these rows have the rank of all rows there are, w is 0 on all. Their rank is bounded from below
  modulo a prime, that of all rows from above by independent vectors n with z·n = 0 for every row.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import math
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

FORMAT = "torchperc separability certificate"
VERSION = 1
KINDS = ("separable", "weakly separable", "not separable", "undecided")
PRIME = 2**61 - 1  # rank modulo a prime never exceeds the rank

Row = tuple[Sequence[float], int]
"""A sample's features and its class, counted from 0; −1/+1 are the classes 0 and 1."""


class RejectedError(Exception):
    """The certificate proves nothing about these data; the message says why."""


# --- numbers as text ----------------------------------------------------------------------------------------------


def write_number(value: Fraction | int) -> str:
    """A rational number as text: ``"-3/2"``; integers of more than 64 bits in base 16, which has no limit of length.

    Example:
        >>> write_number(Fraction(-3, 2)), write_number(2**70)
        ('-3/2', '0x400000000000000000')
    """
    value = Fraction(value)
    top, below = (str(part) if abs(part) < 2**64 else hex(part) for part in (value.numerator, value.denominator))
    return top if below == "1" else f"{top}/{below}"


def read_number(text: object) -> Fraction:
    """The inverse of :func:`write_number`."""
    top, slash, below = _text(text).partition("/")
    return Fraction(_integer(top), _integer(below) if slash else 1)


def _integer(text: str) -> int:
    digits = text.removeprefix("-")
    if digits.startswith("0x"):
        return int(text, 16)
    _demand(digits.isascii() and digits.isdigit() and len(digits) <= 20, f"{text[:40]!r} is not an integer")
    return int(text)


# --- what a certificate claims ------------------------------------------------------------------------------------


class Plane(NamedTuple):
    """Weights and biases of every class as integers over one denominator, and what is claimed of them."""

    weight: tuple[tuple[int, ...], ...]
    bias: tuple[int, ...]
    denominator: int
    least: Fraction = Fraction(0)
    squared_margin: Fraction = Fraction(0)
    positive: int = 0


class Sum(NamedTuple):
    """Integers on some rows (sample, other class) that are to sum to zero: Σ a·z = 0."""

    rows: tuple[tuple[int, int], ...]
    weights: tuple[int, ...]


class Witness(NamedTuple):
    """A sum with a > 0, and, if ``null`` is not None, further ones that prove that nothing separates weakly either."""

    sums: tuple[Sum, ...]
    null: tuple[Plane, ...] | None

    @property
    def rows(self) -> set[tuple[int, int]]:
        """The rows of all sums."""
        return {row for part in self.sums for row in part.rows}


class Claim(NamedTuple):
    """A certificate in numbers."""

    kind: str
    samples: int
    features: int
    labels: tuple[str, ...]
    signs: bool
    bias: bool
    digest: str
    plane: Plane | None
    witness: Witness | None


def checksum(content: dict[str, Any]) -> str:
    """Digest of all entries of a certificate but the checksum itself."""
    rest = {name: value for name, value in content.items() if name != "checksum"}
    text = json.dumps(rest, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def read_certificate(path: str | Path) -> dict[str, Any]:
    """The content of a certificate file, unchecked but for its being a certificate of a version known here."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not a certificate: {error}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"{path} is not a certificate of separability")
    if content.get("version") != VERSION or isinstance(content["version"], bool):
        raise ValueError(f"{path} has version {content.get('version')!r}; this verifier reads version {VERSION}")
    return content


def parse(content: dict[str, Any]) -> Claim:
    """The claim of a certificate; :class:`RejectedError` if it is damaged or inconsistent."""
    if content.get("checksum") != checksum(content):
        raise RejectedError("the certificate was changed after it was written: its checksum does not match")
    try:
        return _claim(content)
    except (KeyError, TypeError, ValueError, ZeroDivisionError, AttributeError) as error:
        raise RejectedError(f"the certificate is inconsistent: {error!r}") from None


def _claim(content: dict[str, Any]) -> Claim:
    _demand(isinstance(content["labels"], list), "labels must be a list")
    labels = tuple(_text(label) for label in content["labels"])
    signs, bias = content["signs"], content["bias"]
    _demand(type(signs) is type(bias) is bool, f"signs {signs!r} and bias {bias!r} must be true or false")
    samples, features = _count(content["samples"], 1), _count(content["features"], 1)
    _demand(len(set(labels)) == len(labels) >= 2, "labels must be two or more different names")
    _demand(not signs or len(labels) == 2, "signs are two labels")
    _demand(content["kind"] in KINDS, f"kind {content['kind']!r} is unknown")
    _text(content["reason"])
    sizes = (1 if signs else len(labels), features, bias)
    plane = None if content["hyperplane"] is None else _plane(content["hyperplane"], *sizes)
    witness = None if content["witness"] is None else _witness(content["witness"], samples, len(labels), *sizes)
    given = (plane is not None, witness is not None)
    needed = {"separable": (True, False), "weakly separable": (True, True), "not separable": (False, True)}
    _demand(given == needed.get(content["kind"], (False, False)), f"{content['kind']} has other evidence")
    return Claim(content["kind"], samples, features, labels, signs, bias, _text(content["data"]), plane, witness)


def _plane(content: dict[str, Any], units: int, features: int, bias: bool) -> Plane:
    weight = [[read_number(value) for value in row] for row in content["weight"]]
    offset = [read_number(value) for value in content["bias"]] if bias else [Fraction(0)] * units
    _demand(len(weight) == units and all(len(row) == features for row in weight), "weights of another shape")
    _demand(len(offset) == units and (bias or content["bias"] is None), "biases of another shape")
    least, squared = read_number(content["least"]), read_number(content["squared_margin"])
    return as_plane(weight, offset)._replace(
        least=least, squared_margin=squared, positive=_count(content["positive"], 0)
    )


def as_plane(weight: Sequence[Sequence[Fraction]], bias: Sequence[Fraction]) -> Plane:
    """Rational weights as integers over their common denominator."""
    common = math.lcm(*(value.denominator for row in (*weight, bias) for value in row))
    *rows, offsets = (tuple(int(value * common) for value in row) for row in (*weight, bias))
    return Plane(tuple(rows), offsets, common)


def _witness(content: dict[str, Any], samples: int, classes: int, units: int, features: int, bias: bool) -> Witness:
    sums = tuple(_sum(part, samples, classes) for part in (content, *content["further"]))
    known: set[tuple[int, int]] = set()
    for part in sums:
        fresh = [weight for row, weight in zip(part.rows, part.weights, strict=True) if row not in known]
        _demand(bool(fresh) and all(weight > 0 for weight in fresh), "a witness has weights above 0 on its own rows")
        known.update(part.rows)
    if content["null"] is None:
        _demand(len(sums) == 1, "further sums prove nothing by themselves")
        return Witness(sums, None)
    nothing = {"least": "0", "squared_margin": "0", "positive": 0}
    return Witness(sums, tuple(_plane({**entry, **nothing}, units, features, bias) for entry in content["null"]))


def _sum(content: dict[str, Any], samples: int, classes: int) -> Sum:
    rows = tuple((_count(i, 0), _count(k, 0)) for i, k in zip(content["samples"], content["rivals"], strict=True))
    weights = tuple(_integer(_text(value)) for value in content["weights"])
    _demand(len(weights) == len(rows) == len(set(rows)) > 0, "a witness has one weight per row, and no row twice")
    _demand(all(i < samples and k < classes for i, k in rows), "a witness of samples or classes that are not there")
    _demand(sum(weights) == _integer(_text(content["total"])), "the weights of the witness have another sum")
    return Sum(rows, weights)


def _text(value: object) -> str:
    _demand(isinstance(value, str), f"{value!r} is not text")
    return str(value)


def _count(value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{value!r} is not a count of at least {least}")
    return value


def _demand(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


# --- exact arithmetic ---------------------------------------------------------------------------------------------


def integers(values: Sequence[float]) -> tuple[list[int], int]:
    """Floats as integers over one power of two."""
    ratios = [float(value).as_integer_ratio() for value in values]
    common = max(below for _, below in ratios)
    return [top * (common // below) for top, below in ratios], common


def slacks(values: Sequence[float], own: int, plane: Plane) -> tuple[list[int], int]:
    """z·w of all rows of one sample, in the order of the other classes, as integers over one positive denominator.

    With labels −1/+1 the plane has one unit and z·w = y·(w·x + b); with K classes it is s_y − s_k.
    """
    entries, common = integers(values)
    scores = [
        sum(w * x for w, x in zip(weight, entries, strict=True) if x) + bias * common
        for weight, bias in zip(plane.weight, plane.bias, strict=True)
    ]
    common *= plane.denominator
    if len(scores) == 1:
        return [scores[0] if own else -scores[0]], common
    return [scores[own] - score for k, score in enumerate(scores) if k != own], common


def squared_margin(plane: Plane, least: Fraction) -> Fraction:
    """(least z·w)²/‖w‖², the square of the geometric margin, a rational number; biases are no part of ‖w‖."""
    squares = sum(value * value for row in plane.weight for value in row)
    return least * least * plane.denominator**2 / squares if squares else Fraction(0)


def row_vector(row: Row, rival: int, classes: int, bias: bool) -> tuple[list[int], int]:
    """z of one sample and one other class, without the block of class 0, as integers over a power of two.

    Example:
        >>> row_vector(([0.5, 1.0], 0), 1, 2, True)
        ([-1, -2, -2], 2)
    """
    values, own = row
    entries, below = integers([*values, 1.0] if bias else values)
    blocks = [[0] * len(entries) for _ in range(classes)]
    blocks[own], blocks[rival] = entries, [-entry for entry in entries]
    return [entry for block in blocks[1:] for entry in block], below


def null_vector(plane: Plane, bias: bool) -> list[int]:
    """The numbers of a plane in the order of :func:`row_vector`; those of class 0 taken off the others."""
    units = [[*weight, *[offset] * bias] for weight, offset in zip(plane.weight, plane.bias, strict=True)]
    if len(units) == 1:
        return units[0]
    return [a - b for unit in units[1:] for a, b in zip(unit, units[0], strict=True)]


def combination(part: Sum, rows: dict[int, Row], classes: int, bias: bool) -> list[int]:
    """Σ a·z, times a power of two."""
    vectors = [row_vector(rows[i], rival, classes, bias) for i, rival in part.rows]
    common = max(below for _, below in vectors)
    total = [0] * len(vectors[0][0])
    for (vector, below), weight in zip(vectors, part.weights, strict=True):
        factor = weight * (common // below)
        for j, entry in enumerate(vector):
            if entry:
                total[j] += factor * entry
    return total


def rank(rows: Iterable[Sequence[int]]) -> int:
    """Rank of integer vectors modulo a prime, which is at most their rank."""
    kept: list[tuple[int, list[int]]] = []  # pivot, and a row that is 1 there and 0 at the earlier pivots
    for given in rows:
        row = [value % PRIME for value in given]
        for pivot, other in kept:
            if row[pivot]:
                factor = PRIME - row[pivot]
                row = [(a + factor * b) % PRIME for a, b in zip(row, other, strict=True)]
        lead = next((j for j, value in enumerate(row) if value), None)
        if lead is not None:
            inverse = pow(row[lead], -1, PRIME)
            kept.append((lead, [value * inverse % PRIME for value in row]))
    return len(kept)


# --- the data -----------------------------------------------------------------------------------------------------


class Digest:
    """Names samples and labels by their values: the same for a CSV file, an array and a sparse matrix of them.

    Four digests are digested: the number of entries other than 0 of every sample (8 bytes each, the least first), the
    columns of these entries counted from 0 (4 bytes), their values (IEEE doubles, 8 bytes), the classes (8 bytes).

    Example:
        >>> digest = Digest()
        >>> digest.add([0.0, 1.5], 1)
        >>> digest.text(2)[:8]
        '07521301'
    """

    def __init__(self) -> None:
        self.samples = 0
        self.counts, self.columns, self.values, self.labels = (hashlib.blake2b(digest_size=32) for _ in range(4))

    def add(self, values: Sequence[float], own: int) -> None:
        """The next sample."""
        columns = [j for j, value in enumerate(values) if value]
        self.samples += 1
        self.counts.update(struct.pack("<q", len(columns)))
        self.columns.update(struct.pack(f"<{len(columns)}I", *columns))
        self.values.update(struct.pack(f"<{len(columns)}d", *(values[j] for j in columns)))
        self.labels.update(struct.pack("<q", own))

    def text(self, features: int) -> str:
        """The digest of all samples so far."""
        whole = hashlib.blake2b(f"{self.samples}x{features}".encode(), digest_size=32)
        for part in (self.counts, self.columns, self.values, self.labels):
            whole.update(part.digest())
        return whole.hexdigest()


def read_rows(path: str | Path, claim: Claim, target: str | None = None) -> Iterator[Row]:
    """The samples of a CSV file, one after the other, with the classes that the certificate gives their labels."""
    lines = _lines(Path(path))
    first = next(lines)
    header = _is_header(first[1], target)
    names = first[1] if header else [str(j + 1) for j in range(len(first[1]))]
    column = _column(names, target, path)
    others = names[:column] + names[column + 1 :]
    codes = {label: code for code, label in enumerate(claim.labels)}
    for line, row in lines if header else chain([first], lines):
        cell = row.pop(column)
        if not cell or cell.lower() == "nan":
            raise ValueError(f"{path}, line {line}, column {names[column]!r}: the label is missing")
        label = repr(float(cell) + 0.0).removesuffix(".0") if _is_number(cell) else cell
        if label not in codes:
            raise RejectedError(f"{path}, line {line}: label {label!r} is none of the certificate's")
        yield _numbers(row, path, line, others), codes[label]


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    width = None
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, skipinitialspace=True)
            for cells in reader:
                row = [cell.strip() for cell in cells]
                if not any(row):
                    continue
                width = len(row) if width is None else width
                if len(row) != width or width < 2:
                    needed = f"{len(row)} columns, where {max(width, 2)} are needed"
                    raise ValueError(f"{path}, line {reader.line_num}: {needed}")
                yield reader.line_num, row
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror or error}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is not a CSV file in UTF-8: {error}") from None
    if width is None:
        raise ValueError(f"{path} is empty")


def _is_header(first: list[str], target: str | None) -> bool:
    if target is not None and target in first and not _is_number(target):
        return True
    return not any(_is_number(cell) or not cell for cell in first)


def _column(names: list[str], target: str | None, path: str | Path) -> int:
    if target is None:
        return len(names) - 1
    if target in names:
        return names.index(target)
    if target.isascii() and target.isdigit() and 1 <= int(target) <= len(names):
        return int(target) - 1
    raise ValueError(f"{path} has no column {target!r}; it has {', '.join(names)}")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def _numbers(cells: list[str], path: str | Path, line: int, names: list[str]) -> list[float]:
    for cell, name in zip(cells, names, strict=True):
        if not _is_number(cell) or not math.isfinite(float(cell)):
            raise ValueError(f"{path}, line {line}, column {name!r}: {cell!r} is not a finite number")
    return [float(cell) for cell in cells]


# --- the proof ----------------------------------------------------------------------------------------------------


def examine(claim: Claim, rows: Iterable[Row]) -> None:
    """Read all samples once and raise :class:`RejectedError` unless every claim holds of them exactly."""
    if claim.kind == "undecided":
        raise RejectedError("the certificate says that the question was not decided; it proves nothing")
    digest, least, positive = Digest(), None, 0
    needed = {i for i, _ in claim.witness.rows} if claim.witness else set()
    kept: dict[int, Row] = {}
    for index, (values, own) in enumerate(rows):
        if len(values) != claim.features:
            raise RejectedError(f"the data have {len(values)} features, the certificate has {claim.features}")
        digest.add(values, own)
        if claim.plane:
            tops, below = slacks(values, own, claim.plane)
            positive += sum(top > 0 for top in tops)
            lowest = Fraction(min(tops), below)
            least = lowest if least is None else min(least, lowest)
        for null in (claim.witness and claim.witness.null) or ():
            if any(slacks(values, own, null)[0]):
                raise RejectedError(f"the witness does not span: sample {index} has a part outside")
        if index in needed:
            kept[index] = (list(values), own)
    if digest.samples != claim.samples or digest.text(claim.features) != claim.digest:
        raise RejectedError("the certificate is about other data")
    if least is not None:
        check_plane(claim, least, positive)
    check_witness(claim, kept)


def check_plane(claim: Claim, least: Fraction, positive: int) -> None:
    """Raise :class:`RejectedError` unless the least z·w and the number of positive ones are as claimed."""
    plane = claim.plane
    assert plane is not None
    if least < 0 or positive == 0 or (least == 0 and claim.kind == "separable"):
        raise RejectedError(f"the hyperplane does not separate: the least y·s is {write_number(least)}")
    if (least, positive) != (plane.least, plane.positive) or plane.squared_margin != squared_margin(plane, least):
        raise RejectedError(f"the margin is not the certificate's: the least y·s is {write_number(least)}")


def check_witness(claim: Claim, rows: dict[int, Row]) -> None:
    """Raise :class:`RejectedError` unless Σ a·z = 0 and, if it is claimed, the rows of the witness span all rows."""
    witness, classes = claim.witness, len(claim.labels)
    if witness is None:
        return
    if any(rows[i][1] == rival for i, rival in witness.rows):
        raise RejectedError("the witness compares a sample with its own class")
    if any(any(combination(part, rows, classes, claim.bias)) for part in witness.sums):
        raise RejectedError("the witness does not sum to zero")
    if witness.null is not None:
        dimension = (classes - 1) * (claim.features + claim.bias)
        inside = rank(row_vector(rows[i], rival, classes, claim.bias)[0] for i, rival in witness.rows)
        outside = rank(null_vector(plane, claim.bias) for plane in witness.null)
        if inside + outside < dimension or outside < len(witness.null):
            raise RejectedError(f"the witness does not span: rank {inside} and {outside} in {dimension} dimensions")


def verify_file(certificate: str | Path, data: str | Path, target: str | None = None) -> str:
    """Check a certificate file against a CSV file: a sentence if it holds, :class:`RejectedError` if it does not."""
    claim = parse(read_certificate(certificate))
    examine(claim, read_rows(data, claim, target))
    return f"valid: {claim.kind}, proved for all {claim.samples:,} samples of {data} in exact arithmetic"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"torchperc: error: {message} (see --help)", file=sys.stderr)
        raise SystemExit(2)


def main(words: Sequence[str] | None = None) -> int:
    """Entry point of the stand-alone verifier: prints the outcome in one line and returns the exit code."""
    parser = _Parser(prog="verifier", description="Checks a certificate of separability exactly.", allow_abbrev=False)
    parser.add_argument("certificate", help="a JSON file that torchperc separable --save wrote")
    parser.add_argument("data", help="the CSV file it is about")
    parser.add_argument("--target", help="column of labels, by name or position from 1 (default: the last)")
    arguments = parser.parse_args(words)
    try:
        print(verify_file(arguments.certificate, arguments.data, arguments.target))
    except RejectedError as reason:
        print(f"rejected: {' '.join(str(reason).split())}")
        return 1
    except (ValueError, OSError) as error:
        print(f"torchperc: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
