// The rule: one mistake after the other, with its numbers, its table and what it proves.

const ruleView = {
  id: "rule",

  mount(element, store) {
    this.transport = transportPanel(logTrack(store, "rule", "", ["cursor"]));
    this.conventions = conventionsPanel(store, "conventions", "");
    this.table = logTable(store);
    const pane = (name) => { this[name] = el("div", {id: `rule-${name}`}); return this[name]; };
    const left = el("div", {class: "stage at-plane"});
    this.changed = el("p", {class: "changed", id: "what-changed", role: "status"});
    const card = (place, name, ...parts) => el("section", {class: `card at-${place}`}, name ? el("h2", {}, t(name)) : null, ...parts);
    element.append(el(
      "div", {class: "split flowing"},
      el(
        "div", {class: "column"}, left, card("log", "log.title", this.table.element), card("epochs", "epochs.title", pane("epochs")),
      ),
      el(
        "div", {class: "column", id: "explanation", tabindex: -1},
        card("step", null, pane("step")),
        card("result", "result.title", pane("result")),
        card("conventions", "conventions.title", this.conventions.element, this.changed),
        card("bracket", "bracket.title", pane("bracket")),
      ),
    ));
    this.plane = createPlane(left, store, {id: "rule-plane", label: t("plane.label")});
    left.append(this.transport.element, this._legend(), this._overlays(store));
    left.prepend(pane("empty"));
    this.previous = store.log;
  },

  picture() {
    return [this.plane.svg];
  },

  keys(event) {
    return this.transport.keys(event);
  },

  update(store, changes) {
    this.transport.update();
    this.conventions.update();
    this._saySoIfChanged(store, changes);
    const {log} = store;
    this.empty.replaceChildren(...(log ? [] : [el("p", {class: "hint"}, ruleProblem(store))]));
    this.table.update();
    if (!log) return this._clear();
    const {cursor} = store;
    this.step.replaceChildren(stepCard(log, cursor));
    const state = stateAt(log, cursor);
    this.result.replaceChildren(
      resultFigures(log, cursor), verdictBanner(log, cursor),
      el("p", {class: "remark", "data-test": "weights"}, `${t("result.weightsNow")}: ${weightsText(state.weight, state.bias)}`),
    );
    this._draw(store, log);
    this._charts(store, log);
    if ((changes.has("cursor") || changes.has("playing")) && !player.playing) announce(spokenStep(log, cursor));
  },

  _clear() {
    for (const name of ["step", "result", "epochs", "bracket"]) this[name].replaceChildren();
    this.plane.draw();
  },

  _draw(store, log) {
    const {overlays} = store;
    const shapes = ruleShapes(log, store.cursor, this.plane.frame, {shade: !overlays.voted});
    if (overlays.voted && !store.dragging) shapes.below.unshift(rasterShape(overlayOf(log, "voted"), "voted", votedCells(log)));
    for (const name of ["averaged", "pocket"]) {
      if (overlays[name]) shapes.below.push(...boundaryShapes(overlayOf(log, name), name));
    }
    this.plane.draw(shapes);
    for (const name of ["averaged", "voted", "pocket"]) {
      const errors = overlays[name] ? overlayErrors(log, name) : null;
      this.counts[name].textContent = errors === null ? "" : t("overlay.errors", {errors, total: log.data.points.length});
      show(this.toggles[name], overlays[name]);
    }
  },

  _legend() {
    const key = (name, mark) => el("span", {class: "key"}, mark, t(`legend.${name}`));
    const swatch = (css) => svgEl(
      "svg", {viewBox: "0 0 30 12", class: "swatch", "aria-hidden": "true"}, svgEl("line", {class: css, x1: 1, x2: 29, y1: 6, y2: 6}),
    );
    const ring = svgEl(
      "svg", {viewBox: "0 0 14 14", class: "swatch ring-swatch", "aria-hidden": "true"}, svgEl("circle", {class: "ring mistake", cx: 7, cy: 7, r: 5}),
    );
    return el(
      "div", {class: "legend"}, key("now", swatch("line now")), key("before", swatch("line before")),
      key("weight", el("span", {class: "arrow-key", "aria-hidden": "true"}, "→")), key("mistake", ring),
    );
  },

  _overlays(store) {
    this.toggles = {};
    this.counts = {};
    const fields = ["averaged", "voted", "pocket"].map((name) => {
      const {field, input} = checkField(`overlay-${name}`, t(`overlay.${name}`), (on) => {
        store.set({overlays: {...store.overlays, [name]: on}});
      });
      this.toggles[name] = input;
      this.counts[name] = el("small", {});
      field.title = t(`overlay.${name}Why`);
      field.classList.add(`overlay-${name}`);
      field.append(this.counts[name]);
      return field;
    });
    return el("fieldset", {class: "overlays"}, el("legend", {}, t("overlay.title")), ...fields);
  },

  _charts(store, log) {
    this.epochs.replaceChildren(epochChart(log, store.cursor));
    const known = !(store.recorded && CONTENT.recorded.description); // features that are not shown, or unknown conventions
    if (!store.dragging && !store.hasBound && known) this._later(store);
    const bound = store.hasBound && known ? store.bound : null;
    const parts = [];
    if (isZeroStart(log.start)) {
      const best = bestBrackets(log)[store.cursor];
      parts.push(
        el("p", {class: "big", "data-test": "bracket"}, bracketText(best)),
        best.upper <= 0 ? el("p", {class: "remark"}, t(throughOrigin(log) ? "bracket.emptyOrigin" : "bracket.empty")) : null,
        bracketChart(log, store.cursor, bound?.gamma),
        el("p", {class: "remark"}, t("bracket.why")),
      );
    } else parts.push(el("p", {class: "remark"}, t("bracket.none")));
    parts.push(...this._bound(store, log, bound));
    this.bracket.replaceChildren(...parts.filter((part) => part !== null));
  },

  // The proof takes a moment: the page is drawn first.
  _later(store) {
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => {
      if (store.problem || store.dragging) return;
      void store.bound;
      store.tell(new Set(["bound"]));
    }, 30);
  },

  _bound(store, log, bound) {
    if (!bound) return [];
    if (bound.gammaSquared.isZero()) {
      const words = t(throughOrigin(log) ? "bound.infiniteOrigin" : "bound.infinite");
      return [el("p", {class: "remark", "data-test": "bound"}, words)];
    }
    if (!Number.isFinite(bound.bound)) return [el("p", {class: "remark", "data-test": "bound"}, t("bound.huge"))];
    const figure = num(bound.bound, 5);
    if (!isZeroStart(log.start)) return [el("p", {class: "remark", "data-test": "bound"}, t("bound.start", {bound: figure}))];
    const key = log.conventions.margin ? "bound.margin" : "bound.text";
    const share = Math.min(1, store.cursor / Math.max(1, bound.bound));
    return [
      el("p", {class: "big", "data-test": "bound"}, t(key, {mistakes: store.cursor, bound: figure})),
      el("div", {class: "meter", "aria-hidden": "true"}, el("div", {style: `width: ${(100 * share).toFixed(2)}%`})),
      el("p", {class: "remark"}, t("bound.why", {radius: num(bound.radius, 4), gamma: num(bound.gamma, 4)})),
    ];
  },

  _saySoIfChanged(store, changes) {
    const {log} = store;
    if (changes.has("conventions") && !changes.has("data") && log && this.previous) {
      this.changed.textContent = changeText(this.previous, log);
    } else if (changes.has("data")) this.changed.textContent = "";
    this.previous = log;
  },
};

// Whether only lines through the origin can be learned: others may separate, which the bracket and the bound ignore.
function throughOrigin(log) {
  return log.biasScale === 0;
}

function ruleProblem(store) {
  return store.problem ? t(store.problem) : t("problem.rule", {error: store.error});
}

registerView(ruleView);
