// Gradient descent on a linear score s = w·x + b with three heads, and the loss surface over (w1, w2). No DOM here.
//
// Samples are {points: [[x1, x2], ...], signs: [-1 | +1, ...]}, a state is {weight: [w1, w2], bias: b}.
// Settings are {head, tie, lr, mode, batchSize, order, seed, start}, with the names that torchperc uses:
// head "perceptron" | "lms" | "logistic", tie "update" | "sign" | "strict" (the derivative at the kink),
// mode "batch" | "stochastic" | "minibatch", order "given" | "shuffled" (a new permutation per epoch).

const HEADS = ["perceptron", "lms", "logistic"];
const DESCENT_MODES = ["batch", "stochastic", "minibatch"];
const MAX_DESCENT_STEPS = 5000;
const DIVERGED = 1e9; // a loss that has grown so many times will not come back
const STILL = 1e-9; // a gradient this short is zero but for rounding

// --- samples, scores, losses ---------------------------------------------------------------------------------------

// Labels −1/+1 out of class numbers: one class is +1, all others are −1.
function signedSamples(data, positive = 1) {
  return {points: data.points, signs: data.labels.map((label) => (label === positive ? 1 : -1))};
}

function linearScore(state, point) {
  return state.weight[0] * point[0] + state.weight[1] * point[1] + state.bias;
}

// Whether the criterion's derivative is −y (and not 0) at this score; at y·s = 0 that is a choice, the tie.
function criterionMoves(score, sign, tie) {
  const slack = sign * score;
  return slack < 0 || (slack === 0 && (tie === "update" || (tie === "sign" && sign < 0)));
}

// The loss of one sample: max(0, −y·s), ½(y − s)² or log(1 + exp(−y·s)), the last without overflow.
function sampleLoss(head, score, sign) {
  const slack = sign * score;
  if (head === "perceptron") return Math.max(0, -slack);
  if (head === "lms") return (sign - score) ** 2 / 2;
  return Math.max(0, -slack) + Math.log1p(Math.exp(-Math.abs(slack)));
}

// dℓ/ds of one sample.
function sampleSlope(head, score, sign, tie = "update") {
  if (head === "perceptron") return criterionMoves(score, sign, tie) ? -sign : 0;
  if (head === "lms") return score - sign;
  const small = Math.exp(-Math.abs(score));
  return -sign * (sign * score > 0 ? small / (1 + small) : 1 / (1 + small));
}

function meanLoss(samples, state, head) {
  let total = 0;
  samples.points.forEach((point, i) => (total += sampleLoss(head, linearScore(state, point), samples.signs[i])));
  return total / samples.points.length;
}

// How many decisions are wrong, where s ≥ 0 decides for +1.
function wrongDecisions(samples, state) {
  return samples.points.filter((point, i) => (linearScore(state, point) >= 0 ? 1 : -1) !== samples.signs[i]).length;
}

// Mean loss over a batch of sample numbers and its gradient (1/|B|) Σ ℓ'(s)·(x, 1).
function lossGradient(samples, state, head, tie, batch) {
  const sum = {loss: 0, weight: [0, 0], bias: 0};
  for (const i of batch) {
    const point = samples.points[i];
    const score = linearScore(state, point);
    const slope = sampleSlope(head, score, samples.signs[i], tie);
    sum.loss += sampleLoss(head, score, samples.signs[i]);
    sum.weight[0] += slope * point[0];
    sum.weight[1] += slope * point[1];
    sum.bias += slope;
  }
  const count = batch.length;
  return {loss: sum.loss / count, weight: sum.weight.map((value) => value / count), bias: sum.bias / count};
}

function gradientNorm(gradient) {
  return Math.hypot(gradient.weight[0], gradient.weight[1], gradient.bias);
}

// w ← w − η·∇L
function descended(state, gradient, lr) {
  return {
    weight: state.weight.map((value, j) => value - lr * gradient.weight[j]),
    bias: state.bias - lr * gradient.bias,
  };
}

// --- batches -------------------------------------------------------------------------------------------------------

function everyNumber(count) {
  return Array.from({length: count}, (_, i) => i);
}

function batchLength(settings, count) {
  if (settings.mode === "batch") return count;
  return settings.mode === "stochastic" ? 1 : Math.max(1, Math.min(settings.batchSize, count));
}

