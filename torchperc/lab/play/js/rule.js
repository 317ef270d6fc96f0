// The perceptron rule and its mistake log: the same mistakes, in the same order, as torchperc's RuleTrainer.
//
// A data set is {points: [[x1, x2], ...], labels: [0 .. K−1, ...], classes: K}. With K = 2, class 0 has the label −1 and
// class 1 the label +1, and there is one row of weights; with K > 2 there are K rows. A state is {weight: rows, bias: [..]}.
// Conventions are {tie, biasStep, order, seed, lr, margin, maxEpochs, start: a state}, as in RuleTrainer.

const TIES = ["update", "sign", "strict"];
const BIAS_STEPS = ["unit", "radius", "none"];
const ORDERS = ["given", "shuffled", "random-mistake"];
const CONVENTION_FIELDS = {
  tie: TIES, biasStep: BIAS_STEPS, order: ORDERS, seed: {min: 0, integer: true}, lr: {above: 0}, margin: {min: 0},
  maxEpochs: {min: 1, integer: true},
};

// Whether a setting may have a value: one of a list, or a number within limits {min, above, max, integer}.
function allows(kind, value) {
  if (Array.isArray(kind)) return kind.includes(value);
  const {min = -Infinity, above = -Infinity, max = Number.MAX_VALUE, integer = false} = kind;
  const fits = integer ? Number.isSafeInteger(value) : Number.isFinite(value);
  return fits && value >= min && value > above && value <= max;
}

// Trains and returns the log
//   {data, conventions, start, classes (null for K = 2), biasScale (β, what a coefficient of 1 adds to the bias), scale,
//    index[], step[], coef[], wrong[],  one entry per mistake: which sample; how many were presented before it; η·y (η
//                                       with K > 2); what it was taken for: the label −1/+1, or the class with K > 2
//    scores[],                          the score(s) before the update, an array per mistake
//    steps, epochEnds[],                how many samples were presented, in all and by the end of each epoch
//    verdict: "SEPARATED" | "CYCLING" | "BUDGET", cycle: null | [first, again] epochs with the same weights}
// From zero weights η only scales the result: the rule then learns with exact steps of 1, and scale is η; else it is 1.
function runRule(data, given) {
  const conventions = completeConventions(data, given);
  const {start, lr, biasStep, margin, seed} = conventions;
  const radius = data.points.reduce((most, [x1, x2]) => Math.max(most, x1 * x1 + x2 * x2), 0); // squared
  const log = {
    data, conventions, start, classes: data.classes === 2 ? null : data.classes,
    biasScale: {unit: 1, none: 0, radius}[biasStep], scale: isZeroStart(start) ? lr : 1,
    index: [], step: [], coef: [], wrong: [], scores: [], steps: 0, epochEnds: [], verdict: null, cycle: null,
  };
  const run = {
    log, state: copyState(start), reach: reachOf(data.points), margin: margin / log.scale,
    generator: new TorchGenerator(seed), seen: new Map([[stateKey(start), 0]]),
  };
  for (let epoch = 1; log.verdict === null; epoch++) {
    const clean = presentEpoch(run);
    log.epochEnds.push(log.steps);
    log.verdict = judge(run, epoch, clean);
  }
  return log;
}

// One pass: every sample in turn, or as many random picks of a sample that is a mistake now. Says whether nothing was one.
function presentEpoch(run) {
  const {log, generator} = run;
  const [every, before, {order}] = [everyNumber(log.data.points.length), log.index.length, log.conventions];
  if (order === "random-mistake") {
    for (let pick = 0; pick < every.length; pick++) {
      const rounding = roundingOf(run.state, run.reach) + run.margin * ROUNDING;
      const wrong = every.filter((i) => mistakeNow(run, i, rounding) !== null);
      if (wrong.length === 0) return true;
      present(run, wrong[generator.below(wrong.length)]);
    }
  } else for (const i of order === "shuffled" ? generator.permutation(every.length) : every) present(run, i);
  return log.index.length === before;
}

