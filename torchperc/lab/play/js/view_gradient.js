// Gradient descent to look at: the boundary in the plane of the points beside the loss surface over (w1, w2).
// The first half of this file is shared with the view of the two-layer net.

// --- steps that are made when asked for ------------------------------------------------------------------------------

const STEP_SPEEDS = [1, 2, 5, 20, 100, 500];
const FRAME = 40; // milliseconds between two pictures at least

// Either view keeps its state under its id in the store, on top of its `defaults`; state.at is the current step.
// reach(store, t) makes steps up to t and says how far it came: less than t if the descent has ended before.
function viewState(store, view) {
  const state = soundState(view.defaults, store[view.id]);
  return {...state, at: view.reach(store, state.at)};
}

// What a link may bring along: values that the fields allow, anything else as by default.
function soundState(defaults, state) {
  const choices = {head: HEADS, tie: TIES, mode: DESCENT_MODES, order: ["given", "shuffled"], activation: ACTIVATIONS, hidden: HIDDEN_WIDTHS};
  const hidden = HIDDEN_WIDTHS.includes(state.hidden) ? state.hidden : defaults.hidden;
  const counts = {at: 0, seed: 0, positive: 0, batchSize: 1};
  const fine = {
    lr: (value) => Number.isFinite(value) && value > 0,
    bias: (value) => value === null || Number.isFinite(value),
    start: (value) => value?.weight?.length === 2 && [...value.weight, value.bias].every(Number.isFinite),
    axes: (value) => value?.length === 2 && value[0] !== value[1] && value.every((k) => everyNumber(hidden).includes(k)),
  };
  const allowed = (name, value) => (
    choices[name]?.includes(value) ?? fine[name]?.(value) ?? (Number.isInteger(value) && value >= counts[name])
  );
  return {...defaults, ...Object.fromEntries(Object.entries(state).filter(([name, value]) => name in defaults && allowed(name, value)))};
}

function changeState(store, view, patch) {
  store.set({[view.id]: {...viewState(store, view), ...patch}});
}

const stepPlayer = {
  playing: false, speed: 5, timer: null, store: null, view: null,

  toggle(store, view) {
    if (this.playing) this.stop();
    else this.start(store, view);
  },

  start(store, view) {
    Object.assign(this, {store, view, playing: true});
    const {at} = viewState(store, view);
    if (at > 0 && view.reach(store, at + 1) === at) changeState(store, view, {at: 0}); // at the end: once more
    store.tell(new Set(["playing"]));
    this._wait();
  },

  stop() {
    clearTimeout(this.timer);
    if (!this.playing) return;
    this.playing = false;
    this.store.tell(new Set(["playing"]));
  },

  _wait() {
    this.timer = setTimeout(() => this._next(), Math.max(FRAME, 1000 / this.speed));
  },

  _next() {
    const {store, view} = this;
    if (store.view !== view.id) return this.stop();
    const {at} = viewState(store, view);
    const wanted = at + Math.max(1, Math.round((this.speed * FRAME) / 1000));
    const reached = view.reach(store, wanted);
    if (reached > at) changeState(store, view, {at: reached});
    if (reached < wanted) this.stop();
    else this._wait();
    return undefined;
  },
};

