// Starts everything: header, tools, tabs, dialogs, keys; makes the store, mounts the views and tells them of changes.

const page = {store: null, mounted: new Set(), panels: {}, tools: null};

function startPage() {
  const fragment = readFragment(location.hash);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const store = new Store(startState(fragment));
  page.store = store;
  document.documentElement.dataset.theme = (fragment.theme ?? (dark.matches ? "dark" : "light")) === "dark" ? "dark" : "light";
  if (CONTENT.recorded && !fragment.state) { // a log that Python recorded is shown as it is, until something is edited
    const log = logFromJson(CONTENT.recorded);
    log.data = {...log.data, ...picked(CONTENT.start.data ?? {}, ["names", "classNames"])};
    store.recording = log;
    store.state = {...store.state, data: log.data, conventions: {...log.conventions, start: log.start}, recorded: true, preset: null};
  }
  buildPage(store);
  store.on((_, changes) => updatePage(changes));
  document.addEventListener("keydown", (event) => { if (useKey(event, store)) event.preventDefault(); });
  listenToDrops(store);
  listenToHost(store);
  addEventListener("hashchange", () => location.reload());
  dark.addEventListener("change", ({matches}) => chooseTheme(matches ? "dark" : "light"));
  if (fragment.error) notice(t("problem.link", {error: fragment.error}), "warning");
}

// What a link says, else what Python says, else the first example.
function startState(fragment) {
  if (fragment.state) return fragment.state;
  const {start} = CONTENT;
  const view = fragment.view ?? start.view;
  const own = start.data && !fragment.preset ? {data: start.data} : presetState(presetOf(fragment.preset ?? start.preset) ?? CONTENT.presets[0]);
  const conventions = {...defaultConventions(own.data.classes), ...start.conventions};
  return {
    ...own, overlays: {...start.overlays}, view: VIEWS.some(({id}) => id === view) ? view : "rule",
    ...(start.conventions && !fragment.preset ? {conventions} : {}),
  };
}

function openView() {
  return VIEWS.find(({id}) => id === page.store.view);
}

function buildPage(store) {
  page.tools = toolBar(store);
  page.panels = Object.fromEntries(VIEWS.map(({id}) => [id, el("div", {
    class: "view", role: "tabpanel", id: `view-${id}`, "aria-labelledby": `tab-${id}`, hidden: true,
  })]));
  const {dataset} = document.documentElement;
  const theme = iconButton("theme", "◐", t("theme"), () => chooseTheme(dataset.theme === "dark" ? "light" : "dark"));
  const titles = el("div", {}, el("h1", {}, CONTENT.title), el("p", {class: "subtitle"}, t("subtitle")));
  document.getElementById("app").append(
    button("skip", t("skip"), () => document.querySelector(".view:not([hidden]) :is(.transport button, #proof-text)").focus(), {class: "skip"}),
    el("header", {}, titles, div("group", theme, iconButton("help", "?", t("help"), openHelp))), tabList(store), page.tools.element,
    el("main", {}, ...Object.values(page.panels)),
    el("p", {id: "notice", class: "notice", role: "status"}),
    el("p", {id: "live", class: "hidden", "aria-live": "polite"}),
  );
  updatePage(new Set(["view", "data"]));
}

function chooseTheme(name) {
  document.documentElement.dataset.theme = name;
  updatePage(new Set(["theme"]));
}

function tabList(store) {
  const tabs = VIEWS.map(({id}) => button(`tab-${id}`, t(`view.${id}`), () => store.set({view: id}), {
    role: "tab", "aria-controls": `view-${id}`,
  }));
  const walk = (event) => {
    const by = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    const next = (VIEWS.indexOf(openView()) + by + VIEWS.length) % VIEWS.length;
    tabs[next].click();
    tabs[next].focus();
  };
  return el("nav", {role: "tablist", class: "tabs", "aria-label": t("views"), onkeydown: walk}, ...tabs);
}

