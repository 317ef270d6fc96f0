"""Note A: AND by the rule, and what its loss is
=============================================

AND by the rule, the bound on its mistakes, the perceptron criterion and its kink, squared loss.
"""

from __future__ import annotations

import itertools

import torch
from _findings import (
    DOUBLE,
    OPEN,
    Finding,
    folded,
    gate,
    judged,
    learn,
    least_squares,
    line,
    numbers,
    show,
    states,
    wrong,
    yes,
)  # fmt: skip

import torchperc as tp

X, Y = gate("AND")
ROWS = tp.functional.homogeneous(X, "first")  # x₀ = 1, as the note has it


def threshold_as_a_weight() -> Finding:
    theta, weight = 4.0, torch.tensor([[3.0, 2.0]], dtype=DOUBLE)
    by_threshold = tp.functional.decide(tp.functional.scores(X, weight), theta)
    by_weight = tp.functional.decide(tp.functional.scores(ROWS, torch.tensor([[-theta, 3.0, 2.0]], dtype=DOUBLE)))
    same = bool((by_threshold == by_weight).all())
    return Finding(
        "the threshold as a weight",
        "w·x ≥ θ is w₀ + w·x ≥ 0 with w₀ = −θ and x₀ = 1; θ is also called the bias.",
        f"θ = 4 and w₀ = −4 decide all rows of AND alike: {yes(same)}. The bias is −θ, not θ.",
        judged(same),
        {"same": same},
    )


def labels_of_the_table() -> Finding:
    weights, table, passes = torch.zeros(3, dtype=DOUBLE), (Y + 1) // 2, []
    for _ in range(3):
        mistakes = 0
        for row, label in zip(ROWS, table, strict=True):
            if label * (row @ weights) <= 0:
                weights, mistakes = weights + label * row, mistakes + 1
        passes.append(mistakes)
    errors = wrong(tp.functional.decide(ROWS @ weights), Y)
    try:
        learn(X, table)
        refusal = ""
    except ValueError as error:
        refusal = str(error)
    return Finding(
        "labels 0 and 1 in the table of AND",
        "labels are −1/+1, but the table has 0/1 and goes through the same rule.",
        f"With y = 0 the test y·s ≤ 0 always holds and the update adds nothing: after 3 passes w = {numbers(weights)}, "
        f"{passes} updates a pass, never 0; {errors} of 4 rows wrong. Right: −1 for 0. torchperc refuses: “{refusal}”.",
        judged(passes[-1] == 0),
        {"weights": tuple(weights.tolist()), "updates": passes, "errors": errors, "refusal": refusal},
    )


def goal_of_the_example() -> Finding:
    zero = torch.zeros(4, dtype=DOUBLE)
    met, errors = bool(zero[3] >= 0), wrong(tp.functional.decide(zero), Y)
    return Finding(
        "the goal set for AND",
        "weights with w₀ + w₁x₁ + w₂x₂ ≥ 0 where both inputs are 1; nothing is asked of the other rows.",
        f"Zero weights meet that already ({yes(met)}), with {errors} rows wrong. Right: > 0 there and < 0 on the "
        "other three.",
        judged(errors == 0),
        {"met by zero": met, "errors of zero": errors},
    )


def first_epoch() -> Finding:
    printed_scores, printed = (0, 0, 1, 2), ((0, 0, 0), (0, 0, 1), (0, 1, 1), (0, 1, 1))
    log = learn(X, Y).log
    path = states(log)
    after = [path[int((log.step <= step).sum())] for step in range(4)]
    before = [path[0], *after[:3]]
    right = tuple(folded(state) for state in after)
    scores = tuple(float(state.scores(X)[row]) for row, state in enumerate(before))
    mistakes = [mistake.sample + 1 for mistake in log if mistake.step < 4]
    own = [float(ROWS[row] @ torch.tensor(printed[row - 1], dtype=DOUBLE)) for row in (2, 3)]
    return Finding(
        "the first epoch of AND, row by row",
        f"scores {numbers(printed_scores)}, weights after each row {', '.join(map(numbers, printed))}; updates at rows "
        "1, 2 and 3; y·s of row 4 is 1.",
        f"Scores {numbers(scores)}, weights {', '.join(map(numbers, right))}; updates at rows {mistakes}. The trace "
        "keeps y = 0 in the test, adds +x for it and leaves out x₀; and by its own weights the score of row 3 is "
        f"{own[0]:g}, y·s of row 4 is {own[1]:g}. Only the weights at the end of the epoch are right, by chance.",
        judged(printed == right and printed_scores == scores),
        {"weights": right, "scores": scores, "mistakes": mistakes, "own scores of rows 3 and 4": own},
    )


