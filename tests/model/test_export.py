"""Models for other programs: onnxruntime and torch.export against torch and plain numpy, and the command that writes them."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array
from test_model import DTYPES, NETS, NUMPY, RAW, SCALERS, by_numpy, table_encoder
from torch import nn

import torchperc as tp
from torchperc import FittedModel
from torchperc.data import Scaler
from torchperc.model import export as portable
from torchperc.model import save_safetensors
from torchperc.model.model_file import MODEL
from torchperc.nn.modules import ACTIVATIONS

HEADS = ["perceptron", "lms", "lms 0/1", "logistic"]


def run(path, X):
    """What onnxruntime makes of a file, by the names of its outputs."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"X": X}), strict=True))


@pytest.mark.parametrize(("number", "name"), list(enumerate(NETS)))
def test_onnx_against_torch_and_numpy(tmp_path, number, name):
    dtype, head, scaler = DTYPES[number % 2], HEADS[number % 4], list(SCALERS.values())[number % 3]
    close = {"rtol": 1e-5, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-11}
    model = FittedModel(NETS[name](dtype=dtype), head, scaler=scaler)
    checked = tp.save_onnx(model, tmp_path / "m.onnx")
    assert (checked.samples, checked.size) == (1000, (tmp_path / "m.onnx").stat().st_size)
    X = RAW.astype(NUMPY[model.input_dtype])
    found, torchs = run(tmp_path / "m.onnx", X), model.outputs(X)
    np.testing.assert_allclose(found["scores"], torchs.scores, **close)
    assert (found["scores"].dtype, found["label"].dtype) == (NUMPY[dtype], np.int64)
    Z = X if scaler is None else (X - scaler.shift.numpy()) / scaler.scale.numpy()
    np.testing.assert_allclose(found["scores"], by_numpy(model.net, Z.astype(NUMPY[dtype])), **close)
    assert np.array_equal(found["label"], torchs.label)
    assert ("probabilities" in found) == (head == "logistic")
    if head == "logistic":
        np.testing.assert_allclose(found["probabilities"], torchs.probabilities, atol=1e-5)
        assert found["probabilities"].shape == (40, len(model.labels))
    assert run(tmp_path / "m.onnx", X[:1])["scores"].shape == torchs.scores[:1].shape


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_in_onnx(tmp_path, activation, dtype):
    net = tp.MLP(3, hidden=(6, 5), activation=activation, init="normal", seed=3, dtype=dtype)
    model, old = FittedModel(net, "logistic"), tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 24)
    if dtype == torch.float64 and (activation in ("gelu", "leaky_relu") or (activation == "silu" and old)):
        with pytest.raises(ValueError, match="use a float32 net"):  # it has that in float32 only
            tp.save_onnx(model, tmp_path / "m.onnx")
        assert not list(tmp_path.iterdir())
        return
    tp.save_onnx(model, tmp_path / "m.onnx")
    X = torch.randn(300, 3, dtype=dtype) * torch.tensor([[1.0], [10.0], [100.0]], dtype=dtype).repeat(100, 1)
    close = 1e-4 if dtype == torch.float32 else 1e-12
    np.testing.assert_allclose(run(tmp_path / "m.onnx", X.numpy())["scores"], net(X).detach(), close, close)


@pytest.mark.parametrize("head", HEADS)
def test_ties_are_decided_as_in_torchperc(tmp_path, head):
    X = np.arange(-3, 4, dtype=np.float32)[:, None] / 2  # scores −1.5 … 1.5, 0 and ½ among them
    threshold = 0.5 if head == "lms 0/1" else 0
    net, many = tp.Perceptron(1), tp.MulticlassPerceptron(1, 3)
    nn.init.ones_(net.weight)
    with torch.no_grad():
        many.weight[:, 0] = torch.tensor([-1.0, 1.0, 1.0])  # classes 1 and 2 always level, all three at 0
    tp.save_onnx(FittedModel(net, head), tmp_path / "m.onnx")
    assert np.array_equal(run(tmp_path / "m.onnx", X)["label"], (threshold <= X)[:, 0])
    tp.save_onnx(FittedModel(many, head), tmp_path / "m.onnx")
    assert run(tmp_path / "m.onnx", X)["label"].tolist() == [0, 0, 0, 0, 1, 1, 1]


