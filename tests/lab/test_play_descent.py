"""The page's gradient descent in JavaScript against autograd in float64, and against the rule to the bit."""

import math
from itertools import chain, product

import pytest
import torch
from node import run_node
from torch import nn

import torchperc as tp

pytestmark = pytest.mark.browser  # whose package has the Node that runs the scripts

CORE = ("random.js", "net.js")
HEADS = {"perceptron": tp.PerceptronHead, "lms": tp.LMSHead, "logistic": tp.LogisticHead}
TIES = ("update", "sign", "strict")
MODES = ({"mode": "batch"}, {"mode": "stochastic"}, {"mode": "minibatch", "batchSize": 3})
NEAR = {"rel": 1e-12, "abs": 1e-12}
ZERO = {"weight": [0.0, 0.0], "bias": 0.0}
AWAY = {"weight": [0.5, -0.25], "bias": 0.125}
STEPS = 12

PROGRAM = """
const inner = (name) => ({
  slopes: ({scores, signs, tie}) => HEADS.map((head) => scores.map((s, i) =>
    [sampleLoss(head, s, signs[i]), sampleSlope(head, s, signs[i], tie)])),
  path: ({samples, settings, steps}) => {
    const path = startPath(samples, settings);
    extendPath(path, steps);
    return path;
  },
  run: ({samples, settings, steps}) => {
    const path = startPath(samples, settings);
    extendPath(path, steps);
    const net = path.states[0];
    const first = netGradient(net, samples, settings.head, settings.tie, everyNumber(samples.points.length));
    return {first, net, last: path.states.at(-1), losses: path.losses, errors: path.errors, ended: path.ended};
  },
  starts: ({samples, starts}) => starts.map((start) => {
    const path = startPath(samples, {...start, head: "logistic", tie: "update", mode: "batch", order: "given"});
    const steps = extendPath(path, 600);
    return [start.standing, pathStanding(path, steps), path.errors[steps]];
  }),
  limit: ({head, points, size}) => stepLimit(head, points, size),
  optimum: ({samples, bias}) => lmsOptimum(samples, bias),
  surface: ({samples, head, bias, frame, cells, level}) => {
    const surface = lossSurface(samples, head, bias, frame, cells);
    return {surface, segments: contourSegments(surface, level)};
  },
}[name]);
answer = questions.map(([name, question]) => inner(name)(question));
"""


