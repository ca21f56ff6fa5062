// What each of the two processes knows, and how it is put on the page.
import {age, bytes, number, percent} from "./text.js";

const count = (status, name) => status.metrics.counts[name] ?? 0;
const saved = (changes, calls) => changes > 0 ? Math.max(0, 1 - calls / changes) : 0;
const perSecond = (value, axis) => axis ? number(value) : `${value.toFixed(1)}/s`;
const seconds = (value, axis) => axis ? `${number(value)} s` : age(value);

// Each view has notices, tiles and meters of a status, the charts it draws, and
// sample: one list of values for each chart. rate(name) is a counter's rate per
// second over the last seconds, null where it is not known yet.
export const bridge = {
  name: "bridge",

  notices(s) {
    const notices = s.partitions.filter((p) => p.stopped).map((p) => ["bad", `${p.topic}/${p.partition} is stopped: ${p.stopped}`]);
    if (s.dispatch.last_error) notices.push(["bad", `Temporal: ${s.dispatch.last_error}`]);
    if (s.paused_partitions > 0) notices.push(["warn", `${s.paused_partitions} of ${s.partitions.length} partitions are paused: a bound is reached. Fetching resumes below 80 % of it.`]);
    if (s.partitions.length === 0) notices.push(["warn", "No partition is assigned to this bridge: other members of the group have them all, or it is still joining."]);
    return notices;
  },

  tiles(s) {
    const changes = count(s, "bridge.records{change}"), signals = count(s, "bridge.signals");
    return [
      {label: "Changes taken in", key: "changes", value: number(changes), note: "since this process started"},
      {label: "Signals sent", key: "metrics.counts.bridge.signals", value: number(signals), note: `${percent(saved(changes, signals))} of changes shared one`},
      {label: "Pending changes", key: "uncommitted", value: number(s.uncommitted), note: "not yet covered by a call"},
      {label: "Oldest pending", key: "oldest_uncommitted_seconds", value: s.uncommitted > 0 ? age(s.oldest_uncommitted_seconds) : "–", note: "since the change"},
      {label: "Watermark lag", key: "lag", value: number(s.lag), note: "settling changes included"},
      {label: "Runs watched", key: "watched_runs", value: number(s.watched_runs), note: "open syncs in Temporal"},
      {label: "Dead letters", key: "dead_letters", value: number(count(s, "bridge.dead_letters{accepted}")), note: "no account in the record", level: count(s, "bridge.dead_letters{error}") > 0 ? "bad" : ""},
    ];
  },

  bounds: {title: "Bounds", hint: "Where work is held back instead of piling up. At a limit fetching pauses; nothing is dropped."},

  meters: (s) => [
    {label: "Buffer: changes", key: "buffer_records", value: s.buffer_records, limit: s.bounds.buffer_records},
    {label: "Buffer: memory", key: "buffer_bytes", value: s.buffer_bytes, limit: s.bounds.buffer_bytes, format: bytes},
    {label: "Uncommitted changes", key: "uncommitted_bound", value: s.uncommitted, limit: s.bounds.max_uncommitted},
    {label: "Executors at work", key: "dispatch.busy", value: s.dispatch.busy, limit: s.bounds.executors},
  ],

  charts: [
    {title: "Changes and signals", hint: "Changes of one account that come close together go to Temporal in one signal.", names: ["changes", "signals"], format: perSecond},
    {title: "Staleness", hint: "How long the oldest change has been waiting for its call. The settle delay is normal.", names: ["oldest pending"], format: seconds},
  ],

  sample: (s, rate) => [
    [rate("bridge.records{change}"), rate("bridge.signals")],
    [s.oldest_uncommitted_seconds],
  ],
};

export const worker = {
  name: "worker",

  notices: (s) => s.breaker.open
    ? [["bad", `Upstream is out (${s.breaker.cause}) since ${new Date(s.breaker.since).toLocaleTimeString()}: one probe every few seconds, the backlog waits in Temporal and nobody is parked.`]]
    : [],

  tiles(s) {
    const changes = count(s, "sync.changes"), calls = count(s, "sync.calls");
    const staleness = s.metrics.timings["sync.staleness"];
    const parked = count(s, "parked.entered");
    return [
      {label: "Changes covered", key: "metrics.counts.sync.changes", value: number(changes), note: "since this process started"},
      {label: "Upstream calls", key: "metrics.counts.sync.calls", value: number(calls), note: `${number(count(s, "sync.skipped"))} syncs needed none`},
      {label: "Calls saved", key: "saved", value: percent(saved(changes, calls)), note: "1 − calls ÷ changes"},
      {label: "Staleness", key: "staleness", value: staleness ? age(staleness.p50_seconds) : "–", note: staleness ? `half below; 99 % below ${age(staleness.p99_seconds)}` : "from change to row"},
      {label: "Parked", key: "parked", value: number(parked), note: "since this process started", level: parked > 0 ? "bad" : ""},
      {label: "Upstream", key: "breaker.open", value: s.breaker.open ? "out" : "answers", level: s.breaker.open ? "bad" : "good", note: `${number(count(s, "sync.outcomes{failed}"))} syncs failed, ${number(count(s, "upstream.throttled"))} throttled`},
    ];
  },

  bounds: {title: "Call budget", hint: "Workers share the fleet's budget by need. When upstream asks for fewer calls it shrinks, and then recovers."},

  meters(s, rate) {
    const fleet = s.metrics.gauges["budget.limit"] ?? s.budget_rps;
    const granted = s.metrics.gauges["budget.leased"] ?? fleet;
    return [
      {label: "Granted to this worker, calls/s", key: "metrics.gauges.budget.leased", value: granted, limit: fleet, calm: true},
      {label: "Used, calls/s", key: "budget_used", value: Math.round(10 * (rate("budget.used") ?? 0)) / 10, limit: granted, calm: true},
    ];
  },

  charts: [
    {title: "Changes and calls", hint: "The gap is what coalescing saves.", names: ["changes", "calls"], format: perSecond},
    {title: "Saved share", hint: "Of all changes since the process started: 1 − calls ÷ changes.", names: ["saved"], format: (v, axis) => axis ? `${100 * v} %` : percent(v), top: 1},
    {title: "Staleness", hint: "From an account's first change to its row; the latest 512 syncs.", names: ["99 % below", "half below"], format: seconds},
  ],

  sample(s, rate) {
    const timing = s.metrics.timings["sync.staleness"];
    return [
      [rate("sync.changes"), rate("sync.calls")],
      [count(s, "sync.changes") > 0 ? saved(count(s, "sync.changes"), count(s, "sync.calls")) : null],
      [timing?.p99_seconds ?? null, timing?.p50_seconds ?? null],
    ];
  },
};
