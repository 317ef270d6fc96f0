// What the views of the rule are made of: transport, the step written out, the result, conventions, the table, charts.

// --- a step, with its numbers -----------------------------------------------------------------------------------------

function stepCard(log, t0) {
  const {data} = log;
  if (t0 === 0) return startCard(log);
  const j = t0 - 1;
  const i = log.index[j];
  const title = t("step.title", {t: t0, total: log.index.length});
  const where = t("step.where", {epoch: epochOf(log, j) + 1, sample: i});
  const rows = data.classes === 2 ? stepRows(log, j) : stepRowsOfMany(log, j);
  return el(
    "div", {class: "step"},
    el("h3", {class: "step-title"}, title, el("small", {}, where)),
    el("dl", {class: "formulas"}, ...rows.flatMap(([name, ...lines]) => [
      el("dt", {}, name), el("dd", {}, ...lines.map((line) => el("div", {}, line))),
    ])),
  );
}

function startCard(log) {
  const {weight, bias} = stateAt(log, 0);
  return el(
    "div", {class: "step"},
    el("h3", {class: "step-title"}, t("step.start")),
    el("p", {}, isZeroStart(log.start) ? t("step.startZero") : t("step.startText", {weights: weightsText(weight, bias)})),
    ...ruleInWords(log),
  );
}

function ruleInWords({classes, conventions: {tie, biasStep, margin}}) {
  const moves = (row, sign, c) => {
    const name = (letter) => [letter, row ? el("sub", {}, row) : ""];
    const gain = (letter, step) => [...name(letter), " ← ", ...name(letter), ` ${sign} ${c}${step}`];
    const bias = biasStep === "none" ? [] : [",  ", ...gain("b", biasStep === "radius" ? "·R²" : "")];
    return el("p", {class: "big formula"}, ...gain("w", "·x"), ...bias);
  };
  if (classes !== null) return [el("p", {}, t("step.ruleMany")), moves("y", "+", "η"), moves("r", "−", "η")];
  const why = tie === "sign" ? t("conventions.tie.sign").split(": ")[1] : `y·s ${tie === "update" ? "≤" : "<"} ${num(margin)}`;
  return [el("p", {}, t("step.rule", {why})), moves("", "+", "η·y")];
}

// A product as a sum of its terms: 1·0.5 + (−1)·1 + b.
function scoreTerms(weight, bias, x) {
  return [...weight.map((w, axis) => `${factor(w)}·${factor(x[axis])}`), factor(bias)].join(" + ");
}

function scoreLine(name, weight, bias, x, score) {
  const own = weight[0] * x[0] + weight[1] * x[1] + bias;
  const hidden = Math.abs(own - score) > 1e-6 * (1 + Math.abs(score)) ? ` (${t("step.hidden")})` : "";
  return [`${name} = `, hidden ? "" : `${scoreTerms(weight, bias, x)} = `, strong(num(score)), hidden];
}

function strong(text) {
  return el("strong", {}, text);
}

function line(...parts) {
  return el("span", {}, ...parts.flat());
}

function classBadge(data, label) {
  return el("span", {class: `badge class-${label}`}, markerIcon(label), className(data, label));
}

function markerIcon(label) {
  return svgEl(
    "svg", {class: `marker class-${label}`, viewBox: "-10 -10 20 20", "aria-hidden": "true"},
    svgEl("path", {class: "mark", d: markerPath(MARKERS[label], 7.5)}),
  );
}

function signed(value) {
  return value > 0 ? `+${num(value)}` : num(value);
}

