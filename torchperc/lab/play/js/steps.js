// What the views of gradient descent and of the two-layer net share: steps made when asked for, settings, curves, planes.

// --- steps that are made when asked for ------------------------------------------------------------------------------

// Either view keeps its state under its id in the store, on top of its `defaults`; state.at is the current step.
// reach(store, t) makes steps up to t and says how far it came: less than t if the descent has ended before.
function viewState(store, view) {
  const state = soundState(view.defaults, store[view.id]);
  return {...state, at: view.reach(store, state.at)};
}

// What a link may bring along: values that the fields allow, anything else as by default.
function soundState(defaults, state) {
  const choices = {
    head: HEADS, tie: TIES, mode: DESCENT_MODES, order: ["given", "shuffled"], activation: ACTIVATIONS, hidden: HIDDEN_WIDTHS,
  };
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

// What both views do. A view adds `defaults`, whose entries `at`, `bias` and `axes` change the picture and not the path.
const descentView = {
  rounds: true,

  reach(store, steps) {
    return store.problem ? 0 : Math.min(steps, extendPath(this.path(store), Math.min(steps, MAX_STEPS)));
  },

  made(store) {
    return store.problem ? 0 : this.path(store).states.length - 1;
  },

  // The path of the current settings.
  path(store) {
    const {at, bias, axes, ...settings} = soundState(this.defaults, store[this.id]);
    const positive = positiveClass(store.data, settings.positive);
    const key = JSON.stringify([settings, positive]);
    if (this.kept?.key !== key || this.kept.data !== store.data) {
      this.kept = {key, data: store.data, positive, path: startPath(signedSamples(store.data, positive), settings)};
    }
    return this.kept.path;
  },

  picture() {
    return [this.plane.svg, this.other.svg];
  },

  keys(event) {
    return this.transport.keys(event);
  },

  change(store, patch) {
    player.stop();
    changeState(store, this, patch);
  },

  // Two planes side by side beside transport and settings, and cards below.
  layOut(element, store, more, titles, ...below) {
    this.element = element;
    this.transport = transportPanel(stepTrack(store, this, more));
    const stage = (key) => el("div", {class: "stage"}, el("h2", {}, t(key)));
    const [left, right] = [stage(titles[0]), stage(titles[1])];
    element.append(
      el(
        "div", {class: "trio"}, left, right,
        el(
          "div", {class: "column"},
          el("section", {class: "card"}, viewPane(this, "result")),
          el("section", {class: "card"}, el("h2", {}, t(titles[2])), this._fields(store)),
        ),
      ),
      el(
        "div", {class: "trio"}, el("div", {class: "column double"}, ...below),
        el("section", {class: "card"}, el("h2", {}, t("curves.title")), viewPane(this, "curves", {class: "curves"})),
      ),
    );
    return [left, right];
  },

  // Draws the view, or says why there is nothing to draw.
  update(store, changes) {
    const {problem} = store;
    this.element.classList.toggle("without-points", problem !== null);
    this._showFields(store);
    this.transport.update();
    if (problem) {
      for (const name of this.panes) this[name].replaceChildren();
      this.standing.replaceChildren(el("p", {class: "hint"}, t(problem)));
      this.plane.draw();
      return;
    }
    const [path, {at}] = [this.path(store), viewState(store, this)];
    this.curves.replaceChildren(...stepCurves(path.losses, path.errors, at));
    this._draw(store, path, at);
    if (changes.has(this.id) && !player.playing) announce(this._spoken(path, at));
  },
};

function changeState(store, view, patch) {
  store.set({[view.id]: {...viewState(store, view), ...patch}});
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

// Which class is +1 where there are more than two; `update` shows it for the data at hand.
function positiveField(prefix, change) {
  const {field, input} = selectField(`${prefix}-positive`, t("gradient.positive"), [], (value) => change({positive: Number(value)}));
  const remark = el("p", {class: "remark", id: `${prefix}-many`, "data-test": `${prefix}-many`});
  const update = (data, wanted) => {
    const positive = positiveClass(data, wanted);
    field.hidden = data.classes === 2;
    remark.textContent = data.classes === 2 ? "" : t("gradient.many", {label: className(data, positive)});
    input.replaceChildren(...everyNumber(data.classes).map((k) => el("option", {value: k}, className(data, k))));
    show(input, positive);
  };
  return {field, remark, update};
}

function positiveClass(data, wanted) {
  return data.classes === 2 ? 1 : Math.min(wanted, data.classes - 1);
}

// A part of a view that is drawn anew on every change, kept under its name.
function viewPane(view, name, attributes = {}) {
  view[name] = el("div", {id: `${view.id}-${name}`, "data-test": `${view.id}-${name}`, ...attributes});
  return view[name];
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

function stepCurves(losses, errors, at) {
  return [
    stepCurve("curves.loss", losses, at, {css: "loss"}), stepCurve("curves.errors", errors, at, {whole: true, css: "errors"}),
  ];
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

function keyEntry(mark, text) {
  return el("span", {class: "key"}, mark, text);
}

function lineSwatch(...classes) {
  const lines = classes.map((css) => svgEl("line", {class: css, x1: 3, x2: 27, y1: 6, y2: 6}));
  return svgEl("svg", {viewBox: "0 0 30 12", class: "swatch", "aria-hidden": "true"}, ...lines);
}

function shapeSwatch(shape) {
  return svgEl("svg", {viewBox: "-9 -9 18 18", class: "swatch ring-swatch", "aria-hidden": "true"}, shape);
}

function arrowSwatch() {
  return el("span", {class: "arrow-key", "aria-hidden": "true"}, "→");
}

// What decides for +1 in the plane: the colours of both classes, or of the one class that stands against the rest.
function signRegions(data, positive, weight, bias, frame) {
  if (weight[0] === 0 && weight[1] === 0) return [];
  if (data.classes === 2) return regionShapes([weight], [bias], "region");
  return [polygonShape(clipped(corners(frame), weight, bias), `region class-${positive}`)];
}
