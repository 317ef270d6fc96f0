"""Note E: the bias step R², and regression by descent
===================================================

The rule with the bias step R², regression by descent, starts, stops and scaling, the sigmoid.
"""

from __future__ import annotations

import math
import warnings

import torch
from _findings import (
    DOUBLE,
    OPEN,
    WRONG,
    Finding,
    folded,
    gate,
    judged,
    learn,
    least_squares,
    number,
    numbers,
    show,
    wrong,
    yes,
)  # fmt: skip
from torch import Tensor

import torchperc as tp

X, Y = gate("AND")
ROWS = tp.functional.homogeneous(X)  # (x, 1), as the note has it
AGES_HEIGHTS = torch.tensor(
    [[20, 178], [25, 165], [31, 182], [38, 170], [44, 160], [52, 175], [60, 168], [67, 172]], dtype=DOUBLE
)  # the note's example; it gives no figures, so these are made up: years and cm
WEIGHTS = torch.tensor([70, 59, 79, 66, 61, 76, 70, 77], dtype=DOUBLE)  # kg
HEIGHTS = torch.tensor([[150.0, 20.0], [160.0, 30.0], [190.0, 70.0]], dtype=DOUBLE)  # height and age


def loss_of(weights: Tensor, rows: Tensor = ROWS, y: Tensor = Y, targets: str = "-1/+1") -> Tensor:
    """1/(2M)·Σ (y − w·x)²."""
    return tp.functional.lms_loss(rows @ weights, y, targets=targets)


def gradient_of(weights: Tensor, rows: Tensor = ROWS, y: Tensor = Y) -> Tensor:
    point = weights.detach().requires_grad_()
    return torch.autograd.grad(loss_of(point, rows, y), point)[0]


def pull(weights: Tensor, rows: Tensor = ROWS, y: Tensor = Y) -> Tensor:
    """(1/M)·Σ δ·x with δ = y − w·x."""
    return ((y - rows @ weights)[:, None] * rows).mean(0)


def two_relus(hidden_bias: list[float], last_bias: float) -> tp.MLP:
    """relu(x₁ + x₂ + a₁) − 2·relu(x₁ + x₂ + a₂) + b."""
    net = tp.MLP(2, hidden=(2,), activation="relu", dtype=DOUBLE)
    values = ([[1, 1], [1, 1]], hidden_bias, [[1, -2]], [last_bias])
    net.load_state_dict(
        {name: torch.tensor(value, dtype=DOUBLE) for name, value in zip(net.state_dict(), values, strict=True)}
    )
    return net


# --- the perceptron -----------------------------------------------------------------------------------------------


def strict_rule() -> Finding:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        stuck = tp.dialects.NOTE_E.trainer().fit(tp.Perceptron(2, dtype=DOUBLE), X, Y)
    warning = str(caught[0].message) if caught else ""
    mended = learn(X, Y, bias_step="radius")
    return Finding(
        "an update where y·s < 0, from zero weights",
        "until a pass makes no update, the flag for that having no first value; then all samples count as right.",
        f"Every score is 0, so the first pass makes {stuck.mistakes} updates and leaves w = "
        f"{numbers(folded(stuck.log.last()))}, {wrong(stuck.predict(X), Y)} of 4 wrong. torchperc does not call it "
        f"separated ({stuck.verdict.name}) and warns: “{warning}” With y·s ≤ 0 and the step R² on b: "
        f"w = {numbers(folded(mended.log.last()))} after {mended.mistakes} mistakes, pass {mended.epochs} being clean.",
        judged(stuck.mistakes > 0),
        {
            "updates": stuck.mistakes,
            "verdict": stuck.verdict.name,
            "warning": warning,
            "errors": wrong(stuck.predict(X), Y),
            "mended": (folded(mended.log.last()), mended.mistakes, mended.epochs),
        },
    )


