// Gradient descent on nets 2 → 1 and 2 → H → 1 with three heads, and the loss surface over (w1, w2). No DOM here.
//
// Samples are {points: [[x1, x2], ...], signs: [-1 | +1, ...]}. A net is {weight, bias}, with s = weight·h + bias, and
// {hidden: {activation, weight: [[..2], ...H], bias: [..H]}} if there is a hidden layer; without one, h is the point.
// These are the numbers that tp.Perceptron(2) and tp.MLP(2, hidden=(H,)) keep. A gradient has the same entries.
// Settings are {head, tie, lr, mode, batchSize, order, seed, start}, with the names that torchperc uses; tie is the
// derivative at the kink. A start without weights is drawn by {activation, hidden, seed}.

const HEADS = ["perceptron", "lms", "logistic"];
const DESCENT_MODES = ["batch", "stochastic", "minibatch"];
// The derivative is made from what goes into the activation and what comes out; 0 at the kink of relu, as in torch.
const ACTIVATIONS = {
  tanh: {value: Math.tanh, slope: (inner, outer) => 1 - outer * outer},
  sigmoid: {value: (s) => (s >= 0 ? 1 / (1 + Math.exp(-s)) : Math.exp(s) / (1 + Math.exp(s))), slope: (inner, outer) => outer * (1 - outer)},
  relu: {value: (s) => Math.max(0, s), slope: (inner) => Number(inner > 0)},
};
const MAX_STEPS = 10000;
const DIVERGED = 1e9; // a loss that has grown so many times will not come back
const STILL = 1e-9; // a gradient this short is zero but for rounding
const PLATEAU = 100; // steps in which the loss fell by less than 1 %

// The loss of one sample: max(0, −y·s), ½(y − s)² or log(1 + exp(−y·s)), the last without overflow.
function sampleLoss(head, score, sign) {
  const slack = sign * score;
  if (head === "perceptron") return Math.max(0, -slack);
  if (head === "lms") return (sign - score) ** 2 / 2;
  return Math.max(0, -slack) + Math.log1p(Math.exp(-Math.abs(slack)));
}

// dℓ/ds of one sample.
function sampleSlope(head, score, sign, tie = "update") {
  if (head === "perceptron") { // at the kink y·s = 0 the derivative is a choice
    const moves = sign * score < 0 || (score === 0 && (tie === "update" || (tie === "sign" && sign < 0)));
    return moves ? -sign : 0;
  }
  if (head === "lms") return score - sign;
  const small = Math.exp(-Math.abs(score));
  return -sign * (sign * score > 0 ? small / (1 + small) : 1 / (1 + small));
}

// The start of tp.MLP(2, hidden=(H,), init="uniform", seed=seed, dtype=torch.float64): every weight from U(−1, 1), which
// torch draws from the lower 53 of 64 random bits.
function startNet({hidden, activation, seed}) {
  const random = new TorchGenerator(seed);
  const draw = (count) => everyNumber(count).map(() => ((random.next() & 0x1fffff) * 2 ** 32 + random.next()) * 2 ** -52 - 1);
  const flat = draw(2 * hidden);
  const weight = everyNumber(hidden).map((k) => flat.slice(2 * k, 2 * k + 2));
  const layer = {activation, weight, bias: draw(hidden)};
  return {hidden: layer, weight: draw(hidden), bias: draw(1)[0]};
}

// What goes into the hidden units, what comes out of them (the point itself without any), and the score.
function forwardNet({hidden, weight, bias}, point) {
  if (!hidden) return {outer: point, score: weight[0] * point[0] + weight[1] * point[1] + bias};
  const inner = hidden.weight.map((row, k) => row[0] * point[0] + row[1] * point[1] + hidden.bias[k]);
  const outer = inner.map(ACTIVATIONS[hidden.activation].value);
  return {inner, outer, score: outer.reduce((sum, value, k) => sum + value * weight[k], 0) + bias};
}

const netScore = (net, point) => forwardNet(net, point).score;

// The mean loss over all samples, and how many decisions are wrong, where s ≥ 0 decides for +1.
function netFigures(net, samples, head) {
  let [loss, errors] = [0, 0];
  samples.points.forEach((point, i) => {
    const score = netScore(net, point);
    loss += sampleLoss(head, score, samples.signs[i]);
    errors += Number((score >= 0 ? 1 : -1) !== samples.signs[i]);
  });
  return {loss: loss / samples.points.length, errors};
}

