// The state of the page: plain JSON, with undo and the fragment of the address; the log and the proof follow from it.
//
// A view is an object {id, mount(element, store), update(store, changes)}: `mount` builds its elements once, `update`
// is called when the view is shown and after every change while it is shown; `changes` is a Set of the names of the
// entries of the state that changed ("data", "conventions", "second", "cursor", "overlays", "gradient", ...), with
// "view" when the view was just opened and "theme" when that was switched (redraw everything then).
// Its tab is called t("view." + id). `keys(event, store)`, if there is one, is asked first about every key and returns
// true if it has used it; `picture()`, if there is one, returns the <svg> or <canvas> that "PNG" saves; `python(store)`,
// if there is one, returns the script that "Copy as Python" gives in place of that of the rule; `rounds: true` says that
// its sums are rounded whatever the points, so that the page does not call them exact.
//
// store.data          {points: [[x1, x2], ...], labels: [0..K-1, ...], classes: K, names: [..]?, classNames: [..]?}
// store.conventions   {tie, biasStep, order, seed, lr, margin, maxEpochs, start: {weight: [[..], ..], bias: [..]}}
// store.second        the other set of conventions, for the comparison
// store.cursor        how many mistakes of the log have been shown: 0 is the start, log.index.length the end
// store.gradient, store.twolayer   plain JSON of those views
// store.log, store.secondLog, store.proof   computed when asked for, then kept; null if the data allow none
// store.dragging      true while a point is dragged: put off what takes long
// store.set({name: value, ...}, {undo: false})   changes entries; undo: true (default for data and conventions)
//                     remembers the state before, so that Ctrl+Z brings it back

const VIEWS = [];

function registerView(view) {
  VIEWS.push(view);
}

const GRID = 1 / 64;
const HALF_WIDTH = 1.5;
const MOST_CLASSES = 4;
const MOST_POINTS = 1000; // as in points.py
const MOST_EPOCHS = 10000; // that a page can run without standing still
const MOST_UNDO = 200;
const REMEMBERED = ["data", "conventions", "second", "preset", "recorded"];
const IN_LINK = ["data", "conventions", "second", "cursor", "secondCursor", "view", "overlays", "gradient", "twolayer"];

function zeroStart(classes) {
  const rows = classes > 2 ? classes : 1;
  return {weight: Array.from({length: rows}, () => [0, 0]), bias: Array(rows).fill(0)};
}

function defaultConventions(classes = 2) {
  return {
    tie: "update", biasStep: "unit", order: "given", seed: 0, lr: 1, margin: 0, maxEpochs: 100,
    start: zeroStart(classes),
  };
}

// Conventions that belong together: start weights for as many classes, and no margin where it has no effect.
function settled(conventions, classes) {
  const rows = classes > 2 ? classes : 1;
  const complete = {...defaultConventions(classes), ...conventions};
  if (complete.start?.weight?.length !== rows) complete.start = zeroStart(classes);
  if (complete.tie === "sign") complete.margin = 0;
  return complete;
}

function sameJson(one, other) {
  return one === other || JSON.stringify(one) === JSON.stringify(other);
}

function isZeroStart(start) {
  return start.bias.every((b) => b === 0) && start.weight.every((row) => row.every((w) => w === 0));
}

function onGrid(data) {
  return data.points.every((point) => point.every((value) => Number.isInteger(value * 64)));
}

class Store {
  constructor(state) {
    this.state = {
      data: {points: [], labels: [], classes: 2}, conventions: defaultConventions(), cursor: 0, secondCursor: 0,
      view: "rule", pen: 1, mode: "add", overlays: {averaged: false, voted: false, pocket: false}, preset: null,
      recorded: false, gradient: {}, twolayer: {}, ...state,
    };
    this.state.second ??= {...this.state.conventions, tie: "sign"};
    this.dragging = false;
    this.recording = null; // the log that Python recorded, shown while state.recorded is true
    this.listeners = [];
    this.past = [];
    this.future = [];
    this.kept = new Map();
    this._settle();
  }

