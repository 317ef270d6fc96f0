// The state of the page: plain JSON, with undo and the fragment of the address; the log and the proof follow from it.
//
// store.data is {points, labels, classes, names?, classNames?}; cursor and secondCursor say how many mistakes of the logs by
// the conventions and by the second ones are shown; gradient and twolayer belong to those views. log, secondLog and proof are
// made when asked for and kept, null if the data allow none. set(patch) remembers data and conventions for undo.
//
// A view is {id, mount(element, store), update(store, changes)}: `mount` builds its elements once, `update` is called when it
// is shown and after every change while it is, with the names of the entries that changed, "view" or "theme". It may have
// `transport`, asked about keys, `planes`, which "PNG" saves, `python(store)`, its script, and `rounds: true`: sums round.

const VIEWS = [];
const MOST_CLASSES = 4;
const MOST_POINTS = 1000; // as in data.py
const MOST_EPOCHS = 10000; // that a page can run without standing still
const MOST_UNDO = 200;
const REMEMBERED = ["data", "conventions", "second", "preset", "recorded"];
const IN_LINK = ["data", "conventions", "second", "cursor", "secondCursor", "view", "overlays", "gradient", "twolayer"];
const OVERLAYS = ["averaged", "voted", "pocket"];

// What Python puts into the page, see page.content.
const CONTENT = JSON.parse(document.getElementById("content").textContent);

function presetOf(id) {
  return CONTENT.presets.find((preset) => preset.id === id) ?? null;
}

// The state that an example brings: its data, and the conventions it is shown with if it has some.
function presetState({id, points, labels, classes, conventions}) {
  const known = conventions ? {conventions: {...defaultConventions(classes), ...conventions}} : {};
  return {data: {points, labels, classes}, preset: id, cursor: 0, secondCursor: 0, ...known};
}

// Conventions that belong together: start weights for as many classes, and no margin where it has no effect.
function settled(conventions, classes) {
  const complete = {...defaultConventions(classes), ...conventions};
  const rows = classes > 2 ? classes : 1;
  if (complete.start?.weight?.length !== rows) complete.start = zeroStart(classes);
  if (complete.tie === "sign") complete.margin = 0;
  return complete;
}

function sameJson(one, other) {
  return one === other || JSON.stringify(one) === JSON.stringify(other);
}

function picked(object, names) {
  return Object.fromEntries(names.filter((name) => name in object).map((name) => [name, object[name]]));
}

class Store {
  constructor(state) {
    this.state = {
      data: {points: [], labels: [], classes: 2}, conventions: defaultConventions(), cursor: 0, secondCursor: 0,
      view: "rule", pen: 1, mode: "add", overlays: {}, preset: null, recorded: false, gradient: {}, twolayer: {}, ...state,
    };
    this.state.second ??= {...this.state.conventions, tie: "sign"};
    for (const name of Object.keys(this.state)) Object.defineProperty(this, name, {get: () => this.state[name]});
    this.dragging = false;
    this.recording = null; // the log that Python recorded, shown while state.recorded is true
    this.listeners = [];
    this.past = [];
    this.future = [];
    this.kept = new Map();
    this._settle();
  }

  on(listener) {
    this.listeners.push(listener);
  }

  set(patch, {undo = true} = {}) {
    const before = this.state;
    const ended = this._atEnd();
    const edits = ["data", "conventions"].some((name) => name in patch && !sameJson(patch[name], before[name]));
    this.state = {...before, ...(edits ? {recorded: false} : {}), ...patch};
    this._settle();
    for (const [name, log] of [["cursor", "log"], ["secondCursor", "secondLog"]]) {
      const most = this.state[name] || ended[name] ? this[log]?.index.length ?? 0 : 0;
      const wanted = ended[name] && !(name in patch) ? most : Math.round(this.state[name]) || 0;
      this.state[name] = Math.max(0, Math.min(most, wanted));
    }
    const changes = new Set(Object.keys(this.state).filter((name) => !sameJson(this.state[name], before[name])));
    if (undo && REMEMBERED.some((name) => changes.has(name))) this._remember(before);
    if (changes.size) this.tell(changes);
  }