def samples(seed, count=8):
    """Points of the 1/64 grid with labels −1/+1, both of which occur."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randint(-96, 97, (count, 2), generator=generator).double() / 64
    y = torch.randint(0, 2, (count,), generator=generator) * 2 - 1
    y[:2] = torch.tensor([-1, 1])
    return X, y


def as_json(X, y):
    return {"points": X.tolist(), "signs": y.tolist()}


def head_of(name, tie):
    return HEADS[name](tie=tie) if name == "perceptron" else HEADS[name]()


def batches_of(count, settings, steps):
    """The batches of so many steps, as a DataLoader would hand them out in this order."""
    size = {"batch": count, "stochastic": 1}.get(settings["mode"]) or settings["batchSize"]
    generator = torch.Generator().manual_seed(settings["seed"])
    found = []
    while len(found) < steps:
        shuffled = settings["order"] == "shuffled" and settings["mode"] != "batch"
        epoch = torch.randperm(count, generator=generator) if shuffled else torch.arange(count)
        found.extend(epoch.split(size))
    return found[:steps]


def descent_by_torch(net, head, X, y, settings, steps):
    """Plain SGD by autograd: the loss of all samples before each step and after the last."""
    losses, parameters = [], list(net.parameters())
    for batch in batches_of(len(X), settings, steps):
        losses.append(head.loss(net(X), y).item())
        gradients = torch.autograd.grad(head.loss(net(X[batch]), y[batch]), parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.sub_(settings["lr"] * gradient)
    return [*losses, head.loss(net(X), y).item()]


def linear_net(start):
    net = tp.Perceptron(2, dtype=torch.float64)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([start["weight"]], dtype=torch.float64))
        net.bias.fill_(start["bias"])
    return net


def path_cases():
    """Every head, tie, mode and order on a data set of its own; half of them start at zero, on the kink."""
    heads, cases = [*(("perceptron", tie) for tie in TIES), ("lms", "update"), ("logistic", "update")], []
    for seed, ((name, tie), mode, order) in enumerate(product(heads, MODES, ("given", "shuffled")), 1):
        start = {"start": AWAY if seed % 2 else ZERO}
        cases.append(
            ({"head": name, "tie": tie, "lr": 0.25, "order": order, "seed": seed, **start, **mode}, *samples(seed))
        )
    return cases


def net_cases():
    """Every head, activation, width and mode."""
    cases = []
    for seed, (name, activation, hidden) in enumerate(product(HEADS, ("tanh", "sigmoid", "relu"), (2, 3, 4)), 101):
        settings = {"head": name, "tie": TIES[seed % 3], "lr": 0.5, "order": ("given", "shuffled")[seed % 2]}
        net = {"activation": activation, "hidden": hidden, "seed": seed}
        cases.append(({**settings, **net, **MODES[seed // 2 % 3]}, *samples(seed)))
    return cases


def rule_cases():
    """Stochastic steps on the perceptron criterion, of learning rates that are exact."""
    cases = []
    for seed in range(200, 236):
        tie = TIES[seed // 3 % 3]
        start = AWAY if seed % 2 or tie == "strict" else ZERO  # from zero a strict tie never moves, and a rule warns
        settings = {"head": "perceptron", "mode": "stochastic", "lr": (1, 0.5, 2)[seed % 3], "tie": tie}
        order = {"order": ("given", "shuffled")[seed // 5 % 2], "seed": seed, "start": start}
        cases.append(({**settings, **order}, *samples(seed, 5 + seed % 4)))
    return cases


def ending_cases():
    """How runs end: by divergence beyond the limit of LMS, by a gradient of zero, and by the largest number of steps."""
    X, y = samples(1)
    fast = 1.05 * tp.theory.step_limit("lms", X)
    runs = ("lms", "update", fast, 4000), ("perceptron", "strict", 1, 5), ("logistic", "update", 0.01, 11000)
    common = {"mode": "batch", "order": "given", "seed": 0, "start": ZERO}
    settings = [{**common, "head": head, "tie": tie, "lr": lr} for head, tie, lr, _ in runs]
    return [{"samples": as_json(X, y), "settings": s, "steps": run[-1]} for s, run in zip(settings, runs, strict=True)]


SCORES = torch.tensor([-800.0, -3.5, -1e-9, 0.0, 0.0, 1e-9, 2.0, 800.0, -800.0, 40.0], dtype=torch.float64)
SIGNS = torch.tensor([1, -1, 1, 1, -1, -1, 1, 1, -1, -1])
RULE_EPOCHS = 16
LIMITS = [(name, size) for name in HEADS for size in (1, 3, 8)]
LINE = torch.tensor([[0.0, 0.0], [0.5, 0.5], [1.0, 1.0]], dtype=torch.float64), torch.tensor([-1, -1, 1])
FRAME = {"x": [-2.0, 2.0], "y": [-1.0, 3.0]}
XOR = tp.data.gate("XOR", dtype=torch.float64)


@pytest.fixture(scope="module")
def answers():
    """All questions to Node at once, by name."""
    asked = {
        "slopes": [{"scores": SCORES.tolist(), "signs": SIGNS.tolist(), "tie": tie} for tie in TIES],
        "path": [
            *({"samples": as_json(X, y), "settings": s, "steps": STEPS} for s, X, y in path_cases()),
            *({"samples": as_json(X, y), "settings": s, "steps": RULE_EPOCHS * len(X)} for s, X, y in rule_cases()),
            *ending_cases(),
        ],
        "run": [{"samples": as_json(X, y), "settings": s, "steps": STEPS} for s, X, y in net_cases()],
        "starts": [{"samples": as_json(*XOR), "starts": tp.lab.play.content()["starts"]}],
        "limit": [{"head": name, "points": samples(1)[0].tolist(), "size": size} for name, size in LIMITS],
        "optimum": [
            {"samples": as_json(*samples(1)), "bias": None},
            {"samples": as_json(*samples(1)), "bias": 0.5},
            {"samples": as_json(*LINE), "bias": None},
        ],
        "surface": [
            {"samples": as_json(*samples(1)), "head": name, "bias": 0.25, "frame": FRAME, "cells": 16, "level": 1.0}
            for name in HEADS
        ],
    }
    questions = [(name, question) for name, group in asked.items() for question in group]
    found = iter(run_node(CORE, PROGRAM, questions))
    return {name: [next(found) for _ in group] for name, group in asked.items()}


def test_losses_and_slopes_of_one_sample(answers):
    for tie, heads in zip(TIES, answers["slopes"], strict=True):
        for name, found in zip(HEADS, heads, strict=True):
            s = SCORES.clone().requires_grad_()
            losses = head_of(name, tie).loss(s, SIGNS, reduction="none")
            losses.sum().backward()
            assert [loss for loss, _ in found] == pytest.approx(losses.tolist(), **NEAR)
            assert [slope for _, slope in found] == pytest.approx(s.grad.tolist(), **NEAR)


def test_paths_and_their_gradients_are_those_of_autograd(answers):
    for (settings, X, y), found in zip(path_cases(), answers["path"], strict=False):
        net, head = linear_net(settings["start"]), head_of(settings["head"], settings["tie"])
        losses = descent_by_torch(net, head, X, y, settings, STEPS)
        assert found["losses"] == pytest.approx(losses[: len(found["losses"])], **NEAR), settings
        assert found["ended"] == (None if len(found["losses"]) > STEPS else "still")
        last = found["states"][-1]
        assert [*last["weight"], last["bias"]] == pytest.approx([*net.weight[0].tolist(), net.bias.item()], **NEAR)
        assert found["errors"][-1] == int((head.decide(net(X)) != y).sum())
        for state, move in zip(found["states"], found["moves"], strict=False):
            net, gradient = linear_net(state), move["gradient"]
            loss = head.loss(net(X[move["batch"]]), y[move["batch"]])
            weight, bias = torch.autograd.grad(loss, (net.weight, net.bias))
            own = [loss.item(), *weight[0].tolist(), bias.item()]
            assert [gradient["loss"], *gradient["weight"], gradient["bias"]] == pytest.approx(own, **NEAR)


def test_stochastic_steps_on_the_criterion_are_the_rule_and_those_of_descend(answers):
    found = answers["path"][len(path_cases()) :]
    moved = 0
    for (settings, X, y), path in zip(rule_cases(), found, strict=False):
        net, again = linear_net(settings["start"]), linear_net(settings["start"])
        options = {name: settings[name] for name in ("tie", "lr", "order", "seed")}
        result = tp.RuleTrainer(max_epochs=RULE_EPOCHS, **options).fit(net, X, y)
        last = path["states"][-1]["weight"], path["states"][-1]["bias"]
        assert last == (net.weight[0].tolist(), net.bias.item()), settings
        moves = [(move["batch"][0], move["gradient"]) for move in path["moves"]]
        made = [i for i, gradient in moves if any((*gradient["weight"], gradient["bias"]))]
        assert made == result.log.sample.tolist()
        moved += len(made)
        if settings["order"] == "given":
            for _ in range(RULE_EPOCHS):
                tp.descend(again, tp.PerceptronHead(tie=settings["tie"]), X, y, settings["lr"])
            assert last == (again.weight[0].tolist(), again.bias.item())
    assert moved > 100


def test_a_path_says_how_it_ended(answers):
    diverged, still, limit = answers["path"][-3:]
    assert diverged["ended"] == "diverged"
    assert all(map(math.isfinite, diverged["losses"]))
    assert diverged["losses"][-1] > 1e6
    assert (still["ended"], len(still["states"])) == ("still", 2)
    assert (limit["ended"], len(limit["states"])) == ("limit", 10001)


def numbers(net):
    """Parameters of a net of ours, or the same out of the page, as one list."""
    if isinstance(net, nn.Module):
        return torch.cat([parameter.detach().flatten() for parameter in net.parameters()]).tolist()
    return [*chain(*net["hidden"]["weight"]), *net["hidden"]["bias"], *net["weight"], net["bias"]]


def test_two_layers_start_as_the_seeded_mlp_and_descend_as_by_autograd(answers):
    for (settings, X, y), found in zip(net_cases(), answers["run"], strict=False):
        width, activation = (settings["hidden"],), settings["activation"]
        net = tp.MLP(2, width, activation=activation, init="uniform", seed=settings["seed"], dtype=torch.float64)
        assert numbers(found["net"]) == numbers(net)
        head = head_of(settings["head"], settings["tie"])
        head.loss(net(X), y).backward()
        gradient = torch.cat([parameter.grad.flatten() for parameter in net.parameters()]).tolist()
        assert numbers(found["first"]) == pytest.approx(gradient, **NEAR)
        losses = descent_by_torch(net, head, X, y, settings, STEPS)
        assert found["losses"] == pytest.approx(losses, **NEAR), settings
        assert numbers(found["last"]) == pytest.approx(numbers(net), **NEAR)
        assert found["errors"][-1] == int((head.decide(net(X)) != y).sum())


def test_the_named_starts_do_to_xor_what_their_names_say(answers):
    (found,) = answers["starts"]
    assert {standing for _, standing, _ in found} == {"solved", "plateau", "dead"}
    for said, standing, errors in found:
        assert standing == said
        assert (errors == 0) == (standing == "solved")


def test_the_limit_of_the_learning_rate_is_that_of_theory(answers):
    X = samples(1)[0]
    for (name, size), found in zip(LIMITS, answers["limit"], strict=True):
        limit = tp.theory.step_limit(name, X, batch_size=size)
        assert found is None if math.isinf(limit) else found == pytest.approx(limit, rel=1e-9)


def test_the_lowest_point_of_lms_is_the_closed_form(answers):
    X, y = samples(1)
    free, fixed, line = answers["optimum"]
    net = tp.Perceptron(2, dtype=torch.float64)
    tp.minimise(net, tp.LMSHead(), X, y)
    assert [*free["weight"], free["bias"]] == pytest.approx([*net.weight[0].tolist(), net.bias.item()], rel=1e-9)
    rest = torch.linalg.lstsq(X, y.double()[:, None] - 0.5).solution[:, 0].tolist()
    assert (fixed["weight"], fixed["bias"]) == (pytest.approx(rest, rel=1e-9), 0.5)
    assert line is None  # points on a line leave the weights open


def test_the_surface_and_its_contours(answers):
    X, y = samples(1)
    for name, found in zip(HEADS, answers["surface"], strict=True):
        surface, head = found["surface"], HEADS[name]()
        assert (surface["first"][::16], surface["second"][::16]) == ([-2, 2], [-1, 3])
        for row, column in ((0, 0), (3, 11), (16, 16)):
            net = linear_net({"weight": [surface["first"][column], surface["second"][row]], "bias": 0.25})
            assert surface["values"][row][column] == pytest.approx(head.loss(net(X), y).item(), **NEAR)
        assert surface["low"] == min(map(min, surface["values"]))
        ends = [point for segment in found["segments"] for point in segment]
        assert len(ends) > 8
        losses = [head.loss(linear_net({"weight": w, "bias": 0.25})(X), y).item() for w in ends]
        assert max(abs(loss - 1) for loss in losses) < 0.05  # the level, but for interpolation within a cell
