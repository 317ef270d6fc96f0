// The plane: an SVG with the points of the store, to be put down, dragged and deleted, and what a view draws on it.
//
//   const plane = createPlane(element, store, {id: "rule-plane", label: t("plane.label")});
//   plane.draw({below: [...shapes], above: [...shapes]});      below or above the points
//   plane.frame                                                {x: [lo, hi], y: [lo, hi], even}
//   plane.svg                                                  for PNG
//
// Shapes are made in the coordinates of the data, and styled by their class in style.css:
//   lineShape(weight, bias, className)       the line w·x + b = 0, cut at the edges
//   polygonShape(points, className), segmentShape(from, to, className), arrowShape(from, to, className, text)
//   ringShape(index, className)              around a point
//   dotShape(at, className, text), textShape(at, text, className)
//   regionShapes(weight, bias, className)    what the weights decide for each class, as polygons class-0 … class-3
//   {kind: "strip", weight, bias, className} where |w·x + b| < 1
//   rasterShape(decide, className, cells)    the same for any function from [x1, x2] to a class, or null
//   {kind: "heat", surface}                  a loss surface in colours; {kind: "mark", at, className} a diamond
//   {kind: "path", points, className}        a line through points; {kind: "segments", segments, className} many short ones
// `editable: false` makes a plane to look at; `points: false` leaves the points out; `frame` is a fixed frame, and
// `data` (a function) other data to draw than the store's.

const MARKERS = ["circle", "square", "up", "down"];
const LONG_PRESS = 550; // milliseconds
const LEAST_ROOM = 0.2; // of a vector: what is shorter is not drawn at its line

// The window onto the data: [−1.5, 1.5]² if they are in there, else a square around them.
function frameOf(data) {
  const spans = [0, 1].map((axis) => {
    const values = data.points.map((point) => point[axis]);
    return values.length ? [Math.min(...values), Math.max(...values)] : [0, 0];
  });
  const inside = spans.every(([lo, hi]) => lo >= -HALF_WIDTH && hi <= HALF_WIDTH);
  const large = data.points.length < 2 || spans.some(([lo, hi]) => hi - lo >= 0.3);
  if (inside && large) {
    return {x: [-HALF_WIDTH, HALF_WIDTH], y: [-HALF_WIDTH, HALF_WIDTH], even: true};
  }
  const middles = spans.map(([lo, hi]) => (lo + hi) / 2);
  const some = spans.some(([lo, hi]) => hi > lo) ? 0 : HALF_WIDTH; // all points at one place
  const widths = spans.map(([lo, hi]) => (hi - lo) * 0.62 || some);
  const even = Math.max(...widths) <= 4 * Math.min(...widths) || Math.min(...widths) === 0;
  const half = even ? [Math.max(...widths), Math.max(...widths)] : widths;
  const [x, y] = [0, 1].map((axis) => [middles[axis] - half[axis], middles[axis] + half[axis]]);
  return {x, y, even};
}

const COARSE = 16; // fine steps: a quarter in the usual frame

// The fine grid: 1/64 in the usual frame, another power of two in other frames.
function gridStep([lo, hi]) {
  return 2 ** Math.round(Math.log2((hi - lo) / 192));
}

// Where a point is put down: on quarters in the usual frame, so that numbers are short, or on the fine grid.
function snapped(point, frame, fine = false) {
  return ["x", "y"].map((axis, number) => {
    const step = gridStep(frame[axis]) * (fine ? 1 : COARSE);
    const [lo, hi] = frame[axis];
    const inside = Math.min(hi, Math.max(lo, point[number]));
    return Math.round(inside / step) * step + 0; // + 0: no −0
  });
}

function tickValues([lo, hi], most = 7) {
  const rough = (hi - lo) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((value) => value >= rough);
  const first = Math.ceil(lo / step);
  return Array.from({length: Math.floor(hi / step) - first + 1}, (_, k) => Number(((first + k) * step).toPrecision(12)));
}

// What is left of a polygon where weight·x + bias ≥ 0.
function clipped(polygon, weight, bias) {
  const value = ([x, y]) => weight[0] * x + weight[1] * y + bias;
  const kept = [];
  polygon.forEach((point, k) => {
    const next = polygon[(k + 1) % polygon.length];
    const [here, there] = [value(point), value(next)];
    if (here >= 0) kept.push(point);
    if ((here > 0 && there < 0) || (here < 0 && there > 0)) {
      const part = here / (here - there);
      kept.push([point[0] + part * (next[0] - point[0]), point[1] + part * (next[1] - point[1])]);
    }
  });
  return kept;
}

