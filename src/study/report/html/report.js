// Draws the page of a run from the data that stands in it. The data come from scenario files, which may be a stranger's:
// they reach the page as text (textContent) and never as markup.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const main = document.getElementById("main");

// The data have links as rows, and the names of their ends once.
for (const variant of data.variants) {
  variant.links = variant.links.map(([from, to, utilisation, waited_us, queue_max_bytes, paused_us, dropped]) =>
    ({from: data.nodes[from], to: data.nodes[to], utilisation, waited_us, queue_max_bytes, paused_us, dropped}));
}
// A Tulle that was built without dygraphs (TULLE_CHARTS=OFF) leaves the charts out, and their tables are open.
const has_charts = typeof Dygraph !== "undefined";
const redraws = [];  // what to draw again when the colours or the width change

// --- elements -----------------------------------------------------------------------------------

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === "class") made.className = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function section(id, title, ...children) {
  const made = element("section", {id, "aria-labelledby": id + "-title"},
    element("h2", {id: id + "-title"}, title), ...children);
  main.append(made);
  return made;
}

// Returns a table. The first `names` columns are names; a cell is a text, or {text, best}.
function table(heads, rows, names) {
  const kind = (i) => (i < names ? {class: "name"} : {});
  const head = element("tr", {}, ...heads.map((text, i) => element("th", {scope: "col", ...kind(i)}, text)));
  const body = rows.map((row) => element("tr", {}, ...row.map((cell, i) => {
    const best = cell !== null && typeof cell === "object" && cell.best;
    const text = cell !== null && typeof cell === "object" ? cell.text : cell;
    return element("td", best ? {class: "best"} : kind(i), String(text));
  })));
  return element("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": heads.join(", ")},
    element("table", {}, element("thead", {}, head), element("tbody", {}, ...body)));
}

function hidden(title, ...children) {
  return element("details", {}, element("summary", {}, title), ...children);
}

// Returns the table of a chart, which is all there is of it in a page without charts.
function chart_table(...children) {
  return has_charts ? hidden("Table", ...children) : element("div", {}, ...children);
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}
const series_colour = (i) => colour("series-" + (i % 8));

function keys(names, to_colour) {
  return element("ul", {class: "keys"}, ...names.map((name, i) => {
    const mark = element("i", {});
    const paint = () => { mark.style.background = to_colour(i); };
    paint();
    redraws.push(paint);
    return element("li", {}, mark, name);
  }));
}

// --- numbers ------------------------------------------------------------------------------------

function digits(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e15) return value.toExponential(2);
  if (size >= 100) return Math.round(value).toLocaleString("en");
  return Number(value.toPrecision(3)).toLocaleString("en", {maximumFractionDigits: 6});
}

function time_text(us) {
  const size = Math.abs(us);
  if (size >= 1e6) return digits(us / 1e6) + " s";
  if (size >= 1e3) return digits(us / 1e3) + " ms";
  if (size >= 1 || size === 0) return digits(us) + " µs";
  return digits(us * 1e3) + " ns";
}

function bytes_text(bytes) {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (bytes >= size) return digits(bytes / size) + " " + unit;
  }
  return digits(bytes) + " B";
}

// Returns the index of the last value that is at most x, or 0.
function place_of(sorted, x) {
  let low = 0;
  let high = sorted.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (sorted[middle] <= x) low = middle;
    else high = middle - 1;
  }
  return low;
}

// --- charts -------------------------------------------------------------------------------------

// The library's legend measures text with a style attribute, which the page's security policy forbids. Charts have keys
// of their own.
Dygraph.PLUGINS = Dygraph.PLUGINS.filter((plugin) => plugin !== Dygraph.Plugins.Legend);

// Returns the ticks of an axis of logarithms to the base of 10: powers, and between them twice and five times as much if
// there is room.
function log_ticks(low, high) {
  const steps = high - low < 3 ? [1, 2, 5] : [1];
  const ticks = [];
  for (let power = Math.floor(low); power <= high; ++power) {
    for (const step of steps) {
      const v = power + Math.log10(step);
      if (v >= low && v <= high) ticks.push({v, label: time_text(Math.pow(10, v))});
    }
  }
  return ticks;
}

