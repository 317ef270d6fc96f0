"""Certificates of separability: a claim with its evidence, bound to its data, as an object and as a file."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

from torchperc._checks import Data
from torchperc._files import write_atomically
from torchperc.theory import verifier
from torchperc.theory.problem import Problem
from torchperc.theory.verifier import Claim, RejectedError, Witness


@dataclass(frozen=True, eq=False)  # the data it is bound to have no single answer to ==
class Certificate(Claim):
    """Whether a hyperplane separates labelled data, with the proof.

    ``kind`` is one of

    - ``"separable"``: y·s > 0 for each sample; ``hyperplane`` is the proof.
    - ``"weakly separable"``: no hyperplane does that, as ``witness`` proves; but ``hyperplane`` has y·s ≥ 0 for each
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

    rows: Problem | None = field(default=None, repr=False)

    @property
    def margin(self) -> float | None:
        """The geometric margin (free bias) of the hyperplane, which need not be the largest; None without one."""
        return None if self.hyperplane is None else self.hyperplane.margin

    def point(self) -> tuple[Fraction, ...]:
        """Return a point in both convex hulls, exactly: Σ α·x over the samples of either class, divided by Σ α.

        Example:
            >>> import torchperc as tp
            >>> tp.theory.separability(*tp.data.gate("XOR")).point()
            (Fraction(1, 2), Fraction(1, 2))
        """
        if self.witness is None or self.rows is None or len(self.labels) > 2 or not self.bias:
            raise ValueError("point needs two classes with a bias, a witness and the data")
        every = zip(self.witness.samples, self.witness.rivals, self.witness.weights, strict=True)
        part = Witness(*zip(*(row for row in every if self.rows.y[row[0]] == 1), strict=True))
        *sums, total = verifier.combination(part, {i: self.rows.sample(i) for i in part.samples}, 2, True)
        return tuple(Fraction(value, total) for value in sums)

    def verify(self, X: Data | None = None, y: Data | None = None) -> bool:
        """Return whether the proof holds for the data, checked in exact rational arithmetic.

        Without X and y it is about the data it was made from. Floats decide what they prove, by a rigorous bound on
        rounding errors; :mod:`torchperc.theory.verifier` does all in integers, by the standard library alone.
        """
        return self.verification_error(X, y) is None

    def verification_error(self, X: Data | None = None, y: Data | None = None) -> str | None:
        """Return why :meth:`verify` fails, or None."""
        if (X is None) != (y is None):
            raise ValueError("verify takes X and y together, or neither")
        if X is not None:
            problem = Problem.of(X, y, bias=self.bias, num_classes=None if self.signs else len(self.labels))
        elif self.rows is None:
            raise ValueError("a certificate from a file has no data with it; call verify(X, y)")
        else:
            problem = replace(self.rows)  # without cached values, as the data may have changed
        try:
            claim = verifier.parse(verifier.content_of(self))
            if claim.kind == "undecided":
                raise RejectedError("the question was not decided")
            size = (len(problem.y), problem.features)
            if size != (claim.samples, claim.features) or problem.digest != claim.digest:
                raise RejectedError("the certificate is about other data")
            if claim.hyperplane is not None:
                verifier.check_hyperplane(claim.hyperplane, claim.kind, *problem.measure(claim.hyperplane))
            if claim.witness is not None:
                verifier.check_witness(claim, {i: problem.sample(i) for i, _ in claim.witness.all_rows})
                if any(problem.signs_on(vector).any() for vector in claim.witness.null or ()):
                    raise RejectedError("the witness does not span all samples")
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
        text = json.dumps(verifier.content_of(self), indent=1, ensure_ascii=False)
        write_atomically(Path(path), f"{text}\n".encode())

    @classmethod
    def load(cls, path: str | Path) -> Certificate:
        """Read a certificate from a file. Loading proves nothing: call ``verify(X, y)``."""
        try:
            claim = verifier.parse(verifier.read_certificate(path))
        except RejectedError as error:
            raise ValueError(f"{path}: {error}") from None
        return cls(**vars(claim))

    def __str__(self) -> str:
        if self.kind == "separable" and self.signs:
            said = f"every sample is on its side of a hyperplane, the nearest {self.margin:.6g} away from it"
        elif self.kind == "separable":
            said = f"every sample has its highest score for its own class, by at least {self.margin:.6g}·‖w‖"
        elif self.witness is None:
            said = self.reason
        else:
            said = "a point in both convex hulls" if self.bias else "the origin is in the convex hull of y·x"
            if len(self.labels) > 2:
                said = "the differences φ(x, y) − φ(x, k) have a weighted mean of zero"
            count = len(set(self.witness.samples))
            weak = "; but a hyperplane has every sample on its side or on itself, and not all on itself"
            more = weak if self.kind == "weakly separable" else "; " * bool(self.reason) + self.reason
            said += f", made of {count} sample{'s' * (count > 1)}{more}"
        return f"{self.kind}: {said}"
