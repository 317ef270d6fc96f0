"""Names loaded on first use, old names and module paths that still work, with a ``DeprecationWarning``, and extras."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import lazy_loader

# front-door names, which stay: import torchperc.functional as F
_SHORT = {
    "dialects": ("rules.dialects",),
    "functional": ("nn.functional",),
    "heads": ("nn.heads",),
    "losses": ("nn.losses",),
    "modules": ("nn.modules",),
}

_IO = ("blocks", "caching", "features", "files", "opening", "survey", "svmlight", "tables", "text")

# until 0.1 → since 0.2; several homes where a module was split
RENAMED: dict[str, tuple[str, ...]] = {
    "checks": ("_checks", "samples.convert"),
    "crosschecking": ("rules.crosscheck",),
    "data.applying": ("data.io.batches",),
    **{f"data.{name}": (f"data.io.{name}",) for name in _IO},
    "describing": ("model.describe",),
    "descent_loops": ("descent.loops", "descent.passes"),
    "exporting": ("model.safetensors", "_atomic", "_checks"),
    "fitted": ("model.fitted", "model.format"),
    "folders": ("_atomic",),
    "learning": ("workflow.learn",),
    "lightning.board": ("lightning.tensorboard",),
    "lightning.running": ("lightning.trainer",),
    "optimum": ("descent.minimise", "descent.objective", "descent.newton", "descent.least_squares"),
    "plots.xor": ("lab.xor_figures",),
    "portable": ("model.export", "model.onnx"),
    "reporting": ("reports",),
    "reporting.chapters": ("reports.sections",),
    "reporting.learned": ("reports.learned",),
    "reporting.page": ("reports.page",),
    "reporting.reports": ("reports.report",),
    "reporting.runs": ("reports.runs",),
    "rules.blocked": ("rules.engines.blocked",),
    "rules.choice": ("rules.engines.choice",),
    "rules.compiled": ("rules.engines.compiled",),
    "rules.compiling": ("samples.compiling",),
    "rules.kernelized": ("rules.engines.kernelized",),
    "rules.loops_many": ("rules.loops.many",),
    "rules.parts": ("samples.parts",),
    "rules.rounding": ("rules.engines.rounding",),
    "rules.rows": ("samples.rows",),
    "sweeping": ("rules.sweep",),
    "text": ("reports.text",),
    "theory.certificates": ("theory.certificate",),
    "theory.limits": ("theory.rates",),
    "theory.sep_exchange": ("theory.separability.exchange",),
    "theory.sep_linear": ("theory.separability.linear",),
    "theory.sep_rows": ("theory.separability.rows",),
    "theory.sep_search": ("theory.separability.search",),
    "theory.sep_spaces": ("theory.separability.spaces",),
    "theory.sep_weak": ("theory.separability.decide",),
    "theory.separating": ("theory.separability.decide",),
    "xorlab": ("lab.xor",),
}

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


class _Renamed(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        name = fullname.removeprefix("torchperc.")
        known = name != fullname and (name in RENAMED or name in _SHORT)
        return ModuleSpec(fullname, self, is_package=name == "reporting") if known else None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__.removeprefix("torchperc.")
        homes = _SHORT.get(name) or RENAMED[name]
        if name in RENAMED:
            message = f"torchperc.{name} is now {' and '.join(f'torchperc.{home}' for home in homes)}"
            warnings.warn(message, DeprecationWarning, stacklevel=2)
        found = [importlib.import_module(f"torchperc.{home}") for home in homes]
        if len(found) == 1:
            sys.modules[module.__name__] = found[0]
        else:
            module.__getattr__ = lambda attribute: _first(found, module.__name__, attribute)  # type: ignore[method-assign]


def _first(homes: list[ModuleType], name: str, attribute: str) -> Any:
    for home in homes:
        if hasattr(home, attribute):
            return getattr(home, attribute)
    raise AttributeError(f"module {name!r} has no attribute {attribute!r}")


def install() -> None:
    """Let the import system know the old paths, before Python would look for files of those names."""
    sys.meta_path.insert(0, _Renamed())


def old_names(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's ``__getattr__`` for names that it had: each with its name now, in this module or by its full path."""

    def load(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, new = names[name].rpartition(".")
        warnings.warn(f"{module}.{name} is now {home or module}.{new}", DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(home or module), new)

    return load


class _Guarded(ModuleType):
    """A package with an old function by the name of a module, which an import of the module must not replace."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in self.__dict__["_old"] and value is sys.modules.get(f"{self.__name__}.{name}")):
            super().__setattr__(name, value)


def attach(package: str, file: str, renamed: Mapping[str, str] | None = None) -> tuple[Any, Any, list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of a package, from the names in its ``__init__.pyi``.

    Args:
        package: its ``__name__``.
        file: its ``__file__``.
        renamed: old names in the package, each with the name it has now.

    Example:
        >>> load, names, public = attach("torchperc.theory", importlib.import_module("torchperc.theory").__file__)
        >>> load("radius").__name__, "radius" in public
        ('radius', True)
    """
    load, names, public = lazy_loader.attach_stub(package, file)
    if renamed:
        sys.modules[package]._old = set(renamed)  # type: ignore[attr-defined]
        sys.modules[package].__class__ = _Guarded

    def load_old(name: str) -> Any:
        if renamed and name in renamed:
            warnings.warn(f"{package}.{name} is now {package}.{renamed[name]}", DeprecationWarning, stacklevel=2)
            return load(renamed[name])
        if f"{package}.{name}".removeprefix("torchperc.") in RENAMED:
            return importlib.import_module(f"{package}.{name}")
        return load(name)

    return load_old, names, public