function updatePage(changes) {
  const {store} = page;
  if (changes.has("view")) player.stop();
  for (const view of VIEWS) {
    const open = view.id === store.view;
    page.panels[view.id].hidden = !open;
    const tab = document.getElementById(`tab-${view.id}`);
    setAttributes(tab, {"aria-selected": String(open), tabindex: open ? 0 : -1});
    if (!open) continue;
    if (changes.has("view")) tab.scrollIntoView({block: "nearest", inline: "nearest"});
    if (!page.mounted.has(view.id)) {
      view.mount(page.panels[view.id], store);
      page.mounted.add(view.id);
    }
    view.update(store, changes);
  }
  page.tools.update();
}

function toolBar(store) {
  const classes = el("div", {class: "segments", role: "group", "aria-label": t("tools.class")});
  const modes = ["add", "delete"].map((mode) => button(`mode-${mode}`, t(`tools.${mode}`), () => store.set({mode})));
  const groups = Object.entries(Object.groupBy(CONTENT.presets, ({group}) => group));
  const examples = groups.map(([group, presets]) => ({group, options: presets.map(({id, name}) => [id, name])}));
  const preset = selectField("preset", t("tools.preset"), [["", t("tools.own")], ...examples], (id) => choosePreset(store, id));
  const undo = iconButton("undo", "↶", t("tools.undo"), () => store.undo());
  const redo = iconButton("redo", "↷", t("tools.redo"), () => store.redo());
  const more = iconButton("more-classes", t("tools.more"), t("tools.moreClasses"), () => changeClasses(store, 1));
  const fewer = iconButton("fewer-classes", t("tools.fewer"), t("tools.fewerClasses"), () => changeClasses(store, -1));
  const about = el("p", {class: "about", id: "about"});
  const field = (key, part) => div("field", el("span", {}, t(key)), part);
  const clear = button("clear", t("tools.clear"), () => {
    player.stop();
    store.set({data: {...store.data, points: [], labels: []}, preset: null, cursor: 0, secondCursor: 0});
  });
  const csv = button("csv", t("tools.csv"), () => openCsv(store), {title: t("tools.csvWhy")});
  const python = button("copy-python", t("tools.copyPython"), () => givePython(store));
  const link = CONTENT.widget ? null : button("copy-link", t("tools.copyLink"), () => {
    const address = `${location.href.split("#")[0]}#${store.toFragment()}`;
    copyText(address, t("copied.link"), () => textDialog("link", t("link.title"), address));
  });
  preset.field.classList.add("examples");
  const row = div(
    "tool-row", preset.field, field("tools.class", div("group", classes, fewer, more)),
    field("tools.mode", el("div", {class: "segments", role: "group", "aria-label": t("tools.mode")}, ...modes)),
    div("group", undo, redo, clear, csv),
    div("group end", python, link, saveMenu(store)),
  );
  const element = el("section", {class: "tools", "aria-label": t("tools.label")}, row, about);
  const update = () => {
    showClasses(classes, store);
    for (const each of modes) each.setAttribute("aria-pressed", String(each.id === `mode-${store.mode}`));
    document.documentElement.dataset.mode = store.mode;
    show(preset.input, store.preset ?? "");
    undo.disabled = !store.past.length;
    redo.disabled = !store.future.length;
    more.disabled = store.data.classes >= MOST_CLASSES;
    fewer.disabled = store.data.classes <= 2;
    about.replaceChildren(...aboutParts(store));
  };
  return {element, update};
}

function showClasses(place, store) {
  const {data, pen} = store;
  const shown = JSON.stringify([data.classes, data.classNames]);
  if (place.dataset.shown !== shown) {
    place.dataset.shown = shown;
    place.replaceChildren(...everyNumber(data.classes).map((k) => {
      const words = t("tools.classNumber", {label: className(data, k), key: k + 1});
      const choice = button(`class-${k}`, markerIcon(k), () => store.set({pen: k}), {"aria-label": words});
      choice.append(className(data, k));
      return choice;
    }));
  }
  [...place.children].forEach((child, k) => child.setAttribute("aria-pressed", String(k === pen)));
}

