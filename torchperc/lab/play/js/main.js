// Starts everything: header, tools, tabs, dialogs, keys; makes the store, mounts the views and tells them of changes.
// (What a view is, is written at the top of store.js.)

const page = {store: null, mounted: new Set(), panels: {}, tools: null};

function startPage() {
  const fragment = readFragment(location.hash);
  chooseTheme(fragment.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
  page.store = new Store(startState(fragment));
  if (page.store.recorded === false && CONTENT.recorded && !fragment.state) startRecorded(page.store);
  buildPage();
  page.store.on((store, changes) => updatePage(changes));
  listenToKeys(page.store);
  listenToDrops(page.store);
  listenToHost(page.store);
  addEventListener("hashchange", () => openFragment(page.store));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => {
    chooseTheme(event.matches ? "dark" : "light");
    updatePage(new Set(["theme"]));
  });
  if (fragment.error) notice(t("problem.link", {error: fragment.error}), "warning");
}

// What a link says, else what Python says, else the first example.
function startState(fragment) {
  if (fragment.state) return fragment.state;
  const {start} = CONTENT;
  const preset = presetOf(fragment.preset ?? start.preset) ?? CONTENT.presets[0];
  const view = fragment.view ?? start.view ?? "rule";
  const overlays = {averaged: false, voted: false, pocket: false, ...start.overlays};
  const chosen = VIEWS.some(({id}) => id === view) ? {view, overlays} : {overlays};
  if (start.data && !fragment.preset) {
    return {...chosen, data: start.data, conventions: {...defaultConventions(start.data.classes), ...start.conventions}};
  }
  if (!preset) return chosen;
  const given = start.conventions && !fragment.preset ? {conventions: {...defaultConventions(preset.classes), ...start.conventions}} : {};
  return {...chosen, ...presetState(preset), ...given};
}

function presetState(preset) {
  const conventions = preset.conventions ? {conventions: {...defaultConventions(preset.classes), ...preset.conventions}} : {};
  return {data: dataOf(preset), preset: preset.id, ...conventions};
}

// A log that Python recorded is shown as it is, until something is edited.
function startRecorded(store) {
  const log = logFromJson(CONTENT.recorded);
  const {names, classNames} = CONTENT.start.data ?? {};
  log.data = {...log.data, ...(names ? {names} : {}), ...(classNames ? {classNames} : {})};
  store.recording = log;
  store.state = {...store.state, data: log.data, conventions: {...log.conventions, start: log.start}, recorded: true, preset: null};
}

function openFragment(store) {
  const fragment = readFragment(location.hash);
  if (fragment.error) return notice(t("problem.link", {error: fragment.error}), "warning");
  if (fragment.state) store.set(fragment.state);
  else if (presetOf(fragment.preset)) store.set({cursor: 0, secondCursor: 0, ...presetState(presetOf(fragment.preset))});
  if (VIEWS.some(({id}) => id === fragment.view)) store.set({view: fragment.view});
}

// --- the page -----------------------------------------------------------------------------------------------------------

function buildPage() {
  const {store} = page;
  const app = document.getElementById("app");
  page.mounted.clear();
  page.tools = toolBar(store);
  page.panels = Object.fromEntries(VIEWS.map(({id}) => [id, el("div", {
    class: "view", role: "tabpanel", id: `view-${id}`, "aria-labelledby": `tab-${id}`, hidden: true,
  })]));
  app.replaceChildren(
    el("a", {class: "skip", href: "#explanation", onclick: skipToExplanation}, t("skip")),
    pageHeader(), tabList(store), page.tools.element,
    el("main", {}, ...Object.values(page.panels)),
    el("p", {id: "notice", class: "notice", role: "status"}),
    el("p", {id: "live", class: "hidden", "aria-live": "polite"}),
  );
  updatePage(new Set(["view", "data"]));
}

function skipToExplanation(event) {
  event.preventDefault();
  const place = document.querySelector(".view:not([hidden]) :is(.transport, #proof-text)");
  (place.querySelector("button") ?? place).focus();
}

function pageHeader() {
  return el(
    "header", {},
    el("div", {}, el("h1", {}, CONTENT.title), el("p", {class: "subtitle"}, t("subtitle"))),
    el(
      "div", {class: "header-tools"},
      iconButton("theme", "◐", t("theme"), () => {
        chooseTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
        updatePage(new Set(["theme"]));
      }),
      iconButton("help", "?", t("help"), openHelp),
    ),
  );
}

function chooseTheme(name) {
  document.documentElement.dataset.theme = name === "dark" ? "dark" : "light";
}

