"""The experiments show what they say they show: each is run in its quick form and its figures are looked at."""

import ast
import gzip
import runpy
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import plain
import processes
import pytest
import torch
from matplotlib.image import imread
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import torchperc as tp

pytestmark = pytest.mark.slow
optuna = pytest.importorskip("optuna", reason="`make test-all` installs it")

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
plain_lightning = pytest.mark.filterwarnings(*plain.CHATTER)
SCRIPTS = sorted(path.stem for path in EXPERIMENTS.glob("[!_]*.py"))


def colours(pixels):
    """How many the pixels have, (height, width, 3) from 0 to 1."""
    return len(np.unique((pixels * 255).round().astype(int) @ (1, 256, 65536)))


@pytest.fixture
def run(tmp_path, capsys):
    """Run an experiment; check what all of them promise; return its figures and what it printed."""

    def run(name):
        folder = tmp_path / name
        figures = import_module(name).main(folder, quick=True)
        printed = capsys.readouterr().out
        assert all(type(value) is float for value in figures.values())
        pixels = imread(folder / f"{name}.png")[..., :3]
        assert pixels.shape == (500, 800, 3)
        assert colours(pixels) > 50
        assert (pixels < 0.9).any(-1).mean() > 0.01, "the picture is all but empty"
        assert printed.rstrip().endswith(f"picture: {folder / name}.png")
        runs = {path.parent.relative_to(folder).as_posix() for path in folder.rglob("events.out.tfevents.*")}
        assert len(runs) > 1, "event files of every run, and of the picture"
        assert "." in runs
        return figures, printed

    return run


def test_gates(run):
    figures, printed = run("gates")
    linear, others = ("AND", "OR", "NAND", "NOR"), ("XOR", "XNOR", "parity-3")
    assert [figures[f"{gate} separated"] for gate in linear + others] == [1, 1, 1, 1, 0, 0, 0]
    assert [figures[f"{gate} wrong by {way}"] for gate in linear for way in ("rule", "gradient")] == [0] * 8
    # zero weights decide all samples alike, so half of them wrong
    assert [figures[f"{gate} wrong by {way}"] for gate in others for way in ("rule", "gradient")] == [2, 2, 2, 2, 4, 4]
    assert [figures[f"{gate} mistakes"] for gate in linear] == [18, 9, 18, 9]
    assert printed.count("SEPARATED") == 4
    assert printed.count("CYCLING") == 3


def test_rule_against_gradient(run):
    figures, _ = run("rule_against_gradient")
    assert figures["difference of weights"] == 0
    assert figures["rule mistakes"] == figures["sample mistakes"]
    assert figures["difference of weights, batch"] > 0
    X, y = _cancer()
    trainer = tp.RuleTrainer(10, order="shuffled", engine="reference")
    assert figures["rule mistakes"] == trainer.fit(tp.Perceptron(30, dtype=torch.float64), X, y).mistakes


def test_noisy_selection(run):
    figures, _ = run("noisy_selection")
    assert figures["averaged mean"] < figures["last mean"]
    assert figures["averaged spread"] < figures["last spread"]
    assert figures["averaged better"] == figures["seeds"] == 4
    others = ("averaged", "voted", "pocket", "best-validation")
    assert max(figures[f"{name} mean"] for name in others) < figures["last mean"]


def test_rule_family(run):
    figures, _ = run("rule_family")
    names = ("perceptron", "margin", "PA", "PA-I", "PA-II", "ROMMA", "aggressive ROMMA", "ALMA")
    assert all(figures[f"{name} updates"] > figures["perceptron updates"] for name in names[1:])
    assert figures["PA-I error"] == min(figures[f"{name} error"] for name in names)
    assert all(figures[f"{name} averaged"] < figures[f"{name} error"] for name in names)


def test_batch_against_stochastic(run):
    figures, _ = run("batch_against_stochastic")
    ways = ("full batch", "folds of 32", "one sample")
    assert [figures[f"{way}, steps an epoch"] for way in ways] == [1, 18, 569]
    for moment in ("after 1 epoch", "after all"):
        full, folds, sample = (figures[f"{way}, {moment}"] for way in ways)
        assert full > folds > sample
    # the first full-batch step from zero, by hand: each sample pulls with σ(0) = ½
    X, y = (part.numpy() for part in _cancer())
    X = np.c_[X, np.ones(len(X))]
    weights = 0.1 * (y[:, None] * X).mean(0) / 2
    loss = np.logaddexp(0, -y * (X @ weights)).mean()
    assert figures["full batch, after 1 epoch"] == pytest.approx(loss, abs=1e-6)
    weights = np.zeros(31)
    for i in torch.randperm(len(y), generator=torch.Generator().manual_seed(0)).tolist():
        weights += 0.1 * y[i] * X[i] / (1 + np.exp(y[i] * (X[i] @ weights)))
    loss = np.logaddexp(0, -y * (X @ weights)).mean()
    assert figures["one sample, after 1 epoch"] == pytest.approx(loss, abs=1e-5)