// Conventions that came with the last example, and were not changed since, go with it.
function choosePreset(store, id) {
  if (!id) return;
  player.stop();
  const last = presetOf(store.preset);
  const own = last?.conventions ? settled(last.conventions, last.classes) : null;
  store.set({...(sameJson(own, store.conventions) ? {conventions: defaultConventions()} : {}), ...presetState(presetOf(id))});
}

function changeClasses(store, by) {
  const {classNames, ...data} = store.data;
  const classes = data.classes + by;
  const kept = (_, k) => data.labels[k] < classes;
  store.set({
    data: {...data, classes, points: data.points.filter(kept), labels: data.labels.filter(kept)},
    preset: null, ...(by > 0 ? {pen: classes - 1} : {}),
  });
}

// How many points there are, whether sums are exact, what the example is about.
function aboutParts(store) {
  const {data, recorded} = store;
  const count = data.points.length;
  const chip = (key, css) => el("span", {class: `chip ${css}`, title: t(`${key}Why`), "data-test": css}, t(key));
  const sums = isExact(data, store.conventions) ? chip("status.exact", "exact") : chip("status.rounded", "not-exact");
  const remark = recorded ? CONTENT.recorded.description : presetOf(store.preset)?.remark ?? data.description;
  return [
    ...(recorded ? [chip("status.recorded", "recorded")] : []),
    el("span", {class: "chip"}, t(count === 1 ? "status.points.one" : "status.points.many", {count})),
    ...(openView().rounds ? [] : [sums]),
    el("span", {}, remark ?? ""),
    ...(frameOf(data).even ? [] : [el("span", {}, t("status.uneven"))]),
  ];
}

// Whether points lie on the grid of 1/64, and from other weights than zero all numbers on one of 2⁻²⁰: then sums are exact.
function isExact({points}, {lr, margin, start}) {
  const on = (values, grid) => values.every((value) => Number.isInteger(value * grid));
  return on(points.flat(), 64) && (isZeroStart(start) || on([lr, margin, ...start.bias, ...start.weight.flat()], 2 ** 20));
}

function saveMenu(store) {
  const works = {
    log: () => (store.log ? download("mistake-log.json", JSON.stringify(logToJson(store.log)), "application/json") : notice(ruleProblem(store), "warning")),
    points: () => download("points.csv", csvText(store.data), "text/csv"),
    picture: () => savePicture(openView()),
  };
  const entries = Object.entries(works).map(([name, work]) => button(`save-${name}`, t(`tools.save.${name}`), work));
  const summary = el("summary", {id: "save", "data-test": "save"}, t("tools.save"));
  const menu = el("details", {class: "menu"}, summary, div("menu-items", ...entries));
  menu.addEventListener("focusout", ({relatedTarget}) => { menu.open &&= menu.contains(relatedTarget); });
  menu.addEventListener("click", ({target}) => { menu.open &&= target.matches("summary"); });
  return menu;
}

function openDialog(id, title, ...children) {
  const close = iconButton(`${id}-close`, "✕", t("close"), () => dialog.close());
  const heading = div("heading", el("h2", {id: `${id}-title`}, title), close);
  const dialog = el("dialog", {id, "aria-labelledby": `${id}-title`}, heading, ...children);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  document.getElementById("app").append(dialog);
  dialog.showModal();
  return dialog;
}

function textDialog(id, title, text) {
  const field = el("textarea", {id: `${id}-text`, readonly: true, rows: 18, "aria-label": title, spellcheck: "false"});
  field.value = text;
  openDialog(id, title, field, el("p", {class: "said remark", role: "status"}));
  field.focus();
  field.setSelectionRange(0, 0);
  field.scrollTop = 0;
}

function givePython(store) {
  if (store.problem) return notice(t(store.problem), "warning");
  const text = openView().python?.(store) ?? pythonScript(store);
  textDialog("python", t("python.title"), text);
  copyText(text, t("copied.python"), () => notice(t("copied.not"), "warning"));
}

