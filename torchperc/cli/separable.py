"""``torchperc separable``: whether a hyperplane separates data, with a proof, or whether such a proof holds."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from torchperc.cli import inputs

if TYPE_CHECKING:
    from torchperc.theory.certificate import Certificate

_SHOWN = 12  # rows that are listed one by one


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Decides whether a hyperplane separates the classes and proves it in exact arithmetic, by the hyperplane or "
        "by a point in both convex hulls. Exit code 0 if it was decided either way, 1 if not. With --verify: checks a "
        "proof by the standard library alone; exit code 0 if it holds, 1 if not."
    )
    parser.add_argument("data", help=f"{inputs.FORMATS}; or AND, OR, NAND, NOR, XOR, XNOR, parity-n, iris, …")
    inputs.add_arguments(parser)
    parser.add_argument("--no-bias", action="store_true", help="hyperplanes through the origin only")
    parser.add_argument("--time-limit", type=float, metavar="SECONDS", help="give up after that (default: never)")
    parser.add_argument("--out", metavar="FILE", help="write the proof to a JSON file")
    parser.add_argument("--verify", metavar="FILE", help="check the proof in this file instead")


def run(arguments: argparse.Namespace) -> None:
    """Decide and say so, or check a proof."""
    if arguments.verify is not None:
        _verify(arguments)
    _decide(arguments)


def _verify(arguments: argparse.Namespace) -> None:
    from torchperc.theory import verifier  # needs neither torch nor numpy

    for option, given in (("--out", arguments.out), ("--time-limit", arguments.time_limit)):
        if given is not None:
            raise ValueError(f"{option} {given} needs a new proof, not --verify")
    if arguments.no_bias:
        raise ValueError("--no-bias needs a new proof; one that is in a file says itself whether there is a bias")
    try:
        if set(inputs.options(arguments)) <= {"target"}:
            inputs.say(str(verifier.verify_file(arguments.verify, arguments.data, arguments.target)))
            raise SystemExit(0)
    except verifier.RejectedError as reason:
        inputs.say(f"rejected: {' '.join(str(reason).split())}")
        raise SystemExit(1) from None
    except ValueError:  # no plain table of numbers; whatever is wrong besides, the other way says
        verifier.read_certificate(arguments.verify)
    raise SystemExit(_verify_encoded(arguments))


def _verify_encoded(arguments: argparse.Namespace) -> int:
    """Check a proof about data that the verifier of the standard library does not read; the arithmetic is the same."""
    from torchperc.theory.certificate import Certificate

    certificate, table = Certificate.load(arguments.verify), inputs.load_dense(arguments)
    error = certificate.verification_error(table.X, table.y)
    if certificate.labels != table.labels:
        error = f"it is about labels {', '.join(certificate.labels)}, the data have {', '.join(table.labels)}"
    inputs.say(f"{certificate.kind}: the proof holds" if error is None else f"rejected: {error}")
    return 0 if error is None else 1


def _decide(arguments: argparse.Namespace) -> None:
    if arguments.out is not None:
        inputs.output_file(arguments.out)
    table = inputs.load_dense(arguments)
    from torchperc.theory import separability

    asked = {"bias": not arguments.no_bias, "num_classes": table.classes, "time_limit": arguments.time_limit}
    certificate = replace(separability(table.X, table.y, progress=True, **asked), labels=table.labels)
    samples, features = table.X.shape
    inputs.say(f"{arguments.data}: {samples:,} samples, {features:,} features, labels {', '.join(table.labels)}")
    inputs.say(f"{certificate}{_rows(certificate)}")
    if arguments.out is not None:
        certificate.save(arguments.out)
        words = ["torchperc", "separable", "--verify", arguments.out, arguments.data, *inputs.words(arguments)]
        inputs.say(f"the proof is in {arguments.out}; to check it: {shlex.join(words)}")
    raise SystemExit(1 if certificate.separable is None else 0)


def _rows(certificate: Certificate) -> str:
    """The samples of a witness by their position in the file, from 1, if they are few."""
    samples = [] if certificate.witness is None else sorted(set(certificate.witness.samples))
    if not 0 < len(samples) <= _SHOWN:
        return ""
    return f" (row{'s' * (len(samples) > 1)} {', '.join(str(sample + 1) for sample in samples)} of the data)"
