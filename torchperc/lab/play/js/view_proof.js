// Separable or not, decided in fractions: the widest strip, or a point in both hulls.

const LONG_FRACTION = 17; // characters
const QUICK_PROOF = 150; // points: more than that are not proved while one is dragged

const proofView = {
  id: "proof",

  mount(element, store) {
    const stage = div("stage");
    this.text = el("section", {class: "card proof", id: "proof-text", tabindex: -1});
    this.check = el("section", {class: "card", id: "proof-check"});
    element.append(div("split", stage, div("column", this.text, this.check)));
    this.plane = new Plane(stage, store, {id: "proof-plane", label: t("plane.label")});
    this.planes = [this.plane];
  },

  update(store, changes) {
    const {data} = store;
    if (!["data", "view", "theme"].some((name) => changes.has(name))) return;
    if (store.problem) return this._show({text: [el("p", {class: "hint"}, t(store.problem))]});
    if (store.dragging && data.points.length > QUICK_PROOF) return this.plane.draw();
    try {
      this._show(store.proof.separable ? separableProof(data, store.proof) : inseparableProof(data, store.proof));
      announce(this.text.querySelector(".decision").textContent);
    } catch (error) {
      this._show({text: [el("p", {class: "hint"}, t("problem.proof", {error: error.message}))]});
    }
  },

  _show({text, check = [], shapes = {}}) {
    this.text.replaceChildren(...text);
    this.check.replaceChildren(...check);
    this.check.hidden = check.length === 0;
    this.plane.draw(shapes);
    if (this.text.querySelector(".rounded")) this.text.append(remark(t("proof.long")));
  },
};

// A fraction as text, or rounded if it is too long to read; the whole of it is then in the tooltip.
function fractionText(value) {
  const text = value.toString().replace("-", "−");
  if (text.length <= LONG_FRACTION) return text;
  return el("span", {title: text, class: "rounded"}, `≈ ${num(value.toNumber())}`);
}

function fractionVector(values) {
  return el("span", {}, "(", ...values.flatMap((value, k) => (k ? [", ", fractionText(value)] : [fractionText(value)])), ")");
}

// √ of a fraction with a name before it: γ = √(1/8) ≈ 0.353553; the root is taken where that leaves a fraction.
function rootWords(square, name) {
  const decimal = num(Math.sqrt(square.toNumber()));
  if (square.toString().length > 2 * LONG_FRACTION) return `${name} ≈ ${decimal}`;
  const whole = [square.numerator, square.denominator].map((value) => BigInt(Math.round(Math.sqrt(Number(value)))));
  const taken = new Rational(...whole);
  const sign = square.denominator === 1n ? `√${square}` : `√(${square})`;
  const root = taken.times(taken).compare(square) === 0 ? taken.toString() : sign;
  return root === decimal ? `${name} = ${root}` : root.length > LONG_FRACTION ? `${name} ≈ ${decimal}` : `${name} = ${root} ≈ ${decimal}`;
}

function decision(yes, words) {
  return el("p", {class: `decision ${yes ? "yes" : "no"}`, "data-test": "decision"}, `${yes ? "✓" : "✗"} ${words}`);
}

function proofWeights({weight, bias}) {
  const name = (letter, k) => letter + (weight.length > 1 ? subscript(k) : "");
  return weight.map((row, k) => (
    el("span", {}, `${name("w", k)} = `, fractionVector(row), `,  ${name("b", k)} = `, fractionText(bias[k]))
  ));
}

function sampleChip(data, index) {
  return el("span", {class: "chip"}, markerIcon(data.labels[index]), `${index}: ${vector(data.points[index])}`);
}

// The numbers nearest to weights in fractions.
function roundedWeights({weight, bias}) {
  return {weight: weight.map((row) => row.map((value) => value.toNumber())), bias: bias.map((value) => value.toNumber())};
}

