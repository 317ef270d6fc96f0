// What the views of gradient descent and of the two-layer net share: steps made when asked for, settings, curves, planes.

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
