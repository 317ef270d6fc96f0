// The plane: an SVG with the points of the store, to be put down, dragged and deleted, and what a view draws on it.
//
// A shape is a function from the plane to its elements, made by lineShape and the others here from coordinates of the
// data; its class is styled in style.css. `editable: false` makes a plane to look at, `surface: true` one of weights,
// without points; `frame` is a fixed frame, and `data` (a function) gives other data to draw than the store's.

const LONG_PRESS = 550; // milliseconds
const LEAST_ROOM = 0.2; // of a vector: what is shorter is not drawn at its line
const HALF_WIDTH = 1.5;

// The window onto the data: [−1.5, 1.5]² if they are in there, else a square around them.
function frameOf(data) {
  const spans = [0, 1].map((axis) => {
    const values = data.points.map((point) => point[axis]);
    return values.length ? [Math.min(...values), Math.max(...values)] : [0, 0];
  });
  const inside = spans.every(([lo, hi]) => lo >= -HALF_WIDTH && hi <= HALF_WIDTH);
  const large = data.points.length < 2 || spans.some(([lo, hi]) => hi - lo >= 0.3);
  if (inside && large) return squareFrame(-HALF_WIDTH, HALF_WIDTH);
  const some = spans.some(([lo, hi]) => hi > lo) ? 0 : HALF_WIDTH; // all points at one place
  const widths = spans.map(([lo, hi]) => (hi - lo) * 0.62 || some);
  const most = Math.max(...widths);
  const even = most <= 4 * Math.min(...widths) || Math.min(...widths) === 0;
  const [x, y] = spans.map(([lo, hi], axis) => {
    const half = even ? most : widths[axis];
    return [(lo + hi) / 2 - half, (lo + hi) / 2 + half];
  });
  return {x, y, even};
}

function squareFrame(lo, hi) {
  return {x: [lo, hi], y: [lo, hi], even: true};
}

const COARSE = 16; // fine steps: a quarter in the usual frame

// The fine grid: 1/64 in the usual frame, another power of two in other frames.
function gridStep([lo, hi]) {
  return 2 ** Math.round(Math.log2((hi - lo) / 192));
}

// Where a point is put down: on quarters in the usual frame, so that numbers are short, or on the fine grid.
function snapped(point, frame, fine = false) {
  return [frame.x, frame.y].map(([lo, hi], axis) => {
    const step = gridStep([lo, hi]) * (fine ? 1 : COARSE);
    const inside = Math.min(hi, Math.max(lo, point[axis]));
    return Math.round(inside / step) * step + 0; // + 0: no −0
  });
}

function tickValues([lo, hi], most = 7) {
  const rough = (hi - lo) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((value) => value >= rough);
  const first = Math.ceil(lo / step);
  return everyNumber(Math.floor(hi / step) - first + 1).map((k) => Number(((first + k) * step).toPrecision(12)));
}

// A frame's corners; with some room around it, so that the edges of the plane are not drawn as borders.
function corners({x, y}, room = 0) {
  const [[left, right], [low, high]] = [x, y].map(([lo, hi]) => [lo - room * (hi - lo), hi + room * (hi - lo)]);
  return [[left, low], [right, low], [right, high], [left, high]];
}

// The sides of a polygon with the values of w·x + b at their ends, and the point where it is 0 if that is between them.
function crossings(polygon, weight, bias) {
  const value = ([x, y]) => weight[0] * x + weight[1] * y + bias;
  return polygon.map((point, k) => {
    const next = polygon[(k + 1) % polygon.length];
    const [here, there] = [value(point), value(next)];
    const part = here / (here - there);
    return {point, here, there, at: [point[0] + part * (next[0] - point[0]), point[1] + part * (next[1] - point[1])]};
  });
}

// What is left of a polygon where weight·x + bias ≥ 0.
function clipped(polygon, weight, bias) {
  return crossings(polygon, weight, bias).flatMap(({point, here, there, at}) => [
    ...(here >= 0 ? [point] : []), ...(here * there < 0 ? [at] : []),
  ]);
}

// The two points where a line meets the edges of the frame, or null if it does not.
function lineInFrame(weight, bias, frame) {
  const found = crossings(corners(frame), weight, bias).filter(({here, there}) => here >= 0 !== there >= 0);
  return found.length === 2 ? found.map(({at}) => at) : null;
}

