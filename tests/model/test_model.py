"""Fitted models: against plain numpy, as one file and back, regressions, and every way to be refused."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy.sparse import csr_array
from torch import nn

import torchperc as tp
from torchperc import FittedModel
from torchperc.data import SCALINGS, Scaler
from torchperc.model import save_safetensors
from torchperc.model.export import save_model
from torchperc.model.model_file import MODEL

NUMPY = {torch.float32: np.float32, torch.float64: np.float64}
RAW = np.random.default_rng(5).normal([0, -30, 500], [1, 5, 20], (40, 3))
HEADS = {
    "perceptron": tp.PerceptronHead(tie="sign"),
    "lms": tp.LMSHead(),
    "lms 0/1": tp.LMSHead(targets="0/1"),
    "logistic": tp.LogisticHead(),
}
SCALERS = {
    "as it is": None,
    "none": Scaler.fit("none", RAW),
    "minmax": Scaler.fit("minmax", RAW),
    "standard": Scaler.fit("standard", RAW),
}
NETS = {
    "perceptron": lambda **o: tp.Perceptron(3, init="normal", seed=1, **o),
    "no bias": lambda **o: tp.Perceptron(3, bias=False, init="normal", seed=1, **o),
    "linear": lambda **o: nn.Linear(3, 1, **o),
    "linear 4": lambda **o: nn.Linear(3, 4, bias=False, **o),
    "two vectors": lambda **o: tp.MulticlassPerceptron(3, 2, init="normal", seed=1, **o),
    "multiclass": lambda **o: tp.MulticlassPerceptron(3, 4, init="normal", seed=1, **o),
    "joint": lambda **o: tp.JointPerceptron(3, 4, init="normal", seed=1, **o),
    "joint, no bias": lambda **o: tp.JointPerceptron(3, 4, bias=False, init="normal", seed=1, **o),
    "mlp": lambda **o: tp.MLP(3, hidden=(5, 4), seed=1, **o),
    "mlp 3": lambda **o: tp.MLP(3, hidden=(5,), num_classes=3, activation="relu", seed=1, **o),
}
REGRESSIONS = ["perceptron", "no bias", "linear", "mlp"]
DTYPES = [torch.float32, torch.float64]


def by_numpy(net, X):
    """Scores in float64 from the weights alone, written without torch."""
    w = {name: value.double().numpy() for name, value in net.state_dict().items()}
    if isinstance(net, tp.MLP):
        act = {"tanh": np.tanh, "relu": lambda v: np.maximum(v, 0)}[net.activation_name]
        for i in range(len(net.hidden)):
            X = act(X @ w[f"layers.{i}.weight"].T + w[f"layers.{i}.bias"])
        last = len(net.hidden)
        scores = X @ w[f"layers.{last}.weight"].T + w[f"layers.{last}.bias"]
    elif isinstance(net, tp.JointPerceptron):
        blocks = w["weight"].reshape(net.num_classes, -1)
        with_one = np.hstack([X, np.ones((len(X), blocks.shape[1] - 3))])
        scores = with_one @ blocks.T
    else:
        scores = X @ w["weight"].T + w.get("bias", 0)
    return scores[:, 0] if scores.shape[1] == 1 else scores


def decided(head, scores):
    """The rule of the house, written without torch: where the label stands."""
    if scores.ndim == 2:
        return np.array([row.tolist().index(max(row.tolist())) for row in scores])
    if isinstance(head, tp.LogisticHead):
        return (scores > 0).astype(int)
    return (scores >= (0.5 if head == tp.LMSHead(targets="0/1") else 0)).astype(int)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("net", NETS)
def test_against_numpy(net, dtype):
    net = NETS[net](dtype=dtype)
    for head in HEADS.values():
        for scaler in SCALERS.values():
            model = FittedModel(net, head, scaler=scaler)
            Z = RAW if scaler is None else (RAW - scaler.shift.numpy()) / scaler.scale.numpy()
            out = model.outputs(RAW)
            close = (2e-4, 1e-5) if dtype == torch.float32 else (1e-11, 1e-11)
            np.testing.assert_allclose(out.scores, by_numpy(net, Z.astype(NUMPY[dtype])), *close)
            assert out.scores.dtype == dtype
            assert np.array_equal(out.label, decided(head, out.scores.numpy()))
            assert model.predict(RAW) == [model.labels[k] for k in out.label]
            scores = out.scores.double().numpy()
            if head != tp.LogisticHead():
                assert out.probabilities is model.outputs(RAW).probabilities is None
            else:
                both = scores if scores.ndim == 2 else np.stack([np.zeros_like(scores), scores], 1)
                chances = np.exp(both - both.max(1, keepdims=True))
                chances /= chances.sum(1, keepdims=True)
                np.testing.assert_allclose(model.outputs(RAW).probabilities, chances, 1e-4, 1e-6)
            X = torch.from_numpy(RAW).to(model.input_dtype)
            said, expected = model(X), [value for value in model.outputs(X) if value is not None]
            assert all(torch.equal(a, b) for a, b in zip(said, expected, strict=True))
            assert not any(value.requires_grad for value in said)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", [name for name in NETS if "joint" not in name])
def test_sparse_samples(name, dtype):
    X = np.random.default_rng(1).integers(-3, 4, (20, 3)) * np.random.default_rng(2).integers(0, 2, (20, 3)) * 1.0
    halves = Scaler("minmax", torch.zeros(3, dtype=torch.float64), torch.tensor([2.0, 4.0, 1.0], dtype=torch.float64))
    net, kept = NETS[name](dtype=dtype), csr_array(X)
    for scaler in (None, SCALERS["none"], halves):
        model = FittedModel(net, "logistic", scaler=scaler)
        dense = model.outputs(X)
        tensor = torch.from_numpy(X)
        for sparse in (kept, kept.astype(np.float32), tensor.to_sparse_csr(), tensor.to_sparse()):
            found = model.outputs(sparse)
            assert torch.allclose(found.scores, dense.scores, rtol=1e-5, atol=1e-6)
            assert found.scores.dtype == dtype
    assert np.array_equal(kept.toarray(), X)
    with pytest.raises(ValueError, match="no zero of sparse X would stay zero"):
        FittedModel(net, scaler=SCALERS["standard"]).scores(kept)


def test_names_by_default_and_labels_of_any_kind():
    model = FittedModel(tp.Perceptron(2), "lms 0/1")
    assert (model.labels, model.names, model.head) == (("-1", "+1"), ("x1", "x2"), tp.LMSHead(targets="0/1"))
    assert FittedModel(nn.Linear(1, 3)).labels == ("0", "1", "2")
    for given, labels in (
        (np.array([0.5, 2.0]), ("0.5", "2")),
        (torch.tensor([0.5, 2.0]), ("0.5", "2")),
        (np.array(["a", "b"]), ("a", "b")),
        (np.array([False, True]), ("False", "True")),
    ):
        assert FittedModel(tp.Perceptron(2), labels=given).labels == labels


def test_a_frame_goes_by_name():
    model, X = FittedModel(tp.Perceptron(2, init="normal", seed=0)), torch.tensor([[1.0, 2.0], [3.0, -4.0]])
    with pytest.raises(ValueError, match="x1"):
        model.scores(pd.DataFrame(X.numpy(), columns=["length", "width"]))
    assert torch.equal(model.scores(pd.DataFrame(X.numpy()[:, ::-1], columns=["x2", "x1"])), model.scores(X))
    assert torch.equal(model.scores([{"x2": 2.0, "x1": 1.0}]), model.scores(X[:1]))


def test_a_model_stays_when_training_goes_on():
    net, about = tp.Perceptron(2), {"data": "AND"}
    model = FittedModel(net, about=about)
    tp.RuleTrainer().fit(net, *tp.data.gate("AND"))
    about["data"] = "OR"
    assert (model.net.weight.any().item(), model.about) == (False, {"data": "AND"})
    assert (net.weight.requires_grad, model.net.weight.requires_grad) == (True, False)


# --- files ---


def same(one, other):
    assert type(one.net) is type(other.net)
    assert one.net.state_dict().keys() == other.net.state_dict().keys()
    for name in ("head", "labels", "names", "about", "target"):
        assert getattr(one, name) == getattr(other, name)
    for name in ("scaler", "target_scaler"):
        states = [each and each.state() for each in (getattr(one, name), getattr(other, name))]
        assert states[0] == states[1]
    X = torch.from_numpy(RAW)
    assert all(torch.equal(a, b) for a, b in zip(one.outputs(X), other.outputs(X), strict=True) if a is not None)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NETS)
def test_a_model_comes_back_from_its_file(tmp_path, name, dtype):
    for number, (scaler, head) in enumerate(zip(SCALERS.values(), HEADS.values(), strict=True)):
        net = NETS[name](dtype=dtype)
        model = FittedModel(net, head, scaler=scaler, names=("größe", "b", "=1"), about={"seed": "0", "η": "½"})
        model.save(tmp_path / MODEL)
        drawn = torch.get_rng_state()
        again = FittedModel.load(tmp_path if number % 2 else tmp_path / MODEL)
        assert torch.equal(drawn, torch.get_rng_state())
        same(model, again)
        fresh = NETS[name](dtype=dtype)
        fresh.load_state_dict(load_file(tmp_path / MODEL))  # the weights alone, by another reader
        assert [path.name for path in tmp_path.iterdir()] == [MODEL]


def table_encoder():
    columns = (tp.data.Column("age"), tp.data.Column("colour", ("red", "green")))
    return tp.data.TableEncoder(columns=columns, target="kind", labels=("no", "yes"))


def test_an_encoding_comes_back(tmp_path):
    given = table_encoder()
    model = FittedModel(tp.Perceptron(3), encoding=given)
    assert (model.names, model.labels) == (given.feature_names, ("no", "yes"))
    model.save(tmp_path / MODEL)
    assert FittedModel.load(tmp_path).encoding == given


def written(tmp_path):
    model = FittedModel(NETS["perceptron"](), scaler=SCALERS["minmax"], labels=("no", "yes"))
    model.save(tmp_path / MODEL)
    return model, tmp_path / MODEL


def test_files_without_a_model_are_refused(tmp_path):
    for path, message in (
        (tmp_path / "none", "no such run or model: .*none"),
        (tmp_path, r"has no weights\.safetensors"),
    ):
        with pytest.raises(ValueError, match=message):
            FittedModel.load(path)
    save_safetensors(tp.Perceptron(3), tmp_path / MODEL)
    with pytest.raises(ValueError, match="holds weights but no description of a model"):
        FittedModel.load(tmp_path)
    _, path = written(tmp_path)
    save_file(load_file(path), path, {"torchperc.model": description(path)})  # another program has opened and saved it
    with pytest.raises(ValueError, match="has lost its checksum"):
        FittedModel.load(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="not a safetensors file, or is damaged"):
        FittedModel.load(path)


def description(path):
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return header["__metadata__"]["torchperc.model"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.update(format=4, torchperc="9.1"), r"format 4, written by torchperc 9\.1"),
        (lambda s: s.update(format="1"), "format '1'"),
        (lambda s: s.__delitem__("format"), "'format' is missing"),
        (lambda s: [s], "list indices"),
        (lambda s: s["head"].update(kind="svm"), "head='svm' is unknown"),
        (lambda s: s["net"].update(class_path="torch.nn.Sequential"), "net is a torch.nn.Sequential"),
        (lambda s: s["net"]["init_args"].update(in_features=10**15), r"weight is \(1, 3\) .* in the file, \(1, 1000000000000000\)"),
        (lambda s: s["net"]["init_args"].update(dtype="torch.int8"), "net has dtype='torch.int8'"),
        (lambda s: s["net"]["init_args"].update(dtype="torch.float64"), "float32 in the file, .*float64 in the net"),
        (lambda s: s["net"]["init_args"].update(bias=False), "bias is .* in the file, missing in the net"),
        (lambda s: s["net"]["init_args"].update(nonsense=1), "nonsense"),
        (lambda s: s.update(names=["a"]), "names is for 1, but net and head need 3"),
        (lambda s: s["scaler"].update(scale=[1.0, 0.0, 1.0]), r"state\['scale'\] must be above 0"),
    ],
)  # fmt: skip
def test_wrong_descriptions_are_refused(tmp_path, change, message):
    model, path = written(tmp_path)
    state = json.loads(description(path))
    save_safetensors(model.net, path, {"torchperc.model": json.dumps(change(state) or state)})
    with pytest.raises(ValueError, match=rf"(?s)weights\.safetensors.*{message}"):
        FittedModel.load(path)


def test_weights_that_are_not_finite(tmp_path):
    model, path = written(tmp_path)
    before = path.read_bytes()
    with torch.no_grad():
        model.net.weight[0, 1] = float("nan")
    with pytest.raises(ValueError, match=r"cannot save .*weight holds nan"):
        model.save(path)
    assert path.read_bytes() == before
    with pytest.raises(ValueError, match="training of the net did not finish: weight holds nan"):
        FittedModel(model.net)


# --- what does not fit together ---


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FittedModel(nn.Sequential(nn.Linear(2, 1))), "net must be .*, found Sequential"),
        (lambda: FittedModel(tp.Perceptron(2).bfloat16()), r"found torch\.bfloat16; use net\.float"),
        (lambda: FittedModel(tp.MLP(2, activation=torch.sin)), "custom activation, 'sin'"),
        (lambda: FittedModel(tp.JointPerceptron(2, 2, features=lambda x: torch.stack([x, -x], 1))), "custom features"),
        (lambda: FittedModel(tp.Perceptron(2), head=3), "head must be .*, found 3"),
        (lambda: FittedModel(tp.Perceptron(2), labels="abc"), "labels is for 3, but net and head need 2"),
        (lambda: FittedModel(tp.Perceptron(2), labels="aa"), r"labels=\('a', 'a'\) has one of them twice"),
        (lambda: FittedModel(tp.Perceptron(2), scaler=SCALERS["minmax"]), "scaler is for 3, but net and head need 2"),
        (lambda: FittedModel(tp.Perceptron(2), encoding=table_encoder(), names="ab"), "encoding is for 3, but net and head need 2"),
        (lambda: FittedModel(tp.Perceptron(3), "regression", labels=("a", "b")), "labels is for 2, but net and head need 0"),
        (lambda: FittedModel(nn.Linear(3, 2), "regression"), "net has 2 outputs"),
        (lambda: FittedModel(tp.Perceptron(3), "regression", target_scaler=SCALERS["minmax"]), "target_scaler is for 3"),
        (lambda: FittedModel(tp.Perceptron(3), "lms", target_scaler=Scaler.fit("standard", RAW[:, 0])), "target_scaler is for 1, .* need 0"),
    ],
)  # fmt: skip
def test_parts_that_do_not_fit_are_refused(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([[1.0, 2.0]], "X has 2 features but 3 are needed"),
        ([[1.0, 2.0, float("nan")]], r"X\[0, 2\] = nan is not a finite number"),
        ([[1.0, 2.0, 1e300]], r"X\[0, 2\] = 1e\+300 is too large for torch.float32"),
        (csr_array(np.zeros((2, 4))), "X has 4 features but 3 are needed"),
        (csr_array(np.array([[0, np.inf, 0]])), r"X\[0, 1\] = inf is not a finite number"),
    ],
)
def test_samples_that_cannot_be_scored_are_refused(X, message):
    with pytest.raises((ValueError, TypeError), match=message):
        FittedModel(NETS["perceptron"]()).predict(X)


@pytest.mark.slow
def test_reading_a_model_loads_nothing_heavy(tmp_path, fresh):
    _, path = written(tmp_path)
    code = (
        f"import sys, torchperc as tp; tp.FittedModel.load({str(path)!r}).predict([[0, 0, 0]]); tp.save_onnx\n"
        "print({'pytorch_lightning', 'scipy', 'sklearn', 'onnx', 'onnxruntime', 'numba', 'pyarrow.lib'} & set(sys.modules))"
    )
    assert fresh(code) == "set()\n"


# --- regressions ---

Y = torch.from_numpy(RAW) @ torch.tensor([3000.0, -20.0, 7.0], dtype=torch.float64) + 1e5


def regression(name="perceptron", dtype=torch.float32, target="standard"):
    scaled = None if target is None else Scaler.fit(target, Y)
    return FittedModel(
        NETS[name](dtype=dtype), "regression", scaler=SCALERS["standard"], target="price", target_scaler=scaled
    )


@pytest.mark.parametrize("target", [*SCALINGS, None])
def test_predictions_are_the_scores_in_the_units_of_the_target(target):
    for dtype in DTYPES:
        model = regression(dtype=dtype, target=target)
        scores = model.net(model.scaler.transform(torch.from_numpy(RAW)).to(dtype)).double()
        scaler, outputs = model.target_scaler, model.outputs(RAW)
        assert model.predict(RAW) == (scores if target is None else scores * scaler.scale + scaler.shift).tolist()
        assert outputs.scores.dtype == torch.float64
        assert outputs.label is outputs.probabilities is model.outputs(RAW).probabilities is None


def test_a_regression_comes_back_from_its_file_to_the_bit(tmp_path):
    for name, dtype in zip(REGRESSIONS, DTYPES * 2, strict=True):
        model = regression(name, dtype)
        assert save_model(model, tmp_path / MODEL).sentence.endswith("scores equal to the bit")
        same(model, FittedModel.load(tmp_path))
