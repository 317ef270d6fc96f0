// One player and one transport for every view. They walk along a track:
//
// {view, prefix, words, speed, more,      the view's id, prefixes of ids and of texts, a pace, steps of the last button
//  at(), made(), ended(),                 the current step, how many there are, whether it is the last
//  move(by), slide(to)}                   goes on or back, and returns by how many steps; goes to a step

// Symbols on buttons are drawn, because not every font has them.
const ICONS = {
  play: "M 5 3 L 17 10 L 5 17 Z",
  pause: "M 4 3 H 8.5 V 17 H 4 Z M 11.5 3 H 16 V 17 H 11.5 Z",
  back: "M 13 4 L 5 10 L 13 16 Z M 15 4 H 17 V 16 H 15 Z",
  step: "M 7 4 L 15 10 L 7 16 Z M 3 4 H 5 V 16 H 3 Z",
  rewind: "M 2 4 H 4.5 V 16 H 2 Z M 11 4 L 4.5 10 L 11 16 Z M 18 4 L 11.5 10 L 18 16 Z",
  end: "M 15.5 4 H 18 V 16 H 15.5 Z M 9 4 L 15.5 10 L 9 16 Z M 2 4 L 8.5 10 L 2 16 Z",
};

const SPEEDS = [0.5, 1, 2, 5, 20, 100, 500];
const FRAME = 40; // milliseconds between two pictures at least
const ALL = 1e9; // steps: more than there are

function icon(name) {
  return svgEl("svg", {class: "symbol", viewBox: "0 0 20 20", "aria-hidden": "true"}, svgEl("path", {d: ICONS[name]}));
}

// The mistakes of a log, or of two at once; `cursors` are names of entries of the store.
function logTrack(store, view, prefix, cursors) {
  const length = (name) => store[name === "secondCursor" ? "secondLog" : "log"]?.index.length ?? 0;
  const move = (by) => {
    const next = cursors.map((name) => Math.max(0, Math.min(length(name), store[name] + by)));
    const moved = Math.max(...cursors.map((name, k) => Math.abs(next[k] - store[name])));
    store.set(Object.fromEntries(cursors.map((name, k) => [name, next[k]])));
    return moved;
  };
  return {
    store, view, prefix, words: "transport", speed: 2, more: ALL, move, at: () => store[cursors[0]],
    made: () => length(cursors[0]), ended: () => cursors.every((name) => store[name] >= length(name)),
    slide: (to) => store.set({[cursors[0]]: to}),
  };
}

// The steps of a descent, which are made when they are asked for.
function stepTrack(store, view, more) {
  const at = () => viewState(store, view).at;
  const move = (by) => {
    const [from, to] = [at(), view.reach(store, Math.max(0, at() + by))];
    if (to !== from) changeState(store, view, {at: to});
    return Math.abs(to - from);
  };
  return {
    store, view: view.id, prefix: `${view.id}-`, words: "steps", speed: 5, more, at, move, made: () => view.made(store),
    ended: () => view.reach(store, at() + 1) === at(), slide: (to) => changeState(store, view, {at: to}),
  };
}

const player = {
  playing: false, timer: null, track: null,

  toggle(track) {
    if (this.playing) return this.stop();
    Object.assign(this, {track, playing: true});
    if (track.at() > 0 && track.ended()) track.move(-ALL); // once more
    track.store.tell(new Set(["playing"]));
    return this._wait();
  },

  stop() {
    clearTimeout(this.timer);
    if (!this.playing) return;
    this.playing = false;
    this.track.store.tell(new Set(["playing"]));
  },

  _wait() {
    const {track} = this;
    this.timer = setTimeout(() => {
      const count = Math.max(1, Math.round((track.speed * FRAME) / 1000));
      if (track.store.view !== track.view || track.move(count) < count) this.stop();
      else this._wait();
    }, Math.max(FRAME, 1000 / track.speed));
  },
};

// The buttons that walk along a track, with a slider; `keys` are the keys that do the same.
function transportPanel(track) {
  const id = (part) => track.prefix + part;
  const words = (key, values) => t(`${track.words}.${key}`, values);
  const act = (work) => {
    player.stop();
    work();
  };
  const go = (by) => act(() => track.move(by));
  const slide = () => act(() => track.slide(Number(slider.value)));
  const play = iconButton(id("play"), icon("play"), words("play"), () => player.toggle(track), {class: "icon main"});
  const slider = el("input", {
    type: "range", min: 0, step: 1, id: id("scrub"), "data-test": id("scrub"), "aria-label": words("scrub"), oninput: slide,
  });
  const place = el("output", {class: "place", for: id("scrub"), id: id("place"), "data-test": id("place")});
  const speeds = SPEEDS.map((count) => [count, words("perSecond", {count: num(count)})]);
  const speed = selectField(id("speed"), words("speed"), speeds, (value) => { track.speed = Number(value); });
  const step = (name, by) => iconButton(id(name), icon(name), words(name), () => go(by));
  const last = track.more === ALL ? step("end", ALL)
    : iconButton(id("more"), `+${track.more}`, words("more", {count: track.more}), () => go(track.more));
  const buttons = div("buttons", step("rewind", -ALL), step("back", -1), play, step("step", 1), last, speed.field);
  const group = {class: "transport", role: "group", "aria-label": words("label")};
  const element = el("div", group, buttons, div("scrub", slider, place));
  const update = () => {
    const [at, total] = [track.at(), track.made()];
    Object.assign(slider, {max: total, value: at, disabled: total === 0});
    place.textContent = words("at", {t: at, total});
    slider.setAttribute("aria-valuetext", place.textContent);
    const playing = player.playing && player.track.view === track.view;
    const name = playing ? "pause" : "play";
    play.replaceChildren(icon(name));
    setAttributes(play, {title: words(name), "aria-label": words(name), "aria-pressed": String(playing)});
    show(speed.input, track.speed);
  };
  const keys = (event) => {
    const steps = {ArrowRight: 1, ArrowLeft: -1, Home: -ALL, End: track.more};
    if (event.key in steps) go(steps[event.key]);
    else if (event.key === " ") player.toggle(track);
    else return false;
    return true;
  };
  return {element, update, keys};
}
