// Functions of the mistake log: every set of weights of a run, and what can be said of the run, follow from its log.
//
// JSON that tp.MistakeLog reads (logToJson returns this object; JSON.stringify it for a file):
//   {"format": "torchperc mistake log", "version": 1,
//    "points": [[x1, x2], ...],
//    "labels": [-1, 1, ...]         −1/+1 for two classes, class indices 0 .. K−1 for K > 2
//    "classes": null | K            null for two classes by one score, as MistakeLog.space.classes
//    "bias_scale": β                MistakeLog.space.bias_scale: 1, max ‖x‖² or 0
//    "scale": η or 1                MistakeLog.space.scale: η if the run started from zero weights
//    "start": {"weight": [[w1, w2]], "bias": [b]}     one row, or K rows; float64
//    "index": [...], "step": [...], "coef": [...], "wrong": [...]   as the columns of MistakeLog (coef is scaled: ±η)
//    "steps": T, "epoch_ends": [...],
//    "verdict": "SEPARATED" | "CYCLING" | "BUDGET", "cycle": null | [first, again],
//    "conventions": {"tie", "bias_step", "order", "seed", "lr", "margin", "max_epochs"}}   as arguments of RuleTrainer
// Numbers are float64. Python adds "cost" if samples have weights, "dtype" if the run was not in float64, and for the page
// a "description"; the page counts every sample once.
//
// A run with more features, which Python recorded and shows in two of them, has "projection" besides: points and start
// are those of the plane where the other features are at their mean; "offsets" has per sample what a coefficient of 1
// adds to the bias there; "scores", "errors", "pocket" and "brackets" ([lower, upper] or null, best so far) are those of
// the run in all its features.

const LOG_FORMAT = "torchperc mistake log";
const LOG_VERSION = 1;
const SNAPSHOT_EVERY = 200;
const KEPT = new WeakMap();

// --- weights ----------------------------------------------------------------------------------------------------------

// The weights after the first t mistakes: {weight: rows, bias: [..]}; t = 0 is the start, t = log.index.length the end.
function stateAt(log, t) {
  const known = keptFor(log, "snapshots", () => snapshotsOf(log));
  const nearest = Math.floor(t / SNAPSHOT_EVERY);
  const state = copyState(known[nearest]);
  for (let j = nearest * SNAPSHOT_EVERY; j < t; j++) replayMistake(log, state, j);
  return scaledState(state, log.scale);
}

// States to go on from, so that the way to a late one is not made from the start each time.
function snapshotsOf(log) {
  const known = [];
  forEachState(log, (state, t) => t % SNAPSHOT_EVERY === 0 && known.push(copyState(state)));
  return known;
}

// What a function of a log returned, kept as long as the log: a log never changes.
function keptFor(log, name, make) {
  if (!KEPT.has(log)) KEPT.set(log, {});
  return (KEPT.get(log)[name] ??= make());
}

// Makes the update of mistake j, as training made it: before weights are scaled.
function replayMistake(log, state, j) {
  const i = log.index[j];
  const rival = log.classes === null ? 1 - log.data.labels[i] : log.wrong[j];
  moveState(state, log.data.points[i], stepSize(log, j), log.data.labels[i], rival, biasStepOf(log, i));
}

// What a coefficient of 1 adds to the bias with sample i.
function biasStepOf(log, i) {
  return log.projection ? log.projection.offsets[i] : log.biasScale;
}

// How many times the sample was added, without its sign: a run from zero weights learns with steps of 1.
function stepSize(log, j) {
  return Math.abs(log.coef[j]) / log.scale;
}

function scaledState(state, scale) {
  const times = (values) => values.map((value) => value * scale);
  return { weight: state.weight.map(times), bias: times(state.bias) };
}

// Calls use(state, t) with every state from the start to the last, before scaling. The state is one and the same object,
// moved on from call to call: all states of a long run together would be much to keep.
function forEachState(log, use) {
  const state = copyState(log.start);
  use(state, 0);
  for (let j = 0; j < log.index.length; j++) {
    replayMistake(log, state, j);
    use(state, j + 1);
  }
}

