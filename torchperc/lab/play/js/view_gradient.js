// Gradient descent to look at: the boundary in the plane of the points beside the loss surface over (w1, w2).

const DESCENT_DEFAULTS = {
  head: "logistic", tie: "update", lr: 1, mode: "batch", batchSize: 4, order: "given", seed: 0,
  start: {weight: [0, 0], bias: 0}, positive: 1, bias: null, at: 0,
};
const FAR_START = {weight: [-2, 1.5], bias: 0.5};
const SURFACE_REACH = 1.25; // of the farthest weights
const BIAS_REACH = 3; // of the slider, or as far as the descent went

// Half the width of the surface: a round number that leaves some room.
function niceCeiling(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((factor) => factor * power).find((rounded) => rounded >= value * 0.999999);
}

const gradientView = {
  id: "gradient",
  defaults: DESCENT_DEFAULTS,
  ...descentView,

  mount(element, store) {
    const pane = (name, attributes) => viewPane(this, name, attributes);
    const titles = ["gradient.planeTitle", "gradient.surfaceTitle", "descent.settings"];
    const [left, right] = this.layOut(element, store, 50, titles, el("section", {class: "card"}, pane("numbers")));
    this.plane = createPlane(left, store, {id: "gradient-plane", label: t("plane.label")});
    left.append(this.transport.element, pane("standing", {class: "standing", role: "status"}), pane("planeKey", {class: "legend"}));
    const weights = () => ({points: [], labels: [], classes: 2, names: ["w₁", "w₂"]});
    this.other = createPlane(right, store, {
      id: "gradient-surface", label: t("gradient.surface"), editable: false, points: false, surface: true, data: weights,
    });
    this.other.options.frame = {x: [-2, 2], y: [-2, 2], even: true};
    this.other.svg.addEventListener("click", (event) => this._startAt(store, this.other.at(event)));
    right.append(this._scaleBar(), this._holdFields(store), pane("surfaceKey", {class: "legend"}));
  },

  python(store) {
    const state = viewState(store, this);
    const {weight, bias} = state.start;
    return pythonDescent(t("python.gradient"), this.path(store).samples, state, [
      "net = tp.Perceptron(2, dtype=torch.float64)",
      "with torch.no_grad():",
      `    net.weight.copy_(torch.tensor([${pythonValue(weight)}], dtype=torch.float64))`,
      `    net.bias.fill_(${pythonNumber(bias)})`,
    ]);
  },

  _startAt(store, [w1, w2]) {
    const {x} = this.other.frame;
    const step = gridStep(x);
    const weight = [w1, w2].map((value) => Math.round(value / step) * step + 0);
    if (!store.problem) this.change(store, {start: {weight, bias: this._heldBias(store)}, at: 0});
  },

  // The bias of the slice: that of the current step unless another was chosen.
  _heldBias(store) {
    const {bias, at} = viewState(store, this);
    return bias ?? this.path(store).states[at].bias;
  },

  _fields(store) {
    const change = (patch) => this.change(store, patch);
    this.fields = descentFields("gradient", ["head", "mode", "batchSize", "order", "seed", "lr", "tie"], change);
    this.positive = positiveField("gradient", change);
    this.startInputs = ["w₁", "w₂", "b"].map((name, k) => numberField(`gradient-start-${k}`, name, {}, (value) => {
      const {weight, bias} = structuredClone(viewState(store, this).start);
      if (k < 2) weight[k] = value;
      change({start: {weight, bias: k < 2 ? bias : value}, at: 0});
    }));
    const begin = (id, key, start) => button(id, t(key), () => change({start, at: 0}));
    this.limit = el("p", {class: "remark", id: "gradient-limit", "data-test": "gradient-limit"});
    return el(
      "div", {class: "conventions"},
      el("div", {class: "fields"}, this.positive.field, ...Object.values(this.fields).map(({field}) => field)),
      this.positive.remark, this.limit,
      el(
        "fieldset", {class: "start"}, el("legend", {}, t("descent.start")),
        el(
          "div", {class: "start-row"}, ...this.startInputs.map(({field}) => field),
          begin("gradient-start-zero", "descent.startZero", DESCENT_DEFAULTS.start),
          begin("gradient-start-far", "descent.startFar", FAR_START),
        ),
        el("p", {class: "remark"}, t("gradient.click")),
      ),
    );
  },

  _holdFields(store) {
    const held = (bias) => changeState(store, this, {bias}); // the picture alone: the player goes on
    this.follow = checkField("gradient-follow", t("gradient.follow"), (on) => held(on ? null : this._heldBias(store)));
    this.biasSlider = el("input", {
      type: "range", id: "gradient-bias", "data-test": "gradient-bias", min: -BIAS_REACH, max: BIAS_REACH, step: 1 / 64,
      oninput: () => held(Number(this.biasSlider.value)),
    });
    this.biasText = el("output", {for: "gradient-bias", "data-test": "gradient-biasText"});
    return el(
      "div", {class: "hold"},
      el("label", {class: "hold-slider", for: "gradient-bias"}, el("span", {}, t("gradient.hold")), this.biasSlider, this.biasText),
      this.follow.field,
      el("p", {class: "remark"}, t("gradient.holdWhy")),
    );
  },

  _scaleBar() {
    const stops = HEAT.map(([r, g, b]) => `rgb(${r} ${g} ${b})`).join(", ");
    [this.lowest, this.highest] = [el("span", {}), el("span", {})];
    return el(
      "div", {class: "scale-bar"}, this.lowest,
      el("span", {class: "scale-colours", style: `background: linear-gradient(to right, ${stops})`, "aria-hidden": "true"}), this.highest,
    );
  },

  panes: ["numbers", "result", "curves", "planeKey"],

  _draw(store, path, at) {
    this._drawPlane(store, path, at);
    this._drawSurface(store, path, at);
    this.numbers.replaceChildren(descentCard(store.data, path, at));
    this._result(path, at);
  },

  _spoken(path, at) {
    const state = path.states[at];
    return t("gradient.said", {
      t: at, loss: short(path.losses[at]), errors: path.errors[at], total: path.samples.points.length,
      weights: weightsText([state.weight], [state.bias]),
    });
  },

  _showFields(store) {
    const {data} = store;
    const gradient = viewState(store, this);
    showDescentFields(this.fields, gradient);
    this.startInputs.forEach(({input}, k) => show(input, k < 2 ? gradient.start.weight[k] : gradient.start.bias));
    this.positive.update(data, gradient.positive);
    this.limit.textContent = store.problem ? "" : this._limitText(gradient, data);
  },

  _limitText(settings, data) {
    if (settings.head === "perceptron") {
      return t(settings.mode === "stochastic" ? "descent.isRule" : "descent.noLimit", {tie: settings.tie});
    }
    const limit = stepLimit(settings.head, data.points, batchLength(settings, data.points.length));
    return t(settings.lr > limit ? "descent.limitOver" : "descent.limit", {limit: num(limit, 4), lr: num(settings.lr)});
  },

  _drawPlane(store, path, at) {
    const {frame} = this.plane;
    const state = path.states[at];
    const below = signRegions(store.data, this.kept.positive, state.weight, state.bias, frame);
    const above = [];
    if (at > 0) {
      const before = path.states[at - 1];
      below.push(lineShape(before.weight, before.bias, "before"));
      const {batch} = path.moves[at - 1];
      if (batch.length < path.samples.points.length) above.push(...batch.map((i) => ringShape(i, "mistake")));
    }
    below.push(lineShape(state.weight, state.bias, "now"));
    const unit = (0.33 * (frame.x[1] - frame.x[0])) / Math.max(...path.states.map(({weight}) => Math.hypot(...weight)), 1e-12);
    const arrow = weightArrow({weight: [state.weight], bias: [state.bias]}, 0, unit, frame, "now");
    this.plane.draw({below, above: arrow ? [...above, arrow] : above});
    const keys = [keyEntry(lineSwatch("line now"), t("gradient.key.now")), keyEntry(lineSwatch("line before"), t("gradient.key.before"))];
    if (arrow) keys.push(keyEntry(arrowSwatch(), t("legend.weight")));
    if (path.settings.mode !== "batch") {
      keys.push(keyEntry(shapeSwatch(svgEl("circle", {class: "ring mistake", r: 6})), t("gradient.key.used")));
    }
    this.planeKey.replaceChildren(...keys);
  },

  // The slice's bias, and what is lowest by the closed form of LMS.
  _slice(store, path) {
    const bias = this._heldBias(store);
    const lms = path.settings.head === "lms";
    return {bias, lowest: lms ? lmsOptimum(path.samples, bias) : null, optimum: lms ? lmsOptimum(path.samples) : null};
  },

  _box(path, slice) {
    const shown = [...path.states, ...[slice.lowest, slice.optimum].filter((found) => found !== null)];
    const farthest = shown.reduce((most, {weight}) => Math.max(most, Math.abs(weight[0]), Math.abs(weight[1])), 0);
    const half = niceCeiling(Math.max(1, SURFACE_REACH * farthest));
    return {low: [-half, -half], high: [half, half]};
  },

  _drawSurface(store, path, at) {
    const state = path.states[at];
    const slice = this._slice(store, path);
    const box = this._box(path, slice);
    const surface = this._surfaceOf(store, path, slice.bias, box);
    this.other.options.frame = {x: [box.low[0], box.high[0]], y: [box.low[1], box.high[1]], even: true};
    const weights = path.states.slice(0, at + 1).map(({weight}) => weight);
    const above = [{kind: "path", points: weights, className: "descent-halo"}, {kind: "path", points: weights, className: "descent-path"}];
    if (at > 0) above.push(segmentShape(weights[at - 1], weights[at], "descent-last"));
    above.push(...this._optimumShapes(slice));
    above.push(dotShape(weights[0], "descent-start"), ...this._gradientArrow(path, state, slice.bias, box));
    above.push(dotShape(state.weight, "descent-now"));
    surface.contours ??= contourLevels(surface, 9).map((level) => (
      {kind: "segments", segments: contourSegments(surface, level), className: "contour"}
    ));
    this.other.draw({below: [{kind: "heat", surface}, ...surface.contours], above});
    this._surfaceWords(store, path, at, surface, slice);
  },

  _surfaceOf(store, path, bias, box) {
    const cells = path.samples.points.length > 60 || store.dragging ? 40 : 64;
    const key = JSON.stringify([path.settings.head, bias, box, cells]);
    if (this.drawn?.key !== key || this.drawn.samples !== path.samples) {
      this.drawn = {key, samples: path.samples, surface: lossSurface(path.samples, path.settings.head, bias, box, cells)};
    }
    return this.drawn.surface;
  },

  // Downhill from where we are, in the slice that is shown; longer where it is steeper.
  _gradientArrow(path, state, bias, box) {
    const {head, tie} = path.settings;
    const {weight} = netGradient({weight: state.weight, bias}, path.samples, head, tie, everyNumber(path.samples.points.length));
    const length = Math.hypot(...weight);
    if (length < 1e-12) return [];
    const reach = ((box.high[0] - box.low[0]) * (0.06 + (0.16 * length) / (1 + length))) / length;
    const to = state.weight.map((value, k) => value - weight[k] * reach);
    return [arrowShape(state.weight, to, "downhill halo"), arrowShape(state.weight, to, "downhill")];
  },

  _optimumShapes({lowest, optimum}) {
    const shapes = [];
    if (optimum) shapes.push({kind: "mark", at: optimum.weight, className: "optimum"});
    if (lowest) shapes.push({kind: "mark", at: lowest.weight, className: "slice-lowest"});
    return shapes;
  },

  _surfaceWords(store, path, at, surface, slice) {
    const follows = viewState(store, this).bias === null;
    const {weight} = path.states[at];
    show(this.follow.input, follows);
    const farthest = path.states.reduce((most, {bias}) => Math.max(most, Math.abs(bias)), BIAS_REACH);
    Object.assign(this.biasSlider, {min: -niceCeiling(farthest), max: niceCeiling(farthest), value: slice.bias});
    this.biasText.textContent = short(slice.bias);
    this.lowest.textContent = t("gradient.low", {value: short(surface.low, 3)});
    this.highest.textContent = short(surface.high, 3);
    const words = {bias: short(slice.bias), low: short(surface.low), weight: vector(weight), loss: short(path.losses[at])};
    this.other.svg.setAttribute("aria-label", t("gradient.surfaceNow", words));
    const keys = [
      keyEntry(lineSwatch("descent-halo", "descent-path"), t("gradient.key.path")),
      keyEntry(lineSwatch("descent-last"), t("gradient.key.last")), keyEntry(arrowSwatch(), t("gradient.key.arrow")),
    ];
    const diamond = (css) => shapeSwatch(svgEl("path", {class: css, d: "M -7 0 L 0 -7 L 7 0 L 0 7 Z"}));
    if (slice.lowest) keys.push(keyEntry(diamond("slice-lowest"), t("gradient.key.slice")));
    if (slice.optimum) keys.push(keyEntry(diamond("optimum"), t("gradient.key.optimum", {bias: short(slice.optimum.bias)})));
    this.surfaceKey.replaceChildren(...keys);
  },

  _result(path, at) {
    const {samples, settings, states, losses, errors} = path;
    const state = states[at];
    const gradient = netGradient(state, samples, settings.head, settings.tie, everyNumber(samples.points.length));
    const pairs = [
      [t("gradient.figure.loss"), short(losses[at], 5), "gradient-loss"],
      [t("gradient.figure.errors"), `${errors[at]} / ${samples.points.length}`, "gradient-errors"],
      [t("gradient.figure.norm"), short(gradientNorm(gradient), 3), "gradient-norm"],
    ];
    const optimum = settings.head === "lms" ? lmsOptimum(samples) : null;
    if (optimum) pairs.push([t("gradient.figure.best"), short(meanLoss(samples, optimum, "lms"), 5), "gradient-best"]);
    this.result.replaceChildren(
      figures(pairs),
      el("p", {class: "remark", "data-test": "gradient-weights"}, `${t("gradient.weights")}: ${weightsText([state.weight], [state.bias])}`),
    );
    const text = path.ended && at === states.length - 1 ? endedText(path, at) : "";
    const kind = path.ended === "still" && errors[at] === 0 ? "separated" : "budget";
    this.standing.replaceChildren(...(text ? [el("p", {class: `verdict ${kind}`}, text)] : []));
  },
};

