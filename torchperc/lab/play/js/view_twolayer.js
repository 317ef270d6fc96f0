// The two-layer net to look at: its hidden units' lines in the plane of the points, and where they map the points to.

const NET_DEFAULTS = {
  head: "logistic", tie: "update", lr: 1, mode: "batch", batchSize: 2, order: "given", activation: "tanh", hidden: 2,
  seed: 0, positive: 1, axes: [0, 1], at: 0,
};
const MOST_SEEN = 24; // samples in the table of outputs
const MOST_NUMBERED = 12;
const HIDDEN_WIDTHS = [2, 3, 4];

// What the hidden plane shows: the values an activation can have, or those that occur.
function hiddenFrame(activation, points) {
  if (activation === "tanh") return {x: [-1.25, 1.25], y: [-1.25, 1.25], even: true};
  if (activation === "sigmoid") return {x: [-0.15, 1.15], y: [-0.15, 1.15], even: true};
  const high = niceCeiling(1.15 * Math.max(0.8, ...points.flat().filter(Number.isFinite)));
  return {x: [-0.15 * high, high], y: [-0.15 * high, high], even: true};
}

const twolayerView = {
  id: "twolayer",
  defaults: NET_DEFAULTS,
  ...descentView,

  mount(element, store) {
    this._beginWithXor(store);
    const pane = (name, attributes) => viewPane(this, name, attributes);
    const card = (key, name) => el("section", {class: "card"}, el("h2", {}, t(key)), pane(name));
    const titles = ["net.inputTitle", "net.hiddenTitle", "net.settings"];
    const [left, right] = this.layOut(element, store, 100, titles, card("net.table", "table"), card("net.outputs", "outputs"));
    this.plane = createPlane(left, store, {id: "twolayer-plane", label: t("net.input")});
    left.append(this.transport.element, pane("standing", {class: "standing", role: "status"}), pane("inputKey", {class: "legend"}));
    this.other = createPlane(right, store, {
      id: "twolayer-hiddenPlane", label: t("net.hiddenPlane"), editable: false, data: () => this.mapped ?? {points: [], labels: [], classes: 2},
    });
    right.append(this._axisFields(store), pane("hiddenKey", {class: "legend"}), pane("hiddenText"));
  },

  // On the page's own example, still untouched, the net begins with XOR.
  _beginWithXor(store) {
    const untouched = store.preset === CONTENT.start.preset && store.past.length === 0;
    if (!untouched || Object.keys(store.twolayer).length || !presetOf("XOR") || store.preset === "XOR") return;
    queueMicrotask(() => this._useXor(store));
  },

  _useXor(store) {
    const preset = presetOf("XOR");
    store.set({data: dataOf(preset), preset: preset.id, cursor: 0, secondCursor: 0, twolayer: {...viewState(store, this), at: 0}});
    notice(t("net.xorNow"));
  },

  python(store) {
    const state = viewState(store, this);
    const {hidden, activation, seed} = state;
    return pythonDescent(t("python.twolayer"), this.path(store).samples, state, [
      `net = tp.MLP(2, (${hidden},), activation="${activation}", init="uniform", seed=${seed}, dtype=torch.float64)`,
    ]);
  },

  // --- fields ---

  _fields(store) {
    const change = (patch) => this.change(store, patch);
    const starts = [["", t("net.start.own")], ...NET_STARTS.map(({id}) => [id, t(`net.start.${id}`)])];
    this.start = selectField("twolayer-start", t("net.start"), starts, (id) => this._begin(store, id));
    const names = ACTIVATIONS.map((name) => [name, name]);
    const widths = HIDDEN_WIDTHS.map((width) => [width, width]);
    this.own = {
      hidden: selectField("twolayer-hidden", t("net.hidden"), widths, (value) => change({hidden: Number(value), axes: [0, 1], at: 0})),
      activation: selectField("twolayer-activation", t("net.activation"), names, (value) => change({activation: value})),
      seed: numberField("twolayer-seed", t("net.seed"), {min: 0, integer: true, step: 1}, (seed) => change({seed, at: 0})),
    };
    this.fields = descentFields("twolayer", ["head", "tie", "mode", "batchSize", "order", "lr"], change);
    this.positive = positiveField("twolayer", change);
    this.start.field.classList.add("wide-field");
    const all = [this.start, ...Object.values(this.own), ...Object.values(this.fields), this.positive];
    return el(
      "div", {class: "conventions"},
      el(
        "div", {class: "group"}, button("twolayer-xor", t("net.xor"), () => this._useXor(store), {class: "primary"}),
        button("twolayer-newSeed", t("net.newSeed"), () => change({seed: viewState(store, this).seed + 1, at: 0})),
      ),
      el("div", {class: "fields"}, ...all.map(({field}) => field)), this.positive.remark,
    );
  },

  _begin(store, id) {
    const found = NET_STARTS.find((start) => start.id === id);
    if (!found) return;
    const {activation, hidden, seed, lr} = found;
    this.change(store, {activation, hidden, seed, lr, head: "logistic", mode: "batch", axes: [0, 1], at: 0});
    if (store.preset !== "XOR" && presetOf("XOR")) this._useXor(store);
  },

  _axisFields(store) {
    this.axes = ["axisX", "axisY"].map((name, k) => selectField(`twolayer-${name}`, t(`net.${name}`), [], (value) => {
      const axes = [...viewState(store, this).axes];
      axes[k] = Number(value);
      if (axes[0] === axes[1]) axes[1 - k] = everyNumber(viewState(store, this).hidden).find((unit) => unit !== axes[k]);
      changeState(store, this, {axes});
    }));
    return (this.axisRow = el("div", {class: "fields axis-row"}, ...this.axes.map(({field}) => field)));
  },

  _showFields(store) {
    const state = viewState(store, this);
    const same = (start) => ["activation", "hidden", "seed", "lr"].every((name) => start[name] === state[name]);
    const named = state.head === "logistic" && state.mode === "batch" ? NET_STARTS.find(same) : null;
    show(this.start.input, named?.id ?? "");
    for (const name of ["hidden", "activation", "seed"]) show(this.own[name].input, state[name]);
    showDescentFields(this.fields, state);
    this.positive.update(store.data, state.positive);
    this.axisRow.hidden = state.hidden === 2;
    this.axes.forEach(({input}, k) => {
      input.replaceChildren(...everyNumber(state.hidden).map((unit) => el("option", {value: unit}, unitName(unit))));
      show(input, state.axes[k]);
    });
  },

  // --- drawing ---

  panes: ["result", "table", "outputs", "curves", "inputKey"],

  _draw(store, path, at) {
    const net = path.states[at];
    this._drawInput(store, net);
    this._drawHidden(store, path, net, viewState(store, this));
    this._figures(path, at);
    this.table.replaceChildren(weightsTable(net));
    this.outputs.replaceChildren(...outputsTable(store.data, path.samples, net));
  },

  _spoken({samples, losses, errors}, at) {
    return t("net.said", {t: at, loss: short(losses[at]), errors: errors[at], total: samples.points.length});
  },

  _drawInput(store, net) {
    const {frame} = this.plane;
    const {positive} = this.kept;
    const rest = store.data.classes === 2 ? 0 : null; // of many classes only one has a colour here
    const decide = (point) => (netScore(net, point) >= 0 ? positive : rest);
    const cells = player.playing || store.dragging ? 48 : 96;
    const decisions = rasterShape(decide, "", cells);
    const boundary = {kind: "segments", segments: contourSegments(scoreGrid(net, frame, cells), 0), className: "boundary"};
    const lines = net.hidden.weight.map((weight, k) => lineShape(weight, net.hidden.bias[k], `unit unit-${k}`));
    const arrows = net.hidden.weight.flatMap((weight, k) => unitArrow(weight, net.hidden.bias[k], frame, k));
    this.plane.draw({below: [decisions, boundary, ...lines], above: [...arrows, ...numberShapes(store.data.points, frame)]});
    const unitKey = (_, k) => keyEntry(lineSwatch(`line unit unit-${k}`), t("net.key.unit", {k: unitName(k)}));
    this.inputKey.replaceChildren(keyEntry(lineSwatch("boundary"), t("net.key.boundary")), ...net.hidden.bias.map(unitKey));
  },

  _drawHidden(store, run, net, {axes, hidden}) {
    const map = (point) => {
      const {outer} = forwardNet(net, point);
      return [outer[axes[0]], outer[axes[1]]];
    };
    const names = axes.map(unitName);
    this.mapped = {...store.data, points: run.samples.points.map(map), names};
    this.other.options.frame = hiddenFrame(net.hidden.activation, this.mapped.points);
    const below = [];
    if (hidden === 2) {
      const weight = axes.map((k) => net.weight[k]);
      below.push(...signRegions(store.data, this.kept.positive, weight, net.bias, this.other.frame), lineShape(weight, net.bias, "now"));
    }
    below.push(...mappedGrid(this.plane.frame, map));
    this.other.draw({below, above: numberShapes(this.mapped.points, this.other.frame)});
    const keys = [keyEntry(lineSwatch("mapped"), t("net.key.grid"))];
    if (hidden === 2) keys.unshift(keyEntry(lineSwatch("line now"), t("net.key.output")));
    this.hiddenKey.replaceChildren(...keys);
    this.hiddenText.replaceChildren(el("p", {class: "remark"}, t(hidden === 2 ? "net.two" : "net.more", {count: hidden})));
  },

  _figures(run, at) {
    const {losses, errors, samples} = run;
    const total = samples.points.length;
    this.result.replaceChildren(figures([
      [t("gradient.figure.loss"), short(losses[at], 5), "twolayer-loss"],
      [t("gradient.figure.errors"), `${errors[at]} / ${total}`, "twolayer-errors"],
    ]));
    const standing = pathStanding(run, at);
    const units = deadUnits(run.states[at], samples).map(unitName).join(", ");
    const ended = run.ended && at === run.states.length - 1 ? t(`gradient.ended.${run.ended}`, {count: MAX_STEPS}) : null;
    const kind = standing === "solved" ? "separated" : standing === "learning" && !ended ? "budget" : "cycling";
    this.standing.replaceChildren(
      el(
        "p", {class: `verdict ${kind}`, "data-test": "twolayer-verdict", "data-standing": standing},
        t(`net.standing.${standing}`, {errors: errors[at], total, units}),
      ),
      ...(ended ? [el("p", {class: "verdict budget"}, ended)] : []),
    );
  },
};

