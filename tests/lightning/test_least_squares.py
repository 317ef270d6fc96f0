"""LitLeastSquares and the data module of real targets: scikit-learn's minima, the split, the scaling and its way back."""

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.metrics import r2_score, root_mean_squared_error
from torch.utils.data import DataLoader, TensorDataset

import torchperc as tp
from torchperc.data import load, split

L = tp.lightning
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*(LeafSpec|many workers|no `val_dataloader|number of training batches)"
)


def trained(lit, *data, epochs=1):
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    trainer = pl.Trainer(accelerator="cpu", devices=1, max_epochs=epochs, logger=False, **quiet)
    trainer.fit(lit, *data)
    return trainer


def diabetes(**options):
    return L.TabularDataModule("diabetes", scale="standard", dtype="float64", **options)


@pytest.mark.parametrize("l2", [0.0, 0.05])
def test_the_minimum_is_scikit_learns_and_rmse_is_in_raw_units(l2):
    data = diabetes()
    lit = L.LitLeastSquares(tp.Perceptron(10, dtype=torch.float64), l2)
    metrics = trained(lit, data).callback_metrics
    (X, y), (Xv, _), _ = data.parts
    known = (Ridge(l2 * len(y)) if l2 else LinearRegression()).fit(X, y)
    np.testing.assert_allclose(lit.net.weight.detach()[0], known.coef_, rtol=1e-7, atol=1e-9)
    truth = load("diabetes").y[data.indices[1]]
    said = data.unscaled(torch.from_numpy(known.predict(Xv)))
    assert float(metrics["rmse/val"]) == pytest.approx(root_mean_squared_error(truth, said), rel=1e-8)
    assert float(metrics["r2/val"]) == pytest.approx(r2_score(truth, said), rel=1e-8)
    assert float(metrics["rmse/train"]) < data.target_unit
    assert (
        trained(L.LitRegressor(tp.Perceptron(10, dtype=torch.float64), "auto"), data).callback_metrics["rmse/val"] > 40
    )


def test_sample_weights_count_as_copies():
    rng = np.random.default_rng(0)
    X, y = torch.from_numpy(rng.normal(size=(12, 2))), torch.from_numpy(rng.normal(size=12))
    weight = torch.arange(12) % 3
    nets = [tp.Perceptron(2, dtype=torch.float64) for _ in range(2)]
    trained(L.LitLeastSquares(nets[0]), DataLoader(TensorDataset(X, y, weight), batch_size=12))
    copies = TensorDataset(X.repeat_interleave(weight, 0), y.repeat_interleave(weight))
    trained(L.LitLeastSquares(nets[1]), DataLoader(copies, batch_size=len(copies)))
    torch.testing.assert_close(nets[0].weight, nets[1].weight, rtol=1e-10, atol=1e-12)


def test_a_checkpoint_gives_the_same_module_back(tmp_path):
    lit = L.LitLeastSquares(tp.Perceptron(10), 0.5)
    trained(lit, L.TabularDataModule("diabetes")).save_checkpoint(tmp_path / "last.ckpt")
    again = L.LitLeastSquares.load_from_checkpoint(tmp_path / "last.ckpt")
    assert again.l2 == 0.5
    assert torch.equal(again.net.weight, lit.net.weight)


def test_what_is_not_the_minimum_of_all_samples_is_refused():
    with pytest.raises(ValueError, match="found 3 batches of them; use batch_size='full'"):
        trained(L.LitLeastSquares(tp.Perceptron(10)), L.TabularDataModule("diabetes", batch_size=100))
    with pytest.raises(TypeError, match="linear net"):
        L.LitLeastSquares(tp.MLP(10, [3]))
    with pytest.raises(ValueError, match="l2=-1"):
        L.LitLeastSquares(tp.Perceptron(10), -1)


@pytest.mark.parametrize("kind", ["auto", "standard", "minmax", "maxabs", "none"])
def test_targets_are_scaled_by_the_training_set_and_come_back(kind):
    data, y = diabetes(scale_target=kind), load("diabetes").y
    assert all(torch.equal(a, b) for a, b in zip(data.indices, split(y, stratify=False), strict=True))
    train = y[data.indices[0]]
    scaled = data.parts[0][1]
    expected = {"minmax": (train.min(), train.max() - train.min()), "maxabs": (0.0, train.abs().max()), "none": (0, 1)}
    shift, scale = expected.get(kind, (train.mean(), train.std(correction=0)))
    torch.testing.assert_close(scaled, (train - shift) / scale, rtol=1e-12, atol=1e-12)
    for (_, z), index in zip(data.parts, data.indices, strict=True):
        torch.testing.assert_close(data.unscaled(z), y[index], rtol=1e-13, atol=0)
    assert data.target_unit == pytest.approx(float(scale), rel=1e-13)
    assert ("target_scaler" in data.state_dict()) is True
    predicted, truth = tp.lightning.trainer.predictions(L.LitRegressor(tp.Perceptron(10, dtype=torch.float64)), data, 2)
    assert torch.equal(truth, y[data.indices[2]])
    assert torch.equal(predicted, data.unscaled(torch.zeros(len(truth))))


def test_other_data_or_another_scaling_are_not_resumed():
    state, other = diabetes().state_dict(), diabetes(scale_target="none")
    with pytest.raises(ValueError, match="is not the data the checkpoint was made on"):
        other.load_state_dict(state)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: L.TabularDataModule("iris", scale_target="none").dataset, "scale_target='none' needs real targets, but iris has labels"),
        (lambda: L.TabularDataModule("iris", task="regression").dataset, "task='regression' is not possible with source 'iris'"),
        (lambda: L.TabularDataModule("iris", task="ranking"), "task='ranking' is unknown"),
        (lambda: L.TabularDataModule("iris", {"task": "regression"}, task="classification"), "say it twice"),
        (lambda: L.TabularDataModule("iris").unscaled(torch.zeros(1)), "the data have labels, which are not scaled"),
        (lambda: diabetes().decode(torch.zeros(1)), "the targets are real numbers"),
    ],
)  # fmt: skip
def test_bad_requests(make, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        make()
    assert message in str(caught.value)


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_validation_is_complete_after_a_sanity_check(monkeypatch, steps):
    """Which reads the first batches of the validation set and breaks off."""
    seen = []

    class Counting(L.LitLeastSquares):
        def validation_step(self, batch, batch_idx=0, dataloader_idx=0):
            super().validation_step(batch, batch_idx, dataloader_idx)
            seen.append((self.trainer.sanity_checking, len(batch[1])))

    monkeypatch.setattr("torchperc.lightning.datamodule.part_size", lambda X: 30)
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    trainer = pl.Trainer(accelerator="cpu", devices=1, max_epochs=1, num_sanity_val_steps=steps, logger=False, **quiet)
    trainer.fit(Counting(tp.Perceptron(10)), L.TabularDataModule("diabetes"))
    assert [count for sane, count in seen if not sane] == [30, 30, 29]
    assert "rmse/val" in trainer.callback_metrics
