// The rule: one mistake after the other, with its numbers, its table and what it proves.

const ruleView = {
  id: "rule",

  mount(element, store) {
    this.transport = transportPanel(logTrack(store, "rule", "", ["cursor"]));
    this.conventions = conventionsPanel(store, "conventions", "");
    this.table = logTable(store);
    this.changed = el("p", {class: "changed", id: "what-changed", role: "status"});
    const pane = (name) => viewPane(this, name);
    const order = ["step", "result", "log", "conventions", "epochs", "bracket"]; // on a phone, below the plane
    const place = (name, ...parts) => (
      setAttributes(card(...parts), {class: `card at-${name}`, style: `order: ${order.indexOf(name) + 1}`})
    );
    const left = div("stage at-plane", pane("empty"));
    const right = div(
      "column", place("step", null, pane("step")), place("result", "result.title", pane("result")),
      place("conventions", "conventions.title", this.conventions.element, this.changed),
      place("bracket", "bracket.title", pane("bracket")),
    );
    const below = [place("log", "log.title", this.table.element), place("epochs", "epochs.title", pane("epochs"))];
    element.append(div("split flowing", div("column", left, ...below), right));
    this.plane = new Plane(left, store, {id: "rule-plane", label: t("plane.label")});
    this.planes = [this.plane];
    const legend = div("legend", ...legendEntries({
      "legend.now": lineSwatch("line now"), "legend.before": lineSwatch("line before"), "legend.weight": arrowSwatch(),
      "legend.mistake": shapeSwatch("circle", {class: "ring mistake", r: 6}),
    }));
    left.append(this.transport.element, legend, this._overlays(store));
    this.previous = store.log;
  },

  update(store, changes) {
    const {log, cursor} = store;
    this.transport.update();
    this.conventions.update();
    this._saySoIfChanged(log, changes);
    this.empty.replaceChildren(...(log ? [] : [el("p", {class: "hint"}, ruleProblem(store))]));
    this.table.update();
    if (!log) {
      for (const name of ["step", "result", "epochs", "bracket"]) this[name].replaceChildren();
      for (const {count} of Object.values(this.toggles)) count.textContent = "";
      return this.plane.draw();
    }
    this.step.replaceChildren(stepCard(log, cursor));
    const weights = remark(`${t("result.weightsNow")}: ${weightsText(stateAt(log, cursor))}`, "weights");
    this.result.replaceChildren(resultFigures(log, cursor), verdictBanner(log, cursor), weights);
    this.epochs.replaceChildren(epochChart(log, cursor));
    this._draw(store, log);
    this._bounds(store, log);
    if ((changes.has("cursor") || changes.has("playing")) && !player.playing) announce(spokenStep(log, cursor));
  },

  _draw(store, log) {
    const {overlays} = store;
    const {frame} = this.plane;
    const shapes = ruleShapes(log, store.cursor, frame, {shade: !overlays.voted});
    if (overlays.voted && !store.dragging) {
      const [colours, vote] = [classColours(), overlayOf(log, "voted")];
      const cells = Math.max(24, Math.min(120, Math.round(Math.sqrt(1e7 / (log.index.length + 1))))); // fewer for long runs
      const votes = keptFor(log, `votes ${JSON.stringify(frame)}`, () => gridOf(frame, cells, vote).values);
      shapes.below.unshift(rasterShape(votes, (label) => colours[label], "raster voted"));
    }
    for (const name of ["averaged", "pocket"]) {
      if (overlays[name]) shapes.below.push(...boundaryShapes(overlayOf(log, name), name));
    }
    this.plane.draw(shapes);
    for (const [name, {input, count}] of Object.entries(this.toggles)) {
      const errors = overlays[name] ? overlayErrors(log, name) : null;
      count.textContent = errors === null ? "" : t("overlay.errors", {errors, total: log.data.points.length});
      show(input, overlays[name] ?? false);
    }
  },

  _overlays(store) {
    this.toggles = {};
    const fields = OVERLAYS.map((name) => {
      const {field, input} = checkField(`overlay-${name}`, t(`overlay.${name}`), (on) => {
        store.set({overlays: {...store.overlays, [name]: on}});
      });
      const count = el("small", {});
      this.toggles[name] = {input, count};
      field.append(count);
      return setAttributes(field, {class: `check overlay-${name}`, title: t(`overlay.${name}Why`)});
    });
    return el("fieldset", {class: "overlays"}, el("legend", {}, t("overlay.title")), ...fields);
  },

  // The bracket and the mistake bound, which takes a moment: the page is drawn first.
  _bounds(store, log) {
    const known = !(store.recorded && CONTENT.recorded.description); // features that are not shown, or unknown conventions
    const bound = known ? store.bound() : null;
    if (known && !bound && !store.dragging) {
      clearTimeout(this.waiting);
      this.waiting = setTimeout(() => {
        if (!store.dragging && store.bound(true)) store.tell(new Set(["bound"]));
      }, 30);
    }
    const parts = isZeroStart(log.start) ? bracketParts(log, store.cursor, bound) : [remark(t("bracket.none"))];
    this.bracket.replaceChildren(...parts, ...(bound ? boundParts(log, store.cursor, bound) : []));
  },

  _saySoIfChanged(log, changes) {
    if (changes.has("data")) this.changed.textContent = "";
    else if (changes.has("conventions") && log && this.previous) this.changed.textContent = changeText(this.previous, log);
    this.previous = log;
  },
};

// A bias step of 0 learns only lines through the origin: others may separate, which the bracket and the bound ignore.
function bracketParts(log, cursor, bound) {
  const best = bestBrackets(log)[cursor];
  const empty = t(log.biasScale === 0 ? "bracket.emptyOrigin" : "bracket.empty");
  return [
    el("p", {class: "big", "data-test": "bracket"}, bracketText(best)),
    ...(best.upper <= 0 ? [remark(empty)] : []),
    bracketChart(log, cursor, bound?.gamma), remark(t("bracket.why")),
  ];
}

function boundParts(log, cursor, {bound, radius, gamma, gammaSquared}) {
  if (gammaSquared.numerator === 0n) return [remark(t(log.biasScale === 0 ? "bound.infiniteOrigin" : "bound.infinite"), "bound")];
  if (!Number.isFinite(bound)) return [remark(t("bound.huge"), "bound")];
  if (!isZeroStart(log.start)) return [remark(t("bound.start", {bound: num(bound, 5)}), "bound")];
  const text = t(log.conventions.margin ? "bound.margin" : "bound.text", {mistakes: cursor, bound: num(bound, 5)});
  return [
    el("p", {class: "big", "data-test": "bound"}, text),
    el("progress", {max: Math.max(1, bound), value: cursor, "aria-label": text}),
    remark(t("bound.why", {radius: num(radius, 4), gamma: num(gamma, 4)})),
  ];
}

function ruleProblem(store) {
  return store.problem ? t(store.problem) : t("problem.rule", {error: store.error});
}

VIEWS.push(ruleView);
