"""The XOR lab: members against the same net alone, kinds against nets made by hand, rates, pictures, the command."""

import math

import pytest
import torch
from refusals import refusals
from scipy.stats import binomtest

import torchperc as tp

pytestmark = pytest.mark.slow

LOGISTIC, LMS = tp.LogisticHead(), tp.LMSHead()
xorlab, lab_plots, ACTIVATIONS = tp.lab.xor, tp.lab.xor_figures, tp.modules.ACTIVATIONS
SEEDS = (0, 7, 3, 2**40)


def rows(inputs, dtype):
    X, y = tp.data.gate("XOR", dtype=dtype)
    return (X if inputs == "0/1" else 2 * X - 1), y


def alone(seed, hidden, activation, head, *, lr, steps, inputs="0/1", dtype=torch.float64):
    """The oracle: one net, autograd and torch.optim.SGD; also the loss before every step and after the last."""
    net = tp.MLP(2, hidden=(hidden,), activation=activation, init="uniform", seed=seed, dtype=dtype)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    X, y = rows(inputs, dtype)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = head.loss(net(X), y)
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
    return net, [*losses, head.loss(net(X), y).item()]


def net_of(weight1, bias1, weight2, bias2, activation="relu"):
    net = tp.MLP(2, hidden=(len(bias1),), activation=activation)
    values = (weight1, bias1, [weight2], [bias2])
    net.load_state_dict({name: torch.tensor(v).float() for name, v in zip(net.state_dict(), values, strict=True)})
    return net


def same_weights(one, other):
    return all(torch.equal(p, q) for p, q in zip(one.parameters(), other.parameters(), strict=True))


HEADS = (LMS, tp.LMSHead("0/1"), tp.PerceptronHead())


@pytest.mark.parametrize(("activation", "head"), [*((a, LOGISTIC) for a in ACTIVATIONS), *(("tanh", h) for h in HEADS)])
def test_each_member_is_the_net_trained_alone(activation, head):
    hidden, inputs = (3, "-1/+1") if activation in ("relu", "sigmoid", "gelu") else (2, "0/1")
    options = {"lr": 0.1, "steps": 120, "inputs": inputs, "dtype": torch.float64}
    result = xorlab.train(SEEDS, hidden, activation, head, record_every=1, **options)
    for k, seed in enumerate(SEEDS[:2]):
        net, losses = alone(seed, hidden, activation, head, **options)
        for mine, other in zip(result.net(k).parameters(), net.parameters(), strict=True):
            torch.testing.assert_close(mine, other, rtol=0, atol=1e-12)
        torch.testing.assert_close(result.curves[:, k].tolist(), losses, rtol=0, atol=1e-12)
        X, y = rows(inputs, torch.float64)
        assert result.accuracy[k] == (head.decide(net(X)) == y).double().mean()
        net.zero_grad()
        head.loss(net(X), y).backward()
        norm = torch.cat([p.grad.flatten() for p in net.parameters()]).norm()
        torch.testing.assert_close(result.gradient_norm[k], norm, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("activation", "head"), [("tanh", LMS), ("relu", LOGISTIC), ("sigmoid", LOGISTIC)])
def test_company_changes_nothing_to_the_bit(activation, head):
    hidden, dtype = (2, torch.float32) if activation == "sigmoid" else (5, torch.float64)
    many = xorlab.train(range(35), hidden, activation, head, lr=0.3, steps=30, dtype=dtype)
    few = xorlab.train([34, 5], hidden, activation, head, lr=0.3, steps=30, dtype=dtype)
    assert same_weights(many.net(34), few.net(0))
    assert same_weights(many.net(5), few.net(1))
    assert torch.equal(many.curves[:, [34, 5]], few.curves)
    assert torch.equal(many.gradient_norm[[34, 5]], few.gradient_norm)


