"""Modules imported on first use, and the extras that install optional packages."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

EXTRAS = {
    "joblib": "sklearn",
    "jsonargparse": "cli",
    "matplotlib": "plots",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "pyarrow": "files",
    "sklearn": "sklearn",
    "tensorboard": "tensorboard",
}
"""Packages that only some functions need, each with the extra that installs it."""


class Late:
    """A module that is imported when something of it is first used: a file is refused before torch is there.

    Example:
        >>> Late("math").sqrt(4.0)
        2.0
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(importlib.import_module(self._name), attribute)
        setattr(self, attribute, value)  # found at once the next time
        return value


class MissingPackageError(ModuleNotFoundError, ValueError):
    """A package of an extra is not installed; also a ``ValueError``, which commands print in one line."""


def requires(what: str, *packages: str) -> None:
    """Raise :class:`MissingPackageError`, naming the extra to install, if ``what`` needs a package that is missing."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise MissingPackageError(
                f"{what} needs {package.replace('sklearn', 'scikit-learn')}; "
                f"install it with: pip install 'torchperc[{EXTRAS[package]}]'",
                name=package,
            )
