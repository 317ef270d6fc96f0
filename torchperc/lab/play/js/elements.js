// Small helpers that every view uses: texts, elements, controls with labels, numbers as text, notices.

// A text of texts.json by its key, with {name} replaced by a value; Python puts TEXTS in front of the scripts.
function t(key, values = {}) {
  return (TEXTS[key] ?? key).replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

const SVG = "http://www.w3.org/2000/svg";

function setAttributes(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  return element;
}

function withChildren(element, children) {
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// An HTML element: el("button", {class: "wide", onclick: act}, "text", child, ...).
function el(tag, attributes, ...children) {
  return withChildren(setAttributes(document.createElement(tag), attributes), children);
}

function div(css, ...children) {
  return el("div", {class: css}, ...children);
}

// A part of a view with its heading, if it has one.
function card(heading, ...children) {
  return el("section", {class: "card"}, heading ? el("h2", {}, t(heading)) : null, ...children);
}

function remark(text, id = null) {
  return el("p", {class: "remark", id, "data-test": id}, text);
}

function svgEl(tag, attributes, ...children) {
  return withChildren(setAttributes(document.createElementNS(SVG, tag), attributes), children);
}

function button(id, text, act, attributes = {}) {
  return el("button", {type: "button", id, "data-test": id, onclick: act, ...attributes}, text);
}

// A button with a symbol on it, and words for those who hear it or hover over it.
function iconButton(id, symbol, words, act, attributes = {}) {
  return button(id, symbol, act, {class: "icon", "aria-label": words, title: words, ...attributes});
}

function labelled(label, input) {
  return {field: el("label", {class: "field", for: input.id}, el("span", {}, label), input), input};
}

// A labelled list to choose from; `options` are [value, text] pairs or {group, options}.
function selectField(id, label, options, act) {
  const choice = ([value, text]) => el("option", {value}, text);
  const entries = options.map((entry) => (
    Array.isArray(entry) ? choice(entry) : el("optgroup", {label: entry.group}, ...entry.options.map(choice))
  ));
  const select = el("select", {id, "data-test": id, onchange: () => act(select.value)}, ...entries);
  return labelled(label, select);
}

// A labelled number; what is no number, or outside its limits {min, above, max, integer}, is told and not used.
function numberField(id, label, limits, act) {
  const read = () => {
    const value = Number(input.value);
    const fine = input.value.trim() !== "" && allows(limits, value);
    const problem = value > limits.max ? "problem.most" : limits.integer ? "problem.integer" : "problem.number";
    input.setAttribute("aria-invalid", String(!fine));
    if (fine) act(value);
    else notice(t(problem, {label, found: input.value || "∅", max: limits.max}), "warning");
  };
  const step = limits.integer ? 1 : "any";
  const input = el("input", {id, "data-test": id, type: "number", step, inputmode: "decimal", onchange: read});
  return labelled(label, input);
}

// A field of a setting: a list of values, whose texts are family.name.value, or a number within limits.
function settingField(id, family, name, kind, change) {
  const label = t(`${family}.${name}`);
  if (!Array.isArray(kind)) return numberField(id, label, kind, (value) => change({[name]: value}));
  const options = kind.map((value) => [value, TEXTS[`${family}.${name}.${value}`] ?? value]);
  return selectField(id, label, options, (chosen) => change({[name]: kind.find((value) => String(value) === chosen)}));
}

function checkField(id, label, act) {
  const input = el("input", {id, "data-test": id, type: "checkbox", onchange: () => act(input.checked)});
  return {field: el("label", {class: "check", for: id}, input, el("span", {}, label)), input};
}

// Write a value into a field unless somebody is typing there.
function show(input, value) {
  if (input.type === "checkbox") input.checked = value;
  else if (document.activeElement !== input || input.tagName === "SELECT") input.value = String(value);
}

function strong(text) {
  return el("strong", {}, text);
}

// Names and what belongs to them, a line each.
function definitions(css, rows) {
  return el("dl", {class: css}, ...rows.flatMap(([name, ...lines]) => [
    el("dt", {}, name), el("dd", {}, ...lines.map((line) => el("div", {}, line))),
  ]));
}

// A table in a frame of its own; `rows` are lists of cells, or {attributes, cells}.
function plainTable(id, label, heads, rows) {
  const body = rows.map((row) => {
    const [first, ...rest] = row.cells ?? row;
    return el("tr", row.attributes ?? {}, el("th", {scope: "row"}, first), ...rest.map((cell) => el("td", {}, cell)));
  });
  const head = el("thead", {}, el("tr", {}, ...heads.map((name) => el("th", {scope: "col"}, name))));
  const frame = {class: "table-frame", tabindex: 0, role: "region", "aria-label": label};
  return el("div", frame, el("table", {id, "data-test": id}, head, el("tbody", {}, ...body)));
}

// A number as it is read: a real minus sign, six digits at most.
function num(value, digits = 6) {
  const rounded = Number.isFinite(value) ? Number(value.toPrecision(digits)) : value;
  return String(rounded).replace("Infinity", "∞").replace("-", "−").replace("e+", "e");
}

// A number of few digits; large and tiny ones with a power of ten.
function short(value, digits = 4) {
  if (value === 0 || (Math.abs(value) >= 1e-4 && Math.abs(value) < 1e6)) return num(value, digits);
  const [digit, power] = value.toExponential(digits - 1).split("e");
  return `${num(Number(digit))}·10${superscript(Number(power))}`;
}

// As a factor: negative numbers in brackets.
function factor(value, text = num) {
  return value < 0 ? `(${text(value)})` : text(value);
}

function signed(value) {
  return value > 0 ? `+${num(value)}` : num(value);
}

function vector(values, text = num) {
  return `(${values.map((value) => text(value)).join(", ")})`;
}

function weightsText({weight, bias}) {
  const name = (letter, k) => letter + (weight.length === 1 ? "" : subscript(k));
  return weight.map((row, k) => `${name("w", k)} = ${vector(row)}, ${name("b", k)} = ${num(bias[k])}`).join("; ");
}

function subscript(number) {
  return String(number).replace(/\d/g, (digit) => "₀₁₂₃₄₅₆₇₈₉"[digit]);
}

function superscript(number) {
  return String(number).replace(/[-\d]/g, (sign) => (sign === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[sign]));
}

// A class as it is written: −1 and +1 for two, 0 … K−1 for more, or the names that came with the data.
function className(data, label) {
  return String(data.classNames?.[label] ?? (data.classes === 2 ? ["−1", "+1"][label] : label));
}

function classBadge(data, label) {
  return el("span", {class: `badge class-${label}`}, markerIcon(label), className(data, label));
}

function markerIcon(label) {
  return svgEl(
    "svg", {class: `marker class-${label}`, viewBox: "-10 -10 20 20", "aria-hidden": "true"},
    svgEl("path", {class: "mark", d: markerPath(label, 7.5)}),
  );
}

// A sentence at the foot of the page that goes away by itself; read out, too.
function notice(text, kind = "info") {
  const place = document.getElementById("notice");
  place.textContent = text;
  place.className = `notice ${kind} shown`;
  const said = document.querySelector("dialog[open] .said"); // what is below an open dialog is hard to read
  if (said) said.textContent = text;
  clearTimeout(notice.timer);
  notice.timer = setTimeout(() => place.classList.remove("shown"), kind === "warning" ? 9000 : 5000);
}

// Read out by screen readers, not seen.
function announce(text) {
  const place = document.getElementById("live");
  if (place.textContent !== text) place.textContent = text;
}
