"use strict";
/* Draws the state that the controls describe. Points come from the grid in the file, or from the server of the page. */

const DATA = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const make = (tag, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
};

/* ---- numbers with units ---- */
const digits = (x) => Number(x.toPrecision(3)).toString();
const scaled = (x, units) => {
  const [size, unit] = units.find(([size]) => Math.abs(x) >= 0.9995 * size) || units[units.length - 1];
  return `${digits(x / size)} ${unit}`;
};
const time = (s) => (s === 0 ? "0" : scaled(s, [[3600, "h"], [60, "min"], [1, "s"], [1e-3, "ms"], [1e-6, "us"], [1e-9, "ns"]]));
const rate = (bytes) => scaled(8 * bytes, [[1e12, "Tb/s"], [1e9, "Gb/s"], [1e6, "Mb/s"], [1e3, "kb/s"], [1, "b/s"]]);
const size = (bytes) => (bytes === 0 ? "0" : scaled(bytes, [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]]));
const written = (axis, x) => (axis.what === "bandwidth" ? rate(x) : axis.what === "latency" ? time(x) : `${digits(x)} x`);

/* ---- state, and the link that holds it ---- */
const axes = DATA.axes; // {key, kind, what, low, high, nominal, values|null}
const axisOf = Object.fromEntries(axes.map((axis) => [axis.key, axis]));
const state = { ranks: DATA.first_ranks, variant: "", values: {}, chosen: {}, axis: axes[0].key, measure: "speedup", traced: null };
for (const axis of axes) state.values[axis.key] = axis.nominal;
for (const family of DATA.families) state.chosen[family.name] = 0;

function readLink() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const [key, value] of given) {
    const number = Number(value);
    if (key in axisOf && Number.isFinite(number)) state.values[key] = nearest(axisOf[key], number);
    else if (key === "ranks" && DATA.ranks.includes(number)) state.ranks = number;
    else if (key === "variant" && DATA.variants.includes(value)) state.variant = value;
    else if (key === "axis" && value in axisOf) state.axis = value;
    else if (key === "measure" && ["speedup", "epoch"].includes(value)) state.measure = value;
    else if (key === "traced" && DATA.methods.includes(value)) state.traced = value;
    else if (key.startsWith("m.")) {
      const family = DATA.families.find((found) => found.name === key.slice(2));
      const index = family ? family.methods.indexOf(value) : -1;
      if (index >= 0) state.chosen[family.name] = index;
    }
  }
}
function writeLink() {
  const link = new URLSearchParams();
  if (DATA.ranks.length > 1) link.set("ranks", state.ranks);
  if (state.variant) link.set("variant", state.variant);
  for (const axis of axes) if (state.values[axis.key] !== axis.nominal) link.set(axis.key, state.values[axis.key]);
  for (const family of DATA.families)
    if (family.methods.length > 1) link.set("m." + family.name, family.methods[state.chosen[family.name]]);
  link.set("axis", state.axis);
  link.set("measure", state.measure);
  if (state.traced) link.set("traced", state.traced);
  history.replaceState(null, "", "#" + link);
}
const nearest = (axis, x) =>
  axis.values ? axis.values.reduce((a, b) => (Math.abs(Math.log(b / x)) < Math.abs(Math.log(a / x)) ? b : a)) : x;
const shownMethods = () => DATA.families.map((family) => family.methods[state.chosen[family.name]]);