// Presents one sample: if it is a mistake, the weights move and the log grows.
function present(run, i) {
  const {log, state} = run;
  const label = log.data.labels[i];
  const rival = mistakeNow(run, i);
  if (rival !== null) {
    const step = log.scale === 1 ? log.conventions.lr : 1; // from zero weights, steps of 1
    log.scores.push(scoresAt(state, log.data.points[i]).map((score) => score * log.scale));
    log.index.push(i);
    log.step.push(log.steps);
    log.coef.push((log.classes === null ? signOfClass(label) : 1) * step * log.scale);
    log.wrong.push(log.classes === null ? signOfClass(rival) : rival);
    moveState(state, log.data.points[i], step, label, rival, log.biasScale);
  }
  log.steps += 1;
}

// The class that sample i is taken for if it is a mistake now, else null.
//   "update": slack ≤ margin     "strict": slack < margin     "sign": the decision is not the label
function mistakeNow({log, state, margin, reach}, i, rounding = roundingOf(state, reach) + margin * ROUNDING) {
  const {data: {points: {[i]: x}, labels: {[i]: label}}, conventions: {tie}} = log;
  const above = slackAt(state, x, label) - margin;
  if (above > rounding) return null;
  const rival = classAt(state, x, label);
  if (above < -rounding) return rival;
  const side = compareGap(state, x, label, rival, margin);
  const losesTie = log.classes === null ? label === 0 : rival < label; // s = 0 is class 1, equal scores the lower class
  return side < 0 || (side === 0 && (tie === "update" || (tie === "sign" && losesTie))) ? rival : null;
}

// The verdict after an epoch, or null if training goes on.
function judge({log, state, seen}, epoch, clean) {
  const {tie, order, maxEpochs} = log.conventions;
  // a strict tie passes over scores of 0 on the wrong side, so an epoch without a mistake is not enough
  if (clean && (tie !== "strict" || errorsOf(log.data, state) === 0)) return "SEPARATED";
  if (clean || order === "given") { // equal weights have equal futures
    const key = stateKey(state);
    if (seen.has(key)) {
      log.cycle = [seen.get(key), epoch];
      return "CYCLING";
    }
    seen.set(key, epoch);
  }
  return epoch < maxEpochs ? null : "BUDGET";
}

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

function zeroStart(classes) {
  const rows = classes > 2 ? classes : 1;
  return {weight: Array.from({length: rows}, () => [0, 0]), bias: Array(rows).fill(0)};
}

function isZeroStart({weight, bias}) {
  return [...weight.flat(), ...bias].every((value) => value === 0);
}

function copyState({weight, bias}) {
  return {weight: weight.map((row) => [...row]), bias: [...bias]};
}

// Equal for equal weights; −0 and 0 are written alike.
function stateKey({weight, bias}) {
  return [...weight.flat(), ...bias].join(" ");
}

// −1 for class 0, +1 for class 1.
function signOfClass(label) {
  return 2 * label - 1;
}

function scoreAt({weight, bias}, x, row) {
  return weight[row][0] * x[0] + weight[row][1] * x[1] + bias[row];
}

// The scores of x: [w·x + b] with K = 2, one per class with K > 2.
function scoresAt(state, x) {
  return state.bias.map((_, row) => scoreAt(state, x, row));
}

// How far a sample is on its side: y·s, or s_y − s_r against the strongest wrong class. Fast: millions are asked for.
function slackAt(state, x, label) {
  if (state.bias.length === 1) return signOfClass(label) * scoreAt(state, x, 0);
  let strongest = -Infinity;
  for (let k = 0; k < state.bias.length; k++) {
    if (k !== label) strongest = Math.max(strongest, scoreAt(state, x, k));
  }
  return scoreAt(state, x, label) - strongest;
}

