"""The directive ``public-names``: a table of a package's public names, then each with its docstring.

A name has one home, the page of the package that defines it, under the shortest path users import it by:
``torchperc.RuleTrainer`` is on the page of ``torchperc.rules``.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import pydoc
import re
import sys
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode

import torchperc

SHORT = {"torchperc.nn.functional": "torchperc.functional"}


def public_names(package: str) -> dict[str, Any]:
    """What a package lists in ``__all__``, or a module defines; modules left out."""
    module = importlib.import_module(package)
    listed = getattr(module, "__all__", None)
    if listed is None:
        listed = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == package]
    found = {name: getattr(module, name) for name in listed if not name.startswith("_")}
    return {name: value for name, value in found.items() if not inspect.ismodule(value)}


def at_home(package: str) -> dict[str, Any]:
    """The public names of a package, at its own door and at the front door, by the path to import them by."""
    front = public_names("torchperc")
    names = {f"{SHORT.get(package, package)}.{name}": value for name, value in public_names(package).items()}
    ours = {path: value for path, value in names.items() if defined_in(value, package)}
    for name, value in front.items():
        if defined_in(value, package):
            ours.pop(f"{package}.{name}", None)
            ours[f"torchperc.{name}"] = value
    return dict(sorted(ours.items(), key=lambda item: (kind(item[1]) != "class", item[0].rpartition(".")[2].lower())))


def defined_in(value: Any, package: str) -> bool:
    return f"{getattr(value, '__module__', type(value).__module__)}.".startswith(f"{package}.")


def kind(value: Any) -> str:
    if inspect.isclass(value):
        return "exception" if issubclass(value, Exception) else "class"
    return "function" if callable(value) else "data"


class PublicNames(SphinxDirective):
    """``.. public-names:: torchperc.rules``; further names, one a line, are its content."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        names = at_home(self.arguments[0]) | {path: self._named(path) for path in self.content if path}
        table = [".. currentmodule:: None", "", ".. autosummary::", "   :nosignatures:", ""]
        table += [*(f"   ~{path}" for path in names), ""]
        return self.parse_text_to_nodes("\n".join([*table, *(line for item in names.items() for line in entry(*item))]))

    @staticmethod
    def _named(path: str) -> Any:
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(module), name)


def entry(path: str, value: Any) -> list[str]:
    options = ["   :members:", "   :member-order: bysource"] if inspect.isclass(value) else []
    return ["", f".. auto{kind(value)}:: {path}", *options, ""]


def own_members_only(app: Sphinx, what: str, name: str, value: Any, skip: bool, options: Any) -> bool | None:
    """Leave out scikit-learn's ``set_…_request``, and properties such as ``coef_``: classes list them as attributes."""
    added = name.startswith("set_") and name.endswith("_request")
    listed = isinstance(value, property) and name.endswith("_") and "torchperc.sklearn" in value.fget.__module__
    return True if added or listed else None


def whole_sentence(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Keep napoleon from taking the words before a colon for the type of an attribute: it looks at the first line."""
    if what in ("attribute", "property", "data"):
        lines[:0] = ["..", ""]


def by_object(app: Sphinx, env: BuildEnvironment, node: pending_xref, shown: nodes.Element) -> nodes.Element | None:
    """Resolve a name by the object it stands for: ``torchperc.rules.trainer.RuleTrainer`` is ``torchperc.RuleTrainer``.

    An object that exists and has no page stays plain text. A written reference to what does not exist is an error.
    """
    if node["refdomain"] != "py":
        return None
    value = object_named(node["reftarget"], node.get("py:module"), node.get("py:class"))
    if value is None:
        return None if "refwarn" in node else shown
    path = described(env).get(id(value))
    if path is None:
        return shown
    page, anchor, *_ = env.domains.python_domain.objects[path]
    return make_refnode(app.builder, node["refdoc"], page, anchor, shown, path)


def object_named(target: str, module: str | None, owner: str | None) -> Any:
    """The object that a docstring of ``module.owner`` means by ``target``; ``None`` if there is none."""
    inside = pydoc.locate(f"{module}.{owner}") if owner else None
    places = [f"{module}.{owner}", getattr(inside, "__module__", None), module, ""]
    places += [f"torchperc.{found.name}" for found in pkgutil.iter_modules(torchperc.__path__) if found.ispkg]
    places += [name for name in sorted(sys.modules) if name.startswith(module or "torchperc")]
    paths = [f"{place}.{target}".lstrip(".") for place in places if place is not None]
    return next((value for path in paths if (value := pydoc.locate(path)) is not None), None)


@functools.cache
def described(env: BuildEnvironment) -> dict[int, str]:
    """Where each object is described, by its identity."""
    return {id(pydoc.locate(path)): path for path, entry in env.domains.python_domain.objects.items() if not entry[3]}


def every_name_is_described(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of names at the front door that are on no page of the reference."""
    missing = [
        name for name in public_names("torchperc") if f"torchperc.{name}" not in env.domains.python_domain.objects
    ]
    if missing:
        logging.getLogger(__name__).warning("no page of docs/api describes torchperc.%s", ", torchperc.".join(missing))


def without_way_back(app: Sphinx, name: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """Take the links back off source pages: they miss names whose path is shorter than that of their module."""
    if name.startswith("_modules/") and "body" in context:
        context["body"] = re.sub(r'<a class="viewcode-back".*?</a>', "", context["body"])


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("public-names", PublicNames)
    app.connect("autodoc-skip-member", own_members_only)
    app.connect("autodoc-process-docstring", whole_sentence, priority=400)  # before napoleon
    app.connect("missing-reference", by_object)
    app.connect("env-check-consistency", every_name_is_described)
    app.connect("html-page-context", without_way_back)
    return {"version": torchperc.__version__, "parallel_read_safe": True, "parallel_write_safe": True}