// The mean of the weights after each presented sample: {weight, bias}. A mistake at step t stays in the weights for the
// T − t steps that are left, so the sum over all steps is T·start + Σ (T − t)·(update): no state needs to be made.
function averaged(log) {
  const total = copyState(log.start);
  if (log.steps === 0) return scaledState(total, log.scale);  // nothing was presented: the start is all there is
  const lasting = lastingSums(log);
  for (let row = 0; row < total.bias.length; row++) {
    const sums = [0, 0];
    lasting.forEach((coefs, i) => log.data.points[i].forEach((value, j) => (sums[j] += coefs[row] * value)));
    total.weight[row] = total.weight[row].map((value, j) => (value * log.steps + sums[j]) / log.steps);
    const steps = lasting.reduce((sum, coefs, i) => sum + coefs[row] * (log.projection ? biasStepOf(log, i) : 1), 0);
    const biasSum = log.projection ? steps : steps * log.biasScale;
    total.bias[row] = (total.bias[row] * log.steps + biasSum) / log.steps;
  }
  return scaledState(total, log.scale);
}

// Per sample and row of weights, Σ coefficient·(steps that it lasts).
function lastingSums(log) {
  const rows = log.start.bias.length;
  const sums = log.data.points.map(() => new Array(rows).fill(0));
  log.index.forEach((i, j) => {
    const lasting = stepSize(log, j) * (log.steps - log.step[j]);
    if (rows === 1) sums[i][0] += signOfClass(log.data.labels[i]) * lasting;
    else {
      sums[i][log.data.labels[i]] += lasting;
      sums[i][log.wrong[j]] -= lasting;
    }
  });
  return sums;
}

// --- the vote ---------------------------------------------------------------------------------------------------------

// The vote of all states, each as often as the number of samples it survived: a function x → class 0 .. K−1. It has a
// function raster(xs, ys) with it: the classes of all points of a grid, row by row, each row being one of ys.
function voted(log) {
  const voters = votersOf(log);
  const winner = (votes) => {
    if (log.classes === null) return votes[1] >= votes[0] ? 1 : 0;  // as a score of 0 is class 1
    return decideClass(votes);
  };
  const decide = (x) => {
    const votes = new Array(log.data.classes).fill(0);
    for (const { state, count } of voters) votes[classAt(state, x)] += count;
    return winner(votes);
  };
  decide.raster = (xs, ys) => ys.flatMap((y) => rowOfVotes(voters, log.data.classes, xs, y).map(winner));
  return decide;
}

// The votes at (x, y) for all xs, which ascend. A state's region of a class is convex, so along a row each class has one
// stretch, whose end is found by halving: few decisions, where one for every x and state would be very many.
function rowOfVotes(voters, classes, xs, y) {
  const votes = xs.map(() => new Array(classes).fill(0));  // first by how much they change from the place before
  for (const { state, count } of voters) {
    const at = (column) => classAt(state, [xs[column], y]);
    const end = at(xs.length - 1);
    for (let first = 0; first < xs.length; ) {
      const label = at(first);
      let [last, beyond] = [first, xs.length];
      if (end === label) last = xs.length - 1;
      else while (beyond - last > 1) {
        const middle = (last + beyond) >> 1;
        if (at(middle) === label) last = middle;
        else beyond = middle;
      }
      votes[first][label] += count;
      first = last + 1;
      if (first < xs.length) votes[first][label] -= count;
    }
  }
  for (let n = 1; n < xs.length; n++) votes[n] = votes[n].map((value, k) => value + votes[n - 1][k]);
  return votes;
}

// All states that survived a sample, equal ones together: [{state, count}, ...].
function votersOf(log) {
  const [counts, voters] = [log.steps ? survivals(log) : [1], new Map()];
  forEachState(log, (state, t) => {
    const key = stateKey(state);
    if (!voters.has(key)) voters.set(key, { state: copyState(state), count: 0 });
    voters.get(key).count += counts[t];
  });
  return [...voters.values()].filter(({ count }) => count > 0);
}