// Where on the line to draw a vector: in the middle, or where more of it is seen; null if there is no such place.
function footOf(weight, bias, frame, vector) {
  const ends = lineInFrame(weight, bias, frame);
  if (ends === null) return null;
  const at = (part) => [0, 1].map((axis) => ends[0][axis] + part * (ends[1][axis] - ends[0][axis]));
  const places = [0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8, 0.1, 0.9].map(at);
  const best = places.reduce((one, other) => (roomFor(other, vector, frame) > roomFor(one, vector, frame) ? other : one));
  return roomFor(best, vector, frame) > LEAST_ROOM ? best : null;
}

// How much of a vector is seen from a place on: 1 for all of it.
function roomFor(place, vector, frame) {
  return Math.min(1, ...[frame.x, frame.y].map(([lo, hi], axis) => {
    const end = vector[axis] > 0 ? hi : lo;
    const edge = 0.07 * (hi - lo) * Math.sign(vector[axis]);
    return vector[axis] === 0 ? 1 : Math.max(LEAST_ROOM, (end - edge - place[axis]) / vector[axis]);
  }));
}

// Lines through points, one or many.
function pathShape(lines, css) {
  return (plane) => [svgEl("path", {class: css, d: lines.map((points) => `M ${plane.joined(points)}`).join(" ")})];
}

// The line w·x + b = 0, cut at the edges.
function lineShape(weight, bias, css) {
  return (plane) => {
    const ends = lineInFrame(weight, bias, plane.frame);
    return ends === null ? [] : pathShape([ends], `line ${css}`)(plane);
  };
}

function polygonShape(points, css) {
  return (plane) => (points.length < 2 ? [] : [svgEl("polygon", {class: css, points: plane.joined(points)})]);
}

// What the weights decide for each class, as polygons class-0 … class-3.
function regionShapes({weight, bias}, css, room = 0) {
  const two = weight.length === 1; // with the scores −s and s
  const [rows, biases] = two ? [[weight[0].map((w) => -w), weight[0]], [-bias[0], bias[0]]] : [weight, bias];
  return rows.map((own, k) => (plane) => {
    const region = rows.reduce((kept, other, j) => (j === k ? kept : clipped(
      kept, own.map((w, axis) => w - other[axis]), biases[k] - biases[j],
    )), corners(plane.frame, room));
    return polygonShape(region, `${css} class-${k}`)(plane);
  });
}

// An arrow with its name at the tip, or beside the middle.
function arrowShape(from, to, css, text = "", beside = false) {
  return (plane) => {
    const [[x1, y1], [x2, y2]] = [plane.place(from), plane.place(to)];
    const length = Math.hypot(x2 - x1, y2 - y1);
    if (length < 1) return [];
    const [ux, uy] = [(x2 - x1) / length, (y2 - y1) / length];
    const head = Math.min(11, length);
    const [bx, by] = [x2 - ux * head, y2 - uy * head];
    const [dx, dy] = [uy * head * 0.45, ux * head * 0.45];
    const [tx, ty] = beside ? [(x1 + x2) / 2 - uy * 14, (y1 + y2) / 2 + ux * 14] : [x2 + ux * 12, y2 + uy * 12];
    const inside = (value, low, high) => Math.max(low, Math.min(plane.size - high, value));
    const words = {class: `arrow-text ${css}`, x: inside(tx - 4, 4, 24), y: inside(ty + 4, 16, 8)};
    return [
      svgEl("line", {class: `arrow ${css}`, x1, y1, x2: bx, y2: by}),
      svgEl("polygon", {class: `arrow-head ${css}`, points: `${x2},${y2} ${bx - dx},${by + dy} ${bx + dx},${by - dy}`}),
      ...(text ? [svgEl("text", words, text)] : []),
    ];
  };
}

// Around a point, by its number.
function ringShape(index, css) {
  return (plane) => {
    if (!plane.data.points[index]) return [];
    const [cx, cy] = plane.place(plane.data.points[index]);
    return [svgEl("circle", {class: `ring ${css}`, cx, cy, r: plane.radius + 7})];
  };
}

