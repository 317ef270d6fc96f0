// The two-layer net to look at: its hidden units' lines in the plane of the points, and where they map the points to.

const MOST_SEEN = 24; // samples in the table of outputs
const MOST_NUMBERED = 12;
const ARROW_PLACES = [0.4, 0.6, 0.25, 0.75]; // along the lines, so that the arrows of two units do not meet

const twolayerView = {
  ...descentView,
  id: "twolayer",
  defaults: {
    head: "logistic", tie: "update", lr: 1, mode: "batch", batchSize: 2, order: "given", activation: "tanh", hidden: 2,
    seed: 0, positive: 1, axes: [0, 1], at: 0,
  },

  mount(element, store) {
    this._beginWithXor(store);
    const right = this.layOut(element, store, {
      more: 100, titles: ["net.inputTitle", "net.hiddenTitle", "net.settings"], label: t("net.input"),
      other: {id: "twolayer-hiddenPlane", label: t("net.hiddenPlane"), data: () => this.mapped ?? {points: [], labels: [], classes: 2}},
      fields: this._fields(store), 
      below: [card("net.table", viewPane(this, "table")), card("net.outputs", viewPane(this, "outputs"))],
    });
    right.append(this._axisFields(store), viewPane(this, "hiddenKey", {class: "legend"}), viewPane(this, "hiddenText"));
  },

  // On the page's own example, still untouched, the net begins with XOR.
  _beginWithXor(store) {
    const untouched = store.preset === CONTENT.start.preset && store.past.length === 0;
    if (!untouched || Object.keys(store.twolayer).length || store.preset === "XOR") return;
    queueMicrotask(() => this._useXor(store));
  },

  _useXor(store) {
    store.set({...presetState(presetOf("XOR")), twolayer: {...viewState(store, this), at: 0}});
    notice(t("net.xorNow"));
  },

  python(store) {
    const state = viewState(store, this);
    const {hidden, activation, seed} = state;
    return pythonDescent(t("python.twolayer"), this.path(store).samples, state, [
      `net = tp.MLP(2, (${hidden},), activation="${activation}", init="uniform", seed=${seed}, dtype=torch.float64)`,
    ]);
  },

  _fields(store) {
    const again = (patch) => ("hidden" in patch || "seed" in patch ? {axes: [0, 1], at: 0} : {});
    const change = (patch) => this.change(store, {...again(patch), ...patch});
    const starts = [["", t("net.start.own")], ...CONTENT.starts.map(({id, name}) => [id, name])];
    this.start = selectField("twolayer-start", t("net.start"), starts, (id) => this._begin(store, id));
    this.start.field.classList.add("wide-field");
    const names = ["hidden", "activation", "seed", "head", "tie", "mode", "batchSize", "order", "lr"];
    const fields = this.descentFields(store, names, change);
    const xor = button("twolayer-xor", t("net.xor"), () => this._useXor(store), {class: "primary"});
    const next = button("twolayer-newSeed", t("net.newSeed"), () => change({seed: viewState(store, this).seed + 1}));
    return div("conventions", div("group", xor, next), div("fields", this.start.field, ...fields), this.many);
  },

  _begin(store, id) {
    const found = CONTENT.starts.find((start) => start.id === id);
    if (!found) return;
    const {activation, hidden, seed, lr} = found;
    this.change(store, {activation, hidden, seed, lr, head: "logistic", mode: "batch", axes: [0, 1], at: 0});
    if (store.preset !== "XOR") this._useXor(store);
  },

  _axisFields(store) {
    this.axes = ["axisX", "axisY"].map((name, k) => selectField(`twolayer-${name}`, t(`net.${name}`), [], (value) => {
      const {axes: [...axes], hidden} = viewState(store, this);
      axes[k] = Number(value);
      if (axes[0] === axes[1]) axes[1 - k] = everyNumber(hidden).find((unit) => unit !== axes[k]);
      changeState(store, this, {axes});
    }));
    return (this.axisRow = div("fields axis-row", ...this.axes.map(({field}) => field)));
  },

  _showFields(store) {
    const state = viewState(store, this);
    const same = (start) => ["activation", "hidden", "seed", "lr"].every((name) => start[name] === state[name]);
    const named = state.head === "logistic" && state.mode === "batch" ? CONTENT.starts.find(same) : null;
    show(this.start.input, named?.id ?? "");
    this.showDescentFields(store, state);
    this.axisRow.hidden = state.hidden === 2;
    this.axes.forEach(({input}, k) => {
      input.replaceChildren(...everyNumber(state.hidden).map((unit) => el("option", {value: unit}, unitName(unit))));
      show(input, state.axes[k]);
    });
  },

  _draw(store, path, at) {
    const net = path.states[at];
    this._drawInput(store, net);
    this._drawHidden(store, path, net, viewState(store, this));
    this._result(path, at);
    this.table.replaceChildren(...weightsTable(net));
    this.outputs.replaceChildren(...outputsTable(store.data, path.samples, net));
  },

  _drawInput(store, net) {
    const {frame} = this.plane;
    const colours = classColours();
    const [yes, no] = [colours[this.kept.positive], store.data.classes === 2 ? colours[0] : null]; // of many classes one has a colour
    const scores = gridOf(frame, player.playing || store.dragging ? 48 : 96, (point) => netScore(net, point));
    const units = net.hidden.weight.map((weight, k) => ({weight, bias: net.hidden.bias[k], k}));
    this.plane.draw({
      below: [
        rasterShape(scores.values, (score) => (score >= 0 ? yes : no), "raster"),
        pathShape(contourSegments(scores, 0), "boundary"),
        ...units.map(({weight, bias, k}) => lineShape(weight, bias, `unit unit-${k}`)),
      ],
      above: [...units.flatMap((unit) => unitArrow(unit, frame)), ...numberShapes(store.data.points, frame)],
    });
    const unitKey = ({k}) => legendEntries({"net.key.unit": lineSwatch(`line unit unit-${k}`)}, {k: unitName(k)});
    this.planeKey.replaceChildren(...legendEntries({"net.key.boundary": lineSwatch("boundary")}), ...units.flatMap(unitKey));
  },

  _drawHidden(store, {samples}, net, {axes, hidden}) {
    const map = (point) => {
      const {outer} = forwardNet(net, point);
      return axes.map((k) => outer[k]);
    };
    this.mapped = {...store.data, points: samples.points.map(map), names: axes.map(unitName)};
    this.other.options.frame = hiddenFrame(net.hidden.activation, this.mapped.points);
    const {frame} = this.other;
    const weight = axes.map((k) => net.weight[k]);
    const output = hidden === 2
      ? [...signRegions(store.data, this.kept.positive, weight, net.bias, frame), lineShape(weight, net.bias, "now")] : [];
    const {x, y} = this.plane.frame; // the lines of its grid as the hidden layer maps them
    const upright = tickValues(x).map((value) => gridAxis(y, 40).map((up) => map([value, up])));
    const level = tickValues(y).map((value) => gridAxis(x, 40).map((across) => map([across, value])));
    this.other.draw({below: [...output, pathShape([...upright, ...level], "mapped")], above: numberShapes(this.mapped.points, frame)});
    const line = hidden === 2 && lineSwatch("line now");
    this.hiddenKey.replaceChildren(...legendEntries({"net.key.output": line, "net.key.grid": lineSwatch("mapped")}));
    this.hiddenText.replaceChildren(remark(t(hidden === 2 ? "net.two" : "net.more", {count: hidden})));
  },

  _result(path, at) {
    const {errors, samples, states} = path;
    const standing = pathStanding(path, at);
    const units = deadUnits(states[at], samples).map(unitName).join(", ");
    const words = t(`net.standing.${standing}`, {errors: errors[at], total: samples.points.length, units});
    const ended = path.ended && at === states.length - 1;
    const kind = standing === "solved" ? "separated" : standing === "learning" && !ended ? "budget" : "cycling";
    this.result.replaceChildren(figures(this.lossAndErrors(path, at)));
    this.standing.replaceChildren(
      el("p", {class: `verdict ${kind}`, "data-test": "twolayer-verdict", "data-standing": standing}, words),
      ...(ended ? [el("p", {class: "verdict budget"}, endedText(path, at))] : []),
    );
  },
};