/* ---- where points come from ---- */
const gridKey = (s) => [s.ranks, s.variant, ...axes.filter((axis) => axis.values).map((axis) => axis.values.indexOf(s.values[axis.key]))].join("|");
const fromFile = {
  point: async (s) => DATA.grid[gridKey(s)],
  curve: async (s, axis) => axis.values.map((x) => [x, DATA.grid[gridKey({ ...s, values: { ...s.values, [axis.key]: x } })]]),
  timeline: async (s, method) => (DATA.timelines[gridKey(s)] || {})[method] || null,
  ratios: async (s) => between(DATA.drawn.at, DATA.drawn.ratios[`${s.ranks}|${s.variant}`] || {}, s.values[DATA.drawn.axis]),
};
/* ratios of epochs to predicted ones at x, linear in the logarithms between the values at which they were drawn */
function between(places, drawn, x) {
  let above = places.findIndex((place) => place >= x);
  if (above < 0) above = places.length - 1;
  const below = Math.max(0, above - (above > 0 && places[above] > x ? 1 : 0));
  const share = above === below ? 0 : Math.log(x / places[below]) / Math.log(places[above] / places[below]);
  return Object.fromEntries(Object.entries(drawn).map(([method, at]) => [method, at[below].map((r, i) => r ** (1 - share) * at[above][i] ** share)]));
}
function asked(s) {
  const links = {};
  for (const axis of axes)
    if (axis.kind && s.values[axis.key] !== axis.nominal) (links[axis.kind] ||= {})[axis.what] = s.values[axis.key];
  return { ranks: s.ranks, variant: s.variant, speed: s.values.speed ?? 1, links };
}
async function ask(what, parameters) {
  const reply = await fetch(`${what}?${new URLSearchParams(parameters)}`);
  const found = await reply.json();
  if (!reply.ok) throw new Error(found.error);
  return found;
}
const fromServer = {
  point: (s) => ask("point", { state: JSON.stringify(asked(s)) }),
  curve: (s, axis) => ask("curve", { state: JSON.stringify(asked(s)), axis: axis.key }),
  timeline: (s, method) => ask("timeline", { state: JSON.stringify(asked(s)), method }),
  ratios: (s) => ask("ratios", { state: JSON.stringify(asked(s)) }),
};
const source = DATA.served ? fromServer : fromFile;

/* ---- controls ---- */
const outputs = {};
function slider(legend, axis) {
  const discrete = axis.values !== null;
  const [low, high] = discrete ? [0, axis.values.length - 1] : [Math.log10(axis.low), Math.log10(axis.high)];
  const input = make("input", { type: "range", id: axis.key, min: low, max: high, step: discrete ? 1 : (high - low) / 200 });
  const output = make("output", { htmlFor: axis.key });
  const show = () => {
    const x = state.values[axis.key];
    input.value = discrete ? axis.values.indexOf(x) : Math.log10(x);
    output.textContent = written(axis, x);
    input.setAttribute("aria-valuetext", output.textContent);
  };
  input.addEventListener("input", () => {
    const place = Number(input.value);
    state.values[axis.key] = discrete ? axis.values[place] : Number((10 ** place).toPrecision(4));
    show();
    changed();
  });
  outputs[axis.key] = show;
  return make("div", { className: "row" }, make("label", { htmlFor: axis.key }, legend, output), input);
}
function choice(legend, id, options, labels, get, set) {
  const select = make("select", { id });
  options.forEach((option, i) => select.append(make("option", { value: i, textContent: labels[i] })));
  select.addEventListener("change", () => { set(options[Number(select.value)]); changed(); });
  outputs[id] = () => { select.value = options.indexOf(get()); };
  return make("div", { className: "row" }, make("label", { htmlFor: id }, legend), select);
}
function optionSlider(family) {
  const id = "m." + family.name;
  const input = make("input", { type: "range", id, min: 0, max: family.methods.length - 1, step: 1 });
  const output = make("output", { htmlFor: id });
  outputs[id] = () => {
    input.value = state.chosen[family.name];
    output.textContent = family.labels[state.chosen[family.name]];
    input.setAttribute("aria-valuetext", output.textContent);
  };
  input.addEventListener("input", () => { state.chosen[family.name] = Number(input.value); outputs[id](); changed(); });
  return make("div", { className: "row" }, make("label", { htmlFor: id }, family.name, output), input);
}
function group(legend, ...rows) {
  return make("fieldset", {}, make("legend", { textContent: legend }), ...rows);
}
function buildControls() {
  const controls = at("controls");
  controls.addEventListener("submit", (event) => event.preventDefault());
  const kinds = [...new Set(axes.filter((axis) => axis.kind).map((axis) => axis.kind))];
  for (const kind of kinds)
    controls.append(group(`${kind} links`, ...axes.filter((axis) => axis.kind === kind).map((axis) => slider(axis.what, axis))));
  const where = [];
  if ("speed" in axisOf) where.push(slider("speed of compute and its host", axisOf.speed));
  if (DATA.ranks.length > 1) where.push(choice("ranks", "ranks", DATA.ranks, DATA.ranks, () => state.ranks, (x) => { state.ranks = x; }));
  if (DATA.variants.length > 1)
    where.push(choice("device and library", "variant", DATA.variants, DATA.variants.map((label) => label || DATA.cluster), () => state.variant, (x) => { state.variant = x; }));
  if (where.length) controls.append(group("devices", ...where));
  const options = DATA.families.filter((family) => family.methods.length > 1);
  if (options.length) controls.append(group("methods", ...options.map(optionSlider)));
  const reset = make("button", { type: "button", textContent: "reset" });
  reset.addEventListener("click", () => {
    for (const axis of axes) state.values[axis.key] = axis.nominal;
    Object.assign(state, { ranks: DATA.first_ranks, variant: "" });
    for (const family of DATA.families) state.chosen[family.name] = 0;
    refresh();
    changed();
  });
  const csv = make("button", { type: "button", textContent: "CSV" });
  csv.addEventListener("click", () => download("what-if.csv", new Blob([asCsv()], { type: "text/csv" })));
  const png = make("button", { type: "button", textContent: "PNG" });
  png.addEventListener("click", () => Plotly.downloadImage(at("epoch"), { format: "png", width: 1000, height: 500, filename: "what-if" }));
  const link = make("button", { type: "button", textContent: "copy link" });
  link.addEventListener("click", async () => { await navigator.clipboard.writeText(location.href); link.textContent = "copied"; });
  controls.append(group("", reset, csv, png, link));
}
function refresh() { Object.values(outputs).forEach((show) => show()); }
function download(name, blob) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
}