function stepRows(log, j) {
  const {data, conventions} = log;
  const i = log.index[j];
  const x = data.points[i];
  const y = data.labels[i] === 1 ? 1 : -1;
  const [before, after] = [stateAt(log, j), stateAt(log, j + 1)];
  const [score] = log.scores[j];
  const c = log.coef[j];
  return [
    [t("step.sample"), line("x = ", vector(x), ",  y = ", data.classNames ? `${signed(y)}, ` : "", classBadge(data, data.labels[i]))],
    [t("step.score"), line(scoreLine("s = w·x + b", before.weight[0], before.bias[0], x, score))],
    [t("step.why"), line(whyText(conventions, y, score))],
    [t("step.coef"), line(Math.abs(c) === conventions.lr ? `c = η·y = ${num(conventions.lr)}·${factor(y)} = ` : "c = ", strong(num(c)))],
    [t("step.weights"), line(
      `w ← w + c·x = ${vector(before.weight[0])} + ${factor(c)}·${vector(x)} = `, strong(vector(after.weight[0])),
    )],
    [t("step.bias"), biasLine(log, "b", before.bias[0], c, after.bias[0])],
  ];
}

function whyText(conventions, y, score) {
  const {tie, margin} = conventions;
  if (tie === "sign") {
    return t("step.decision", {score: num(score), decision: score >= 0 ? "+1" : "−1", label: signed(y)});
  }
  const relation = tie === "update" ? "≤" : "<";
  return [`y·s = (${signed(y)})·${factor(score)} = ${num(y * score)} `, strong(`${relation} ${num(margin)}`)];
}

function biasLine(log, name, before, c, after, sign = "+") {
  if (log.projection) return line(`${name}: ${num(before)} → `, strong(num(after)), ` (${t("step.hidden")})`);
  if (log.biasScale === 0) return t("step.biasStays", {bias: num(before)});
  const radius = log.conventions.biasStep === "radius";
  const terms = factor(c) + (radius ? `·${num(log.biasScale)}` : "");
  return line(`${name} ← ${name} ${sign} c${radius ? "·R²" : ""} = ${num(before)} ${sign} ${terms} = `, strong(num(after)));
}

function stepRowsOfMany(log, j) {
  const {data, conventions} = log;
  const i = log.index[j];
  const x = data.points[i];
  const y = data.labels[i];
  const r = log.wrong[j];
  const [before, after] = [stateAt(log, j), stateAt(log, j + 1)];
  const scores = log.scores[j];
  const c = log.coef[j];
  const name = (letter, k) => letter + subscript(k);
  const moved = (k, sign) => line(
    `${name("w", k)} ← ${name("w", k)} ${sign} c·x = ${vector(before.weight[k])} ${sign} ${factor(c)}·${vector(x)} = `,
    strong(vector(after.weight[k])),
  );
  const relation = conventions.tie === "strict" ? "<" : "≤";
  const why = conventions.tie === "sign"
    ? t("step.decisionMany", {decision: className(data, r), label: className(data, y)})
    : line(
      `${name("s", y)} − ${name("s", r)} = ${num(scores[y])} − ${factor(scores[r])} = ${num(scores[y] - scores[r])} `,
      strong(`${relation} ${num(conventions.margin)}`),
    );
  return [
    [t("step.sample"), line("x = ", vector(x), ",  y = ", classBadge(data, y))],
    [t("step.score"), ...scores.map((score, k) => line(scoreLine(name("s", k), before.weight[k], before.bias[k], x, score)))],
    [t("step.why"), why],
    [t("step.coef"), line(c === conventions.lr ? "c = η = " : "c = ", strong(num(c)))],
    [t("step.weights"), moved(y, "+"), moved(r, "−")],
    [t("step.bias"), biasLine(log, name("b", y), before.bias[y], c, after.bias[y]),
      biasLine(log, name("b", r), before.bias[r], c, after.bias[r], "−")],
  ];
}

function spokenStep(log, t0) {
  const {weight, bias} = stateAt(log, t0);
  const weights = weightsText(weight, bias);
  const total = log.index.length;
  if (t0 === 0) return t("step.saidStart", {total, weights});
  const score = log.scores[t0 - 1].map((value) => num(value)).join(", ");
  return t("step.said", {t: t0, total, sample: log.index[t0 - 1], score, weights});
}

// --- the plane's lines ------------------------------------------------------------------------------------------------