function tabList(store) {
  const open = (id) => store.set({view: id});
  const tabs = VIEWS.map(({id}) => el("button", {
    type: "button", role: "tab", id: `tab-${id}`, "data-test": `tab-${id}`, "aria-controls": `view-${id}`, onclick: () => open(id),
  }, t(`view.${id}`)));
  const walk = (event) => {
    const by = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    const next = (VIEWS.findIndex(({id}) => id === store.view) + by + VIEWS.length) % VIEWS.length;
    open(VIEWS[next].id);
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
    tab.setAttribute("aria-selected", String(open));
    tab.tabIndex = open ? 0 : -1;
    if (!open) continue;
    if (changes.has("view")) keepSeen(tab);
    if (!page.mounted.has(view.id)) {
      view.mount(page.panels[view.id], store);
      page.mounted.add(view.id);
    }
    view.update(store, changes);
  }
  page.tools.update();
}

// Scroll the row of tabs, and nothing else, so that a tab is seen.
function keepSeen(tab) {
  const row = tab.parentElement;
  const [left, right] = [tab.offsetLeft - row.offsetLeft, tab.offsetLeft - row.offsetLeft + tab.offsetWidth];
  if (left < row.scrollLeft) row.scrollLeft = left;
  if (right > row.scrollLeft + row.clientWidth) row.scrollLeft = right - row.clientWidth;
}

// --- tools --------------------------------------------------------------------------------------------------------------

function toolBar(store) {
  const classes = el("div", {class: "segments", role: "group", "aria-label": t("tools.class")});
  const modes = el(
    "div", {class: "segments", role: "group", "aria-label": t("tools.mode")},
    ...["add", "delete"].map((mode) => segment(`mode-${mode}`, [t(`tools.${mode}`)], () => store.set({mode}))),
  );
  const preset = selectField("preset", t("tools.preset"), presetOptions(), (id) => choosePreset(store, id));
  const undo = iconButton("undo", "↶", t("tools.undo"), () => store.undo());
  const redo = iconButton("redo", "↷", t("tools.redo"), () => store.redo());
  const more = iconButton("more-classes", t("tools.more"), t("tools.moreClasses"), () => changeClasses(store, 1));
  const fewer = iconButton("fewer-classes", t("tools.fewer"), t("tools.fewerClasses"), () => changeClasses(store, -1));
  const about = el("p", {class: "about", id: "about"});
  const copyLink = button("copy-link", t("tools.copyLink"), () => giveLink(store));
  const element = el(
    "section", {class: "tools", "aria-label": t("tools.label")},
    el(
      "div", {class: "tool-row"},
      el("div", {class: "field examples"}, preset.field),
      el("div", {class: "field"}, el("span", {}, t("tools.class")), el("div", {class: "group"}, classes, fewer, more)),
      el("div", {class: "field"}, el("span", {}, t("tools.mode")), modes),
      el("div", {class: "group"}, undo, redo, button("clear", t("tools.clear"), () => clearPoints(store)), button("csv", t("tools.csv"), () => openCsv(store), {title: t("tools.csvWhy")})),
      el(
        "div", {class: "group end"},
        button("copy-python", t("tools.copyPython"), () => givePython(store)), CONTENT.widget ? null : copyLink, saveMenu(store),
      ),
    ),
    about,
  );
  const update = () => {
    const {data} = store;
    showClasses(classes, store);
    for (const mode of ["add", "delete"]) {
      modes.querySelector(`#mode-${mode}`).setAttribute("aria-pressed", String(store.mode === mode));
    }
    document.documentElement.dataset.mode = store.mode;
    show(preset.input, store.preset ?? "");
    undo.disabled = !store.past.length;
    redo.disabled = !store.future.length;
    more.disabled = data.classes >= MOST_CLASSES;
    fewer.disabled = data.classes <= 2;
    about.replaceChildren(...aboutParts(store));
  };
  return {element, update};
}

function segment(id, children, act, attributes = {}) {
  return el("button", {type: "button", id, "data-test": id, onclick: act, ...attributes}, ...children);
}

function showClasses(place, store) {
  const {data, pen} = store;
  const shown = JSON.stringify([data.classes, data.classNames]);
  if (place.dataset.shown !== shown) {
    place.dataset.shown = shown;
    place.replaceChildren(...Array.from({length: data.classes}, (_, k) => segment(
      `class-${k}`, [markerIcon(k), className(data, k)], () => store.set({pen: k}),
      {"aria-label": t("tools.classNumber", {label: className(data, k), key: k + 1})},
    )));
  }
  [...place.children].forEach((child, k) => child.setAttribute("aria-pressed", String(k === pen)));
}