// Draws rows [x, y, y, …] with dygraphs. Beside the mouse, the keyboard moves a cursor (arrows), zooms (+ and -) and shows
// all again (0); what the cursor points at is written below, which screen readers follow.
class Chart {
  constructor(options) {
    this.options = options;
    this.rows = options.rows;
    this.xs = this.rows.map((row) => row[0]);
    this.cursor = null;
    this.box = element("div", {class: "chart" + (options.low ? " low" : ""), tabindex: "0", role: "img",
      "aria-label": options.title + ". Arrow keys move the cursor, plus and minus zoom, zero shows all."});
    this.readout = options.readout || element("div", {class: "readout faint", "aria-live": "polite"});
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.box.hidden = !has_charts;
    this.graph = null;
  }

  draw() {
    if (!has_charts) return;
    const options = this.options;
    if (this.graph) this.graph.destroy();
    this.graph = new Dygraph(this.box, this.visible(this.window || this.all()), {
      labels: [options.x_label, ...options.names],
      colors: options.names.map((_, i) => (options.colours ? colour(options.colours[i]) : series_colour(i))),
      logscale: false,
      axes: {
        x: {ticker: options.x_ticks || Dygraph.numericLinearTicks, axisLabelFormatter: (x) => options.x_text(x), axisLineColor: colour("line"), drawGrid: true},
        y: {axisLabelFormatter: (y) => options.y_text(y), axisLineColor: colour("line"), axisLabelWidth: 66},
      },
      dateWindow: this.window || this.all(),
      gridLineColor: colour("line"),
      ylabel: options.low ? null : options.y_label,
      xlabel: options.low ? null : options.x_label,
      includeZero: true,
      stepPlot: Boolean(options.steps),
      fillGraph: Boolean(options.low),
      connectSeparatedPoints: true,
      strokeWidth: 1.6,
      highlightCircleSize: 3,
      highlightCallback: (_, x) => this.point_at(x, true),
      unhighlightCallback: () => this.point_at(null, true),
      zoomCallback: (low, high) => this.zoom([low, high], true),
      interactionModel: Dygraph.defaultInteractionModel,
    });
  }

  all() {
    return [this.xs[0], this.xs[this.xs.length - 1]];
  }

  // Returns rows for the screen: if there are more rows in the window than twice its pixels, each pixel's least and
  // greatest value of each series, so that no peak is lost.
  visible(window) {
    const first = Math.max(0, place_of(this.xs, window[0]) - 1);
    const last = Math.min(this.xs.length - 1, place_of(this.xs, window[1]) + 1);
    const pixels = Math.max(200, this.box.clientWidth || 800);
    const count = last - first + 1;
    if (count <= 2 * pixels) return this.rows.slice(first, last + 1);
    const rows = [];
    for (let pixel = 0; pixel < pixels; ++pixel) {
      const from = first + Math.floor((pixel * count) / pixels);
      const to = first + Math.floor(((pixel + 1) * count) / pixels);
      const low = this.rows[from].slice();
      const high = this.rows[from].slice();
      high[0] = this.rows[to - 1][0];
      for (let i = from + 1; i < to; ++i) {
        const row = this.rows[i];
        for (let k = 1; k < row.length; ++k) {
          if (row[k] === null) continue;
          if (low[k] === null || row[k] < low[k]) low[k] = row[k];
          if (high[k] === null || row[k] > high[k]) high[k] = row[k];
        }
      }
      rows.push(low);
      if (to - from > 1) rows.push(high);
    }
    return rows;
  }

  zoom(window, tell) {
    const [least, most] = this.all();
    this.window = [Math.max(least, window[0]), Math.min(most, window[1])];
    this.graph.updateOptions({file: this.visible(this.window), dateWindow: this.window, valueRange: null});
    if (tell && this.options.on_zoom) this.options.on_zoom(this, this.window);
  }

  point_at(x, tell) {
    this.cursor = x === null ? null : place_of(this.xs, x);
    if (this.cursor === null) {
      this.graph.clearSelection();
    } else {
      if (!tell) this.select(x);
      if (!this.options.silent) this.readout.textContent = this.text();
    }
    if (tell && this.options.on_point) this.options.on_point(this, x);
  }