def test_a_run_leaves_generator_and_threads_alone():
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        xorlab.train(range(3), steps=2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_what_is_recorded():
    result = xorlab.train(range(4), steps=10, record_every=4)
    every = xorlab.train(range(4), steps=10, record_every=1)
    assert result.recorded.tolist() == [0, 4, 8, 10]
    assert torch.equal(result.curves, every.curves[result.recorded])
    assert torch.equal(result.loss, result.curves[-1])
    assert len(xorlab.train([0], steps=2000).recorded) == 201


# relu(x₁ + x₂ − ½) and relu(x₁ + x₂ − 3/2) solve it: 4·a − 16·b − 1 is −1, 1, 1, −3
SOLVED = ([[1, 1], [1, 1]], [-0.5, -1.5], [4, -16], -1)


FAR = ([[1, 1], [1, 1]], [-100, 100], [1, 1], -1)


@pytest.mark.parametrize(
    ("weights", "kind", "activation"),
    [
        (SOLVED, "solved", "relu"),
        (([[1, 1], [1, 1]], [-0.5, -1.5], [4, 0], -1), "stuck at 75 %", "relu"),  # OR
        (([[1, 1], [1, 1]], [-0.5, -1.5], [-4, 0], 1), "stuck at 50 %", "relu"),  # its opposite, one row right
        (([[1, 1], [1, 1]], [-0.5, -2.0], [4, -16], -1), "dead units", "relu"),  # on at (1, 1) with 0 only: no slope there
        (([[1, 1], [1, 1]], [-0.5, -1.99], [4, -16], -1), "stuck at 75 %", "relu"),  # just alive
        (([[-1, -1], [-1, -1]], [-1, -1], [1, 1], 0), "dead units", "relu"),  # at the chance level too, but dead
        (([[0, 0], [0, 0]], [1, 1], [0, 0], 0), "saddle", "relu"),  # alive, all scores 0, no direction better than another
        (([[1, 1], [1, math.inf]], [-0.5, -1.5], [4, -16], -1), "diverged", "relu"),
        (FAR, "dead units", "relu"),
        *((FAR, "stuck at 50 %", saturated) for saturated in ("leaky_relu", "tanh")),  # not dead: with a slope
        (([[0, 0], [0, 0]], [0, 0], [1, 1], 0), "saddle", "tanh"),  # 0 on every row, but with a slope: a step can move it
    ],
)  # fmt: skip
def test_kinds_of_nets_made_by_hand(weights, kind, activation):
    assert xorlab.classify([net_of(*weights, activation=activation)]) == (kind,)
    assert xorlab.classify([net_of(*weights), net_of(*SOLVED)])[1] == "solved"


def test_a_member_that_diverges_takes_nobody_along():
    wild = xorlab.train(range(12), 2, "tanh", LMS, lr=1.2, steps=400)
    assert 0 < wild.counts["diverged"] < 12
    calm = [k for k, kind in enumerate(wild.kinds) if kind != "diverged"]
    again = xorlab.train(calm, 2, "tanh", LMS, lr=1.2, steps=400)
    assert again.counts["diverged"] == 0
    assert all(same_weights(wild.net(k), again.net(j)) for j, k in enumerate(calm))


def test_counts_and_rate_are_those_of_the_kinds():
    result = xorlab.train(range(40), steps=500)
    X, y = rows("0/1", torch.float32)
    solved = sum(torch.equal(tp.LogisticHead().decide(result.net(k)(X)), y) for k in range(40))
    assert 0 < solved < 40
    assert result.counts["solved"] == result.kinds.count("solved") == solved
    assert tuple(result.counts) == xorlab.KINDS
    assert (sum(result.counts.values()), result.success_rate) == (40, solved / 40)
    assert result.interval == pytest.approx(tuple(binomtest(solved, 40).proportion_ci(method="wilson")))


def test_the_lab_in_short():
    tanh, wide, relu = (xorlab.train(range(200), h, a, steps=1000) for h, a in ((2, "tanh"), (4, "tanh"), (2, "relu")))
    assert 0.5 < tanh.success_rate < 0.7
    assert wide.success_rate > 0.97
    assert 0.15 < relu.success_rate < 0.33
    assert tanh.counts["dead units"] == wide.counts["dead units"] == 0
    assert relu.counts["dead units"] > 80
    assert xorlab.train(range(50), 2, "identity", steps=300).counts["solved"] == 0  # no line separates XOR
    assert xorlab.train(range(50), 1, "tanh", steps=300).counts["solved"] == 0  # nor does one unit bend it enough


@pytest.mark.parametrize(
    ("activation", "head", "lr"), [("relu", LOGISTIC, 1.0), ("tanh", tp.PerceptronHead(), 0.5), ("tanh", LMS, 1.2)]
)
def test_curves(activation, head, lr):
    result = xorlab.train(range(30), 2, activation, head, lr=lr, steps=120)
    figure = lab_plots.plot_curves(result)
    (axes,) = figure.axes
    drawn = [line for line in axes.lines if len(line.get_xdata())]
    assert len(drawn) == 30
    assert not any((line.get_ydata() <= 0).any() for line in drawn)  # a loss of 0 would be nowhere on this scale
    assert (axes.get_yscale(), axes.get_xlabel(), axes.get_ylabel()) == ("log", "full-batch steps", "mean loss")
    assert f"{result.counts['solved']} of 30 seeds solved" in axes.get_title()
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert sorted(legend) == sorted(f"{kind} ({count})" for kind, count in result.counts.items() if count)


@pytest.mark.parametrize(("inputs", "head"), [("0/1", LOGISTIC), ("-1/+1", tp.LMSHead("0/1"))])
def test_boundary(inputs, head):
    result = xorlab.train(range(10), 3, "tanh", head, lr=0.3, steps=300, inputs=inputs, dtype=torch.float64)
    net, (X, y) = result.net(result.kinds.index("solved")), rows(inputs, torch.float64)
    (axes,) = lab_plots.plot_boundary(net, inputs=inputs, head=head).axes
    assert "2-3-1" in axes.get_title()
    assert axes.get_xticks().tolist() == sorted(set(X.flatten().tolist()))
    (image,) = axes.images
    left, right, *_ = image.get_extent()
    column, row = ((X - left) / (right - left) * 399).round().int().T.numpy()
    assert image.get_array()[row, column].tolist() == y.tolist()


test_wrong_values_are_named = refusals(
    (lambda: xorlab.train([]), r"seeds=\[\]"),
    (lambda: xorlab.train(1000), "seeds=1000.*range"),
    (lambda: xorlab.train([0, -1]), "seeds=-1"),
    (lambda: xorlab.train([0.5]), "seeds must be an integer"),
    (lambda: xorlab.train([0], 0), "hidden=0"),
    (lambda: xorlab.train([0], 2, "swish"), "activation='swish'"),
    (lambda: xorlab.train([0], lr=math.nan), "lr=nan"),
    (lambda: xorlab.train([0], lr=1e300), "lr=1e\\+300 is 0 or infinite"),
    (lambda: xorlab.train([0], inputs="0/2"), "inputs='0/2'"),
    (lambda: xorlab.train([0], dtype=torch.float16), "dtype=torch.float16"),
    (lambda: xorlab.train([0], head="logistic"), "head .*found str"),
    (lambda: xorlab.train([0], steps=1).net(1), "k=1"),
    (lambda: xorlab.classify([tp.MLP(2, (2,)), tp.MLP(2, (3,))]), "one shape"),
    (lambda: xorlab.classify([tp.MLP(2, (2, 2))]), "hidden=\\(h,\\)"),
    (lambda: lab_plots.plot_boundary(tp.MLP(3)), "3 inputs"),
    (lambda: lab_plots.plot_boundary(tp.MLP(2), inputs="1/2"), "inputs='1/2'"),
    error=(ValueError, TypeError, IndexError),
)


def test_the_command(call, tmp_path):
    out = tmp_path / "new" / "xor [red]"
    words = "--seeds 30 --hidden 2 4 2 --activation relu --steps 100"
    code, said, error = call("xor", *words.split(), "--out", out)
    assert (code, error) == (0, "")
    assert said.splitlines()[-1] == f"pictures are in {out}"
    assert {path.name for path in out.iterdir()} == {"boundary.png", "curves-2-relu.png", "curves-4-relu.png"}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in out.iterdir())
    assert "…" not in said
    for hidden, line in zip((2, 4), said.splitlines()[3:-1], strict=True):
        result = xorlab.train(range(30), hidden, "relu", steps=100)
        low, high = (100 * bound for bound in result.interval)
        cells = [hidden, "relu", f"{100 * result.success_rate:.1f}", f"{low:.1f}–{high:.1f}"]
        assert line.split() == list(map(str, [*cells, *list(result.counts.values())[1:]]))


@pytest.mark.parametrize("words", ["--seeds 0", "--steps 0", "--hidden 2 0", "--activation other"])
def test_the_command_writes_nothing_if_a_value_is_wrong(call, tmp_path, words):
    code, _, error = call("xor", "--seeds", 2, "--steps", 2, *words.split(), "--out", tmp_path / "out")
    option, *_, value = words.split()
    assert (code, f"{option} {value}" in error) == (2, True), error
    assert not (tmp_path / "out").exists()