def right_at_zero() -> Finding:
    zero = torch.zeros(4, dtype=DOUBLE)
    by_product = int((Y * zero >= 0).sum())
    by_sign = len(Y) - wrong(tp.functional.decide(zero), Y)
    return Finding(
        "right where y·s ≥ 0",
        "while class 2 needs s < 0 and sgn(0) = +1.",
        f"At zero weights {by_product} of 4 rows of AND are right by the product and {by_sign} by sgn. A sample with "
        "y = −1 and s = 0 is both. Right: y·s > 0.",
        judged(by_product == by_sign),
        {"by product": by_product, "by sign": by_sign},
    )


def bias_step() -> Finding:
    x = X * torch.tensor([3.0, 4.0], dtype=DOUBLE)  # R = 5
    radius, unit = (learn(x, Y, bias_step=step, max_epochs=100) for step in ("radius", "unit"))
    lifted = learn(tp.functional.homogeneous(x, value=5.0), Y, bias=False, max_epochs=100)
    same = radius.log.equals(lifted.log)
    net, trainer = tp.Perceptron(2, dtype=DOUBLE), tp.RuleTrainer(bias_step="radius")
    try:
        trainer.partial_fit(net, x[:1], Y[:1])
        refusal = ""
    except ValueError as error:
        refusal = str(error)
    return Finding(
        "the bias step α·y·R²",
        "R is the largest ‖x‖ of all samples, yet new ones may come at any time; homogeneous coordinates have a 1.",
        f"AND of inputs 0/3 and 0/4: {radius.mistakes} mistakes with R² = 25, {unit.mistakes} with 1, so the two are "
        f"not the same algorithm. R² is a constant feature R instead of 1, with the same log: {yes(same)}. Online, R "
        f"is not known: “{refusal}”.",
        OPEN if same and refusal else WRONG,
        {"radius": radius.mistakes, "unit": unit.mistakes, "same as a feature R": same, "refusal": refusal},
    )


def online_learning() -> Finding:
    net, trainer = tp.Perceptron(2, dtype=DOUBLE), tp.RuleTrainer()
    made = sum(trainer.partial_fit(net, X[i % 4][None], Y[i % 4][None]).mistakes for i in range(36))
    weights = folded(net)
    return Finding(
        "learning online",
        "at any time new samples can update the weights.",
        f"AND's rows as they come, one by one for 9 rounds: {made} mistakes, w = {numbers(weights)}, as in passes.",
        judged(weights == folded(learn(X, Y).log.last())),
        {"mistakes": made, "weights": weights},
    )


def homogeneous_coordinates() -> Finding:
    model = learn(X, Y).log.last()
    scores = ROWS @ tp.functional.fold_bias(model.weight, model.bias)[0]
    same = torch.equal(scores, model.scores(X))
    return Finding(
        "homogeneous coordinates",
        "w·x + b is (w, b)·(x, 1), D + 1 parameters.",
        f"The scores of AND are {numbers(scores)} either way: {yes(same)}.",
        judged(same and ROWS.shape[1] == 3),
        {"scores": scores.tolist(), "same": same},
    )


def xor_by_layers() -> Finding:
    x, y = gate("XOR")
    net = two_relus(hidden_bias=[0, -1], last_bias=-0.5)
    proof, errors = tp.theory.separability(x, y), wrong(net.predict(x), y)
    return Finding(
        "XOR by one layer and by two",
        "impossible and possible.",
        f"One layer: {proof.kind}, proof checked: {yes(proof.verify())}. Two: relu(x₁ + x₂) − 2·relu(x₁ + x₂ − 1) − ½ "
        f"has {errors} of 4 wrong.",
        judged(proof.separable is False and errors == 0),
        {"kind": proof.kind, "errors": errors},
    )


# --- where to start -----------------------------------------------------------------------------------------------


def start_from_two_samples() -> Finding:
    x, y = torch.tensor([[160.0], [180.0]], dtype=DOUBLE), torch.tensor([60.0, 75.0], dtype=DOUBLE)
    weight, bias = tp.functional.two_sample_start(x, y, targets="real")
    slope = float((y[1] - y[0]) / (x[1, 0] - x[0, 0]))
    printed, right = slope * x[:, 0] - slope * x[0, 0], tp.functional.scores(x, weight, bias)
    return Finding(
        "a start through two samples",
        "weight from height: w = (y₂ − y₁)/(x₂ − x₁) and b = −w·x₁.",
        f"160 and 180 cm with 60 and 75 kg: that line has the values {numbers(printed)} there, 0 at the first sample "
        f"whatever y₁ is. Right: b = y₁ − w·x₁ = {number(bias[0])}, values {numbers(right)}.",
        judged(printed.tolist() == y.tolist()),
        {"printed": printed.tolist(), "right": right.tolist(), "bias": float(bias[0])},
    )