def test_what_an_onnx_file_says_of_itself(tmp_path):
    model = FittedModel(
        NETS["multiclass"](), "logistic", scaler=SCALERS["standard"], labels=["a", "b", "ç", "d"],
        names=("größe", "y", "z"), about={"data": "iris", "seed": "0"},
    )  # fmt: skip
    tp.save_onnx(model, tmp_path / "m.onnx")
    file = onnx.load(tmp_path / "m.onnx")
    onnx.checker.check_model(file, full_check=True)
    texts = {entry.key: json.loads(entry.value) for entry in file.metadata_props}
    assert (texts["labels"], texts["features"]) == (["a", "b", "ç", "d"], ["größe", "y", "z"])
    assert (texts["head"], texts["about"]) == ("LogisticHead()", {"data": "iris", "seed": "0"})
    assert (file.producer_name, file.producer_version) == ("torchperc", tp.__version__)
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    named = [(each.name, each.shape, each.type) for each in (*session.get_inputs(), *session.get_outputs())]
    assert named == [
        ("X", ["N", 3], "tensor(float)"),
        ("scores", ["N", 4], "tensor(float)"),
        ("label", ["N"], "tensor(int64)"),
        ("probabilities", ["N", 4], "tensor(float)"),
    ]
    assert b".py" not in (tmp_path / "m.onnx").read_bytes()  # no paths or source lines of the machine that wrote it


def test_features_far_from_the_origin_are_taken_in_float64(tmp_path):
    for far in (RAW + 1e6, RAW * 1e40):
        model = FittedModel(NETS["perceptron"](), scaler=Scaler.fit("standard", far))
        assert tp.save_onnx(model, tmp_path / "m.onnx").samples == 1000
        np.testing.assert_allclose(run(tmp_path / "m.onnx", far)["scores"], model.scores(far), atol=1e-6)


def test_wide_models_are_checked_on_fewer_samples(tmp_path):
    checked = tp.save_onnx(FittedModel(tp.Perceptron(50_000, init="normal", seed=0)), tmp_path / "m.onnx")
    assert checked.samples == 20


# --- the check sees what is wrong ---


def other_weights(model):
    net = NETS["perceptron"]()
    nn.init.ones_(net.bias)
    return FittedModel(net, model.head)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (other_weights, "further apart than 1e-05"),
        (lambda model: FittedModel(model.net, "lms 0/1"), "decides otherwise than PerceptronHead"),
        (lambda model: FittedModel(tp.MulticlassPerceptron(3, 2), model.head), "further apart than 1e-05"),
    ],
)
def test_a_file_that_differs_is_not_written(tmp_path, monkeypatch, change, message):
    make = portable._onnx_file
    monkeypatch.setattr(portable, "_onnx_file", lambda model: make(change(model)))
    path = tmp_path / "m.onnx"
    path.write_bytes(b"before")
    with pytest.raises(ValueError, match=rf"cannot write .*m\.onnx: onnxruntime .*{message}"):
        tp.save_onnx(FittedModel(NETS["perceptron"]()), path)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("m.onnx", b"before")]


@pytest.mark.parametrize("save", [tp.save_onnx, tp.save_exported])
def test_what_is_no_model_is_refused(tmp_path, save):
    with pytest.raises(TypeError, match="model must be a FittedModel, found 3"):
        save(3, tmp_path / "m")
    assert not list(tmp_path.iterdir())