  // Shows the cursor at the row that is drawn nearest to x.
  select(x) {
    const rows = this.graph.numRows();
    let low = 0;
    let high = rows - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.graph.getValue(middle, 0) < x) low = middle + 1;
      else high = middle;
    }
    if (rows > 0) this.graph.setSelection(low);
  }

  text() {
    const row = this.rows[this.cursor];
    const parts = this.options.names.map((name, i) =>
      row[i + 1] === null ? null : name + " " + this.options.y_text(row[i + 1]));
    return this.options.x_text(row[0]) + ": " + parts.filter((part) => part !== null).join(", ");
  }

  key(event) {
    const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    const window = this.window || this.all();
    const middle = this.cursor === null ? (window[0] + window[1]) / 2 : this.xs[this.cursor];
    if (step !== undefined) {
      const shown = Math.max(1, Math.round((place_of(this.xs, window[1]) - place_of(this.xs, window[0])) / 100));
      const from = this.cursor === null ? place_of(this.xs, middle) : this.cursor;
      const next = Math.min(this.xs.length - 1, Math.max(0, from + step * shown));
      this.select(this.xs[next]);
      this.point_at(this.xs[next], true);
    } else if (event.key === "+" || event.key === "-") {
      const half = ((window[1] - window[0]) / 2) * (event.key === "+" ? 0.5 : 2);
      this.zoom([middle - half, middle + half], true);
    } else if (event.key === "0") {
      this.zoom(this.all(), true);
    } else {
      return;
    }
    event.preventDefault();
  }
}

// Draws the chart once it is on the page, and again when colours or the width change.
function show(chart) {
  chart.draw();
  redraws.push(() => { if (chart.box.isConnected) chart.draw(); });
}

// --- the sections -------------------------------------------------------------------------------

function show_header() {
  document.getElementById("command").textContent = data.command;
  const description = document.getElementById("description");
  for (const paragraph of data.description.split(/\n\s*\n/)) {
    if (paragraph.trim() !== "") description.append(element("p", {}, paragraph));
  }
  if (has_charts) return;
  description.append(element("p", {class: "faint"},
    "This page has tables in place of charts, because this Tulle was built without dygraphs (TULLE_CHARTS=OFF)."));
}

function show_summary() {
  section("summary", "Side by side", table(data.summary.heads, data.summary.rows, 1),
    element("p", {class: "faint"}, "The best value of a column is bold. A figure that no " + data.what +
      " has anything of, such as drops where nothing was dropped, has no column."));
}

function bar(name, parts, most, value) {
  const track = element("div", {class: "track", role: "img", "aria-label": name + ": " + value});
  for (const [share, paint] of parts) {
    const part = element("span", {});
    part.style.width = (100 * share) / most + "%";
    const fill = () => { part.style.background = paint(); };
    fill();
    redraws.push(fill);
    track.append(part);
  }
  return element("div", {class: "bar"}, element("div", {}, name), track, element("div", {class: "value"}, value));
}

function show_time() {
  const timed = data.variants.filter((variant) => variant.time_us > 0);
  if (timed.length === 0) return;
  const most = Math.max(...timed.map((variant) => variant.time_us));
  const computes = timed.some((variant) => variant.exposed_us !== null);
  const bars = timed.map((variant) => {
    const exposed = variant.exposed_us === null ? variant.time_us : variant.exposed_us;
    const parts = [[variant.time_us - exposed, () => series_colour(0)], [exposed, () => series_colour(1)]];
    return bar(variant.name, parts, most, time_text(variant.time_us));
  });
  section("time", "The time of each " + data.what, ...bars,
    keys(computes ? ["computation", "exposed communication"] : ["communication"],
      (i) => series_colour(computes ? i : 1)));
}

function show_completions() {
  const drawn = data.variants.filter((variant) => variant.completions.length > 0);
  if (drawn.length === 0) return;
  const names = drawn.map((variant) => variant.name);
  // The curves have their own times, so that a row has a value of one curve alone.
  const rows = [];
  drawn.forEach((variant, i) => {
    variant.completions.forEach((us, place) => {
      const row = new Array(names.length + 1).fill(null);
      row[0] = Math.log10(Math.max(us, 1e-3));
      row[i + 1] = (100 * (place + 1)) / variant.completions.length;
      rows.push(row);
    });
  });
  rows.sort((a, b) => a[0] - b[0]);
  const chart = new Chart({title: "Completion times of flows", rows, names, x_label: "completion time of a flow",
    y_label: "flows that are done", x_ticks: log_ticks,
    x_text: (x) => time_text(Math.pow(10, x)), y_text: (y) => digits(y) + " %"});
  section("completion", "How long flows take", keys(names, series_colour), chart.box, chart.readout,
    chart_table(table([data.what, "least", "median", "99 %", "greatest"],
      drawn.map((variant) => [variant.name, ...variant.quantiles_us.map(time_text)]), 1)));
  show(chart);
}

