"""Checks a certificate of separability against a CSV file, in exact arithmetic, by the standard library alone.

    python -m torchperc.theory.verifier certificate.json data.csv [--target NAME|POSITION]

The file runs by itself too (``python verifier.py …``): it needs neither torch nor the rest of the package, and shares
nothing with the solver that found the certificate. A float is a rational number n/2ᵏ, so every sum below is a sum of
Python integers and nothing is ever rounded. Exit code 0: the proof holds; 1: it does not; 2: the input cannot be read.

What is checked. Each sample i of class yᵢ and each other class k give one row zᵢₖ = φ(xᵢ, yᵢ) − φ(xᵢ, k), where
φ(x, k) puts (x, 1), or x without a bias, in block k of K; with labels −1/+1 the row is yᵢ·(xᵢ, 1). The blocks of a row
sum to 0, so the first is determined by the others and left out where rows are added up.

- A hyperplane w: z·w for each row; the smallest of these, and how many are positive, must be what the certificate says.
- A witness a > 0 on some rows: Σ a·z = 0. By Gordan's theorem no w has z·w > 0 for all rows, as 0 = Σ a·(z·w) > 0.
- That no w has z·w ≥ 0 for all rows and > 0 for one either. Such a w is 0 on the rows of the witness. A further sum
  Σ b·z + Σ c·z = 0, with b > 0 on new rows and c of any sign on rows on which w is 0 already, makes it 0 on the new
  rows too. If all these rows have the rank of all rows there are, w is 0 on all. Their rank is bounded from below
  modulo a prime, that of all rows from above by independent vectors n with z·n = 0 for each row.
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
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

FORMAT = "torchperc separability certificate"
VERSION = 1
KINDS = ("separable", "weakly separable", "not separable", "undecided")
PRIME = 2**61 - 1  # the rank modulo a prime never exceeds the rank

Row = tuple[Sequence[float], int]
"""A sample's features and its class, counted from 0; −1/+1 are the classes 0 and 1."""


class RejectedError(Exception):
    """The certificate proves nothing about these data; the message says why."""


# --- what a certificate claims ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hyperplane:
    """A separating hyperplane in rational numbers.

    ``weight`` has one row for labels −1/+1, else one per class. ``least`` is the smallest y·s of all samples, the
    smallest s_y − s_k with many classes; 0 if it separates weakly. ``squared_margin`` = least²/‖w‖² is the square of
    the geometric margin, which is rational while the margin need not be. ``positive`` counts how many of the N·(K − 1)
    comparisons of a sample's class with another are positive.

    Example:
        >>> import torchperc as tp
        >>> plane = tp.theory.separability([[0], [4]], [-1, 1]).hyperplane
        >>> plane.weight, plane.bias, plane.least, plane.margin
        (((Fraction(1, 1),),), (Fraction(-2, 1),), Fraction(2, 1), 2.0)
    """

    weight: tuple[tuple[Fraction, ...], ...]
    bias: tuple[Fraction, ...] | None
    least: Fraction = Fraction(0)
    squared_margin: Fraction = Fraction(0)
    positive: int = 0

    @property
    def margin(self) -> float:
        """The geometric margin (free bias): the distance of the nearest sample from the hyperplane, min y·s/‖w‖."""
        value = self.squared_margin
        half = (value.numerator.bit_length() - value.denominator.bit_length()) // 2
        return math.ldexp(math.sqrt(value / Fraction(4) ** half), half)

    @cached_property
    def integers(self) -> tuple[list[list[int]], int]:
        """The weights of each unit, its bias last (0 if there is none), as integers over one denominator."""
        bias = self.bias or (Fraction(0),) * len(self.weight)
        units = [(*weight, offset) for weight, offset in zip(self.weight, bias, strict=True)]
        common = math.lcm(*(value.denominator for unit in units for value in unit))
        return [[int(value * common) for value in unit] for unit in units], common

    def tensors(self) -> Any:
        """Return weight (1, d) or (K, d) and bias in float64, as a net takes them; rounded if they have more bits."""
        import torch

        weight = torch.tensor([[float(value) for value in row] for row in self.weight], dtype=torch.float64)
        bias = self.bias
        return weight, None if bias is None else torch.tensor([float(value) for value in bias], dtype=torch.float64)