function endedText(path, at) {
  const errors = path.errors[at];
  if (path.ended === "limit") return t("gradient.ended.limit", {count: MAX_STEPS});
  if (path.ended === "diverged") return t("gradient.ended.diverged");
  const zero = path.losses[at] === 0 && path.states[at].weight.every((value) => value === 0);
  if (zero && path.settings.tie === "strict") return t("gradient.ended.stillStrict");
  return t(errors ? "gradient.ended.stillErrors" : "gradient.ended.still", {errors, total: path.samples.points.length});
}

// --- a step with its numbers -----------------------------------------------------------------------------------------

function descentCard(data, path, at) {
  if (at === 0) {
    const {weight, bias} = path.states[0];
    return el(
      "div", {class: "step"}, el("h3", {"data-test": "gradient-stepTitle"}, t("gradient.startTitle")),
      el("p", {}, t("gradient.startText", {weights: weightsText([weight], [bias])})),
    );
  }
  const {batch, gradient} = path.moves[at - 1];
  const perEpoch = stepsPerEpoch(path.settings, path.samples.points.length);
  const rows = batch.length === 1 ? sampleRows(data, path, at - 1) : batchRows(data, path, at - 1);
  rows.push(...updateRows(path, at - 1, gradient));
  return el(
    "div", {class: "step"},
    el(
      "h3", {"data-test": "gradient-stepTitle"}, t("gradient.stepTitle", {t: at}),
      el("small", {}, t("gradient.epoch", {epoch: Math.floor((at - 1) / perEpoch) + 1})),
    ),
    el("dl", {class: "formulas"}, ...rows.flatMap(([name, ...lines]) => [
      el("dt", {}, name), el("dd", {}, ...lines.map((each) => el("div", {}, each))),
    ])),
    gradientNorm(gradient) === 0 ? el("p", {class: "remark"}, t("gradient.zero")) : null,
  );
}

