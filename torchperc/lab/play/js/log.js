// Functions of the mistake log: every set of weights of a run, and what can be said of the run, follow from its log.
//
// The JSON that tp.MistakeLog reads and writes, and logToJson and logFromJson here, has the columns of the log with the
// names of Python. A run with more features, which Python shows in two of them, has "projection" besides: points and start
// are those of the plane where the other features are at their mean; "offsets" has per sample what a coefficient of 1
// adds to the bias there; "scores", "errors", "pocket" and "brackets" are those of the run in all its features.

const LOG_FORMAT = "torchperc mistake log";
const LOG_VERSION = 1;
const SNAPSHOT_EVERY = 200;
const KEPT = new WeakMap();

// The weights after the first t mistakes, made from the last snapshot; t = 0 is the start, t = log.index.length the end.
function stateAt(log, t) {
  const snapshots = keptFor(log, "snapshots", () => {
    const known = [];
    forEachState(log, (state, j) => j % SNAPSHOT_EVERY === 0 && known.push(copyState(state)));
    return known;
  });
  const nearest = Math.floor(t / SNAPSHOT_EVERY);
  const state = copyState(snapshots[nearest]);
  for (let j = nearest * SNAPSHOT_EVERY; j < t; j++) replayMistake(log, state, j);
  return scaledState(state, log.scale);
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
  const biasStep = log.projection ? log.projection.offsets[i] : log.biasScale;
  const step = Math.abs(log.coef[j]) / log.scale; // a run from zero weights learns with steps of 1
  moveState(state, log.data.points[i], step, log.data.labels[i], rival, biasStep);
}

function scaledState({weight, bias}, scale) {
  const times = (values) => values.map((value) => value * scale);
  return {weight: weight.map(times), bias: times(bias)};
}

// Calls use(state, t) with every state from the start to the last, before scaling: one object, moved on from call to call.
function forEachState(log, use) {
  const state = copyState(log.start);
  use(state, 0);
  for (let j = 0; j < log.index.length; j++) {
    replayMistake(log, state, j);
    use(state, j + 1);
  }
}

// The mean of the weights after each presented sample: every state counts as often as the samples it survived.
function averaged(log) {
  const counts = log.steps ? survivals(log) : [1];
  const sums = zeroStart(log.data.classes);
  forEachState(log, ({weight, bias}, t) => weight.forEach((row, k) => {
    sums.weight[k] = sums.weight[k].map((sum, j) => sum + counts[t] * row[j]);
    sums.bias[k] += counts[t] * bias[k];
  }));
  const mean = (values) => values.map((sum) => (sum / Math.max(1, log.steps)) * log.scale);
  return {weight: sums.weight.map(mean), bias: mean(sums.bias)};
}

// The vote of all states, each as often as the number of samples it survived: a function x → class 0 .. K−1.
function voted(log) {
  const voters = votersOf(log);
  return (x) => {
    const votes = new Array(log.data.classes).fill(0);
    for (const {state, count} of voters) votes[classAt(state, x)] += count;
    const most = Math.max(...votes);
    return log.classes === null ? votes.lastIndexOf(most) : votes.indexOf(most); // as scores of 0, and equal scores, decide
  };
}

// All states that survived a sample, equal ones together: [{state, count}, ...].
function votersOf(log) {
  const [counts, voters] = [log.steps ? survivals(log) : [1], new Map()];
  forEachState(log, (state, t) => {
    const key = stateKey(state);
    if (!voters.has(key)) voters.set(key, {state: copyState(state), count: 0});
    voters.get(key).count += counts[t];
  });
  return [...voters.values()].filter(({count}) => count > 0);
}

// How many samples each state survived, from the start to the last: t + 1 numbers (the votes it has).
function survivals(log) {
  const moments = [0, ...log.step, log.steps];
  return moments.slice(1).map((moment, t) => moment - moments[t]);
}

