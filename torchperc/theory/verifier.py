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
EVIDENCE = {  # of each kind: whether it has a hyperplane, and whether it has a witness
    "separable": (True, False),
    "weakly separable": (True, True),
    "not separable": (False, True),
    "undecided": (False, False),
}
ENTRIES = {"kind": str, "samples": int, "features": int, "signs": bool, "bias": bool, "reason": str}
PRIME = 2**61 - 1  # the rank modulo a prime never exceeds the rank

Row = tuple[Sequence[float], int]
"""A sample's features and its class, counted from 0; −1/+1 are the classes 0 and 1."""


class RejectedError(Exception):
    """The certificate proves nothing about these data; the message says why."""


@dataclass(frozen=True)
class Hyperplane:
    """A separating hyperplane in rational numbers.

    ``weight`` has one row for labels −1/+1, else one per class. ``least`` is the smallest y·s, or s_y − s_k, of all
    samples; 0 if it separates weakly. ``positive`` counts the positive ones of all N·(K − 1) comparisons of a sample's
    class with another.

    Example:
        >>> import torchperc as tp
        >>> plane = tp.theory.separability([[0], [4]], [-1, 1]).hyperplane
        >>> plane.weight, plane.bias, plane.least, plane.margin
        (((Fraction(1, 1),),), (Fraction(-2, 1),), Fraction(2, 1), 2.0)
    """

    weight: tuple[tuple[Fraction, ...], ...]
    bias: tuple[Fraction, ...] | None
    least: Fraction = Fraction(0)
    positive: int = 0

    @cached_property
    def squared_margin(self) -> Fraction:
        """(least z·w)²/‖w‖², the squared geometric margin; ‖w‖ has no biases in it."""
        squares = sum(value * value for row in self.weight for value in row)
        return self.least**2 / squares if squares else Fraction(0)

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
        from torch import float64, tensor

        weight = tensor([list(map(float, row)) for row in self.weight], dtype=float64)
        return weight, None if self.bias is None else tensor(list(map(float, self.bias)), dtype=float64)