function openCsv(store) {
  const placeholder = "x1,x2,label\n0,0,-1\n1,1,1";
  const field = el("textarea", {id: "csv-text", rows: 12, "aria-label": t("csv.paste"), placeholder, spellcheck: "false"});
  const problem = el("p", {class: "problem", role: "alert"});
  const use = (text) => {
    if (loadCsv(store, text, (words) => { problem.textContent = words; })) dialog.close();
  };
  const file = el("input", {
    type: "file", class: "hidden", id: "csv-file", "data-test": "csv-file", accept: ".csv,.txt,.tsv,text/*",
    onchange: async () => use(await file.files[0].text()),
  });
  const take = button("csv-use", t("csv.use"), () => use(field.value), {class: "primary"});
  const buttons = div("group", take, el("label", {class: "file"}, t("csv.file"), file));
  const dialog = openDialog("csv-dialog", t("csv.title"), el("p", {}, t("csv.text")), field, problem, buttons);
  field.focus();
}

function openHelp() {
  const keys = [
    ["step", "→", "←"], ["play", t("help.space")], ["ends", "Home", "End"], ["class", "1", "2", "3", "4"], ["add", "A"], ["tab", "Tab"],
    ["move", "←", "↑", "→", "↓"], ["snap", "Shift"], ["change", "C"], ["remove", "Del"], ["undo", "Ctrl+Z", "Ctrl+Y"], ["help", "?"],
  ];
  const rows = keys.map(([key, ...names]) => [el("span", {}, ...names.map((name) => el("kbd", {}, name))), t(`help.${key}`)]);
  const about = remark(t("help.about", {version: CONTENT.version}));
  openDialog("help-dialog", t("help.title"), definitions("keys", rows), el("p", {}, t("help.touch")), about);
}

// Whether the page has used a key.
function useKey(event, store) {
  if (event.defaultPrevented || document.querySelector("dialog[open]")) return false;
  const {target, shiftKey} = event;
  const key = event.key.toLowerCase();
  const typing = target.matches?.("input, select, textarea");
  if (event.ctrlKey || event.metaKey) {
    if (typing && !["range", "checkbox"].includes(target.type)) return false;
    if (key === "z" && !shiftKey) store.undo();
    else if (key === "y" || key === "z") store.redo();
    else return false;
  } else if (typing || event.altKey || (target.matches?.("button, summary, a") && (key === " " || key === "enter"))) return false;
  else if (key === "?") openHelp();
  else if (key >= "1" && key <= String(store.data.classes)) store.set({pen: Number(key) - 1});
  else if (key === "a") addInTheMiddle(store);
  else return openView().transport?.keys(event) ?? false;
  return true;
}

// For those who have no mouse: a point in the middle, which has the focus and can be moved.
function addInTheMiddle(store) {
  const frame = frameOf(store.data);
  addPoint(store, snapped([frame.x, frame.y].map(([lo, hi]) => (lo + hi) / 2), frame));
  const points = document.querySelectorAll(".view:not([hidden]) svg.plane .point[tabindex]");
  points[store.data.points.length - 1]?.focus();
}

function listenToDrops(store) {
  const load = (text) => loadCsv(store, text, (words) => notice(words, "warning"));
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", async (event) => {
    event.preventDefault();
    const {files} = event.dataTransfer;
    load(files.length ? await files[0].text() : event.dataTransfer.getData("text"));
  });
  document.addEventListener("paste", (event) => {
    if (event.target.matches?.("input, textarea")) return;
    const text = event.clipboardData.getData("text");
    if (text.trim().includes("\n")) load(text);
  });
}

// In a notebook: edited points go to the parent window, and points from there are shown.
function listenToHost(store) {
  if (!CONTENT.widget || window.parent === window) return;
  store.on((_, changes) => {
    const {points, labels} = store.data;
    if (changes.has("data") && !store.dragging) window.parent.postMessage({type: "torchperc-play", points, labels}, "*");
  });
  addEventListener("message", ({source, data: message}) => {
    if (source !== window.parent || message?.type !== "torchperc-play-set") return;
    const {points, labels} = message;
    if (sameJson([points, labels], [store.data.points, store.data.labels])) return;
    const classes = labels.reduce((most, label) => Math.max(most, label + 1), 2);
    store.set({data: checkData({points, labels, classes}), preset: null, cursor: 0, secondCursor: 0});
  });
}

startPage();
