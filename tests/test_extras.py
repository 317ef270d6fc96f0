"""Without the packages of the extras: modules, rule, theory and Lightning work, and the rest says what to install."""

import json
import subprocess
import sys

import pytest

from torchperc._checks import EXTRAS

tomllib = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")  # which pytest installs

pytestmark = pytest.mark.slow

BARE = """
import contextlib, io, json, sys, warnings
from importlib.machinery import PathFinder
from pathlib import Path

missing = {*json.loads(sys.argv[1])}

class Bare(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] in missing else PathFinder.find_spec(name, path, target)

    @classmethod
    def find_distributions(cls, *args, **options):
        found = PathFinder.find_distributions(*args, **options)
        return (one for one in found if one.name.lower().replace("scikit-learn", "sklearn") not in missing)

sys.meta_path[:] = [Bare if finder is PathFinder else finder for finder in sys.meta_path]
warnings.simplefilter("ignore")
import numpy as np, pytorch_lightning as pl, torch, torchperc as tp
from torch.utils.data import DataLoader, TensorDataset
from torchperc import cli

X, y = tp.data.gate("AND")
works = {}
net = tp.Perceptron(2)
tp.PerceptronLoss()(net(X), y).backward()
works["gradient"] = net.weight.grad.tolist()
works["rule"] = tp.RuleTrainer().fit(net, X, y).mistakes
works["proof"] = tp.theory.separability(*tp.data.gate("XOR")).separable
works["bound"] = round(tp.theory.mistake_bound(X, y))
np.savez("and.npz", X=X.numpy(), y=y.numpy())
works["npz"] = len(tp.data.read("and.npz").y)
for module in (tp.lightning.LitClassifier(tp.Perceptron(2), "perceptron", lr=1.0), tp.lightning.LitRule(tp.Perceptron(2))):
    options = dict(max_epochs=20, logger=False, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False)
    pl.Trainer(**options).fit(module, DataLoader(TensorDataset(X, y), 4))
    works[type(module).__name__] = module.net.predict(X).tolist()
tp.lightning.make_trainer("run", 2, logger=False, enable_progress_bar=False).fit(module, tp.lightning.TabularDataModule("AND"))

Path("and.csv").write_text("a,b,c\\n0,0,x\\n1,1,y\\n")
model = tp.FittedModel(tp.Perceptron(2), labels=("no", "yes"))
model.save("and.safetensors")
says = {}
for name, call in {
    "plots": lambda: tp.plots.PathDisplay,
    "sklearn": lambda: tp.sklearn.PerceptronClassifier,
    "iris": lambda: tp.data.load("iris"),
    "read": lambda: tp.data.read("and.csv"),
    "onnx": lambda: tp.save_onnx(model, "and.onnx"),
    "make_trainer": lambda: tp.lightning.make_trainer("run", 2),
}.items():
    try:
        call()
    except ModuleNotFoundError as error:
        says[name] = str(error)
exits = {}
for line in (
    "learn and.csv", "learn iris", "apply and.safetensors and.csv", "export and.safetensors --to onnx",
    "fit --config a.yaml", "demo", "xor --seeds 2 --steps 2", "separable and.csv", "crosscheck AND", "separable XOR",
):
    out = io.StringIO()
    with contextlib.redirect_stderr(out), contextlib.redirect_stdout(io.StringIO()):
        try:
            code = cli.main(line.split()) or 0
        except SystemExit as error:
            code = error.code
    exits[line] = (code, out.getvalue())
print(json.dumps([works, says, exits, sorted(missing & set(sys.modules))]))
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    command = [sys.executable, "-c", BARE, json.dumps(list(EXTRAS))]
    run = subprocess.run(command, cwd=tmp_path_factory.mktemp("bare"), capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def test_modules_rule_theory_and_lightning_need_no_extra(bare):
    works, _, _, imported = bare
    assert imported == []
    learned = {name: [-1, -1, -1, 1] for name in ("LitClassifier", "LitRule")}
    assert works == {"gradient": [[0.0, 0.0]], "rule": 18, "proof": False, "bound": 51, "npz": 4, **learned}


def test_what_is_missing_is_named_with_its_extra(bare):
    _, says, exits, _ = bare
    extras = {"plots": "plots", "sklearn": "sklearn", "iris": "sklearn", "read": "files", "onnx": "onnx"}
    assert {name: text.rsplit("[")[-1] for name, text in says.items()} == {
        name: f"{extra}]'" for name, extra in {**extras, "make_trainer": "tensorboard"}.items()
    }
    assert [exits.pop(line)[0] for line in ("crosscheck AND", "separable XOR")] == [0, 0]
    for line, (code, error) in exits.items():
        assert (code, error[:18], error.count("\n")) == (2, "torchperc: error: ", 1), line
        assert " needs " in error, line
        assert "; install it with: pip install 'torchperc[" in error, line


def test_the_extras_install_what_they_promise(request):
    project = tomllib.loads((request.config.rootpath / "pyproject.toml").read_text())["project"]
    for package, extra in EXTRAS.items():
        wanted = package.replace("sklearn", "scikit-learn")
        assert any(line.startswith(wanted) for line in project["optional-dependencies"][extra]), package
        assert not any(line.startswith(wanted) for line in project["dependencies"]), package
