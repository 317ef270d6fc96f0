// Gradient descent to look at: the boundary in the plane of the points beside the loss surface over (w1, w2).

const FAR_START = {weight: [-2, 1.5], bias: 0.5};
const SURFACE_REACH = 1.25; // of the farthest weights
const BIAS_REACH = 3; // of the slider, or as far as the descent went

// A round number that leaves some room.
function niceCeiling(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((factor) => factor * power).find((rounded) => rounded >= value * 0.999999);
}

// A linear net as the state of a rule with one row.
function asState({weight, bias}) {
  return {weight: [weight], bias: [bias]};
}

const gradientView = {
  ...descentView,
  id: "gradient",
  defaults: {
    head: "logistic", tie: "update", lr: 1, mode: "batch", batchSize: 4, order: "given", seed: 0,
    start: {weight: [0, 0], bias: 0}, positive: 1, bias: null, at: 0,
  },

  mount(element, store) {
    const weights = {points: [], labels: [], classes: 2, names: ["w₁", "w₂"]};
    const right = this.layOut(element, store, {
      more: 50, titles: ["gradient.planeTitle", "gradient.surfaceTitle", "descent.settings"], label: t("plane.label"),
      other: {id: "gradient-surface", label: t("gradient.surface"), surface: true, data: () => weights, frame: squareFrame(-2, 2)},
      fields: this._fields(store), below: [card(null, viewPane(this, "numbers"))],
    });
    this.other.svg.addEventListener("click", (event) => this._startAt(store, this.other.at(event)));
    right.append(this._scaleBar(), this._holdFields(store), viewPane(this, "surfaceKey", {class: "legend"}));
  },

  python(store) {
    const state = viewState(store, this);
    return pythonDescent(t("python.gradient"), this.path(store).samples, state, [
      "net = tp.Perceptron(2, dtype=torch.float64)", ...pythonStart(asState(state.start)),
    ]);
  },

  _startAt(store, point) {
    const step = gridStep(this.other.frame.x);
    const weight = point.map((value) => Math.round(value / step) * step + 0);
    if (!store.problem) this.change(store, {start: {weight, bias: this._heldBias(store)}, at: 0});
  },

  // The bias of the slice: that of the current step unless another was chosen.
  _heldBias(store) {
    const {bias, at} = viewState(store, this);
    return bias ?? this.path(store).states[at].bias;
  },

  _fields(store) {
    const change = (patch) => this.change(store, patch);
    const begin = ({weight: [weight], bias: [bias]}) => change({start: {weight, bias}, at: 0});
    const fields = this.descentFields(store, ["head", "mode", "batchSize", "order", "seed", "lr", "tie"], change);
    this.start = startFields("gradient-start", 1, () => asState(viewState(store, this).start), begin);
    this.limit = remark("", "gradient-limit");
    const far = button("gradient-start-far", t("descent.startFar"), () => begin(asState(FAR_START)));
    const legend = el("legend", {}, t("descent.start"));
    const start = el("fieldset", {class: "start"}, legend, div("group", ...this.start.fields, far), remark(t("gradient.click")));
    return div("conventions", div("fields", ...fields), this.many, this.limit, start);
  },

  _holdFields(store) {
    const held = (bias) => changeState(store, this, {bias}); // the picture alone: the player goes on
    this.follow = checkField("gradient-follow", t("gradient.follow"), (on) => held(on ? null : this._heldBias(store)));
    this.biasSlider = el("input", {
      type: "range", id: "gradient-bias", "data-test": "gradient-bias", min: -BIAS_REACH, max: BIAS_REACH, step: 1 / 64,
      oninput: () => held(Number(this.biasSlider.value)),
    });
    this.biasText = el("output", {for: "gradient-bias", "data-test": "gradient-biasText"});
    const label = el("label", {class: "hold-slider", for: "gradient-bias"}, t("gradient.hold"), this.biasSlider, this.biasText);
    return div("hold", label, this.follow.field, remark(t("gradient.holdWhy")));
  },

  _scaleBar() {
    [this.lowest, this.highest] = [el("span", {}), el("span", {})];
    const style = `background: linear-gradient(to right, ${HEAT.map((rgb) => `rgb(${rgb})`).join(", ")})`;
    return div("scale-bar", this.lowest, el("span", {class: "scale-colours", style, "aria-hidden": "true"}), this.highest);
  },

  _draw(store, path, at) {
    this._drawPlane(store, path, at);
    this._drawSurface(store, path, at);
    this.numbers.replaceChildren(descentCard(store.data, path, at));
    this._result(path, at);
  },

  _showFields(store) {
    const settings = viewState(store, this);
    this.showDescentFields(store, settings);
    this.start.show(asState(settings.start));
    this.limit.textContent = store.problem ? "" : limitText(settings, store.data.points);
  },

  _drawPlane(store, path, at) {
    const {frame} = this.plane;
    const state = path.states[at];
    const below = signRegions(store.data, this.kept.positive, state.weight, state.bias, frame);
    const above = [];
    if (at > 0) {
      below.push(...boundaryShapes(asState(path.states[at - 1]), "before"));
      const {batch} = path.moves[at - 1];
      if (batch.length < path.samples.points.length) above.push(...batch.map((i) => ringShape(i, "mistake")));
    }
    below.push(...boundaryShapes(asState(state), "now"));
    const longest = path.states.reduce((most, {weight}) => Math.max(most, Math.hypot(...weight)), 1e-12);
    const arrow = weightArrow(asState(state), 0, (0.33 * (frame.x[1] - frame.x[0])) / longest, frame, "now");
    this.plane.draw({below, above: [...above, ...arrow]});
    this.planeKey.replaceChildren(...legendEntries({
      "gradient.key.now": lineSwatch("line now"), "gradient.key.before": lineSwatch("line before"),
      "legend.weight": arrow.length && arrowSwatch(),
      "gradient.key.used": path.settings.mode !== "batch" && shapeSwatch("circle", {class: "ring mistake", r: 6}),
    }));
  },

  _drawSurface(store, path, at) {
    const {head} = path.settings;
    const state = path.states[at];
    const bias = this._heldBias(store);
    const lowest = head === "lms" ? lmsOptimum(path.samples, bias) : null; // by the closed form of LMS
    const optimum = head === "lms" ? lmsOptimum(path.samples) : null;
    const shown = [...path.states, lowest, optimum].filter((found) => found !== null);
    const farthest = shown.reduce((most, {weight}) => Math.max(most, Math.abs(weight[0]), Math.abs(weight[1])), 0);
    const half = niceCeiling(Math.max(1, SURFACE_REACH * farthest));
    this.other.options.frame = squareFrame(-half, half);
    const surface = this._surface(store, path, bias, half);
    const {low, high, values, contours} = surface;
    const weights = path.states.slice(0, at + 1).map(({weight}) => weight);
    const diamond = (found, css) => (found ? [markShape(found.weight, "path", {class: css, d: DIAMOND})] : []);
    const dot = (weight, css) => markShape(weight, "circle", {class: css, r: 5});
    this.other.draw({
      below: [rasterShape(values, (value) => heatColour(Math.sqrt((value - low) / (high - low || 1))), "heat"), ...contours],
      above: [
        pathShape([weights], "descent-halo"), pathShape([weights], "descent-path"), pathShape([weights.slice(-2)], "descent-last"),
        ...diamond(optimum, "optimum"), ...diamond(lowest, "slice-lowest"),
        dot(weights[0], "descent-start"), ...downhillArrow(path, state, bias, half), dot(state.weight, "descent-now"),
      ],
    });
    this._surfaceWords(store, path, at, surface, {bias, lowest, optimum});
  },

  _surface(store, path, bias, half) {
    const {samples, settings: {head}} = path;
    const cells = samples.points.length > 60 || store.dragging ? 40 : 64;
    const key = JSON.stringify([head, bias, half, cells]);
    if (this.drawn?.key !== key || this.drawn.samples !== samples) {
      const surface = lossSurface(samples, head, bias, squareFrame(-half, half), cells);
      const levels = everyNumber(9).map((k) => surface.low + (surface.high - surface.low) * ((k + 1) / 10) ** 2); // closer where it is flat
      const contours = levels.map((level) => pathShape(contourSegments(surface, level), "contour"));
      this.drawn = {key, samples, surface: {...surface, contours}};
    }
    return this.drawn.surface;
  },

  _surfaceWords(store, path, at, {low, high}, {bias, lowest, optimum}) {
    show(this.follow.input, viewState(store, this).bias === null);
    const reach = niceCeiling(path.states.reduce((most, state) => Math.max(most, Math.abs(state.bias)), BIAS_REACH));
    Object.assign(this.biasSlider, {min: -reach, max: reach, value: bias});
    this.biasText.textContent = short(bias);
    this.lowest.textContent = t("gradient.low", {value: short(low, 3)});
    this.highest.textContent = short(high, 3);
    const words = {bias: short(bias), low: short(low), weight: vector(path.states[at].weight), loss: short(path.losses[at])};
    this.other.svg.setAttribute("aria-label", t("gradient.surfaceNow", words));
    const diamond = (css) => shapeSwatch("path", {class: css, d: DIAMOND});
    this.surfaceKey.replaceChildren(...legendEntries({
      "gradient.key.path": lineSwatch("descent-halo", "descent-path"), "gradient.key.last": lineSwatch("descent-last"),
      "gradient.key.arrow": arrowSwatch(), "gradient.key.slice": lowest && diamond("slice-lowest"),
      "gradient.key.optimum": optimum && diamond("optimum"),
    }, {bias: short(optimum?.bias ?? 0)}));
  },

  _result(path, at) {
    const {samples, settings, states, errors} = path;
    const norm = gradientNorm(fullGradient(path, states[at]));
    const optimum = settings.head === "lms" ? lmsOptimum(samples) : null;
    const pairs = [...this.lossAndErrors(path, at), [t("gradient.figure.norm"), short(norm, 3), "gradient-norm"]];
    if (optimum) pairs.push([t("gradient.figure.best"), short(netFigures(optimum, samples, "lms").loss, 5), "gradient-best"]);
    const weights = `${t("gradient.weights")}: ${weightsText(asState(states[at]))}`;
    this.result.replaceChildren(figures(pairs), remark(weights, "gradient-weights"));
    const kind = path.ended === "still" && errors[at] === 0 ? "separated" : "budget";
    const ended = path.ended && at === states.length - 1;
    this.standing.replaceChildren(...(ended ? [el("p", {class: `verdict ${kind}`}, endedText(path, at))] : []));
  },
};