  tell(changes) {
    for (const listener of this.listeners) listener(this, changes);
  }

  // Whether each cursor stood at the end of a log that has mistakes: then it stays at the end of the next one.
  _atEnd() {
    const at = (log, cursor) => cursor > 0 && cursor === log?.index.length;
    return {cursor: at(this.log, this.cursor), secondCursor: this.secondCursor > 0 && at(this.secondLog, this.secondCursor)};
  }

  _settle() {
    const {data, pen} = this.state;
    for (const name of ["conventions", "second"]) {
      const next = settled(this.state[name], data.classes);
      if (!sameJson(next, this.state[name])) this.state = {...this.state, [name]: next};
    }
    if (pen >= data.classes) this.state = {...this.state, pen: data.classes - 1};
  }

  _remember(before) {
    this.past.push(picked(before, REMEMBERED));
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

  undo(from = this.past, to = this.future) {
    if (!from.length) return;
    to.push(picked(this.state, REMEMBERED));
    this.set(from.pop(), {undo: false});
  }

  redo() {
    this.undo(this.future, this.past);
  }

  // What was computed for this key, made if it is not there.
  _cached(name, key, make) {
    const found = this.kept.get(name);
    if (found?.key.every((part, number) => part === key[number])) return found.value;
    if (!make) return null;
    const value = make();
    this.kept.set(name, {key, value});
    return value;
  }

  // Why there is no log, as a key of the texts; null if there is one.
  get problem() {
    if (this.data.points.length === 0) return "problem.empty";
    return new Set(this.data.labels).size < 2 ? "problem.oneClass" : null;
  }

  get log() {
    return this.recorded ? this.recording : this._run("log", this.conventions);
  }

  get secondLog() {
    return this._run("second", this.second);
  }

  _run(name, conventions) {
    if (this.problem) return null;
    return this._cached(name, [this.data, conventions], () => {
      try {
        this.error = null;
        return runRule(this.data, conventions);
      } catch (error) { // such as weights that overflow
        this.error = error.message;
        return null;
      }
    });
  }

  get proof() {
    return this.problem ? null : this._cached("proof", [this.data], () => prove(this.data));
  }

  // The mistake bound by the conventions if it is known; takes long for many points, so it is made when asked for.
  bound(make = false) {
    const {biasStep, lr, margin} = this.conventions;
    const work = make ? () => boundOf(this.data, this.conventions) : null;
    return this.problem ? null : this._cached("bound", [this.data, biasStep, lr, margin], work);
  }

  toFragment() {
    return "state=" + encodeText(JSON.stringify(picked(this.state, IN_LINK)));
  }
}

function encodeText(text) {
  const chars = Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join("");
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
  const {data, view, overlays, ...known} = picked(state, IN_LINK);
  checkData(data);
  for (const name of ["conventions", "second"]) {
    if (!known[name]) continue;
    known[name] = completeConventions(data, settled(known[name], data.classes));
    known[name].maxEpochs = Math.min(MOST_EPOCHS, known[name].maxEpochs);
  }
  for (const name of ["gradient", "twolayer"]) known[name] = {...known[name]};
  for (const name of ["cursor", "secondCursor"]) known[name] = Number(known[name]) || 0;
  const shown = Object.fromEntries(OVERLAYS.map((name) => [name, overlays?.[name] === true]));
  return {...known, data, overlays: shown, view: VIEWS.some(({id}) => id === view) ? view : "rule"};
}

// Refuse data from outside that the page cannot show.
function checkData(data) {
  const {points, labels, classes, names, classNames} = data;
  const words = (list, count) => !list || (Array.isArray(list) && list.length >= count && list.every((word) => typeof word === "string"));
  const fine = Array.isArray(points) && Array.isArray(labels) && points.length === labels.length
    && Number.isInteger(classes) && classes >= 2 && classes <= MOST_CLASSES && words(names, 2) && words(classNames, classes)
    && points.every((point) => Array.isArray(point) && point.length === 2 && point.every(Number.isFinite))
    && labels.every((label) => Number.isInteger(label) && label >= 0 && label < classes);
  if (!fine) throw new Error(t("problem.data"));
  return data;
}
