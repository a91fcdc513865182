// Draws the curves and maps of the report from the numbers embedded in the page.
//
// A "view" is one drawing with its controls: it has `draw()`, called again whenever a line is switched on or off.
// Labels are written as text nodes and attributes only, never as HTML, because users choose them.
"use strict";

(() => {
  const numbers = JSON.parse(document.getElementById("numbers").textContent);
  const lines = new Map(numbers.lines.map((line) => [line.label, line]));
  const hidden = new Set(); // labels of the lines that are switched off
  const views = [];

  // ---- Making elements ----

  function element(name, attributes = {}, ...children) {
    return filled(document.createElement(name), attributes, children);
  }

  function shape(name, attributes = {}, ...children) {
    return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
  }

  function filled(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
      if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.filter((child) => child !== null));
    return node;
  }

  function select(label, options, chosen, onChange) {
    const box = element("select", {}, ...options.map(([value, text]) => element("option", { value }, text)));
    box.value = chosen;
    box.addEventListener("change", () => onChange(box.value));
    return element("label", {}, label, box);
  }

  function checkbox(label, onChange) {
    const box = element("input", { type: "checkbox" });
    box.addEventListener("change", () => onChange(box.checked));
    return element("label", {}, box, label);
  }

  // ---- Numbers in words ----

  function inWords(value) {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    let text;
    if (size >= 1e7 || (size > 0 && size < 1e-3)) text = value.toExponential(2);
    else if (size >= 1) text = value.toLocaleString("en", { maximumFractionDigits: size < 1000 ? 2 : 0 });
    else text = String(Number(value.toPrecision(3)));
    return text.replaceAll("-", "−");
  }

  function withUnit(value, unit) {
    return unit === "%" ? `${inWords(value)} %` : inWords(value);
  }

  function stepsInWords(step) {
    return `${step.toLocaleString("en")} steps`;
  }

  /** Round numbers within a range, some `count` of them. */
  function ticksBetween(low, high, count) {
    const rough = (high - low) / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    const gap = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough * 0.999);
    const ticks = [];
    for (let k = Math.ceil(low / gap - 1e-9); k * gap <= high + gap * 1e-9; k++) {
      ticks.push(Number((k * gap).toPrecision(12)));
    }
    return ticks;
  }

  /** Index of the entry of a sorted list that is nearest to a value. */
  function nearest(sorted, value) {
    let best = 0;
    sorted.forEach((entry, k) => {
      if (Math.abs(entry - value) < Math.abs(sorted[best] - value)) best = k;
    });
    return best;
  }

  function sortedUnion(lists) {
    return [...new Set(lists.flat())].sort((a, b) => a - b);
  }

  function clamp(value, low, high) {
    return Math.max(low, Math.min(high, value));
  }

  // ---- Colours ----

  function rgb(colour) {
    const digits = /^#([0-9a-f]{6})$/i.exec(colour)?.[1] ?? "777777";
    return [0, 2, 4].map((start) => parseInt(digits.slice(start, start + 2), 16));
  }

  function css(channels) {
    return `rgb(${channels.map(Math.round).join(" ")})`;
  }

  function mixed(from, to, share) {
    return from.map((channel, k) => channel + (to[k] - channel) * share);
  }

  /** Contrast of two colours as the accessibility guidelines (WCAG) define it, 1 to 21. */
  function contrast(one, other) {
    const [bright, dim] = [luminance(one), luminance(other)].sort((a, b) => b - a);
    return (bright + 0.05) / (dim + 0.05);
  }

  function luminance(channels) {
    const shares = channels.map((channel) => channel / 255);
    const linear = shares.map((share) => (share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  }

  /** The colour itself where it stands out enough from the ground, else shifted until it does. */
  function readable(colour, ground, ratio) {
    // Black on a dark ground becomes white: shifted, it would look like the grey of another line.
    const start = contrast(colour, ground) < 1.3 ? colour.map((channel) => 255 - channel) : colour;
    const away = luminance(ground) > 0.5 ? [0, 0, 0] : [255, 255, 255];
    let share = 0;
    while (share < 1 && contrast(mixed(start, away, share), ground) < ratio) share += 0.04;
    return css(mixed(start, away, share));
  }

  /** Gives an element its line's colour in both themes; the style sheet picks one, so prints are right, too. */
  function inColourOf(node, label) {
    const colour = rgb(lines.get(label).colour);
    const grounds = { light: rgb("#fafaf8"), dark: rgb("#1b1f24") };
    for (const [theme, ground] of Object.entries(grounds)) {
      node.style.setProperty(`--${theme}`, readable(colour, ground, 3)); // of lines
      node.style.setProperty(`--${theme}-ink`, readable(colour, ground, 4.6)); // of text
    }
    node.classList.add("of-line");
    node.style.setProperty("--dash", lines.get(label).dash || "none");
    return node;
  }

  function swatch(label) {
    const stroke = shape("line", { x1: 0, y1: 3, x2: 26, y2: 3 });
    const sample = shape("svg", { viewBox: "0 0 26 6" });
    sample.append(stroke);
    return inColourOf(element("span", { class: "swatch", "aria-hidden": "true" }, sample), label);
  }

  // Viridis at nine places, straight lines between: even steps to the eye, also to a colour-blind one.
  const VIRIDIS = "#440154 #472d7b #3b528b #2c728e #21918c #28ae80 #5ec962 #addc30 #fde725".split(" ").map(rgb);

  function viridis(share) {
    const place = clamp(share, 0, 1) * (VIRIDIS.length - 1);
    const below = Math.min(Math.floor(place), VIRIDIS.length - 2);
    return css(mixed(VIRIDIS[below], VIRIDIS[below + 1], place - below));
  }

  // ---- Tooltip ----

  const tooltip = document.getElementById("tooltip");
  let forgetPointer = () => {}; // removes the marks that belong to the tooltip

  /** Rows are {label, text, value, strong}; the largest value comes first. */
  function showTooltip(place, title, rows, extra, forget) {
    if (forget !== forgetPointer) forgetPointer();
    forgetPointer = forget;
    const sorted = [...rows].sort((a, b) => b.value - a.value);
    tooltip.replaceChildren(
      element("p", { class: "title" }, title),
      ...sorted.map((row) =>
        element(
          "div",
          { class: row.strong ? "value-row strong" : "value-row" },
          swatch(row.label),
          element("span", {}, row.label),
          element("span", {}, row.text),
        ),
      ),
      ...extra.map((text) => element("p", { class: "extra" }, text)),
    );
    tooltip.hidden = false;
    placeTooltip(place);
  }

  /** Beside the place if there is room, otherwise below or above it. */
  function placeTooltip({ x, top, bottom }) {
    const { width, height } = tooltip.getBoundingClientRect();
    const [right, gap] = [document.documentElement.clientWidth, 14];
    let [left, upper] = [x + gap, top];
    if (left + width > right - 4) left = x - gap - width;
    if (left < 4) {
      left = clamp(x - width / 2, 4, right - width - 4);
      upper = bottom + height + gap < innerHeight ? bottom + 4 : top - height - 4;
    }
    tooltip.style.left = `${left}px`;
    tooltip.style.top = `${clamp(upper, 4, Math.max(4, innerHeight - height - 4))}px`;
  }

  function hideTooltip() {
    forgetPointer();
    forgetPointer = () => {};
    tooltip.hidden = true;
  }

  /** Focus itself may scroll the page: then the tooltip follows its element. A mouse has lost its place. */
  function tooltipAfterScroll() {
    const focused = document.querySelector("svg:focus-visible, canvas:focus-visible, .hint:focus-visible");
    if (tooltip.hidden) return;
    if (focused) focused.dispatchEvent(new FocusEvent("focus"));
    else hideTooltip();
  }

  /** Calls `point(event)` for mouse, pen and finger; what a finger has shown stays until the next touch. */
  function followPointer(node, point) {
    node.addEventListener("pointermove", point);
    node.addEventListener("pointerdown", point);
    node.addEventListener("pointerleave", (event) => event.pointerType === "touch" || hideTooltip());
    node.addEventListener("blur", hideTooltip);
  }

  /** Calls the action named by the key and keeps the page from scrolling. */
  function followKeys(node, actions) {
    node.addEventListener("keydown", (event) => {
      const action = { Escape: hideTooltip, ...actions }[event.key];
      if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      action();
    });
  }

  // ---- Legend: one switch for each line, for all drawings of the page ----

  function makeLegend(host) {
    const toggles = numbers.lines.map((line) => makeToggle(line.label));
    const everything = element("div", { class: "everything" }, switchAll("all", false), switchAll("none", true));
    host.append(
      element("p", { class: "legend-title" }, "Lines"),
      element("div", { class: "legend-row" }, everything, element("div", { class: "toggles" }, ...toggles)),
    );
  }

  function makeToggle(label) {
    const button = element("button", { type: "button", class: "toggle", "data-line": label, title: label });
    button.append(swatch(label), element("span", {}, label));
    button.addEventListener("click", () => {
      if (!hidden.delete(label)) hidden.add(label);
      linesChanged();
      pointOut(label);
    });
    button.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && pointOut(label));
    button.addEventListener("pointerleave", () => pointOut(null));
    return button;
  }

  function switchAll(text, off) {
    const button = element("button", { type: "button", "aria-label": off ? "Hide all lines" : "Show all lines" }, text);
    button.addEventListener("click", () => {
      hidden.clear();
      if (off) lines.forEach((_, label) => hidden.add(label));
      linesChanged();
    });
    return button;
  }

  function linesChanged() {
    hideTooltip();
    for (const button of document.querySelectorAll(".toggle")) {
      button.setAttribute("aria-pressed", String(!hidden.has(button.dataset.line)));
    }
    views.forEach((view) => view.draw());
  }

  /** Fades all other lines while the pointer rests on a line's switch; null ends that. */
  function pointOut(label) {
    const wanted = label !== null && !hidden.has(label) ? label : null;
    for (const node of document.querySelectorAll("[data-label]")) {
      node.classList.toggle("faint", wanted !== null && node.dataset.label !== wanted);
    }
  }

  function isShown(item) {
    return !hidden.has(item.label);
  }

  /** In the order of the legend, whatever the order of the data. */
  function inOrder(items) {
    const order = [...lines.keys()];
    return [...items].sort((a, b) => order.indexOf(a.label) - order.indexOf(b.label));
  }

  function titleOf(task) {
    return numbers.panels.find((panel) => panel.name === task).title;
  }

  /** The tasks that have something to show, in the order of the page. */
  function tasksOf(items) {
    return numbers.panels.filter((panel) => items.some((item) => item.task === panel.name));
  }

  function nothingShown() {
    return element("p", { class: "nothing" }, "No line is shown.");
  }

  // ---- Curves ----

  function curveView(host, choices) {
    const state = { chosen: 0, everyRun: false };
    const [heading, body] = [element("h3"), element("div")];
    const controls = element("div", { class: "controls" });
    if (choices.length > 1) {
      const options = choices.map((curves, k) => [String(k), curves.title]);
      controls.append(select("Quantity", options, "0", (value) => change({ chosen: Number(value) })));
    }
    if (choices.some((curves) => curves.series.some((series) => Object.keys(series.seeds).length))) {
      controls.append(checkbox("every run", (everyRun) => change({ everyRun })));
    }
    host.append(heading, ...(controls.children.length ? [controls] : []), body);
    host.classList.add("drawing");

    function change(part) {
      Object.assign(state, part);
      hideTooltip();
      draw();
    }

    function draw() {
      const curves = choices[state.chosen];
      const shown = inOrder(curves.series.filter(isShown));
      const panels = element("div", { class: "panels" });
      heading.textContent = curves.title;
      body.replaceChildren(
        ...(curves.note ? [element("p", { class: "note" }, curves.note)] : []),
        shown.length ? panels : nothingShown(),
      );
      if (!shown.length) return;
      const common = curves.apart ? null : verticalAxis(curves, shown, state.everyRun);
      const figures = tasksOf(curves.series).map((panel) => [panel, element("figure", { class: "panel" })]);
      panels.append(...figures.map(([, figure]) => figure));
      for (const [panel, figure] of figures) {
        const series = shown.filter((item) => item.task === panel.name);
        const steps = curves.series.filter((item) => item.task === panel.name).flatMap((item) => item.steps);
        const axis = common ?? verticalAxis(curves, series, state.everyRun);
        figure.append(element("figcaption", {}, panel.title));
        figure.append(curveChart(curves, panel, series, steps, axis, state.everyRun, figure.clientWidth));
      }
    }

    redrawOnResize(host, draw);
    return { draw };
  }

  function redrawOnResize(host, draw) {
    let width = host.clientWidth;
    new ResizeObserver(() => {
      if (host.clientWidth === width) return;
      width = host.clientWidth;
      draw();
    }).observe(host);
  }

  /** Ticks of the vertical axis and each value's place on it, 0 to 1; usually the same for all tasks, to compare panels. */
  function verticalAxis(curves, shown, everyRun) {
    const values = shown.flatMap((series) => [
      ...series.mean,
      ...series.low,
      ...series.high,
      ...(everyRun ? Object.values(series.seeds).flat() : []),
    ]);
    const known = values.filter((value) => value !== null);
    if (curves.log) return logAxis([...known, ...(curves.ideal === null ? [] : [curves.ideal / 1.08])]);
    const [low, high] = evenRange(curves, known);
    return { ticks: ticksBetween(low, high, 5), place: (value) => (value - low) / (high - low) };
  }

  function evenRange(curves, known) {
    const low = known.reduce((least, value) => Math.min(least, value), 0);
    const top = curves.top ?? known.reduce((most, value) => Math.max(most, value), -Infinity);
    if (!(top > low)) return [low, low + 1];
    const ticks = ticksBetween(low, top, 5);
    const gap = ticks[1] - ticks[0];
    const roundUp = (value) => Math.ceil(value / gap - 1e-9) * gap;
    return [Math.floor(low / gap + 1e-9) * gap, curves.top ?? roundUp(top)];
  }

  /** Powers of ten where there are some, else 1, 2 and 5 times them, else round numbers. */
  function logAxis(values) {
    const known = values.filter((value) => value > 0);
    const most = known.reduce((high, value) => Math.max(high, value), 1e-12);
    const least = known.reduce((low, value) => Math.min(low, value), most);
    const [low, high] = [least / 1.08, most * 1.08];
    const powers = [];
    for (let k = Math.floor(Math.log10(low)); k <= Math.log10(high); k++) powers.push(10 ** k);
    const among = (factors) =>
      powers
        .flatMap((power) => factors.map((factor) => Number((factor * power).toPrecision(6))))
        .filter((tick) => tick >= low && tick <= high);
    const choices = [among([1]), among([1, 2, 5]), ticksBetween(low, high, 5)];
    const ticks = choices.find((found) => found.length > 2) ?? choices[2];
    return { ticks, place: (value) => Math.log(value / low) / Math.log(high / low) };
  }

  /** One panel: axes, bands, lines, and the rule that reads values. */
  function curveChart(curves, panel, shown, allSteps, axis, everyRun, width) {
    const height = clamp(Math.round(width * 0.72), 210, 340);
    const rows = axis.ticks;
    const longest = Math.max(...rows.map((tick) => inWords(tick).length));
    const frame = { left: 12 + 6.6 * longest, right: width - 14, top: 24, bottom: height - 38 };
    const last = allSteps.reduce((most, step) => Math.max(most, step), 1);
    const first = allSteps.reduce((least, step) => Math.min(least, step), 0);
    const x = (step) => frame.left + ((step - first) / (last - first)) * (frame.right - frame.left);
    const y = (value) => frame.bottom - axis.place(value) * (frame.bottom - frame.top);

    const chart = shape("svg", {
      class: everyRun ? "every-run" : null,
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      tabindex: "0",
      "aria-label": `${curves.title}, ${panel.title}: ${shown.length} lines over training. Arrow keys read values.`,
    });
    const scale = last < 2e6 ? { size: 1e3, words: "thousands of steps" } : { size: 1e6, words: "millions of steps" };
    const columns = ticksBetween(first / scale.size, last / scale.size, width < 300 ? 4 : 6);
    chart.append(axes(frame, rows, columns, scale, x, y, curves.unit));
    if (curves.ideal !== null) chart.append(idealLine(frame, y(curves.ideal)));
    const groups = shown.map((series) => drawnSeries(series, x, y, everyRun));
    chart.append(...groups.map((group) => group.band), ...groups.map((group) => group.lines));
    if (shown.length && shown.every((series) => series.mean.every((value) => value === null))) {
      const middle = { x: (frame.left + frame.right) / 2, y: (frame.top + frame.bottom) / 2, "text-anchor": "middle" };
      chart.append(shape("text", { class: "nothing", ...middle }, "nothing to show yet"));
    }
    readValues(chart, curves, panel, shown, frame, x, y, everyRun);
    return chart;
  }

  function axes(frame, rows, columns, scale, x, y, unit) {
    const group = shape("g", { "aria-hidden": "true" });
    for (const tick of rows) {
      group.append(
        shape("line", { class: "gridline", x1: frame.left, x2: frame.right, y1: y(tick), y2: y(tick) }),
        shape("text", { x: frame.left - 7, y: y(tick), dy: "0.35em", "text-anchor": "end" }, inWords(tick)),
      );
    }
    for (const column of columns) {
      const place = x(column * scale.size);
      group.append(
        shape("line", { class: "axis", x1: place, x2: place, y1: frame.bottom, y2: frame.bottom + 4 }),
        shape("text", { x: place, y: frame.bottom + 16, "text-anchor": "middle" }, inWords(column)),
      );
    }
    group.append(
      shape("line", { class: "axis", x1: frame.left, x2: frame.right, y1: frame.bottom, y2: frame.bottom }),
      shape("text", { x: frame.right, y: frame.bottom + 32, "text-anchor": "end" }, scale.words),
      shape("text", { x: 0, y: 11 }, unit),
    );
    return group;
  }

  function idealLine(frame, height) {
    return shape(
      "g",
      { class: "ideal", "aria-hidden": "true" },
      shape("line", { x1: frame.left, x2: frame.right, y1: height, y2: height }),
      shape("text", { x: frame.right, y: height + 13, "text-anchor": "end" }, "ideal"),
    );
  }

  function drawnSeries(series, x, y, everyRun) {
    const band = shape("g", { "data-label": series.label });
    const group = shape("g", { "data-label": series.label });
    if (series.low.length) band.append(shape("path", { class: "band", d: bandPath(series, x, y) }));
    for (const [seed, values] of everyRun ? Object.entries(series.seeds) : []) {
      group.append(shape("path", { class: "seed", "data-seed": seed, d: linePath(series.steps, values, x, y) }));
    }
    group.append(shape("path", { class: "mean", d: linePath(series.steps, series.mean, x, y) }));
    return { band: inColourOf(band, series.label), lines: inColourOf(group, series.label) };
  }

  /** A path through the points; the pen is lifted where a value is missing. */
  function linePath(steps, values, x, y) {
    let pen = "M";
    let path = "";
    steps.forEach((step, k) => {
      const value = values[k] ?? null;
      if (value !== null) path += `${pen}${x(step).toFixed(1)} ${y(value).toFixed(1)}`;
      pen = value === null ? "M" : "L";
    });
    return path;
  }

  function bandPath(series, x, y) {
    const known = series.steps.map((_, k) => k).filter((k) => series.low[k] !== null && series.high[k] !== null);
    const point = (k, value) => `${x(series.steps[k]).toFixed(1)} ${y(value).toFixed(1)}`;
    const there = known.map((k) => point(k, series.high[k]));
    const back = known.map((k) => point(k, series.low[k])).reverse();
    return known.length ? `M${[...there, ...back].join("L")}Z` : "";
  }

  /** Lets pointer and arrow keys move a vertical rule whose tooltip says the values of all lines there. */
  function readValues(chart, curves, panel, shown, frame, x, y, everyRun) {
    const steps = sortedUnion(shown.map((series) => series.steps));
    if (!steps.length) return;
    const marks = shape("g");
    chart.append(marks);
    let at = steps.length - 1;
    const forget = () => {
      marks.replaceChildren();
      chart.querySelector(".near")?.classList.remove("near");
    };

    function read(index, height) {
      at = clamp(index, 0, steps.length - 1);
      const step = steps[at];
      const points = shown.map((series) => ({ series, k: nearest(series.steps, step) }));
      const known = points.filter(({ series, k }) => (series.mean[k] ?? null) !== null);
      forget();
      marks.append(shape("line", { class: "rule", x1: x(step), x2: x(step), y1: frame.top, y2: frame.bottom }));
      for (const { series, k } of known) {
        const dot = shape("circle", { class: "dot", r: 3.5, cx: x(series.steps[k]), cy: y(series.mean[k]) });
        marks.append(inColourOf(dot, series.label));
      }
      const box = chart.getBoundingClientRect();
      const zoom = box.width / chart.viewBox.baseVal.width;
      const place = { x: box.left + x(step) * zoom, top: box.top, bottom: box.bottom };
      const rows = known.map(({ series, k }) => valueRow(series, k, step, curves.unit));
      showTooltip(place, `${panel.title}, ${stepsInWords(step)}`, rows, seedNear(step, height), forget);
    }

    /** Says which run's line lies under the pointer, and shows it. */
    function seedNear(step, height) {
      if (!everyRun || height === undefined) return [];
      const runs = shown.flatMap((series) => {
        const k = nearest(series.steps, step);
        return Object.entries(series.seeds).map(([seed, values]) => ({ series, seed, value: values[k] ?? null }));
      });
      const far = (run) => Math.abs(y(run.value) - height);
      const [run] = runs.filter((run) => run.value !== null && far(run) < 8).sort((a, b) => far(a) - far(b));
      if (!run) return [];
      const paths = [...chart.querySelectorAll(`[data-seed="${run.seed}"]`)];
      paths.find((path) => path.parentNode.dataset.label === run.series.label).classList.add("near");
      return [`${run.series.label}, seed ${run.seed}: ${withUnit(run.value, curves.unit)}`];
    }

    followPointer(chart, (event) => {
      const box = chart.getBoundingClientRect();
      const zoom = chart.viewBox.baseVal.width / box.width;
      const [across, down] = [(event.clientX - box.left) * zoom, (event.clientY - box.top) * zoom];
      read(nearest(steps.map(x), across), down);
    });
    chart.addEventListener("focus", () => chart.matches(":focus-visible") && read(at));
    followKeys(chart, {
      ArrowLeft: () => read(at - 1),
      ArrowRight: () => read(at + 1),
      PageUp: () => read(at - 10),
      PageDown: () => read(at + 10),
      Home: () => read(0),
      End: () => read(steps.length - 1),
    });
  }

  /** `41.2 [39.0, 43.1]`, and where it was measured if not at the rule's own step. */
  function valueRow(series, k, step, unit) {
    const band = series.low.length ? ` [${inWords(series.low[k])}, ${inWords(series.high[k])}]` : "";
    const elsewhere = series.steps[k] === step ? "" : ` at ${series.steps[k].toLocaleString("en")}`;
    return { label: series.label, value: series.mean[k], text: withUnit(series.mean[k], unit) + band + elsewhere };
  }

  // ---- Maps ----

  function mapView(host, choices) {
    const state = { chosen: 0, task: "", step: choices[0].start ?? Infinity, timer: null };
    let cards = []; // the maps now on the page
    let moments = []; // the steps that the slider can choose
    const [heading, body] = [element("h3"), element("div")];
    const moment = element("p", { class: "note moment" });
    const controls = element("div", { class: "controls" });
    if (choices.length > 1) {
      const options = choices.map((maps, k) => [String(k), maps.title]);
      controls.append(select("Map", options, "0", (value) => change({ chosen: Number(value) })));
    }
    const taskPlace = element("div", { class: "place" });
    controls.append(taskPlace);
    // A page of forty maps is long: with many lines it begins with one task.
    const first = tasksOf(choices[0].maps);
    state.task = first.length * lines.size > 12 ? first[0].name : "";
    const slider = element("input", { type: "range", min: "0", step: "1", "aria-label": "Moment of training" });
    const output = element("output");
    const play = element("button", { type: "button" }, "▶ Play");
    controls.append(element("div", { class: "time" }, play, slider, output));
    host.append(heading, controls, body);
    host.classList.add("drawing");

    function change(part) {
      Object.assign(state, part);
      hideTooltip();
      draw();
    }

    /** Not every kind of map exists for every task: only those that do can be chosen. */
    function offerTasks(maps) {
      const tasks = tasksOf(maps.maps);
      if (state.task && !tasks.some((panel) => panel.name === state.task)) state.task = tasks[0].name;
      const options = [["", "all"], ...tasks.map((panel) => [panel.name, panel.title])];
      const chooser = select("Task", options, state.task, (task) => change({ task }));
      taskPlace.replaceChildren(...(tasks.length > 1 ? [chooser] : []));
    }

    function draw() {
      const maps = choices[state.chosen];
      offerTasks(maps);
      const shown = inOrder(maps.maps.filter(isShown).filter((map) => !state.task || map.task === state.task));
      const scales = scalesOf(maps);
      cards = shown.map((map) => mapCard(maps, map, scales.get(map), neighbours));
      heading.textContent = maps.title;
      body.replaceChildren(
        ...(maps.note ? [element("p", { class: "note" }, maps.note)] : []),
        moment,
        ...(maps.shared && maps.maps.length ? [colourBar(scales.get(maps.maps[0]), maps.unit, true, shown)] : []),
        ...tasksOf(shown).map((panel) => mapRow(panel, cards)),
        ...(shown.length ? [] : [nothingShown()]),
      );
      setSlider(maps);
      paint();
    }

    function neighbours(map) {
      const sameGrid = (card) => card.map.x.parts === map.x.parts && card.map.y.parts === map.y.parts;
      return cards.filter((card) => card.map.task === map.task && sameGrid(card));
    }

    /** Another kind of map or task may have other moments: the slider goes to the nearest one. */
    function setSlider(maps) {
      const own = maps.maps.filter((map) => !state.task || map.task === state.task);
      moments = sortedUnion(own.map((map) => map.steps));
      slider.max = String(moments.length - 1);
      slider.value = String(nearest(moments, Math.min(state.step, moments[moments.length - 1])));
      controls.querySelector(".time").hidden = moments.length < 2;
    }

    function paint() {
      if (!moments.length) return;
      const at = Number(slider.value);
      const step = moments[at];
      // The end stays the end where another task or kind of map has later moments.
      state.step = at === moments.length - 1 ? Infinity : step;
      const words = stepsInWords(step);
      output.value = words;
      moment.textContent = `At ${words}.`;
      slider.setAttribute("aria-valuetext", words);
      cards.forEach((card) => card.paint(step));
      for (const row of body.querySelectorAll(".row")) {
        const own = cards.filter((card) => card.map.task === row.dataset.task);
        const last = Math.max(...own.map((card) => card.map.steps[card.map.steps.length - 1]));
        row.querySelector(".ended").textContent = last < step ? `, ended at ${stepsInWords(last)}` : "";
      }
    }

    function advance() {
      const last = Number(slider.max);
      slider.value = String(Number(slider.value) >= last ? 0 : Number(slider.value) + 1);
      paint();
      if (Number(slider.value) >= last) pause();
    }

    function pause() {
      clearInterval(state.timer);
      state.timer = null;
      play.textContent = "▶ Play";
    }

    slider.addEventListener("input", () => {
      pause();
      hideTooltip();
      paint();
    });
    play.addEventListener("click", () => {
      if (state.timer !== null) return pause();
      hideTooltip();
      const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
      state.timer = setInterval(advance, calm ? 1500 : 500);
      play.textContent = "❚❚ Pause";
      advance();
    });
    return { draw };
  }

  function mapRow(panel, cards) {
    const own = cards.filter((card) => card.map.task === panel.name);
    return element(
      "div",
      { class: "row", role: "group", "aria-label": panel.title, "data-task": panel.name },
      element("h4", {}, panel.title, element("span", { class: "ended" })),
      element("div", { class: "maps" }, ...own.map((card) => card.figure)),
    );
  }

  /** The colour scale of each map: one for all maps and moments, or one for each map. */
  function scalesOf(maps) {
    const scaleOf = (list) => colourScale(list.flatMap((map) => map.values.flat()), maps.scale === "log");
    const common = maps.shared ? scaleOf(maps.maps) : null;
    return new Map(maps.maps.map((map) => [map, common ?? scaleOf([map])]));
  }

  function colourScale(values, log) {
    // Zero has no logarithm: on such a scale it takes the colour of the smallest positive value.
    const known = values.filter((value) => value !== null && (!log || value > 0));
    if (!known.length) return { low: 0, high: 1, middle: 0.5, share: () => 0 };
    // The outermost hundredth at either end takes the end's colour: one freak value would make all others look alike.
    known.sort((a, b) => a - b);
    const spare = known.length >= 200 ? Math.floor(known.length / 100) : 0;
    const [low, high] = [known[spare], known[known.length - 1 - spare]];
    const [forward, back] = log ? [Math.log10, (place) => 10 ** place] : [(value) => value, (place) => place];
    const [start, end] = [forward(low), forward(high)];
    const share = (value) => {
      if (log && value <= 0) return 0;
      return end > start ? clamp((forward(value) - start) / (end - start), 0, 1) : 1;
    };
    return { low, high, middle: back((start + end) / 2), share };
  }

  function colourBar(scale, unit, large, shown = []) {
    const gradient = element("div", { class: "gradient" });
    const stops = VIRIDIS.map(css).join(", ");
    gradient.style.background = `linear-gradient(to right, ${stops})`;
    const values = large ? [scale.low, scale.middle, scale.high] : [scale.low, scale.high];
    const ticks = element("div", { class: "ticks" }, ...values.map((value) => element("span", {}, briefly(value))));
    const bar = element("div", { class: "bar" }, element("div", { class: "scale" }, gradient, ticks));
    if (large) {
      bar.prepend(element("span", {}, unit));
      bar.append(element("span", { class: "hatch" }), element("span", {}, "nothing there"));
    }
    if (shown.some((map) => map.closed.length)) {
      bar.append(element("span", { class: "wall" }), element("span", {}, "wall"));
    }
    return bar;
  }

  /** Two or three digits are enough on a colour bar. */
  function briefly(value) {
    return inWords(Number(value.toPrecision(3)));
  }

  /** One map: its figure, and how to paint a moment into it. */
  function mapCard(maps, map, scale, neighbours) {
    const { x, y } = map;
    const canvas = element("canvas", {
      tabindex: "0",
      role: "img",
      "aria-label": `${maps.title}: ${map.label} on ${titleOf(map.task)}. Arrow keys read cells.`,
    });
    // Several pixels for each cell: printers and browsers would blur the edges of single ones.
    const grain = Math.max(1, Math.ceil(240 / Math.max(x.parts, y.parts)));
    [canvas.width, canvas.height] = [x.parts * grain, y.parts * grain];
    const field = element("div", { class: map.closed.length ? "field walled" : "field" }, ...walls(map), canvas);
    // A place is drawn to scale.
    const spatial = x.name === "x" && y.name === "y";
    const ratio = spatial ? (x.high - x.low) / (y.high - y.low) : x.parts / y.parts;
    field.style.aspectRatio = String(clamp(ratio, 0.8, 4));
    const caption = inColourOf(element("figcaption", { title: map.label }, map.label), map.label);
    const plot = element("div", { class: "plot" }, axisLabels("upright", y), field, axisLabels("across", x));
    if (!maps.shared) plot.append(colourBar(scale, maps.unit, false));
    const card = { map, field, value: () => null, paint, figure: element("figure", { class: "map" }, caption, plot) };

    /** Paints the last moment that is not after the step; before the first one there is nothing. */
    function paint(step) {
      const values = map.values[map.steps.findLastIndex((known) => known <= step)] ?? [];
      const brush = canvas.getContext("2d");
      brush.clearRect(0, 0, canvas.width, canvas.height);
      card.value = (i, j) => values[i * y.parts + j] ?? null;
      for (let i = 0; i < x.parts; i++) {
        for (let j = 0; j < y.parts; j++) {
          const value = card.value(i, j);
          if (value === null) continue;
          brush.fillStyle = viridis(scale.share(value));
          brush.fillRect(i * grain, (y.parts - 1 - j) * grain, grain, grain);
        }
      }
    }

    readCells(canvas, card, maps, neighbours);
    return card;
  }

  /** The solid cells of a map, as one shape: no seams between them. */
  function walls({ closed, x, y }) {
    if (!closed.length) return [];
    const block = (cell) => `M${Math.floor(cell / y.parts)} ${y.parts - 1 - (cell % y.parts)}h1v1h-1z`;
    const path = shape("path", { d: closed.map(block).join(""), "shape-rendering": "crispEdges" });
    const box = `0 0 ${x.parts} ${y.parts}`;
    return [shape("svg", { class: "walls", viewBox: box, preserveAspectRatio: "none", "aria-hidden": "true" }, path)];
  }

  function axisLabels(direction, axis) {
    const texts = [briefly(axis.low), axis.name, briefly(axis.high)];
    const spans = texts.map((text) => element("span", {}, text));
    return element("div", { class: direction, "aria-hidden": "true" }, ...spans);
  }

  /** Lets pointer and arrow keys read a cell, here and in the other maps of the task. */
  function readCells(canvas, card, maps, neighbours) {
    const { x, y, task } = card.map;
    let [column, row] = [Math.floor(x.parts / 2), Math.floor(y.parts / 2)];
    let pointers = [];
    const forget = () => {
      pointers.forEach((pointer) => pointer.remove());
      pointers = [];
    };

    function read(i, j) {
      [column, row] = [clamp(i, 0, x.parts - 1), clamp(j, 0, y.parts - 1)];
      const others = neighbours(card.map);
      forget();
      pointers = others.map((other) => cellPointer(other.field, x, y, column, row));
      const rows = others.map((other) => {
        const value = other.value(column, row);
        const solid = other.map.closed.includes(column * y.parts + row);
        const text = value !== null ? withUnit(value, maps.unit) : solid ? "wall" : "nothing there";
        return { label: other.map.label, value: value ?? -Infinity, text, strong: other === card };
      });
      const box = pointers[others.indexOf(card)].getBoundingClientRect();
      const ranges = [rangeOf(x, column), rangeOf(y, row)];
      showTooltip({ x: box.right, top: box.top, bottom: box.bottom }, titleOf(task), rows, ranges, forget);
    }

    followPointer(canvas, (event) => {
      const box = canvas.getBoundingClientRect();
      const across = (event.clientX - box.left) / box.width;
      const up = 1 - (event.clientY - box.top) / box.height;
      read(Math.floor(across * x.parts), Math.floor(up * y.parts));
    });
    canvas.addEventListener("focus", () => canvas.matches(":focus-visible") && read(column, row));
    followKeys(canvas, {
      ArrowLeft: () => read(column - 1, row),
      ArrowRight: () => read(column + 1, row),
      ArrowUp: () => read(column, row + 1),
      ArrowDown: () => read(column, row - 1),
    });
  }

  function cellPointer(field, x, y, column, row) {
    const pointer = element("div", { class: "pointer" });
    Object.assign(pointer.style, {
      left: `${(100 * column) / x.parts}%`,
      top: `${(100 * (y.parts - 1 - row)) / y.parts}%`,
      width: `${100 / x.parts}%`,
      height: `${100 / y.parts}%`,
    });
    field.append(pointer);
    return pointer;
  }

  /** `position 0.1 to 0.2` */
  function rangeOf(axis, part) {
    const span = axis.high - axis.low;
    const edge = (k) => {
      const value = axis.low + (span * k) / axis.parts;
      return briefly(Math.abs(value) < span * 1e-9 ? 0 : value); // rounding errors are not news
    };
    return `${axis.name} ${edge(part)} to ${edge(part + 1)}`;
  }

  // ---- Sample transitions ----

  /** Rows of a gallery: each line's swatch before its name, and gone where the line is switched off. */
  function galleryView(table) {
    const rows = [...table.querySelectorAll("[data-of]")];
    for (const row of rows.filter((row) => row.classList.contains("start"))) {
      row.querySelector("th").prepend(swatch(row.dataset.of));
    }
    return { draw: () => rows.forEach((row) => (row.hidden = hidden.has(row.dataset.of))) };
  }

  // ---- Tables and printing ----

  /** Hints of cells in our tooltip, which keyboards and fingers reach, instead of the browser's. */
  function upgradeHint(node) {
    const text = node.title;
    node.removeAttribute("title");
    node.setAttribute("aria-description", text);
    const show = () => {
      const box = node.getBoundingClientRect();
      showTooltip({ x: box.right, top: box.bottom, bottom: box.bottom }, text, [], [], () => {});
    };
    followPointer(node, show);
    node.addEventListener("focus", show);
    followKeys(node, {});
  }

  /** Prints hold everything, so what is folded is unfolded for them and folded again afterwards. */
  function unfoldForPrinting() {
    let opened = [];
    addEventListener("beforeprint", () => {
      opened = [...document.querySelectorAll("details:not([open])")];
      opened.forEach((details) => (details.open = true));
    });
    addEventListener("afterprint", () => opened.forEach((details) => (details.open = false)));
  }

  // ---- Start ----

  const legend = document.getElementById("legend");
  if (legend) makeLegend(legend);
  for (const host of document.querySelectorAll("[data-curves], [data-maps]")) {
    const { curves, maps } = host.dataset;
    views.push(curves ? curveView(host, numbers[curves]) : mapView(host, numbers[maps]));
  }
  views.push(...[...document.querySelectorAll(".gallery")].map(galleryView));
  linesChanged();
  document.querySelectorAll(".hint").forEach(upgradeHint);
  unfoldForPrinting();
  addEventListener("scroll", tooltipAfterScroll, { passive: true });
  addEventListener("pointerdown", (event) => event.target.closest("svg, canvas, .hint") || hideTooltip());
})();