function unitName(k) {
  return `h${subscript(k + 1)}`;
}

// What the hidden plane shows: the values an activation can have, or those that occur.
function hiddenFrame(activation, points) {
  if (activation === "tanh") return squareFrame(-1.25, 1.25);
  if (activation === "sigmoid") return squareFrame(-0.15, 1.15);
  const high = niceCeiling(1.15 * points.flat().filter(Number.isFinite).reduce((most, value) => Math.max(most, value), 0.8));
  return squareFrame(-0.15 * high, high);
}

// From a unit's line to its positive side, an eighth of the plane long.
function unitArrow({weight, bias, k}, frame) {
  const ends = lineInFrame(weight, bias, frame);
  if (ends === null) return [];
  const reach = (0.125 * (frame.x[1] - frame.x[0])) / Math.hypot(...weight);
  const [low, high] = ends[0][0] < ends[1][0] ? ends : [ends[1], ends[0]];
  const from = [0, 1].map((axis) => low[axis] + ARROW_PLACES[k] * (high[axis] - low[axis]));
  return [arrowShape(from, from.map((value, axis) => value + weight[axis] * reach), `unit unit-${k}`, unitName(k))];
}

// The numbers of a few samples beside them, together where samples lie together, so that they are found again.
function numberShapes(points, {x}) {
  if (points.length > MOST_NUMBERED) return [];
  const near = (one, other) => Math.abs(one[0] - other[0]) + Math.abs(one[1] - other[1]) < (x[1] - x[0]) / 40;
  return points.flatMap((point, i) => {
    const numbers = everyNumber(points.length).filter((k) => near(point, points[k]));
    return numbers[0] < i ? [] : [markShape(point, "text", {class: "number", y: -15}, numbers.join(", "))];
  });
}