// How many samples each state survived, from the start to the last: t + 1 numbers (the votes it has).
function survivals(log) {
  const moments = [0, ...log.step, log.steps];
  return moments.slice(1).map((moment, t) => moment - moments[t]);
}

// --- the pocket -------------------------------------------------------------------------------------------------------

// How many mistakes had been made when the pocket weights came up; ratchet "runs" (Gallant) or "every".
//   "runs": weights whose run of samples without a mistake is longer than the pocket's take its place if they have fewer
//           errors on all samples. "every": the weights with the fewest errors of all, the earliest of equals.
function pocketIndex(log, ratchet = "runs") {
  if (log.projection) return log.projection.pocket;
  if (ratchet === "runs" && log.steps > log.index.length) return pocketByRuns(log);
  const errors = errorsOfStates(log);  // no runs, because every sample presented was a mistake
  return errors.indexOf(errors.reduce((least, count) => Math.min(least, count), Infinity));
}

function pocketByRuns(log) {
  const runs = survivals(log).map((count, t) => (t ? count - 1 : count));  // without the sample that a state learned from
  let [pocket, run, fewest] = [0, 0, log.data.points.length];
  forEachState(log, (state, t) => {
    if (runs[t] <= run) return;
    const errors = errorsOf(log.data, state);
    if (errors < fewest) [pocket, run, fewest] = [t, runs[t], errors];
  });
  return pocket;
}

// The number of training samples that each state decides wrongly, from the start to the last: t + 1 numbers.
function errorsOfStates(log) {
  if (log.projection) return log.projection.errors;
  const [errors, reach] = [[], reachOf(log.data.points)];
  forEachState(log, (state) => errors.push(errorsOf(log.data, state, reach)));
  return errors;
}

// --- epochs -----------------------------------------------------------------------------------------------------------

// The number of mistakes in each epoch.
function mistakesByEpoch(log) {
  const counts = new Array(log.epochEnds.length).fill(0);
  log.index.forEach((_, j) => (counts[epochOf(log, j)] += 1));
  return counts;
}

// The epoch (from 0) that mistake j (from 0) was made in.
function epochOf(log, j) {
  let [low, high] = [0, log.epochEnds.length - 1];
  while (low < high) {  // the first epoch that ends after the mistake
    const middle = (low + high) >> 1;
    if (log.epochEnds[middle] > log.step[j]) high = middle;
    else low = middle + 1;
  }
  return low;
}

// --- the bracket around the largest margin ----------------------------------------------------------------------------

// What the weights after t mistakes say of the largest margin γ* with the bias counted: margin(w_t) ≤ γ* ≤ ‖w_t − w₀‖/(η·t),
// as tp.theory.bracket. {lower, upper}: −Infinity for zero weights, Infinity before the first mistake. (Also −Infinity if
// a bias that the bias step "none" never changes is not 0: such weights are no candidates for γ*.)
function bracketAt(log, t) {
  if (log.projection) return bestBrackets(log)[t];
  const total = log.coef.slice(0, t).reduce((sum, coef) => sum + Math.abs(coef), 0);
  return bracketOf(log, stateAt(log, t), total);
}

// total is Σ |c| of the mistakes so far. Why upper holds: a unit vector u of margin γ* gains at least c·γ* with each of
// them, so γ*·Σ|c| ≤ u·(w − w₀) ≤ ‖w − w₀‖.
function bracketOf(log, state, total, data = log.data) {
  const length = lengthOf(state, log.biasScale);
  const fixedBias = log.biasScale === 0 && state.bias.some((value) => value !== 0);
  const moved = {
    weight: state.weight.map((row, k) => row.map((value, j) => value - log.start.weight[k][j])),
    bias: state.bias.map((value, k) => value - log.start.bias[k]),
  };
  return {
    lower: length > 0 && !fixedBias ? leastSlack(data, state) / length : -Infinity,
    upper: total > 0 ? lengthOf(moved, log.biasScale) / total : Infinity,
  };
}