function presetOptions() {
  const groups = new Map();
  for (const {id, name, group = ""} of CONTENT.presets) groups.set(group, [...(groups.get(group) ?? []), [id, name]]);
  return [["", t("tools.own")], ...Array.from(groups, ([group, options]) => ({group, options}))];
}

function choosePreset(store, id) {
  const preset = presetOf(id);
  if (!preset) return;
  player.stop();
  store.set({cursor: 0, secondCursor: 0, ...leaveConventions(store), ...presetState(preset)});
}

// Conventions that came with an example, and were not changed since, go with it.
function leaveConventions(store) {
  const preset = presetOf(store.preset);
  const own = preset?.conventions ? settled({...defaultConventions(preset.classes), ...preset.conventions}, preset.classes) : null;
  return own && sameJson(own, store.conventions) ? {conventions: defaultConventions()} : {};
}

function changeClasses(store, by) {
  const {data} = store;
  const classes = data.classes + by;
  const kept = data.labels.map((label) => label < classes);
  const {classNames, ...rest} = data;
  store.set({
    data: {...rest, classes, points: data.points.filter((_, k) => kept[k]), labels: data.labels.filter((_, k) => kept[k])},
    preset: null, ...(by > 0 ? {pen: classes - 1} : {}),
  });
}

function clearPoints(store) {
  player.stop();
  store.set({data: {...store.data, points: [], labels: []}, preset: null, cursor: 0, secondCursor: 0});
}

// How many points there are, whether sums are exact, what the example is about.
function aboutParts(store) {
  const {data} = store;
  const exact = onGrid(data) && isDyadic(store.conventions);
  const chip = (key, why, css) => el("span", {class: `chip ${css}`, title: t(why), "data-test": css}, t(key));
  const remark = presetOf(store.preset)?.remark;
  return [
    store.recorded ? chip("status.recorded", "status.recordedWhy", "recorded") : null,
    el("span", {class: "chip"}, countText("status.points", data.points.length)),
    VIEWS.find(({id}) => id === store.view).rounds ? null
      : exact ? chip("status.exact", "status.exactWhy", "exact") : chip("status.rounded", "status.roundedWhy", "not-exact"),
    el("span", {}, store.recorded ? CONTENT.recorded.description ?? "" : remark ?? data.description ?? ""),
    frameOf(data).even ? null : el("span", {}, t("status.uneven")),
  ].filter((part) => part !== null);
}

// Whether numbers are multiples of 2⁻²⁰, so that their sums and products with points on the grid are exact.
function isDyadic({lr, margin, start}) {
  const all = [lr, margin, ...start.bias, ...start.weight.flat()];
  return isZeroStart(start) ? true : all.every((value) => Number.isInteger(value * 2 ** 20));
}

function saveMenu(store) {
  const act = (work) => () => { menu.open = false; work(); };
  const menu = el(
    "details", {class: "menu"},
    el("summary", {id: "save", "data-test": "save"}, t("tools.save")),
    el(
      "div", {class: "menu-items"},
      button("save-log", t("tools.saveLog"), act(() => saveLog(store))),
      button("save-points", t("tools.savePoints"), act(() => savePoints(store))),
      button("save-picture", t("tools.savePicture"), act(() => savePicture(VIEWS.find(({id}) => id === store.view)))),
    ),
  );
  menu.addEventListener("focusout", (event) => { if (!menu.contains(event.relatedTarget)) menu.open = false; });
  return menu;
}

// --- dialogs ------------------------------------------------------------------------------------------------------------

function openDialog(id, title, ...children) {
  const dialog = el(
    "dialog", {id, "aria-labelledby": `${id}-title`},
    el("div", {class: "heading"}, el("h2", {id: `${id}-title`}, title), iconButton(`${id}-close`, "✕", t("close"), () => dialog.close())),
    ...children,
  );
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  document.getElementById("app").append(dialog);
  dialog.showModal();
  return dialog;
}

function textDialog(id, title, text) {
  const field = el("textarea", {id: `${id}-text`, "data-test": `${id}-text`, readonly: true, rows: 18, spellcheck: "false", "aria-label": title});
  field.value = text;
  openDialog(id, title, field, el("p", {class: "said remark", role: "status"}));
  field.focus();
  field.setSelectionRange(0, 0);
  field.scrollTop = 0;
}

function givePython(store) {
  if (store.problem) return notice(t(store.problem), "warning");
  const text = VIEWS.find(({id}) => id === store.view).python?.(store) ?? pythonScript(store);
  textDialog("python", t("python.title"), text);
  copyText(text, t("copied.python"), () => notice(t("copied.not"), "warning"));
}

