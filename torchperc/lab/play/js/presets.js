// What Python puts into the page as JSON, in <script id="content">:
//
// {
//   "version": "0.5.0",                      of torchperc
//   "title": "…",                            shown as the heading
//   "presets": [{"id": "AND", "name": "AND", "group": "gates", "points": [[0, 0], …], "labels": [0, …], "classes": 2,
//                "remark": "…",              a sentence, optional
//                "conventions": {…}}],       optional: what the preset is shown with, e.g. a note's example
//   "dialects": [{"id": "note-a", "name": "note A", "remark": "…",
//                 "conventions": {"tie": "update", "biasStep": "unit", "order": "given", "lr": 1, "seed": 0}}],
//   "start": {"preset": "AND"}               or {"data": {…, "names": ["x", "y"], "classNames": ["no", "yes"],
//                                            "description": what of the data is not shown},
//                                            "conventions": {…}, "overlays": {"pocket": true}, "view": "rule"}
//   "recorded": null,                        or a log as logToJson writes it, with "description": what was projected
//   "widget": false                          true in a notebook: no link, points are handed back
// }

const CONTENT = readContent();

function readContent() {
  const element = typeof document === "undefined" ? null : document.getElementById("content");
  const text = element ? element.textContent.trim() : "";
  return {presets: [], dialects: [], start: {}, recorded: null, ...(text ? JSON.parse(text) : {})};
}

function presetOf(id) {
  return CONTENT.presets.find((preset) => preset.id === id) ?? null;
}

function dataOf(preset) {
  const {points, labels, classes, names, classNames} = preset;
  return {points, labels, classes, ...(names ? {names} : {}), ...(classNames ? {classNames} : {})};
}

// The dialect with these conventions, the first if several agree; null if none does.
function dialectLike(conventions) {
  const same = (dialect) => Object.entries(dialect.conventions).every(([name, value]) => conventions[name] === value);
  return CONTENT.dialects.find((dialect) => conventions.margin === 0 && same(dialect)) ?? null;
}