def start_of_the_algorithm() -> Finding:
    x, y = AGES_HEIGHTS[:2], WEIGHTS[:2]
    rise = y[1:] - y[:1]
    printed = tp.functional.scores(x, (rise / (x[1] - x[0]))[None], rise)
    right = tp.functional.scores(x, *tp.functional.two_sample_start(x, y, targets="real"))
    twins = ((Y[1] - Y[0]) / (X[1] - X[0])).tolist()
    return Finding(
        "the start of the batch algorithm",
        "w_d = (y₂ − y₁)/(x_d2 − x_d1) for every feature, b = y₂ − y₁, from the samples 1 and 2.",
        f"Two people of 20 and 25 years, 178 and 165 cm, {numbers(y)} kg: that plane gives them {numbers(printed)} kg, "
        "as the rise is counted once a feature, and b is another than before, wrong again. Right: w = (y₂ − y₁)·"
        f"(x₂ − x₁)/‖x₂ − x₁‖², b = y₁ − w·x₁, values {numbers(right)}. Where a feature is the same in both samples, "
        f"as in rows 1 and 2 of AND, w = {numbers(twins)}: 0/0.",
        judged(torch.allclose(printed, y)),
        {"printed": printed.tolist(), "right": right.tolist(), "samples 1 and 2": twins},
    )


# --- weight from age and height -----------------------------------------------------------------------------------


def plane_for_weight() -> Finding:
    net = tp.Perceptron(2, dtype=DOUBLE)
    tp.minimise(net, tp.RegressionHead(), AGES_HEIGHTS, WEIGHTS)
    plane = [*net.weight[0].tolist(), float(net.bias[0].detach())]
    best = least_squares(AGES_HEIGHTS, WEIGHTS)
    same = torch.allclose(torch.tensor(plane, dtype=DOUBLE), best, rtol=1e-9)
    return Finding(
        "weight from age and height",
        "a plane with D + 1 parameters; where the loss is least, its gradient is zero.",
        f"Eight people: weight = {number(plane[0])}·age + {number(plane[1])}·height − {number(-plane[2])}, the least "
        f"squares: {yes(same)}; an error of {number(rmse(net(AGES_HEIGHTS)), 3)} kg on average (RMSE).",
        judged(same),
        {"plane": plane, "same": same, "rmse": rmse(net(AGES_HEIGHTS))},
    )


def batch_descent_for_weight() -> Finding:
    """The algorithm of the box: start, steps along the mean gradient, the stop; on features and weights from 0 to 1."""
    of_x, of_y, x, y = scaled_people()
    weight, bias = tp.functional.two_sample_start(x, y, targets="real")
    options = {"lr": tp.theory.auto_lr("regression", x), "tol": 1e-10, "max_iter": 10_000}
    run = tp.sklearn.LMSRegressor(warm_start=True, **options)
    run.coef_, run.intercept_ = weight[0].numpy(), float(bias)
    run.fit(x, y)
    raw = tp.data.unscaled(run.net_, of_x, of_y)
    plane = [*raw.weight[0].tolist(), float(raw.bias[0].detach())]
    best = tp.functional.scores(AGES_HEIGHTS, *unfolded(least_squares(AGES_HEIGHTS, WEIGHTS)))
    apart = float((raw(AGES_HEIGHTS) - best).abs().max().detach())
    forward = float((of_y.inverse(run.net_(x).detach()) - raw(AGES_HEIGHTS)).abs().max().detach())
    return Finding(
        "the batch algorithm on the example",
        "start from two samples, step along the mean gradient, halt when the loss changes by less than ε.",
        f"Ages, heights and weights scaled to 0 … 1, η = 1/λmax, ε = 10⁻¹⁰: {run.verdict_.name} after {run.n_iter_} "
        f"steps. In years, cm and kg: weight = {number(plane[0])}·age + {number(plane[1])}·height − "
        f"{number(-plane[2])}, predictions within {apart:.0e} kg of the least squares. Folding the scalings into the "
        f"weights or scaling back the predictions is the same to {forward:.0e} kg.",
        judged(run.verdict_.name == "CONVERGED" and apart < 0.01),
        {"steps": run.n_iter_, "verdict": run.verdict_.name, "plane": plane, "apart": apart, "ways apart": forward},
    )