def and_by_rule() -> Finding:
    result = learn(X, Y)
    weights = folded(result.log.last())
    return Finding(
        "AND to the end",
        "w = (−4, 3, 2).",
        f"w = {numbers(weights)} after {result.mistakes} mistakes; pass {result.epochs} is clean. "
        f"Mistakes a pass: {result.log.mistakes_by_epoch().tolist()}.",
        judged(weights == (-4, 3, 2)),
        {"weights": weights, "mistakes": result.mistakes, "passes": result.epochs, "verdict": result.verdict.name},
    )


def score_of_zero() -> Finding:
    result = learn(X, Y, tie="sign")
    weights, scores = folded(result.log.last()), result.scores(X).tolist()
    return Finding(
        "a score of 0",
        "decided +1 by the rule (≥ θ), but a mistake whatever the label by the algorithm (y·s ≤ 0).",
        f"If a mistake is a wrong decision, AND ends at w = {numbers(weights)} after {result.mistakes} mistakes, pass "
        f"{result.epochs} being clean, with row 4 on the line itself: scores {numbers(scores)}.",
        OPEN,
        {"weights": weights, "mistakes": result.mistakes, "passes": result.epochs, "scores": scores},
    )


def what_the_weights_depend_on() -> Finding:
    rates = {rate: learn(X, Y, lr=rate) for rate in (0.25, 0.5, 2.0, 4.0, 0.1)}
    scaled = {rate: tuple(w / rate for w in folded(run.log.last())) for rate, run in rates.items()}
    exact = all(scaled[rate] == (-4, 3, 2) for rate in (0.25, 0.5, 2.0, 4.0))
    exact &= all(run.mistakes == 18 for run in rates.values())
    added = tp.crosscheck(X, Y, lr=0.1, epochs=100).gradient
    orders = [learn(X, Y, order=order) for order in itertools.permutations(range(4))]
    ends = sorted({folded(run.log.last()) for run in orders})
    counts = [run.mistakes for run in orders]
    return Finding(
        "what the final weights depend on",
        "the start and the learning rate.",
        f"From zero the rate only scales them: w/η and the 18 mistakes are the same for η = 0.1, ¼, ½, 2, 4: "
        f"{yes(exact)}. SGD that adds up steps of η = 0.1 in floats makes {len(added)} mistakes: scores that should be "
        f"0 are rounded off it. The order of rows, not named, matters: 24 orders, {min(counts)} to {max(counts)} "
        f"mistakes, ends {' and '.join(map(numbers, ends))}.",
        OPEN,
        {
            "rate scales": exact,
            "mistakes at 0.1": len(added),
            "ends": ends,
            "mistakes": (min(counts), max(counts)),
        },
    )


def xor() -> Finding:
    data = gate("XOR")
    result, certificate = learn(*data), tp.theory.separability(*data)
    alpha = certificate.witness.alpha
    proved = certificate.separable is False and certificate.verify()
    return Finding(
        "XOR",
        "the rule does not work there, as no line separates it.",
        f"{result.verdict.name}: the weights come back after {result.period} pass and {result.mistakes} mistakes. "
        f"Proof (checked: {yes(proved)}): weights {', '.join(map(str, alpha))} on the rows put one point in both "
        "hulls.",
        judged(proved and result.verdict.name == "CYCLING"),
        {"verdict": result.verdict.name, "period": result.period, "alpha": alpha},
    )


