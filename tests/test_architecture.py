"""The shape of the package: imports go one way, heavy libraries load late, names stay where they are promised."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import torchperc as tp

ROOT = Path(tp.__file__).parent

# rooms from the ground up; a module may import its own room and any to the left of it, by the order within the room
ROOMS = [
    ["text", "checks", "folders", "exporting"],
    ["functional"],
    ["losses", "heads", "modules"],
    [
        "theory.verifier", "theory.sep_linear", "theory.sep_rows", "theory.sep_spaces", "theory.sep_exchange",
        "theory.sep_search", "theory.sep_weak", "theory.certificates", "theory.separating", "theory.margins", "theory.bounds", "theory.limits", "theory",
    ],
    [
        "rules.conventions", "rules.compiling", "rules.loops", "rules.loops_many", "rules.rows", "rules.parts", "rules.kernels",
        "rules.models", "rules.spaces", "rules.rounding", "rules.log", "rules.engines", "rules.kernelized", "rules.compiled", "rules.blocked",
        "rules.choice", "rules.orders", "rules.problem", "rules.run", "rules.progress", "rules.online", "rules.trainer", "rules",
    ],
    ["descent_loops", "descent", "optimum", "sweeping"],
    [
        "data.gates", "data.synthetic", "data.dataset", "data.encoding", "data.opening", "data.blocks", "data.text", "data.tables",
        "data.survey", "data.features", "data.caching", "data.svmlight_loop", "data.svmlight", "data.files", "data.applying",
        "data.sources", "data.scaling", "data.splits", "data.partition", "data",
    ],
    ["describing", "fitted", "portable"],
    ["dialects", "crosschecking", "xorlab"],
    ["sklearn.conversion", "sklearn.base", "sklearn.rule", "sklearn.l1_loop", "sklearn.passes", "sklearn.gradient", "sklearn"],
    [
        "plots.style", "plots.classifiers", "plots.planes", "plots.marks", "plots.regions", "plots.path", "plots.curves",
        "plots.bracket", "plots.comparison", "plots.margins", "plots.weights", "plots.confusion", "plots.lifted",
        "plots.xor", "plots",
    ],
    [
        "lightning._pl", "lightning.checkpoints", "lightning.loader", "lightning.metrics", "lightning.base", "lightning.classifier",
        "lightning.rule_runs", "lightning.rule",
        "lightning.datamodule", "lightning.callbacks", "lightning.board", "lightning.running",
        "lightning",
    ],
    [
        "benchmarks.timing", "benchmarks.samples", "benchmarks.peers", "benchmarks.rule_cases", "benchmarks.descent_cases",
        "benchmarks.cases", "benchmarks.report", "benchmarks",
    ],
    ["reporting.page", "reporting.chapters", "reporting.reports", "reporting", "reporting.runs", "reporting.learned"],
    ["learning"],
    ["cli.ending", "cli.show", "cli.inputs", "cli.bench", "cli.crosscheck", "cli.xor", "cli.separable", "cli.configured", "cli.report", "cli.export", "cli.apply",
     "cli.learn", "cli.demo", "cli"],
]  # fmt: skip
RANK = {module: number for number, module in enumerate(name for room in ROOMS for name in room)}
FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path):
    """The package's own modules that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torchperc":
            here = node.module.removeprefix("torchperc").removeprefix(".")
            for alias in node.names:
                full = f"{here}.{alias.name}".removeprefix(".")
                yield full if full in RANK else here
        elif isinstance(node, ast.Import):
            yield from (a.name.removeprefix("torchperc.") for a in node.names if a.name.startswith("torchperc"))


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_imports_go_one_way(path):
    name = module_name(path)
    assert name in RANK, f"{name} has no place in the plan of rooms"
    for other in imported(path):
        assert other in RANK, f"{name} imports {other or 'the whole package'}"
        assert RANK[other] < RANK[name], f"{name} imports {other}, which stands above it"


def loaded_after(code):
    report = f"{code}\nimport sys\nprint(*sorted(m.split('.')[0] for m in sys.modules))"
    return set(
        subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True).stdout.split()
    )


def test_heavy_libraries_load_late():
    heavy = {
        "pytorch_lightning",
        "lightning",
        "matplotlib",
        "sklearn",
        "numba",
        "scipy",
        "tensorboard",
        "rich",
        "pandas",
    }
    assert not loaded_after("import torchperc; torchperc.RuleTrainer; torchperc.crosscheck; torchperc.MLP") & heavy
    assert "torch" not in loaded_after("import torchperc.cli; torchperc.cli._parser()")


def test_every_promised_name_is_there():
    for name in tp.__all__:
        assert getattr(tp, name) is not None
    assert set(tp._HOME) | set(tp._ROOMS) == set(tp.__all__)
    assert set(tp.__all__) <= set(dir(tp))
    with pytest.raises(AttributeError, match="no attribute 'Perceptrons'"):
        _ = tp.Perceptrons


def test_the_type_checker_sees_the_same_names():
    tree = ast.parse((ROOT / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {alias.name: node.module for node in block.body for alias in node.names}
    assert set(typed) == set(tp.__all__)
    assert {n: m for n, m in typed.items() if n in tp._HOME} == {n: f"torchperc.{m}" for n, m in tp._HOME.items()}


def test_the_version_is_that_of_the_project(request):
    text = (request.config.rootpath / "pyproject.toml").read_text()
    assert f'version = "{tp.__version__}"' in text


def test_every_public_name_has_a_docstring_with_an_example():
    for name in tp.__all__:
        value = getattr(tp, name)
        if callable(value):
            assert ">>>" in (value.__doc__ or ""), name