  get data() { return this.state.data; }
  get conventions() { return this.state.conventions; }
  get second() { return this.state.second; }
  get cursor() { return this.state.cursor; }
  get secondCursor() { return this.state.secondCursor; }
  get view() { return this.state.view; }
  get pen() { return this.state.pen; }
  get mode() { return this.state.mode; }
  get overlays() { return this.state.overlays; }
  get preset() { return this.state.preset; }
  get gradient() { return this.state.gradient; }
  get twolayer() { return this.state.twolayer; }
  get recorded() { return this.state.recorded && this.recording !== null; }

  on(listener) {
    this.listeners.push(listener);
  }

  set(patch, {undo = REMEMBERED.some((name) => name in patch)} = {}) {
    const before = this.state;
    const ended = this._atEnd();
    const edits = ("data" in patch && !sameJson(patch.data, before.data))
      || ("conventions" in patch && !sameJson(patch.conventions, before.conventions));
    this.state = {...before, ...(edits && before.recorded ? {recorded: false} : {}), ...patch};
    this._settle();
    const changes = new Set(Object.keys(this.state).filter((name) => !sameJson(this.state[name], before[name])));
    if (undo && REMEMBERED.some((name) => changes.has(name))) this._remember(before);
    this._follow(ended, patch);
    this._clamp();
    for (const name of ["cursor", "secondCursor"]) if (this.state[name] !== before[name]) changes.add(name);
    if (changes.size) this.tell(changes);
  }

  tell(changes) {
    for (const listener of this.listeners) listener(this, changes);
  }

  // Whether each cursor stood at the end of a log that has mistakes: then it stays at the end of the next one.
  _atEnd() {
    const at = (log, cursor) => log !== null && log.index.length > 0 && cursor === log.index.length;
    return [at(this.log, this.cursor), this.kept.has("second") && at(this.secondLog, this.secondCursor)];
  }

  _follow([first, second], patch) {
    if (first && this.log && !("cursor" in patch)) this.state.cursor = this.log.index.length;
    if (second && this.secondLog && !("secondCursor" in patch)) this.state.secondCursor = this.secondLog.index.length;
  }

  _clamp() {
    const most = this.log ? this.log.index.length : 0;
    this.state.cursor = Math.max(0, Math.min(most, Math.round(this.state.cursor) || 0));
    if (this.state.secondCursor) {
      const other = this.secondLog ? this.secondLog.index.length : 0;
      this.state.secondCursor = Math.max(0, Math.min(other, Math.round(this.state.secondCursor) || 0));
    }
  }

  _settle() {
    const {data} = this.state;
    for (const name of ["conventions", "second"]) {
      const next = settled(this.state[name], data.classes);
      if (!sameJson(next, this.state[name])) this.state = {...this.state, [name]: next};
    }
    if (this.state.pen >= data.classes) this.state = {...this.state, pen: data.classes - 1};
  }

  _remember(before) {
    this.past.push(Object.fromEntries(REMEMBERED.map((name) => [name, before[name]])));
    if (this.past.length > MOST_UNDO) this.past.shift();
    this.future = [];
  }

  // While a point is dragged, only the state before the drag is remembered.
  startDrag() {
    this.dragging = true;
    this.beforeDrag = this.state;
  }

  endDrag() {
    this.dragging = false;
    if (!sameJson(this.beforeDrag.data, this.data)) this._remember(this.beforeDrag);
    this.tell(new Set(["data"]));
  }

  undo() {
    this._travel(this.past, this.future);
  }

  redo() {
    this._travel(this.future, this.past);
  }

  _travel(from, to) {
    if (!from.length) return;
    to.push(Object.fromEntries(REMEMBERED.map((name) => [name, this.state[name]])));
    this.set(from.pop(), {undo: false});
  }

  _cached(name, key, make) {
    const found = this.kept.get(name);
    if (found && found.key.every((part, number) => part === key[number])) return found.value;
    const value = make();
    this.kept.set(name, {key, value});
    return value;
  }