// The class that a state decides for at x, among all but one if that is given: s ≥ 0 is class 1; with K > 2 it is the lowest
// class of the largest score.
function classAt(state, x, without = null) {
  if (state.bias.length === 1) return without === null ? Number(compareGap(state, x, 1, 0) >= 0) : 1 - without;
  let best = without === 0 ? 1 : 0;
  for (let k = best + 1; k < state.bias.length; k++) {
    if (k !== without && compareGap(state, x, k, best) > 0) best = k;
  }
  return best;
}

// The sign of (s_own − s_other) − limit, with K = 2 of y·s − limit: where rounding may have made it, in exact fractions.
function compareGap(state, x, own, other, limit = 0) {
  const two = state.bias.length === 1;
  const gap = two ? signOfClass(own) * scoreAt(state, x, 0) : scoreAt(state, x, own) - scoreAt(state, x, other);
  const rounding = roundingOf(state, Math.max(Math.abs(x[0]), Math.abs(x[1])));
  if (rounding === 0 || Math.abs(gap - limit) > rounding + limit * ROUNDING) return Math.sign(gap - limit);
  const exact = (row) => x.reduce((sum, value, j) => sum.plus(Rational.of(value).times(state.weight[row][j])), Rational.of(state.bias[row]));
  return (two ? exact(0).times(signOfClass(own)) : exact(own).minus(exact(other))).compare(limit);
}

// How many samples a state decides wrongly.
function errorsOf(data, state, reach = reachOf(data.points)) {
  const rounding = roundingOf(state, reach);
  return data.points.reduce((errors, x, i) => {
    const slack = slackAt(state, x, data.labels[i]);
    const wrong = Math.abs(slack) > rounding ? slack < 0 : classAt(state, x) !== data.labels[i];
    return errors + Number(wrong);
  }, 0);
}

const ROUNDING = 2 ** -48; // of all terms of a score together; what doubles really lose is less than a tenth of it

// More than rounding can have done to a slack at points whose coordinates are at most reach.
function roundingOf({weight, bias}, reach) {
  let size = 0;
  for (let k = 0; k < bias.length; k++) {
    size += Math.abs(bias[k]) + reach * (Math.abs(weight[k][0]) + Math.abs(weight[k][1]));
  }
  return size * ROUNDING;
}

// The largest coordinate of any point, without its sign.
function reachOf(points) {
  return points.reduce((most, x) => Math.max(most, Math.abs(x[0]), Math.abs(x[1])), 0);
}

function defaultConventions(classes = 2) {
  return {
    tie: "update", biasStep: "unit", order: "given", seed: 0, lr: 1, margin: 0, maxEpochs: 100, start: zeroStart(classes),
  };
}

// The conventions with defaults filled in; throws an Error with a sentence for those that RuleTrainer refuses, too.
function completeConventions(data, conventions) {
  const complete = {...defaultConventions(data.classes), ...conventions};
  for (const [name, kind] of Object.entries(CONVENTION_FIELDS)) {
    if (allows(kind, complete[name])) continue;
    const wanted = kind.join?.(", ") ?? `${kind.integer ? "an integer" : "a number"} ${"above" in kind ? "above" : "from"} ${kind.above ?? kind.min}`;
    throw new Error(`${name} must be ${Array.isArray(kind) ? "one of " : ""}${wanted}, found ${complete[name]}.`);
  }
  const {margin, tie} = complete;
  if (margin && tie === "sign") {
    throw new Error("A margin has no effect with the tie “sign”, which looks at the decision only: choose another tie.");
  }
  const zero = zeroStart(data.classes);
  const {weight, bias} = complete.start ?? zero;
  const rows = zero.bias.length;
  const fits = weight.length === rows && bias.length === rows && weight.every((row) => row.length === 2);
  if (!fits || ![...weight.flat(), ...bias].every(Number.isFinite)) {
    throw new Error(`The start must have ${rows === 1 ? "one row" : `${rows} rows`} of two weights and a bias, all finite.`);
  }
  return {...complete, start: copyState({weight, bias})};
}
