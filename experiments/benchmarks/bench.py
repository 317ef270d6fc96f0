"""All benchmarks, as ``torchperc bench`` runs them: the cases are in :mod:`torchperc.benchmarks.cases`."""

from __future__ import annotations

import sys

from torchperc.cli import main

if __name__ == "__main__":
    main(["bench", *sys.argv[1:]])