// Boundaries and weight vectors before and after mistake t, and the sample that was mistaken.
function ruleShapes(log, t0, frame, {shade = true, unit = arrowUnit(log, frame)} = {}) {
  const now = stateAt(log, t0);
  const before = t0 > 0 ? stateAt(log, t0 - 1) : null;
  const moved = stateMoves(now);
  const below = [...(shade && moved ? regionShapes(now.weight, now.bias, "region") : [])];
  const above = [];
  if (before && stateMoves(before)) below.push(...boundaryShapes(before, "before"));
  if (moved) below.push(...boundaryShapes(now, "now"));
  now.weight.forEach((_, k) => {
    if (before) above.push(weightArrow(before, k, unit, frame, "before"));
    above.push(weightArrow(now, k, unit, frame, "now"));
  });
  if (t0 > 0) above.push(ringShape(log.index[t0 - 1], "mistake"));
  return {below, above: above.filter((shape) => shape !== null)};
}

function stateMoves({weight}) {
  return weight.some((row) => row.some((w) => w !== 0));
}

function boundaryShapes({weight, bias}, className) {
  if (weight.length === 1) return [lineShape(weight[0], bias[0], className)];
  return regionShapes(weight, bias, `border ${className}`);
}

// How long a weight of 1 is drawn: the longest vector of the run fills a quarter of the plane.
function arrowUnit(log, frame) {
  if (log.longest === undefined) {
    log.longest = 0;
    forEachState(log, ({weight}) => {
      for (const row of weight) log.longest = Math.max(log.longest, log.scale * Math.hypot(row[0], row[1]));
    });
  }
  return (0.27 * (frame.x[1] - frame.x[0])) / (log.longest || 1);
}

// From the boundary of two classes; from the middle, in the colour of its class, with more of them.
function weightArrow({weight, bias}, k, unit, frame, css) {
  const w = weight[k];
  const two = weight.length === 1;
  if (w[0] === 0 && w[1] === 0) return null;
  const stretch = (frame.y[1] - frame.y[0]) / (frame.x[1] - frame.x[0]);
  const vector = [w[0] * unit, w[1] * unit * stretch];
  const foot = two ? footOf(w, bias[k], frame, vector) : null;
  if (two && css === "before" && foot === null) return null; // nothing that it belongs to
  const from = foot ?? middleOf(frame);
  const room = roomFor(from, vector, frame);
  const to = [from[0] + room * vector[0], from[1] + room * vector[1]];
  const name = css === "now" ? `w${two ? "" : subscript(k)}` : "";
  return {...arrowShape(from, to, `weight ${css}${two ? "" : ` class-${k}`}`, name), middle: two};
}

// The models that may be laid over: {averaged: {weight, bias}, pocket: {…}, voted: function}, of the whole run.
function overlayOf(log, name) {
  log.overlays ??= {};
  log.overlays[name] ??= {
    averaged: () => averaged(log),
    pocket: () => stateAt(log, pocketIndex(log)),
    voted: () => voted(log),
  }[name]();
  return log.overlays[name];
}

// How many places to colour: fewer for long runs.
function votedCells(log) {
  return Math.max(24, Math.min(120, Math.round(Math.sqrt(1e8 / (log.index.length + 1)))));
}

const MOST_VOTES = 3e6;

// How many samples a model decides wrongly; null where counting all votes would take too long.
function overlayErrors(log, name) {
  if (name === "voted" && log.index.length * log.data.points.length > MOST_VOTES) return null;
  const model = overlayOf(log, name);
  const decide = name === "voted" ? model : (x) => classAt(model, x);
  return log.data.points.filter((x, i) => decide(x) !== log.data.labels[i]).length;
}

// --- conventions ------------------------------------------------------------------------------------------------------