function weightsTable({hidden, weight, bias}) {
  const heads = ["unit", "w1", "w2", "bias", "out"].map((name) => t(`net.table.${name}`));
  const rows = hidden.weight.map(([w1, w2], k) => [
    el("span", {class: "unit-name"}, lineSwatch(`line unit unit-${k}`), unitName(k)),
    ...[w1, w2, hidden.bias[k], weight[k]].map((value) => short(value)),
  ]);
  const formula = `${t("net.table.output")} = ${short(bias)};  ${t("net.formula", {activation: hidden.activation})}`;
  return [plainTable("twolayer-weights", t("net.table"), heads, rows), remark(formula)];
}

function outputsTable(data, samples, net) {
  const heads = [t("net.outputs.sample"), "x", "y", t("net.outputs.hidden"), t("net.outputs.score"), t("net.outputs.decision")];
  const rows = samples.points.slice(0, MOST_SEEN).map((point, i) => {
    const {outer, score} = forwardNet(net, point);
    const decision = score >= 0 ? 1 : -1;
    const [css, sign] = decision === samples.signs[i] ? ["right", "✓"] : ["wrong", "✗"];
    return [
      String(i), vector(point), classBadge(data, data.labels[i]), vector(outer, (value) => short(value, 3)), short(score, 3),
      el("span", {class: css}, `${signed(decision)} ${sign}`),
    ];
  });
  const more = samples.points.length > MOST_SEEN ? t("net.outputs.more", {count: MOST_SEEN, total: samples.points.length}) : "";
  return [plainTable("twolayer-outputsTable", t("net.outputs"), heads, rows), remark(more)];
}

VIEWS.push(twolayerView);