const LOSS_FORMULAS = {perceptron: "max(0, −y·s)", lms: "½(y − s)²", logistic: "log(1 + exp(−y·s))"};

// The loss of one sample with its numbers in place of y and s.
function lossTerms(head, score, sign) {
  if (head === "lms") return `½(${num(sign)} − ${factor(score)})²`;
  const product = `−(${signed(sign)})·${factor(score)}`;
  return head === "perceptron" ? `max(0, ${product})` : `log(1 + exp(${product}))`;
}

function sampleRows(data, path, t0) {
  const {samples, settings, states, moves} = path;
  const [i] = moves[t0].batch;
  const [x, sign, {weight, bias}] = [samples.points[i], samples.signs[i], states[t0]];
  const score = netScore(states[t0], x);
  const slope = sampleSlope(settings.head, score, sign, settings.tie);
  const kink = settings.head === "perceptron" && score === 0 ? ` (${t("gradient.atKink", {tie: settings.tie})})` : "";
  const label = data.classes === 2 ? "" : ` (${className(data, data.labels[i])})`;
  return [
    [t("step.sample"), line(`${i}:  x = `, vector(x), `,  y = ${signed(sign)}${label}`)],
    [t("gradient.score"), line(scoreLine("s = w·x + b", weight, bias, x, score))],
    [t("gradient.loss"), line(
      `ℓ = ${LOSS_FORMULAS[settings.head]} = ${lossTerms(settings.head, score, sign)} = `,
      strong(short(sampleLoss(settings.head, score, sign), 5)),
    )],
    [t("gradient.slope"), line(`ℓ′(s) = ${t(`descent.slope.${settings.head}`)} = `, strong(short(slope, 5)), kink)],
    [t("gradient.gradient"), line(
      `ℓ′(s)·(x₁, x₂, 1) = ${shortFactor(slope)}·${vector([...x, 1])} = `,
      strong(shortVector([...moves[t0].gradient.weight, moves[t0].gradient.bias])),
    )],
  ];
}