function limitText(settings, points) {
  const {head, mode, tie, lr} = settings;
  if (head === "perceptron") return t(mode === "stochastic" ? "descent.isRule" : "descent.noLimit", {tie});
  const limit = stepLimit(head, points, batchLength(settings, points.length));
  return t(lr > limit ? "descent.limitOver" : "descent.limit", {limit: num(limit, 4), lr: num(lr)});
}

// The gradient of the mean loss over all samples.
function fullGradient({samples, settings: {head, tie}}, net) {
  return netGradient(net, samples, head, tie, everyNumber(samples.points.length));
}

// Downhill from where we are, in the slice that is shown; longer where it is steeper.
function downhillArrow(path, {weight}, bias, half) {
  const slope = fullGradient(path, {weight, bias}).weight;
  const length = Math.hypot(...slope);
  if (length < 1e-12) return [];
  const reach = (2 * half * (0.06 + (0.16 * length) / (1 + length))) / length;
  const to = weight.map((value, k) => value - slope[k] * reach);
  return [arrowShape(weight, to, "downhill halo"), arrowShape(weight, to, "downhill")];
}

function endedText(path, at) {
  const errors = path.errors[at];
  if (path.ended !== "still") return t(`gradient.ended.${path.ended}`, {count: MAX_STEPS});
  const zero = path.losses[at] === 0 && path.states[at].weight.every((value) => value === 0);
  if (zero && path.settings.tie === "strict") return t("gradient.ended.stillStrict");
  return t(errors ? "gradient.ended.stillErrors" : "gradient.ended.still", {errors, total: path.samples.points.length});
}

