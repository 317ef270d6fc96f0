// Out of the page and into it: a Python script, a link, the log as JSON, points as CSV, a picture as PNG.

// --- Python -----------------------------------------------------------------------------------------------------------

// A script that makes the same run with torchperc.
function pythonScript(store) {
  const {data, conventions} = store;
  const two = data.classes === 2;
  const labels = two ? data.labels.map((label) => 2 * label - 1) : data.labels;
  const net = two ? "tp.Perceptron(2, dtype=torch.float64)" : `tp.MulticlassPerceptron(2, ${data.classes}, dtype=torch.float64)`;
  const start = isZeroStart(conventions.start) ? [] : [
    "with torch.no_grad():",
    `    net.weight.copy_(torch.tensor(${pythonValue(conventions.start.weight)}, dtype=torch.float64))`,
    `    net.bias.copy_(torch.tensor(${pythonValue(conventions.start.bias)}, dtype=torch.float64))`,
  ];
  return [
    `"""${t("python.comment")}"""`,
    "",
    ...(store.recorded ? [`# ${t("python.recorded")}`] : []),
    "import torch",
    "",
    "import torchperc as tp",
    "",
    `X = torch.tensor(${pythonRows(data.points)}, dtype=torch.float64)`,
    `y = torch.tensor(${pythonRows(labels, 20)})`,
    "",
    `net = ${net}`,
    ...start,
    "trainer = tp.RuleTrainer(",
    ...pythonArguments(conventions).map(([name, value]) => `    ${name}=${value},`),
    ")",
    "result = trainer.fit(net, X, y)",
    'print(f"{result.mistakes} mistakes in {result.epochs} epochs: {result.verdict.sentence}")',
    'print("w =", net.weight.tolist(), " b =", net.bias.tolist())',
    "",
    `proof = tp.theory.separability(X, y${two ? "" : `, num_classes=${data.classes}`})`,
    'print("separable:", proof.separable)',
    "",
  ].join("\n");
}

function pythonArguments({maxEpochs, lr, tie, biasStep, order, seed, margin}) {
  return [
    ["max_epochs", maxEpochs], ["lr", pythonNumber(lr)], ["tie", `"${tie}"`], ["bias_step", `"${biasStep}"`],
    ["order", `"${order}"`], ["seed", seed], ["margin", pythonNumber(margin)],
  ];
}

function pythonNumber(value) {
  return Number.isInteger(value) && Math.abs(value) < 1e15 ? `${value}.0` : String(value);
}

function pythonValue(value) {
  return Array.isArray(value) ? `[${value.map(pythonValue).join(", ")}]` : pythonNumber(value);
}

// A list over several lines if it is long.
function pythonRows(values, perLine = 5) {
  const texts = values.map((value) => (Array.isArray(value) ? pythonValue(value) : String(value)));
  if (texts.length <= perLine) return `[${texts.join(", ")}]`;
  const lines = [];
  for (let k = 0; k < texts.length; k += perLine) lines.push(`    ${texts.slice(k, k + perLine).join(", ")},`);
  return `[\n${lines.join("\n")}\n]`;
}

// --- clipboard and files ------------------------------------------------------------------------------------------------

// Copy a text; where the page may not, `otherwise` is called, to show it for copying by hand.
async function copyText(text, done, otherwise) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    if (!copyBySelection(text)) return otherwise();
  }
  notice(done);
}

function copyBySelection(text) {
  const field = el("textarea", {class: "hidden", "aria-hidden": "true"});
  field.value = text;
  (document.querySelector("dialog[open]") ?? document.body).append(field);
  field.select();
  let copied = false;
  try {
    copied = document.execCommand("copy");
  } catch { /* not allowed here */ }
  field.remove();
  return copied;
}

function linkTo(store) {
  return `${location.href.split("#")[0]}#${store.toFragment()}`;
}

function download(name, blob) {
  const address = URL.createObjectURL(blob);
  const link = el("a", {href: address, download: name});
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
  notice(t("saved", {name}));
}

function saveLog(store) {
  if (!store.log) return notice(ruleProblem(store), "warning");
  const text = JSON.stringify(logToJson(store.log));
  download("mistake-log.json", new Blob([text], {type: "application/json"}));
}

function savePoints(store) {
  download("points.csv", new Blob([csvText(store.data)], {type: "text/csv"}));
}

// --- CSV ----------------------------------------------------------------------------------------------------------------