def single_samples_for_weight() -> Finding:
    """Stochastic descent: a sample drawn at random, a step with it."""
    _, _, x, y = scaled_people()
    least = float(loss_of(least_squares(x, y), tp.functional.homogeneous(x), y, "real"))
    order = torch.randint(8, (4000,), generator=torch.Generator().manual_seed(0))
    excess = {}
    for rate in (0.5, 0.05):
        net, losses = tp.Perceptron(2, dtype=DOUBLE), []
        for part in order.split(40):
            tp.descend(net, tp.RegressionHead(), x, y, lr=rate, order=part)
            losses.append(float(tp.RegressionHead().loss(net(x), y).detach()))
        excess[rate] = sum(losses[50:]) / 50 / least - 1
    return Finding(
        "a random sample at a time on the example",
        "choose a single training sample and update with it.",
        f"4000 draws from the eight people, η = 0.5: over the second half the loss is on average "
        f"{100 * excess[0.5]:.0f} % above the least, with η = 0.05 {100 * excess[0.05]:.1f} %. It comes near and goes "
        "on wandering, the less the smaller η is.",
        judged(excess[0.05] < 0.1),
        {"excess": excess},
    )


def limit_of_the_rate_for_weight() -> Finding:
    _, _, x, y = scaled_people()
    limit, raw = (tp.theory.step_limit("regression", samples) for samples in (x, AGES_HEIGHTS))
    least = float(loss_of(least_squares(x, y), tp.functional.homogeneous(x), y, "real"))
    losses = {}
    for share in (0.99, 1.01):
        weights, rows = torch.zeros(3, dtype=DOUBLE), tp.functional.homogeneous(x)
        for _ in range(3000):
            weights = weights + share * limit * pull(weights, rows, y)
        losses[share] = float(loss_of(weights, rows, y, "real"))
    warning = tp.theory.rate_warning(0.001, "regression", AGES_HEIGHTS)
    return Finding(
        "the largest rate on the example",
        "η is very small, typically 0.001; no limit is given.",
        f"2/λmax = {limit:.4f} for scaled people: 3000 steps at 0.99 of it end at {losses[0.99] / least:.4f} times the "
        f"least loss, at 1.01 of it at {losses[1.01]:.0e}. For years and cm it is {raw:.1e}, and of 0.001 torchperc "
        f"says: “{warning}”.",
        OPEN,
        {"limit": limit, "least": least, "losses": losses, "limit of raw features": raw, "warning": warning},
    )


def scaled_people() -> tuple[tp.data.Scaler, tp.data.Scaler, Tensor, Tensor]:
    """Scalers of samples and weights, and both from 0 to 1."""
    of_x, of_y = tp.data.Scaler.fit("minmax", AGES_HEIGHTS), tp.data.Scaler.fit("minmax", WEIGHTS)
    return of_x, of_y, of_x.transform(AGES_HEIGHTS), of_y.transform(WEIGHTS)


def rmse(predicted: Tensor) -> float:
    return float((predicted.detach() - WEIGHTS).square().mean().sqrt())


def unfolded(weights: Tensor) -> tuple[Tensor, Tensor]:
    return tp.functional.unfold_bias(weights[None])


# --- the gradient -------------------------------------------------------------------------------------------------


