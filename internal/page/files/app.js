// The page: polls /status once a second and shows it. A number that stands in
// /status is shown in an element whose data-key is its path there.
import {Chart} from "./chart.js";
import {bridge, worker} from "./views.js";
import {age, byId, element, number, since} from "./text.js";

const POLL = 1000, TIMEOUT = 5000;
let view = null, before = null, charts = [], lost = null, gap = false;

const poll = async () => {
  try {
    const response = await fetch("status", {cache: "no-store", signal: AbortSignal.timeout(TIMEOUT)});
    if (!response.ok) throw new Error(`status ${response.status}`);
    show(await response.json());
    lost = null;
    connection("live", `up ${age(uptime(before))}`);
  } catch {
    lost ??= Date.now();
    gap = true;
    connection("lost", `no answer for ${age((Date.now() - lost) / 1000)}, trying again`);
  }
  setTimeout(poll, POLL);
};

const connection = (state, text) => {
  const target = byId("connection");
  target.dataset.state = state;
  target.textContent = text;
};

const uptime = (status) => since(status.process.started, status.process.now);

const show = (status) => {
  const chosen = status.partitions ? bridge : worker;
  if (view !== chosen) { // the first time, or another process took the port
    view = chosen; before = null;
    byId("charts").replaceChildren();
    charts = view.charts.map((options) => new Chart(byId("charts"), options));
  }
  const restarted = before !== null && before.process.started !== status.process.started;
  const {rate, lately} = rates(status, restarted);
  document.title = `${view.name} · ${status.pipeline} · Quiesce`;
  byId("process").textContent = `Quiesce ${view.name}`;
  byId("pipeline").textContent = status.pipeline;
  byId("version").textContent = `version ${status.version}, process ${status.process.pid}`;
  const notices = view.notices(status).toSorted(([a], [b]) => (b === "bad") - (a === "bad"));
  byId("notices").replaceChildren(...notices.map(([level, text]) =>
    element("p", {className: "notice", textContent: text, dataset: {level}})));
  byId("tiles").replaceChildren(...view.tiles(status).map(tile));
  const meters = view.meters(status, rate);
  const bounds = byId("bounds");
  bounds.hidden = meters.length === 0;
  bounds.querySelector("h2").textContent = view.bounds.title;
  bounds.querySelector(".hint").textContent = view.bounds.hint;
  byId("meters").replaceChildren(...meters.map(meter));
  partitions(status);
  dependencies(status);
  counters(status.metrics);
  const at = Date.parse(status.process.now) / 1000;
  view.sample(status, rate, lately).forEach((values, i) => charts[i].add({at, values, restarted, gap}));
  before = status; gap = false;
};

const tile = ({label, key, value, note = "", level = ""}) => element("div", {className: "tile", dataset: {level}}, [
  element("div", {className: "label", textContent: label}),
  element("div", {className: "value", textContent: value, dataset: {key}}),
  element("div", {className: "note", textContent: note}),
]);

const meter = ({label, key, value, limit, format = number, calm = false}) => {
  const share = limit > 0 ? Math.min(1, value / limit) : 0;
  const level = calm ? "" : share >= 1 ? "bad" : share >= .8 ? "warn" : "";
  const bar = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const fill = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  fill.setAttribute("width", `${share * 100}%`);
  fill.setAttribute("height", "8");
  bar.append(fill);
  return element("div", {className: "meter", dataset: {level}}, [
    element("span", {textContent: label}),
    element("div", {className: "track"}, [bar]),
    element("span", {className: "amount"}, [element("b", {textContent: format(value), dataset: {key}}), ` of ${format(limit)}`]),
  ]);
};

const partitions = (status) => {
  const list = status.partitions ?? [];
  byId("partitions").hidden = list.length === 0;
  const topics = new Set(list.map((p) => p.topic));
  byId("topic").textContent = topics.size === 1 ? ` of ${list[0].topic}` : "";
  rows("#partitions tbody", list.map((p) => {
    const state = p.stopped ? "stopped" : p.paused ? "paused" : "reading";
    const oldest = p.oldest_uncommitted ? age(since(p.oldest_uncommitted, status.process.now)) : "–";
    const name = topics.size > 1 ? `${p.topic}/${p.partition}` : `${p.partition}`;
    return {dataset: {partition: `${p.topic}/${p.partition}`, state}, title: p.stopped ?? "", cells: [
      name, state, number(p.watermark), p.end_offset < 0 ? "–" : number(p.end_offset), number(p.lag), number(p.uncommitted), oldest,
    ]};
  }));
};

const dependencies = (status) => {
  const list = status.dependencies ?? [];
  byId("dependencies").hidden = list.length === 0;
  rows("#dependencies tbody", list.map((d) => ({
    dataset: {dependency: d.name, state: d.error ? "stopped" : "reading"},
    cells: [d.name, d.error ? `out for ${age(since(d.out_since, status.process.now))}` : "answers", d.at],
  })));
};

// rows shows one row for each of the list, and leaves alone what has not changed:
// text that somebody is marking must stay marked.
const rows = (selector, list) => {
  const body = document.querySelector(selector);
  while (body.rows.length > list.length) body.deleteRow(-1);
  list.forEach(({dataset, title = "", cells}, i) => {
    const row = body.rows[i] ?? body.insertRow();
    Object.assign(row.dataset, dataset);
    if (row.title !== title) row.title = title;
    cells.forEach((text, j) => {
      const cell = row.cells[j] ?? row.insertCell();
      if (cell.textContent !== text) cell.textContent = text;
    });
  });
};

const counters = ({counts, gauges, timings}) => {
  const list = [
    ...Object.entries(counts).map(([name, value]) => [name, number(value)]),
    ...Object.entries(gauges).map(([name, value]) => [name, number(value)]),
    ...Object.entries(timings).map(([name, t]) => [name, `${number(t.count)} × p50 ${age(t.p50_seconds)}, p99 ${age(t.p99_seconds)}`]),
  ].sort(([a], [b]) => a < b ? -1 : 1);
  rows("#counters tbody", list.map((cells) => ({dataset: {counter: cells[0]}, cells})));
};

// Rates are over some seconds, so that single events do not look like spikes.
const RATE_OVER = 5, LATELY = 60;
let recent = [];

const rates = (status, restarted) => {
  const at = Date.parse(status.process.now) / 1000, counts = status.metrics.counts;
  if (restarted) recent = []; // it counts from zero again
  recent.push({at, counts});
  while (recent.length > 2 && recent[1].at <= at - LATELY) recent.shift();
  const first = recent[0], near = recent.findLast((r) => r.at <= at - RATE_OVER) ?? first;
  const grown = (name, from) => at > from.at ? (counts[name] ?? 0) - (from.counts[name] ?? 0) : null;
  return {
    rate: (name) => at > near.at ? grown(name, near) / (at - near.at) : null,
    lately: (name) => grown(name, first),
  };
};

poll();
