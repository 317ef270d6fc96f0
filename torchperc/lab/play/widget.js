// The page in a frame of its own, in a notebook. It tells of every change of its points, which go to the kernel.
function render({model, el}) {
  const frame = document.createElement("iframe");
  frame.title = "torchperc";
  frame.setAttribute("sandbox", model.get("sandbox"));
  frame.allow = "clipboard-write";
  frame.style.cssText = `width: 100%; height: ${model.get("height")}px; border: 0`;
  frame.srcdoc = pageOf(model);
  const receive = ({source, data}) => {
    if (source !== frame.contentWindow || data?.type !== "torchperc-play") return;
    model.set("points", data.points);
    model.set("labels", data.labels);
    model.set("edited", true);
    model.save_changes();
  };
  // Another view of the widget, or Python, has changed the points. The page ignores what it has already.
  const send = () => {
    const [points, labels] = [model.get("points"), model.get("labels")];
    if (points.length !== labels.length) return; // the other half is still to come
    frame.contentWindow?.postMessage({type: "torchperc-play-set", points, labels}, "*");
  };
  window.addEventListener("message", receive);
  model.on("change:points", send);
  model.on("change:labels", send);
  el.append(frame);
  return () => {
    window.removeEventListener("message", receive);
    model.off("change:points", send);
    model.off("change:labels", send);
  };
}

// The frame's HTML with its content put in. Shown a second time, the page begins with the points as they were left.
function pageOf(model) {
  const content = structuredClone(model.get("content"));
  if (model.get("edited")) {
    const {preset, ...start} = content.start;
    const [points, labels] = [model.get("points"), model.get("labels")];
    const classes = Math.max(2, start.data?.classes ?? 2, ...labels.map((label) => label + 1));
    content.start = {...start, data: {...start.data, points, labels, classes}};
    content.recorded = null;
  }
  const text = JSON.stringify(content).replace(/[<>&]/g, (sign) => "\\u00" + sign.charCodeAt(0).toString(16));
  return model.get("frame").replace("{{ content }}", () => text);
}

export default {render};
