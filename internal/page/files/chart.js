// A line chart of the last five minutes, drawn as SVG. Samples are
// {at: seconds, values: [..], restarted, gap: bool}; a value of null is a gap, and
// so is what was before a sample that says so.
const SPAN = 300;
// Younger charts show less, so that there is something to see at once: seconds
// shown, and between two labels.
const STEPS = [[30, 10], [60, 15], [120, 30], [SPAN, 60]];
const LEFT = 44, RIGHT = 8, TOP = 8, BOTTOM = 22, HEIGHT = 190;

const svg = (name, attributes, parent) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  parent?.append(element);
  return element;
};

// niceTop is the smallest of 1, 2, 5 x 10^n that holds the value.
export const niceTop = (value) => {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((step) => step * power >= value * 0.999) * power;
};

export class Chart {
  constructor(parent, {title, hint, names, format, top}) {
    this.names = names; this.format = format; this.top = top; this.samples = []; this.hover = null;
    this.card = document.createElement("div");
    this.card.className = "card chart";
    const heading = document.createElement("h2");
    heading.textContent = title;
    const note = document.createElement("p");
    note.className = "hint"; note.textContent = hint;
    this.legend = document.createElement("div");
    this.legend.className = "legend";
    this.labels = names.map((name, i) => {
      const item = document.createElement("span"), mark = document.createElement("i"), value = document.createElement("b");
      mark.className = `series${i}`;
      item.append(mark, `${name} `, value);
      this.legend.append(item);
      return value;
    });
    this.svg = svg("svg", {role: "img", "aria-label": title});
    this.svg.addEventListener("pointermove", (event) => { this.hover = event.offsetX; this.draw(); });
    this.svg.addEventListener("pointerleave", () => { this.hover = null; this.draw(); });
    new ResizeObserver(() => this.draw()).observe(this.svg);
    this.card.append(heading, note, this.legend, this.svg);
    parent.append(this.card);
  }

  add(sample) {
    this.samples.push(sample);
    while (this.samples[0].at < sample.at - SPAN) this.samples.shift();
    this.draw();
  }

  draw() {
    const width = this.svg.clientWidth;
    if (!width || !this.samples.length) return;
    const latest = this.samples.at(-1).at;
    const [span, step] = STEPS.find(([seconds]) => latest - this.samples[0].at <= seconds) ?? STEPS.at(-1);
    const top = this.top ?? niceTop(Math.max(...this.samples.flatMap((s) => s.values.map((v) => v ?? 0))));
    const x = (at) => LEFT + (1 - (latest - at) / span) * (width - LEFT - RIGHT);
    const y = (value) => TOP + (1 - Math.min(1, Math.max(0, value / top))) * (HEIGHT - TOP - BOTTOM);
    this.svg.replaceChildren();
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    for (const share of [0, .5, 1]) {
      const at = y(top * share);
      svg("line", {class: "gridline", x1: LEFT, x2: width - RIGHT, y1: at, y2: at}, this.svg);
      svg("text", {class: "axis", x: LEFT - 8, y: at + 4, "text-anchor": "end"}, this.svg).textContent = this.format(top * share, true);
    }
    for (let ago = 0; ago <= span; ago += width < 420 ? 2 * step : step) {
      svg("text", {class: "axis", x: x(latest - ago), y: HEIGHT - 4, "text-anchor": ago === 0 ? "end" : ago === span ? "start" : "middle"}, this.svg)
        .textContent = ago === 0 ? "now" : ago % 60 ? `−${ago} s` : `−${ago / 60} min`;
    }
    for (const sample of this.samples.filter((s) => s.restarted)) {
      svg("line", {class: "restart", x1: x(sample.at), x2: x(sample.at), y1: TOP, y2: HEIGHT - BOTTOM}, this.svg)
        .append(Object.assign(svg("title", {}), {textContent: "the process was restarted"}));
    }
    this.names.forEach((_, i) => {
      let path = "", areas = "", open = null;
      const close = (last) => { if (open !== null) areas += `L${last} ${y(0)}L${open} ${y(0)}Z`; open = null; };
      let last = 0;
      for (const sample of this.samples) {
        const value = sample.values[i];
        if (sample.restarted || sample.gap) close(last);
        if (value === null || value === undefined || sample.restarted) { close(last); continue; }
        const point = `${x(sample.at).toFixed(1)} ${y(value).toFixed(1)}`;
        path += (open === null ? "M" : "L") + point;
        areas += (open === null ? "M" : "L") + point;
        if (open === null) open = x(sample.at);
        last = x(sample.at);
      }
      close(last);
      if (i === 0) svg("path", {class: "area0", d: areas}, this.svg);
      svg("path", {class: `line series${i}`, d: path}, this.svg);
    });
    let shown = this.samples.at(-1);
    if (this.hover !== null) {
      shown = this.samples.reduce((best, s) => Math.abs(x(s.at) - this.hover) < Math.abs(x(best.at) - this.hover) ? s : best);
      svg("line", {class: "cursor", x1: x(shown.at), x2: x(shown.at), y1: TOP, y2: HEIGHT - BOTTOM}, this.svg);
    }
    this.labels.forEach((label, i) => {
      const value = shown.values[i];
      label.textContent = value === null || value === undefined ? "–" : this.format(value);
      if (value !== null && value !== undefined) svg("circle", {class: `dot series${i}`, cx: x(shown.at), cy: y(value), r: 4}, this.svg);
    });
  }
}
