// A net with one hidden layer, 2 → H → 1, with the heads of descent.js: forward, gradient by hand, steps. No DOM here.
//
// A net is plain JSON, {activation, weight1: [[..2], ...H], bias1: [..H], weight2: [..H], bias2}, with the numbers that
// tp.MLP(2, hidden=(H,), activation=...) keeps in layers[0] and layers[1]. A gradient has the same entries.
// Settings are those of descent.js, and {activation, hidden}; `seed` gives the start, too, unless `start` is a net.

const ACTIVATIONS = ["tanh", "sigmoid", "relu"];
const MAX_NET_STEPS = 10000;
const PLATEAU = 100; // steps in which the loss fell by less than 1 %

// Starts on XOR and how they stand after 600 steps of batch descent on the logistic loss.
const NET_STARTS = [
  {id: "tanh", activation: "tanh", hidden: 2, seed: 0, lr: 1, standing: "solved"},
  {id: "slow", activation: "tanh", hidden: 2, seed: 10, lr: 1, standing: "solved"},
  {id: "stuck", activation: "tanh", hidden: 2, seed: 3, lr: 1, standing: "plateau"},
  {id: "sigmoid", activation: "sigmoid", hidden: 2, seed: 2, lr: 5, standing: "solved"},
  {id: "relu", activation: "relu", hidden: 2, seed: 4, lr: 1, standing: "solved"},
  {id: "dead", activation: "relu", hidden: 2, seed: 1, lr: 1, standing: "dead"},
];

function activate(name, value) {
  if (name === "tanh") return Math.tanh(value);
  if (name === "relu") return Math.max(0, value);
  return value >= 0 ? 1 / (1 + Math.exp(-value)) : Math.exp(value) / (1 + Math.exp(value));
}

// The derivative, from what goes into the activation and what comes out; 0 at the kink of relu, as in torch.
function activationSlope(name, inner, outer) {
  if (name === "tanh") return 1 - outer * outer;
  return name === "relu" ? Number(inner > 0) : outer * (1 - outer);
}

// The start of tp.MLP(2, hidden=(H,), init="uniform", seed=seed, dtype=torch.float64): every weight from U(−1, 1).
function startNet({hidden, activation, seed}) {
  const random = new TorchGenerator(seed);
  const draw = (count) => everyNumber(count).map(() => 2 * uniformDraw(random) - 1);
  const flat = draw(2 * hidden);
  const weight1 = everyNumber(hidden).map((k) => flat.slice(2 * k, 2 * k + 2));
  return {activation, weight1, bias1: draw(hidden), weight2: draw(hidden), bias2: draw(1)[0]};
}

// The next number from U(0, 1) as torch draws it in float64: the lower 53 of 64 random bits.
function uniformDraw(random) {
  const upper = random.next() & 0x1fffff;
  return (upper * 2 ** 32 + random.next()) * 2 ** -53;
}

// --- forward and backward ------------------------------------------------------------------------------------------

// What goes into the hidden units, what comes out of them, and the score.
function forwardNet(net, point) {
  const inner = net.weight1.map((row, k) => row[0] * point[0] + row[1] * point[1] + net.bias1[k]);
  const outer = inner.map((value) => activate(net.activation, value));
  return {inner, outer, score: outer.reduce((sum, value, k) => sum + value * net.weight2[k], 0) + net.bias2};
}

function netScore(net, point) {
  return forwardNet(net, point).score;
}

function zeroGradient(net) {
  const zeros = net.bias1.map(() => 0);
  return {loss: 0, weight1: net.weight1.map(() => [0, 0]), bias1: [...zeros], weight2: [...zeros], bias2: 0};
}