def mistake_bound() -> Finding:
    made, best = learn(X, Y), tp.theory.max_margin(X, Y, regularize_bias=True)
    squared = tp.theory.radius(X) ** 2
    printed, right = squared / best.margin, tp.theory.mistake_bound(X, Y)
    w = torch.tensor([[3.0, 2.0]], dtype=DOUBLE), torch.tensor([-4.0], dtype=DOUBLE)
    length = float(tp.functional.fold_bias(*w).square().sum())
    least = float((Y * tp.functional.scores(X, *w)).min())
    tenth = squared * (length / 100) / (least / 10)
    plane = tp.theory.radius(X, bias_step="none") ** 2 / tp.theory.separability(X, Y).margin ** 2
    return Finding(
        "the bound on mistakes",
        "k ≤ R²·‖w‖²/γ, with one γ.",
        f"The best unit vector has γ = 1/√17 and R² = {squared:.4g}: printed {printed:.4g}, below the {made.mistakes} "
        f"mistakes made. It also changes with the length of w: for (−4, 3, 2)/10 it is {tenth:.3g}. Right: R²·‖w‖²/γ², "
        f"here {right:.4g}, and {squared * length / least**2:.4g} for (−4, 3, 2) at any length; with R and γ where the "
        f"update happens, x₀ = 1 included: without it R²/γ² = {plane:.4g}, below {made.mistakes} again.",
        judged(min(printed, tenth) >= made.mistakes),
        {
            "printed": printed, "printed, w/10": tenth, "right": right, "without x0": plane,
            "right for (-4, 3, 2)": squared * length / least**2, "mistakes": made.mistakes, "gamma": best.margin,
        },
    )  # fmt: skip


def bound_from_another_start() -> Finding:
    made, bound = learn(X, Y, start=(100, 0, 0), max_epochs=1000), tp.theory.mistake_bound(X, Y)
    return Finding(
        "the bound and the start",
        "the bound is stated for a run from w₀, the symbol that is also the weight of x₀.",
        f"It holds from zero weights only: from (100, 0, 0) AND takes {made.mistakes} mistakes, above {bound:.4g}.",
        OPEN,
        {"mistakes": made.mistakes, "bound": bound},
    )


def loss_of_a_mistake() -> Finding:
    zero = torch.zeros(4, dtype=DOUBLE)
    loss = float(tp.functional.perceptron_loss(zero, Y, reduction="sum"))
    mistakes, errors = int(tp.functional.mistakes(zero, Y).sum()), wrong(tp.functional.decide(zero), Y)
    return Finding(
        "the loss max(0, −y·s) of mistakes",
        "not zero for misclassified points, which are those with y·s ≤ 0.",
        f"At zero weights the loss is {loss:g} with {mistakes} mistakes by y·s ≤ 0 and {errors} wrong decisions. So "
        "the least loss does not mean separation; the loss is above 0 for y·s < 0 only.",
        judged(loss > 0),
        {"loss": loss, "mistakes": mistakes, "errors": errors},
    )


def gradient_at_the_kink() -> Finding:
    functions = {
        "relu": torch.relu,
        "clamp": lambda z: z.clamp(min=0),
        "maximum": lambda z: torch.maximum(z, torch.zeros_like(z)),
        "torchperc": lambda z: tp.functional.perceptron_loss(-z, torch.ones_like(z)),
    }
    slopes = {}
    for name, function in functions.items():
        z = torch.zeros((), requires_grad=True)
        function(z).backward()
        slopes[name] = float(z.grad)
    weights = torch.zeros(3, dtype=DOUBLE, requires_grad=True)
    torch.relu(-Y * (ROWS @ weights)).sum().backward()
    stuck = not weights.grad.any()
    return Finding(
        "the gradient of the loss",
        "−Σ y·x over the mistakes, for all weights.",
        "At y·s = 0, where every run from zero begins, there is none. max(0, z) at z = 0 has the slope "
        + ", ".join(f"{slope:g} by {name}" for name, slope in slopes.items())
        + f"; by relu zero weights never move: {yes(stuck)}. The rule is the choice 1, that is the subgradient −y·x.",
        OPEN,
        {"slopes": slopes, "relu is stuck at zero": stuck},
    )