@dataclass(frozen=True)
class Witness:
    """Proof that no hyperplane separates strictly: Σ α·z = 0 with α > 0 and Σ α = 1, for some rows z (Gordan).

    With labels −1/+1 the row of sample i is y·(x, 1), so the two classes' parts of the sum are one point of both convex
    hulls. With K classes a row φ(x, y) − φ(x, k) belongs to a sample and another class k.

    Args:
        samples: the sample of each row, from 0.
        rivals: the other class of each row, from 0; labels −1 and +1 are the classes 0 and 1.
        weights: the integers that α is proportional to.
        further: further sums, positive on new rows and of any sign on those of earlier sums; any weak separator is
            zero on these rows.
        null: vectors orthogonal to all rows. If not None, the rows of the sums span all rows, so that there is no weak
            separator either, see :attr:`Claim.weak`.

    Example:
        >>> import torchperc as tp
        >>> tp.theory.separability(*tp.data.gate("XOR")).witness.alpha
        (Fraction(1, 4), Fraction(1, 4), Fraction(1, 4), Fraction(1, 4))
    """

    samples: tuple[int, ...]
    rivals: tuple[int, ...]
    weights: tuple[int, ...]
    further: tuple[Witness, ...] = ()
    null: tuple[Hyperplane, ...] | None = None

    @property
    def alpha(self) -> tuple[Fraction, ...]:
        """α of each row."""
        return tuple(Fraction(weight, sum(self.weights)) for weight in self.weights)

    @property
    def rows(self) -> list[tuple[int, int]]:
        """Sample and other class of each row."""
        return list(zip(self.samples, self.rivals, strict=True))

    @property
    def all_rows(self) -> set[tuple[int, int]]:
        """The rows of this sum and of all further ones."""
        return {row for part in (self, *self.further) for row in part.rows}


@dataclass(frozen=True)
class Claim:
    """What a certificate says: about which data, of which kind, with which evidence."""

    kind: str
    samples: int
    features: int
    labels: tuple[str, ...]  # names of the classes, in the order of their codes
    signs: bool  # whether the codes are −1/+1; otherwise 0 … K−1
    bias: bool  # whether hyperplanes may lie off the origin
    digest: str  # of the data, see Digest
    hyperplane: Hyperplane | None = None
    witness: Witness | None = None
    reason: str = ""

    @property
    def separable(self) -> bool | None:
        """True, False, or None if that was not decided. Weakly separable is not separable."""
        return {"separable": True, "undecided": None}.get(self.kind, False)

    @property
    def weak(self) -> bool | None:
        """Whether some hyperplane has y·s ≥ 0 for each sample and > 0 for one; None if that was not decided."""
        if self.hyperplane is not None:
            return True
        return False if self.witness is not None and self.witness.null is not None else None


# --- reading a certificate ----------------------------------------------------------------------------------------


def write_number(value: Fraction | int) -> str:
    """Return a rational number as text: ``"-3/2"``; integers of more than 64 bits in base 16, of any length.

    Example:
        >>> write_number(Fraction(-3, 2)), write_number(2**70)
        ('-3/2', '0x400000000000000000')
    """
    value = Fraction(value)
    top, below = (str(part) if abs(part) < 2**64 else hex(part) for part in (value.numerator, value.denominator))
    return top if below == "1" else f"{top}/{below}"


def read_number(text: object) -> Fraction:
    """Inverse of :func:`write_number`."""
    top, slash, below = _text(text).partition("/")
    return Fraction(_integer(top), _integer(below) if slash else 1)


def _integer(text: str) -> int:
    digits = text.removeprefix("-")
    if digits.startswith("0x"):
        return int(text, 16)
    _require(digits.isascii() and digits.isdigit() and len(digits) <= 20, f"{text[:40]!r} is not an integer")
    return int(text)


