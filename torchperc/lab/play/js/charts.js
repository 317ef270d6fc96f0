// Charts: mistakes by epoch, the bounds of γ*, loss and errors by step; and the swatches of legends.

const CHART = {width: 420, height: 165, left: 40, right: 12, top: 10, bottom: 40};
const MOST_DRAWN = 400; // points of a curve

// A frame with ticks, a line at `here`, and what `draw` makes with the scales of both axes; yTicks are [value, text] pairs.
function chart({label, axis, xs, ys, xTicks, yTicks, here = null}, draw) {
  const {width, height, left, right, top, bottom} = CHART;
  const x = (value) => left + ((value - xs[0]) / (xs[1] - xs[0] || 1)) * (width - left - right);
  const y = (value) => height - bottom - ((value - ys[0]) / (ys[1] - ys[0] || 1)) * (height - top - bottom);
  const text = (across, down, anchor, words) => svgEl("text", {class: "tick", x: across, y: down, "text-anchor": anchor}, words);
  return svgEl(
    "svg", {class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label},
    ...yTicks.flatMap(([value, words]) => [
      svgEl("line", {class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value)}),
      text(left - 6, y(value) + 4, "end", words),
    ]),
    ...xTicks.map((value) => text(x(value), height - bottom + 15, "middle", num(value))),
    text((left + width - right) / 2, height - 5, "middle", axis),
    here === null ? null : svgEl("line", {class: "here", x1: x(here), x2: x(here), y1: top, y2: height - bottom}),
    ...draw(x, y),
  );
}

function wholeTicks(low, high, most) {
  return tickValues([low, Math.max(high, low + 1)], most).filter((value) => Number.isInteger(value) && value <= high);
}

function numbered(values, digits = 3) {
  return values.map((value) => [value, num(value, digits)]);
}

// The path of a curve of finite values, of so many of its points as are seen; counts and bounds go in steps.
function curvePath(values, x, y, inSteps) {
  const every = Math.max(1, Math.ceil(values.length / MOST_DRAWN));
  const seen = everyNumber(values.length).filter((k) => (k % every === 0 || k === values.length - 1) && Number.isFinite(values[k]));
  return seen.map((k, n) => {
    const [across, up] = [x(k).toFixed(1), y(values[k]).toFixed(1)];
    return n === 0 ? `M ${across} ${up}` : inSteps ? `H ${across} V ${up}` : `L ${across} ${up}`;
  }).join(" ");
}

// Bars of the mistakes in each epoch; the epoch of the current mistake stands out.
function epochChart(log, t0) {
  const counts = mistakesByEpoch(log);
  const current = t0 > 0 ? epochOf(log, t0 - 1) : -1;
  const most = counts.reduce((high, count) => Math.max(high, count), 1);
  const frame = {
    label: `${t("epochs.title")}: ${counts.slice(0, 60).join(", ")}`, axis: t("epochs.axis"),
    xs: [0.4, counts.length + 0.6], ys: [0, most],
    xTicks: counts.length === 1 ? [1] : wholeTicks(1, counts.length, 8), yTicks: numbered(wholeTicks(0, most, 4)),
  };
  return chart(frame, (x, y) => {
    const width = Math.max(1, Math.min(34, (x(2) - x(1)) * 0.72));
    return counts.map((count, k) => svgEl("rect", {
      class: k === current ? "bar current" : "bar", x: x(k + 1) - width / 2, width, y: y(count), height: y(0) - y(count),
    }, svgEl("title", {}, t("epochs.bar", {epoch: k + 1, count}))));
  });
}

// The best bounds of γ* after each mistake as steps, γ* itself and where we are.
function bracketChart(log, t0, gamma) {
  const best = bestBrackets(log);
  const last = Math.max(1, log.index.length);
  const finite = best.map(({upper}) => upper).filter(Number.isFinite); // the best so far: the first is the largest
  const early = finite[Math.ceil(finite.length / 20) + 2] || Infinity; // unless it is 0: the first bounds of a long run would flatten the rest
  const high = Math.min(Math.max(gamma ?? 0, finite[0] ?? 0, 1e-9), 4 * Math.max(gamma ?? 0, early, 1e-9)) * 1.05;
  const frame = {
    label: `${t("bracket.title")}: ${bracketText(best[t0])}`, axis: t("bracket.axis"), xs: [0, last], ys: [0, high],
    xTicks: wholeTicks(0, last, 7), yTicks: numbered(tickValues([0, high], 4)), here: t0,
  };
  const uppers = best.map(({upper}) => (Number.isFinite(upper) ? Math.min(upper, high) : upper));
  return chart(frame, (x, y) => [
    svgEl("path", {class: "bound upper", d: curvePath(uppers, x, y, true)}),
    svgEl("path", {class: "bound lower", d: curvePath(best.map(({lower}) => Math.max(lower, 0)), x, y, true)}),
    gamma > 0 ? svgEl("path", {class: "gamma", d: `M ${x(0)} ${y(gamma)} H ${x(last)}`}) : null,
  ]);
}

function bracketText({lower, upper}) {
  return t("bracket.live", {lower: num(lower, 4), upper: num(upper, 4)});
}

// A curve over the steps made so far, with a dot at the current one; logarithmic if it spans more than a thousandfold.
function stepCurve(name, values, at, css) {
  const whole = css === "errors";
  const low = values.reduce((least, value) => Math.min(least, value), Infinity);
  const high = values.reduce((most, value) => Math.max(most, value), 0) || 1;
  const log = !whole && low > 0 && high > 1000 * low;
  const shaped = log ? values.map(Math.log10) : values;
  const ys = log ? [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))] : [0, high];
  const powers = (power) => [power, Math.abs(power) < 4 ? num(10 ** power) : `10${superscript(power)}`];
  const last = Math.max(1, values.length - 1);
  const title = t(log ? "curves.lossLog" : name);
  const words = {name: title, count: values.length - 1, first: short(values[0]), last: short(values.at(-1)), now: short(values[at])};
  const frame = {
    label: t("curves.label", words), axis: t("curves.axis"), xs: [0, last], ys, xTicks: wholeTicks(0, last, 7), here: at,
    yTicks: log ? tickValues(ys, 4).filter(Number.isInteger).map(powers) : numbered(whole ? wholeTicks(0, high, 4) : tickValues(ys, 4)),
  };
  return el("figure", {class: "curve-figure"}, el("figcaption", {}, title), chart(frame, (x, y) => [
    svgEl("path", {class: `curve ${css}`, d: curvePath(shaped, x, y, whole)}),
    svgEl("circle", {class: `curve-dot ${css}`, cx: x(at), cy: y(shaped[at]), r: 4}),
  ]));
}

// The entries of a legend, {key of a text: its mark}; `values` are put into the texts.
function legendEntries(marks, values = {}) {
  return Object.entries(marks).filter(([, mark]) => mark).map(([key, mark]) => el("span", {class: "key"}, mark, t(key, values)));
}

function lineSwatch(...classes) {
  const lines = classes.map((css) => svgEl("line", {class: css, x1: 3, x2: 27, y1: 6, y2: 6}));
  return svgEl("svg", {viewBox: "0 0 30 12", class: "swatch", "aria-hidden": "true"}, ...lines);
}

function shapeSwatch(tag, attributes) {
  return svgEl("svg", {viewBox: "-9 -9 18 18", class: "swatch", "aria-hidden": "true"}, svgEl(tag, attributes));
}

function arrowSwatch() {
  return el("span", {class: "arrow-key", "aria-hidden": "true"}, "→");
}
