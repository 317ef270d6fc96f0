"""Certificates of separability: the evidence itself, checked in exact arithmetic, as an object and as a file."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchperc._checks import Data
from torchperc._files import write_atomically
from torchperc.theory import verifier
from torchperc.theory.separability.rows import Problem
from torchperc.theory.verifier import Claim, Plane, RejectedError, write_number


@dataclass(frozen=True)
class Hyperplane:
    """A separating hyperplane in rational numbers.

    ``weight`` has one row for labels −1/+1, else one per class. ``least`` is the least y·s of all samples, the least
    s_y − s_k with many classes; 0 if it separates weakly. ``squared_margin`` = least²/‖w‖² is the square of the
    geometric margin, which is rational while the margin need not be. ``positive`` counts in how many of the N·(K − 1)
    comparisons of a sample's class with another the sample is on its side and not on the hyperplane.

    Example:
        >>> import torchperc as tp
        >>> plane = tp.theory.separability([[0], [4]], [-1, 1]).hyperplane
        >>> plane.weight, plane.bias, plane.least, plane.margin
        (((Fraction(1, 1),),), (Fraction(-2, 1),), Fraction(2, 1), 2.0)
    """

    weight: tuple[tuple[Fraction, ...], ...]
    bias: tuple[Fraction, ...] | None
    least: Fraction
    squared_margin: Fraction
    positive: int

    @property
    def margin(self) -> float:
        """The geometric margin (free bias): the distance of the nearest sample from the hyperplane, min y·s/‖w‖."""
        value = self.squared_margin
        half = (value.numerator.bit_length() - value.denominator.bit_length()) // 2
        return math.ldexp(math.sqrt(value / Fraction(4) ** half), half)

    def tensors(self) -> tuple[Tensor, Tensor | None]:
        """Weight (1, d) or (K, d) and bias in float64, as a net takes them; rounded if they have more bits."""
        weight = torch.tensor([[float(value) for value in row] for row in self.weight], dtype=torch.float64)
        bias = self.bias
        return weight, None if bias is None else torch.tensor([float(value) for value in bias], dtype=torch.float64)


@dataclass(frozen=True)
class Witness:
    """Proof that no hyperplane separates strictly: Σ α·z = 0 with α > 0 and Σ α = 1, for some rows z (Gordan).

    With labels −1/+1 the row of sample i is y·(x, 1), so the two classes' parts of the sum are one point of both convex
    hulls. With K classes a row φ(x, y) − φ(x, k) belongs to a sample and another class k.

    Args:
        samples: the sample of every row, from 0.
        rivals: the other class of every row, from 0; labels −1 and +1 are the classes 0 and 1.
        weights: the integers that α is proportional to.
        further: more such sums, positive on rows that are new and of any sign on those of the sums before: whatever is
            ≥ 0 on all rows is 0 on all of these.
        null: vectors at right angles to all rows. If not None, all rows are in the span of those of the sums, so that
            there is no weak separator either, see :attr:`Certificate.weak`.

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
        """α of every row."""
        total = sum(self.weights)
        return tuple(Fraction(weight, total) for weight in self.weights)


