// Two sets of conventions on the same points, side by side, and where their logs part.

const SIDES = [
  {name: "first", conventions: "conventions", cursor: "cursor", log: "log"},
  {name: "second", conventions: "second", cursor: "secondCursor", log: "secondLog"},
];

const compareView = {
  id: "compare",

  mount(element, store) {
    this.summary = el("div", {class: "summary", id: "compare-summary", role: "status"});
    this.table = card(null);
    this.transport = transportPanel(logTrack(store, "compare", "both-", ["cursor", "secondCursor"]));
    this.parts = SIDES.map((side) => comparedSide(store, side));
    this.planes = this.parts.map(({plane}) => plane);
    const swap = () => store.set({
      conventions: store.second, second: store.conventions, cursor: store.secondCursor, secondCursor: store.cursor,
    });
    const heading = div("heading", el("h2", {}, t("compare.title")), button("swap", `⇄ ${t("compare.swap")}`, swap));
    const together = div("together", el("span", {class: "label"}, t("compare.together")), this.transport.element);
    element.append(card(null, heading, this.summary, together), div("split even", ...this.parts.map((part) => part.element)), this.table);
  },

  update(store) {
    for (const part of [this.transport, ...this.parts]) part.update();
    const [first, second] = [store.log, store.secondLog];
    const both = first && second;
    this.summary.replaceChildren(both ? comparison(store, first, second) : el("p", {class: "hint"}, ruleProblem(store)));
    this.table.replaceChildren(...(both ? [differenceTable(first, second)] : []));
  },
};

function comparedSide(store, side) {
  const transport = transportPanel(logTrack(store, "compare", `${side.name}-`, [side.cursor]));
  const form = conventionsPanel(store, side.conventions, `${side.name}-`);
  const stage = div("stage", el("h2", {}, t(`compare.${side.name}`)));
  const result = card(null);
  const element = el("div", {class: "column compact", id: `compare-${side.name}`}, stage, card(null, form.element), result);
  const plane = new Plane(stage, store, {id: `${side.name}-plane`, label: t("plane.label")});
  stage.append(transport.element);
  const update = () => {
    const [log, cursor] = [store[side.log], store[side.cursor]];
    transport.update();
    form.update();
    const unit = Math.min(...[store.log, store.secondLog].filter(Boolean).map((each) => arrowUnit(each, plane.frame)));
    plane.draw(log ? ruleShapes(log, cursor, plane.frame, {unit}) : {});
    result.replaceChildren(...(log ? [resultFigures(log, cursor), verdictBanner(log, cursor), stepCard(log, cursor)] : []));
  };
  return {element, plane, update};
}

// The number of the first mistake (from 1) at which two logs part, or null if they are the same.
function firstDifference(first, second) {
  const most = Math.max(first.index.length, second.index.length);
  const differ = (j) => ["index", "step", "wrong", "coef"].some((name) => first[name][j] !== second[name][j]);
  const found = everyNumber(most).find(differ);
  if (found !== undefined) return found + 1;
  const ends = [first, second].map((log) => stateAt(log, log.index.length));
  return sameJson(ends[0], ends[1]) ? null : Math.min(1, most) || null;
}

// A sentence: where the logs part, with a button to go there.
function comparison(store, first, second) {
  const t0 = firstDifference(first, second);
  if (t0 === null) return el("p", {class: "big"}, t("compare.same", {count: first.index.length}));
  const mistake = (log, side) => (t0 > log.index.length ? t("compare.ended", {side}) : t("compare.mistake", {
    side, sample: log.index[t0 - 1], score: log.scores[t0 - 1].map((score) => num(score)).join(", "),
  }));
  const sameSamples = sameJson([first.index, first.step], [second.index, second.step]);
  const text = sameSamples ? t("compare.bias", {t: t0})
    : t("compare.part", {t: t0, first: mistake(first, t("compare.first")), second: mistake(second, t("compare.second"))});
  const go = () => store.set({cursor: t0, secondCursor: t0});
  return el("p", {class: "big"}, text, " ", button("go-there", t("compare.go"), go, {class: "link"}));
}

function differenceTable(first, second) {
  const end = (log) => weightsText(stateAt(log, log.index.length));
  const rows = differingConventions(first, second, true);
  if (!sameJson(first.start, second.start)) rows.push([t("conventions.start"), weightsText(first.start), weightsText(second.start)]);
  rows.push(
    [t("compare.mistakes"), first.index.length, second.index.length],
    [t("compare.epochs"), first.epochEnds.length, second.epochEnds.length],
    [t("result.weights"), end(first), end(second)],
  );
  const heads = ["", t("compare.first"), t("compare.second")];
  const marked = rows.map((cells) => ({attributes: {class: cells[1] === cells[2] ? null : "differs"}, cells: cells.map(String)}));
  return plainTable("differences", t("compare.title"), heads, marked);
}

VIEWS.push(compareView);