// An element that knows its own size, such as a dot, a diamond or a text, at a place.
function markShape(at, tag, attributes, ...children) {
  return (plane) => [svgEl(tag, {transform: `translate(${plane.place(at).join(" ")})`, ...attributes}, ...children)];
}

const DIAMOND = "M -7 0 L 0 -7 L 7 0 L 0 7 Z";

// A pixel per value of a grid over the frame, the first row at the bottom, stretched so that the middle of each pixel is
// where its value belongs; `colour` makes [red, green, blue] of a value, or undefined for nothing there.
function rasterShape(rows, colour, css) {
  return ({size}) => {
    const [width, height] = [rows[0].length, rows.length];
    const canvas = el("canvas", {width, height});
    const context = canvas.getContext("2d");
    const image = context.createImageData(width, height);
    [...rows].reverse().flat().forEach((value, k) => {
      const found = colour(value);
      if (found) image.data.set([...found, 255], 4 * k);
    });
    context.putImageData(image, 0, 0);
    const cell = size / (width - 1);
    const place = {x: -cell / 2, y: -cell / 2, width: size + cell, height: size + cell, preserveAspectRatio: "none"};
    return [svgEl("image", {class: css, href: canvas.toDataURL(), ...place})];
  };
}

// The colours of the classes in the current theme, as [red, green, blue].
function classColours() {
  const probe = document.body.appendChild(el("i", {}));
  const colours = everyNumber(MOST_CLASSES).map((k) => {
    probe.style.color = `var(--class-${k})`;
    return getComputedStyle(probe).color.match(/\d+/g).map(Number);
  });
  probe.remove();
  return colours;
}

// Viridis, in ten colours: dark is low; every kind of eye sees the order.
const HEAT = [
  [68, 1, 84], [72, 40, 120], [62, 73, 137], [49, 104, 142], [38, 130, 142],
  [31, 158, 137], [53, 183, 121], [110, 206, 88], [181, 222, 43], [253, 231, 37],
];

// The colour of a fraction from 0 to 1 as [red, green, blue].
function heatColour(fraction) {
  const place = Math.min(1, Math.max(0, fraction)) * (HEAT.length - 1);
  const low = Math.min(HEAT.length - 2, Math.floor(place));
  return HEAT[low].map((value, k) => Math.round(value + (place - low) * (HEAT[low + 1][k] - value)));
}

class Plane {
  constructor(element, store, options) {
    this.store = store;
    this.options = {editable: true, ...options};
    this.size = 480;
    this.shapes = {};
    this.marks = [];
    this.groups = Object.fromEntries(["grid", "below", "points", "above"].map((name) => [
      name, svgEl("g", {class: `layer-${name}`, "aria-hidden": name === "points" ? null : "true"}),
    ]));
    const css = options.surface ? "plane surface" : "plane";
    this.svg = svgEl(
      "svg", {id: options.id, "data-test": options.id, class: css, role: "group", "aria-label": options.label},
      svgEl("rect", {class: "paper", x: 0, y: 0, width: "100%", height: "100%"}),
      ...Object.values(this.groups),
    );
    if (this.options.editable) this._listen();
    element.append(this.svg);
    new ResizeObserver(() => this.resize()).observe(this.svg);
  }

  get data() {
    return this.options.data ? this.options.data() : this.store.data;
  }

  // It stays as it is while a point is dragged.
  get frame() {
    if (this.options.frame) return this.options.frame;
    const {data} = this;
    if (!this.kept || (!this.store.dragging && this.keptFor !== data)) [this.kept, this.keptFor] = [frameOf(data), data];
    return this.kept;
  }

  get radius() {
    return this.data.points.length > 80 ? 5 : this.size < 380 ? 7 : 8;
  }

  resize() {
    const width = this.svg.clientWidth;
    if (!width || Math.abs(width - this.size) < 0.5) return;
    this.size = width;
    this.draw(this.shapes);
  }

  // From data to pixels, and back.
  place([x, y]) {
    const {x: [x0, x1], y: [y0, y1]} = this.frame;
    return [((x - x0) / (x1 - x0)) * this.size, (1 - (y - y0) / (y1 - y0)) * this.size];
  }