@dataclass(frozen=True, eq=False)  # the data it is bound to have no single answer to ==
class Certificate:
    """Whether a hyperplane separates labelled data, with the proof.

    ``kind`` is one of

    - ``"separable"``: y·s > 0 for every sample; ``hyperplane`` is the proof.
    - ``"weakly separable"``: no hyperplane does that, as ``witness`` proves; but ``hyperplane`` has y·s ≥ 0 for every
      sample and > 0 for at least one, so its margin is 0. (Statisticians call it quasi-complete separation: logistic
      regression has no finite optimum here.)
    - ``"not separable"``: no hyperplane separates, as ``witness`` proves. That none separates weakly either is proved
      as well, unless ``weak`` is None.
    - ``"undecided"``: no proof was found, for the ``reason``.

    Example:
        >>> import torchperc as tp
        >>> X, y = tp.data.gate("AND")
        >>> certificate = tp.theory.separability(X, y)
        >>> certificate.kind, certificate.separable, certificate.verify()
        ('separable', True, True)
        >>> print(certificate)
        separable: every sample is on its side of a hyperplane, the nearest 0.353553 away from it
        >>> certificate.verify(X + 1, y)
        False
    """

    kind: str
    samples: int
    features: int
    labels: tuple[str, ...]  # names of the classes, in the order of their codes
    signs: bool  # whether the codes are −1/+1; otherwise 0 … K−1
    bias: bool  # whether hyperplanes may lie off the origin
    digest: str  # of the data, see torchperc.theory.verifier.Digest
    hyperplane: Hyperplane | None = None
    witness: Witness | None = None
    reason: str = ""
    rows: Problem | None = field(default=None, repr=False)

    @property
    def separable(self) -> bool | None:
        """True, False, or None if that was not decided. Weakly is not separable."""
        return {"separable": True, "undecided": None}.get(self.kind, False)

    @property
    def weak(self) -> bool | None:
        """Whether some hyperplane has y·s ≥ 0 for every sample and > 0 for one; None if that was not decided."""
        if self.hyperplane is not None:
            return True
        return False if self.witness is not None and self.witness.null is not None else None

    @property
    def margin(self) -> float | None:
        """The geometric margin (free bias) of the hyperplane, which need not be the largest; None without one."""
        return None if self.hyperplane is None else self.hyperplane.margin

    def point(self) -> tuple[Fraction, ...]:
        """A point in both convex hulls, exactly: the sum Σ α·x over the samples of either class, divided by Σ α.

        Example:
            >>> import torchperc as tp
            >>> tp.theory.separability(*tp.data.gate("XOR")).point()
            (Fraction(1, 2), Fraction(1, 2))
        """
        if self.witness is None or self.rows is None or len(self.labels) > 2 or not self.bias:
            raise ValueError("point is for two classes with a bias, a witness and its data")
        pairs = zip(self.witness.samples, self.witness.weights, strict=True)
        chosen = [(self.rows.sample(i)[0], weight) for i, weight in pairs if self.rows.own[i] == 1]
        total = sum(weight for _, weight in chosen)
        return tuple(
            sum((Fraction(weight, total) * Fraction(values[j]) for values, weight in chosen), Fraction(0))
            for j in range(self.features)
        )

    def verify(self, X: Data | None = None, y: Data | None = None) -> bool:
        """Whether the proof holds of the data, in exact rational arithmetic and whoever found it.

        Without X and y it is about the data it was made from. For a hyperplane, float64 settles the samples whose y·s
        is further from 0 than a rigorous bound of everything that rounding can have done, and integers all others;
        :mod:`torchperc.theory.verifier` does every one in integers, by the standard library alone.
        """
        return self.fault(X, y) is None

    def fault(self, X: Data | None = None, y: Data | None = None) -> str | None:
        """Why :meth:`verify` says no; None if it says yes."""
        if X is not None and y is not None:
            classes = None if self.signs else len(self.labels)
            return self.fault_in(Problem.of(X, y, bias=self.bias, num_classes=classes))
        if X is not None or y is not None:
            raise ValueError("verify takes X and y together, or neither")
        if self.rows is None:
            raise ValueError("a certificate from a file has no data with it; call verify(X, y)")
        return self.fault_in(replace(self.rows))  # a fresh look: data can have changed

    def fault_in(self, problem: Problem) -> str | None:
        """The same of data that were checked already."""
        try:
            _examine(verifier.parse(self._content()), problem)
        except RejectedError as reason:
            return str(reason)
        return None

    def save(self, path: str | Path) -> None:
        """Write the certificate to a JSON file, atomically. Numbers are written exactly.

        Example:
            >>> import tempfile
            >>> import torchperc as tp
            >>> X, y = tp.data.gate("XOR")
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     tp.theory.separability(X, y).save(f"{folder}/xor.json")
            ...     loaded = Certificate.load(f"{folder}/xor.json")
            >>> loaded.kind, loaded.verify(X, y)
            ('not separable', True)
        """
        write_atomically(Path(path), (json.dumps(self._content(), indent=1, ensure_ascii=False) + "\n").encode())

    @classmethod
    def load(cls, path: str | Path) -> Certificate:
        """Read a certificate from a file. That it can be read proves nothing: call ``verify(X, y)``."""
        content = verifier.read_certificate(path)
        try:
            claim = verifier.parse(content)
        except RejectedError as error:
            raise ValueError(f"{path}: {error}") from None
        plane = None if claim.plane is None else hyperplane(claim.plane, claim.bias)
        witness = None if claim.witness is None else _witness(claim.witness, claim.bias)
        return cls(*claim[:7], plane, witness, content["reason"])

    def _content(self) -> dict[str, Any]:
        content: dict[str, Any] = {
            "format": verifier.FORMAT,
            "version": verifier.VERSION,
            "kind": self.kind,
            "samples": self.samples,
            "features": self.features,
            "labels": list(self.labels),
            "signs": self.signs,
            "bias": self.bias,
            "data": self.digest,
            "hyperplane": None,
            "witness": None,
            "reason": self.reason,
        }
        if (plane := self.hyperplane) is not None:
            claims = {"least": write_number(plane.least), "squared_margin": write_number(plane.squared_margin)}
            content["hyperplane"] = {**_null_content(plane), **claims, "positive": plane.positive}
        if self.witness is not None:
            further = [_sum_content(part) for part in self.witness.further]
            null = None if self.witness.null is None else [_null_content(plane) for plane in self.witness.null]
            content["witness"] = {**_sum_content(self.witness), "further": further, "null": null}
        return {**content, "checksum": verifier.checksum(content)}

    def __str__(self) -> str:
        return f"{self.kind}: {self._sentence()}"

    def _sentence(self) -> str:
        if self.kind == "undecided":
            return self.reason
        if self.kind == "separable":
            if self.signs:
                return f"every sample is on its side of a hyperplane, the nearest {self.margin:.6g} away from it"
            return f"every sample has its highest score for its own class, by at least {self.margin:.6g}·‖w‖"
        assert self.witness is not None
        count = len(set(self.witness.samples))
        made = f"made of {count} sample{'s' * (count > 1)}"
        if len(self.labels) > 2:
            proof = f"the differences φ(x, y) − φ(x, k) have a weighted mean of zero, {made}"
        elif self.bias:
            proof = f"a point in both convex hulls, {made}"
        else:
            proof = f"the origin is in the convex hull of y·x, {made}"
        if self.kind == "weakly separable":
            return f"{proof}; but a hyperplane has every sample on its side or on itself, and not all on itself"
        return proof if not self.reason else f"{proof}; {self.reason}"


