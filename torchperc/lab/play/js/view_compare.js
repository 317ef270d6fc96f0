// Two sets of conventions on the same points, side by side, and where their logs part.

const SIDES = [
  {name: "first", conventions: "conventions", cursor: "cursor", prefix: "first-"},
  {name: "second", conventions: "second", cursor: "secondCursor", prefix: "second-"},
];

const compareView = {
  id: "compare",

  mount(element, store) {
    this.summary = el("div", {class: "summary", id: "compare-summary", role: "status"});
    this.table = el("div", {class: "differences-frame"});
    this.both = transportPanel(logTrack(store, "compare", "both-", ["cursor", "secondCursor"]));
    this.parts = SIDES.map((side) => this._side(store, side));
    const swap = () => store.set({
      conventions: store.second, second: store.conventions, cursor: store.secondCursor, secondCursor: store.cursor,
    });
    element.append(
      el(
        "section", {class: "card", id: "explanation-compare"},
        el("div", {class: "heading"}, el("h2", {}, t("compare.title")), button("swap", `⇄ ${t("compare.swap")}`, swap)),
        this.summary,
        el("div", {class: "together"}, el("span", {class: "label"}, t("compare.together")), this.both.element),
      ),
      el("div", {class: "split even"}, ...this.parts.map(({element: part}) => part)),
      el("section", {class: "card"}, this.table),
    );
  },

  picture() {
    return this.parts.map(({plane}) => plane.svg);
  },

  keys(event) {
    return this.both.keys(event);
  },

  update(store) {
    this.both.update();
    this.parts.forEach((part, k) => part.update(SIDES[k]));
    const [first, second] = [store.log, store.secondLog];
    const both = first && second;
    this.summary.replaceChildren(both ? comparison(store, first, second) : el("p", {class: "hint"}, ruleProblem(store)));
    this.table.replaceChildren(...(both ? [differenceTable(first, second)] : []));
  },

  _side(store, {name, conventions, cursor, prefix}) {
    const transport = transportPanel(logTrack(store, "compare", prefix, [cursor]));
    const form = conventionsPanel(store, conventions, prefix);
    const stage = el("div", {class: "stage"}, el("h2", {}, t(`compare.${name}`)));
    const step = el("div", {});
    const result = el("div", {});
    const element = el(
      "div", {class: "column", id: `compare-${name}`},
      stage,
      el("section", {class: "card compact"}, form.element),
      el("section", {class: "card"}, result, step),
    );
    const plane = createPlane(stage, store, {id: `${name}-plane`, label: t("plane.label")});
    stage.append(transport.element);
    const update = () => {
      const log = cursor === "cursor" ? store.log : store.secondLog;
      transport.update();
      form.update();
      const unit = Math.min(...[store.log, store.secondLog].filter(Boolean).map((each) => arrowUnit(each, plane.frame)));
      plane.draw(log ? ruleShapes(log, store.state[cursor], plane.frame, {unit}) : {});
      result.replaceChildren(...(log ? [resultFigures(log, store.state[cursor]), verdictBanner(log, store.state[cursor])] : []));
      step.replaceChildren(...(log ? [stepCard(log, store.state[cursor])] : []));
    };
    return {element, plane, update};
  },
};

// The number of the first mistake (from 1) at which two logs part, or null if they are the same.
function firstDifference(first, second) {
  const most = Math.max(first.index.length, second.index.length);
  for (let j = 0; j < most; j++) {
    const same = first.index[j] === second.index[j] && first.step[j] === second.step[j] && first.wrong[j] === second.wrong[j];
    if (!same || first.coef[j] !== second.coef[j]) return j + 1;
  }
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
  const sameSamples = sameJson(first.index, second.index) && sameJson(first.step, second.step);
  const text = sameSamples ? t("compare.bias", {t: t0})
    : t("compare.part", {t: t0, first: mistake(first, t("compare.first")), second: mistake(second, t("compare.second"))});
  const go = () => store.set({cursor: t0, secondCursor: t0});
  return el("p", {class: "big"}, text, " ", button("go-there", t("compare.go"), go, {class: "link"}));
}

function differenceTable(first, second) {
  const names = ["tie", "biasStep", "order", "seed", "lr", "margin", "maxEpochs"];
  const words = (log, name) => {
    const value = log.conventions[name];
    return typeof value === "number" ? num(value) : t(`conventions.${name}.${value}`);
  };
  const rows = names.filter((name) => first.conventions[name] !== second.conventions[name])
    .map((name) => [t(`conventions.${name}`).split(":")[0], words(first, name), words(second, name)]);
  const start = (log) => weightsText(log.start.weight, log.start.bias);
  if (!sameJson(first.start, second.start)) rows.push([t("conventions.start"), start(first), start(second)]);
  const end = (log) => { const {weight, bias} = stateAt(log, log.index.length); return weightsText(weight, bias); };
  rows.push(
    [t("result.mistakes"), first.index.length, second.index.length],
    [t("result.epochs"), first.epochEnds.length, second.epochEnds.length],
    [t("result.weights"), end(first), end(second)],
  );
  return el(
    "table", {class: "differences", "data-test": "differences"},
    el("thead", {}, el("tr", {}, el("td", {}), el("th", {scope: "col"}, t("compare.first")), el("th", {scope: "col"}, t("compare.second")))),
    el("tbody", {}, ...rows.map(([name, one, other]) => el(
      "tr", {class: one === other ? "" : "differs"}, el("th", {scope: "row"}, name), el("td", {}, String(one)), el("td", {}, String(other)),
    ))),
  );
}

registerView(compareView);
