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

// --- training ---------------------------------------------------------------------------------------------------------

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
function runRule(data, conventions) {
  const log = emptyLog(data, completeConventions(data, conventions));
  const run = {
    log,
    state: copyState(log.start),
    reach: reachOf(data.points),
    margin: log.conventions.margin / log.scale,
    generator: new TorchGenerator(log.conventions.seed),
    ranDry: false,
    seen: new Map([[stateKey(log.start), 0]]),
  };
  for (let epoch = 1; log.verdict === null; epoch++) {
    const before = log.index.length;
    presentEpoch(run);
    log.epochEnds.push(log.steps);
    log.verdict = judge(run, epoch, log.index.length - before);
  }
  return log;
}

function emptyLog(data, conventions) {
  const { start, lr, biasStep } = conventions;
  const zero = [...start.weight.flat(), ...start.bias].every((value) => value === 0);
  return {
    data, conventions, start, classes: data.classes === 2 ? null : data.classes,
    biasScale: { unit: 1, none: 0, radius: squaredRadius(data.points) }[biasStep], scale: zero ? lr : 1,
    index: [], step: [], coef: [], wrong: [], scores: [], steps: 0, epochEnds: [], verdict: null, cycle: null,
  };
}

// One pass: every sample in turn, or as many random picks of a sample that is a mistake now.
function presentEpoch(run) {
  const { data, conventions } = run.log;
  const count = data.points.length;
  if (conventions.order === "random-mistake") {
    for (let pick = 0; pick < count && !run.ranDry; pick++) {
      const wrong = mistakesNow(run);
      run.ranDry = wrong.length === 0;
      if (!run.ranDry) present(run, wrong[run.generator.below(wrong.length)]);
    }
  } else {
    const shuffled = conventions.order === "shuffled";
    for (let i = 0, order = shuffled ? run.generator.permutation(count) : null; i < count; i++) {
      present(run, shuffled ? order[i] : i);
    }
  }
}

// Presents one sample: if it is a mistake, the weights move and the log grows.
function present(run, i) {
  const { log, state } = run;
  const label = log.data.labels[i];
  const rival = mistakeNow(run, i);
  if (rival !== null) {
    const step = log.scale === 1 ? log.conventions.lr : 1;  // from zero weights, steps of 1
    log.scores.push(scoresAt(state, log.data.points[i]).map((score) => score * log.scale));
    log.index.push(i);
    log.step.push(log.steps);
    log.coef.push((log.classes === null ? signOfClass(label) : 1) * step * log.scale);
    log.wrong.push(log.classes === null ? signOfClass(rival) : rival);
    moveState(state, log.data.points[i], step, label, rival, log.biasScale);
  }
  log.steps += 1;
}

// What sample i is taken for now if it is a mistake, else null.
function mistakeNow(run, i) {
  const { data, conventions } = run.log;
  const [x, label] = [data.points[i], data.labels[i]];
  if (slackAt(run.state, x, label) > run.margin + roundingNow(run)) return null;  // far from any tie
  return mistakenFor(scoresAt(run.state, x), label, conventions.tie, run.margin, exactly(run.state, x));
}

// All samples that are mistakes now, in the order of their numbers.
function mistakesNow(run) {
  const { points, labels } = run.log.data;
  const [found, rounding] = [[], roundingNow(run)];
  for (let i = 0; i < points.length; i++) {
    const above = slackAt(run.state, points[i], labels[i]) - run.margin;
    const clear = Math.abs(above) > rounding;  // else it is a tie, or nearly
    if (clear ? above < 0 : mistakeNow(run, i) !== null) found.push(i);
  }
  return found;
}

// More than rounding can have done to the difference between a slack and the margin.
function roundingNow(run) {
  return roundingOf(run.state, run.reach) + run.margin * ROUNDING;
}

// The verdict after an epoch, or null if training goes on.
function judge(run, epoch, mistakes) {
  const { log, state } = run;
  const clean = mistakes === 0 || run.ranDry;
  // a strict tie passes over scores of 0 on the wrong side, so an epoch without a mistake is not enough
  if (clean && (log.conventions.tie !== "strict" || errorsOf(log.data, state) === 0)) return "SEPARATED";
  if (clean || log.conventions.order === "given") {  // equal weights have equal futures
    const key = stateKey(state);
    if (run.seen.has(key)) {
      log.cycle = [run.seen.get(key), epoch];
      return "CYCLING";
    }
    run.seen.set(key, epoch);
  }
  return epoch < log.conventions.maxEpochs ? null : "BUDGET";
}