function giveLink(store) {
  const link = linkTo(store);
  copyText(link, t("copied.link"), () => textDialog("link", t("link.title"), link));
}

function openCsv(store) {
  const field = el("textarea", {id: "csv-text", "data-test": "csv-text", rows: 12, spellcheck: "false", "aria-label": t("csv.paste"), placeholder: "x1,x2,label\n0,0,-1\n1,1,1"});
  const problem = el("p", {class: "problem", role: "alert"});
  const use = (text) => {
    try {
      loadCsv(store, text);
      dialog.close();
    } catch (error) {
      problem.textContent = t("csv.problem", {error: error.message});
    }
  };
  const file = el("input", {type: "file", class: "hidden", id: "csv-file", "data-test": "csv-file", accept: ".csv,.txt,.tsv,text/*", onchange: async () => use(await file.files[0].text())});
  const dialog = openDialog(
    "csv-dialog", t("csv.title"), el("p", {}, t("csv.text")), field, problem,
    el("div", {class: "group"}, button("csv-use", t("csv.use"), () => use(field.value), {class: "primary"}), el("label", {class: "file"}, t("csv.file"), file)),
  );
  field.focus();
}

function openHelp() {
  const keys = [
    [["→", "←"], "step"], [[t("help.space")], "play"], [["Home", "End"], "ends"], [["1", "2", "3", "4"], "class"], [["A"], "add"],
    [["Tab"], "tab"], [["←", "↑", "→", "↓"], "move"], [["Shift"], "snap"], [["C"], "change"], [["Del"], "remove"], [["Ctrl+Z", "Ctrl+Y"], "undo"], [["?"], "help"],
  ];
  openDialog(
    "help-dialog", t("help.title"),
    el("dl", {class: "keys"}, ...keys.flatMap(([names, key]) => [
      el("dt", {}, ...names.map((name) => el("kbd", {}, name))), el("dd", {}, t(`help.${key}`)),
    ])),
    el("p", {}, t("help.touch")), el("p", {class: "remark"}, t("help.about", {version: CONTENT.version ?? ""})),
  );
}

// --- keys, files, the host ----------------------------------------------------------------------------------------------

function listenToKeys(store) {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || document.querySelector("dialog[open]")) return;
    if (useKey(event, store)) event.preventDefault();
  });
}

function useKey(event, store) {
  const {target, key} = event;
  const typing = target.matches?.("input, select, textarea");
  if (event.ctrlKey || event.metaKey) return !(typing && target.type !== "range" && target.type !== "checkbox") && undoKey(event, store);
  if (typing || event.altKey) return false;
  if (target.matches?.("button, summary, a") && (key === " " || key === "Enter")) return false;
  if (key === "?") openHelp();
  else if (/^[1-4]$/.test(key)) { if (Number(key) <= store.data.classes) store.set({pen: Number(key) - 1}); }
  else if (key === "a" || key === "A") addInTheMiddle(store);
  else return VIEWS.find(({id}) => id === store.view).keys?.(event, store) ?? false;
  return true;
}

function undoKey(event, store) {
  const key = event.key.toLowerCase();
  if (key === "z" && !event.shiftKey) store.undo();
  else if (key === "y" || (key === "z" && event.shiftKey)) store.redo();
  else return false;
  return true;
}

// For those who have no mouse: a point in the middle, which has the focus and can be moved.
function addInTheMiddle(store) {
  const frame = frameOf(store.data);
  addPoint(store, snapped([(frame.x[0] + frame.x[1]) / 2, (frame.y[0] + frame.y[1]) / 2], frame));
  const points = document.querySelectorAll(".view:not([hidden]) svg.plane .point[tabindex]");
  points[store.data.points.length - 1]?.focus();
}

function listenToDrops(store) {
  const load = (text) => {
    try {
      loadCsv(store, text);
    } catch (error) {
      notice(t("csv.problem", {error: error.message}), "warning");
    }
  };
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
  const tell = () => {
    const {points, labels, classes} = store.data;
    window.parent.postMessage({type: "torchperc-play", points, labels, classes}, "*");
  };
  store.on((_, changes) => { if (changes.has("data") && !store.dragging) tell(); });
  addEventListener("message", ({source, data: message}) => {
    if (source !== window.parent || message?.type !== "torchperc-play-set") return;
    const {points, labels} = message;
    const classes = Math.max(2, message.classes ?? 0, ...labels.map((label) => label + 1));
    const data = checkData({points, labels, classes});
    if (!sameJson([points, labels, classes], [store.data.points, store.data.labels, store.data.classes])) {
      store.set({data, preset: null, cursor: 0, secondCursor: 0});
    }
  });
}

startPage();