function unitName(k) {
  return t("net.unit", {k: subscript(k + 1)});
}

// The scores on a grid over the plane, for the line where they are 0.
function scoreGrid(net, {x, y}, cells) {
  const axis = ([lo, hi]) => everyNumber(cells + 1).map((k) => lo + ((hi - lo) * k) / cells);
  const [first, second] = [axis(x), axis(y)];
  return {first, second, values: second.map((x2) => first.map((x1) => netScore(net, [x1, x2])))};
}

const ARROW_PLACES = [0.4, 0.6, 0.25, 0.75]; // along the lines, so that the arrows of two units do not meet

// From a unit's line to its positive side, an eighth of the plane long.
function unitArrow(weight, bias, frame, k) {
  const ends = lineInFrame(weight, bias, frame);
  if (ends === null) return [];
  const reach = (0.125 * (frame.x[1] - frame.x[0])) / Math.hypot(...weight);
  const [low, high] = ends[0][0] < ends[1][0] ? ends : [ends[1], ends[0]];
  const from = [0, 1].map((axis) => low[axis] + ARROW_PLACES[k] * (high[axis] - low[axis]));
  return [arrowShape(from, [from[0] + weight[0] * reach, from[1] + weight[1] * reach], `unit unit-${k}`, unitName(k))];
}