/* ---- charts ---- */
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const layout = (more) => ({
  paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: css("--ink"), size: 13 },
  margin: { l: 10, r: 10, t: 10, b: 40 }, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, traceorder: "normal" }, ...more,
});
const grid = (more) => ({ gridcolor: css("--line"), zerolinecolor: css("--line"), automargin: true, ...more });
const CONFIG = { responsive: true, displayModeBar: false };
const unitOf = (s) => [[60, "min"], [1, "s"], [1e-3, "ms"], [1e-6, "us"]].find(([size]) => s >= size) || [1e-6, "us"];
let rows = []; // of the state on the screen
const asCsv = () => {
  const names = ["method", "ranks", "variant", ...axes.map((axis) => axis.key), "epoch_seconds", ...DATA.components.map((c) => c + "_seconds"), "hidden_seconds", "bytes_per_epoch", "fits"];
  const quoted = (text) => (/[",\n]/.test(text) ? `"${String(text).replaceAll('"', '""')}"` : text);
  const lines = rows.map((row) => [row.method, state.ranks, state.variant, ...axes.map((axis) => state.values[axis.key]), row.seconds.epoch, ...DATA.components.map((c) => row.seconds[c]), row.seconds.hidden, row.bytes, row.too_large ? "no" : "yes"]);
  return [names, ...lines].map((line) => line.map(quoted).join(",")).join("\n") + "\n";
};

/* the central 90 % of drawn values, as numpy.quantile has it */
function ends(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return [0.05, 0.95].map((share) => {
    const place = share * (sorted.length - 1), low = Math.floor(place);
    return sorted[low] + (place - low) * ((sorted[low + 1] ?? sorted[low]) - sorted[low]);
  });
}
/* interval of an epoch, and of how many times as fast one row is as another, from draw to draw; null without draws */
const spanOf = (row, drawn) => (drawn[row.method] ? ends(drawn[row.method].map((r) => r * row.seconds.epoch)) : null);
const gainOf = (fast, slow, drawn) =>
  drawn[fast.method] && drawn[slow.method]
    ? ends(drawn[fast.method].map((r, i) => (drawn[slow.method][i] * slow.seconds.epoch) / (r * fast.seconds.epoch)))
    : null;

function drawEpoch(found, drawn) {
  const shown = shownMethods();
  rows = shown.map((method) => found.find((row) => row.method === method));
  const [factor, unit] = unitOf(Math.max(...rows.map((row) => row.seconds.epoch)));
  const names = rows.map((row) => row.method);
  const traces = DATA.components.filter((name) => rows.some((row) => row.seconds[name] > 0)).map((name) => ({
    type: "bar", orientation: "h", name, y: names, x: rows.map((row) => row.seconds[name] / factor),
    marker: { color: DATA.colours[name], line: { color: css("--ink"), width: 0.4 } },
    hovertemplate: `%{y}: ${name} %{x:.3g} ${unit}<extra></extra>`,
  }));
  const spans = rows.map((row) => spanOf(row, drawn));
  if (spans.every((span) => span))
    traces.push({
      type: "scatter", mode: "markers", name: "90 %", y: names, x: rows.map((row) => row.seconds.epoch / factor),
      marker: { size: 1, color: css("--ink") }, hoverinfo: "skip",
      error_x: {
        type: "data", symmetric: false, thickness: 2, width: 7, color: css("--ink"),
        array: spans.map(([, high], i) => (high - rows[i].seconds.epoch) / factor),
        arrayminus: spans.map(([low], i) => (rows[i].seconds.epoch - low) / factor),
      },
    });
  Plotly.react("epoch", traces, layout({ barmode: "stack", height: 120 + 42 * names.length, xaxis: grid({ title: { text: `one epoch (${unit})` }, rangemode: "tozero" }), yaxis: grid({ autorange: "reversed" }) }), CONFIG);
  const best = Math.min(...rows.map((row) => row.seconds.epoch));
  const used = DATA.components.filter((name) => rows.some((row) => row.seconds[name] > 0));
  const head = make("tr", {}, ...["method", "epoch", "90 %", "speed-up", ...used, "hidden", "bytes", "fits"].map((text) => make("th", { textContent: text, scope: "col" })));
  const lines = rows.map((row, at) => {
    const cells = [row.method, time(row.seconds.epoch), spans[at] ? spans[at].map(time).join(" to ") : "-", `${(rows[0].seconds.epoch / row.seconds.epoch).toFixed(2)} x`, ...used.map((name) => time(row.seconds[name])), time(row.seconds.hidden), size(row.bytes), row.too_large ? "no" : "yes"];
    const line = make("tr", {}, ...cells.map((text) => make("td", { textContent: text })));
    line.dataset.method = row.method;
    line.dataset.epoch = row.seconds.epoch;
    if (spans[at]) line.dataset.interval = spans[at].join(" ");
    if (row.seconds.epoch === best) line.children[1].className = "best";
    if (row.too_large) line.lastChild.title = row.too_large;
    return line;
  });
  at("numbers").replaceChildren(make("thead", {}, head), make("tbody", {}, ...lines));
  const fastest = rows.find((row) => row.seconds.epoch === best);
  at("said").textContent = saidOf(fastest, drawn);
}
/* "the fastest" is said only where the intervals of all speed-ups allow it */
function saidOf(fastest, drawn) {
  const one = `${fastest.method}: ${time(fastest.seconds.epoch)} an epoch`;
  const rest = rows.filter((row) => row !== fastest);
  if (!rest.length) return `${one}.`;
  const gains = rest.map((row) => gainOf(fastest, row, drawn));
  if (gains.some((gain) => gain === null)) return `${one}, the shortest predicted one (without intervals).`;
  const level = rest.filter((_, i) => gains[i][0] <= 1);
  if (level.length) return `${one}, which cannot be told apart from ${level.map((row) => row.method).join(", ")} (90 %).`;
  const first = rest.includes(rows[0]) ? gains[rest.indexOf(rows[0])] : null;
  const gain = first ? `, ${first.map((x) => digits(x)).join(" to ")} times as fast as ${rows[0].method} (90 %)` : "";
  return `${fastest.method} is the fastest: ${time(fastest.seconds.epoch)} an epoch${gain}.`;
}

function drawCurve(axis, points) {
  const shown = shownMethods();
  const lines = shown.map((method) => points.map(([, found]) => found.find((row) => row.method === method).seconds.epoch));
  const xs = points.map(([x]) => x);
  const scale = axis.what === "bandwidth" ? 8e-9 : axis.what === "latency" ? 1e6 : 1;
  const unit = axis.what === "bandwidth" ? "Gb/s" : axis.what === "latency" ? "us" : "x";
  const speedup = state.measure === "speedup";
  const traces = lines.map((ys, i) => ({
    type: "scatter", mode: "lines+markers", name: shown[i], x: xs.map((x) => x * scale),
    y: ys.map((y, k) => (speedup ? lines[0][k] / y : y)), line: { color: DATA.lines[i % DATA.lines.length], width: 2 },
    marker: { symbol: ["circle", "square", "diamond", "triangle-up", "x", "star"][i % 6], size: 7 },
    text: ys.map(time), hovertemplate: `${shown[i]}: %{text}<extra>%{x:.3g} ${unit}</extra>`,
  }));
  const here = state.values[axis.key] * scale;
  Plotly.react("curve", traces, layout({
    height: 360,
    xaxis: grid({ type: "log", title: { text: `${axis.label} (${unit})` }, dtick: "D2" }),
    yaxis: grid({ title: { text: speedup ? `speed-up over ${shown[0]}` : "epoch (s)" }, type: speedup ? "linear" : "log" }),
    shapes: [{ type: "line", x0: here, x1: here, yref: "paper", y0: 0, y1: 1, line: { dash: "dot", color: css("--soft") } }],
  }), CONFIG);
  at("crossings").replaceChildren(...crossings(axis, xs, shown, lines).map((textContent) => make("li", { textContent })));
}
function crossings(axis, xs, names, lines) {
  const said = [];
  for (let a = 0; a < names.length; a++)
    for (let b = a + 1; b < names.length; b++)
      for (let k = 1; k < xs.length; k++) {
        const before = lines[a][k - 1] - lines[b][k - 1], after = lines[a][k] - lines[b][k];
        if (before * after >= 0) continue;
        const [first, second] = before < 0 ? [a, b] : [b, a];
        said.push(`the curve of ${names[first]} is the shorter one beside ${names[second]} up to a crossing between ${written(axis, xs[k - 1])} and ${written(axis, xs[k])}, and the longer one above it`);
      }
  if (!said.length && names.length > 1) {
    const best = names.filter((_, i) => lines.every((other) => other.every((y, k) => lines[i][k] <= y)));
    said.push(best.length ? `no crossing: the curve of ${best[0]} is the shortest everywhere in the range` : "no crossing in the range");
  }
  return said;
}

function drawTimeline(found) {
  at("timeline").hidden = !found;
  at("timeline-note").textContent = found ? "" : "This point's timeline is not in the file; `haloscope serve` draws every point.";
  if (!found) { Plotly.purge("timeline"); at("topology").replaceChildren(); at("busiest").textContent = ""; return; }
  const [factor, unit] = unitOf(found.seconds);
  const order = { compute: 0, communication: 1, background: 2, copy: 3 };
  const lanes = [...new Set(found.spans.map((span) => `${span[0]}|${span[1]}`))].sort((a, b) => {
    const [r, s] = a.split("|"), [q, t] = b.split("|");
    return r - q || order[s] - order[t];
  });
  const lane = (span) => `rank ${span[0]} ${span[1]}`;
  const traces = DATA.components.map((name) => [name, found.spans.filter((span) => span[2] === name)]).filter(([, spans]) => spans.length).map(([name, spans]) => ({
    type: "bar", orientation: "h", name, y: spans.map(lane), base: spans.map((span) => span[4] / factor), x: spans.map((span) => (span[5] - span[4]) / factor),
    marker: { color: DATA.colours[name] }, text: spans.map((span) => `${span[3]}${span[6] ? ", " + size(span[6]) : ""}`), textposition: "none",
    hovertemplate: `%{y}: %{text}, %{x:.3g} ${unit}<extra></extra>`,
  }));
  Plotly.react("timeline", traces, layout({ barmode: "overlay", height: 110 + 24 * lanes.length, xaxis: grid({ title: { text: `${unit} since the epoch began` } }), yaxis: grid({ autorange: "reversed", categoryorder: "array", categoryarray: lanes.map((l) => `rank ${l.replace("|", " ")}`) }) }), CONFIG);
  drawTopology(found);
}

/* The hosts, their devices and adapters; a line's width and colour is its load, the busiest is labelled. */
function drawTopology(found) {
  const loads = Object.entries(found.load).filter(([, share]) => share > 0).sort((a, b) => b[1] - a[1]);
  if (!loads.length) {
    at("busiest").textContent = "No link carries anything.";
    at("topology").replaceChildren();
    return;
  }
  const [busiest, share] = loads[0];
  at("busiest").textContent = `${busiest} is in use ${digits(100 * share)} % of the epoch` + (loads[1] ? `; next is ${loads[1][0]} with ${digits(100 * loads[1][1])} %.` : ".");
  const hostOf = (name) => Number((/^host(\d+)/.exec(name) || [])[1] ?? found.hosts[Number((/^rank(\d+)/.exec(name) || [])[1])] ?? -1);
  const hosts = [...new Set(found.hosts)];
  const busy = hostOf(busiest);
  const shown = hosts.length <= 4 ? hosts : [...new Set([...hosts.slice(0, 3), busy >= 0 ? busy : hosts[3]])];
  const kinds = (host) => {
    const most = {};
    for (const [name, load] of loads) if (hostOf(name) === host) {
      const kind = name.replace(/^(host|rank)\d+\./, "").replace(/\.(tx|rx|up|down)$/, "").replace(/\d+/g, "").replace(/^device\./, "");
      if (!(kind in most)) most[kind] = [name, load];
    }
    return Object.entries(most);
  };
  const width = 200, most = Math.max(...shown.map((host) => Math.min(6, kinds(host).length))), height = 66 + 19 * most, space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", `0 0 ${shown.length * width + 20} ${height + 40}`);
  svg.setAttribute("width", shown.length * width + 20);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", at("busiest").textContent);
  const add = (tag, properties, text) => {
    const made = document.createElementNS(space, tag);
    for (const [key, value] of Object.entries(properties)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    svg.append(made);
  };
  const colour = (load) => DATA.heat[Math.min(DATA.heat.length - 1, Math.floor(load * DATA.heat.length))];
  add("line", { x1: 20, x2: shown.length * width, y1: 26, y2: 26, stroke: css("--soft"), "stroke-width": 2 });
  const between = loads.filter(([name]) => hostOf(name) < 0)[0];
  add("text", { x: 22, y: 18 }, `network${between ? `: ${between[0]} ${digits(100 * between[1])} %` : ""}${shown.length < hosts.length ? ` (${shown.length} of ${hosts.length} hosts drawn)` : ""}`);
  shown.forEach((host, i) => {
    const x = 20 + i * width, links = kinds(host);
    const nic = links.find(([kind]) => kind.startsWith("nic"));
    add("line", { x1: x + 85, x2: x + 85, y1: 26, y2: 66, stroke: nic ? colour(nic[1][1]) : css("--soft"), "stroke-width": nic ? 2 + 10 * nic[1][1] : 1 });
    add("rect", { x, y: 66, width: width - 30, height: height - 30, rx: 8, fill: "none", stroke: host === busy ? css("--ink") : css("--line"), "stroke-width": host === busy ? 2.5 : 1 });
    const ranks = found.hosts.flatMap((where, rank) => (where === host ? [rank] : []));
    add("text", { x: x + 8, y: 84 }, `host ${host}: ` + (ranks.length > 2 ? `ranks ${ranks[0]} to ${ranks[ranks.length - 1]}` : `rank ${ranks.join(", ")}`));
    links.slice(0, 6).forEach(([kind, [name, load]], k) => {
      add("text", { x: x + 8, y: 102 + 19 * k, "font-weight": name === busiest ? 700 : 400 }, `${kind} ${digits(100 * load)} %`);
      add("rect", { x: x + 8, y: 105 + 19 * k, width: Math.max(1, (width - 46) * load), height: 5, fill: colour(load) });
    });
  });
  at("topology").replaceChildren(svg);
}

function drawAccuracy() {
  const shown = shownMethods();
  const fitting = DATA.scores.filter((run) => run.ranks === state.ranks && shown.includes(run.method));
  at("accuracy-section").hidden = !fitting.length;
  if (!fitting.length) return;
  const traces = fitting.map((run) => {
    const seconds = rows.find((row) => row.method === run.method).seconds.epoch;
    return { type: "scatter", mode: "lines", name: run.method, x: run.epochs.map((epoch) => epoch * seconds), y: run.scores.map((score) => 100 * score), line: { color: DATA.lines[shown.indexOf(run.method) % DATA.lines.length], width: 2 } };
  });
  Plotly.react("accuracy", traces, layout({ height: 320, xaxis: grid({ title: { text: "seconds of training" }, rangemode: "tozero" }), yaxis: grid({ title: { text: `test ${DATA.score} (%)` } }) }), CONFIG);
}

/* ---- a change of state: the newest wins ---- */
let turn = 0, waiting = null;
function changed() {
  writeLink();
  clearTimeout(waiting);
  waiting = setTimeout(draw, DATA.served ? 80 : 0);
}
async function draw() {
  const mine = ++turn, now = structuredClone(state);
  const axis = axisOf[now.axis];
  const traced = now.traced && shownMethods().includes(now.traced) ? now.traced : shownMethods()[0];
  try {
    const found = await source.point(now);
    if (mine !== turn) return;
    if (DATA.served) drawEpoch(found, {}); // intervals take longer
    const drawn = await source.ratios(now);
    if (mine !== turn) return;
    drawEpoch(found, drawn);
    drawAccuracy();
    const options = shownMethods().map((method) => make("option", { value: method, textContent: method, selected: method === traced }));
    at("traced").replaceChildren(...options);
    const timeline = await source.timeline(now, traced);
    if (mine !== turn) return;
    drawTimeline(timeline);
    const points = await source.curve(now, axis);
    if (mine !== turn) return;
    drawCurve(axis, points);
    document.body.dataset.drawn = String(mine);
  } catch (error) {
    at("said").replaceChildren(make("span", { className: "failed", textContent: `Not drawn: ${error.message}` }));
  }
}

function start() {
  readLink();
  at("title").textContent = DATA.title;
  at("caption").textContent = DATA.caption;
  at("notes").replaceChildren(...DATA.notes.map((textContent) => make("li", { textContent })));
  buildControls();
  for (const axis of axes) at("axis").append(make("option", { value: axis.key, textContent: axis.label }));
  at("axis").value = state.axis;
  at("measure").value = state.measure;
  at("axis").addEventListener("change", () => { state.axis = at("axis").value; changed(); });
  at("measure").addEventListener("change", () => { state.measure = at("measure").value; changed(); });
  at("traced").addEventListener("change", () => { state.traced = at("traced").value; changed(); });
  addEventListener("hashchange", () => { readLink(); refresh(); draw(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  refresh();
  draw();
}
start();