// A net with every number changed: change(own) or change(own, other's), layer by layer.
function mapNet(net, change, other = null) {
  const vectors = (own, theirs) => own.map((value, k) => change(value, theirs?.[k]));
  const made = {weight: vectors(net.weight, other?.weight), bias: change(net.bias, other?.bias)};
  if (!net.hidden) return made;
  const {activation, weight, bias} = net.hidden;
  const rows = weight.map((row, k) => vectors(row, other?.hidden.weight[k]));
  return {...made, hidden: {activation, weight: rows, bias: vectors(bias, other?.hidden.bias)}};
}

// Mean loss over a batch of sample numbers and its gradient by the chain rule.
function netGradient(net, samples, head, tie, batch) {
  const sum = mapNet(net, () => 0);
  let loss = 0;
  for (const i of batch) {
    const point = samples.points[i];
    const {inner, outer, score} = forwardNet(net, point);
    const slope = sampleSlope(head, score, samples.signs[i], tie);
    loss += sampleLoss(head, score, samples.signs[i]);
    sum.bias += slope;
    outer.forEach((value, k) => {
      sum.weight[k] += slope * value;
      if (!net.hidden) return;
      const back = slope * net.weight[k] * ACTIVATIONS[net.hidden.activation].slope(inner[k], value);
      sum.hidden.bias[k] += back;
      sum.hidden.weight[k][0] += back * point[0];
      sum.hidden.weight[k][1] += back * point[1];
    });
  }
  return {...mapNet(sum, (value) => value / batch.length), loss: loss / batch.length};
}

function gradientNorm({hidden, weight, bias}) {
  return Math.hypot(...(hidden ? [...hidden.weight.flat(), ...hidden.bias] : []), ...weight, bias);
}

function batchLength(settings, count) {
  if (settings.mode === "batch") return count;
  return settings.mode === "stochastic" ? 1 : Math.max(1, Math.min(settings.batchSize, count));
}

function stepsPerEpoch(settings, count) {
  return Math.ceil(count / batchLength(settings, count));
}

// Gives one batch of sample numbers after the other; shuffled epochs are those that RuleTrainer presents.
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

// A path: states[t] is the net after t steps, with losses and wrong decisions over all samples, and moves[t] the batch and
// gradient that lead to states[t + 1]. `ended` is null, "still" (an epoch without a gradient), "diverged" or "limit".
function startPath(samples, settings) {
  const path = {samples, settings, states: [], losses: [], errors: [], moves: [], ended: null};
  path.feed = batchFeeder(samples.points.length, settings);
  path.quiet = 0; // steps since the weights last moved
  const net = settings.start ? mapNet(settings.start, (value) => value) : startNet(settings);
  return recordState(path, net);
}

function recordState(path, net, {loss, errors} = netFigures(net, path.samples, path.settings.head)) {
  path.states.push(net);
  path.losses.push(loss);
  path.errors.push(errors);
  return path;
}

// Steps are made when they are asked for; returns how far the path reaches.
function extendPath(path, steps) {
  while (path.states.length <= steps && !path.ended) pathStep(path);
  return path.states.length - 1;
}

function pathStep(path) {
  const {samples, settings} = path;
  const net = path.states[path.states.length - 1];
  const batch = path.feed();
  const gradient = netGradient(net, samples, settings.head, settings.tie, batch);
  const next = mapNet(net, (value, slope) => value - settings.lr * slope, gradient);
  const figures = netFigures(next, samples, settings.head);
  if (!Number.isFinite(figures.loss) || figures.loss > DIVERGED * Math.max(1, path.losses[0])) {
    path.ended = "diverged";
    return;
  }
  path.moves.push({batch, gradient});
  recordState(path, next, figures);
  path.quiet = gradientNorm(gradient) <= STILL ? path.quiet + 1 : 0;
  const epoch = stepsPerEpoch(settings, samples.points.length);
  if (!net.hidden && path.moves.length % epoch === 0 && path.quiet >= epoch) path.ended = "still";
  else if (path.states.length > MAX_STEPS) path.ended = "limit";
}