def factor_of_the_gradient() -> Finding:
    weights = torch.tensor([0.5, -1.0, 2.0], dtype=DOUBLE, requires_grad=True)
    squares = ((Y - ROWS @ weights) ** 2).mean()
    full = torch.autograd.grad(squares, weights)[0]
    half, printed = gradient_of(weights), -pull(weights).detach()
    ratio = float(full.norm() / printed.norm())
    return Finding(
        "the gradient of the squared error",
        "of (y − w·x)²: −2y·x + 2(w·x)·x, then without the 2, −δ·x. The loss 1/(2M)·Σ is called mean square error.",
        f"By autograd −δ·x is the gradient of ½(y − w·x)²: {yes(torch.allclose(half, printed))}; that of (y − w·x)², "
        f"and of the mean square error, is {ratio:g} times as large. The ½ was left out and its effect kept.",
        judged(torch.allclose(full, printed)),
        {"half": torch.allclose(half, printed), "ratio": ratio},
    )


def sign_of_the_derivative() -> Finding:
    best = least_squares(X, Y)
    slopes = {step: float(gradient_of(best + torch.tensor([0, 0, step], dtype=DOUBLE))[2]) for step in (-1.0, 0.0, 1.0)}
    return Finding(
        "the derivative away from the optimum",
        "zero at the optimum and positive elsewhere.",
        f"AND, b one less than the best, the best, one more: {numbers(round(slope, 9) for slope in slopes.values())}. "
        "The loss is larger on both sides; its derivative is negative on one.",
        judged(slopes[-1.0] > 0),
        {"slopes": slopes},
    )


def gradient_at_the_optimum() -> Finding:
    best = least_squares(X, Y)
    each = torch.stack([gradient_of(best, ROWS[i : i + 1], Y[i : i + 1]) for i in range(4)])
    largest, mean = float(each.abs().max()), float(each.mean(0).abs().max())
    return Finding(
        "the gradient at the optimum",
        "zero for a training sample X_m.",
        f"AND: every sample has one, with entries up to {largest:.3g}; their mean is 0 ({mean:.0e}).",
        judged(largest < 1e-9),
        {"largest": largest, "mean": mean},
    )


def sign_of_the_sample_update() -> Finding:
    weights, rate, row, label = torch.zeros(3, dtype=DOUBLE), 0.1, ROWS[3:], Y[3:]
    change = -pull(weights, row, label)  # −δ·x
    after = weights - rate * change
    losses = [float(loss_of(w, row, label)) for w in (weights, after)]
    return Finding(
        "the update with one sample",
        "Δw = −δ·x and w ← w − η·Δw: the sign is turned twice.",
        f"That is w ← w + η·δ·x, which is descent: the loss of AND's last row goes from {losses[0]:g} to "
        f"{losses[1]:.4g}.",
        judged(losses[1] < losses[0] and torch.equal(after, rate * pull(weights, row, label))),
        {"losses": losses},
    )


def sign_of_the_batch_update() -> Finding:
    ends = {}
    for name, sign in (("printed", -1), ("right", 1)):
        weights = torch.zeros(3, dtype=DOUBLE)
        for _ in range(10):
            weights = weights + sign * 0.1 * pull(weights)
        ends[name] = float(loss_of(weights))
    start = float(loss_of(torch.zeros(3, dtype=DOUBLE)))
    return Finding(
        "the update with the average of all samples",
        "Δw = (1/M)·Σ Δw_m = (1/M)·Σ δ·x, a sign less than for one sample, and w ← w − η·Δw as before.",
        f"That climbs: ten steps with η = 0.1 on AND take the loss from {start:g} to {ends['printed']:.4g}. Right: "
        f"w ← w + η·(1/M)·Σ δ·x, to {ends['right']:.4g}. A minus is missing, perhaps from the page taken off only; the "
        "algorithm in the box, with the gradient, has it right.",
        judged(ends["printed"] < start),
        {"start": start} | ends,
    )


# --- how long -----------------------------------------------------------------------------------------------------