function conventionsPanel(store, name, prefix) {
  const current = () => store[name];
  const change = (patch) => store.set({[name]: {...current(), ...patch}});
  const choices = (field, values) => values.map((value) => [value, t(`conventions.${field}.${value}`)]);
  const pick = (field, values) => selectField(
    prefix + field, t(`conventions.${field}`), choices(field, values), (value) => change({[field]: value}),
  );
  const number = (field, limits) => numberField(
    prefix + field, t(`conventions.${field}`), limits, (value) => change({[field]: value}),
  );
  const dialects = [["", t("conventions.dialectOwn")], ...CONTENT.dialects.map(({id, name: words}) => [id, words.replace(/^note /, "lecture note ")])];
  const fields = {
    dialect: selectField(`${prefix}dialect`, t("conventions.dialect"), dialects, (id) => {
      const dialect = CONTENT.dialects.find((each) => each.id === id);
      store[`${name}Dialect`] = id;
      if (dialect) change({margin: 0, ...dialect.conventions});
    }),
    tie: pick("tie", TIES),
    biasStep: pick("biasStep", BIAS_STEPS),
    order: pick("order", ORDERS),
    seed: number("seed", {min: 0, integer: true, step: 1}),
    lr: number("lr", {above: 0}),
    margin: number("margin", {min: 0}),
    maxEpochs: number("maxEpochs", {min: 1, max: MOST_EPOCHS, integer: true, step: 1}),
  };
  const remark = el("p", {class: "remark", id: `${prefix}remark`});
  const start = el("div", {class: "start-weights"});
  const element = el(
    "div", {class: "conventions"},
    el("div", {class: "fields"}, ...Object.values(fields).map(({field}) => field)),
    remark,
    el("fieldset", {class: "start"}, el("legend", {}, t("conventions.start")), start),
  );
  let rows = 0;
  let inputs = [];
  const update = () => {
    const conventions = current();
    const named = CONTENT.dialects.find((each) => each.id === store[`${name}Dialect`]);
    const fits = (each) => each && dialectFits(each, conventions);
    const dialect = fits(named) ? named : dialectLike(conventions);
    show(fields.dialect.input, dialect?.id ?? "");
    remark.textContent = dialect?.remark ?? "";
    for (const field of ["tie", "biasStep", "order", "seed", "lr", "margin", "maxEpochs"]) {
      show(fields[field].input, conventions[field]);
    }
    fields.seed.input.disabled = conventions.order === "given";
    fields.margin.input.disabled = conventions.tie === "sign";
    if (rows !== conventions.start.weight.length) {
      rows = conventions.start.weight.length;
      inputs = startFields(start, prefix, rows, (next) => change({start: next}), () => current().start);
      inputs.zero.addEventListener("click", () => change({start: zeroStart(store.data.classes)}));
    }
    inputs.show(conventions.start);
  };
  return {element, update};
}

function dialectFits(dialect, conventions) {
  return conventions.margin === 0
    && Object.entries(dialect.conventions).every(([name, value]) => conventions[name] === value);
}

// A row of numbers for each row of weights.
function startFields(place, prefix, rows, change, current) {
  const made = Array.from({length: rows}, (_, row) => {
    const name = rows === 1 ? "" : subscript(row);
    const put = (column) => (value) => {
      const {weight, bias} = structuredClone(current());
      if (column === 2) bias[row] = value;
      else weight[row][column] = value;
      change({weight, bias});
    };
    return [0, 1, 2].map((column) => numberField(
      `${prefix}start-${row}-${column}`,
      column === 2 ? t("conventions.startBias", {row: name}) : t("conventions.startWeight", {row: name ? `${name},` : "", axis: subscript(column + 1)}),
      {}, put(column),
    ));
  });
  const zero = button(`${prefix}start-zero`, t("conventions.startZero"), () => {});
  place.replaceChildren(...made.flat().map(({field}) => field), zero);
  return {
    zero,
    show: ({weight, bias}) => made.forEach((fields, row) => fields.forEach(({input}, column) => {
      show(input, column === 2 ? bias[row] : weight[row][column]);
    })),
  };
}