// Draws for each GPU that is shown when it computed and when its messages were under way.
class Phases {
  constructor(variant, on_zoom) {
    this.spans = variant.spans;
    this.canvas = element("canvas", {class: "phases", role: "img", "aria-label": "Phases of the job by GPU"});
    this.window = null;
    this.on_zoom = on_zoom;
    this.cursor = null;
  }

  draw() {
    const context = prepared(this.canvas, 18 * this.spans.rows.length + 20);
    if (this.spans.rows.length === 0 || this.window === null) return;
    const left = 82;  // the width of the charts' axis
    const width = this.canvas.clientWidth - left - 5;
    const [from, to] = this.window;
    const place = (us) => left + (width * (us - from)) / (to - from);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    this.spans.rows.forEach((name, row) => {
      context.fillStyle = colour("faint");
      context.fillText(name, 4, 18 * row + 9);
    });
    context.save();
    context.beginPath();
    context.rect(left, 0, width, this.canvas.clientHeight);
    context.clip();
    for (const [row, phase, start, end, sends] of this.spans.spans) {
      if (end < from || start > to) continue;
      context.fillStyle = series_colour(phase);
      context.fillRect(place(start), 18 * row + (sends ? 10 : 2), Math.max(0.6, place(end) - place(start)), sends ? 5 : 8);
    }
    if (this.cursor !== null) {
      context.fillStyle = colour("faint");
      context.fillRect(place(this.cursor), 0, 1, this.canvas.clientHeight);
    }
    context.restore();
  }
}

// Sizes a canvas for the screen's pixels and returns its context, in units of the page.
function prepared(canvas, height) {
  const scale = window.devicePixelRatio || 1;
  canvas.style.height = height + "px";
  canvas.width = Math.max(1, Math.round(canvas.clientWidth * scale));
  canvas.height = Math.round(height * scale);
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, canvas.clientWidth, height);
  return context;
}

const timeline_series = [
  {key: "sent_gbps", name: "sent by adapters", label: "Gb/s", text: (y) => digits(y) + " Gb/s"},
  {key: "queue_bytes", name: "longest queue of a port", label: "queue", text: bytes_text},
  {key: "paused", name: "ports that were paused", label: "paused", text: digits},
  {key: "credit_stalls", name: "waits for credits", label: "credits", text: digits},
  {key: "marked", name: "frames marked", label: "marked", text: digits},
  {key: "dropped", name: "frames dropped", label: "dropped", text: digits},
];

// The charts of a timeline have one cursor and one window.
function draw_timeline(box, variant) {
  box.textContent = "";
  const timeline = variant.timeline;
  const shown = timeline_series.filter((each) => timeline[each.key].some((value) => value > 0));
  const readout = element("div", {class: "readout faint", "aria-live": "polite"});
  const charts = [];
  const phases = new Phases(variant);
  const at = (i) => (i + 1) * timeline.interval_us;
  const point = (from, x) => {
    for (const chart of charts) if (chart !== from) chart.point_at(x, false);
    phases.cursor = x;
    phases.draw();
    if (x === null) return;
    const i = place_of(charts[0].xs, x);
    readout.textContent = time_text(at(i)) + ": " +
      shown.map((each) => each.name + " " + each.text(timeline[each.key][i])).join(", ");
  };
  const zoom = (from, range) => {
    for (const chart of charts) if (chart !== from) chart.zoom(range, false);
    phases.window = range;
    phases.draw();
  };
  for (const each of shown) {
    const rows = timeline[each.key].map((value, i) => [at(i), value]);
    charts.push(new Chart({title: each.name, rows, names: [each.name], low: true, silent: true, readout,
      colours: ["series-" + timeline_series.indexOf(each)], x_label: "time", y_label: each.label, x_text: time_text,
      y_text: each.text, on_point: point, on_zoom: zoom}));
  }
  for (const [i, chart] of charts.entries()) {
    if (has_charts) box.append(element("h3", {}, shown[i].name), chart.box);
  }
  if (variant.spans.rows.length > 0) {
    box.append(element("h3", {}, "phases of the job"), keys(variant.spans.phases, series_colour), phases.canvas,
      element("p", {class: "faint"}, "A thick bar is a computation, and a thin one below it the time in which messages of " +
        "that GPU were under way."));
  }
  const every = Math.max(1, Math.ceil(timeline.sent_gbps.length / 40));
  const lines = timeline.sent_gbps.map((_, i) => i).filter((i) => i % every === 0);
  box.append(readout, chart_table(table(["time", ...shown.map((each) => each.name)],
    lines.map((i) => [time_text(at(i)), ...shown.map((each) => each.text(timeline[each.key][i]))]), 1)));
  for (const chart of charts) chart.draw();
  phases.window = charts.length > 0 ? charts[0].all() : [0, variant.time_us];
  phases.draw();
  return () => {
    for (const chart of charts) chart.draw();
    phases.draw();
  };
}