function stepsPerEpoch(settings, count) {
  return Math.ceil(count / batchLength(settings, count));
}

// Gives one batch of sample numbers after the other, epoch after epoch; the last of an epoch may be smaller.
// Shuffled epochs are those that RuleTrainer(order="shuffled", seed=...) presents.
function batchFeeder(count, settings) {
  const size = batchLength(settings, count);
  const shuffled = settings.mode !== "batch" && settings.order === "shuffled";
  const random = new TorchGenerator(settings.seed ?? 0);
  let queue = [];
  return () => {
    if (!queue.length) queue = shuffled ? random.permutation(count) : everyNumber(count);
    return queue.splice(0, size);
  };
}

// --- the path of a run ---------------------------------------------------------------------------------------------

// A path: states[t] after t steps with the mean loss and the wrong decisions over all samples, and moves[t], the
// batch and gradient that lead from states[t] to states[t + 1]. `ended` is null, "still" (a whole epoch without any gradient),
// "diverged" or "limit".
function startPath(samples, settings) {
  const path = {samples, settings, states: [], losses: [], errors: [], moves: [], ended: null};
  path.feed = batchFeeder(samples.points.length, settings);
  path.quiet = 0; // steps since the weights last moved
  recordState(path, {weight: [...settings.start.weight], bias: settings.start.bias});
  return path;
}

function recordState(path, state) {
  path.states.push(state);
  path.losses.push(meanLoss(path.samples, state, path.settings.head));
  path.errors.push(wrongDecisions(path.samples, state));
}

// Steps are made when they are asked for; returns how far the path reaches.
function extendPath(path, steps) {
  while (path.states.length <= steps && !path.ended) pathStep(path);
  return path.states.length - 1;
}

function pathStep(path) {
  const {samples, settings} = path;
  const state = path.states[path.states.length - 1];
  const batch = path.feed();
  const gradient = lossGradient(samples, state, settings.head, settings.tie, batch);
  const next = descended(state, gradient, settings.lr);
  const loss = meanLoss(samples, next, settings.head);
  if (!Number.isFinite(loss) || loss > DIVERGED * Math.max(1, path.losses[0])) {
    path.ended = "diverged";
    return;
  }
  path.moves.push({batch, gradient});
  recordState(path, next);
  path.quiet = gradientNorm(gradient) <= STILL ? path.quiet + 1 : 0;
  const epoch = stepsPerEpoch(settings, samples.points.length);
  if (path.moves.length % epoch === 0 && path.quiet >= epoch) path.ended = "still";
  else if (path.states.length > MAX_DESCENT_STEPS) path.ended = "limit";
}

// --- what theory says ----------------------------------------------------------------------------------------------

// The largest eigenvalue of the mean of φ·φᵀ with φ = (x1, x2, 1), by the trigonometric formula for 3 × 3 matrices.
function largestEigenvalue(points) {
  const m = secondMoments(points);
  const off = m[0][1] ** 2 + m[0][2] ** 2 + m[1][2] ** 2;
  const mean = (m[0][0] + m[1][1] + m[2][2]) / 3;
  const spread = Math.sqrt(((m[0][0] - mean) ** 2 + (m[1][1] - mean) ** 2 + (m[2][2] - mean) ** 2 + 2 * off) / 6);
  if (spread === 0) return mean;
  const scaled = m.map((row, i) => row.map((value, j) => (value - (i === j ? mean : 0)) / spread));
  const half = Math.max(-1, Math.min(1, determinant3(scaled) / 2));
  return mean + 2 * spread * Math.cos(Math.acos(half) / 3);
}

function secondMoments(points) {
  const rows = points.map(([x1, x2]) => [x1, x2, 1]);
  const mean = (i, j) => rows.reduce((sum, row) => sum + row[i] * row[j], 0) / rows.length;
  return [0, 1, 2].map((i) => [0, 1, 2].map((j) => mean(i, j)));
}

function determinant3([[a, b, c], [d, e, f], [g, h, i]]) {
  return a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g);
}