  at(event) {
    const box = this.svg.getBoundingClientRect();
    const {x: [x0, x1], y: [y0, y1]} = this.frame;
    const across = (event.clientX - box.left) / box.width;
    const down = (event.clientY - box.top) / box.height;
    return [x0 + across * (x1 - x0), y1 - down * (y1 - y0)];
  }

  joined(points) {
    return points.map((point) => this.place(point).map((value) => value.toFixed(2)).join(",")).join(" ");
  }

  draw({below = [], above = []} = {}) {
    this.shapes = {below, above};
    this.svg.setAttribute("viewBox", `0 0 ${this.size} ${this.size}`);
    this.groups.grid.replaceChildren(...this._grid());
    this.groups.below.replaceChildren(...below.flatMap((shape) => shape(this)));
    this.groups.above.replaceChildren(...above.flatMap((shape) => shape(this)));
    if (!this.options.surface) this._points();
    else this.groups.above.prepend(...this.groups.grid.querySelectorAll("text")); // above the colours
  }

  _grid() {
    const {size, frame} = this;
    const text = (css, x, y, words, anchor = "start") => svgEl("text", {class: css, x, y, "text-anchor": anchor}, words);
    const most = size < 300 ? 4 : 7;
    const lines = [0, 1].flatMap((axis) => tickValues([frame.x, frame.y][axis], most).flatMap((value) => {
      const at = this.place([value, value])[axis];
      const [ends, label] = axis === 0 ? [{x1: at, x2: at, y1: 0, y2: size}, [at + 3, size - 5]] : [{x1: 0, x2: size, y1: at, y2: at}, [4, at - 3]];
      const line = svgEl("line", {class: value === 0 ? "axis" : "grid", ...ends});
      return at < [18, 30][axis] || at > size - [40, 18][axis] ? [line] : [line, text("tick", ...label, num(value))];
    }));
    const [across, up] = this.data.names ?? ["x₁", "x₂"];
    return [...lines, text("axis-name", size - 6, size - 6, across, "end"), text("axis-name", 5, 15, up)];
  }

  _points() {
    const {data, size, radius, frame} = this;
    if (this.shown?.data === data && this.shown.size === size && this.shown.frame === frame) return;
    const focused = this.marks.indexOf(document.activeElement);
    this.shown = {data, size, frame};
    this.marks = data.points.map((point, index) => {
      const [label, half] = [data.labels[index], radius / 2];
      const sign = data.classes === 2 && radius > 6 ? `M ${-half} 0 H ${half}` + (label === 1 ? ` M 0 ${-half} V ${half}` : "") : ""; // − or +
      const words = {number: index, label: className(data, label), x: num(point[0]), y: num(point[1])};
      return svgEl(
        "g", {
          class: `point class-${label}`, transform: `translate(${this.place(point).map((value) => value.toFixed(2)).join(" ")})`,
          "data-index": index, "data-x": point[0], "data-y": point[1], "data-label": label,
          "aria-label": t("plane.point", words), ...(this.options.editable ? {tabindex: 0, role: "button"} : {role: "img"}),
        },
        svgEl("circle", {class: "hit", r: 17}),
        svgEl("path", {class: "mark", d: markerPath(label, radius)}), svgEl("path", {class: "sign", d: sign}),
      );
    });
    this.groups.points.replaceChildren(...this.marks);
    this.marks[focused]?.focus({preventScroll: true});
  }

  _listen() {
    const on = (name, act, options) => this.svg.addEventListener(name, act, options);
    on("click", (event) => this._click(event));
    on("pointerdown", (event) => this._press(event));
    on("pointermove", (event) => this._move(event));
    for (const name of ["pointerup", "pointercancel"]) on(name, () => this._release());
    on("contextmenu", (event) => {
      const index = indexOf(event.target);
      event.preventDefault();
      if (index !== null && !this.pressed?.deleted) removePoint(this.store, index);
    });
    // a finger on a point drags it; elsewhere it scrolls the page
    on("touchstart", (event) => { if (indexOf(event.target) !== null) event.preventDefault(); }, {passive: false});
    on("keydown", (event) => this._key(event));
  }

