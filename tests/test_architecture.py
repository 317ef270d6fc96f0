"""The shape of the package: imports go one way, heavy libraries load late, names stay where they are promised."""

import ast
import importlib
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import torchperc as tp

ROOT = Path(tp.__file__).parent

# from the ground up: a module imports from its own folder and from those before it
DOORS = {"__init__.py", "__main__.py"}
HELPERS = {"__init__.py", "_checks.py", "_files.py"}
LAYERS = [
    "nn", "samples", "theory", "rules", "descent", "data", "model", "plots", "lightning", "sequences", "sklearn",
    "reports", "learn", "lab", "cli",
]  # fmt: skip


def module_name(path):
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def front_doors():
    """Where each name of a package's ``__init__.pyi`` is defined."""
    found = {}
    for stub in ROOT.rglob("__init__.pyi"):
        package = module_name(stub)
        for node in ast.parse(stub.read_text()).body:
            if isinstance(node, ast.ImportFrom):
                home = f"{package}.{node.module}" if node.module else package
                found.update({f"{package}.{alias.name}": f"{home}.{alias.name}" for alias in node.names})
    return found


@cache
def import_graph():
    """Module → the modules that are run when it is imported, wherever in the file it imports them.

    An import of ``a.b.c`` runs ``a/__init__``, ``a/b/__init__`` and ``a/b/c``, and one of a name that a front door
    loads late runs the module where the name is defined.
    """
    modules = {module_name(path): path for path in ROOT.rglob("*.py")}
    doors = front_doors()

    def home(dotted):
        while dotted not in modules:
            dotted = doors[dotted] if dotted in doors and doors[dotted] != dotted else dotted.rpartition(".")[0]
        return dotted

    def runs(dotted):
        while dotted:
            yield dotted
            dotted = dotted.rpartition(".")[0]

    graph = {}
    for name, path in modules.items():
        named = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == ROOT.name:
                named |= {f"{node.module}.{alias.name}" for alias in node.names}
            elif isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names if alias.name.split(".")[0] == ROOT.name}
        graph[name] = {found for dotted in named for found in runs(home(dotted))} - {name}
        graph[name] |= set(runs(name)) - {name}
    return graph


def test_the_layout_is_the_design():
    assert {path.name for path in ROOT.glob("*.py")} == HELPERS | DOORS
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} == set(LAYERS)


def test_imports_have_no_cycle():
    TopologicalSorter(import_graph()).prepare()


@pytest.mark.parametrize("folder", LAYERS)
def test_imports_go_to_lower_layers(folder):
    allowed = {*LAYERS[: LAYERS.index(folder) + 1], "_checks", "_files"}
    for name, others in import_graph().items():
        if name.split(".")[1:2] == [folder]:
            assert {other.split(".")[1] for other in others if "." in other} <= allowed, name


def test_heavy_libraries_load_late(fresh):
    code = "import sys, torchperc; torchperc.RuleTrainer; torchperc.crosscheck; torchperc.MLP; print(*sys.modules)"
    loaded = {name.split(".")[0] for name in fresh(code).split()}
    heavy = "pytorch_lightning lightning matplotlib sklearn numba scipy tensorboard rich pandas"
    assert "torchperc" in loaded
    assert not loaded & {*heavy.split()}
    code = "import sys, torchperc.cli.entry as entry; entry.parser(); print(*sys.modules)"
    assert "torch.nn" not in fresh(code).split()  # torch itself is there as a promise


def test_every_promised_name_is_there():
    for path in ROOT.rglob("__init__.pyi"):
        package = importlib.import_module(module_name(path))
        for name in package.__all__:
            assert getattr(package, name) is not None
        assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match="Perceptrons"):
        _ = tp.Perceptrons


def test_the_short_paths_are_the_same_modules():
    for name in ("functional", "heads", "losses", "modules"):
        assert getattr(tp, name) is importlib.import_module(f"torchperc.nn.{name}")
    assert tp.dialects is importlib.import_module("torchperc.rules.dialects")


def test_learn_stays_the_function(fresh):
    for code in ("import torchperc.learn.candidates", "import torchperc as tp; tp.learn; import torchperc.learn"):
        code += "\nimport torchperc as tp\nprint(tp.learn.__qualname__, type(tp.learn).__name__)"
        assert fresh(code) == "learn function\n"


def test_every_public_name_has_a_docstring_with_an_example():
    for name in tp.__all__:
        value = getattr(tp, name)
        if callable(value):
            assert ">>>" in (value.__doc__ or ""), name
