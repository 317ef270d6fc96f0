// What the views of gradient descent and of the two-layer net share: steps made when asked for, settings, planes.

const HIDDEN_WIDTHS = [2, 3, 4];
const WHOLE = {min: 0, integer: true};
const DESCENT_FIELDS = {
  head: HEADS, hidden: HIDDEN_WIDTHS, activation: Object.keys(ACTIVATIONS), mode: DESCENT_MODES, batchSize: {min: 1, integer: true},
  order: ["given", "shuffled"], seed: WHOLE, lr: {above: 0}, tie: TIES,
};

// A part of a view that is drawn anew on every change, kept under its name.
function viewPane(view, name, attributes = {}) {
  view[name] = el("div", {id: `${view.id}-${name}`, "data-test": `${view.id}-${name}`, ...attributes});
  return view[name];
}

// Either view keeps its state under its id in the store, on top of its `defaults`; state.at is the current step.
function viewState(store, view) {
  const state = soundState(view.defaults, store[view.id]);
  return {...state, at: view.reach(store, state.at)};
}

// What a link may bring along: values that the fields allow, anything else as by default.
function soundState(defaults, state) {
  const units = everyNumber(HIDDEN_WIDTHS.includes(state.hidden) ? state.hidden : defaults.hidden ?? 0);
  const kinds = {...DESCENT_FIELDS, at: WHOLE, positive: WHOLE};
  const fine = {
    bias: (value) => value === null || Number.isFinite(value),
    start: (value) => value?.weight?.length === 2 && [...value.weight, value.bias].every(Number.isFinite),
    axes: (value) => value?.length === 2 && value[0] !== value[1] && value.every((k) => units.includes(k)),
  };
  const allowed = ([name, value]) => name in defaults
    && (fine[name]?.(value) ?? allows(kinds[name], value));
  return {...defaults, ...Object.fromEntries(Object.entries(state).filter(allowed))};
}

function changeState(store, view, patch) {
  store.set({[view.id]: {...viewState(store, view), ...patch}});
}

// What both views do. A view adds `defaults`, whose entries `at`, `bias` and `axes` change the picture and not the path.
const descentView = {
  rounds: true,

  // Makes steps up to a number and says how far it came: less if the descent has ended before.
  reach(store, steps) {
    return store.problem ? 0 : Math.min(steps, extendPath(this.path(store), Math.min(steps, MAX_STEPS)));
  },

  made(store) {
    return store.problem ? 0 : this.path(store).states.length - 1;
  },

  // The path of the current settings.
  path(store) {
    const {at, bias, axes, ...settings} = soundState(this.defaults, store[this.id]);
    const positive = positiveClass(store.data, settings.positive);
    const key = JSON.stringify([settings, positive]);
    if (this.kept?.key !== key || this.kept.data !== store.data) {
      const {points, labels} = store.data;
      const signs = labels.map((label) => (label === positive ? 1 : -1));
      this.kept = {key, data: store.data, positive, path: startPath({points, signs}, settings)};
    }
    return this.kept.path;
  },

  change(store, patch) {
    player.stop();
    changeState(store, this, patch);
  },

  // Two planes side by side beside the result and the settings, cards below; returns where the planes' own parts go.
  layOut(element, store, {more, titles, label, other, fields, below}) {
    const pane = (name, attributes) => viewPane(this, name, attributes);
    const stage = (key) => div("stage", el("h2", {}, t(key)));
    const [left, right] = titles.slice(0, 2).map(stage);
    this.element = element;
    this.transport = transportPanel(stepTrack(store, this, more));
    const settings = div("column", card(null, pane("result")), card(titles[2], fields));
    const curves = card("curves.title", pane("curves", {class: "curves"}));
    element.append(div("trio", left, right, settings), div("trio", div("column double", ...below), curves));
    this.plane = new Plane(left, store, {id: `${this.id}-plane`, label});
    this.other = new Plane(right, store, {editable: false, ...other});
    this.planes = [this.plane, this.other];
    left.append(this.transport.element, pane("standing", {class: "standing", role: "status"}), pane("planeKey", {class: "legend"}));
    return right;
  },

  // Draws the view, or says why there is nothing to draw.
  update(store, changes) {
    const {problem} = store;
    this.element.classList.toggle("without-points", problem !== null);
    this._showFields(store);
    this.transport.update();
    if (problem) {
      for (const name of ["result", "curves", "planeKey"]) this[name].replaceChildren();
      this.standing.replaceChildren(el("p", {class: "hint"}, t(problem)));
      return this.plane.draw();
    }
    const [path, {at}] = [this.path(store), viewState(store, this)];
    this.curves.replaceChildren(
      stepCurve("curves.loss", path.losses, at, "loss"), stepCurve("curves.errors", path.errors, at, "errors"),
    );
    this._draw(store, path, at);
    if (!changes.has(this.id) || player.playing) return;
    announce(t("steps.said", {t: at, loss: short(path.losses[at]), errors: path.errors[at], total: path.samples.points.length}));
  },

  lossAndErrors({losses, errors, samples}, at) {
    return [
      [t("gradient.figure.loss"), short(losses[at], 5), `${this.id}-loss`],
      [t("gradient.figure.errors"), `${errors[at]} / ${samples.points.length}`, `${this.id}-errors`],
    ];
  },
  // Those of the settings by name, and which class is +1 where there are more than two.
  descentFields(store, names, change) {
    this.fields = Object.fromEntries(names.map((name) => (
      [name, settingField(`${this.id}-${name}`, "descent", name, DESCENT_FIELDS[name], change)]
    )));
    this.fields.head.field.classList.add("wide-field");
    this.positive = selectField(`${this.id}-positive`, t("gradient.positive"), [], (value) => change({positive: Number(value)}));
    this.many = remark("", `${this.id}-many`);
    return [this.positive.field, ...Object.values(this.fields).map(({field}) => field)];
  },

  // Shows the settings; what has no effect is left out of sight.
  showDescentFields({data}, settings) {
    const shuffled = settings.mode !== "batch" && settings.order === "shuffled";
    const useful = {
      batchSize: settings.mode === "minibatch", order: settings.mode !== "batch", seed: shuffled || "hidden" in settings,
      tie: settings.head === "perceptron",
    };
    for (const [name, {field, input}] of Object.entries(this.fields)) {
      show(input, settings[name]);
      field.hidden = useful[name] === false;
    }
    const positive = positiveClass(data, settings.positive);
    this.positive.field.hidden = data.classes === 2;
    this.many.textContent = data.classes === 2 ? "" : t("gradient.many", {label: className(data, positive)});
    this.positive.input.replaceChildren(...everyNumber(data.classes).map((k) => el("option", {value: k}, className(data, k))));
    show(this.positive.input, positive);
  },
};

function positiveClass(data, wanted) {
  return data.classes === 2 ? 1 : Math.min(wanted, data.classes - 1);
}

// What decides for +1 in the plane: the colours of both classes, or of the one class that stands against the rest.
function signRegions(data, positive, weight, bias, frame) {
  if (weight[0] === 0 && weight[1] === 0) return [];
  if (data.classes === 2) return regionShapes({weight: [weight], bias: [bias]}, "region");
  return [polygonShape(clipped(corners(frame), weight, bias), `region class-${positive}`)];
}