// --- weights ----------------------------------------------------------------------------------------------------------

// w_y gains step·x and the rival's row loses it, the biases likewise with step·β; one row gains ±step·x with K = 2.
function moveState(state, x, step, label, rival, biasScale) {
  const moves = state.bias.length === 1 ? [[0, signOfClass(label) * step]] : [[label, step], [rival, -step]];
  for (const [row, coef] of moves) {
    state.weight[row][0] += coef * x[0];
    state.weight[row][1] += coef * x[1];
    if (biasScale) state.bias[row] += coef * biasScale;
    if (!Number.isFinite(state.weight[row][0] + state.weight[row][1] + state.bias[row])) {
      throw new Error("The weights grew beyond all numbers: scale the points down, or lower the learning rate.");
    }
  }
}

function copyState(state) {
  return { weight: state.weight.map((row) => [...row]), bias: [...state.bias] };
}

// Equal for equal weights; −0 and 0 are written alike.
function stateKey(state) {
  return [...state.weight.flat(), ...state.bias].join(" ");
}

// −1 for class 0, +1 for class 1.
function signOfClass(label) {
  return 2 * label - 1;
}

// max ‖x‖²; 0 without points.
function squaredRadius(points) {
  return points.reduce((most, x) => Math.max(most, x.reduce((sum, value) => sum + value * value, 0)), 0);
}

// --- decisions --------------------------------------------------------------------------------------------------------

// The score of x by one row of weights, w·x + b.
function scoreAt(state, x, row) {
  const weight = state.weight[row];
  return weight[0] * x[0] + weight[1] * x[1] + state.bias[row];
}

// The scores of x: [w·x + b] with K = 2, one per class with K > 2. A state is {weight, bias}.
function scoresAt(state, x) {
  return state.bias.map((_, row) => scoreAt(state, x, row));
}

// The class (0 .. K−1) that scores decide for: s ≥ 0 is class 1; with K > 2 the lowest class of the largest score.
function decideClass(scores, compare = asRounded) {
  if (scores.length === 1) return compare(scores[0], 0, 1, null) >= 0 ? 1 : 0;
  let best = 0;
  for (let k = 1; k < scores.length; k++) if (compare(scores[k] - scores[best], 0, k, best) > 0) best = k;
  return best;
}

// The class that a state decides for at x: fast where it is clear, by exact arithmetic where rounding could matter.
function classAt(state, x) {
  const rows = state.bias.length;
  let best = 0;
  let most = scoreAt(state, x, 0);
  let second = rows === 1 ? 0 : -Infinity;  // one score is compared with 0
  for (let k = 1; k < rows; k++) {
    const score = scoreAt(state, x, k);
    second = Math.max(second, Math.min(most, score));
    if (score > most) {
      best = k;
      most = score;
    }
  }
  const clear = Math.abs(most - second) > roundingOf(state, Math.max(Math.abs(x[0]), Math.abs(x[1])));
  if (!clear) return decideClass(scoresAt(state, x), exactly(state, x));
  return rows > 1 ? best : most > 0 ? 1 : 0;
}

// How far a sample is on its side: y·s, or s_y − s_r against the strongest wrong class r (the lowest of equals).
// label is the class 0 .. K−1. Returns {slack, rival}; rival is a class 0 .. K−1.
function slackOf(scores, label, compare = asRounded) {
  if (scores.length === 1) return { slack: signOfClass(label) * scores[0], rival: 1 - label };
  let rival = label === 0 ? 1 : 0;
  for (let k = rival + 1; k < scores.length; k++) {
    if (k !== label && compare(scores[k] - scores[rival], 0, k, rival) > 0) rival = k;
  }
  return { slack: scores[label] - scores[rival], rival };
}

// The same slack without its rival, fast: millions of them are asked for.
function slackAt(state, x, label) {
  if (state.bias.length === 1) return signOfClass(label) * scoreAt(state, x, 0);
  let strongest = -Infinity;
  for (let k = 0; k < state.bias.length; k++) {
    if (k !== label) strongest = Math.max(strongest, scoreAt(state, x, k));
  }
  return scoreAt(state, x, label) - strongest;
}

// What it was taken for if it is a mistake by these conventions, else null: a class 0 .. K−1.
//   "update": slack ≤ margin     "strict": slack < margin     "sign": the decision is not the label
function mistakenFor(scores, label, tie, margin, compare = asRounded) {
  const { slack, rival } = slackOf(scores, label, compare);
  const side = compare(slack, margin, label, scores.length === 1 ? null : rival);
  const losesTie = scores.length === 1 ? label === 0 : rival < label;  // s = 0 is class 1, equal scores the lower class
  const mistake = side < 0 || (side === 0 && (tie === "update" || (tie === "sign" && losesTie)));
  return mistake ? rival : null;
}