// Hidden units whose output and slope are 0 at every sample: no gradient reaches their weights any more.
function deadUnits(net, samples) {
  const passes = samples.points.map((point) => forwardNet(net, point));
  const {slope} = ACTIVATIONS[net.hidden.activation];
  const silent = ({inner, outer}, k) => outer[k] === 0 && slope(inner[k], outer[k]) === 0;
  return everyNumber(net.hidden.bias.length).filter((k) => passes.every((pass) => silent(pass, k)));
}

// "solved", "dead" (a unit is dead), "plateau" (the loss hardly falls any more, and decisions are wrong) or "learning".
function pathStanding(path, t) {
  if (path.errors[t] === 0) return "solved";
  if (deadUnits(path.states[t], path.samples).length) return "dead";
  return t >= PLATEAU && path.losses[t] > 0.99 * path.losses[t - PLATEAU] ? "plateau" : "learning";
}

// The largest eigenvalue of the mean of φ·φᵀ with φ = (x1, x2, 1): a high power of the matrix has its direction.
function largestEigenvalue(points) {
  const axes = [0, 1, 2];
  const moment = (i, j) => points.reduce((sum, x) => sum + (x[i] ?? 1) * (x[j] ?? 1), 0) / points.length;
  const matrix = axes.map((i) => axes.map((j) => moment(i, j)));
  const trace = (m) => m[0][0] + m[1][1] + m[2][2];
  let power = matrix;
  for (let k = 0; k < 50; k++) { // of a trace of 1, so that nothing overflows
    const square = axes.map((i) => axes.map((j) => axes.reduce((sum, m) => sum + power[i][m] * power[m][j], 0)));
    power = square.map((row) => row.map((value) => value / trace(square)));
  }
  return axes.reduce((sum, i) => sum + axes.reduce((part, j) => part + matrix[i][j] * power[j][i], 0), 0);
}

// The limit 2/L on the learning rate, L a bound on the curvature, as tp.theory.step_limit: infinite for the criterion.
function stepLimit(head, points, size) {
  if (head === "perceptron") return Infinity;
  const count = points.length;
  const longest = points.reduce((most, [x1, x2]) => Math.max(most, x1 * x1 + x2 * x2 + 1), 1);
  const smallest = count % size || size;
  const curvature = size > 1 ? Math.min(longest, (count * largestEigenvalue(points)) / smallest) : longest;
  return 2 / ((head === "lms" ? 1 : 0.25) * curvature);
}

// The lowest point of the LMS loss by its normal equations, about the mean of the points; with a bias given, of the slice
// at that bias. null where the points leave it open (they lie on one line, or are too few).
function lmsOptimum({points, signs}, bias = null) {
  const mean = (value) => points.reduce((sum, point, i) => sum + value(point, signs[i]), 0) / points.length;
  const middle = bias === null ? [mean((x) => x[0]), mean((x) => x[1])] : [0, 0];
  const level = bias ?? mean((_, y) => y);
  const moment = (i, j) => mean((x) => (x[i] - middle[i]) * (x[j] - middle[j]));
  const [a, b, c] = [moment(0, 0), moment(0, 1), moment(1, 1)];
  const [right1, right2] = [0, 1].map((j) => mean((x, y) => (x[j] - middle[j]) * (y - level)));
  const determinant = a * c - b * b;
  if (determinant <= 1e-12 * a * c) return null;
  const weight = [(c * right1 - b * right2) / determinant, (a * right2 - b * right1) / determinant];
  return {weight, bias: bias ?? level - weight[0] * middle[0] - weight[1] * middle[1]};
}

// So many cells between two ends.
function gridAxis([lo, hi], cells) {
  return everyNumber(cells + 1).map((k) => lo + ((hi - lo) * k) / cells);
}

// The values of a function on a grid over a frame: values[row][column] at (first[column], second[row]).
function gridOf({x, y}, cells, value) {
  const [first, second] = [gridAxis(x, cells), gridAxis(y, cells)];
  return {first, second, values: second.map((up) => first.map((across) => value([across, up])))};
}

// Mean loss over (w1, w2) at a fixed bias, with its lowest and highest value.
function lossSurface(samples, head, bias, frame, cells) {
  const grid = gridOf(frame, cells, (weight) => netFigures({weight, bias}, samples, head).loss);
  const flat = grid.values.flat();
  return {...grid, low: Math.min(...flat), high: Math.max(...flat)};
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