// What a change of conventions has changed: "tie update → sign: mistakes 18 → 11, …".
function changeText(before, after) {
  const names = ["tie", "biasStep", "order", "seed", "lr", "margin", "maxEpochs"];
  const changed = names.filter((name) => before.conventions[name] !== after.conventions[name]);
  const value = (log, name) => (
    typeof log.conventions[name] === "number" ? num(log.conventions[name]) : log.conventions[name]
  );
  const words = changed.map((name) => `${t(`conventions.${name}`).split(":")[0]} ${value(before, name)} → ${value(after, name)}`);
  const sameStart = sameJson(before.start, after.start);
  const what = [...words, ...(sameStart ? [] : [t("conventions.start")])].join(", ");
  const [old, now] = [before, after].map((log) => stateAt(log, log.index.length));
  const same = sameJson(before.index, after.index) && sameJson(before.coef, after.coef) && sameJson(old, now);
  if (same) return t("conventions.same", {what});
  const arrow = (one, other) => (one === other ? String(one) : `${one} → ${other}`);
  const [first, second] = [old, now].map(({weight, bias}) => weightsText(weight, bias));
  const weights = old.weight.length > 1 ? (first === second ? "" : t("result.weights") + " ≠") : arrow(first, second);
  return t("conventions.changed", {
    what, weights, mistakes: arrow(before.index.length, after.index.length),
    epochs: arrow(before.epochEnds.length, after.epochEnds.length),
  }).replace(/; $/, "");
}

// --- the result -------------------------------------------------------------------------------------------------------

function verdictText(log) {
  const stuck = log.conventions.tie === "strict" && !log.conventions.margin && isZeroStart(log.start)
    && log.index.length === 0 && log.verdict !== "SEPARATED";
  if (stuck) return t("verdict.stuck");
  if (log.verdict === "CYCLING" && log.cycle) return t("verdict.CYCLING.at", {first: log.cycle[0], again: log.cycle[1]});
  return t(`verdict.${log.verdict}`);
}

// How the run ended, told at its end; a recorded log need not say it.
function verdictBanner(log, t0) {
  if (!log.verdict || t0 < log.index.length) return "";
  return el(
    "p", {class: `verdict ${log.verdict.toLowerCase()}`, "data-test": "verdict"},
    strong(t(`verdict.name.${log.verdict}`)), " ", verdictText(log),
  );
}

function figures(pairs) {
  return el("dl", {class: "figures"}, ...pairs.map(([name, value, id]) => el(
    "div", {}, el("dt", {}, name), el("dd", {"data-test": id}, value),
  )));
}

function resultFigures(log, t0) {
  const state = stateAt(log, t0);
  const wrong = log.projection ? log.projection.errors[t0] : errorsOf(log.data, state);
  return figures([
    [t("result.mistakes"), String(log.index.length), "mistakes"],
    [t("result.epochs"), String(log.epochEnds.length), "epochs"],
    [t("result.errors"), `${wrong} / ${log.data.points.length}`, "errors"],
  ]);
}

// --- the table of the log ---------------------------------------------------------------------------------------------

const MOST_ROWS = 120;