// The numbers of a few samples beside them, together where samples lie together, so that they are found again.
function numberShapes(points, {x, y}) {
  if (points.length > MOST_NUMBERED) return [];
  const up = (y[1] - y[0]) / 26;
  const near = (one, other) => Math.abs(one[0] - other[0]) + Math.abs(one[1] - other[1]) < (x[1] - x[0]) / 40;
  return points.flatMap((point, i) => {
    if (points.slice(0, i).some((earlier) => near(earlier, point))) return [];
    const numbers = points.flatMap((other, k) => (near(point, other) ? [k] : []));
    return [textShape([point[0], point[1] + up], numbers.join(", "), "number")];
  });
}

// The lines of the input plane's grid as the hidden layer maps them.
function mappedGrid(frame, map, pieces = 40) {
  const along = ([lo, hi], k) => lo + ((hi - lo) * k) / pieces;
  const lines = [];
  for (const value of tickValues(frame.x)) lines.push(everyNumber(pieces + 1).map((k) => map([value, along(frame.y, k)])));
  for (const value of tickValues(frame.y)) lines.push(everyNumber(pieces + 1).map((k) => map([along(frame.x, k), value])));
  return lines.map((points) => ({kind: "path", points, className: "mapped"}));
}

// --- tables ----------------------------------------------------------------------------------------------------------

function plainTable(id, label, heads, rows) {
  return el(
    "div", {class: "table-frame", tabindex: 0, role: "region", "aria-label": label},
    el(
      "table", {id, "data-test": id},
      el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", {scope: "col"}, head)))),
      el("tbody", {}, ...rows.map((cells) => el("tr", {}, ...cells.map((cell, k) => el(k ? "td" : "th", k ? {} : {scope: "row"}, cell))))),
    ),
  );
}

function weightsTable(net) {
  const heads = ["unit", "w1", "w2", "bias", "out"].map((name) => t(`net.table.${name}`));
  const rows = net.hidden.weight.map(([w1, w2], k) => [
    el("span", {class: "unit-name"}, lineSwatch(`line unit unit-${k}`), unitName(k)),
    ...[w1, w2, net.hidden.bias[k], net.weight[k]].map((value) => short(value)),
  ]);
  return el(
    "div", {}, plainTable("twolayer-weights", t("net.table"), heads, rows),
    el("p", {class: "remark"}, `${t("net.table.output")} = ${short(net.bias)};  ${t("net.formula", {activation: net.hidden.activation})}`),
  );
}

function outputsTable(data, samples, net) {
  const heads = [t("net.outputs.sample"), "x", "y", t("net.outputs.hidden"), t("net.outputs.score"), t("net.outputs.decision")];
  const rows = samples.points.slice(0, MOST_SEEN).map((point, i) => {
    const {outer, score} = forwardNet(net, point);
    const decision = score >= 0 ? 1 : -1;
    const right = decision === samples.signs[i];
    return [
      String(i), vector(point), classBadge(data, data.labels[i]), `(${outer.map((value) => short(value, 3)).join(", ")})`,
      short(score, 3),
      el("span", {class: right ? "right" : "wrong"}, `${signed(decision)} ${right ? "✓" : "✗"}`),
    ];
  });
  const more = samples.points.length > MOST_SEEN ? t("net.outputs.more", {count: MOST_SEEN, total: samples.points.length}) : "";
  return [plainTable("twolayer-outputsTable", t("net.outputs"), heads, rows), ...(more ? [el("p", {class: "remark"}, more)] : [])];
}

registerView(twolayerView);