// The limit 2/L on the learning rate, L a bound on the curvature, as tp.theory.step_limit: infinite for the criterion.
function stepLimit(head, points, size) {
  if (head === "perceptron") return Infinity;
  const count = points.length;
  const longest = Math.max(...points.map(([x1, x2]) => x1 * x1 + x2 * x2 + 1));
  const smallest = count % size || size;
  const curvature = size > 1 ? Math.min(longest, (count * largestEigenvalue(points)) / smallest) : longest;
  return 2 / ((head === "lms" ? 1 : 0.25) * curvature);
}

// The lowest point of the LMS loss by its normal equations; with a bias given, of the slice at that bias.
// null where the points leave it open (they lie on one line, or are too few).
function lmsOptimum(samples, bias = null) {
  const moments = secondMoments(samples.points);
  const mean = (value) => samples.points.reduce((sum, point, i) => sum + value(point, samples.signs[i]), 0) / samples.points.length;
  const right = [mean(([x1], y) => x1 * y), mean(([, x2], y) => x2 * y), mean((_, y) => y)];
  if (bias === null) {
    const found = solveLinear(moments, right);
    return found && {weight: [found[0], found[1]], bias: found[2]};
  }
  const matrix = [0, 1].map((i) => [moments[i][0], moments[i][1]]);
  const found = solveLinear(matrix, [0, 1].map((i) => right[i] - moments[i][2] * bias));
  return found && {weight: found, bias};
}

// Gaussian elimination with the largest pivot; null if the matrix is singular but for rounding.
function solveLinear(matrix, right) {
  const size = right.length;
  const rows = matrix.map((row, i) => [...row, right[i]]);
  const scale = Math.max(...matrix.flat().map(Math.abs));
  for (let k = 0; k < size; k++) {
    const pivot = everyNumber(size).slice(k).reduce((best, i) => (Math.abs(rows[i][k]) > Math.abs(rows[best][k]) ? i : best), k);
    if (Math.abs(rows[pivot][k]) <= 1e-12 * scale) return null;
    [rows[k], rows[pivot]] = [rows[pivot], rows[k]];
    for (let i = 0; i < size; i++) {
      if (i === k) continue;
      const factor = rows[i][k] / rows[k][k];
      for (let j = k; j <= size; j++) rows[i][j] -= factor * rows[k][j];
    }
  }
  return rows.map((row, i) => row[size] / row[i]);
}

// --- the loss surface ----------------------------------------------------------------------------------------------

// Mean loss on a grid of (w1, w2) at a fixed bias: values[row][column] at w2 = box.low[1] + row·step, w1 likewise.
function lossSurface(samples, head, bias, box, cells) {
  const axis = (j) => Array.from({length: cells + 1}, (_, k) => box.low[j] + ((box.high[j] - box.low[j]) * k) / cells);
  const [first, second] = [axis(0), axis(1)];
  const values = second.map((w2) => first.map((w1) => meanLoss(samples, {weight: [w1, w2], bias}, head)));
  const flat = values.flat();
  return {first, second, values, low: Math.min(...flat), high: Math.max(...flat)};
}

// Levels for contour lines: closer together near the lowest loss, where the surface is flat.
function contourLevels(surface, count) {
  const range = surface.high - surface.low;
  return everyNumber(count).map((k) => surface.low + range * ((k + 1) / (count + 1)) ** 2);
}

// The line values = level on a grid as segments [[x, y], [x, y]], cell by cell (marching squares).
function contourSegments(surface, level) {
  const {first, second, values} = surface;
  const segments = [];
  for (let row = 0; row + 1 < second.length; row++) {
    for (let column = 0; column + 1 < first.length; column++) {
      const corners = [[column, row], [column + 1, row], [column + 1, row + 1], [column, row + 1]];
      const crossings = [];
      corners.forEach((from, k) => {
        const to = corners[(k + 1) % 4];
        const [a, b] = [values[from[1]][from[0]] - level, values[to[1]][to[0]] - level];
        if (a < 0 === b < 0) return;
        const part = a / (a - b);
        const between = (axis, j) => axis[from[j]] + part * (axis[to[j]] - axis[from[j]]);
        crossings.push([between(first, 0), between(second, 1)]);
      });
      for (let k = 0; k + 1 < crossings.length; k += 2) segments.push([crossings[k], crossings[k + 1]]);
    }
  }
  return segments;
}