function logTable(store) {
  const body = el("tbody", {});
  const head = el("tr", {});
  const more = el("p", {class: "remark"});
  const table = el(
    "table", {id: "log-table", "data-test": "log-table"},
    el("caption", {class: "hidden"}, t("log.caption")), el("thead", {}, head), body,
  );
  const frame = el("div", {class: "table-frame", tabindex: 0, role: "region", "aria-label": t("log.title")}, table);
  const element = el("div", {}, frame, more);
  let drawn = {log: null, first: -1};
  const update = () => {
    const {log, cursor} = store;
    if (!log) return void body.replaceChildren();
    const total = log.index.length;
    const inside = cursor - 1 >= drawn.first && cursor - 1 < drawn.first + MOST_ROWS;
    if (drawn.log !== log || !inside) {
      const first = total <= MOST_ROWS ? 0 : Math.max(0, Math.min(total - MOST_ROWS, cursor - MOST_ROWS / 2));
      drawn = {log, first};
      head.replaceChildren(...logColumns(log).map((name) => el("th", {scope: "col"}, t(`log.${name}`))));
      const shown = Math.min(total, MOST_ROWS);
      const states = statesAfter(log, first, first + shown);
      body.replaceChildren(...states.map((state, k) => logRow(store, log, first + k, state)));
      more.textContent = total === 0 ? t("log.none")
        : total > MOST_ROWS ? t("log.rows", {first: first + 1, last: first + shown, total}) : "";
    }
    for (const row of body.children) {
      const current = Number(row.dataset.t) === cursor;
      row.classList.toggle("current", current);
      if (current) {
        row.setAttribute("aria-current", "step");
        keepInside(frame, row, table.tHead.offsetHeight);
      } else row.removeAttribute("aria-current");
    }
    if (cursor === 0) frame.scrollTop = 0;
  };
  return {element, update};
}

// Scroll within the frame only: the page stays where it is.
function keepInside(frame, row, head) {
  const top = row.offsetTop;
  if (top < frame.scrollTop + head) frame.scrollTop = top - head;
  const bottom = top + row.offsetHeight;
  if (bottom > frame.scrollTop + frame.clientHeight) frame.scrollTop = bottom - frame.clientHeight;
}

function logColumns(log) {
  return ["t", "epoch", "sample", "x", "y", ...(log.classes === null ? [] : ["wrong"]), "score", "coef", "weight", "bias"];
}

// The weights after mistakes first … last − 1, in one pass.
function statesAfter(log, first, last) {
  const states = [];
  forEachState(log, (state, t) => {
    if (t > first && t <= last) states.push(scaledState(state, log.scale));
  });
  return states;
}

function logRow(store, log, j, {weight, bias}) {
  const i = log.index[j];
  const rows = log.classes === null ? [0] : [log.data.labels[i], log.wrong[j]];
  const cells = {
    t: el("button", {
      type: "button", class: "go", "aria-label": t("step.title", {t: j + 1, total: log.index.length}),
    }, String(j + 1)),
    epoch: epochOf(log, j) + 1,
    sample: i,
    x: vector(log.data.points[i], 4),
    y: classBadge(log.data, log.data.labels[i]),
    wrong: log.classes === null ? "" : className(log.data, log.wrong[j]),
    score: log.scores[j].map((score) => num(score, 4)).join(", "),
    coef: num(log.coef[j], 4),
    weight: rows.map((k) => (log.classes === null ? "" : `w${subscript(k)} = `) + vector(weight[k], 4)).join(", "),
    bias: rows.map((k) => num(bias[k], 4)).join(", "),
  };
  const go = () => { player.stop(); store.set({cursor: j + 1}); };
  return el(
    "tr", {"data-t": j + 1, onclick: go},
    ...logColumns(log).map((name) => el("td", {class: `col-${name}`}, cells[name])),
  );
}

// --- charts -----------------------------------------------------------------------------------------------------------

const CHART = {width: 420, height: 165, left: 40, right: 12, top: 10, bottom: 40};

function chart(label, ...parts) {
  return svgEl("svg", {class: "chart", viewBox: `0 0 ${CHART.width} ${CHART.height}`, role: "img", "aria-label": label}, ...parts);
}

function chartScale(xs, ys) {
  const {width, height, left, right, top, bottom} = CHART;
  return {
    x: (value) => left + ((value - xs[0]) / (xs[1] - xs[0] || 1)) * (width - left - right),
    y: (value) => height - bottom - ((value - ys[0]) / (ys[1] - ys[0] || 1)) * (height - top - bottom),
  };
}

