// What the views of the rule are made of: the step written out, shapes, conventions, the result, the table of the log.
function stepCard(log, t0) {
  const card = (title, ...parts) => div("step", el("h3", {class: "step-title"}, ...title), ...parts);
  if (t0 === 0) {
    const words = isZeroStart(log.start) ? t("step.startZero") : t("step.startText", {weights: weightsText(log.start)});
    return card([t("step.start")], el("p", {}, words), ...ruleInWords(log));
  }
  const where = t("step.where", {epoch: epochOf(log, t0 - 1) + 1, sample: log.index[t0 - 1]});
  const title = [t("step.title", {t: t0, total: log.index.length}), el("small", {}, where)];
  return card(title, definitions("formulas", stepRows(log, t0 - 1)));
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

function line(...parts) {
  return el("span", {}, ...parts);
}

// A score as a sum of its terms: s = 1·0.5 + (−1)·1 + b.
function scoreLine(name, weight, bias, x, score) {
  const own = weight[0] * x[0] + weight[1] * x[1] + bias;
  const hidden = Math.abs(own - score) > 1e-6 * (1 + Math.abs(score)) ? ` (${t("step.hidden")})` : "";
  const terms = [...weight.map((w, axis) => `${factor(w)}·${factor(x[axis])}`), factor(bias)].join(" + ");
  return line(`${name} = `, hidden ? "" : `${terms} = `, strong(num(score)), hidden);
}

function stepRows(log, j) {
  const {data, conventions: {lr}} = log;
  const two = log.classes === null;
  const [x, y, c] = [data.points[log.index[j]], data.labels[log.index[j]], log.coef[j]];
  const [before, after] = [stateAt(log, j), stateAt(log, j + 1)];
  const name = (letter, k) => (two ? letter : letter + subscript(k));
  const moves = two ? [[0, "+"]] : [[y, "+"], [log.wrong[j], "−"]]; // the rows of weights that change
  const coefficient = Math.abs(c) !== lr ? "" : two ? `η·y = ${num(lr)}·${factor(signOfClass(y))} = ` : "η = ";
  const label = two && data.classNames ? `${signed(signOfClass(y))}, ` : "";
  return [
    [t("step.sample"), line("x = ", vector(x), ",  y = ", label, classBadge(data, y))],
    [t("step.score"), ...log.scores[j].map((score, k) => (
      scoreLine(two ? "s = w·x + b" : name("s", k), before.weight[k], before.bias[k], x, score)
    ))],
    [t("step.why"), whyText(log, j)],
    [t("step.coef"), line("c = ", coefficient, strong(num(c)))],
    [t("step.weights"), ...moves.map(([k, sign]) => line(
      `${name("w", k)} ← ${name("w", k)} ${sign} c·x = ${vector(before.weight[k])} ${sign} ${factor(c)}·${vector(x)} = `,
      strong(vector(after.weight[k])),
    ))],
    [t("step.bias"), ...moves.map(([k, sign]) => biasLine(log, name("b", k), before.bias[k], c, after.bias[k], sign))],
  ];
}

function whyText(log, j) {
  const {data, classes, conventions: {tie, margin}} = log;
  const [y, r, scores] = [data.labels[log.index[j]], log.wrong[j], log.scores[j]];
  const limit = strong(`${tie === "strict" ? "<" : "≤"} ${num(margin)}`);
  if (classes !== null) {
    if (tie === "sign") return t("step.decisionMany", {decision: className(data, r), label: className(data, y)});
    const names = `s${subscript(y)} − s${subscript(r)}`;
    return line(`${names} = ${num(scores[y])} − ${factor(scores[r])} = ${num(scores[y] - scores[r])} `, limit);
  }
  const [sign, score] = [signOfClass(y), scores[0]];
  if (tie === "sign") return t("step.decision", {score: num(score), decision: score >= 0 ? "+1" : "−1", label: signed(sign)});
  return line(`y·s = (${signed(sign)})·${factor(score)} = ${num(sign * score)} `, limit);
}

function biasLine(log, name, before, c, after, sign) {
  if (log.projection) return line(`${name}: ${num(before)} → `, strong(num(after)), ` (${t("step.hidden")})`);
  if (log.biasScale === 0) return t("step.biasStays", {bias: num(before)});
  const radius = log.conventions.biasStep === "radius";
  const terms = factor(c) + (radius ? `·${num(log.biasScale)}` : "");
  return line(`${name} ← ${name} ${sign} c${radius ? "·R²" : ""} = ${num(before)} ${sign} ${terms} = `, strong(num(after)));
}

function spokenStep(log, t0) {
  const [total, weights] = [log.index.length, weightsText(stateAt(log, t0))];
  if (t0 === 0) return t("step.saidStart", {total, weights});
  const score = log.scores[t0 - 1].map((value) => num(value)).join(", ");
  return t("step.said", {t: t0, total, sample: log.index[t0 - 1], score, weights});
}

// Boundaries and weight vectors before and after mistake t, and the sample that was mistaken.
function ruleShapes(log, t0, frame, {shade = true, unit = arrowUnit(log, frame)} = {}) {
  const now = stateAt(log, t0);
  const states = t0 > 0 ? [["before", stateAt(log, t0 - 1)], ["now", now]] : [["now", now]];
  const below = states.flatMap(([css, state]) => boundaryShapes(state, css));
  if (shade && hasBoundary(now)) below.unshift(...regionShapes(now, "region"));
  const above = states.flatMap(([css, state]) => state.weight.flatMap((_, k) => weightArrow(state, k, unit, frame, css)));
  if (t0 > 0) above.push(ringShape(log.index[t0 - 1], "mistake"));
  return {below, above};
}

function hasBoundary({weight}) {
  return weight.flat().some((w) => w !== 0);
}

function boundaryShapes(state, css) {
  if (!hasBoundary(state)) return [];
  return state.weight.length === 1 ? [lineShape(state.weight[0], state.bias[0], css)] : regionShapes(state, `border ${css}`, 0.1);
}

// How long a weight of 1 is drawn: the longest vector of the run fills a quarter of the plane.
function arrowUnit(log, frame) {
  const longest = keptFor(log, "longest", () => {
    let most = 0;
    forEachState(log, ({weight}) => {
      for (const row of weight) most = Math.max(most, log.scale * Math.hypot(row[0], row[1]));
    });
    return most;
  });
  return (0.27 * (frame.x[1] - frame.x[0])) / (longest || 1);
}

// From the boundary of two classes; from the middle, in the colour of its class, with more of them.
function weightArrow({weight, bias}, k, unit, frame, css) {
  const w = weight[k];
  const two = weight.length === 1;
  if (w[0] === 0 && w[1] === 0) return [];
  const stretch = (frame.y[1] - frame.y[0]) / (frame.x[1] - frame.x[0]);
  const vector = [w[0] * unit, w[1] * unit * stretch];
  const foot = two ? footOf(w, bias[k], frame, vector) : null;
  if (two && css === "before" && foot === null) return []; // nothing that it belongs to
  const from = foot ?? [frame.x, frame.y].map(([lo, hi]) => (lo + hi) / 2);
  const room = roomFor(from, vector, frame);
  const to = [from[0] + room * vector[0], from[1] + room * vector[1]];
  const name = css === "now" ? `w${two ? "" : subscript(k)}` : "";
  return [arrowShape(from, to, `weight ${css}${two ? "" : ` class-${k}`}`, name, two)];
}

// A model that may be laid over, of the whole run: {weight, bias}, or the vote as a function.
function overlayOf(log, name) {
  const models = {averaged, pocket: () => stateAt(log, pocketIndex(log)), voted};
  return keptFor(log, name, () => models[name](log));
}

// How many samples a model decides wrongly; null where counting all votes would take too long.
function overlayErrors(log, name) {
  if (name === "voted" && log.index.length * log.data.points.length > 3e6) return null;
  const model = overlayOf(log, name);
  const decide = name === "voted" ? model : (x) => classAt(model, x);
  return log.data.points.filter((x, i) => decide(x) !== log.data.labels[i]).length;
}

function conventionsPanel(store, name, prefix) {
  const change = (patch) => store.set({[name]: {...store[name], ...patch}});
  let chosen = null; // of several dialects with the same conventions
  const named = CONTENT.dialects.map(({id, name: words}) => [id, words.replace(/^note /, "lecture note ")]);
  const dialects = selectField(`${prefix}dialect`, t("conventions.dialect"), [["", t("conventions.dialectOwn")], ...named], (id) => {
    chosen = CONTENT.dialects.find((each) => each.id === id);
    if (chosen) change({margin: 0, ...chosen.conventions});
  });
  const kinds = {...CONVENTION_FIELDS, maxEpochs: {min: 1, max: MOST_EPOCHS, integer: true}};
  const fields = Object.fromEntries(Object.entries(kinds).map(([field, kind]) => (
    [field, settingField(prefix + field, "conventions", field, kind, change)]
  )));
  const about = remark("", `${prefix}remark`);
  const place = div("start-weights");
  const element = div(
    "conventions", div("fields", dialects.field, ...Object.values(fields).map(({field}) => field)), about,
    el("fieldset", {class: "start"}, el("legend", {}, t("conventions.start")), place),
  );
  let start = null;
  const update = () => {
    const conventions = store[name];
    const fits = (each) => each && conventions.margin === 0
      && Object.entries(each.conventions).every(([field, value]) => conventions[field] === value);
    const dialect = [chosen, ...CONTENT.dialects].find(fits);
    show(dialects.input, dialect?.id ?? "");
    about.textContent = dialect?.remark ?? "";
    for (const [field, {input}] of Object.entries(fields)) show(input, conventions[field]);
    fields.seed.input.disabled = conventions.order === "given";
    fields.margin.input.disabled = conventions.tie === "sign";
    if (start?.rows !== conventions.start.bias.length) {
      start = startFields(`${prefix}start`, conventions.start.bias.length, () => store[name].start, (next) => change({start: next}));
      place.replaceChildren(...start.fields);
    }
    start.show(conventions.start);
  };
  return {element, update};
}

// Fields for the weights and the bias of each row, and a button for zeros.
function startFields(prefix, rows, current, change) {
  const name = (row) => (rows === 1 ? "" : subscript(row));
  const inputs = everyNumber(rows).map((row) => [0, 1, 2].map((column) => {
    const label = column === 2 ? `b${name(row)}` : `w${name(row)}${rows === 1 ? "" : ","}${subscript(column + 1)}`;
    return numberField(`${prefix}-${row}-${column}`, label, {}, (value) => {
      const {weight, bias} = copyState(current());
      if (column === 2) bias[row] = value;
      else weight[row][column] = value;
      change({weight, bias});
    });
  }));
  const zero = button(`${prefix}-zero`, t("conventions.startZero"), () => change(zeroStart(rows)));
  const showAll = ({weight, bias}) => inputs.forEach((row, k) => {
    [...weight[k], bias[k]].forEach((value, column) => show(row[column].input, value));
  });
  return {rows, fields: [...inputs.flat().map(({field}) => field), zero], show: showAll};
}

// The conventions in which two logs differ: [name, the one's, the other's] in words.
function differingConventions(first, second, words) {
  const value = ({conventions}, name) => {
    const found = conventions[name];
    return typeof found === "number" ? num(found) : words ? t(`conventions.${name}.${found}`) : found;
  };
  return Object.keys(CONVENTION_FIELDS).filter((name) => first.conventions[name] !== second.conventions[name])
    .map((name) => [t(`conventions.${name}`).split(":")[0], value(first, name), value(second, name)]);
}

// What a change of conventions has changed: "tie update → sign: mistakes 18 → 11, …".
function changeText(before, after) {
  const arrow = (one, other) => (one === other ? String(one) : `${one} → ${other}`);
  const changed = differingConventions(before, after, false).map(([name, one, other]) => `${name} ${arrow(one, other)}`);
  const what = [...changed, ...(sameJson(before.start, after.start) ? [] : [t("conventions.start")])].join(", ");
  const [old, now] = [before, after].map((log) => stateAt(log, log.index.length));
  if (sameJson([before.index, before.coef, old], [after.index, after.coef, now])) return t("conventions.same", {what});
  const [first, second] = [old, now].map(weightsText);
  const weights = old.weight.length === 1 ? arrow(first, second) : first === second ? "" : `${t("result.weights")} ≠`;
  return t("conventions.changed", {
    what, weights, mistakes: arrow(before.index.length, after.index.length),
    epochs: arrow(before.epochEnds.length, after.epochEnds.length),
  }).replace(/; $/, "");
}

// How the run ended, told at its end; a recorded log need not say it.
function verdictBanner(log, t0) {
  const {verdict, cycle, conventions: {tie, margin}} = log;
  if (!verdict || t0 < log.index.length) return "";
  const stuck = tie === "strict" && !margin && isZeroStart(log.start) && t0 === 0 && verdict !== "SEPARATED";
  const text = stuck ? t("verdict.stuck")
    : cycle ? t("verdict.CYCLING.at", {first: cycle[0], again: cycle[1]}) : t(`verdict.${verdict}`);
  const name = strong(t(`verdict.name.${verdict}`));
  return el("p", {class: `verdict ${verdict.toLowerCase()}`, "data-test": "verdict"}, name, " ", text);
}

function figures(pairs) {
  return el("dl", {class: "figures"}, ...pairs.map(([name, value, id]) => el(
    "div", {}, el("dt", {}, name), el("dd", {"data-test": id}, value),
  )));
}

// What has happened so far; at the end, that is all.
function resultFigures(log, t0) {
  const wrong = log.projection ? log.projection.errors[t0] : errorsOf(log.data, stateAt(log, t0));
  const epoch = t0 === log.index.length ? log.epochEnds.length : t0 && epochOf(log, t0 - 1) + 1;
  return figures([
    [t("result.mistakes"), String(t0), "mistakes"], [t("result.epochs"), String(epoch), "epochs"],
    [t("result.errors"), `${wrong} / ${log.data.points.length}`, "errors"],
  ]);
}

const MOST_ROWS = 120;

function logTable(store) {
  const [frame, more] = [div("log-frame"), remark("")];
  let drawn = {};
  const update = () => {
    const {log, cursor} = store;
    if (!log) {
      [drawn, more.textContent] = [{}, ""];
      return frame.replaceChildren();
    }
    const total = log.index.length;
    if (drawn.log !== log || (cursor && cursor <= drawn.first) || cursor > drawn.first + MOST_ROWS) {
      const first = Math.max(0, Math.min(total - MOST_ROWS, Math.round(cursor - MOST_ROWS / 2)));
      const last = Math.min(total, first + MOST_ROWS);
      drawn = {log, first};
      const heads = logColumns(log).map((name) => t(`log.${name}`));
      const states = everyNumber(last - first).map((k) => logRow(store, log, first + k + 1));
      frame.replaceChildren(plainTable("log-table", t("log.title"), heads, states));
      more.textContent = total === 0 ? t("log.none") : total > MOST_ROWS ? t("log.rows", {first: first + 1, last, total}) : "";
    }
    showCurrentRow(frame.firstChild, cursor);
  };
  return {element: el("div", {}, frame, more), update};
}

// Marks the row of a mistake and scrolls to it within the frame only: the page stays where it is.
function showCurrentRow(frame, cursor) {
  for (const row of frame.querySelectorAll("tbody tr")) {
    const current = Number(row.dataset.t) === cursor;
    row.classList.toggle("current", current);
    row.ariaCurrent = current ? "step" : null;
    if (!current) continue;
    const [top, bottom, head] = [row.offsetTop, row.offsetTop + row.offsetHeight, frame.querySelector("thead").offsetHeight];
    if (top < frame.scrollTop + head) frame.scrollTop = top - head;
    if (bottom > frame.scrollTop + frame.clientHeight) frame.scrollTop = bottom - frame.clientHeight;
  }
  if (cursor === 0) frame.scrollTop = 0;
}

function logColumns(log) {
  return ["t", "epoch", "sample", "x", "y", ...(log.classes === null ? [] : ["wrong"]), "score", "coef", "weight", "bias"];
}

function logRow(store, log, t0) {
  const [j, four, {weight, bias}] = [t0 - 1, (value) => num(value, 4), stateAt(log, t0)];
  const i = log.index[j];
  const rows = log.classes === null ? [0] : [log.data.labels[i], log.wrong[j]];
  const cells = {
    t: el("button", {type: "button", class: "go", "aria-label": t("step.title", {t: t0, total: log.index.length})}, String(t0)),
    epoch: epochOf(log, j) + 1,
    sample: i,
    x: vector(log.data.points[i], four),
    y: classBadge(log.data, log.data.labels[i]),
    wrong: log.classes === null ? "" : className(log.data, log.wrong[j]),
    score: log.scores[j].map(four).join(", "),
    coef: four(log.coef[j]),
    weight: rows.map((k) => (log.classes === null ? "" : `w${subscript(k)} = `) + vector(weight[k], four)).join(", "),
    bias: rows.map((k) => four(bias[k])).join(", "),
  };
  const go = () => {
    player.stop();
    store.set({cursor: t0});
  };
  return {attributes: {"data-t": t0, onclick: go}, cells: logColumns(log).map((name) => cells[name])};
}
