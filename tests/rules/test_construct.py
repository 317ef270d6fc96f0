"""Networks built by the rule: theorems on random sets, nets against a plain loop, and what is said where nothing helps."""

import copy
import itertools
import math

import numpy as np
import oracles
import pytest
import pytorch_lightning as pl
import torch
from plain import board

import torchperc as tp
from torchperc import FittedModel

BUILT = ("tower", "pyramid", "upstart", "tiling")
XOR = tp.data.gate("XOR")
build = tp.rules.build


def boolean(n, seed):
    """Corners of the cube −1/+1 and random labels of both classes."""
    X = 2 * tp.data.gate(f"parity-{n}", dtype=torch.float64)[0] - 1
    y = 2 * torch.randint(2, (len(X),), generator=torch.Generator().manual_seed(seed)) - 1
    y[:2] = torch.tensor([-1, 1])
    return X, y


def points(seed, count=24, width=2):
    """Random points of both classes, in no order; the middle ones are inside the hull of the others."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(count, width, generator=generator, dtype=torch.float64)
    return X, torch.arange(count) % 2 * 2 - 1


def by_hand(net, X):
    """The score of a net and what each of its units says, by plain loops over Python numbers."""
    weight, bias, scores, said = net.weight.tolist(), net.bias.tolist(), [], []
    for x in X.double().tolist():
        seen = [*x, sum(value * value for value in x)] if net.quadratic else list(x)
        for w, b in zip(weight, bias, strict=True):
            score = b + sum(a * c for a, c in zip(w, seen, strict=False))
            seen.append(1 if score >= 0 else -1)
        scores.append(score)
        said.append(seen[-len(bias) :])
    return scores, said


# --- the theorems ---


@pytest.mark.slow
@pytest.mark.parametrize("method", BUILT)
def test_errors_become_fewer_with_each_step_and_end_at_0(method):
    constructed = 0
    for seed in range(200):
        X, y = (boolean(2 + seed % 4, seed), points(seed, 6 + seed % 20, 1 + seed % 3))[seed % 2]
        result = build(X, y, method, max_epochs=1 + seed % 7, seed=seed)  # few epochs: units of the proof are needed
        assert result.errors == 0, (seed, result)
        assert torch.equal(result.net.predict(X), y)
        errors = [step.errors for step in result.steps if method != "tiling" or step.role.startswith("master")]
        assert all(later < earlier for earlier, later in itertools.pairwise(errors)), (seed, errors)
        constructed += sum(step.constructed for step in result.steps)
    assert constructed > 100


@pytest.mark.parametrize("method", BUILT)
def test_the_steps_say_who_corrected_what_with_every_log(method):
    X, y = boolean(4, 3)
    result = build(X, y, method, max_epochs=5)
    right = torch.zeros(len(y), dtype=torch.bool)
    for step in result.steps:
        now = step.net.predict(X) == y
        assert step.corrected.tolist() == torch.nonzero(now & ~right)[:, 0].tolist()
        assert step.wrong.tolist() == torch.nonzero(~now)[:, 0].tolist()
        right = now
        if step.result is not None:
            assert step.result.select == "pocket"
            assert step.result.mistakes == len(step.result.log) > 0
            log = step.result.log
            chosen = step.result.predict(log.problem.samples.dense())
            assert (log.sample_weight @ (chosen != log.y).double()).item() == log.errors().min()
    assert right.all()
    assert result.updates == sum(step.result.mistakes for step in result.steps if step.result is not None)


@pytest.mark.parametrize("method", BUILT)
@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_parity_takes_no_more_units_than_are_known_to_suffice(method, n):
    X, y = tp.data.gate(f"parity-{n}")
    expected = {"tower": n // 2 + 1, "pyramid": n // 2 + 1, "upstart": n, "tiling": n + 1}
    net = build(2 * X - 1, y, method).net
    assert (net.units, net.quadratic) == (expected[method], False)  # corners of a cube need no ‖x‖²


def test_a_daughter_sees_only_where_her_mother_says_the_same():
    X, y = boolean(4, 7)
    result = build(X, y, "upstart")
    first, second = (step.result.log for step in result.steps[:2])
    side = result.steps[1].role[-2:]
    part = result.steps[0].net.predict(X) == int(side)
    assert torch.equal(second.sample_weight > 0, part)
    assert set(second.sample.tolist()) <= set(torch.nonzero(part)[:, 0].tolist())
    wrong = first.y != result.steps[0].net.predict(X)
    assert torch.equal(second.y[part] == 1, wrong[part])


def test_layers_of_a_tiling_see_the_layer_before_them_only():
    X, y = boolean(4, 1)
    result = build(X, y, "tiling")
    layers = [int(step.role.split("layer ")[1].split()[0]) for step in result.steps]
    assert layers == sorted(layers)
    assert max(layers) > 1
    for unit, layer in enumerate(layers):
        seen = torch.nonzero(result.net.weight[unit])[:, 0].tolist()
        names = [0 if column < 4 else layers[column - 4] for column in seen]
        assert set(names) <= {layer - 1}
    for layer in range(1, max(layers)):  # faithful: what the layer says tells the classes apart
        said = np.array(by_hand(result.net, X)[1])[:, [at == layer for at in layers]].tolist()
        kinds = {(tuple(row), label) for row, label in zip(said, y.tolist(), strict=True)}
        assert len({row for row, _ in kinds}) == len(kinds)


def test_madaline_keeps_its_shape_and_the_best_epoch():
    solved = 0
    for seed in range(20):
        result = build(*XOR, "madaline", hidden=4, seed=seed, max_epochs=40)
        assert result.net.units == 5
        assert not result.net.weight[:4, 2:].any() | result.net.weight[4, :2].any()
        assert result.errors == min(step.errors for step in result.steps)
        assert result.errors == int((result.net.predict(XOR[0]) != XOR[1]).sum())
        assert bool(result.reason) == (result.errors > 0)
        solved += result.errors == 0
    assert solved > 12


def test_madaline_turns_what_a_plain_loop_turns():
    X, y = boolean(3, 5)
    result = build(X, y, "madaline", hidden=3, seed=4, max_epochs=3)
    generator = torch.Generator().manual_seed(4)
    start = 2 * torch.rand(4, 8, dtype=torch.float64, generator=generator) - 1
    hidden, last = [row[:4].tolist() for row in start[:3]], [start[3, 0].item(), *start[3, 4:7].tolist()]
    dot = lambda a, b: sum(map(float.__mul__, a, b))  # noqa: E731
    sign = lambda value: 1.0 if value >= 0 else -1.0  # noqa: E731
    for step in result.steps:
        for i in torch.randperm(8, generator=generator).tolist():
            x = [1.0, *X[i].tolist()]
            scores = [dot(w, x) for w in hidden]
            said = [1.0, *map(sign, scores)]
            if sign(dot(last, said)) == y[i]:
                continue
            order = sorted(range(3), key=lambda k: abs(scores[k]))
            for turned in [*itertools.combinations(order, 1), *itertools.combinations(order, 2)]:
                if sign(dot(last, [v * (-1 if k - 1 in turned else 1) for k, v in enumerate(said)])) == y[i]:
                    for k in turned:
                        move = (-sign(scores[k]) - scores[k]) / 4
                        hidden[k] = [w + move * v for w, v in zip(hidden[k], x, strict=True)]
                    break
            else:
                score = dot(last, said)
                last = [w + (-sign(score) - score) / 4 * v for w, v in zip(last, said, strict=True)]
        there = step.net.weight.detach().numpy(), step.net.bias.detach().numpy()
        np.testing.assert_allclose(there[0][:3, :3], [row[1:] for row in hidden], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(there[0][3, 3:], last[1:], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(there[1], [*(row[0] for row in hidden), last[0]], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("quadratic", [False, True])
def test_a_net_is_a_plain_loop(quadratic):
    net = tp.nn.ThresholdNet(3, 5, quadratic=quadratic, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    state = {name: torch.randint(-4, 5, value.shape, generator=generator) for name, value in net.state_dict().items()}
    net.load_state_dict(state)
    X = torch.tensor(oracles.integers(0, count=60)[0])
    scores, said = by_hand(net, X)
    assert net(X).tolist() == scores
    assert net.predict(X).tolist() == [row[-1] for row in said]
    assert net(X.reshape(5, 12, 3)).shape == (5, 12)


@pytest.mark.gpu
def test_on_a_device(device):
    X, y = points(1)
    here, there = build(X, y, "tiling", max_epochs=5), build(X.to(device), y.to(device), "tiling", max_epochs=5)
    assert there.net.weight.device.type == device
    assert torch.equal(there.net.weight.cpu(), here.net.weight)
    assert torch.equal(there.net.predict(X.to(device)).cpu(), y)
    assert torch.equal(copy.deepcopy(here.net).to(device)(X.to(device)).cpu(), here.net(X))


@pytest.mark.parametrize("method", ["upstart", "pyramid"])
def test_models_and_exported_files(tmp_path, method):
    X, y = points(2)
    net = build(X, y, method, max_epochs=20).net
    model = FittedModel(net, labels=("a", "b"))
    assert model.predict(X) == [("a", "b")[label] for label in (y > 0).long().tolist()]
    model.save(tmp_path / "weights.safetensors")
    assert FittedModel.load(tmp_path).predict(X) == model.predict(X)
    tp.save_exported(model, tmp_path / "model.pt2")
    again = torch.export.load(tmp_path / "model.pt2").module()
    assert torch.equal(again(X)[1], (y > 0).long())
    tp.save_onnx(model, tmp_path / "model.onnx")


# --- logs and pictures ---


def test_a_function_sees_the_errors_and_so_does_tensorboard(tmp_path):
    seen = []
    result = build(*XOR, "tiling", log=lambda number, errors: seen.append((number, errors)))
    assert seen == [(number, step.errors) for number, step in enumerate(result.steps, 1)]
    logger = pl.loggers.TensorBoardLogger(tmp_path, name="tb", version="")
    build(*XOR, "tiling", log=lambda number, errors: logger.log_metrics({"error/train": errors / 4}, number))
    logger.finalize("success")
    assert board(tmp_path)["error/train"] == [(number, errors / 4) for number, errors in seen]


def test_the_display_has_a_panel_for_each_step():
    X, y = points(3)
    result = build(X, y, "pyramid", max_epochs=20)
    display = tp.plots.PathDisplay.from_build(result, X, y, max_panels=3)
    assert [axes.get_title() for axes in display.ax_][-1] == f"{len(result.steps)}: 0 wrong"
    ringed = display.ring_[-1].get_offsets().tolist()
    assert ringed == X[result.steps[-1].corrected].tolist()
    with pytest.raises(ValueError, match="X has 3 features"):
        tp.plots.PathDisplay.from_build(result, X[:, [0, 1, 0]], y)


# --- where nothing helps, and bad input ---


@pytest.mark.parametrize("method", BUILT)
def test_without_progress_the_net_so_far_is_returned(method):
    X, y = torch.arange(6.0, dtype=torch.float64)[:, None], torch.tensor([1, -1, 1, -1, 1, -1])
    stuck = build(1e9 + X, y, method, max_epochs=1)  # rounding hides how far points are from each other
    assert stuck.errors > 0
    assert stuck.reason == "no unit was found that leaves fewer errors; centre and scale X"
    assert stuck.errors == int((stuck.net.predict(1e9 + X) != y).sum())
    assert build(X, y, method, max_epochs=1).errors == 0
    few = build(X, y, method, max_units=2, max_epochs=1)
    assert (few.reason, len(few.steps)) == ("max_units=2 is reached", 2)
    assert few.errors == min(step.errors for step in few.steps) > 0


def test_bad_input_is_named():
    X, y = torch.tensor([[0.0, 1], [2, 3], [0, 1], [2, 3], [5, 5]]), torch.tensor([1, 1, -1, 1, 1])
    with pytest.raises(ValueError, match=r"X\[0\] and X\[2\] are equal, but y is 1 and -1; 2 samples contradict"):
        build(X, y, log=lambda *_: pytest.fail("building began"))
    for wrong, message in (
        ({"method": "towers"}, "method='towers' is unknown; choose one of 'tower', 'pyramid', "),
        ({"hidden": 2}, "hidden=2 is for method='madaline'"),
        ({"method": "madaline", "max_units": 2}, "hidden=2 makes 3 units, but max_units=2"),
        ({"max_units": 0}, "max_units=0 must be at least 1"),
        ({"X": [[math.nan, 0.0]] * 4}, "not a finite number"),
        ({"X": [[1e200, 0.0], [0, 1], [1, 0], [1, 1]]}, "the square is too large; scale X down"),
        ({"y": [1, 1, 1, 1]}, "y has one class only"),
        ({"y": [0, 1, 1, 0]}, "y must hold -1 and .1"),
    ):
        with pytest.raises(ValueError, match=message):
            build(**{"X": XOR[0], "y": XOR[1], **wrong})
    with pytest.raises(TypeError, match="log must be a function of"):
        build(*XOR, log="runs")
    with pytest.raises(TypeError, match="x is sparse"):
        tp.nn.ThresholdNet(2)(torch.eye(2).to_sparse())
    with pytest.raises(ValueError, match="units=0 must be at least 1"):
        tp.nn.ThresholdNet(2, 0)


def test_the_command(call, refused, tmp_path):
    code, out, _ = call("xor", "--method", "upstart", "--seeds", 3, "--out", tmp_path)
    assert (code, "upstart  100.0" in out) == (0, True)
    assert {path.name for path in tmp_path.iterdir()} == {"steps.png"}
    assert "leave out --hidden, --activation and --steps" in refused("xor", "--method", "tower", "--hidden", 3)
    names = "'tower', 'pyramid', 'upstart', 'tiling', 'madaline'"
    assert f"--method nix is unknown; choose one of {names}" in refused("xor", "--method", "nix")
