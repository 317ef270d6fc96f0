"""Models for other programs: onnxruntime and torch.export against torch and plain numpy, and the command that writes them."""

import argparse
import json
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

import torchperc as tp
from torchperc.data.scaling import MinMax, Standard
from torchperc.model import export as portable
from torchperc.model import onnx as onnx_files
from torchperc.model.fitted import FittedModel
from torchperc.model.format import MODEL
from torchperc.model.safetensors import save_safetensors
from torchperc.nn.modules import ACTIVATIONS

RAW = np.random.default_rng(5).normal([0, -30, 500], [1, 5, 20], (40, 3))
DTYPES = [torch.float32, torch.float64]
NUMPY = {torch.float32: np.float32, torch.float64: np.float64}
HEADS = ["perceptron", "lms", "lms 0/1", "logistic"]
SCALERS = {"as it is": None, "minmax": MinMax().fit(RAW), "standard": Standard().fit(RAW)}
NETS = {
    "perceptron": lambda **o: tp.Perceptron(3, init="normal", seed=1, **o),
    "no bias": lambda **o: tp.Perceptron(3, bias=False, init="normal", seed=1, **o),
    "linear": lambda **o: nn.Linear(3, 1, **o),
    "two vectors": lambda **o: tp.MulticlassPerceptron(3, 2, init="normal", seed=1, **o),
    "multiclass": lambda **o: tp.MulticlassPerceptron(3, 4, init="normal", seed=1, **o),
    "joint": lambda **o: tp.JointPerceptron(3, 4, init="normal", seed=1, **o),
    "mlp": lambda **o: tp.MLP(3, hidden=(5, 4), seed=1, **o),
    "mlp 3": lambda **o: tp.MLP(3, hidden=(5,), num_classes=3, activation="relu", seed=1, **o),
}


