"""Note B: margins, and the theorem of Block and Novikoff
======================================================

The hyperplane and its margin, the online update, the theorem of Block and Novikoff, votes and averages.
"""

from __future__ import annotations

import torch
from _findings import (
    DOUBLE,
    OPEN,
    Finding,
    folded,
    gate,
    judged,
    learn,
    line,
    numbers,
    show,
    slacks,
    states,
    wrong,
    yes,
)

import torchperc as tp

X, Y = gate("AND")
NEAR = line(4, 6), torch.tensor([-1, 1])  # two points at a distance of 1 from the best boundary, 5


def weights_of(*values: float) -> torch.Tensor:
    return torch.tensor([values], dtype=DOUBLE)


def normal_of_the_figure() -> Finding:
    weight, bias = weights_of(0.4, 0.1), torch.tensor([-0.2], dtype=DOUBLE)
    normal = tp.functional.unit_normal(weight)
    plain, longer = (tp.functional.decide(tp.functional.scores(X, a * weight, a * bias)) for a in (1, 7))
    half = tp.functional.decide(tp.functional.scores(X, 7 * weight, bias))
    return Finding(
        "the arrow (0.4, 0.1)",
        "its length does not matter, so it is taken to be 1; b comes in only afterwards.",
        f"The arrow's length is {float(weight.norm()):.4f}, the unit normal {numbers(normal)}. Seven times (w, b) "
        f"decides alike: {yes(wrong(longer, plain) == 0)}; seven times w alone does not: {wrong(half, plain)} of 4 "
        "rows of AND's inputs change with b = −0.2.",
        judged(wrong(longer, plain) == 0),
        {"length": float(weight.norm()), "normal": normal.tolist(), "changed without b": wrong(half, plain)},
    )


def side_of_the_bias() -> Finding:
    weight, biases = weights_of(0.4, 0.1), (-1.0, 1.0)
    offsets = {b: float(tp.functional.offset(weight, torch.tensor([b], dtype=DOUBLE))) for b in biases}
    return Finding(
        "where b moves the boundary",
        "along the arrow for b < 0, against it for b > 0.",
        f"By −b/‖w‖, which is {numbers(offsets.values())} for b = −1 and b = 1.",
        judged(offsets[-1.0] > 0 > offsets[1.0]),
        {"offsets": offsets},
    )


def many_hyperplanes() -> Finding:
    several = [learn(X, Y, order=order).log.last() for order in ("given", (0, 2, 1, 3))]
    planes = [*((model.weight, model.bias) for model in several), tp.theory.separability(X, Y).hyperplane.tensors()]
    margins = [float(tp.functional.geometric_margin(X, Y, *plane)) for plane in planes]
    return Finding(
        "separating hyperplanes are many",
        "infinitely many if there is one; the best has the largest margin.",
        f"AND: {', '.join(numbers(folded(model)) for model in several)} have the margins {margins[0]:.4f} and "
        f"{margins[1]:.4f}, the linear programme's {margins[2]:.4f} = 1/√8. The rule does not look for the best.",
        judged(min(margins) > 0),
        {"margins": margins},
    )


def margin_as_a_distance() -> Finding:
    model = learn(X, Y).log.last()
    printed = float((Y * model.scores(X)).min())
    distance = float(tp.functional.geometric_margin(X, Y, model.weight, model.bias))
    return Finding(
        "the margin min y·(w·x + b)",
        "called the distance to the closest point; unit length is assumed “usually”, and the update does not keep it.",
        f"For (−4; 3, 2) it is {printed:g}, the distance {distance:.4f} = 1/√13. Right for any w: divided by ‖w‖.",
        judged(printed == distance, OPEN),
        {"printed": printed, "distance": distance},
    )


def update_by_the_prediction() -> Finding:
    rows, weights, losses = tp.functional.homogeneous(X), torch.zeros(3, dtype=DOUBLE), 0
    for row, label in zip(rows.repeat(10, 1), Y.repeat(10), strict=True):
        predicted = torch.sign(row @ weights)
        if predicted != label:
            weights, losses = weights - predicted * row, losses + 1
    ends = {tie: learn(X, Y, tie=tie) for tie in ("sign", "update")}
    return Finding(
        "the update w − ŷ·x, and sign(0)",
        "ŷ = sign(w·x + b), nothing said of 0; on an error −ŷ·x is added, as −ŷ is then right.",
        f"With the usual sign(0) = 0 zero weights stay zero: {losses} losses in 40 steps, w = {numbers(weights)}. With "
        f"sign(0) = +1 AND takes {ends['sign'].mistakes} mistakes to {numbers(folded(ends['sign'].log.last()))}; with "
        f"y·x added where y·s ≤ 0, as the proof has it, {ends['update'].mistakes} to "
        f"{numbers(folded(ends['update'].log.last()))}.",
        judged(bool(weights.any()), OPEN),
        {"losses": losses, "weights": tuple(weights.tolist()), "mistakes": {t: r.mistakes for t, r in ends.items()}},
    )