function corners({x, y}) {
  return [[x[0], y[0]], [x[1], y[0]], [x[1], y[1]], [x[0], y[1]]];
}

// A little more than is seen, so that the edges of the plane are not drawn as borders.
function enlarged({x, y}) {
  const [wide, high] = [0.1 * (x[1] - x[0]), 0.1 * (y[1] - y[0])];
  return {x: [x[0] - wide, x[1] + wide], y: [y[0] - high, y[1] + high]};
}

// The two points where a line meets the edges of the frame, or null if it does not.
function lineInFrame(weight, bias, frame) {
  if (weight[0] === 0 && weight[1] === 0) return null;
  const value = ([x, y]) => weight[0] * x + weight[1] * y + bias;
  const edge = corners(frame);
  const found = [];
  edge.forEach((point, k) => {
    const next = edge[(k + 1) % 4];
    const [here, there] = [value(point), value(next)];
    if ((here >= 0) === (there >= 0)) return;
    const part = here / (here - there);
    found.push([point[0] + part * (next[0] - point[0]), point[1] + part * (next[1] - point[1])]);
  });
  return found.length === 2 ? found : null;
}

function middleOf({x, y}) {
  return [(x[0] + x[1]) / 2, (y[0] + y[1]) / 2];
}

// Where on the line to draw a vector: in the middle, or where more of it is seen; null without
// a line, or with one at the very edge of the frame.
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

// Weights with a row per class: two classes have the scores −s and s.
function rowPerClass(weight, bias) {
  if (weight.length > 1) return {weight, bias};
  return {weight: [weight[0].map((w) => -w), weight[0]], bias: [-bias[0], bias[0]]};
}

function lineShape(weight, bias, className) {
  return {kind: "line", weight, bias, className};
}

function polygonShape(points, className) {
  return {kind: "polygon", points, className};
}

function segmentShape(from, to, className) {
  return {kind: "segment", from, to, className};
}

function arrowShape(from, to, className, text = "") {
  return {kind: "arrow", from, to, className, text};
}

function ringShape(index, className) {
  return {kind: "ring", index, className};
}

function dotShape(at, className, text = "") {
  return {kind: "dot", at, className, text};
}

function textShape(at, text, className = "") {
  return {kind: "text", at, text, className};
}

function regionShapes(weight, bias, className) {
  return [{kind: "regions", ...rowPerClass(weight, bias), className}];
}

function rasterShape(decide, className, cells = 120) {
  return {kind: "raster", decide, className, cells};
}

function createPlane(element, store, options) {
  const plane = new Plane(store, {editable: true, points: true, frame: null, data: null, ...options});
  element.append(plane.svg);
  new ResizeObserver(() => plane.resize()).observe(plane.svg);
  return plane;
}

class Plane {
  constructor(store, options) {
    this.store = store;
    this.options = options;
    this.size = 480;
    this.shapes = {below: [], above: []};
    this.groups = Object.fromEntries(["grid", "below", "points", "above"].map((name) => [
      name, svgEl("g", {class: `layer-${name}`, "aria-hidden": name === "points" ? null : "true"}),
    ]));
    this.clip = `${options.id}-clip`;
    this.svg = svgEl(
      "svg", {id: options.id, "data-test": options.id, class: "plane", role: "group", "aria-label": options.label},
      svgEl("defs", {}, svgEl("clipPath", {id: this.clip}, svgEl("rect", {x: 0, y: 0, width: 4000, height: 4000}))),
      svgEl("rect", {class: "paper", x: 0, y: 0, width: "100%", height: "100%"}),
      ...Object.values(this.groups),
    );
    this.marks = [];
    if (options.editable) this._listen();
  }

  get data() {
    return this.options.data ? this.options.data() : this.store.data;
  }