function batchRows(data, path, t0) {
  const {samples, settings, moves} = path;
  const {batch, gradient} = moves[t0];
  const whole = batch.length === samples.points.length;
  const names = whole ? t("gradient.all", {count: batch.length}) : batch.slice(0, 30).join(", ");
  return [
    [t("gradient.samples"), names],
    [t("gradient.loss"), line(t("gradient.lossMean", {loss: LOSS_FORMULAS[settings.head]}), strong(short(gradient.loss, 5)))],
    [t("gradient.slope"), line(`ℓ′(s) = ${t(`descent.slope.${settings.head}`)}`)],
    [t("gradient.gradient"), line(
      `∇L = 1/${batch.length} Σ ℓ′(s)·(x₁, x₂, 1) = `, strong(shortVector([...gradient.weight, gradient.bias])),
    )],
  ];
}

function shortFactor(value) {
  return value < 0 ? `(${short(value)})` : short(value);
}

function shortVector(values) {
  return `(${values.map((value) => short(value)).join(", ")})`;
}

function updateRows(path, t0, gradient) {
  const {settings, states} = path;
  const [before, after] = [states[t0], states[t0 + 1]];
  return [[
    t("gradient.update"),
    line(
      `w ← w − η·∇ = ${shortVector(before.weight)} − ${num(settings.lr)}·${shortVector(gradient.weight)} = `,
      strong(shortVector(after.weight)),
    ),
    line(
      `b ← b − η·∂L/∂b = ${short(before.bias)} − ${num(settings.lr)}·${shortFactor(gradient.bias)} = `, strong(short(after.bias)),
    ),
  ]];
}

registerView(gradientView);