def _examine(claim: Claim, problem: Problem) -> None:
    """As :func:`torchperc.theory.verifier.examine`, with floats for what floats can prove."""
    if claim.kind == "undecided":
        raise RejectedError("the question was not decided")
    size = (len(problem.own), problem.features)
    if size != (claim.samples, claim.features) or problem.digest != claim.digest:
        raise RejectedError("the certificate is about other data")
    if claim.plane is not None:
        least, positive, _ = problem.measure(claim.plane)
        verifier.check_plane(claim, least, positive)
    if claim.witness is not None:
        verifier.check_witness(claim, {i: problem.sample(i) for i, _ in claim.witness.rows})
        if not all(map(problem.is_null, claim.witness.null or ())):
            raise RejectedError("the witness does not span all samples")


def hyperplane(plane: Plane, bias: bool) -> Hyperplane:
    """A plane of integers over one denominator as rational numbers."""
    weight = tuple(tuple(Fraction(value, plane.denominator) for value in row) for row in plane.weight)
    offset = tuple(Fraction(value, plane.denominator) for value in plane.bias) if bias else None
    return Hyperplane(weight, offset, plane.least, plane.squared_margin, plane.positive)


def _witness(claim: verifier.Witness, bias: bool) -> Witness:
    first, *further = (
        Witness(tuple(i for i, _ in part.rows), tuple(k for _, k in part.rows), part.weights) for part in claim.sums
    )
    null = None if claim.null is None else tuple(hyperplane(plane, bias) for plane in claim.null)
    return replace(first, further=tuple(further), null=null)


def _null_content(plane: Hyperplane) -> dict[str, Any]:
    weight = [[write_number(value) for value in row] for row in plane.weight]
    return {"weight": weight, "bias": None if plane.bias is None else [write_number(value) for value in plane.bias]}


def _sum_content(witness: Witness) -> dict[str, Any]:
    return {
        "samples": list(witness.samples),
        "rivals": list(witness.rivals),
        "weights": [write_number(weight) for weight in witness.weights],
        "total": write_number(sum(witness.weights)),
    }