// Returns a choice of variants that calls `draw` with the chosen one. What `draw` returns draws it again.
function chooser(label, variants, draw) {
  const select = element("select", {}, ...variants.map((variant, i) => element("option", {value: String(i)}, variant.name)));
  let again = () => {};
  const update = () => { again = draw(variants[Number(select.value)]); };
  select.addEventListener("change", update);
  redraws.push(() => again());
  return [element("label", {}, label + " ", select), update];
}

function show_timeline() {
  const drawn = data.variants.filter((variant) => variant.timeline.sent_gbps.length > 1);
  if (drawn.length === 0) return;
  const box = element("div", {});
  const [choice, update] = chooser("Show", drawn, (variant) => draw_timeline(box, variant));
  const advice = !has_charts ? null : element("p", {class: "faint"},
    "Drag across a chart to zoom in, and double-click to see all. The cursor marks the same time in all charts.");
  section("timeline", "What happens when", choice, advice, box);
  update();
}

const link_measures = [
  {key: "utilisation", name: "share of the time that it sent", text: (x) => digits(100 * x) + " %"},
  {key: "waited_us", name: "time that it held frames up", text: time_text},
  {key: "queue_max_bytes", name: "longest queue", text: bytes_text},
  {key: "paused_us", name: "time that it was paused", text: time_text},
  {key: "dropped", name: "frames dropped", text: digits},
];

// Returns the colour of a share from 0 to 1: from the line's colour over yellow to red.
function heat(share) {
  const dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
  const stops = dark ? [[52, 59, 68], [180, 140, 40], [255, 80, 60]] : [[209, 217, 224], [236, 170, 40], [190, 20, 30]];
  const place = Math.min(0.9999, Math.max(0, share)) * 2;
  const [a, b] = [stops[Math.floor(place)], stops[Math.floor(place) + 1]];
  const part = place - Math.floor(place);
  return "rgb(" + a.map((value, i) => Math.round(value + (b[i] - value) * part)).join(",") + ")";
}

// Places nodes in rows: hosts below, and each switch above by its distance from the nearest host.
function layers(links) {
  const near = new Map();
  for (const link of links) {
    if (!near.has(link.from)) near.set(link.from, new Set());
    near.get(link.from).add(link.to);
  }
  const rows = [[...near.keys()].filter((name) => name.startsWith("host "))];
  const by_number = new Intl.Collator("en", {numeric: true}).compare;
  const seen = new Set(rows[0]);
  while (rows[rows.length - 1].length > 0) {
    const next = [];
    for (const name of rows[rows.length - 1]) {
      for (const other of near.get(name) || []) {
        if (seen.has(other)) continue;
        seen.add(other);
        next.push(other);
      }
    }
    rows.push(next);
  }
  rows.pop();
  for (const row of rows) row.sort(by_number);
  return rows;
}