function separableProof(data, proof) {
  const two = data.classes === 2;
  const key = (name) => t(two ? `proof.${name}` : `proof.${name}Many`);
  const state = roundedWeights(proof);
  const rows = [
    [key("gamma"), el("span", {class: "big"}, rootWords(proof.gammaSquared, "γ"))],
    ...(two ? [[t("proof.width"), rootWords(proof.gammaSquared.times(4), "2γ")]] : []),
    [t("proof.line"), ...proofWeights(proof)],
    [key("supports"), div("group", ...proof.supports.map((index) => sampleChip(data, index)))],
  ];
  const slacks = data.points.slice(0, MOST_ROWS).map((point, index) => ({
    attributes: {class: proof.supports.includes(index) ? "current" : null},
    cells: [
      String(index), vector(point), classBadge(data, data.labels[index]),
      fractionText(exactSlack(proof.weight, proof.bias, point, data.labels[index])),
    ],
  }));
  const heads = [t("log.sample"), t("log.x"), t("log.y"), key("slack")];
  return {
    text: [
      decision(true, t("proof.yes")), el("p", {}, key("yesText")), definitions("facts", rows), remark(t("proof.exact")),
    ],
    check: [el("h2", {}, key("slacks")), plainTable("slacks", t("proof.slack"), heads, slacks)],
    shapes: {
      below: two ? stripShapes(state, data.points[proof.supports[0]]) : [...regionShapes(state, "region"), ...boundaryShapes(state, "now")],
      above: proof.supports.map((index) => ringShape(index, "support")),
    },
  };
}

// The strip |w·x + b| < 1 between the classes, its middle line, and its half-width at a support.
function stripShapes({weight: [w], bias: [b]}, support) {
  const away = (w[0] * support[0] + w[1] * support[1] + b) / (w[0] * w[0] + w[1] * w[1]);
  const foot = support.map((value, axis) => value - away * w[axis]);
  const strip = (plane) => {
    const half = clipped(corners(plane.frame), w, b + 1);
    return polygonShape(clipped(half, w.map((value) => -value), 1 - b), "strip")(plane);
  };
  return [
    strip, lineShape(w, b - 1, "edge"), lineShape(w, b + 1, "edge"), lineShape(w, b, "now"),
    arrowShape(foot, support, "width", "γ", true),
  ];
}

function inseparableProof(data, proof) {
  const two = data.classes === 2;
  const title = t(proof.kind === "weakly separable" ? "proof.weakly" : "proof.no");
  const text = [decision(false, title), el("p", {}, t(two ? "proof.noText" : "proof.noMany"))];
  const rings = proof.weights.map(({index}) => ringShape(index, "support"));
  if (!two) {
    const rows = proof.weights.map(({index, rival, fraction}) => (
      [sampleChip(data, index), classBadge(data, data.labels[index]), className(data, rival), fractionText(fraction)]
    ));
    const heads = ["proof.sample", "log.y", "proof.rival", "proof.fraction"].map((name) => t(name));
    text.push(remark(t("proof.exact")));
    return {text, check: [plainTable("certificate", title, heads, rows)], shapes: {above: rings}};
  }
  const mean = (label) => el("span", {}, ...proof.weights.filter(({index}) => data.labels[index] === label).flatMap(
    ({index, fraction}, k) => [k ? " + " : "", strong(fractionText(fraction)), "·", vector(data.points[index])],
  ));
  const rows = [
    [t("proof.point"), el("span", {class: "big"}, fractionVector(proof.point))],
    ...[0, 1].map((label) => [t("proof.combination", {label: className(data, label)}), mean(label)]),
    ...(proof.weight ? [[t("proof.line"), ...proofWeights(proof)]] : []),
  ];
  if (proof.weight) text.push(el("p", {}, t("proof.weaklyText")));
  text.push(definitions("facts", rows), remark(`${t("proof.hulls")} ${t("proof.exact")}`));
  return {text, shapes: {below: hullShapes(data, proof), above: [...rings, markShape(
    proof.point.map((value) => value.toNumber()), "circle", {class: "dot common", r: 5},
  )]}};
}

function hullShapes(data, proof) {
  const hulls = hullsOf(data, wholePoints(data.points).whole)
    .map((hull, label) => polygonShape(hull.map((i) => data.points[i]), `hull class-${label}`));
  const point = proof.point.map((value) => value.toNumber());
  const pulls = proof.weights.map(({index}) => pathShape([[point, data.points[index]]], `pull class-${data.labels[index]}`));
  return [...hulls, ...(proof.weight ? boundaryShapes(roundedWeights(proof), "now") : []), ...pulls];
}

VIEWS.push(proofView);