// How many mistakes had been made when the pocket weights came up (Gallant): weights with a longer run without a mistake
// than the pocket's take its place if they have fewer errors. Without any run, the first weights with the fewest errors.
function pocketIndex(log) {
  if (log.projection) return log.projection.pocket;
  if (log.steps === log.index.length) {
    const errors = errorsOfStates(log);
    return errors.indexOf(errors.reduce((least, count) => Math.min(least, count), Infinity));
  }
  const runs = survivals(log).map((count, t) => (t ? count - 1 : count)); // without the sample that a state learned from
  let [pocket, run, fewest] = isZeroStart(log.start) ? [0, 0, log.data.points.length] : [0, -1, Infinity]; // a good start stays
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

// The number of mistakes in each epoch.
function mistakesByEpoch(log) {
  const counts = new Array(log.epochEnds.length).fill(0);
  let epoch = 0;
  for (const step of log.step) {
    while (log.epochEnds[epoch] <= step) epoch += 1;
    counts[epoch] += 1;
  }
  return counts;
}

// The epoch (from 0) that mistake j (from 0) was made in.
function epochOf(log, j) {
  return log.epochEnds.findIndex((end) => end > log.step[j]);
}

// The best bounds {lower, upper} on γ* after each number of mistakes, which only ever close; upper ≤ 0 proves that nothing
// separates the data. As tp.theory.bracket: margin(w_t) ≤ γ* ≤ ‖w_t − w₀‖/Σ|c|, the bias counted.
function bestBrackets(log) {
  if (log.projection) {
    return log.projection.brackets.map(([lower, upper]) => ({lower: lower ?? -Infinity, upper: upper ?? Infinity}));
  }
  return keptFor(log, "brackets", () => {
    const [best, {points, labels, classes}] = [[], log.data];
    const chosen = hullsOf(log.data, wholePoints(points).whole).flat(); // the least slack is that of a corner of a hull
    const corners = {points: chosen.map((i) => points[i]), labels: chosen.map((i) => labels[i]), classes};
    let [lower, upper, total] = [-Infinity, Infinity, 0];
    forEachState(log, (state, t) => {
      if (t) total += Math.abs(log.coef[t - 1]);
      const now = bracketOf(log, scaledState(state, log.scale), total, corners);
      lower = Math.max(lower, now.lower);
      upper = Math.min(upper, now.upper);
      best.push({lower, upper});
    });
    return best;
  });
}

// lower is −Infinity for zero weights, and for a bias that the bias step "none" never changes. Why upper holds: a unit
// vector u of margin γ* gains at least c·γ* with each mistake, so γ*·Σ|c| ≤ u·(w − w₀) ≤ ‖w − w₀‖.
function bracketOf({biasScale, start}, state, total, data) {
  const length = lengthOf(state, biasScale);
  const fixedBias = biasScale === 0 && state.bias.some((value) => value !== 0);
  const least = data.points.reduce((most, x, i) => Math.min(most, slackAt(state, x, data.labels[i])), Infinity);
  const moved = {
    weight: state.weight.map((row, k) => row.map((value, j) => value - start.weight[k][j])),
    bias: state.bias.map((value, k) => value - start.bias[k]),
  };
  return {
    lower: length > 0 && !fixedBias ? least / length : -Infinity,
    upper: total > 0 ? lengthOf(moved, biasScale) / total : Infinity,
  };
}

// ‖(w, b)‖ where the update happens: √(‖w‖² + b²/β), because a bias step of β is a constant feature of √β.
function lengthOf({weight, bias}, biasScale) {
  const squares = (values) => values.reduce((sum, value) => sum + value * value, 0);
  return Math.sqrt(squares(weight.flat()) + (biasScale ? squares(bias) / biasScale : 0));
}

function logToJson(log) {
  const {tie, biasStep, order, seed, lr, margin, maxEpochs} = log.conventions;
  return {
    format: LOG_FORMAT, version: LOG_VERSION,
    points: log.data.points, labels: log.classes === null ? log.data.labels.map(signOfClass) : log.data.labels,
    classes: log.classes, bias_scale: log.biasScale, scale: log.scale, start: log.start,
    index: log.index, step: log.step, coef: log.coef, wrong: log.wrong, steps: log.steps, epoch_ends: log.epochEnds,
    verdict: log.verdict, cycle: log.cycle,
    conventions: {tie, bias_step: biasStep, order, seed, lr, margin, max_epochs: maxEpochs},
    ...(log.projection ? {projection: log.projection} : {}),
  };
}

// A log from that JSON, which Python has checked, with scores made anew.
function logFromJson({points, labels, classes, bias_scale: biasScale, epoch_ends: epochEnds, conventions, projection = null, ...same}) {
  const {bias_step: biasStep, max_epochs: maxEpochs, ...known} = conventions;
  const indices = classes === null ? labels.map((label) => (label + 1) / 2) : labels;
  const log = {
    ...same, classes, biasScale, epochEnds, projection, data: {points, labels: indices, classes: classes ?? 2},
    conventions: {...defaultConventions(), ...known, biasStep, maxEpochs, start: same.start}, scores: projection?.scores ?? [],
  };
  if (projection) return log;
  forEachState(log, (state, t) => {
    if (t < log.index.length) log.scores.push(scoresAt(state, points[log.index[t]]).map((score) => score * log.scale));
  });
  return log;
}