def run(path, X):
    """What onnxruntime makes of a file, by the names of its outputs."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"X": X}), strict=True))


def linear_by_numpy(model, X):
    """Scores in float64 from weights and scaling alone."""
    Z = X.astype(np.float64)
    if model.scaler is not None:
        Z = (Z - model.scaler.shift.numpy()) / model.scaler.scale.numpy()
    w = {name: value.double().numpy() for name, value in model.net.state_dict().items()}
    scores = Z.astype(NUMPY[model.dtype]) @ w["weight"].T + w.get("bias", 0)
    return scores[:, 0] if scores.shape[1] == 1 else scores


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NETS)
def test_onnx_against_torch_and_numpy(tmp_path, name, dtype):
    close = {"rtol": 1e-5, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-11}
    for number, head in enumerate(HEADS):
        scaler = list(SCALERS.values())[(number + 2) % 3]
        model = FittedModel.of(NETS[name](dtype=dtype), head, scaler=scaler)
        checked = tp.save_onnx(model, tmp_path / "m.onnx")
        assert checked.samples == 1000
        assert checked.size == (tmp_path / "m.onnx").stat().st_size
        X = RAW.astype(NUMPY[model.input_dtype])
        found, torchs = run(tmp_path / "m.onnx", X), model.outputs(X)
        np.testing.assert_allclose(found["scores"], torchs.scores, **close)
        assert found["scores"].dtype == NUMPY[dtype]
        if name not in ("joint", "mlp", "mlp 3"):
            np.testing.assert_allclose(found["scores"], linear_by_numpy(model, X), **close)
        assert found["label"].dtype == np.int64
        assert np.array_equal(found["label"], torchs.label)
        assert ("probabilities" in found) == (head == "logistic")
        if head == "logistic":
            np.testing.assert_allclose(found["probabilities"], torchs.probabilities, atol=1e-5)
            assert found["probabilities"].shape == (40, len(model.labels))
        assert run(tmp_path / "m.onnx", X[:1])["scores"].shape == torchs.scores[:1].shape


def _version(module):
    return tuple(int(part) for part in module.__version__.split(".")[:2])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_in_onnx(tmp_path, activation, dtype):
    net = tp.MLP(3, hidden=(6, 5), activation=activation, init="normal", seed=3, dtype=dtype)
    model = FittedModel.of(net, "logistic")
    if (activation, dtype) == ("gelu", torch.float64):
        with pytest.raises(ValueError, match="onnxruntime has no erf for float64, which gelu needs"):
            tp.save_onnx(model, tmp_path / "m.onnx")
        assert not list(tmp_path.iterdir())
        return
    if (activation, dtype) == ("silu", torch.float64) and _version(onnxruntime) < (1, 24):
        with pytest.raises(ValueError, match="does not run this net"):  # it has that in float32 only
            tp.save_onnx(model, tmp_path / "m.onnx")
        assert not list(tmp_path.iterdir())
        return
    tp.save_onnx(model, tmp_path / "m.onnx")
    X = torch.randn(300, 3, dtype=dtype) * torch.tensor([[1.0], [10.0], [100.0]], dtype=dtype).repeat(100, 1)
    close = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-12}
    np.testing.assert_allclose(run(tmp_path / "m.onnx", X.numpy())["scores"], net(X).detach(), **close)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_ties_are_decided_as_in_torchperc(tmp_path, dtype):
    X = np.arange(-3, 4, dtype=NUMPY[dtype])[:, None] / 2  # scores −1.5 … 1.5, 0 and ½ among them
    expected = {"perceptron": X >= 0, "lms": X >= 0, "lms 0/1": X >= 0.5, "logistic": X > 0}
    net = tp.Perceptron(1, dtype=dtype)
    nn.init.ones_(net.weight)
    many = tp.MulticlassPerceptron(1, 3, dtype=dtype)
    with torch.no_grad():
        many.weight[:, 0] = torch.tensor([-1.0, 1.0, 1.0])  # classes 1 and 2 always level, all three at 0
    for head in HEADS:
        tp.save_onnx(FittedModel.of(net, head), tmp_path / "m.onnx")
        assert np.array_equal(run(tmp_path / "m.onnx", X)["label"], expected[head][:, 0])
        tp.save_onnx(FittedModel.of(many, head), tmp_path / "m.onnx")
        assert run(tmp_path / "m.onnx", X)["label"].tolist() == [0, 0, 0, 0, 1, 1, 1]
        checked = tp.save_onnx(FittedModel.of(tp.Perceptron(4, dtype=dtype), head), tmp_path / "m.onnx")
        assert checked.largest == 0
        assert set(run(tmp_path / "m.onnx", np.ones((5, 4), NUMPY[dtype]))["label"]) == {
            int(head in ("perceptron", "lms"))
        }


def test_what_an_onnx_file_says_of_itself(tmp_path):
    model = FittedModel.of(
        NETS["multiclass"](), "logistic", scaler=SCALERS["standard"], labels=["a", "b", "ç", "d"],
        names=("größe", "y", "z"), about={"data": "iris", "seed": "0"},
    )  # fmt: skip
    tp.save_onnx(model, tmp_path / "m.onnx")
    file = onnx.load(tmp_path / "m.onnx")
    onnx.checker.check_model(file, full_check=True)
    texts = {entry.key: json.loads(entry.value) for entry in file.metadata_props}
    assert texts["labels"] == ["a", "b", "ç", "d"]
    assert texts["features"] == ["größe", "y", "z"]
    assert (texts["head"], texts["about"]) == ("LogisticHead()", {"data": "iris", "seed": "0"})
    assert (file.producer_name, file.producer_version) == ("torchperc", tp.__version__)
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    assert (given.name, given.shape, given.type) == ("X", ["N", 3], "tensor(float)")
    outputs = [(output.name, output.shape, output.type) for output in session.get_outputs()]
    assert outputs == [
        ("scores", ["N", 4], "tensor(float)"),
        ("label", ["N"], "tensor(int64)"),
        ("probabilities", ["N", 4], "tensor(float)"),
    ]
    assert session.get_modelmeta().custom_metadata_map["labels"] == '["a", "b", "ç", "d"]'


def test_features_far_from_the_origin_are_taken_in_float64(tmp_path):
    for far in (RAW + 1e6, RAW * 1e40, RAW * 1e-50):
        model = FittedModel.of(NETS["perceptron"](), scaler=Standard().fit(far))
        assert tp.save_onnx(model, tmp_path / "m.onnx").samples == 1000
        np.testing.assert_allclose(run(tmp_path / "m.onnx", far)["scores"], model.scores(far), atol=1e-6)


def test_wide_models_are_checked_on_fewer_samples(tmp_path):
    checked = tp.save_onnx(FittedModel.of(tp.Perceptron(50_000, init="normal", seed=0)), tmp_path / "m.onnx")
    assert checked.samples == 20


# --- the check sees what is wrong ---


def wrong_weight(add):
    def changed(self, kind, *inputs, **options):
        if kind == "Gemm":
            inputs = [inputs[0], inputs[1] * np.float32(1 + 1e-4), *inputs[2:]]
        return add(self, kind, *inputs, **options)

    return changed


def other(found, instead):
    return lambda add: (
        lambda self, kind, *inputs, **options: add(self, instead if kind == found else kind, *inputs, **options)
    )


def last_of_the_largest(add):
    def changed(self, kind, *inputs, **options):
        return add(self, kind, *inputs, **{**options, **({"select_last_index": 1} if kind == "ArgMax" else {})})

    return changed


@pytest.mark.parametrize(
    ("net", "head", "change", "message"),
    [
        ("perceptron", "perceptron", wrong_weight, "scores sample .* and torch .*, further apart than 1e-05"),
        ("mlp", "lms", wrong_weight, "further apart than 1e-05"),
        ("mlp", "lms", other("Tanh", "Sigmoid"), "further apart than 1e-05"),
        ("multiclass", "logistic", other("ArgMax", "ArgMin"), "decides otherwise than LogisticHead"),
        ("perceptron", "perceptron", other("GreaterOrEqual", "Less"), "decides otherwise than PerceptronHead"),
        ("zero", "perceptron", other("GreaterOrEqual", "Greater"), "decides otherwise than PerceptronHead"),
        ("zero", "logistic", other("Greater", "GreaterOrEqual"), "decides otherwise than LogisticHead"),
        ("zero 3", "lms", last_of_the_largest, "decides otherwise than LMSHead"),
        ("perceptron", "logistic", other("Neg", "Abs"), "gives other probabilities than torch"),
    ],
)
def test_a_file_that_differs_is_not_written(tmp_path, monkeypatch, net, head, change, message):
    nets = {**NETS, "zero": lambda: tp.Perceptron(3), "zero 3": lambda: tp.MulticlassPerceptron(3, 3)}
    monkeypatch.setattr(onnx_files._Graph, "add", change(onnx_files._Graph.add))
    path = tmp_path / "m.onnx"
    path.write_bytes(b"before")
    with pytest.raises(ValueError, match=rf"cannot write .*m\.onnx: onnxruntime .*{message}"):
        tp.save_onnx(FittedModel.of(nets[net](), head), path)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("m.onnx", b"before")]


def test_weights_that_overflow_everywhere_are_refused(tmp_path):
    model = FittedModel.of(tp.MLP(2, activation="softplus"))
    for values in model.net.parameters():
        values.fill_(3e38)
    with pytest.raises(ValueError, match="train on scaled features"):
        tp.save_onnx(model, tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("missing", ["onnx", "onnxruntime"])
def test_without_the_extra(tmp_path, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ValueError, match=rf"needs {missing}; install it with: pip install 'torchperc\[onnx\]'"):
        tp.save_onnx(FittedModel.of(tp.Perceptron(2)), tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


# --- torch.export, and other processes ---


def elsewhere(code, *words):
    """What a fresh Python prints that has never heard of torchperc."""
    code = f"import sys\nsys.modules['torchperc'] = None\n{code}"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def model():
    return FittedModel.of(NETS["perceptron"](), "logistic", scaler=SCALERS["standard"], labels=("no", "yes"))


@pytest.mark.slow
def test_torch_export_in_a_process_of_its_own(tmp_path, model):
    checked = tp.save_exported(model, tmp_path / "m.pt2")
    assert checked.sentence == "checked against torch on 1,000 samples: scores equal to the bit"
    code = """