def test_lms_step_sizes(run):
    figures, printed = run("lms_step_sizes")
    # two standardised features: the second-moment matrix is 1 and [[1, r], [r, 1]], so λmax = 1 + |r|
    r = np.corrcoef(tp.data.moons()[0].numpy().T)[0, 1]
    assert figures["limit"] == pytest.approx(2 / (1 + abs(r)), rel=1e-9)
    assert figures["0.5 distance"] < 1e-12
    assert figures["0.95 distance"] < 1e-3
    assert figures["1.05 distance"] > 100 * figures["start distance"]
    assert (printed.count("converged"), printed.count("diverged")) == (2, 1)


def test_learning_curves(run):
    figures, _ = run("learning_curves")
    train, validation, test = tp.lightning.TabularDataModule("digits", scale="minmax").parts
    net = tp.MulticlassPerceptron(64, 10)
    result = tp.dialects.NOTE_C.trainer(max_epochs=9).fit(net, *train, validation=validation)
    errors = [100 * record.validation_error for record in result.history]
    assert figures["epochs"] == len(errors) == 9
    assert figures["best epoch"] == 1 + errors.index(min(errors))
    assert figures["validation"] == pytest.approx(min(errors), abs=1e-5)
    assert figures["validation, restored weights"] == pytest.approx(min(errors), abs=1e-5)
    assert figures["validation, last epoch"] == pytest.approx(errors[-1], abs=1e-5)
    assert figures["validation, last epoch"] > figures["validation"], "restoring has nothing to do on this data"
    wrong = (net.predict(test[0]) != test[1]).double().mean()
    assert figures["test"] == pytest.approx(100 * wrong.item(), abs=1e-5)