def stochastic_descent() -> Finding:
    sample, batch = (tp.crosscheck(X, Y, epochs=50, mode=mode) for mode in ("sample", "batch"))
    ends = [folded(check.rule.last()) for check in (sample, batch)]
    passes = len(batch.rule.epoch_ends)
    return Finding(
        "batch and stochastic descent",
        "descend on the whole set, or on one instance at a time.",
        f"One at a time it is the rule: {len(sample.rule)} mistakes by rule, {len(sample.gradient)} by autograd, w = "
        f"{numbers(ends[0])}, to the bit: {yes(sample.exact)}. The whole set is another algorithm: {passes} steps, "
        f"the last without a mistake, to w = {numbers(ends[1])}.",
        judged(sample.equal and sample.exact and batch.equal),
        {"exact": sample.exact, "mistakes": len(sample.gradient), "ends": ends, "steps of the batch": passes},
    )


def targets_of_the_squared_loss() -> Finding:
    head = tp.LMSHead(targets="0/1")
    scores = tp.functional.homogeneous(X) @ least_squares(X, (Y + 1) / 2)
    errors = {at: wrong(tp.functional.decide(scores, at), Y) for at in (0.0, head.threshold)}
    return Finding(
        "0/1 targets of the squared loss",
        "here y is 0 or 1, and there is no decision but the one at 0.",
        f"Least squares gives AND the scores {numbers(scores)}: decided at 0, {errors[0.0]} rows are wrong, at "
        f"½, the middle of the targets, {errors[0.5]}.",
        judged(errors[0.0] == 0),
        {"scores": scores.tolist(), "errors": errors},
    )


def least_squares_and_errors() -> Finding:
    data, far = gate("XOR"), (line(0, 1, 2, 6), torch.tensor([-1, 1, 1, 1]))
    fits = {name: least_squares(x, y) for name, (x, y) in (("XOR", data), ("far", far))}
    errors = {
        name: wrong(tp.functional.decide((tp.functional.homogeneous(x) @ fits[name]).round(decimals=9)), y)
        for name, (x, y) in (("XOR", data), ("far", far))
    }
    pocket = learn(*data, order="random-mistake", max_epochs=20, select="pocket")
    least = {"XOR": wrong(pocket.predict(data[0]), data[1]), "far": wrong(learn(*far).predict(far[0]), far[1])}
    return Finding(
        "squared loss and the fewest errors",
        "for inseparable data the aim becomes the fewest misclassifications; squared loss is offered for it.",
        f"On XOR least squares is w = 0, {errors['XOR']} of 4 wrong, where a line with {least['XOR']} wrong exists "
        f"(the pocket's). Even separable data come out wrong: x = 0, 1, 2, 6 with the first −1, {errors['far']} wrong "
        f"instead of {least['far']}. It is another aim, which has a minimum that is easy to find.",
        judged(errors == least),
        {"errors": errors, "least": least},
    )


def squared_loss_on_the_right_side() -> Finding:
    losses = tp.functional.lms_loss(torch.tensor([1.0, 2.0, 3.0]), torch.ones(3), reduction="none").tolist()
    return Finding(
        "squared loss on the right side",
        "it grows there as well.",
        f"For y = +1 and scores 1, 2, 3 it is {numbers(losses)}: it grows beyond the target.",
        judged(losses == sorted(losses) and losses[0] < losses[2]),
        {"losses": losses},
    )


CHECKS = (
    threshold_as_a_weight, labels_of_the_table, goal_of_the_example, first_epoch, and_by_rule, score_of_zero,
    what_the_weights_depend_on, xor, mistake_bound, bound_from_another_start, loss_of_a_mistake, gradient_at_the_kink,
    stochastic_descent, targets_of_the_squared_loss, least_squares_and_errors, squared_loss_on_the_right_side,
)  # fmt: skip


def main() -> dict[str, Finding]:
    return show("Note A: the perceptron, AND, and what its loss is", CHECKS)


if __name__ == "__main__":
    main()