  // Why there is no log, as a key of the texts; null if there is one.
  get problem() {
    if (this.data.points.length === 0) return "problem.empty";
    if (new Set(this.data.labels).size < 2) return "problem.oneClass";
    return null;
  }

  get log() {
    if (this.recorded) return this.recording;
    if (this.problem) return null;
    return this._cached("log", [this.data, this.conventions], () => this._run(this.conventions));
  }

  get secondLog() {
    if (this.problem) return null;
    return this._cached("second", [this.data, this.second], () => this._run(this.second));
  }

  _run(conventions) {
    try {
      this.error = null;
      return runRule(this.data, conventions);
    } catch (error) { // such as weights that overflow
      this.error = error.message;
      return null;
    }
  }

  get proof() {
    return this.problem ? null : this._cached("proof", [this.data], () => prove(this.data));
  }

  // The mistake bound by the conventions; takes long for many points.
  get bound() {
    const {biasStep, lr, margin} = this.conventions;
    const make = () => boundOf(this.data, this.conventions);
    return this.problem ? null : this._cached("bound", [this.data, biasStep, lr, margin], make);
  }

  get hasBound() {
    const {biasStep, lr, margin} = this.conventions;
    const found = this.kept.get("bound");
    return found !== undefined && [this.data, biasStep, lr, margin].every((part, number) => part === found.key[number]);
  }

  // What a link carries; what is as at the start is left out.
  toFragment() {
    const carried = Object.fromEntries(IN_LINK.map((name) => [name, this.state[name]]));
    return "state=" + encodeText(JSON.stringify(carried));
  }
}

function encodeText(text) {
  const bytes = new TextEncoder().encode(text);
  const chars = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return btoa(chars).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

function decodeText(code) {
  const chars = atob(code.replaceAll("-", "+").replaceAll("_", "/"));
  return new TextDecoder().decode(Uint8Array.from(chars, (char) => char.charCodeAt(0)));
}

// The entries after "#" as {state, view, preset, theme}; what cannot be read is told as `error`.
function readFragment(hash) {
  const found = Object.fromEntries(new URLSearchParams(hash.replace(/^#/, "")));
  if (!found.state) return found;
  try {
    return {...found, state: checkState(JSON.parse(decodeText(found.state)))};
  } catch (error) {
    return {...found, state: null, error: String(error.message ?? error)};
  }
}

// What a link may bring along: entries that the page knows, with values that it has fields for. Refuses the rest, so that
// a link puts nothing of its own into the script that is copied.
function checkState(state) {
  const {data, view, overlays, ...known} = Object.fromEntries(IN_LINK.filter((name) => name in state).map((name) => [name, state[name]]));
  checkData(data);
  for (const name of ["conventions", "second"]) {
    if (!known[name]) continue;
    known[name] = completeConventions(data, settled(known[name], data.classes));
    known[name].maxEpochs = Math.min(MOST_EPOCHS, known[name].maxEpochs);
  }
  for (const name of ["gradient", "twolayer"]) known[name] = {...known[name]};
  for (const name of ["cursor", "secondCursor"]) known[name] = Number(known[name]) || 0;
  const shown = Object.fromEntries(["averaged", "voted", "pocket"].map((name) => [name, overlays?.[name] === true]));
  return {...known, data, overlays: shown, view: VIEWS.some(({id}) => id === view) ? view : "rule"};
}

// Refuse data from outside that the page cannot show.
function checkData(data) {
  const {points, labels, classes, names, classNames} = data;
  const words = (list, count) => list === undefined || (Array.isArray(list) && list.length >= count && list.every((word) => typeof word === "string"));
  const fine = words(names, 2) && words(classNames, classes) && Array.isArray(points) && Array.isArray(labels) && points.length === labels.length
    && Number.isInteger(classes) && classes >= 2 && classes <= MOST_CLASSES
    && points.every((point) => Array.isArray(point) && point.length === 2 && point.every(Number.isFinite))
    && labels.every((label) => Number.isInteger(label) && label >= 0 && label < classes);
  if (!fine) throw new Error(t("problem.data"));
  return data;
}