  _click(event) {
    if (this.swallow) this.swallow = false; // the end of a drag or a long press
    else if (indexOf(event.target) !== null) return;
    else if (this.store.mode === "add") addPoint(this.store, snapped(this.at(event), this.frame, event.shiftKey));
    else notice(t("plane.nothingHere"));
  }

  _press(event) {
    const index = indexOf(event.target);
    this.swallow = false;
    if (index === null || event.button !== 0) return;
    this.pressed = {index, x: event.clientX, y: event.clientY, moved: false, deleted: false};
    this.svg.setPointerCapture(event.pointerId);
    if (event.pointerType === "mouse") return;
    this.timer = setTimeout(() => {
      if (!this.pressed || this.pressed.moved) return;
      this.pressed.deleted = true;
      removePoint(this.store, index);
    }, LONG_PRESS);
  }

  _move(event) {
    const {pressed} = this;
    if (!pressed || pressed.deleted) return;
    if (!pressed.moved && Math.hypot(event.clientX - pressed.x, event.clientY - pressed.y) < 4) return;
    if (!pressed.moved) this.store.startDrag();
    pressed.moved = true;
    clearTimeout(this.timer);
    movePoint(this.store, pressed.index, snapped(this.at(event), this.frame, event.shiftKey), {undo: false});
  }

  _release() {
    const {pressed} = this;
    clearTimeout(this.timer);
    this.pressed = null;
    if (!pressed) return;
    this.swallow = true;
    if (pressed.moved) this.store.endDrag();
    else if (!pressed.deleted && this.store.mode === "delete") removePoint(this.store, pressed.index);
    else if (!pressed.deleted) this.marks[pressed.index]?.focus({preventScroll: true});
  }

  _key(event) {
    const index = indexOf(event.target);
    if (index === null || event.ctrlKey || event.metaKey || event.altKey) return;
    const {data} = this.store;
    const move = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1]}[event.key];
    if (move) {
      const {x, y} = this.frame;
      const steps = [x, y].map((axis) => gridStep(axis) * (event.shiftKey ? 8 : 1));
      movePoint(this.store, index, data.points[index].map((value, axis) => value + move[axis] * steps[axis]));
    } else if (event.key === "c" || event.key === "C") {
      const labels = data.labels.map((label, k) => (k === index ? (label + 1) % data.classes : label));
      this.store.set({data: {...data, labels}, preset: null});
    } else if (event.key === "Delete" || event.key === "Backspace") {
      removePoint(this.store, index);
      this.marks[Math.min(index, this.marks.length - 1)]?.focus();
    } else return;
    if (this.data.points.length === data.points.length) announce(this.marks[index].getAttribute("aria-label"));
    event.preventDefault();
    event.stopPropagation();
  }
}

function indexOf(target) {
  const group = target.closest?.(".point");
  return group ? Number(group.dataset.index) : null;
}

function addPoint(store, point, label = store.pen) {
  const {data} = store;
  const next = {...data, points: [...data.points, point], labels: [...data.labels, label]};
  store.set({data: next, preset: null});
  announce(t("plane.added", {label: className(next, label), x: num(point[0]), y: num(point[1])}));
}

function movePoint(store, index, point, options) {
  const {data} = store;
  store.set({data: {...data, points: data.points.map((old, k) => (k === index ? point : old))}, preset: null}, options);
}

function removePoint(store, index) {
  const {data} = store;
  const without = (list) => list.filter((_, k) => k !== index);
  store.set({data: {...data, points: without(data.points), labels: without(data.labels)}, preset: null});
  announce(t("plane.removed", {number: index}));
}

// A circle, a square, a triangle up or down: a class each.
function markerPath(label, r) {
  const k = r * 0.9;
  return [
    `M ${-r} 0 A ${r} ${r} 0 1 0 ${r} 0 A ${r} ${r} 0 1 0 ${-r} 0 Z`,
    `M ${-k} ${-k} H ${k} V ${k} H ${-k} Z`,
    `M 0 ${-r * 1.15} L ${r * 1.1} ${r * 0.85} H ${-r * 1.1} Z`,
    `M 0 ${r * 1.15} L ${r * 1.1} ${-r * 0.85} H ${-r * 1.1} Z`,
  ][label];
}