function chartFrame(scale, ys, xTicks, axis) {
  const {width, height, left, right, bottom} = CHART;
  return [
    ...ys.map((value) => svgEl("line", {class: "grid", x1: left, x2: width - right, y1: scale.y(value), y2: scale.y(value)})),
    ...ys.map((value) => svgEl("text", {class: "tick", x: left - 6, y: scale.y(value) + 4, "text-anchor": "end"}, num(value, 3))),
    ...xTicks.map((value) => svgEl("text", {class: "tick", x: scale.x(value), y: height - bottom + 15, "text-anchor": "middle"}, num(value))),
    svgEl("text", {class: "tick", x: (left + width - right) / 2, y: height - 5, "text-anchor": "middle"}, axis),
  ];
}

function wholeTicks(low, high, most) {
  return tickValues([low, Math.max(high, low + 1)], most).filter((value) => Number.isInteger(value) && value <= high);
}

// Bars of the mistakes in each epoch; the epoch of the current mistake stands out.
function epochChart(log, t0) {
  const counts = mistakesByEpoch(log);
  const current = t0 > 0 ? epochOf(log, t0 - 1) : -1;
  const most = Math.max(1, ...counts);
  const scale = chartScale([0.4, counts.length + 0.6], [0, most]);
  const wide = Math.max(1, Math.min(34, (scale.x(2) - scale.x(1)) * 0.72));
  const bars = counts.map((count, k) => svgEl("rect", {
    class: k === current ? "bar current" : "bar", x: scale.x(k + 1) - wide / 2, width: wide,
    y: scale.y(count), height: scale.y(0) - scale.y(count),
  }, svgEl("title", {}, t("epochs.bar", {epoch: k + 1, count}))));
  const label = `${t("epochs.title")}: ${counts.slice(0, 60).join(", ")}`;
  const ticks = counts.length === 1 ? [1] : wholeTicks(1, counts.length, 8);
  return chart(label, ...chartFrame(scale, wholeTicks(0, most, 4), ticks, t("epochs.axis")), ...bars);
}

// The best bounds of γ* after each mistake as steps, the area between them, γ* itself and where we are.
function bracketChart(log, t0, gamma) {
  const best = bestBrackets(log);
  const total = log.index.length;
  const shown = best.map(({lower, upper}) => ({lower: Math.max(lower, 0), upper}));
  const finite = shown.map(({upper}) => upper).filter(Number.isFinite); // the best so far: the first is the largest
  const early = finite[Math.ceil(finite.length / 20) + 2] || Infinity; // unless it is 0: the first bounds of a long run would flatten the rest
  const high = Math.min(Math.max(gamma ?? 0, finite[0] ?? 0, 1e-9), 4 * Math.max(gamma ?? 0, early, 1e-9)) * 1.05;
  const scale = chartScale([0, Math.max(1, total)], [0, high]);
  const step = (name) => {
    let path = "";
    shown.forEach((bound, k) => {
      if (!Number.isFinite(bound[name])) return;
      const value = Math.min(bound[name], high);
      path += path ? ` H ${scale.x(k).toFixed(1)} V ${scale.y(value).toFixed(1)}` : `M ${scale.x(k).toFixed(1)} ${scale.y(value).toFixed(1)}`;
    });
    return path;
  };
  const here = scale.x(t0);
  const parts = [
    svgEl("path", {class: "bound upper", d: step("upper")}),
    svgEl("path", {class: "bound lower", d: step("lower")}),
    svgEl("line", {class: "here", x1: here, x2: here, y1: CHART.top, y2: CHART.height - CHART.bottom}),
  ];
  if (gamma > 0) {
    const y = scale.y(gamma);
    parts.push(svgEl("line", {class: "gamma", x1: CHART.left, x2: CHART.width - CHART.right, y1: y, y2: y}));
  }
  const label = `${t("bracket.title")}: ${bracketText(best[t0])}`;
  return chart(label, ...chartFrame(scale, tickValues([0, high], 4), wholeTicks(0, Math.max(1, total), 7), t("bracket.axis")), ...parts);
}

function bracketText({lower, upper}) {
  return t("bracket.live", {lower: num(lower, 4), upper: num(upper, 4)});
}