// Buttons and slider, which goes over the steps made so far, view.made(store).
function stepTransport(store, view, more) {
  const id = (part) => `${view.id}-${part}`;
  const go = (at) => { stepPlayer.stop(); changeState(store, view, {at: Math.max(0, at)}); };
  const at = () => viewState(store, view).at;
  const play = iconButton(id("play"), icon("play"), t("steps.play"), () => stepPlayer.toggle(store, view), {class: "icon main"});
  const slider = el("input", {
    type: "range", min: 0, step: 1, id: id("scrub"), "data-test": id("scrub"), "aria-label": t("steps.scrub"),
    oninput: () => go(Number(slider.value)),
  });
  const place = el("output", {class: "place", for: id("scrub"), id: id("place"), "data-test": id("place")});
  const speeds = STEP_SPEEDS.map((count) => [count, t("steps.perSecond", {count})]);
  const speed = selectField(id("speed"), t("steps.speed"), speeds, (value) => { stepPlayer.speed = Number(value); });
  const element = el(
    "div", {class: "transport", role: "group", "aria-label": t("steps.label")},
    el(
      "div", {class: "buttons"},
      iconButton(id("rewind"), icon("rewind"), t("steps.rewind"), () => go(0)),
      iconButton(id("back"), icon("back"), t("steps.back"), () => go(at() - 1)),
      play,
      iconButton(id("step"), icon("step"), t("steps.step"), () => go(at() + 1)),
      iconButton(id("more"), `+${more}`, t("steps.more", {count: more}), () => go(at() + more)),
      speed.field,
    ),
    el("div", {class: "scrub"}, slider, place),
  );
  const update = () => {
    const made = view.made(store);
    slider.max = made;
    slider.value = at();
    slider.disabled = made === 0;
    place.textContent = t("steps.at", {t: at(), total: made});
    slider.setAttribute("aria-valuetext", place.textContent);
    const playing = stepPlayer.playing && stepPlayer.view === view;
    const words = t(playing ? "steps.pause" : "steps.play");
    play.replaceChildren(icon(playing ? "pause" : "play"));
    play.title = words;
    play.setAttribute("aria-label", words);
    play.setAttribute("aria-pressed", String(playing));
    show(speed.input, stepPlayer.speed);
  };
  const keys = (event) => {
    const targets = {ArrowRight: at() + 1, ArrowLeft: at() - 1, Home: 0, End: at() + more};
    if (event.key in targets) go(targets[event.key]);
    else if (event.key === " ") stepPlayer.toggle(store, view);
    else return false;
    return true;
  };
  return {element, update, keys};
}

// --- fields that both views have -------------------------------------------------------------------------------------

// Fields of the settings of a descent; `change` takes a patch. `names` says which of them.
function descentFields(prefix, names, change) {
  const pick = (name, values) => selectField(
    `${prefix}-${name}`, t(`descent.${name}`), values.map((value) => [value, t(`descent.${name}.${value}`)]),
    (value) => change({[name]: value}),
  );
  const number = (name, limits) => numberField(`${prefix}-${name}`, t(`descent.${name}`), limits, (value) => change({[name]: value}));
  const makers = {
    head: () => pick("head", HEADS),
    mode: () => pick("mode", DESCENT_MODES),
    batchSize: () => number("batchSize", {min: 1, integer: true, step: 1}),
    order: () => pick("order", ["given", "shuffled"]),
    seed: () => number("seed", {min: 0, integer: true, step: 1}),
    lr: () => number("lr", {above: 0}),
    tie: () => pick("tie", TIES),
  };
  const made = Object.fromEntries(names.map((name) => [name, makers[name]()]));
  made.head.field.classList.add("wide-field");
  return made;
}

// Shows the settings; what has no effect is left out of sight.
function showDescentFields(fields, settings) {
  const shuffled = settings.mode !== "batch" && settings.order === "shuffled";
  const useful = {
    batchSize: settings.mode === "minibatch", order: settings.mode !== "batch", seed: shuffled,
    tie: settings.head === "perceptron",
  };
  for (const [name, {field, input}] of Object.entries(fields)) {
    show(input, settings[name]);
    field.hidden = useful[name] === false;
  }
}

// A script of so many steps by autograd; `net` are the lines that make the net.
function pythonDescent(title, samples, settings, net) {
  const count = samples.points.length;
  const whole = settings.mode === "batch";
  const shuffled = settings.order === "shuffled";
  const epoch = shuffled ? "torch.randperm(len(X), generator=generator)" : "torch.arange(len(X))";
  const heads = {perceptron: `tp.PerceptronHead(tie="${settings.tie}")`, lms: "tp.LMSHead()", logistic: "tp.LogisticHead()"};
  return [
    `"""${title}"""`, "", "import torch", "", "import torchperc as tp", "",
    `X = torch.tensor(${pythonRows(samples.points)}, dtype=torch.float64)`,
    `y = torch.tensor(${pythonRows(samples.signs, 20)})`, "",
    ...net,
    `head = ${heads[settings.head]}`,
    `optimizer = torch.optim.SGD(net.parameters(), lr=${pythonNumber(settings.lr)})`,
    ...(whole ? [] : [...(shuffled ? [`generator = torch.Generator().manual_seed(${settings.seed})`] : []), "batches = []"]),
    `for step in range(${settings.at}):`,
    ...(whole ? [] : [`    batches = batches or list(${epoch}.split(${batchLength(settings, count)}))`, "    batch = batches.pop(0)"]),
    "    optimizer.zero_grad()",
    `    head.loss(net(X${whole ? "" : "[batch]"}), y${whole ? "" : "[batch]"}).backward()`,
    "    optimizer.step()",
    'print("mean loss", head.loss(net(X), y).item(), " wrong decisions", int((head.decide(net(X)) != y).sum()))',
    "print(net.state_dict())", "",
  ].join("\n");
}