import json, torch, warnings
warnings.simplefilter("ignore")  # torch's own, of its own ways
extra = {"torchperc.json": ""}
net = torch.export.load(sys.argv[1], extra_files=extra).module()
X = torch.tensor(json.loads(sys.argv[2]))
whole, alone = net(X), net(X[:1])
labels = json.loads(extra["torchperc.json"])["labels"]
print(json.dumps([[v.tolist() for v in whole], len(alone[0]), [labels[k] for k in whole[1]]]))
"""
    X = torch.from_numpy(RAW[:7]).float()
    (scores, label, chances), one, names = elsewhere(code, str(tmp_path / "m.pt2"), json.dumps(X.tolist()))
    expected = model.outputs(X)
    assert torch.allclose(torch.tensor(scores), expected.scores, rtol=1e-6)
    assert label == expected.label.tolist()
    assert torch.allclose(torch.tensor(chances), expected.probabilities, atol=1e-6)
    assert (one, names) == (1, model.predict(X))


@pytest.mark.slow
def test_torch_export_of_many_classes(tmp_path):
    """In float64, with hidden layers; to the bit against torch and close to what onnxruntime says."""
    model = FittedModel.of(NETS["mlp 3"](dtype=torch.float64), "lms", scaler=SCALERS["minmax"])
    tp.save_exported(model, tmp_path / "m.pt2")
    net = torch.export.load(tmp_path / "m.pt2").module()
    scores, label = net(torch.from_numpy(RAW))
    assert torch.equal(scores, model.scores(RAW))
    assert torch.equal(label, model.outputs(RAW).label)
    tp.save_onnx(model, tmp_path / "m.onnx")
    found = run(tmp_path / "m.onnx", RAW)
    np.testing.assert_allclose(found["scores"], scores, rtol=1e-12)
    assert np.array_equal(found["label"], label)


def test_an_exported_program_that_differs_is_not_written(tmp_path, monkeypatch, model):
    monkeypatch.setattr(
        portable.torch.export,
        "load",
        lambda _: argparse.Namespace(module=lambda: lambda X: [v + 1e-2 for v in model.module()(X)]),
    )
    monkeypatch.setattr(portable.torch.export, "export", lambda *_, **__: None)
    monkeypatch.setattr(portable.torch.export, "save", lambda *_, **__: None)
    with pytest.raises(ValueError, match=r"cannot write .*m\.pt2: torch\.export scores sample"):
        tp.save_exported(model, tmp_path / "m.pt2")
    assert not list(tmp_path.iterdir())


# --- the command ---


@pytest.mark.parametrize(
    ("to", "name"), [("onnx", "model.onnx"), ("torch", "model.pt2"), ("safetensors", "model.safetensors")]
)
def test_the_command_writes_beside_the_run_or_where_told(tmp_path, call, model, to, name):
    folder = tmp_path / "run"
    folder.mkdir()
    model.save(folder / MODEL)
    code, out, err = call("export", folder, "--to", to)
    assert (code, err) == (0, "")
    size = (folder / name).stat().st_size
    assert out.startswith(
        f"Perceptron of {folder}: {folder / name}, {size:,} bytes; checked against torch on 1,000 samples: scores "
    )
    assert out.count("\n") == 1
    assert {path.name for path in folder.iterdir()} == {MODEL, name}
    if to == "torch":
        return  # once is enough, at two seconds
    code, out, _ = call("export", folder / MODEL, "--to", to, "-o", tmp_path / "other")
    assert code == 0
    assert (tmp_path / "other").stat().st_size == size
    if to == "safetensors":
        assert torch.equal(FittedModel.load(tmp_path / "other").scores(RAW), model.scores(RAW))


def test_the_command_fails_in_one_line(tmp_path, call, monkeypatch, model):
    run, weights = tmp_path / "run", tmp_path / "weights.safetensors"
    run.mkdir()
    save_safetensors(model.net, weights)
    cases = [
        ([tmp_path / "none", "--to", "onnx"], "no such run or model: "),
        ([run, "--to", "onnx"], "has no weights.safetensors; `torchperc fit` and `torchperc learn` write one"),
        ([weights, "--to", "onnx"], "holds weights but no description of a model"),
        ([run, "--to", "tflite"], "argument --to: invalid choice: 'tflite'"),
        ([run], "the following arguments are required: --to"),
        (["--to", "onnx"], "the following arguments are required: RUN"),
        ([run, "--to", "onnx", "--check", "m.onnx"], "unrecognized arguments: --check"),
    ]
    for words, message in cases:
        code, out, err = call("export", *words)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith("torchperc: error: ")
        assert message in err
    model.save(run / MODEL)
    for out in (run, tmp_path / "no" / "m.onnx"):
        code, _, err = call("export", run, "--to", "onnx", "-o", out)
        assert code == 2
        assert f"--out {out} is not a file in a folder that exists" in err
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert "pip install 'torchperc[onnx]'" in call("export", run, "--to", "onnx")[2]
    (run / MODEL).write_bytes((run / MODEL).read_bytes()[:-3])
    code, _, err = call("export", run, "--to", "onnx")
    assert code == 2
    assert "is not a safetensors file, or is damaged" in err
    assert [path.name for path in run.iterdir()] == [MODEL]
    assert {path.name for path in tmp_path.iterdir()} == {"run", "weights.safetensors"}