// The best bounds so far, which only ever close: {lower, upper}, the largest lower and the smallest upper of bracketAt
// up to t. upper ≤ 0 proves that nothing separates the data. All of them at once: bestBrackets(log)[t].
function bestBrackets(log) {
  if (log.projection) {
    return log.projection.brackets.map(([lower, upper]) => ({ lower: lower ?? -Infinity, upper: upper ?? Infinity }));
  }
  return keptFor(log, "brackets", () => closingBrackets(log));
}

function closingBrackets(log) {
  const [best, corners] = [[], cornersOf(log.data)];  // the least slack is that of a corner of a hull
  let [lower, upper, total] = [-Infinity, Infinity, 0];
  forEachState(log, (state, t) => {
    if (t) total += Math.abs(log.coef[t - 1]);
    const now = bracketOf(log, scaledState(state, log.scale), total, corners);
    lower = Math.max(lower, now.lower);
    upper = Math.min(upper, now.upper);
    best.push({ lower, upper });
  });
  return best;
}

// The least slack of all samples under a state: y·s, or s_y − s_r; Infinity without samples.
function leastSlack(data, state) {
  return data.points.reduce((least, x, i) => Math.min(least, slackAt(state, x, data.labels[i])), Infinity);
}

// ‖(w, b)‖ where the update happens: √(‖w‖² + b²/β), because a bias step of β is a constant feature of √β.
function lengthOf(state, biasScale) {
  const squares = (values) => values.reduce((sum, value) => sum + value * value, 0);
  return Math.sqrt(squares(state.weight.flat()) + (biasScale ? squares(state.bias) / biasScale : 0));
}

// --- as JSON ----------------------------------------------------------------------------------------------------------

function logToJson(log) {
  const { tie, biasStep, order, seed, lr, margin, maxEpochs } = log.conventions;
  return {
    format: LOG_FORMAT, version: LOG_VERSION,
    points: log.data.points, labels: log.classes === null ? log.data.labels.map(signOfClass) : log.data.labels,
    classes: log.classes, bias_scale: log.biasScale, scale: log.scale, start: log.start,
    index: log.index, step: log.step, coef: log.coef, wrong: log.wrong, steps: log.steps, epoch_ends: log.epochEnds,
    verdict: log.verdict, cycle: log.cycle,
    conventions: { tie, bias_step: biasStep, order, seed, lr, margin, max_epochs: maxEpochs },
    ...(log.projection ? { projection: log.projection } : {}),
  };
}

// A log from that JSON, with scores made anew.
function logFromJson(object) {
  if (object === null || object.format !== LOG_FORMAT || object.version !== LOG_VERSION) {
    throw new Error(`This is no ${LOG_FORMAT} of version ${LOG_VERSION}.`);
  }
  const labels = object.classes === null ? object.labels.map((label) => (label + 1) / 2) : object.labels;
  const data = { points: object.points, labels, classes: object.classes ?? 2 };
  const { bias_step: biasStep, max_epochs: maxEpochs, ...same } = object.conventions;
  const { start, index, step, coef, wrong, steps, scale, verdict, cycle } = object;
  const log = {
    data, conventions: { ...DEFAULT_CONVENTIONS, ...same, biasStep, maxEpochs, start }, start, classes: object.classes,
    biasScale: object.bias_scale, scale, index, step, coef, wrong, scores: [], steps, epochEnds: object.epoch_ends,
    verdict, cycle, projection: object.projection ?? null,
  };
  if (log.projection) return { ...log, scores: log.projection.scores };
  forEachState(log, (state, t) => {
    if (t < index.length) log.scores.push(scoresAt(state, data.points[index[t]]).map((score) => score * scale));
  });
  return log;
}