// --- curves ----------------------------------------------------------------------------------------------------------

const MOST_DRAWN = 400; // points of a curve

// A curve over the steps made so far, with a line at the current step; logarithmic if it spans more than a thousandfold.
function stepCurve(name, values, at, {whole = false, css = ""} = {}) {
  const low = values.reduce((least, value) => Math.min(least, value), Infinity);
  const high = values.reduce((most, value) => Math.max(most, value), 0);
  const log = !whole && low > 0 && high > 1000 * low;
  const shape = log ? Math.log10 : (value) => value;
  const ys = log ? [Math.floor(shape(low)), Math.ceil(shape(high))] : [0, high || 1];
  const last = Math.max(1, values.length - 1);
  const scale = chartScale([0, last], ys);
  const every = Math.max(1, Math.ceil(values.length / MOST_DRAWN));
  const shown = everyNumber(values.length).filter((k) => k % every === 0 || k === values.length - 1);
  const place = (k) => [scale.x(k).toFixed(1), scale.y(shape(values[k])).toFixed(1)];
  const piece = ([x, y], n) => (n === 0 ? `M ${x} ${y}` : whole ? `H ${x} V ${y}` : `L ${x} ${y}`); // counts go in steps
  const path = shown.map(place).map(piece).join(" ");
  const ticks = whole ? wholeTicks(0, high || 1, 4) : tickValues(ys, 4);
  const frame = chartFrame(scale, log ? [] : ticks, wholeTicks(0, last, 7), t("curves.axis"));
  const powers = log ? powerTicks(scale, tickValues(ys, 4).filter(Number.isInteger)) : [];
  const here = scale.x(at);
  const title = t(log ? "curves.lossLog" : name);
  const words = {name: title, count: values.length - 1, first: short(values[0]), last: short(values.at(-1)), now: short(values[at])};
  return el(
    "figure", {class: "curve-figure"}, el("figcaption", {}, title),
    chart(
      t("curves.label", words), ...frame, ...powers,
      svgEl("line", {class: "here", x1: here, x2: here, y1: CHART.top, y2: CHART.height - CHART.bottom}),
      svgEl("path", {class: `curve ${css}`, d: path}),
      svgEl("circle", {class: `curve-dot ${css}`, cx: here, cy: scale.y(shape(values[at])), r: 4}),
    ),
  );
}

function powerTicks(scale, powers) {
  return powers.flatMap((power) => [
    svgEl("line", {class: "grid", x1: CHART.left, x2: CHART.width - CHART.right, y1: scale.y(power), y2: scale.y(power)}),
    svgEl("text", {class: "tick", x: CHART.left - 6, y: scale.y(power) + 4, "text-anchor": "end"}, powerText(power)),
  ]);
}

function superscript(number) {
  return String(number).replace(/[-\d]/g, (sign) => (sign === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[sign]));
}

function powerText(power) {
  return Math.abs(power) < 4 ? num(10 ** power) : `10${superscript(power)}`;
}

// A number of few digits; large and tiny ones with a power of ten.
function short(value, digits = 4) {
  if (value === 0 || (Math.abs(value) >= 1e-4 && Math.abs(value) < 1e6)) return num(value, digits);
  const [digit, power] = value.toExponential(digits - 1).split("e");
  return `${num(Number(digit))}·10${superscript(Number(power))}`;
}

// --- a plane that shows more than points -----------------------------------------------------------------------------

// Viridis, in ten colours: dark is low; every kind of eye sees the order.
const HEAT = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"]
  .map((code) => [1, 3, 5].map((start) => parseInt(code.slice(start, start + 2), 16)));