@dataclass(frozen=True)
class Witness:
    """Proof that no hyperplane separates strictly: Σ α·z = 0 with α > 0 and Σ α = 1, for some rows z (Gordan).

    With labels −1/+1 the row of sample i is y·(x, 1), so the two classes' parts of the sum are one point of both convex
    hulls. With K classes a row φ(x, y) − φ(x, k) belongs to a sample and another class k.

    Args:
        samples: the sample of each row, from 0.
        rivals: the other class of each row, from 0; labels −1 and +1 are the classes 0 and 1.
        weights: the integers that α is proportional to.
        further: sums that are positive on new rows, of any sign on earlier ones; a weak separator is zero on all.
        null: vectors orthogonal to all rows; if not None, the sums' rows span all rows, so nothing separates weakly.

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
    def sums(self) -> tuple[Witness, ...]:
        """This sum and the further ones."""
        return (self, *self.further)

    @property
    def rows(self) -> list[tuple[int, int]]:
        """Sample and other class of each row of this sum."""
        return list(zip(self.samples, self.rivals, strict=True))

    @property
    def all_rows(self) -> set[tuple[int, int]]:
        """The rows of all sums."""
        return {row for part in self.sums for row in part.rows}


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


def content_of(claim: Claim) -> dict[str, Any]:
    """Return the content of a certificate file; a claim is written in one way only."""
    content = {"format": FORMAT, "version": VERSION, **{name: getattr(claim, name) for name in ENTRIES}}
    content |= {"labels": list(claim.labels), "data": claim.digest, "hyperplane": None, "witness": None}
    if plane := claim.hyperplane:
        numbers = {"least": write_number(plane.least), "squared_margin": write_number(plane.squared_margin)}
        content["hyperplane"] = {**_vector_content(plane), **numbers, "positive": plane.positive}
    if witness := claim.witness:
        first, *further = map(_sum_content, witness.sums)
        null = None if witness.null is None else list(map(_vector_content, witness.null))
        content["witness"] = {**first, "further": further, "null": null}
    return {**content, "checksum": checksum(content)}


def _vector_content(plane: Hyperplane) -> dict[str, Any]:
    bias = None if plane.bias is None else list(map(write_number, plane.bias))
    return {"weight": [list(map(write_number, row)) for row in plane.weight], "bias": bias}


def _sum_content(witness: Witness) -> dict[str, Any]:
    weights, total = list(map(write_number, witness.weights)), write_number(sum(witness.weights))
    return {"samples": list(witness.samples), "rivals": list(witness.rivals), "weights": weights, "total": total}


def write_number(value: Fraction | int) -> str:
    """Return a rational number as text: ``"-3/2"``; integers of more than 64 bits in base 16, of any length."""
    value = Fraction(value)
    top, below = (str(part) if abs(part) < 2**64 else hex(part) for part in (value.numerator, value.denominator))
    return top if below == "1" else f"{top}/{below}"


def read_number(text: str) -> Fraction:
    """Inverse of :func:`write_number`."""
    top, _, below = text.partition("/")
    return Fraction(int(top, 0), int(below or "1", 0))


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
        claim = _claim(content)
        for what, holds in _conditions(claim):
            if not holds:
                raise ValueError(f"{what} expected")
    except KeyError as error:
        raise RejectedError(f"the certificate has no entry {error}") from None
    except (TypeError, ValueError, ArithmeticError, AttributeError, RecursionError) as error:
        raise RejectedError(f"the certificate is inconsistent: {error!r}") from None
    if content_of(claim)["checksum"] != content["checksum"]:  # an entry of another type, or one too many
        raise RejectedError("the certificate is inconsistent: an entry is malformed or unexpected")
    return claim


def _claim(content: dict[str, Any]) -> Claim:
    """Read all entries; one that is missing below or of another type shows when the claim is written again."""
    plane, witness = content["hyperplane"], content["witness"]
    entries: dict[str, Any] = {name: read(content[name]) for name, read in ENTRIES.items()}
    entries |= {"labels": tuple(map(str, content["labels"])), "digest": str(content["data"])}
    entries["hyperplane"] = None if plane is None else _hyperplane(plane)
    return Claim(**entries, witness=None if witness is None else _witness(witness))


def _hyperplane(content: dict[str, Any]) -> Hyperplane:
    weight, bias = tuple(tuple(map(read_number, row)) for row in content["weight"]), content["bias"]
    offset, least = None if bias is None else tuple(map(read_number, bias)), read_number(content.get("least", "0"))
    return Hyperplane(weight, offset, least, int(content.get("positive", 0)))


def _witness(content: dict[str, Any]) -> Witness:
    samples, rivals = (tuple(map(int, content[name])) for name in ("samples", "rivals"))
    weights, null = tuple(int(weight, 0) for weight in content["weights"]), content.get("null")
    further = tuple(map(_witness, content.get("further", ())))
    return Witness(samples, rivals, weights, further, None if null is None else tuple(map(_hyperplane, null)))


def _conditions(claim: Claim) -> Iterator[tuple[str, bool]]:
    """Yield what has to hold of sizes, labels and evidence, and whether it does."""
    plane, witness, classes = claim.hyperplane, claim.witness, len(claim.labels)
    yield "at least one sample and one feature", min(claim.samples, claim.features) >= 1
    yield "two or more different labels", 2 <= len(set(claim.labels)) == classes
    yield "two labels with signs", classes == 2 or not claim.signs
    yield f"the evidence of {claim.kind!r}", EVIDENCE.get(claim.kind) == (plane is not None, witness is not None)
    units = 1 if claim.signs else classes
    for each in ([] if plane is None else [plane]) + list((witness and witness.null) or ()):
        yield "a weight for each feature", [len(row) for row in each.weight] == [claim.features] * units
        yield "a bias for each unit", (each.bias and len(each.bias)) == (units if claim.bias else None)
    known: set[tuple[int, int]] = set()
    yield "null vectors with further sums", not (witness and witness.further and witness.null is None)
    for part in witness.sums if witness else ():
        yield "one weight for each row", len(set(part.rows)) == len(part.rows) == len(part.weights)
        yield "existing rows", all(0 <= i < claim.samples and 0 <= k < classes for i, k in part.rows)
        new = [weight for row, weight in zip(part.rows, part.weights, strict=True) if row not in known]
        yield "weights above 0 on new rows", min(new, default=0) > 0
        known.update(part.rows)


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


def row_vector(row: Row, rival: int, classes: int, bias: bool) -> tuple[list[int], int]:
    """Return z of one sample and one other class, without the block of class 0, as integers over a power of two."""
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


class Digest:
    """Digest of samples and labels, the same for a CSV file, an array and a sparse matrix.

    Four digests are digested: the number of entries other than 0 of every sample (8 bytes each, the least first), the
    columns of these entries counted from 0 (4 bytes), their values (IEEE doubles, 8 bytes), the classes (8 bytes).
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
    named = target is not None and target in first[1] and _number(target) is None
    header = named or all(cell and _number(cell) is None for cell in first[1])
    names = first[1] if header else [str(j + 1) for j in range(len(first[1]))]
    column = _column(names, target, path)
    codes = {label: code for code, label in enumerate(claim.labels)}
    others = names[:column] + names[column + 1 :]
    for line, row in lines if header else chain([first], lines):
        cell = row.pop(column)
        if not cell or cell.lower() == "nan":
            raise ValueError(f"{path}, line {line}, column {names[column]!r}: the label is missing")
        number = _number(cell)
        label = cell if number is None else repr(number + 0.0).removesuffix(".0")
        if label not in codes:
            raise RejectedError(f"{path}, line {line}: label {label!r} is not in the certificate")
        values = []
        for name, cell in zip(others, row, strict=True):
            value = _number(cell)
            if value is None or not math.isfinite(value):
                raise ValueError(f"{path}, line {line}, column {name!r}: {cell!r} is not a finite number")
            values.append(value)
        yield values, codes[label]


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines that are not blank, with their numbers."""
    width = None
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, skipinitialspace=True)
            for cells in reader:
                row = [cell.strip() for cell in cells]
                if not any(row):
                    continue
                width = width or len(row)
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


def _column(names: list[str], target: str | None, path: str | Path) -> int:
    """Return the position of the column of labels."""
    if target is None:
        return len(names) - 1
    if target in names:
        return names.index(target)
    if target.isascii() and target.isdigit() and 1 <= int(target) <= len(names):
        return int(target) - 1
    raise ValueError(f"{path} has no column {target!r}; it has {', '.join(names)}")


def _number(cell: str) -> float | None:
    """Return the number in a cell, or None."""
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return None


def examine(claim: Claim, rows: Iterable[Row]) -> None:
    """Read all samples once and raise :class:`RejectedError` unless every claim holds of them exactly."""
    if claim.kind == "undecided":
        raise RejectedError("the certificate says that the question was not decided; it proves nothing")
    plane, witness, digest, kept = claim.hyperplane, claim.witness, Digest(), dict[int, Row]()
    needed = {i for i, _ in witness.all_rows} if witness else set()
    least, positive = None, 0
    for index, (values, label) in enumerate(rows):
        if len(values) != claim.features:
            raise RejectedError(f"the data have {len(values)} features, the certificate has {claim.features}")
        digest.add(values, label)
        if plane:
            tops, below = functional_margins(values, label, plane)
            positive += sum(top > 0 for top in tops)
            lowest = Fraction(min(tops), below)
            least = lowest if least is None else min(least, lowest)
        for null in (witness and witness.null) or ():
            if any(functional_margins(values, label, null)[0]):
                raise RejectedError(f"the witness does not span: sample {index} has a part outside")
        if index in needed:
            kept[index] = (list(values), label)
    if digest.samples != claim.samples or digest.text(claim.features) != claim.digest:
        raise RejectedError("the certificate is about other data")
    if plane and least is not None:
        check_hyperplane(plane, claim.kind, least, positive)
    check_witness(claim, kept)


def check_hyperplane(plane: Hyperplane, kind: str, least: Fraction, positive: int) -> None:
    """Raise :class:`RejectedError` unless the smallest z·w and the number of positive ones are as claimed."""
    if least < 0 or positive == 0 or (least == 0 and kind == "separable"):
        raise RejectedError(f"the hyperplane does not separate: the smallest y·s is {write_number(least)}")
    if (least, positive) != (plane.least, plane.positive):
        raise RejectedError(f"the margin is not the certificate's: the smallest y·s is {write_number(least)}")


def check_witness(claim: Claim, rows: dict[int, Row]) -> None:
    """Raise :class:`RejectedError` unless Σ a·z = 0 and, if it is claimed, the rows of the witness span all rows."""
    witness, classes = claim.witness, len(claim.labels)
    if witness is None:
        return
    if any(rows[i][1] == rival for i, rival in witness.all_rows):
        raise RejectedError("the witness compares a sample with its own class")
    if any(any(combination(part, rows, classes, claim.bias)) for part in witness.sums):
        raise RejectedError("the witness does not sum to zero")
    if witness.null is not None:
        dimension = (classes - 1) * (claim.features + claim.bias)
        inside = rank(row_vector(rows[i], rival, classes, claim.bias)[0] for i, rival in witness.all_rows)
        outside = rank(null_vector(plane, claim.bias) for plane in witness.null)
        if inside + outside < dimension or outside < len(witness.null):
            raise RejectedError(f"the witness does not span: rank {inside} and {outside} in {dimension} dimensions")


def verify_file(certificate: str | Path, data: str | Path, target: str | None = None) -> str:
    """Return a sentence if a certificate file holds for a CSV file; else raise :class:`RejectedError`."""
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
    parser.add_argument("certificate", help="JSON file that torchperc separable --out wrote")
    parser.add_argument("data", help="CSV file of its data")
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