def score_before_an_update() -> Finding:
    zeros = {tie: sum(before == 0 for before, _ in slacks(learn(X, Y, tie=tie).log, X)) for tie in ("sign", "update")}
    return Finding(
        "y·s before an update",
        "known to be negative, because an error was made.",
        f"It is 0 at {zeros['update']} of AND's 18 updates, and at {zeros['sign']} of 11 with sign(0) = +1; always at "
        "the first. Right: y·s ≤ 0, as the proof of the theorem has it.",
        judged(not any(zeros.values())),
        {"zeros": zeros},
    )


def gain_of_an_update() -> Finding:
    log = learn(X, Y).log
    gains = [after - before for before, after in slacks(log, X)]
    promised = [float(X[mistake.sample].square().sum() + 1) for mistake in log]
    return Finding(
        "what an update gains",
        "y·s of its sample grows by ‖x‖² + 1.",
        f"So it does at all {len(gains)} updates of AND, exactly: {yes(gains == promised)}; by 1, 2 or 3.",
        judged(gains == promised),
        {"exact": gains == promised, "gains": sorted(set(gains))},
    )


def theorem_as_printed() -> Finding:
    made = learn(X, Y)
    u = folded(made.log.last())
    squared, length = tp.theory.radius(X) ** 2, sum(value**2 for value in u)
    gamma = float((Y * made.scores(X)).min())
    printed, right = squared / gamma**2, length * squared / gamma**2
    return Finding(
        "Block and Novikoff, as printed",
        "the rule ends in ‖u‖² ≤ R²/γ² iterations for weights u with margin γ.",
        f"That bounds the length of u, and not even that: for u = {numbers(u)}, γ = {gamma:g}, R² = {squared:.4g} it "
        f"says {length:g} ≤ {printed:.4g}; and {made.mistakes} mistakes are more than {printed:.4g}. Right: "
        f"‖u‖²·R²/γ² = {right:.4g} mistakes, or R²/γ² for ‖u‖ = 1, with the best u "
        f"{tp.theory.mistake_bound(X, Y):.4g}. A product may have become “≤” on the way.",
        judged(length <= printed and made.mistakes <= printed),
        {"length": length, "printed": printed, "right": right, "mistakes": made.mistakes},
    )


def theorem_and_the_bias() -> Finding:
    figures = {}
    for name, (x, y) in (("AND", (X, Y)), ("4 and 6", NEAR)):
        gamma = tp.theory.separability(x, y).margin
        plane = tp.theory.radius(x, bias_step="none") ** 2 / gamma**2
        made = [learn(x, y, tie=tie, max_epochs=1000).mistakes for tie in ("update", "sign")]
        figures[name] = {"plane": plane, "right": tp.theory.mistake_bound(x, y), "mistakes": made}
    land, near = figures["AND"], figures["4 and 6"]
    return Finding(
        "the theorem and the bias",
        "R is the largest ‖x‖ and γ the distance to the boundary, while the algorithm also moves b.",
        f"AND: R²/γ² = {land['plane']:.4g}, but {land['mistakes'][0]} mistakes. x = 4 and 6: {near['plane']:.4g}, but "
        f"{near['mistakes'][1]} mistakes whatever sign(0) is. Right: both with the constant 1 as a feature, "
        f"{land['right']:.4g} and {near['right']:.4g}.",
        judged(all(max(row["mistakes"]) <= row["plane"] for row in figures.values())),
        figures,
    )


def mistakes_and_iterations() -> Finding:
    x, y = tp.data.separable_blobs(200, margin=3.0, seed=0)
    run, bound = learn(x, y), tp.theory.mistake_bound(x, y)
    return Finding(
        "what the theorem counts",
        "iterations until the rule ends.",
        f"Blobs of 200: {run.mistakes} mistake{'s' * (run.mistakes != 1)} in {run.log.steps} iterations of the loop, "
        f"and the bound is {bound:.4g}. It bounds updates; passes are at most one more than updates.",
        judged(run.log.steps <= bound),
        {"steps": run.log.steps, "mistakes": run.mistakes, "passes": run.epochs, "bound": bound},
    )