// The colour of a fraction from 0 to 1 as [red, green, blue].
function heatColour(fraction) {
  const place = Math.min(1, Math.max(0, fraction)) * (HEAT.length - 1);
  const low = Math.min(HEAT.length - 2, Math.floor(place));
  return HEAT[low].map((value, k) => Math.round(value + (place - low) * (HEAT[low + 1][k] - value)));
}

// A picture of so many pixels as an address; colourAt(column, row) is [red, green, blue], or null for nothing there.
function pixelPicture(width, height, colourAt) {
  const canvas = el("canvas", {width, height});
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  for (let row = 0; row < height; row++) {
    for (let column = 0; column < width; column++) {
      const colour = colourAt(column, row);
      if (colour) image.data.set([...colour, 255], 4 * (row * width + column));
    }
  }
  context.putImageData(image, 0, 0);
  return canvas.toDataURL();
}

// More kinds of shape: {kind: "heat", surface} colours a loss surface; "path" is a line through points, "segments" many
// short lines, "mark" a diamond; {kind: "decisions", decide, cells} shades what a function from [x1, x2] decides for,
// a class or null.
class PicturePlane extends Plane {
  _shape(shape) {
    const joined = (points) => points.map((point) => this.place(point).map((value) => value.toFixed(1)).join(" ")).join(" L ");
    const css = {class: shape.className};
    switch (shape.kind) {
      case "heat": return [this._heat(shape.surface)];
      case "decisions": return [this._decisions(shape)];
      case "path": return [svgEl("path", {...css, d: `M ${joined(shape.points)}`})];
      case "segments": return [svgEl("path", {...css, d: shape.segments.map((ends) => `M ${joined(ends)}`).join(" ")})];
      case "mark": {
        const [x, y] = this.place(shape.at);
        return [svgEl("path", {...css, d: `M ${x - 7} ${y} L ${x} ${y - 7} L ${x + 7} ${y} L ${x} ${y + 7} Z`})];
      }
      default: return super._shape(shape);
    }
  }

  // On a surface the names and numbers of the axes are written above the colours.
  draw(shapes) {
    super.draw(shapes);
    if (!this.options.surface) return;
    this.svg.classList.add("surface");
    this.groups.above.prepend(...[...this.groups.grid.children].filter((child) => child.tagName === "text"));
  }

  // A pixel per value, stretched so that the middle of each pixel is where its value belongs.
  _heat(surface) {
    const {first, values, low, high} = surface;
    const last = first.length - 1;
    const colourAt = (column, row) => heatColour(Math.sqrt((values[last - row][column] - low) / (high - low || 1)));
    const cell = this.size / last;
    const whole = {x: -cell / 2, y: -cell / 2, width: this.size + cell, height: this.size + cell, preserveAspectRatio: "none"};
    surface.picture ??= pixelPicture(last + 1, last + 1, colourAt);
    return svgEl("image", {class: "heat", href: surface.picture, ...whole});
  }

  _decisions({decide, cells}) {
    const {x: [x0, x1], y: [y0, y1]} = this.frame;
    const colours = everyNumber(MOST_CLASSES).map(colourOf);
    const colourAt = (column, row) => colours[decide([
      x0 + ((column + 0.5) / cells) * (x1 - x0), y1 - ((row + 0.5) / cells) * (y1 - y0),
    ])];
    const whole = {x: 0, y: 0, width: this.size, height: this.size, preserveAspectRatio: "none"};
    return svgEl("image", {class: "raster", href: pixelPicture(cells, cells, colourAt), ...whole});
  }
}

function createPicturePlane(element, store, options) {
  const plane = new PicturePlane(store, {editable: false, points: true, frame: null, data: null, ...options});
  element.append(plane.svg);
  new ResizeObserver(() => plane.resize()).observe(plane.svg);
  return plane;
}

function keyEntry(mark, text) {
  return el("span", {class: "key"}, mark, text);
}

function lineSwatch(...classes) {
  const lines = classes.map((css) => svgEl("line", {class: css, x1: 3, x2: 27, y1: 6, y2: 6}));
  return svgEl("svg", {viewBox: "0 0 30 12", class: "swatch", "aria-hidden": "true"}, ...lines);
}