  get frame() {
    if (this.options.frame) return this.options.frame;
    const {data} = this;
    if (!this.kept || (!this.store.dragging && this.keptFor !== data)) [this.kept, this.keptFor] = [frameOf(data), data];
    return this.kept;
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

  draw({below = [], above = []} = {}) {
    this.shapes = {below, above};
    this.svg.setAttribute("viewBox", `0 0 ${this.size} ${this.size}`);
    this.groups.grid.replaceChildren(...this._grid());
    this.groups.below.replaceChildren(...below.flatMap((shape) => this._shape(shape)));
    this.groups.above.replaceChildren(...above.flatMap((shape) => this._shape(shape)));
    if (this.options.points) this._points();
    if (!this.options.surface) return;
    this.svg.classList.add("surface"); // on which names and numbers of the axes are written above the colours
    this.groups.above.prepend(...[...this.groups.grid.children].filter((child) => child.tagName === "text"));
  }

  _grid() {
    const {x, y} = this.frame;
    const parts = [];
    const names = this.data.names ?? ["x₁", "x₂"];
    const [left, top] = this.place([x[0], y[1]]);
    const most = this.size < 300 ? 4 : 7;
    for (const value of tickValues(x, most)) {
      const [across] = this.place([value, 0]);
      parts.push(svgEl("line", {class: value === 0 ? "axis" : "grid", x1: across, x2: across, y1: 0, y2: this.size}));
      if (across < 18 || across > this.size - 40) continue;
      parts.push(svgEl("text", {class: "tick", x: across + 3, y: this.size - 5}, num(value)));
    }
    for (const value of tickValues(y, most)) {
      const [, down] = this.place([0, value]);
      parts.push(svgEl("line", {class: value === 0 ? "axis" : "grid", x1: 0, x2: this.size, y1: down, y2: down}));
      if (down < 30 || down > this.size - 18) continue;
      parts.push(svgEl("text", {class: "tick", x: left + 4, y: down - 3}, num(value)));
    }
    parts.push(svgEl("text", {class: "axis-name", x: this.size - 6, y: this.size - 6, "text-anchor": "end"}, names[0]));
    parts.push(svgEl("text", {class: "axis-name", x: left + 5, y: top + 15}, names[1]));
    return parts;
  }

  _shape(shape) {
    const css = {class: shape.className};
    const joined = (list) => list.map((point) => this.place(point).map((value) => value.toFixed(2)).join(",")).join(" ");
    switch (shape.kind) {
      case "line": {
        const ends = lineInFrame(shape.weight, shape.bias, this.frame);
        return ends === null ? [] : this._shape(segmentShape(...ends, `line ${shape.className}`));
      }
      case "segment": {
        const [[x1, y1], [x2, y2]] = [this.place(shape.from), this.place(shape.to)];
        return [svgEl("line", {...css, x1, y1, x2, y2})];
      }
      case "polygon":
        return shape.points.length < 2 ? [] : [svgEl("polygon", {...css, points: joined(shape.points)})];
      case "regions":
        return shape.weight.map((own, k) => {
          const whole = corners(shape.className.startsWith("border") ? enlarged(this.frame) : this.frame);
          const polygon = shape.weight.reduce((kept, other, j) => (j === k ? kept : clipped(
            kept, own.map((w, axis) => w - other[axis]), shape.bias[k] - shape.bias[j],
          )), whole);
          return svgEl("polygon", {class: `${shape.className} class-${k}`, points: joined(polygon)});
        });
      case "strip": {
        const half = clipped(corners(this.frame), shape.weight, shape.bias + 1);
        const between = clipped(half, shape.weight.map((w) => -w), 1 - shape.bias);
        return this._shape(polygonShape(between, shape.className));
      }
      case "arrow":
        return this._arrow(shape);
      case "ring": {
        if (!this.data.points[shape.index]) return [];
        const [cx, cy] = this.place(this.data.points[shape.index]);
        return [svgEl("circle", {class: `ring ${shape.className}`, cx, cy, r: this._radius() + 7})];
      }
      case "dot": {
        const [cx, cy] = this.place(shape.at);
        const words = shape.text ? [svgEl("text", {class: "dot-text", x: cx + 10, y: cy - 10}, shape.text)] : [];
        return [svgEl("circle", {class: `dot ${shape.className}`, cx, cy, r: 5}), ...words];
      }
      case "text": {
        const [x, y] = this.place(shape.at);
        return [svgEl("text", {...css, x, y}, shape.text)];
      }
      case "raster":
        return [this._raster(shape)];
      case "heat":
        return [this._heat(shape.surface)];
      case "path":
        return [svgEl("path", {...css, d: `M ${joined(shape.points)}`})];
      case "segments":
        return [svgEl("path", {...css, d: shape.segments.map((ends) => `M ${joined(ends)}`).join(" ")})];
      case "mark": {
        const [x, y] = this.place(shape.at);
        return [svgEl("path", {...css, d: `M ${x - 7} ${y} L ${x} ${y - 7} L ${x + 7} ${y} L ${x} ${y + 7} Z`})];
      }
      default:
        throw new Error(`no such shape: ${shape.kind}`);
    }
  }

  _arrow({from, to, className, text, middle}) {
    const [[x1, y1], [x2, y2]] = [this.place(from), this.place(to)];
    const length = Math.hypot(x2 - x1, y2 - y1);
    if (length < 1) return [];
    const [ux, uy] = [(x2 - x1) / length, (y2 - y1) / length];
    const head = Math.min(11, length);
    const [bx, by] = [x2 - ux * head, y2 - uy * head];
    const tip = [[x2, y2], [bx - uy * head * 0.45, by + ux * head * 0.45], [bx + uy * head * 0.45, by - ux * head * 0.45]];
    const [tx, ty] = middle ? [(x1 + x2) / 2 - uy * 14, (y1 + y2) / 2 + ux * 14] : [x2 + ux * 12, y2 + uy * 12];
    const inside = (value, low, high) => Math.max(low, Math.min(this.size - high, value));
    const words = text ? [svgEl("text", {class: `arrow-text ${className}`, x: inside(tx - 4, 4, 24), y: inside(ty + 4, 16, 8)}, text)] : [];
    return [
      svgEl("line", {class: `arrow ${className}`, x1, y1, x2: bx, y2: by}),
      svgEl("polygon", {class: `arrow-head ${className}`, points: tip.map((point) => point.join(",")).join(" ")}),
      ...words,
    ];
  }

  // A picture of what a function decides; kept while function, frame and colours are the same, as it takes long.
  _raster({decide, className, cells}) {
    const colours = Array.from({length: MOST_CLASSES}, (_, k) => colourOf(k));
    const key = JSON.stringify([this.frame, cells, colours]);
    if (this.raster?.decide !== decide || this.raster.key !== key) {
      const along = ([from, to]) => Array.from({length: cells}, (_, k) => from + ((k + 0.5) / cells) * (to - from));
      const [xs, ys] = [along(this.frame.x), along(this.frame.y).reverse()];
      const classes = decide.raster ? decide.raster(xs, ys) : ys.flatMap((y) => xs.map((x) => decide([x, y])));
      this.raster = {decide, key, picture: pixelPicture(cells, classes.map((label) => colours[label]))};
    }
    const whole = {x: 0, y: 0, width: this.size, height: this.size, preserveAspectRatio: "none"};
    return svgEl("image", {class: `raster ${className}`, href: this.raster.picture, ...whole});
  }

  // A pixel per value, stretched so that the middle of each pixel is where its value belongs.
  _heat(surface) {
    const {values, low, high} = surface;
    const colour = (value) => heatColour(Math.sqrt((value - low) / (high - low || 1)));
    surface.picture ??= pixelPicture(values.length, [...values].reverse().flatMap((row) => row.map(colour)));
    const cell = this.size / (values.length - 1);
    const whole = {x: -cell / 2, y: -cell / 2, width: this.size + cell, height: this.size + cell, preserveAspectRatio: "none"};
    return svgEl("image", {class: "heat", href: surface.picture, ...whole});
  }

  _radius() {
    return this.data.points.length > 80 ? 5 : this.size < 380 ? 7 : 8;
  }

  _points() {
    const {points, labels} = this.data;
    while (this.marks.length > points.length) this.marks.pop().group.remove();
    points.forEach((point, index) => {
      this.marks[index] ??= this._newMark(index);
      this._showMark(this.marks[index], point, labels[index], index);
    });
  }

  _newMark(index) {
    const mark = {shape: svgEl("path", {class: "mark"}), sign: svgEl("path", {class: "sign"}), drawn: ""};
    const hit = svgEl("circle", {class: "hit", r: 17});
    const role = this.options.editable ? {tabindex: 0, role: "button"} : {role: "img"};
    mark.group = svgEl("g", {class: "point", "data-index": index, ...role}, hit, mark.shape, mark.sign);
    this.groups.points.append(mark.group);
    return mark;
  }

  _showMark(mark, point, label, index) {
    const {data} = this;
    const [x, y] = this.place(point);
    const drawn = JSON.stringify([x, y, label, point, data.classes, this._radius(), data.classNames, t("plane.point")]);
    if (mark.drawn === drawn) return;
    mark.drawn = drawn;
    mark.group.setAttribute("transform", `translate(${x.toFixed(2)} ${y.toFixed(2)})`);
    mark.group.setAttribute("class", `point class-${label}`);
    mark.group.setAttribute("data-x", point[0]);
    mark.group.setAttribute("data-y", point[1]);
    mark.group.setAttribute("data-label", label);
    mark.shape.setAttribute("d", markerPath(MARKERS[label], this._radius()));
    mark.sign.setAttribute("d", data.classes === 2 && this._radius() > 6 ? signPath(label, this._radius()) : "");
    const words = {number: index, label: className(data, label), x: num(point[0]), y: num(point[1])};
    mark.group.setAttribute("aria-label", t("plane.point", words));
  }

  _listen() {
    this.svg.addEventListener("click", (event) => this._click(event));
    this.svg.addEventListener("pointerdown", (event) => this._press(event));
    this.svg.addEventListener("pointermove", (event) => this._move(event));
    for (const name of ["pointerup", "pointercancel"]) this.svg.addEventListener(name, (event) => this._release(event));
    this.svg.addEventListener("contextmenu", (event) => {
      const index = indexOf(event.target);
      event.preventDefault();
      if (index !== null && !this.pressed?.deleted) removePoint(this.store, index);
    });
    // a finger on a point drags it; elsewhere it scrolls the page
    const hold = (event) => { if (indexOf(event.target) !== null) event.preventDefault(); };
    this.svg.addEventListener("touchstart", hold, {passive: false});
    this.svg.addEventListener("keydown", (event) => this._key(event));
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
    if (event.pointerType !== "mouse") this.timer = setTimeout(() => this._longPress(), LONG_PRESS);
  }

  _longPress() {
    if (!this.pressed || this.pressed.moved) return;
    this.pressed.deleted = true;
    removePoint(this.store, this.pressed.index);
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
    else if (!pressed.deleted) this.marks[pressed.index]?.group.focus({preventScroll: true});
  }

  _key(event) {
    const index = indexOf(event.target);
    if (index === null || event.ctrlKey || event.metaKey || event.altKey) return;
    const moves = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1]};
    if (event.key in moves) this._nudge(index, moves[event.key], event.shiftKey ? 8 : 1);
    else if (event.key === "Delete" || event.key === "Backspace") this._removeFocused(index);
    else if (event.key === "c" || event.key === "C") this._nextClass(index);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  _nudge(index, [across, up], times) {
    const [x, y] = this.data.points[index];
    const next = [x + across * times * gridStep(this.frame.x), y + up * times * gridStep(this.frame.y)];
    movePoint(this.store, index, next);
    announce(this.marks[index].group.getAttribute("aria-label"));
  }

