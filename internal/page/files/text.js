// How values are written, and the little that is needed to build elements.
export const byId = (id) => document.getElementById(id);

export const element = (name, {dataset = {}, ...properties} = {}, children = []) => {
  const made = Object.assign(document.createElement(name), properties);
  for (const [key, value] of Object.entries(dataset)) if (value !== undefined) made.dataset[key] = value;
  made.append(...children);
  return made;
};

const whole = new Intl.NumberFormat("en-US", {maximumFractionDigits: 2});

export const number = (value) => whole.format(value);

export const percent = (share) => `${(100 * share).toFixed(1)} %`;

// age writes seconds as 850 ms, 12.3 s, 4 min 5 s or 3 h 2 min.
export const age = (seconds) => {
  const s = Math.max(0, seconds);
  if (s < 1) return s === 0 ? "0 s" : `${Math.round(s * 1000)} ms`;
  if (s < 60) return `${s.toFixed(1)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  return `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min`;
};

// since is the time from one instant to another, in seconds; both as in /status.
export const since = (from, to) => (Date.parse(to) - Date.parse(from)) / 1000;

export const clock = (instant) => new Date(instant).toLocaleTimeString("en-GB");

export const bytes = (value) => {
  const unit = [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]].find(([, size]) => value >= size);
  return unit ? `${number(value / unit[1])} ${unit[0]}` : `${number(value)} B`;
};
