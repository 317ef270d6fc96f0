"""Fitted models of regressions: predictions in the target's units, their files, and what does not fit together."""

import json
import re
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors import safe_open
from torch import nn

import torchperc as tp
from torchperc.data import Identity, MaxAbs, MinMax, Standard
from torchperc.model.export import save_exported, save_model
from torchperc.model.onnx import save_onnx

X = torch.from_numpy(np.random.default_rng(0).normal([50.0, -3.0, 0.2], [20.0, 1.0, 5.0], (40, 3)))
Y = X @ torch.tensor([3000.0, -20.0, 7.0], dtype=torch.float64) + 1e5
NETS = {
    "perceptron": lambda dtype: tp.Perceptron(3, init="normal", seed=0, dtype=dtype),
    "no bias": lambda dtype: tp.Perceptron(3, bias=False, init="normal", seed=0, dtype=dtype),
    "linear": lambda dtype: nn.Linear(3, 1, dtype=dtype),
    "mlp": lambda dtype: tp.MLP(3, [4], seed=0, dtype=dtype),
}


def model(name="perceptron", dtype=torch.float32, scaler=Standard, target=Standard):
    of_target = None if target is None else target().fit_target(Y)
    net = NETS[name](dtype)
    return tp.FittedModel.of(net, "regression", scaler=scaler().fit(X), target="price", target_scaler=of_target)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("target", [Standard, MinMax, MaxAbs, Identity, None])
def test_predictions_are_the_scores_in_the_units_of_the_target(dtype, target):
    made = model(dtype=dtype, target=target)
    Z = made.scaler.transform(X).to(dtype)
    scores = made.net(Z).double()
    shift, scale = (
        (0.0, 1.0) if target is None else (float(v) for v in (made.target_scaler.shift, made.target_scaler.scale))
    )
    assert made.predict(X) == (scores * scale + shift).tolist()
    outputs = made.outputs(X)
    assert outputs.scores.dtype == torch.float64
    assert outputs.label is outputs.probabilities is made.probabilities(X) is None
    assert made.module()(X.to(made.input_dtype))[0].shape == (40,)


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_model_comes_back_from_its_file_to_the_bit(tmp_path, name, dtype):
    made = model(name, dtype)
    made.save(tmp_path / "weights.safetensors")
    again = tp.FittedModel.load(tmp_path)
    assert again.predict(X) == made.predict(X)
    assert (again.target, again.labels, again.regression) == ("price", (), True)
    assert again.target_scaler.state() == made.target_scaler.state()
    assert save_model(made, tmp_path / "checked.safetensors").sentence.endswith("scores equal to the bit")


@pytest.mark.slow
@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exported_files_predict_the_same(tmp_path, name, dtype):
    made = model(name, dtype)
    given = X.to(made.input_dtype)
    expected = made.predict(given)
    save_onnx(made, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    assert [output.name for output in session.get_outputs()] == ["prediction"]
    (said,) = session.run(None, {"X": given.numpy()})
    assert said.dtype == np.float64
    np.testing.assert_allclose(said, expected, rtol=1e-5 if dtype == torch.float32 else 1e-12)
    save_exported(made, tmp_path / "m.pt2")
    assert torch.export.load(tmp_path / "m.pt2").module()(given)[0].tolist() == expected


def test_raw_weights_are_those_of_the_table():
    made = model(dtype=torch.float64)
    weight, bias = made.raw_weights()
    np.testing.assert_allclose(X @ weight + bias, made.predict(X), rtol=1e-10)
    assert model("mlp").raw_weights() is None
    assert tp.FittedModel.of(tp.Perceptron(3)).raw_weights() is None


def test_classifiers_are_written_as_older_programs_read_them(tmp_path):
    def description(made):
        made.save(tmp_path / "m.safetensors")
        with safe_open(tmp_path / "m.safetensors", "pt") as file:
            return json.loads(file.metadata()["torchperc.model"])

    old, new = description(tp.FittedModel.of(tp.Perceptron(3))), description(model())
    assert old["format"] == 1
    assert set(new) - set(old) == {"target", "target_scaler"}
    assert new["format"] == 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tp.FittedModel.of(tp.Perceptron(3), "regression", labels=("a", "b")), "labels=('a', 'b') cannot be combined with a RegressionHead"),
        (lambda: tp.FittedModel.of(nn.Linear(3, 2), "regression"), "a regression has one target, but the net has 2 outputs"),
        (lambda: tp.FittedModel.of(tp.Perceptron(3), "regression", target_scaler=Standard().fit(X)), "target_scaler must be that of one target"),
        (lambda: tp.FittedModel.of(tp.Perceptron(3), "regression", target_scaler=Standard()), "is not fitted"),
        (lambda: tp.FittedModel.of(tp.Perceptron(3), "lms", target_scaler=Standard().fit_target(Y)), "target_scaler is for a RegressionHead"),
    ],
)  # fmt: skip
def test_parts_that_do_not_fit_are_refused(make, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


def test_a_damaged_description_is_refused(tmp_path):
    from torchperc.model.safetensors import save_safetensors

    made, path = model(), Path(tmp_path / "m.safetensors")
    state = {**made._state(), "target_scaler": {"kind": "standard", "shift": [0.0], "scale": [0.0]}}
    save_safetensors(made.net, path, {"torchperc.model": json.dumps(state)})
    with pytest.raises(ValueError, match=r"does not hold a model that can be used: state.*scale"):
        tp.FittedModel.load(path)