def checksum(content: dict[str, Any]) -> str:
    """Return the digest of all entries of a certificate but the checksum itself."""
    rest = {name: value for name, value in content.items() if name != "checksum"}
    text = json.dumps(rest, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def read_certificate(path: str | Path) -> dict[str, Any]:
    """Return the content of a certificate file; only its format and version are checked."""
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
    """Return the claim of a certificate; :class:`RejectedError` if it is damaged or inconsistent."""
    if content.get("checksum") != checksum(content):
        raise RejectedError("the certificate was changed after it was written: its checksum does not match")
    try:
        return _claim(content)
    except KeyError as error:
        raise RejectedError(f"the certificate has no entry {error}") from None
    except (TypeError, ValueError, ZeroDivisionError, AttributeError) as error:
        raise RejectedError(f"the certificate is inconsistent: {error!r}") from None


def _claim(content: dict[str, Any]) -> Claim:
    _require(isinstance(content["labels"], list), "labels must be a list")
    labels = tuple(_text(label) for label in content["labels"])
    signs, bias = content["signs"], content["bias"]
    _require(type(signs) is type(bias) is bool, f"signs {signs!r} and bias {bias!r} must be true or false")
    samples, features = _count(content["samples"], 1), _count(content["features"], 1)
    _require(len(set(labels)) == len(labels) >= 2, "labels must be two or more different names")
    _require(not signs or len(labels) == 2, "signs are two labels")
    _require(content["kind"] in KINDS, f"kind {content['kind']!r} is unknown")
    shape = (1 if signs else len(labels), features, bias)
    plane = None if content["hyperplane"] is None else _hyperplane(content["hyperplane"], *shape)
    witness = None if content["witness"] is None else _witness(content["witness"], samples, len(labels), *shape)
    given = (plane is not None, witness is not None)
    needed = {"separable": (True, False), "weakly separable": (True, True), "not separable": (False, True)}
    _require(given == needed.get(content["kind"], (False, False)), f"{content['kind']} has other evidence")
    digest, reason = _text(content["data"]), _text(content["reason"])
    return Claim(content["kind"], samples, features, labels, signs, bias, digest, plane, witness, reason)


def _hyperplane(content: dict[str, Any], units: int, features: int, bias: bool) -> Hyperplane:
    null = _null_vector(content, units, features, bias)
    least, squared = read_number(content["least"]), read_number(content["squared_margin"])
    return Hyperplane(null.weight, null.bias, least, squared, _count(content["positive"], 0))


def _null_vector(content: dict[str, Any], units: int, features: int, bias: bool) -> Hyperplane:
    weight = tuple(tuple(read_number(value) for value in row) for row in content["weight"])
    offset = tuple(read_number(value) for value in content["bias"]) if bias else None
    _require(len(weight) == units and all(len(row) == features for row in weight), "weights of another shape")
    _require(len(offset) == units if offset else content["bias"] is None, "biases of another shape")
    return Hyperplane(weight, offset)


def _witness(content: dict[str, Any], samples: int, classes: int, units: int, features: int, bias: bool) -> Witness:
    sums = tuple(_sum(part, samples, classes) for part in (content, *content["further"]))
    known: set[tuple[int, int]] = set()
    for part in sums:
        new = [weight for row, weight in zip(part.rows, part.weights, strict=True) if row not in known]
        _require(bool(new) and all(weight > 0 for weight in new), "a witness has weights above 0 on its own rows")
        known.update(part.rows)
    first, *further = sums
    if content["null"] is None:
        _require(not further, "further sums prove nothing by themselves")
        return first
    null = tuple(_null_vector(entry, units, features, bias) for entry in content["null"])
    return Witness(first.samples, first.rivals, first.weights, tuple(further), null)


def _sum(content: dict[str, Any], samples: int, classes: int) -> Witness:
    rows = [(_count(i, 0), _count(k, 0)) for i, k in zip(content["samples"], content["rivals"], strict=True)]
    weights = tuple(_integer(_text(value)) for value in content["weights"])
    _require(len(weights) == len(rows) == len(set(rows)) > 0, "a witness has one weight per row, and no row twice")
    _require(all(i < samples and k < classes for i, k in rows), "a witness of samples or classes that do not exist")
    _require(sum(weights) == _integer(_text(content["total"])), "the weights of the witness have another sum")
    return Witness(tuple(i for i, _ in rows), tuple(k for _, k in rows), weights)


def _text(value: object) -> str:
    _require(isinstance(value, str), f"{value!r} is not text")
    return str(value)


def _count(value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{value!r} is not a count of at least {least}")
    return value


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


# --- exact arithmetic ---------------------------------------------------------------------------------------------


def integers(values: Sequence[float]) -> tuple[list[int], int]:
    """Return floats as integers over one power of two."""
    ratios = [float(value).as_integer_ratio() for value in values]
    common = max(below for _, below in ratios)
    return [top * (common // below) for top, below in ratios], common


def functional_margins(values: Sequence[float], label: int, plane: Hyperplane) -> tuple[list[int], int]:
    """Return z·w of all rows of a sample, by other class, as integers over one positive denominator.

    With labels −1/+1 the hyperplane has one unit and z·w = y·(w·x + b); with K classes it is s_y − s_k.
    """
    entries, common = integers(values)
    units, denominator = plane.integers
    scores = [sum(w * x for w, x in zip(unit, entries, strict=False) if x) + unit[-1] * common for unit in units]
    if len(scores) == 1:
        return [scores[0] if label else -scores[0]], common * denominator
    return [scores[label] - score for k, score in enumerate(scores) if k != label], common * denominator


def squared_margin(plane: Hyperplane, least: Fraction) -> Fraction:
    """Return (least z·w)²/‖w‖², the squared geometric margin, a rational number; ‖w‖ has no biases in it."""
    squares = sum(value * value for row in plane.weight for value in row)
    return least * least / squares if squares else Fraction(0)


def row_vector(row: Row, rival: int, classes: int, bias: bool) -> tuple[list[int], int]:
    """Return z of one sample and one other class, without the block of class 0, as integers over a power of two.

    Example:
        >>> row_vector(([0.5, 1.0], 0), 1, 2, True)
        ([-1, -2, -2], 2)
    """
    values, label = row
    entries, below = integers([*values, 1.0] if bias else values)
    blocks = [[0] * len(entries) for _ in range(classes)]
    blocks[label], blocks[rival] = entries, [-entry for entry in entries]
    return [entry for block in blocks[1:] for entry in block], below


def null_vector(plane: Hyperplane, bias: bool) -> list[int]:
    """Return the numbers of a hyperplane in the order of :func:`row_vector`, those of class 0 subtracted."""
    units = [unit if bias else unit[:-1] for unit in plane.integers[0]]
    if len(units) == 1:
        return units[0]
    return [a - b for unit in units[1:] for a, b in zip(unit, units[0], strict=True)]


def combination(witness: Witness, rows: dict[int, Row], classes: int, bias: bool) -> list[int]:
    """Return Σ a·z of a witness without its further sums, times a power of two."""
    vectors = [row_vector(rows[i], rival, classes, bias) for i, rival in witness.rows]
    common = max(below for _, below in vectors)
    total = [0] * len(vectors[0][0])
    for (vector, below), weight in zip(vectors, witness.weights, strict=True):
        factor = weight * (common // below)
        for j, entry in enumerate(vector):
            if entry:
                total[j] += factor * entry
    return total


def rank(rows: Iterable[Sequence[int]]) -> int:
    """Return the rank of integer vectors modulo a prime, which is at most their rank."""
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

    def add(self, values: Sequence[float], label: int) -> None:
        """Add the next sample and its class."""
        columns = [j for j, value in enumerate(values) if value]
        self.samples += 1
        self.counts.update(struct.pack("<q", len(columns)))
        self.columns.update(struct.pack(f"<{len(columns)}I", *columns))
        self.values.update(struct.pack(f"<{len(columns)}d", *(values[j] for j in columns)))
        self.labels.update(struct.pack("<q", label))

    def text(self, features: int) -> str:
        """Return the digest of all samples so far."""
        whole = hashlib.blake2b(f"{self.samples}x{features}".encode(), digest_size=32)
        for part in (self.counts, self.columns, self.values, self.labels):
            whole.update(part.digest())
        return whole.hexdigest()


def read_rows(path: str | Path, claim: Claim, target: str | None = None) -> Iterator[Row]:
    """Yield the samples of a CSV file, with the classes that the certificate gives their labels."""
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
    needed = {i for i, _ in claim.witness.all_rows} if claim.witness else set()
    kept: dict[int, Row] = {}
    for index, (values, label) in enumerate(rows):
        if len(values) != claim.features:
            raise RejectedError(f"the data have {len(values)} features, the certificate has {claim.features}")
        digest.add(values, label)
        if claim.hyperplane:
            tops, below = functional_margins(values, label, claim.hyperplane)
            positive += sum(top > 0 for top in tops)
            lowest = Fraction(min(tops), below)
            least = lowest if least is None else min(least, lowest)
        for null in (claim.witness and claim.witness.null) or ():
            if any(functional_margins(values, label, null)[0]):
                raise RejectedError(f"the witness does not span: sample {index} has a part outside")
        if index in needed:
            kept[index] = (list(values), label)
    if digest.samples != claim.samples or digest.text(claim.features) != claim.digest:
        raise RejectedError("the certificate is about other data")
    if claim.hyperplane and least is not None:
        check_hyperplane(claim.hyperplane, claim.kind, least, positive)
    check_witness(claim, kept)


def check_hyperplane(plane: Hyperplane, kind: str, least: Fraction, positive: int) -> None:
    """Raise :class:`RejectedError` unless the smallest z·w and the number of positive ones are as claimed."""
    if least < 0 or positive == 0 or (least == 0 and kind == "separable"):
        raise RejectedError(f"the hyperplane does not separate: the smallest y·s is {write_number(least)}")
    if (least, positive) != (plane.least, plane.positive) or plane.squared_margin != squared_margin(plane, least):
        raise RejectedError(f"the margin is not the certificate's: the smallest y·s is {write_number(least)}")


def check_witness(claim: Claim, rows: dict[int, Row]) -> None:
    """Raise :class:`RejectedError` unless Σ a·z = 0 and, if it is claimed, the rows of the witness span all rows."""
    witness, classes = claim.witness, len(claim.labels)
    if witness is None:
        return
    if any(rows[i][1] == rival for i, rival in witness.all_rows):
        raise RejectedError("the witness compares a sample with its own class")
    if any(any(combination(part, rows, classes, claim.bias)) for part in (witness, *witness.further)):
        raise RejectedError("the witness does not sum to zero")
    if witness.null is not None:
        dimension = (classes - 1) * (claim.features + claim.bias)
        inside = rank(row_vector(rows[i], rival, classes, claim.bias)[0] for i, rival in witness.all_rows)
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