function descentCard(data, path, at) {
  const title = (text, where) => el("h3", {"data-test": "gradient-stepTitle"}, text, where ? el("small", {}, where) : null);
  if (at === 0) {
    const words = t("gradient.startText", {weights: weightsText(asState(path.states[0]))});
    return div("step", title(t("gradient.startTitle")), el("p", {}, words));
  }
  const {batch, gradient} = path.moves[at - 1];
  const epoch = Math.floor((at - 1) / stepsPerEpoch(path.settings, path.samples.points.length)) + 1;
  const rows = descentRows(data, path, at - 1);
  const zero = gradientNorm(gradient) === 0 ? remark(t("gradient.zero")) : null;
  return div("step", title(t("gradient.stepTitle", {t: at}), t("gradient.epoch", {epoch})), definitions("formulas", rows), zero);
}

const LOSS_FORMULAS = {perceptron: "max(0, −y·s)", lms: "½(y − s)²", logistic: "log(1 + exp(−y·s))"};

// One step in formulas: of a single sample with its numbers in place of x, y and s, else of the mean over the batch.
function descentRows(data, {samples, settings: {head, tie, ...settings}, states, moves}, t0) {
  const [{batch, gradient}, before, after, lr] = [moves[t0], states[t0], states[t0 + 1], num(settings.lr)];
  const slopes = `ℓ′(s) = ${t(`descent.slope.${head}`)}`;
  const summed = (words) => [t("gradient.gradient"), line(words, strong(vector([...gradient.weight, gradient.bias], short)))];
  const weights = `w ← w − η·∇ = ${vector(before.weight, short)} − ${lr}·${vector(gradient.weight, short)} = `;
  const bias = `b ← b − η·∂L/∂b = ${short(before.bias)} − ${lr}·${factor(gradient.bias, short)} = `;
  const update = [t("gradient.update"), line(weights, strong(vector(after.weight, short))), line(bias, strong(short(after.bias)))];
  if (batch.length > 1) {
    const whole = batch.length === samples.points.length;
    return [
      [t("gradient.samples"), whole ? t("gradient.all", {count: batch.length}) : batch.slice(0, 30).join(", ")],
      [t("gradient.loss"), line(t("gradient.lossMean", {loss: LOSS_FORMULAS[head]}), strong(short(gradient.loss, 5)))],
      [t("gradient.slope"), line(slopes)], summed(`∇L = 1/${batch.length} Σ ℓ′(s)·(x₁, x₂, 1) = `), update,
    ];
  }
  const [i] = batch;
  const [x, sign] = [samples.points[i], samples.signs[i]];
  const score = netScore(before, x);
  const slope = sampleSlope(head, score, sign, tie);
  const kink = head === "perceptron" && score === 0 ? ` (${t("gradient.atKink", {tie})})` : "";
  const label = data.classes === 2 ? "" : ` (${className(data, data.labels[i])})`;
  const terms = head === "lms" ? `½(${num(sign)} − ${factor(score)})²`
    : LOSS_FORMULAS[head].replace("−y·s", `−(${signed(sign)})·${factor(score)}`);
  const loss = strong(short(sampleLoss(head, score, sign), 5));
  return [
    [t("step.sample"), line(`${i}:  x = `, vector(x), `,  y = ${signed(sign)}${label}`)],
    [t("gradient.score"), scoreLine("s = w·x + b", before.weight, before.bias, x, score)],
    [t("gradient.loss"), line(`ℓ = ${LOSS_FORMULAS[head]} = ${terms} = `, loss)],
    [t("gradient.slope"), line(`${slopes} = `, strong(short(slope, 5)), kink)],
    summed(`ℓ′(s)·(x₁, x₂, 1) = ${factor(slope, short)}·${vector([...x, 1])} = `), update,
  ];
}

VIEWS.push(gradientView);