// Mean loss over a batch and its gradient by the chain rule: with e = ℓ'(s)/|B|,
// ∂L/∂v_k = e·h_k, ∂L/∂c = e, ∂L/∂b_k = e·v_k·f'(a_k), ∂L/∂w_k = e·v_k·f'(a_k)·x, summed over the batch.
function netGradient(net, samples, head, tie, batch) {
  const sum = zeroGradient(net);
  for (const i of batch) {
    const point = samples.points[i];
    const {inner, outer, score} = forwardNet(net, point);
    const slope = sampleSlope(head, score, samples.signs[i], tie) / batch.length;
    sum.loss += sampleLoss(head, score, samples.signs[i]) / batch.length;
    sum.bias2 += slope;
    outer.forEach((value, k) => {
      const back = slope * net.weight2[k] * activationSlope(net.activation, inner[k], value);
      sum.weight2[k] += slope * value;
      sum.bias1[k] += back;
      sum.weight1[k][0] += back * point[0];
      sum.weight1[k][1] += back * point[1];
    });
  }
  return sum;
}

function netNumbers(net) {
  return [...net.weight1.flat(), ...net.bias1, ...net.weight2, net.bias2];
}

function descendedNet(net, gradient, lr) {
  const less = (values, slopes) => values.map((value, k) => value - lr * slopes[k]);
  return {
    activation: net.activation,
    weight1: net.weight1.map((row, k) => less(row, gradient.weight1[k])),
    bias1: less(net.bias1, gradient.bias1),
    weight2: less(net.weight2, gradient.weight2),
    bias2: net.bias2 - lr * gradient.bias2,
  };
}

// --- a run ---------------------------------------------------------------------------------------------------------

// A run keeps every net on its way: nets[t] after t steps, with loss and wrong decisions over all samples.
// `ended` is null, "diverged" or "limit".
function startRun(samples, settings) {
  const run = {samples, settings, nets: [], losses: [], errors: [], ended: null};
  run.feed = batchFeeder(samples.points.length, settings);
  const net = settings.start ?? startNet(settings);
  recordNet(run, net, netFigures(net, samples, settings.head));
  return run;
}

function recordNet(run, net, {loss, errors}) {
  run.nets.push(net);
  run.losses.push(loss);
  run.errors.push(errors);
}

function netFigures(net, samples, head) {
  let [loss, errors] = [0, 0];
  samples.points.forEach((point, i) => {
    const score = netScore(net, point);
    loss += sampleLoss(head, score, samples.signs[i]);
    errors += Number((score >= 0 ? 1 : -1) !== samples.signs[i]);
  });
  return {loss: loss / samples.points.length, errors};
}

// Steps are made when they are asked for; returns how far the run reaches.
function extendRun(run, steps) {
  while (run.nets.length <= steps && !run.ended) runStep(run);
  return run.nets.length - 1;
}

function runStep(run) {
  const {samples, settings} = run;
  const net = run.nets[run.nets.length - 1];
  const next = descendedNet(net, netGradient(net, samples, settings.head, settings.tie, run.feed()), settings.lr);
  const figures = netFigures(next, samples, settings.head);
  if (!Number.isFinite(figures.loss) || figures.loss > DIVERGED * Math.max(1, run.losses[0])) {
    run.ended = "diverged";
    return;
  }
  recordNet(run, next, figures);
  if (run.nets.length > MAX_NET_STEPS) run.ended = "limit";
}

// --- how a net stands ----------------------------------------------------------------------------------------------

// Hidden units whose output and slope are 0 at every sample: no gradient reaches their weights any more.
function deadUnits(net, samples) {
  const passes = samples.points.map((point) => forwardNet(net, point));
  const silent = ({inner, outer}, k) => outer[k] === 0 && activationSlope(net.activation, inner[k], outer[k]) === 0;
  return everyNumber(net.bias1.length).filter((k) => passes.every((pass) => silent(pass, k)));
}

// "solved", "dead" (a unit is dead), "plateau" (the loss hardly falls any more, and decisions are wrong) or "learning".
function runStanding(run, t) {
  if (run.errors[t] === 0) return "solved";
  if (deadUnits(run.nets[t], run.samples).length) return "dead";
  return t >= PLATEAU && run.losses[t] > 0.99 * run.losses[t - PLATEAU] ? "plateau" : "learning";
}