// How many samples a state decides wrongly.
function errorsOf(data, state, reach = reachOf(data.points)) {
  const rounding = roundingOf(state, reach);
  let errors = 0;
  for (let i = 0; i < data.points.length; i++) {
    const slack = slackAt(state, data.points[i], data.labels[i]);
    const clear = Math.abs(slack) > rounding;
    if (clear ? slack < 0 : classAt(state, data.points[i]) !== data.labels[i]) errors += 1;
  }
  return errors;
}

// --- on which side of a limit a score lies ----------------------------------------------------------------------------

// By the numbers as they are; own and other say whose scores they are, see exactly.
function asRounded(value, limit, own, other) {
  return value > limit ? 1 : value < limit ? -1 : 0;
}

// The same for the scores of x under a state, exactly: where the difference is so small that rounding may have made it,
// it is computed again in fractions. value is ±s for own = class 0 or 1 and no other (K = 2), else s_own − s_other.
function exactly(state, x) {
  const rounding = roundingOf(state, reachOf([x]));
  return (value, limit, own, other) => {
    const apart = value - limit;
    if (rounding === 0 || Math.abs(apart) > rounding + Math.abs(limit) * ROUNDING) return Math.sign(apart);
    const score = other === null ? exactScore(state, x, 0).times(signOfClass(own))
      : exactScore(state, x, own).minus(exactScore(state, x, other));
    return score.compare(limit);
  };
}

const ROUNDING = 2 ** -48;  // of all terms of a score together; what doubles really lose is less than a tenth of it

// More than rounding can have done to a slack at points whose coordinates are at most reach.
function roundingOf(state, reach) {
  let size = 0;
  for (let k = 0; k < state.bias.length; k++) {
    size += Math.abs(state.bias[k]) + reach * (Math.abs(state.weight[k][0]) + Math.abs(state.weight[k][1]));
  }
  return size * ROUNDING;
}

// The largest coordinate of any point, without its sign.
function reachOf(points) {
  return points.reduce((most, x) => Math.max(most, Math.abs(x[0]), Math.abs(x[1])), 0);
}

function exactScore(state, x, row) {
  return x.reduce((sum, value, j) => sum.plus(Rational.of(value).times(state.weight[row][j])), Rational.of(state.bias[row]));
}

// --- conventions ------------------------------------------------------------------------------------------------------

// The conventions with defaults filled in, checked; start becomes {weight, bias} of the right shape.
function completeConventions(data, conventions) {
  const complete = { ...DEFAULT_CONVENTIONS, ...conventions };
  for (const [name, known] of [["tie", TIES], ["biasStep", BIAS_STEPS], ["order", ORDERS]]) {
    if (!known.includes(complete[name])) throw new Error(`${name} must be one of ${known.join(", ")}, found ${complete[name]}.`);
  }
  checkNumber("The learning rate", complete.lr, (value) => value > 0, "above 0");
  checkNumber("The margin", complete.margin, (value) => value >= 0, "0 or more");
  checkNumber("The number of epochs", complete.maxEpochs, (value) => Number.isInteger(value) && value >= 1, "a whole number from 1");
  checkNumber("The seed", complete.seed, (value) => Number.isSafeInteger(value) && value >= 0, "a whole number from 0");
  if (complete.margin && complete.tie === "sign") {
    throw new Error("A margin has no effect with the tie “sign”, which looks at the decision only: choose another tie.");
  }
  complete.start = completeStart(data, complete.start);
  return complete;
}

function checkNumber(name, value, fine, wanted) {
  if (!Number.isFinite(value) || !fine(value)) throw new Error(`${name} must be ${wanted}, found ${value}.`);
}

function completeStart(data, start) {
  const rows = data.classes === 2 ? 1 : data.classes;
  if (!start) return { weight: Array.from({ length: rows }, () => [0, 0]), bias: new Array(rows).fill(0) };
  const fits = start.weight.length === rows && start.bias.length === rows && start.weight.every((row) => row.length === 2);
  if (!fits) throw new Error(`The start must have ${rows} ${rows === 1 ? "row" : "rows"} of two weights and a bias.`);
  if (![...start.weight.flat(), ...start.bias].every(Number.isFinite)) throw new Error("The start weights must be finite numbers.");
  return copyState(start);
}