  _removeFocused(index) {
    removePoint(this.store, index);
    const last = this.data.points.length - 1;
    if (last >= 0) this.marks[Math.min(index, last)].group.focus();
  }

  _nextClass(index) {
    const {data} = this.store;
    const labels = data.labels.map((label, k) => (k === index ? (label + 1) % data.classes : label));
    this.store.set({data: {...data, labels}, preset: null});
    announce(this.marks[index].group.getAttribute("aria-label"));
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

function markerPath(kind, r) {
  const k = r * 0.9;
  switch (kind) {
    case "circle": return `M ${-r} 0 A ${r} ${r} 0 1 0 ${r} 0 A ${r} ${r} 0 1 0 ${-r} 0 Z`;
    case "square": return `M ${-k} ${-k} H ${k} V ${k} H ${-k} Z`;
    case "up": return `M 0 ${-r * 1.15} L ${r * 1.1} ${r * 0.85} H ${-r * 1.1} Z`;
    default: return `M 0 ${r * 1.15} L ${r * 1.1} ${-r * 0.85} H ${-r * 1.1} Z`;
  }
}

// − or + on the markers of two classes.
function signPath(label, r) {
  const k = r * 0.5;
  return `M ${-k} 0 H ${k}` + (label === 1 ? ` M 0 ${-k} V ${k}` : "");
}

// The colour of a class as the style sheet has it, as [red, green, blue].
function colourOf(label) {
  const text = getComputedStyle(document.documentElement).getPropertyValue(`--class-${label}`).trim();
  return [1, 3, 5].map((start) => parseInt(text.slice(start, start + 2), 16));
}

// Viridis, in ten colours: dark is low; every kind of eye sees the order.
const HEAT = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"]
  .map((code) => [1, 3, 5].map((start) => parseInt(code.slice(start, start + 2), 16)));

// The colour of a fraction from 0 to 1 as [red, green, blue].
function heatColour(fraction) {
  const place = Math.min(1, Math.max(0, fraction)) * (HEAT.length - 1);
  const low = Math.min(HEAT.length - 2, Math.floor(place));
  return HEAT[low].map((value, k) => Math.round(value + (place - low) * (HEAT[low + 1][k] - value)));
}

// A square picture as an address; colours are [red, green, blue] row by row from the top, or undefined for nothing there.
function pixelPicture(width, colours) {
  const canvas = el("canvas", {width, height: colours.length / width});
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, colours.length / width);
  colours.forEach((colour, k) => { if (colour) image.data.set([...colour, 255], 4 * k); });
  context.putImageData(image, 0, 0);
  return canvas.toDataURL();
}
