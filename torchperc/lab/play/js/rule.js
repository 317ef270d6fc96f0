// The perceptron rule and its mistake log: the same mistakes, in the same order, as torchperc's RuleTrainer.
//
// A data set is {points: [[x1, x2], ...], labels: [0 .. K−1, ...], classes: K}. With K = 2, class 0 has the label −1 and
// class 1 the label +1, and there is one row of weights; with K > 2 there are K rows.
//
// Conventions are {tie, biasStep, order, seed, lr, margin, maxEpochs, start: {weight: rows, bias: [..]}}, as in
// RuleTrainer; what is missing has the default value of DEFAULT_CONVENTIONS, a start of null means zeros.

const TIES = ["update", "sign", "strict"];
const BIAS_STEPS = ["unit", "radius", "none"];
const ORDERS = ["given", "shuffled", "random-mistake"];
const VERDICTS = ["SEPARATED", "CYCLING", "BUDGET"];

const DEFAULT_CONVENTIONS = {
  tie: "update", biasStep: "unit", order: "given", seed: 0, lr: 1, margin: 0, maxEpochs: 100, start: null,
};

// Trains and returns the log
//   {data, conventions (complete), start: {weight, bias}, classes (null for K = 2, as in Python),
//    biasScale (β, what a coefficient of 1 adds to the bias: 1, max ‖x‖² or 0), scale (see below),
//    index[], step[], coef[], wrong[],  one entry per mistake: which sample; how many were presented before it; η·y (η
//                                       with K > 2); what it was taken for: the label −1/+1, or the class with K > 2
//    scores[],                          the score(s) before the update, an array per mistake ([s] with K = 2)
//    steps, epochEnds[],                how many samples were presented, in all and by the end of each epoch
//    verdict: "SEPARATED" | "CYCLING" | "BUDGET",
//    cycle: null | [first, again]}      epochs (0 is the start) after which the same weights were seen
// From zero weights the learning rate only scales the result: the rule then learns with steps of 1, which are exact, and
// weights are multiplied by scale = η. Otherwise scale is 1. Samples of one class only, or none, are fine.
// Throws an Error with a sentence for conventions that RuleTrainer refuses, too (margin with tie "sign", lr ≤ 0, ...).
function runRule(data, conventions) {}

// The conventions with defaults filled in, checked; start becomes {weight, bias} of the right shape.
function completeConventions(data, conventions) {}

// The scores of x: [w·x + b] with K = 2, one per class with K > 2. A state is {weight, bias}.
function scoresAt(state, x) {}

// The class (0 .. K−1) that scores decide for: s ≥ 0 is class 1; with K > 2 the lowest class of the largest score.
function decideClass(scores) {}

// How far a sample is on its side: y·s, or s_y − s_r against the strongest wrong class r (the lowest of equals).
// label is the class 0 .. K−1. Returns {slack, rival}; rival is a class 0 .. K−1.
function slackOf(scores, label) {}

// What it was taken for if it is a mistake by these conventions, else null: a class 0 .. K−1.
function mistakenFor(scores, label, tie, margin) {}