function csvText(data) {
  const quoted = (value) => (/[",\n;]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
  const label = (k) => data.classNames?.[k] ?? (data.classes === 2 ? [-1, 1][k] : k);
  const names = (data.names ?? ["x1", "x2"]).map(quoted);
  const rows = data.points.map((point, i) => [...point, quoted(label(data.labels[i]))].join(","));
  return [[...names, "label"].join(","), ...rows, ""].join("\n");
}

// Points and labels out of text: {points, labels, classes, names?, classNames?, columns}. Throws with a sentence.
function parseCsv(text) {
  const lines = text.replace(/^\uFEFF/, "").split(/\r\n|\r|\n/).map((content, k) => ({content: content.trim(), number: k + 1}))
    .filter(({content}) => content !== "" && !content.startsWith("#"));
  if (!lines.length) throw new Error(t("csv.empty"));
  const separator = [";", "\t", ","].find((sign) => lines[0].content.includes(sign)) ?? /\s+/;
  const rows = lines.map(({content, number}) => ({cells: cellsOf(content, separator), number}));
  const value = (cell) => (cell === "" ? NaN : Number(separator === ";" ? cell.replace(",", ".") : cell));
  const headed = rows[0].cells.slice(0, 2).every((cell) => Number.isNaN(value(cell)));
  const names = headed ? rows.shift().cells : null;
  if (!rows.length) throw new Error(t("csv.empty"));
  if (rows.length > MOST_POINTS) throw new Error(t("csv.many", {found: rows.length, most: MOST_POINTS}));
  const width = rows[0].cells.length;
  for (const {cells, number} of rows) checkRow(cells, number, width, value);
  const points = rows.map(({cells}) => cells.slice(0, 2).map(value));
  return {points, ...classesOf(rows.map(({cells}) => cells[width - 1])), ...(names ? {names: names.slice(0, 2)} : {}), columns: names ?? Array(width).fill("")};
}

function cellsOf(content, separator) {
  if (separator instanceof RegExp || !content.includes('"')) {
    return content.split(separator).map((cell) => cell.trim());
  }
  const cells = [""];
  let quoted = false;
  for (const sign of content.match(/""|[^]/gu)) {
    if (sign === '"') quoted = !quoted;
    else if (sign === separator && !quoted) cells.push("");
    else if (sign !== '""' || quoted) cells[cells.length - 1] += sign[0] === '"' ? '"' : sign;
  }
  return cells.map((cell) => cell.trim());
}

function checkRow(cells, line, width, value) {
  if (cells.length < 3) throw new Error(t("csv.few", {line, found: cells.length}));
  if (cells.length !== width) throw new Error(t("csv.width", {line, found: cells.length, wanted: width}));
  const wrong = cells.slice(0, 2).find((cell) => !Number.isFinite(value(cell)));
  if (wrong !== undefined) throw new Error(t("csv.number", {line, found: wrong}));
}

// Labels of any kind as classes: in the order of their numbers, or of the alphabet.
function classesOf(labels) {
  const numeric = labels.every((label) => label !== "" && Number.isFinite(Number(label)));
  const key = (label) => (numeric ? Number(label) : label);
  const found = [...new Set(labels.map(key))].sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));
  if (found.length < 2) throw new Error(t("csv.oneClass"));
  if (found.length > MOST_CLASSES) throw new Error(t("csv.classes", {found: found.length}));
  const usual = found.length === 2 ? [-1, 1] : found.map((_, k) => k);
  const named = sameJson(found, usual) ? {} : {classNames: found.map(String)};
  return {labels: labels.map((label) => found.indexOf(key(label))), classes: found.length, ...named};
}

function loadCsv(store, text) {
  const {columns, ...data} = parseCsv(text);
  store.set({data, preset: null, cursor: 0, secondCursor: 0});
  const said = [t("csv.loaded", {count: data.points.length, classes: data.classes})];
  const name = (k) => `“${columns[k] || k + 1}”`;
  if (columns.length > 3) {
    said.push(t("csv.columns", {count: columns.length, first: name(0), second: name(1), label: name(columns.length - 1)}));
  }
  if (!onGrid(data)) said.push(t("status.roundedWhy"));
  notice(said.join(" "), columns.length > 3 ? "warning" : "info");
}

// --- PNG ----------------------------------------------------------------------------------------------------------------

const PICTURE_SCALE = 2;
const STYLED = [
  "fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "stroke-linecap", "opacity",
  "font-family", "font-size", "font-weight", "font-style", "text-anchor", "paint-order", "display", "visibility", "image-rendering",
];

// The pictures of a view (<svg> or <canvas>), side by side on the page's background.
async function savePicture(view) {
  const found = view.picture ? [view.picture()].flat().filter(Boolean) : [];
  if (!found.length) return;
  const images = await Promise.all(found.map((element) => (element instanceof SVGElement ? svgImage(element) : element)));
  const sizes = found.map((element) => element.getBoundingClientRect());
  const gap = 16;
  const canvas = el("canvas", {
    width: PICTURE_SCALE * (sizes.reduce((sum, {width}) => sum + width, 0) + gap * (found.length + 1)),
    height: PICTURE_SCALE * (Math.max(...sizes.map(({height}) => height)) + 2 * gap),
  });
  const context = canvas.getContext("2d");
  context.scale(PICTURE_SCALE, PICTURE_SCALE);
  context.fillStyle = getComputedStyle(document.body).backgroundColor;
  context.fillRect(0, 0, canvas.width, canvas.height);
  let left = gap;
  images.forEach((image, k) => {
    context.drawImage(image, left, gap, sizes[k].width, sizes[k].height);
    left += sizes[k].width + gap;
  });
  const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
  download(`torchperc-${view.id}.png`, blob);
}

// An <svg> as an image, with the styles of the page written into it.
async function svgImage(svg) {
  const copy = svg.cloneNode(true);
  const originals = [svg, ...svg.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((element, k) => {
    const style = getComputedStyle(originals[k]);
    element.setAttribute("style", STYLED.map((name) => `${name}: ${style.getPropertyValue(name)}`).join("; "));
  });
  const {width, height} = svg.getBoundingClientRect();
  copy.setAttribute("xmlns", SVG);
  copy.setAttribute("width", width * PICTURE_SCALE);
  copy.setAttribute("height", height * PICTURE_SCALE);
  const image = new Image();
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(new XMLSerializer().serializeToString(copy));
  await image.decode();
  return image;
}