function draw_network(canvas, variant, measure) {
  const rows = layers(variant.links);
  const height = 110 * Math.max(2, rows.length);
  const context = prepared(canvas, height);
  const places = new Map();
  rows.forEach((row, tier) => row.forEach((name, i) => {
    places.set(name, [((i + 0.5) / row.length) * canvas.clientWidth, height - 30 - (tier * (height - 60)) / Math.max(1, rows.length - 1)]);
  }));
  const most = Math.max(...variant.links.map((link) => link[measure.key]), 1e-12);
  // The two directions of a cable are one line, with the colour of the worse one; the worst are drawn last.
  const cables = new Map();
  for (const link of variant.links) {
    const name = link.from < link.to ? link.from + "\n" + link.to : link.to + "\n" + link.from;
    const found = cables.get(name);
    if (!found || found[measure.key] < link[measure.key]) cables.set(name, link);
  }
  const sorted = [...cables.values()].sort((a, b) => a[measure.key] - b[measure.key]);
  for (const link of sorted) {
    const [a, b] = [places.get(link.from), places.get(link.to)];
    if (!a || !b) continue;
    const share = link[measure.key] / most;
    context.strokeStyle = heat(share);
    context.lineWidth = 0.6 + 2 * share;
    context.beginPath();
    context.moveTo(a[0], a[1]);
    context.lineTo(b[0], b[1]);
    context.stroke();
  }
  context.fillStyle = colour("text");
  context.font = "11px system-ui, sans-serif";
  context.textAlign = "center";
  rows.forEach((row, tier) => row.forEach((name) => {
    const [x, y] = places.get(name);
    const room = canvas.clientWidth / row.length;
    const size = Math.max(1, Math.min(4, room / 3));
    context.fillRect(x - size, y - size, 2 * size, 2 * size);
    if (room <= 50) return;
    const above = tier === 0 ? 16 : -9;
    const half = context.measureText(name).width / 2 + 2;
    context.fillStyle = colour("page");
    context.fillRect(x - half, y + above - 10, 2 * half, 13);
    context.fillStyle = colour("text");
    context.fillText(name, x, y + above);
  }));
  return most;
}

function show_links() {
  const drawn = data.variants.filter((variant) => variant.links.length > 0);
  if (drawn.length === 0) return;
  const canvas = element("canvas", {class: "network", role: "img", "aria-label": "The network, each link coloured by what it had to bear. The table below has the worst links."});
  const scale = element("canvas", {width: "160", height: "12"});
  const most = element("span", {});
  const worst = element("div", {});
  const measures = element("select", {}, ...link_measures.map((measure, i) => element("option", {value: String(i)}, measure.name)));
  const draw = (variant) => {
    const measure = link_measures[Number(measures.value)];
    most.textContent = measure.text(draw_network(canvas, variant, measure));
    const context = scale.getContext("2d");
    for (let x = 0; x < 160; ++x) {
      context.fillStyle = heat(x / 160);
      context.fillRect(x, 0, 1, 12);
    }
    worst.textContent = "";
    worst.append(element("h3", {}, "The ten worst links"), table(["from", "to", ...link_measures.map((each) => each.name)],
      variant.links.slice(0, 10).map((link) =>
        [link.from, link.to, ...link_measures.map((each) => each.text(link[each.key]))]), 2));
    return () => draw(variant);
  };
  const [choice, update] = chooser("Show", drawn, draw);
  measures.addEventListener("change", update);
  section("links", "The links", choice, element("label", {}, "Colour by ", measures), canvas,
    element("div", {class: "scale"}, "0", scale, most), worst,
    element("p", {class: "faint"}, "A link holds frames up while it is paused, and while the frames queued before it leave. " +
      "The worst links are those that did so for longest."));
  update();
}

function show_losses() {
  const heads = [data.what, ...data.losses.heads];
  section("losses", "What each " + data.what + " lost its time to", table(heads, data.losses.rows, 1),
    ...data.losses.notes.map((note) => element("p", {}, note)));
}

function show_settings() {
  const parts = data.variants.map((variant) =>
    hidden(variant.name === "" ? "settings" : variant.name + (variant.title === "" ? "" : ": " + variant.title),
      element("pre", {}, variant.settings)));
  section("settings", "All settings", element("p", {class: "faint"},
    "What is not named here has its default, which scenarios/reference.toml gives."), ...parts);
}

show_header();
show_summary();
show_time();
show_losses();
show_completions();
show_timeline();
show_links();
show_settings();

function redraw() {
  for (const each of redraws) each();
}
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
let width = document.documentElement.clientWidth;
window.addEventListener("resize", () => {
  if (document.documentElement.clientWidth === width) return;
  width = document.documentElement.clientWidth;
  redraw();
});