def chain_of_the_proof() -> Finding:
    rows = tp.functional.homogeneous(X) / 2  # so that ‖x‖ ≤ 1, without rounding
    best = tp.theory.max_margin(rows, Y, bias_step="none")
    path = states(learn(rows, Y, bias=False).log)[1:]
    chains = [(k * best.margin, float(s.weight[0] @ best.weight[0]), float(s.weight.norm()), k**0.5)
              for k, s in enumerate(path, 1)]  # fmt: skip
    holds = all(a <= b + 1e-9 and b <= c + 1e-9 and c <= d + 1e-9 for a, b, c, d in chains)
    longer = all(2 * b <= c + 1e-9 for _, b, c, _ in chains)
    return Finding(
        "the chain √k ≥ ‖w‖ ≥ w·u ≥ k·γ",
        "after every update, for R = 1; the length of u is not given.",
        f"Holds after each of {len(chains)} updates of AND for ‖u‖ = 1: {yes(holds)}; for ‖u‖ = 2: {yes(longer)}. The "
        "proof needs a unit vector.",
        judged(holds),
        {"updates": len(chains), "holds": holds, "holds for length 2": longer},
    )


def adding_a_feature() -> Finding:
    x, y = gate("XOR")
    added = {"constant": torch.ones(4, 1), "sum": x.sum(1, keepdim=True), "product": x.prod(1, keepdim=True),
             "one a sample": torch.eye(4)}  # fmt: skip
    data = {name: torch.cat((x, columns.to(DOUBLE)), 1) for name, columns in added.items()}
    separable = {name: tp.theory.separability(z, y).separable for name, z in data.items()}
    made = {name: learn(z, y, max_epochs=200).mistakes for name, z in data.items() if separable[name]}
    return Finding(
        "inseparable data made separable",
        "by adding a feature; which one is not said.",
        f"XOR with x₁ + x₂ or a constant stays inseparable; with x₁·x₂ it takes {made['product']} mistakes. One that "
        f"always works is a feature for each sample, so N of them ({made['one a sample']} mistakes); they say nothing "
        "of new data.",
        judged(all(separable.values()), OPEN),
        {"separable": separable, "mistakes": made},
    )


def votes() -> Finding:
    log = learn(X, Y).log
    path, counts = states(log), log.survivals().to(DOUBLE)
    with_bias = torch.stack([state.scores(X) for state in path])
    without = torch.stack([X @ state.weight[0] for state in path])
    errors = {
        "without b": wrong(tp.functional.decide(counts @ without.sign()), Y),
        "sign(0) = 0": wrong(tp.functional.decide(counts @ with_bias.sign()), Y),
        "sign(0) = +1": wrong(log.voted().predict(X), Y),
    }
    x, y = line(-3, -2, -1), torch.tensor([-1, 1, 1])
    log = learn(x, y).log
    signs = torch.stack([state.scores(x).sign() for state in states(log)])
    survived, once = log.survivals().to(DOUBLE) @ signs, signs.sum(0)
    errors |= {"by survival": wrong(survived.sign(), y), "each value once": wrong(once.sign(), y)}
    return Finding(
        "the vote sign Σ sign(wᵢ·x)",
        "over every value of w, without b.",
        f"AND without b: {errors['without b']} of 4 wrong; with b {errors['sign(0) = 0']} if sign(0) = 0 and "
        f"{errors['sign(0) = +1']} if it is +1. How often a value votes matters too: x = −3, −2, −1 with the first −1 "
        f"gives {numbers(survived)} by samples survived, all right, and {numbers(once)} with each value once, "
        f"{errors['each value once']} wrong.",
        judged(errors["without b"] == 0),
        {"errors": errors, "by survival": survived.tolist(), "each value once": once.tolist()},
    )


def averages() -> Finding:
    log = learn(X, Y).log
    mean = log.averaged()
    without, errors = X @ mean.weight[0], wrong(mean.predict(X), Y)
    bare = wrong(tp.functional.decide(without), Y)
    return Finding(
        "the average sign(Σ wᵢ·x)",
        "of the weights, without b.",
        f"AND: {bare} of 4 wrong without b, scores {numbers(without * log.steps)}/{log.steps}; {errors} wrong with the "
        f"averaged b, {numbers(value * log.steps for value in folded(mean))}/{log.steps}.",
        judged(bare == 0),
        {"errors without b": bare, "errors": errors, "sums": [round(v * log.steps, 9) for v in folded(mean)]},
    )


CHECKS = (
    normal_of_the_figure, side_of_the_bias, many_hyperplanes, margin_as_a_distance, update_by_the_prediction,
    score_before_an_update, gain_of_an_update, theorem_as_printed, theorem_and_the_bias, mistakes_and_iterations,
    chain_of_the_proof, adding_a_feature, votes, averages,
)  # fmt: skip


def main() -> dict[str, Finding]:
    return show("Note B: hyperplanes, the online update and its theorem", CHECKS)


if __name__ == "__main__":
    main()
