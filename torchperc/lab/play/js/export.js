// Out of the page and into it: a Python script, a link, the log as JSON, points as CSV, a picture as PNG.

// A script that makes the same run with torchperc.
function pythonScript({data, conventions, recorded}) {
  const two = data.classes === 2;
  const {maxEpochs, lr, tie, biasStep, order, seed, margin, start} = conventions;
  const labels = two ? data.labels.map(signOfClass) : data.labels;
  const net = two ? "tp.Perceptron(2, dtype=torch.float64)" : `tp.MulticlassPerceptron(2, ${data.classes}, dtype=torch.float64)`;
  return [
    ...pythonHead(t("python.comment"), data.points, labels),
    ...(recorded ? [`# ${t("python.recorded")}`] : []),
    `net = ${net}`,
    ...(isZeroStart(start) ? [] : pythonStart(start)),
    "trainer = tp.RuleTrainer(",
    `    max_epochs=${maxEpochs}, lr=${pythonNumber(lr)}, tie="${tie}", bias_step="${biasStep}",`,
    `    order="${order}", seed=${seed}, margin=${pythonNumber(margin)},`,
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

// A script of so many steps by autograd; `net` are the lines that make the net.
function pythonDescent(title, {points, signs}, settings, net) {
  const whole = settings.mode === "batch";
  const shuffled = settings.order === "shuffled";
  const epoch = shuffled ? "torch.randperm(len(X), generator=generator)" : "torch.arange(len(X))";
  const heads = {perceptron: `tp.PerceptronHead(tie="${settings.tie}")`, lms: "tp.LMSHead()", logistic: "tp.LogisticHead()"};
  const batch = whole ? "" : "[batch]";
  return [
    ...pythonHead(title, points, signs),
    ...net,
    `head = ${heads[settings.head]}`,
    `optimizer = torch.optim.SGD(net.parameters(), lr=${pythonNumber(settings.lr)})`,
    ...(shuffled && !whole ? [`generator = torch.Generator().manual_seed(${settings.seed})`] : []),
    ...(whole ? [] : ["batches = []"]),
    `for step in range(${settings.at}):`,
    ...(whole ? [] : [
      `    batches = batches or list(${epoch}.split(${batchLength(settings, points.length)}))`, "    batch = batches.pop(0)",
    ]),
    "    optimizer.zero_grad()",
    `    head.loss(net(X${batch}), y${batch}).backward()`,
    "    optimizer.step()",
    'print("mean loss", head.loss(net(X), y).item(), " wrong decisions", int((head.decide(net(X)) != y).sum()))',
    "print(net.state_dict())", "",
  ].join("\n");
}

function pythonHead(title, points, labels) {
  return [
    `"""${title}"""`, "", "import torch", "", "import torchperc as tp", "",
    `X = torch.tensor(${pythonRows(points)}, dtype=torch.float64)`, `y = torch.tensor(${pythonRows(labels, 20)})`, "",
  ];
}

function pythonStart({weight, bias}) {
  return [
    "with torch.no_grad():",
    `    net.weight.copy_(torch.tensor(${pythonValue(weight)}, dtype=torch.float64))`,
    `    net.bias.copy_(torch.tensor(${pythonValue(bias)}, dtype=torch.float64))`,
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

// Copy a text; where the page may not, `otherwise` is called, to show it for copying by hand.
async function copyText(text, done, otherwise) {
  try {
    await navigator.clipboard.writeText(text);
    notice(done);
  } catch {
    otherwise();
  }
}

function download(name, content, type) {
  const address = URL.createObjectURL(new Blob([content], {type}));
  el("a", {href: address, download: name}).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
  notice(t("saved", {name}));
}

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

// The cells of a line; those in quotes may have the separator, and quotes twice, in them.
function cellsOf(content, separator) {
  if (separator instanceof RegExp || !content.includes('"')) return content.split(separator).map((cell) => cell.trim());
  const cells = (content + separator).matchAll(new RegExp(`\\s*(?:"((?:[^"]|"")*)"|([^${separator}]*))\\s*${separator}`, "g"));
  return Array.from(cells, ([, quoted, plain]) => quoted?.replaceAll('""', '"') ?? plain.trim());
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

// Puts points out of text into the store; says whether that worked, and tells what is wrong.
function loadCsv(store, text, tell) {
  let parsed;
  try {
    parsed = parseCsv(text);
  } catch ({message}) {
    tell(t("csv.problem", {error: message}));
    return false;
  }
  const {columns, ...data} = parsed;
  store.set({data, preset: null, cursor: 0, secondCursor: 0});
  const said = [t("csv.loaded", {count: data.points.length, classes: data.classes})];
  const name = (k) => `“${columns[k] || k + 1}”`;
  if (columns.length > 3) {
    said.push(t("csv.columns", {count: columns.length, first: name(0), second: name(1), label: name(columns.length - 1)}));
  }
  if (!isExact(data, store.conventions)) said.push(t("status.roundedWhy"));
  notice(said.join(" "), columns.length > 3 ? "warning" : "info");
  return true;
}

const PICTURE_SCALE = 2;

// The planes of a view, side by side on the page's background.
async function savePicture({id, planes}) {
  const images = await Promise.all(planes.map(({svg}) => svgImage(svg)));
  const [gap, side] = [32, PICTURE_SCALE * Math.max(...planes.map(({size}) => size))];
  const canvas = el("canvas", {width: gap + images.length * (side + gap), height: side + 2 * gap});
  const context = canvas.getContext("2d");
  context.fillStyle = getComputedStyle(document.body).backgroundColor;
  context.fillRect(0, 0, canvas.width, canvas.height);
  images.forEach((image, k) => context.drawImage(image, gap + k * (side + gap), gap, side, side));
  canvas.toBlob((blob) => download(`torchperc-${id}.png`, blob, "image/png"), "image/png");
}

// An <svg> as an image, with the style sheet of the page in it.
async function svgImage(svg) {
  const copy = svg.cloneNode(true);
  const {width, height} = svg.getBoundingClientRect();
  const style = `font-family: ${getComputedStyle(document.body).fontFamily}`;
  const theme = document.documentElement.dataset.theme;
  setAttributes(copy, {xmlns: SVG, width: width * PICTURE_SCALE, height: height * PICTURE_SCALE, style, "data-theme": theme});
  copy.prepend(svgEl("style", {}, document.querySelector("style").textContent));
  const image = new Image();
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(new XMLSerializer().serializeToString(copy));
  await image.decode();
  return image;
}