def test_pictures(tmp_path, capsys):
    folder = tmp_path / "new" / "pictures"
    figures = import_module("pictures").main(folder, quick=True)
    names = ["bracket.png", "mistakes.png", "path.gif", "path.png", "regions.png"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert capsys.readouterr().out.splitlines()[-5:] == [f"picture: {folder / name}" for name in names]
    for name in ("bracket", "mistakes", "path", "regions"):
        pixels = imread(folder / f"{name}.png")[..., :3]
        assert 600 <= pixels.shape[1] <= 700, "the width of a README"
        assert (pixels < 0.9).any(-1).mean() > 0.01, "the picture is all but empty"
    # the largest margin of AND with its constant feature is 1/√17, the longest sample √3
    assert (figures["AND, mistakes"], figures["AND, bound"]) == (18, pytest.approx(51))
    assert figures["AND, lower bound of γ*"] < figures["AND, γ*"] < figures["AND, upper bound of γ*"]
    assert figures["AND, γ*"] == pytest.approx(17**-0.5)
    assert 0 < figures["iris, wrong"] < 5


def test_tagging(run, tmp_path):
    figures, printed = run("tagging")
    assert figures["rule, averaged"] < figures["rule, last"] < figures["most frequent tag"]
    script = import_module("tagging")
    train, _, test = script.parts(None, quick=True)
    names, ((X, y), (held, tags)) = script.numbered(train, test)
    net = tp.sequences.ChainPerceptron(X.n_features, len(names))
    tp.RuleTrainer(3, order="shuffled", select="averaged", engine="compiled").fit(net, X, y)
    wrong = [int((said != torch.tensor(true)).sum()) for said, true in zip(net.predict(held), tags, strict=True)]
    assert figures["rule, averaged"] == pytest.approx(100 * sum(wrong) / held.tokens)
    assert figures["rule, averaged, sentences"] == pytest.approx(100 * np.mean([each > 0 for each in wrong]))
    assert f"{figures['rule, averaged']:.2f}" in printed
    assert colours(imread(tmp_path / "tagging" / "transitions.png")[..., :3]) > 50


def test_tagging_reads_brown_and_files(tmp_path, monkeypatch, capsys):
    script = import_module("tagging")
    (tmp_path / "ca01").write_text("\n\n\tThe/at Jury/nn-tl amis/fw-nns ./.\n\tI'm/ppss+bem 1/2/cd\n")
    first = [("The", "at"), ("Jury", "nn"), ("amis", "nns"), (".", ".")]
    assert script.read(tmp_path) == [first, [("I'm", "ppss"), ("1/2", "cd")]]
    (tmp_path / "x.conll").write_text("The _ DT\ndog _ NN-TL\n\nruns _ VB\n")
    assert script.read(tmp_path / "x.conll") == [[("The", "DT"), ("dog", "NN-TL")], [("runs", "VB")]]
    monkeypatch.setattr(sys, "argv", ["tagging.py", str(tmp_path / "x.conll")])
    with pytest.raises(SystemExit, match="2"):
        import_module("_common").command_line(script.main, tmp_path / "out", "about", "data")
    assert "2 sentences; give at least 10" in capsys.readouterr().err


def test_ocr_letters(run, tmp_path):
    figures, printed = run("ocr_letters")
    assert figures["generated, words"] < figures["generated, letters"]
    assert figures["generated, words"] == pytest.approx(figures["generated, words, last epoch"])
    script = import_module("ocr_letters")
    [(_, train, test)] = script.parts(None, quick=True)
    net = tp.MulticlassPerceptron(128, 26)
    letters, held = train.pixels, test.pixels
    tp.RuleTrainer(3, order="shuffled", select="averaged").fit(net, letters, train.y)
    wrong = 100 * float((net.predict(held) != torch.from_numpy(test.y)).double().mean())
    assert figures["generated, letters"] == pytest.approx(wrong)
    assert f"{figures['generated, words']:.1f}" in printed


def test_ocr_letters_of_a_file(tmp_path):
    """Words in the format of letter.data: number, letter, next, word, position, fold, 128 pixels."""
    script, draw, lines = import_module("ocr_letters"), np.random.default_rng(3), []
    words = ["ab", "c", "dee", "f", "gh", "i", "j"]
    pixels = [draw.integers(0, 2, (len(word), 128)) for word in words]
    for number, (word, rows) in enumerate(zip(words, pixels, strict=True)):
        for place, (letter, row) in enumerate(zip(word, rows.tolist(), strict=True), 1):
            following = -1 if place == len(word) else len(lines) + 2
            entries = (len(lines) + 1, letter, following, number, place, number % 2, *row)
            lines.append("\t".join(map(str, entries)) + "\t\n")
    path = tmp_path / "letter.data.gz"
    path.write_bytes(gzip.compress("".join(lines).encode()))
    read, folds = script.read_letters(str(path))
    assert read.pixels.tolist() == np.concatenate(pixels).tolist()
    assert read.X.padded().x[:, 0, 128].tolist() == [1] * len(words)
    assert read.X.lengths.tolist() == list(map(len, words))
    assert read.y.tolist() == [ord(letter) - 97 for letter in "".join(words)]
    assert folds == [0, 1, 0, 1, 0, 1, 0]
    (one, train, test), (nine, *_) = script.parts(str(path), quick=True)
    assert (one, len(train.X), len(test.X), nine) == ("fold 0", 4, 3, "folds 1 to 9")
    broken = tmp_path / "broken"
    for bad in (lines[0].replace("\t0\t", "\t2\t"), "1\ta\t2\n", "", lines[0].replace("\t", ",")):
        broken.write_text(lines[1] + bad if bad else "")
        with pytest.raises(ValueError, match="line 2: found" if bad else "is empty"):
            script.read_letters(str(broken))


def _curves(folder):
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [event.value for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


@plain_lightning
def test_lightning_script(tmp_path, capsys):
    script = import_module("lightning_script")
    given = ["--head", "logistic", "--lr", "0.02", "--epochs", "4", "--accelerator", "cpu", "--out", str(tmp_path)]
    script.main(script.parser.parse_args(given))
    printed = capsys.readouterr().out
    curves = _curves(tmp_path / "version_0")
    assert [len(curves[name]) for name in ("loss/train", "error/train", "loss/val", "error/val")] == [4] * 4
    best = tp.lightning.LitClassifier.load_from_checkpoint(tmp_path / "version_0" / "checkpoints" / "best.ckpt")
    X, y = load_breast_cancer(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, 2 * y - 1, test_size=114, stratify=y, random_state=0)
    X, X_val, _, y_val = train_test_split(X, y, test_size=114, stratify=y, random_state=0)
    scaler = StandardScaler().fit(X)

    def error(samples, labels):
        with torch.no_grad():
            found = best.head.decide(best.net(torch.tensor(scaler.transform(samples)).float()))
        return float((found.numpy() != labels).mean())

    assert error(X_val, y_val) == pytest.approx(min(curves["error/val"]))
    assert f"{error(X_test, y_test):.15f}"[:12] in printed
    assert printed.rstrip().endswith(f"curves: tensorboard --logdir {tmp_path}")


@plain_lightning
def test_own_module(tmp_path, capsys):
    errors = import_module("own_module").main(tmp_path, quick=True)
    printed = capsys.readouterr().out
    assert list(errors) == ["one line, perceptron loss", "2-16-16-1, logistic loss"]
    for name, error in errors.items():
        curves = _curves(tmp_path / name.split(",")[0] / "version_0")
        assert curves["error/val"][-1] == pytest.approx(error)
        assert len(curves["loss/train"]) == len(curves["loss/val"]) == 10
        assert curves["loss/train"][-1] < curves["loss/train"][0]
        assert f"{100 * error:.1f} %" in printed


def test_built_networks(run):
    figures, printed = run("built_networks")
    for n in (2, 3):
        units = [figures[f"parity-{n} {method} units"] for method in ("tower", "pyramid", "upstart", "tiling")]
        assert units == [2, 2, n, n + 1]
    solved = {name: value for name, value in figures.items() if name.endswith("solved") and "madaline" not in name}
    assert set(solved.values()) == {1}
    assert figures["spirals tower constructed"] > 0 == figures["random-6 tower constructed"]
    assert "2.0, 2–2" in printed


@plain_lightning
def test_deep_xor(tmp_path, capsys):
    script = import_module("deep_xor")
    figures = script.main(tmp_path, quick=True)
    nets = ("2-2-1", "2-4-1", "2-4-4-1")
    assert [figures[f"parity-2 {net} seeds"] for net in nets] == [2, 2, 2]
    assert figures["parity-2 2-4-4-1 solved"] == 2
    runs = sorted(path.parent.name for path in tmp_path.rglob("events.out.tfevents.*"))
    assert runs == sorted(f"{net}-seed-{seed}" for net in nets for seed in (0, 1))
    for name in ("curves", "regions"):
        pixels = imread(tmp_path / f"{name}.png")[..., :3]
        assert colours(pixels) > 50
    assert "parity-2" in capsys.readouterr().out
    # from the error before each epoch's step: right after the second epoch's step, and ever after
    assert script.clean_from([0.5, 0.25, 0.0, 0.0]) == 2
    assert script.clean_from([0.0, 0.5, 0.0]) == 2
    assert script.clean_from([0.0, 0.0]) == 0


@pytest.mark.processes
def test_optuna_search(tmp_path, capsys):
    processes.context()  # those of the search are forked, too
    script = import_module("optuna_search")
    figures = script.main(tmp_path, quick=True, processes=2)
    study = optuna.load_study(storage=script.journal(tmp_path), study_name=script.NAME)
    assert figures["trials"] == len(study.trials) == 6
    assert [trial.number for trial in study.trials] == list(range(6))
    train, *held = tp.lightning.TabularDataModule("digits", scale="minmax").parts
    net = tp.MulticlassPerceptron(64, 10)
    tp.RuleTrainer(script.EPOCHS, engine="reference", **study.best_params).fit(net, *train)
    wrong = [100 * float((net.predict(X) != y).double().mean()) for X, y in held]
    assert wrong == [figures["validation"], figures["test"]]
    assert wrong[0] == min(trial.value for trial in study.trials)
    assert f"best: trial {study.best_trial.number}, test error {wrong[1]:.2f} %" in capsys.readouterr().out
    alone = [script.main(tmp_path / name, processes=1, trials=3) for name in ("one", "two")]
    assert alone[0] == alone[1]
    assert script.main(tmp_path / "one", processes=1, trials=2, join=True)["trials"] == 5
    for number in (0, 7):
        with pytest.raises(SystemExit, match="must be from 1 to the number of trials, 6"):
            script.main(tmp_path, quick=True, processes=number)


@pytest.mark.parametrize("path", [*EXPERIMENTS.glob("[!_]*.py"), *EXPERIMENTS.glob("notes/*.py")], ids=lambda p: p.stem)
def test_experiments_use_public_names_only(path):
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert not (node.module or "").startswith("torchperc")
            assert "pyplot" not in (node.module or "")
        elif isinstance(node, ast.Import):
            assert all("." not in alias.name for alias in node.names if alias.name.startswith("torchperc"))
        elif isinstance(node, ast.Attribute):
            assert node.attr in ("__init__", "__name__") or not node.attr.startswith("_"), f"{node.attr} is private"


def test_every_experiment_has_a_test():
    assert {f"test_{name}" for name in SCRIPTS} <= set(globals())


def _cancer():
    data = tp.lightning.TabularDataModule("breast-cancer", split=(1, 0, 0), scale="standard", dtype="float64")
    return data.parts[0]


def _several(rank, size):
    return runpy.run_path(str(EXPERIMENTS / "several_processes.py"))["main"](quick=True)


@pytest.mark.processes
def test_several_processes():
    first, second = processes.run(2, _several)
    assert first == second
    assert first["mix"] != first["alone"]
