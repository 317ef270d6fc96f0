// Small helpers that every view uses: texts, elements, controls with labels, numbers as text, notices.

// A text of texts.json by its key, with {name} replaced by a value; Python puts TEXTS in front of the scripts.
function t(key, values = {}) {
  return (TEXTS[key] ?? key).replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// An HTML element: el("button", {class: "wide", onclick: act}, "text", child, ...).
function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svgEl(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function button(id, text, act, attributes = {}) {
  return el("button", {type: "button", id, "data-test": id, onclick: act, ...attributes}, text);
}

// A button with a symbol on it, and words for those who hear it or hover over it.
function iconButton(id, symbol, words, act, attributes = {}) {
  return button(id, symbol, act, {class: "icon", "aria-label": words, title: words, ...attributes});
}

// A labelled list to choose from; `options` are [value, text] pairs or {group, options}.
function selectField(id, label, options, act) {
  const choice = ([value, text]) => el("option", {value}, text);
  const entries = options.map((entry) => (
    Array.isArray(entry) ? choice(entry) : el("optgroup", {label: entry.group}, ...entry.options.map(choice))
  ));
  const select = el("select", {id, "data-test": id, onchange: () => act(select.value)}, ...entries);
  return {field: el("label", {class: "field", for: id}, el("span", {}, label), select), input: select};
}

// A labelled number; what is no number, or outside its limits, is told and not used.
function numberField(id, label, {min = -Infinity, above = -Infinity, max = Infinity, integer = false, step = "any"}, act) {
  const input = el("input", {id, "data-test": id, type: "number", step, inputmode: "decimal"});
  const read = () => {
    const value = Number(input.value);
    const fine = input.value.trim() !== "" && Number.isFinite(value) && value >= min && value > above && value <= max
      && (!integer || Number.isInteger(value));
    input.setAttribute("aria-invalid", String(!fine));
    if (fine) act(value);
    else notice(t(value > max ? "problem.most" : integer ? "problem.integer" : "problem.number", {label, found: input.value || "∅", max}), "warning");
  };
  input.addEventListener("change", read);
  return {field: el("label", {class: "field", for: id}, el("span", {}, label), input), input};
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

// A number as it is read: a real minus sign, six digits at most.
function num(value, digits = 6) {
  if (value === Infinity) return "∞";
  if (value === -Infinity) return "−∞";
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const rounded = Number(value.toPrecision(digits));
  return (Object.is(rounded, -0) ? "0" : String(rounded)).replace("-", "−").replace("e+", "e");
}

// As a factor: negative numbers in brackets.
function factor(value) {
  return value < 0 ? `(${num(value)})` : num(value);
}

function vector(values, digits = 6) {
  return `(${values.map((value) => num(value, digits)).join(", ")})`;
}

function weightsText(weight, bias) {
  return weight.length === 1
    ? `w = ${vector(weight[0])}, b = ${num(bias[0])}`
    : weight.map((row, k) => `w${subscript(k)} = ${vector(row)}, b${subscript(k)} = ${num(bias[k])}`).join("; ");
}

function subscript(number) {
  return String(number).replace(/\d/g, (digit) => "₀₁₂₃₄₅₆₇₈₉"[digit]);
}

// A class as it is written: −1 and +1 for two, 0 … K−1 for more, or the names that came with the data.
function className(data, label) {
  if (data.classNames?.[label] !== undefined) return String(data.classNames[label]);
  return data.classes === 2 ? ["−1", "+1"][label] : String(label);
}

function countText(key, count) {
  return t(`${key}.${count === 1 ? "one" : "many"}`, {count});
}

// A sentence at the foot of the page that goes away by itself; read out, too.
function notice(text, kind = "info") {
  const place = document.getElementById("notice");
  if (!place) return;
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
  if (place && place.textContent !== text) place.textContent = text;
}