def sample_updates_converge() -> Finding:
    weights, best, rate, away = torch.zeros(3, dtype=DOUBLE), least_squares(X, Y), 0.1, []
    for _ in range(1000):
        away = []
        for row, label in zip(ROWS, Y, strict=True):
            weights = weights + rate * (label - row @ weights) * row
            away.append(float((weights - best).norm()))
    return Finding(
        "updates with one sample at a time",
        "converge in the end; the rate is a constant.",
        f"AND, η = 0.1, 1000 passes: the weights go round the optimum at distances of {min(away):.4f} to "
        f"{max(away):.4f}, forever. With a constant rate they reach it only if one line fits every sample; else the "
        "rate must fall.",
        judged(min(away) < 1e-6),
        {"nearest": min(away), "furthest": max(away)},
    )


def batch_or_sample() -> Finding:
    x, y = tp.data.noisy_blobs(256, noise=0.1, seed=0)
    order = torch.randperm(256, generator=torch.Generator().manual_seed(0))
    x, y = tp.data.Scaler.fit("standard", x).transform(x)[order], y[order]
    rows, best = tp.functional.homogeneous(x), float(loss_of(least_squares(x, y), tp.functional.homogeneous(x), y))
    excess = {}
    for size in (256, 32, 1):
        weights = torch.zeros(3, dtype=DOUBLE)
        for part in torch.arange(256).split(size):
            weights = weights + 0.01 * pull(weights, rows[part], y[part])
        excess[size] = float(loss_of(weights, rows, y)) - best
    return Finding(
        "all samples, a part, or one at a time",
        "the average of all converges much more efficiently than single samples; parts (“folds”) are better still.",
        f"One pass over 256 noisy blobs, η = 0.01: above the least loss by {excess[256]:.3f} with one step, "
        f"{excess[32]:.3f} with 8 parts of 32, {excess[1]:.3f} with single samples. For the same reading of data it "
        "is the other way round; and such parts are called mini-batches, folds being what is held out in turn.",
        judged(excess[256] < excess[1]),
        {"excess": excess},
    )


def index_of_the_stop() -> Finding:
    losses, i = [float(loss_of(torch.zeros(3, dtype=DOUBLE)))], 0
    possible = i + 1 < len(losses)
    return Finding(
        "the test of the loop",
        "while |L⁽ⁱ⁺¹⁾ − L⁽ⁱ⁾| > ε, from i = 0; below the box, i and i − 1.",
        f"Before the first step L⁽⁰⁾ = {losses[0]:g} is all there is; the test can be made: {yes(possible)}. Later it "
        "looks one step ahead each time. Right: make a step, then compare i with i − 1.",
        judged(possible),
        {"possible": possible},
    )


def small_change_of_the_loss() -> Finding:
    ends, rate = {}, 0.001
    for small in (1e-3, 1e-4):
        weights, losses = torch.zeros(3, dtype=DOUBLE), [0.5]
        for _ in range(10_000):
            weights = weights + rate * pull(weights)
            losses.append(float(loss_of(weights)))
            if abs(losses[-1] - losses[-2]) <= small:
                break
        ends[small] = len(losses) - 1, losses[-1]
    least = float(loss_of(least_squares(X, Y)))
    return Finding(
        "a small change of the loss as the end",
        "smaller than some ε; η is typically 0.001.",
        "A step changes the loss by about η·‖∇L‖², so a small change may mean a small rate. AND, η = 0.001: ε = 0.001 "
        f"stops after {ends[1e-3][0]} step at {ends[1e-3][1]:.4f}, ε = 0.0001 after {ends[1e-4][0]} at "
        f"{ends[1e-4][1]:.4f}; the least is {least:.4g}. ε must be small against η.",
        OPEN,
        {"ends": ends, "least": least},
    )