def test_weights_that_overflow_everywhere_are_refused(tmp_path):
    model = FittedModel(tp.MLP(2, activation="softplus"))
    for values in model.net.parameters():
        values.fill_(3e38)
    with pytest.raises(ValueError, match="train on scaled features"):
        tp.save_onnx(model, tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


# --- torch.export, and other processes ---


@pytest.fixture(scope="module")
def model():
    return FittedModel(NETS["perceptron"](), "logistic", scaler=SCALERS["standard"], labels=("no", "yes"))


@pytest.mark.slow
def test_torch_export_in_a_process_that_has_never_heard_of_torchperc(tmp_path, model):
    checked = tp.save_exported(model, tmp_path / "m.pt2")
    assert checked.sentence == "checked against torch on 1,000 samples: scores equal to the bit"
    code = """
import sys
sys.modules["torchperc"] = None
import json, torch
extra = {"torchperc.json": ""}
net = torch.export.load(sys.argv[1], extra_files=extra).module()
X = torch.tensor(json.loads(sys.argv[2]))
labels = json.loads(extra["torchperc.json"])["labels"]
print(json.dumps([[v.tolist() for v in net(X)], len(net(X[:1])[0]), [labels[k] for k in net(X)[1]]]))
"""
    X = torch.from_numpy(RAW[:7]).float()
    words = [sys.executable, "-c", code, tmp_path / "m.pt2", json.dumps(X.tolist())]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (scores, label, chances), one, names = json.loads(done.stdout)
    expected = model.outputs(X)
    assert torch.allclose(torch.tensor(scores), expected.scores, rtol=1e-6)
    assert torch.allclose(torch.tensor(chances), expected.probabilities, atol=1e-6)
    assert (label, one, names) == (expected.label.tolist(), 1, model.predict(X))


def table_model(means):
    given = table_encoder()
    given = given if means is None else dataclasses.replace(given, imputed_values=means)
    net = tp.Perceptron(3)
    nn.init.eye_(net.weight)  # the score is the first feature
    return FittedModel(net, scaler=Scaler.fit("minmax", [[20.0, 0, 0], [40.0, 1, 1]]), encoding=given)


@pytest.mark.slow
def test_a_missing_value_has_one_answer_everywhere(tmp_path, call):
    """Imputed as in training: from numbers, frames, dicts, sparse samples and files, in ONNX and torch.export."""
    model, given = table_model((35.0, 0.5, 0.5)), {"age": [np.nan, 20.0], "colour": ["red", "green"]}
    X = np.array([[np.nan, 1, 0], [20, 0, 1]], np.float32)
    expected = [0.75, 0.0]
    pd.DataFrame(given).to_csv(tmp_path / "a.csv", index=False)
    model.save(tmp_path / MODEL)
    assert call("apply", tmp_path, tmp_path / "a.csv", "-o", tmp_path / "out.csv")[0] == 0
    tp.save_onnx(model, tmp_path / "m.onnx")
    tp.save_exported(model, tmp_path / "m.pt2")
    flat = FittedModel(model.net, encoding=model.encoding)  # sparse samples have no shift
    rows = [dict(zip(given, row, strict=True)) for row in zip(*given.values(), strict=True)]
    assert flat.scores(csr_array(X)).tolist() == flat.scores(X).tolist() == [35.0, 20.0]
    for found in (
        model.scores(X),
        model.scores(X.tolist()),
        model.scores(pd.DataFrame(given)),
        model.scores(rows),
        pd.read_csv(tmp_path / "out.csv").score,
        run(tmp_path / "m.onnx", X)["scores"],
        torch.export.load(tmp_path / "m.pt2").module()(torch.from_numpy(X))[0],
    ):
        np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.slow
def test_a_missing_value_that_nobody_imputes_is_refused_everywhere(tmp_path, call):
    model, X = table_model(None), np.array([[np.nan, 1, 0], [20, 0, 1]], np.float32)
    frame = pd.DataFrame({"age": [np.nan], "colour": ["red"]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    for given in (X, X.tolist(), frame, [{"age": None, "colour": "red"}]):
        with pytest.raises(ValueError, match=r"age.* missing"):
            model.predict(given)
    model.save(tmp_path / MODEL)
    code, _, err = call("apply", tmp_path, tmp_path / "a.csv", "-o", tmp_path / "out.csv")
    assert code == 2
    assert "column 'age': the value is missing" in err
    tp.save_onnx(model, tmp_path / "m.onnx")
    assert run(tmp_path / "m.onnx", X)["label"].tolist() == [-1, 1]  # a graph cannot raise: no label has this index


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
    if to == "safetensors":
        assert torch.equal(FittedModel.load(folder / name).scores(RAW), model.scores(RAW))
        assert call("export", folder / MODEL, "--to", to, "-o", tmp_path / "other")[0] == 0
        assert (tmp_path / "other").read_bytes() == (folder / name).read_bytes()


def test_the_command_fails_in_one_line(tmp_path, refused, monkeypatch, model):
    run, weights = tmp_path / "run", tmp_path / "weights.safetensors"
    run.mkdir()
    save_safetensors(model.net, weights)
    cases = [
        ([weights, "--to", "onnx"], "holds weights but no description of a model"),
        ([run, "--to", "tflite"], "--to: invalid choice: 'tflite'"),
        ([run], "required: --to"),
    ]
    for words, message in cases:
        assert message in refused("export", *words)
    model.save(run / MODEL)
    for out in (run, tmp_path / "no" / "m.onnx"):
        err = refused("export", run, "--to", "onnx", "-o", out)
        assert f"--out {out} is not a file in a folder that exists" in err
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert "pip install 'torchperc[onnx]'" in refused("export", run, "--to", "onnx")
    (run / MODEL).write_bytes((run / MODEL).read_bytes()[:-3])
    assert "is not a safetensors file, or is damaged" in refused("export", run, "--to", "onnx")
    assert {path.name for path in (*run.iterdir(), *tmp_path.iterdir())} == {MODEL, "run", "weights.safetensors"}