function diamondSwatch(css) {
  return svgEl("svg", {viewBox: "-9 -9 18 18", class: "swatch ring-swatch", "aria-hidden": "true"}, svgEl("path", {class: css, d: "M -7 0 L 0 -7 L 7 0 L 0 7 Z"}));
}

// What decides for +1 in the plane: the colours of both classes, or of the one class that stands against the rest.
function signRegions(data, positive, weight, bias, frame) {
  if (weight[0] === 0 && weight[1] === 0) return [];
  if (data.classes === 2) return regionShapes([weight], [bias], "region");
  return [polygonShape(clipped(corners(frame), weight, bias), `region class-${positive}`)];
}

// --- the view of the gradient ----------------------------------------------------------------------------------------

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
  rounds: true,
  defaults: DESCENT_DEFAULTS,

  reach(store, steps) {
    return store.problem ? 0 : Math.min(steps, extendPath(this._path(store), Math.min(steps, MAX_DESCENT_STEPS)));
  },

  made(store) {
    return store.problem ? 0 : this._path(store).states.length - 1;
  },

  mount(element, store) {
    this.transport = stepTransport(store, this, 50);
    const pane = (name, attributes = {}) => (this[name] = el("div", {id: `gradient-${name}`, "data-test": `gradient-${name}`, ...attributes}));
    const left = el("div", {class: "stage"}, el("h2", {}, t("gradient.planeTitle")));
    const right = el("div", {class: "stage"}, el("h2", {}, t("gradient.surfaceTitle")));
    this.stage = right;
    element.append(
      el(
        "div", {class: "trio"}, left, right,
        el(
          "div", {class: "column"},
          el("section", {class: "card steps-card"}, this.transport.element, pane("result")),
          el("section", {class: "card"}, el("h2", {}, t("descent.settings")), this._fields(store)),
        ),
      ),
      el(
        "div", {class: "trio"},
        el("section", {class: "card double"}, pane("numbers")),
        el("section", {class: "card"}, el("h2", {}, t("curves.title")), pane("curves")),
      ),
    );
    this.plane = createPlane(left, store, {id: "gradient-plane", label: t("plane.label")});
    left.append(pane("ended", {class: "standing", role: "status"}), pane("planeKey", {class: "legend"}));
    const weights = () => ({points: [], labels: [], classes: 2, names: ["w₁", "w₂"]});
    this.surface = createPicturePlane(right, store, {id: "gradient-surface", label: t("gradient.surface"), points: false, surface: true, data: weights});
    this.surface.options.frame = {x: [-2, 2], y: [-2, 2], even: true};
    this.surface.svg.addEventListener("click", (event) => this._startAt(store, this.surface.at(event)));
    right.append(this._scaleBar(), this._holdFields(store), pane("surfaceKey", {class: "legend"}));
  },

  picture() {
    return [this.plane.svg, this.surface.svg];
  },

  keys(event) {
    return this.transport.keys(event);
  },

  python(store) {
    const state = viewState(store, this);
    const {weight, bias} = state.start;
    return pythonDescent(t("python.gradient"), this._path(store).samples, state, [
      "net = tp.Perceptron(2, dtype=torch.float64)",
      "with torch.no_grad():",
      `    net.weight.copy_(torch.tensor([${pythonValue(weight)}], dtype=torch.float64))`,
      `    net.bias.fill_(${pythonNumber(bias)})`,
    ]);
  },

  _change(store, patch) {
    stepPlayer.stop();
    changeState(store, this, patch);
  },

  _startAt(store, [w1, w2]) {
    const {x} = this.surface.frame;
    const step = gridStep(x);
    const weight = [w1, w2].map((value) => Math.round(value / step) * step + 0);
    if (!store.problem) this._change(store, {start: {weight, bias: this._heldBias(store)}, at: 0});
  },

  // The bias of the slice: that of the current step unless another was chosen.
  _heldBias(store) {
    const {bias, at} = viewState(store, this);
    return bias ?? this._path(store).states[at].bias;
  },

  // The path of the current settings; what only changes the picture does not start it anew.
  _path(store) {
    const {at, bias, ...settings} = soundState(this.defaults, store.gradient);
    const positive = store.data.classes === 2 ? 1 : Math.min(settings.positive, store.data.classes - 1);
    const key = JSON.stringify([settings, positive]);
    if (this.kept?.key !== key || this.kept.data !== store.data) {
      this.kept = {key, data: store.data, path: startPath(signedSamples(store.data, positive), settings)};
      this.kept.positive = positive;
    }
    return this.kept.path;
  },

  _fields(store) {
    const change = (patch) => this._change(store, patch);
    this.fields = descentFields("gradient", ["head", "mode", "batchSize", "order", "seed", "lr", "tie"], change);
    this.positive = selectField("gradient-positive", t("gradient.positive"), [], (value) => change({positive: Number(value)}));
    this.startInputs = ["w₁", "w₂", "b"].map((name, k) => numberField(`gradient-start-${k}`, name, {}, (value) => {
      const {weight, bias} = structuredClone(viewState(store, this).start);
      if (k < 2) weight[k] = value;
      change({start: {weight, bias: k < 2 ? bias : value}, at: 0});
    }));
    const begin = (id, key, start) => button(id, t(key), () => change({start, at: 0}));
    this.limit = el("p", {class: "remark", id: "gradient-limit", "data-test": "gradient-limit"});
    this.many = el("p", {class: "remark", id: "gradient-many", "data-test": "gradient-many"});
    return el(
      "div", {class: "conventions"},
      el("div", {class: "fields"}, this.positive.field, ...Object.values(this.fields).map(({field}) => field)),
      this.many, this.limit,
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

  update(store, changes) {
    const {problem} = store;
    this.stage.hidden = problem !== null;
    this._showFields(store);
    if (problem) return this._clear(problem);
    const path = this._path(store);
    const {at} = viewState(store, this);
    this.transport.update();
    this._drawPlane(store, path, at);
    this._drawSurface(store, path, at);
    this.numbers.replaceChildren(descentCard(store.data, path, at));
    this._result(path, at);
    this.curves.replaceChildren(
      stepCurve("curves.loss", path.losses, at, {css: "loss"}), stepCurve("curves.errors", path.errors, at, {whole: true, css: "errors"}),
    );
    if (changes.has("gradient") && !stepPlayer.playing) announce(this._spoken(path, at));
    return undefined;
  },

  _spoken(path, at) {
    const state = path.states[at];
    return t("gradient.said", {
      t: at, loss: short(path.losses[at]), errors: path.errors[at], total: path.samples.points.length,
      weights: weightsText([state.weight], [state.bias]),
    });
  },

  _clear(problem) {
    for (const name of ["numbers", "result", "curves", "planeKey"]) this[name].replaceChildren();
    this.ended.replaceChildren(el("p", {class: "hint"}, t(problem)));
    this.transport.update();
    this.plane.draw();
  },

  _showFields(store) {
    const {data} = store;
    const gradient = viewState(store, this);
    showDescentFields(this.fields, gradient);
    this.startInputs.forEach(({input}, k) => show(input, k < 2 ? gradient.start.weight[k] : gradient.start.bias));
    const many = data.classes > 2;
    const positive = Math.min(gradient.positive, data.classes - 1);
    this.positive.field.hidden = !many;
    this.many.textContent = many ? t("gradient.many", {label: className(data, positive)}) : "";
    this.positive.input.replaceChildren(...everyNumber(data.classes).map((k) => el("option", {value: k}, className(data, k))));
    show(this.positive.input, positive);
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
    if (arrow) keys.push(keyEntry(el("span", {class: "arrow-key", "aria-hidden": "true"}, "→"), t("legend.weight")));
    if (path.settings.mode !== "batch") {
      const ring = svgEl("circle", {class: "ring mistake", cx: 7, cy: 7, r: 5});
      keys.push(keyEntry(svgEl("svg", {viewBox: "0 0 14 14", class: "swatch ring-swatch", "aria-hidden": "true"}, ring), t("gradient.key.used")));
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
    this.surface.options.frame = {x: [box.low[0], box.high[0]], y: [box.low[1], box.high[1]], even: true};
    const weights = path.states.slice(0, at + 1).map(({weight}) => weight);
    const above = [{kind: "path", points: weights, className: "descent-halo"}, {kind: "path", points: weights, className: "descent-path"}];
    if (at > 0) above.push(segmentShape(weights[at - 1], weights[at], "descent-last"));
    above.push(...this._optimumShapes(slice));
    above.push(dotShape(weights[0], "descent-start"), ...this._gradientArrow(path, state, slice.bias, box));
    above.push(dotShape(state.weight, "descent-now"));
    surface.contours ??= contourLevels(surface, 9).map((level) => ({kind: "segments", segments: contourSegments(surface, level), className: "contour"}));
    this.surface.draw({below: [{kind: "heat", surface}, ...surface.contours], above});
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
    const {weight} = lossGradient(path.samples, {weight: state.weight, bias}, head, tie, everyNumber(path.samples.points.length));
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
    this.surface.svg.setAttribute("aria-label", t("gradient.surfaceNow", words));
    const keys = [
      keyEntry(lineSwatch("descent-halo", "descent-path"), t("gradient.key.path")), keyEntry(lineSwatch("descent-last"), t("gradient.key.last")),
      keyEntry(el("span", {class: "arrow-key downhill-key", "aria-hidden": "true"}, "→"), t("gradient.key.arrow")),
    ];
    if (slice.lowest) keys.push(keyEntry(diamondSwatch("slice-lowest"), t("gradient.key.slice")));
    if (slice.optimum) keys.push(keyEntry(diamondSwatch("optimum"), t("gradient.key.optimum", {bias: num(slice.optimum.bias, 4)})));
    this.surfaceKey.replaceChildren(...keys);
  },

  _result(path, at) {
    const {samples, settings, states, losses, errors} = path;
    const state = states[at];
    const gradient = lossGradient(samples, state, settings.head, settings.tie, everyNumber(samples.points.length));
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
    this.ended.replaceChildren(...(text ? [el("p", {class: `verdict ${kind}`}, text)] : []));
  },
};

function endedText(path, at) {
  const errors = path.errors[at];
  if (path.ended === "limit") return t("gradient.ended.limit", {count: MAX_DESCENT_STEPS});
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
  const score = linearScore(states[t0], x);
  const slope = sampleSlope(settings.head, score, sign, settings.tie);
  const kink = settings.head === "perceptron" && score === 0 ? ` (${t("gradient.atKink", {tie: settings.tie})})` : "";
  const label = data.classes === 2 ? "" : ` (${className(data, data.labels[i])})`;
  return [
    [t("step.sample"), line(`${i + 1}:  x = `, vector(x), `,  y = ${signed(sign)}${label}`)],
    [t("gradient.score"), line(scoreLine("s = w·x + b", weight, bias, x, score))],
    [t("gradient.loss"), line(`ℓ = ${LOSS_FORMULAS[settings.head]} = ${lossTerms(settings.head, score, sign)} = `, strong(short(sampleLoss(settings.head, score, sign), 5)))],
    [t("gradient.slope"), line(`ℓ′(s) = ${t(`descent.slope.${settings.head}`)} = `, strong(short(slope, 5)), kink)],
    [t("gradient.gradient"), line(
      `ℓ′(s)·(x₁, x₂, 1) = ${factor(Number(slope.toPrecision(5)))}·${vector([...x, 1])} = `, strong(shortVector([...moves[t0].gradient.weight, moves[t0].gradient.bias])),
    )],
  ];
}

function batchRows(data, path, t0) {
  const {samples, settings, moves} = path;
  const {batch, gradient} = moves[t0];
  const whole = batch.length === samples.points.length;
  const names = whole ? t("gradient.all", {count: batch.length}) : batch.slice(0, 30).map((i) => i + 1).join(", ");
  return [
    [t("gradient.samples"), names],
    [t("gradient.loss"), line(t("gradient.lossMean", {loss: LOSS_FORMULAS[settings.head]}), strong(short(gradient.loss, 5)))],
    [t("gradient.slope"), line(`ℓ′(s) = ${t(`descent.slope.${settings.head}`)}`)],
    [t("gradient.gradient"), line(
      `∇L = 1/${batch.length} Σ ℓ′(s)·(x₁, x₂, 1) = `, strong(shortVector([...gradient.weight, gradient.bias])),
    )],
  ];
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
    line(`b ← ${short(before.bias)} − ${num(settings.lr)}·${gradient.bias < 0 ? `(${short(gradient.bias)})` : short(gradient.bias)} = `, strong(short(after.bias))),
  ]];
}

registerView(gradientView);