def typical_rate() -> Finding:
    limit, raw = tp.theory.step_limit("lms", X), tp.theory.step_limit("lms", HEIGHTS)
    least, steps, losses = float(loss_of(least_squares(X, Y))), {}, {}
    for rate in (0.001, limit / 2):
        weights = torch.zeros(3, dtype=DOUBLE)
        for steps[rate] in range(20_000):
            if float((Y - ROWS @ weights).square().mean()) / 2 <= 1.2 * least:
                break
            weights = weights + rate * pull(weights)
    for share in (0.99, 1.01):
        weights = torch.zeros(3, dtype=DOUBLE)
        for _ in range(1000):
            weights = weights + share * limit * pull(weights)
        losses[share] = float(loss_of(weights))
    return Finding(
        "the rate, typically 0.001",
        "no rule is given for it.",
        f"It must be below 2/λmax, {limit:.4f} for AND: at 0.99 of that the loss ends at {losses[0.99]:.4g}, at 1.01 "
        f"at {losses[1.01]:.0e}. 0.001 takes {steps[0.001]} steps to within 20 % of the least loss, half the limit "
        f"{steps[limit / 2]}. For heights in cm and ages in years the limit is {raw:.1e}: there 0.001 diverges.",
        OPEN,
        {"limit": limit, "losses": losses, "steps": list(steps.values()), "limit of raw features": raw},
    )


# --- scaling ------------------------------------------------------------------------------------------------------


def features_of_like_range() -> Finding:
    scaled = tp.data.Scaler.fit("minmax", HEIGHTS).transform(HEIGHTS)
    limits = [tp.theory.step_limit("lms", x) for x in (HEIGHTS, scaled)]
    spreads = []
    for x in (HEIGHTS, scaled):
        values = torch.linalg.eigvalsh(tp.functional.homogeneous(x).T @ tp.functional.homogeneous(x))
        spreads.append(float(values[-1] / values[0]))
    return Finding(
        "features of like range",
        "large values dominate the gradient; (x − min)/(max − min) helps.",
        f"Heights and ages: the largest rate goes from {limits[0]:.1e} to {limits[1]:.2f}, the spread of curvatures, "
        f"which the steps grow with, from {spreads[0]:.0e} to {spreads[1]:.0e}.",
        judged(limits[1] > limits[0] and spreads[1] < spreads[0]),
        {"limits": limits, "spreads": spreads},
    )


def way_back() -> Finding:
    scaler, standard = tp.data.Scaler.fit("minmax", HEIGHTS), tp.data.Scaler.fit("standard", HEIGHTS)
    scaled = scaler.transform(HEIGHTS)
    printed = float((standard.inverse(scaled) - HEIGHTS).abs().max())
    right = float((scaler.inverse(scaled) - HEIGHTS).abs().max())
    return Finding(
        "the way back from scaled features",
        "by μ and σ, after scaling by min and max.",
        f"That misses heights and ages by up to {printed:.1f}; by min and max − min, {right:g}. (μ and σ may belong "
        "to a picture that is missing.) Right: back by what was taken, from the training samples alone; and a "
        "constant feature, 0/0 by the formula, needs a rule.",
        judged(printed < 1e-9),
        {"printed": printed, "right": right},
    )


# --- convexity, sigmoid -------------------------------------------------------------------------------------------


def convexity() -> Finding:
    lowest = math.inf
    for seed in range(20):
        x = torch.randn(6, 3, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)
        y = torch.tensor([1, -1] * 3)
        second = torch.autograd.functional.hessian(lambda w, x=x, y=y: loss_of(w, x, y), torch.zeros(3, dtype=DOUBLE))
        lowest = min(lowest, float(torch.linalg.eigvalsh(second).min()))
    score = torch.tensor(-3.0, dtype=DOUBLE)
    bent = float(torch.autograd.functional.hessian(lambda s: (1 - s.sigmoid()) ** 2 / 2, score))
    return Finding(
        "convexity",
        "assumed by gradient descent, and a matter of the training data.",
        "For a linear model the squared loss is convex whatever the data: the lowest curvature of 20 random sets is "
        f"{lowest:.1e}, and the Hessian (1/M)·Σ x·xᵀ has none below 0. It is a matter of model and loss: behind a "
        f"sigmoid the same loss has the curvature {number(bent, 2)} at s = −3. Descent needs no convexity; its "
        "promise does.",
        judged(lowest < -1e-12),
        {"lowest": lowest, "behind a sigmoid": bent},
    )


