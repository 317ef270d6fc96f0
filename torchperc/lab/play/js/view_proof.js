// Separable or not, decided in fractions: the widest strip, or a point in both hulls.

const LONG_FRACTION = 17; // characters
const QUICK_PROOF = 150; // points: more than that are not proved while one is dragged

const proofView = {
  id: "proof",

  mount(element, store) {
    const stage = el("div", {class: "stage"});
    this.text = el("section", {class: "card proof", id: "proof-text", tabindex: -1});
    this.check = el("section", {class: "card", id: "proof-check"});
    element.append(el("div", {class: "split"}, stage, el("div", {class: "column"}, this.text, this.check)));
    this.plane = createPlane(stage, store, {id: "proof-plane", label: t("plane.label")});
  },

  picture() {
    return [this.plane.svg];
  },

  update(store, changes) {
    const redraw = ["data", "view", "theme"].some((name) => changes.has(name));
    if (!redraw) return;
    if (store.problem) return this._empty(t(store.problem));
    if (store.dragging && store.data.points.length > QUICK_PROOF) return this.plane.draw();
    try {
      this._show(store, store.proof);
    } catch (error) {
      this._empty(t("problem.proof", {error: error.message}));
    }
  },

  _empty(text) {
    this.text.replaceChildren(el("p", {class: "hint"}, text));
    this.check.replaceChildren();
    this.check.hidden = true;
    this.plane.draw();
  },

  _show(store, proof) {
    const {data} = store;
    const parts = proof.separable ? separableProof(store, data, proof) : inseparableProof(data, proof);
    this.text.replaceChildren(...parts.text);
    this.check.replaceChildren(...parts.check);
    this.check.hidden = parts.check.length === 0;
    this.plane.draw(parts.shapes);
    if (this.text.querySelector(".rounded")) this.text.append(el("p", {class: "remark"}, t("proof.long")));
    announce(this.text.querySelector(".decision").textContent);
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

// √ of a fraction, taken where numerator and denominator are squares: √(1/8), 1/2, 3/√5.
function rootText(square) {
  const roots = [square.numerator, square.denominator].map(wholeRoot);
  if (roots[0] !== null && roots[1] !== null) return new Rational(roots[0], roots[1]).toString();
  const text = square.toString();
  if (text.length > LONG_FRACTION) return null;
  return square.denominator === 1n ? `√${text}` : `√(${text})`;
}

// The square root of a BigInt if it is an integer, else null. Newton's way in whole numbers, from above: such numbers
// have hundreds of digits where points are not on the grid.
function wholeRoot(value) {
  if (value < 2n) return value;
  let root = 1n << BigInt(value.toString(16).length * 2); // no less than the root
  for (;;) {
    const next = (root + value / root) / 2n;
    if (next >= root) return root * root === value ? root : null;
    root = next;
  }
}

function decision(yes, words) {
  return el("p", {class: `decision ${yes ? "yes" : "no"}`, "data-test": "decision"}, `${yes ? "✓" : "✗"} ${words}`);
}

function facts(pairs) {
  return el("dl", {class: "facts"}, ...pairs.flatMap(([name, ...values]) => [
    el("dt", {}, name), el("dd", {}, ...values.map((value) => el("div", {}, value))),
  ]));
}

// √ of a fraction with a name before it: γ = √(1/8) ≈ 0.353553.
function rootWords(square, name) {
  const root = rootText(square);
  const decimal = num(Math.sqrt(square.toNumber()));
  return root === null ? `${name} ≈ ${decimal}` : root === decimal ? `${name} = ${root}` : `${name} = ${root} ≈ ${decimal}`;
}

function proofWeights(proof) {
  const many = proof.weight.length > 1;
  return proof.weight.map((row, k) => el(
    "span", {}, `w${many ? subscript(k) : ""} = `, fractionVector(row), `,  b${many ? subscript(k) : ""} = `, fractionText(proof.bias[k]),
  ));
}

function separableProof(store, data, proof) {
  const two = data.classes === 2;
  const weight = proof.weight.map((row) => row.map((value) => value.toNumber()));
  const bias = proof.bias.map((value) => value.toNumber());
  const supports = proof.supports.map((index) => sampleChip(data, index));
  const rows = [
    [t(two ? "proof.gamma" : "proof.gammaMany"), el("span", {class: "big"}, rootWords(proof.gammaSquared, "γ"))],
    ...(two ? [[t("proof.width"), el("span", {}, rootWords(proof.gammaSquared.times(4), "2γ"))]] : []),
    [t("proof.line"), ...proofWeights(proof)],
    [t(two ? "proof.supports" : "proof.supportsMany"), el("span", {class: "chips"}, ...supports)],
  ];
  const shapes = two ? stripShapes(weight[0], bias[0], proof, data) : {
    below: [...regionShapes(weight, bias, "region"), ...regionShapes(weight, bias, "border now")],
    above: proof.supports.map((index) => ringShape(index, "support")),
  };
  return {
    shapes,
    text: [
      decision(true, t("proof.yes")), el("p", {}, t(two ? "proof.yesText" : "proof.yesMany")), facts(rows),
      el("p", {class: "remark"}, t("proof.exact")),
    ],
    check: slackTable(data, proof),
  };
}

function sampleChip(data, index) {
  return el("span", {class: "chip"}, markerIcon(data.labels[index]), `${index}: ${vector(data.points[index])}`);
}

// The strip |w·x + b| < 1 between the classes, its middle line and its supports.
function stripShapes([w1, w2], b, proof, data) {
  const w = [w1, w2];
  const square = w1 * w1 + w2 * w2;
  const one = data.points[proof.supports[0]];
  const away = (w1 * one[0] + w2 * one[1] + b) / square;
  const foot = [one[0] - away * w1, one[1] - away * w2];
  return {
    below: [
      {kind: "strip", weight: w, bias: b, className: "strip"},
      lineShape(w, b - 1, "edge"), lineShape(w, b + 1, "edge"), lineShape(w, b, "now"),
      {...arrowShape(foot, one, "width", "γ"), middle: true},
    ],
    above: proof.supports.map((index) => ringShape(index, "support")),
  };
}

function slackTable(data, proof) {
  const two = data.classes === 2;
  const rows = data.points.slice(0, MOST_ROWS).map((point, index) => {
    const slack = leastFraction(exactSlacks(proof.weight, proof.bias, point, data.labels[index]));
    const css = proof.supports.includes(index) ? "current" : "";
    return el("tr", {class: css}, el("td", {}, String(index)), el("td", {}, vector(point)), el("td", {}, classBadge(data, data.labels[index])), el("td", {}, fractionText(slack)));
  });
  return [
    el("h2", {}, t(two ? "proof.slacks" : "proof.slacksMany", {least: proof.least.toString()})),
    el("div", {class: "table-frame", tabindex: 0, role: "region", "aria-label": t("proof.slack")}, el(
      "table", {},
      el("thead", {}, el("tr", {}, ...[t("log.sample"), t("log.x"), t("log.y"), t(two ? "proof.slack" : "proof.slackMany")].map((name) => el("th", {scope: "col"}, name)))),
      el("tbody", {}, ...rows),
    )),
  ];
}

function inseparableProof(data, proof) {
  const two = data.classes === 2;
  const title = t(proof.kind === "weakly separable" ? "proof.weakly" : "proof.no");
  const text = [decision(false, title), el("p", {}, t(two ? "proof.noText" : "proof.noMany"))];
  if (two) {
    const pairs = [[t("proof.point"), el("span", {class: "big"}, fractionVector(proof.point))]];
    for (const label of [0, 1]) {
      const used = proof.weights.filter(({index}) => data.labels[index] === label);
      pairs.push([t("proof.combination", {label: className(data, label)}), el("span", {}, ...used.flatMap(({index, fraction}, k) => [
        k ? " + " : "", strong(fractionText(fraction)), "·", vector(data.points[index]),
      ]))]);
    }
    if (proof.weight) {
      text.push(el("p", {}, t("proof.weaklyText")));
      pairs.push([t("proof.line"), ...proofWeights(proof)]);
    }
    text.push(facts(pairs), el("p", {class: "remark"}, t("proof.hulls"), " ", t("proof.exact")));
  } else text.push(el("p", {class: "remark"}, t("proof.exact")));
  return {text, check: two ? [] : certificateTable(data, proof), shapes: two ? hullShapes(data, proof) : {
    above: proof.weights.map(({index}) => ringShape(index, "support")),
  }};
}

function certificateTable(data, proof) {
  const rows = proof.weights.map(({index, rival, fraction}) => el(
    "tr", {}, el("td", {}, sampleChip(data, index)), el("td", {}, classBadge(data, data.labels[index])),
    el("td", {}, className(data, rival)), el("td", {}, fractionText(fraction)),
  ));
  const names = ["proof.sample", "log.y", "proof.rival", "proof.fraction"];
  return [el("table", {"data-test": "certificate"}, el("thead", {}, el("tr", {}, ...names.map((name) => el("th", {scope: "col"}, t(name))))), el("tbody", {}, ...rows))];
}

function hullShapes(data, proof) {
  const hulls = [0, 1].map((label) => {
    const own = data.points.filter((_, index) => data.labels[index] === label);
    return polygonShape(convexHull(own).map((k) => own[k]), `hull class-${label}`);
  });
  const point = proof.point.map((value) => value.toNumber());
  const line = (proof.weight ?? []).map((row, k) => lineShape(row.map((value) => value.toNumber()), proof.bias[k].toNumber(), "now"));
  return {
    below: [...hulls, ...line, ...proof.weights.map(({index}) => segmentShape(point, data.points[index], `pull class-${data.labels[index]}`))],
    above: [...proof.weights.map(({index}) => ringShape(index, "support")), dotShape(point, "common")],
  };
}

registerView(proofView);