def way_out_of_a_minimum() -> Finding:
    x, y = gate("XOR")
    net = two_relus(hidden_bias=[-3, -3], last_bias=0)  # both are 0 on every sample
    hidden, descent = net.layers[0].weight.detach().clone(), torch.optim.SGD(net.parameters(), lr=0.5)
    for i in torch.randint(4, (300,), generator=torch.Generator().manual_seed(0)).tolist():
        descent.zero_grad()
        tp.LogisticHead().loss(net(x[i : i + 1]), y[i : i + 1]).backward()
        descent.step()
    moved, errors = not torch.equal(hidden, net.layers[0].weight), wrong(net.predict(x), y)
    return Finding(
        "stuck in a poor place",
        "avoided by stochastic descent.",
        "Not always: XOR by two relu units that are 0 on every sample: after 300 random single samples their weights "
        f"have moved: {yes(moved)}; {errors} of 4 wrong. Where every sample's gradient is 0, so is that of any choice "
        "of them.",
        judged(moved and errors == 0),
        {"moved": moved, "errors": errors},
    )


def derivative_of_the_sigmoid() -> Finding:
    z = torch.linspace(-6, 6, 25, dtype=DOUBLE, requires_grad=True)
    f = z.sigmoid()
    slope = torch.autograd.grad(f.sum(), z)[0]
    apart = float((slope - f * (1 - f)).detach().abs().max())
    return Finding(
        "the derivative of the sigmoid",
        "f·(1 − f).",
        f"By autograd at 25 points from −6 to 6 the largest difference is {apart:g}.",
        judged(apart < 1e-12),
        {"apart": apart},
    )


def decision_without_a_derivative() -> Finding:
    check = tp.crosscheck(X, Y, epochs=20)
    saturated = torch.tensor([-10.0], dtype=DOUBLE, requires_grad=True)
    squared = torch.autograd.grad(((1 - saturated.sigmoid()) ** 2 / 2).sum(), saturated)[0]
    logistic = torch.autograd.grad(tp.functional.logistic_loss(saturated, torch.ones(1)), saturated)[0]
    return Finding(
        "descent needs a differentiable decision",
        "so sgn is replaced by the sigmoid; no loss is given for it.",
        "The loss needs a derivative, the decision does not: on max(0, −y·s) autograd makes the "
        f"{len(check.gradient)} mistakes of the rule, to the bit: {yes(check.exact)}, and decides by sgn. And f > ½ "
        "is a step again. The loss is left open: for y = +1 at s = −10 the squared one has the slope "
        f"{number(squared, 1)}, the logistic one {number(logistic, 3)}.",
        judged(not check.exact),
        {"exact": check.exact, "mistakes": len(check.gradient), "squared": float(squared), "logistic": float(logistic)},
    )


def decision_at_one_half() -> Finding:
    zero = torch.zeros(1)
    labels = int(tp.PerceptronHead().decide(zero)), 2 * int(zero.sigmoid() > 0.5) - 1
    return Finding(
        "the decision at f = ½, that is s = 0",
        "f > 0.5 is positive, else negative; before, sgn(0) = +1 and s ≥ 0 is class 1.",
        f"s = 0 is decided {number(labels[0])} by the perceptron and {number(labels[1])} by the sigmoid of the same "
        "note; tp.LogisticHead decides s ≥ 0, too.",
        judged(labels[0] == labels[1]),
        {"labels": labels},
    )


CHECKS = (
    strict_rule, right_at_zero, bias_step, online_learning, xor_by_layers, homogeneous_coordinates,
    start_from_two_samples, start_of_the_algorithm, plane_for_weight, batch_descent_for_weight,
    single_samples_for_weight, limit_of_the_rate_for_weight, factor_of_the_gradient, sign_of_the_derivative,
    gradient_at_the_optimum, sign_of_the_sample_update, sign_of_the_batch_update, sample_updates_converge,
    batch_or_sample, index_of_the_stop, small_change_of_the_loss, typical_rate, features_of_like_range, way_back,
    convexity, way_out_of_a_minimum, derivative_of_the_sigmoid, decision_without_a_derivative, decision_at_one_half,
)  # fmt: skip


def main() -> dict[str, Finding]:
    return show("Note E: the bias step R², regression by descent, the sigmoid", CHECKS)


if __name__ == "__main__":
    main()
