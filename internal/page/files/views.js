// What each of the two processes knows, and how it is put on the page.
import {age, bytes, clock, number, percent, since} from "./text.js";

const count = (status, name) => status.metrics.counts[name] ?? 0;
const saved = (changes, calls) => changes > 0 ? Math.max(0, 1 - calls / changes) : 0;
const perSecond = (value, axis) => axis ? number(value) : `${value.toFixed(1)}/s`;
const seconds = (value, axis) => axis ? `${number(value)} s` : age(value);

// What the oldest change waits for, by its cause in /status; those that are no
// part of ordinary work are a notice, too, with the detail.
const CAUSES = {
  none: "nothing is pending", settling: "waits until it has settled", signal: "its signal is about to go",
  queue: "waits for a worker's slot", permits: "waits for a permit to call", call: "is being called",
  end_unseen: "is done, about to be committed", dead_letter: "waits for the dead-letter topic",
  temporal: "Temporal does not take it", upstream_out: "upstream or Spanner is out", account_failing: "its account keeps failing",
  workers_absent: "no worker asks for work", run_stuck: "its run is stuck", partition_stopped: "its partition is stopped",
  clock_off: "clocks differ", unknown: "cause not known",
};
const ALARMING = new Set(["temporal", "upstream_out", "workers_absent", "run_stuck", "clock_off"]);

// What is out, or does not get through, whichever process this is.
const surroundings = (s) => [
  ...(s.dependencies ?? []).filter((d) => d.error).map((d) => ["bad", `${d.name} is out since ${clock(d.out_since)} (${d.at}): ${d.error}`]),
  ...(s.metrics.lost_packets > 0 ? [["warn", `${number(s.metrics.lost_packets)} packets of metrics did not reach Datadog's agent.`]] : []),
];

// Each view has notices, tiles and meters of a status, the charts it draws, and
// sample: one list of values for each chart. rate(name) is a counter's rate per
// second over the last seconds, lately(name) what it grew by in the last minute;
// null where it is not known yet.
export const bridge = {
  name: "bridge",

  notices(s) {
    const notices = s.partitions.filter((p) => p.stopped).map((p) => ["bad", `${p.topic}/${p.partition} is stopped: ${p.stopped}`]);
    if (ALARMING.has(s.oldest?.cause)) notices.push(["bad", `The oldest change, of ${age(s.oldest.seconds)} ago, is held up: ${CAUSES[s.oldest.cause]}. ${s.oldest.detail ?? ""}`]);
    if (s.dispatch.last_error) notices.push(["bad", `Temporal: ${s.dispatch.last_error}`]);
    if (s.paused_partitions > 0) notices.push(["warn", `${s.paused_partitions} of ${s.partitions.length} partitions are paused: a bound is reached. Fetching resumes below 80 % of it.`]);
    if (s.partitions.length === 0) notices.push(["warn", "No partition is assigned to this bridge: other members of the group have them all, or it is still joining."]);
    return [...notices, ...surroundings(s)];
  },

  tiles(s) {
    const changes = count(s, "bridge.records{change}"), signals = count(s, "bridge.signals");
    return [
      {label: "Changes taken in", key: "changes", value: number(changes), note: "since this process started"},
      {label: "Signals sent", key: "metrics.counts.bridge.signals", value: number(signals), note: `${percent(saved(changes, signals))} of changes shared one`},
      {label: "Pending changes", key: "uncommitted", value: number(s.uncommitted), note: "not yet covered by a call"},
      {label: "Oldest pending", key: "oldest_uncommitted_seconds", value: s.uncommitted > 0 ? age(s.oldest_uncommitted_seconds) : "–", note: CAUSES[s.oldest?.cause] ?? "since the change"},
      {label: "Watermark lag", key: "lag", value: number(s.lag), note: "records not committed"},
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
    {title: "Changes and signals", hint: "Changes of an account that come close together share a signal. Calls are on the workers' pages.", names: ["changes", "signals"], format: perSecond},
    {title: "Staleness", hint: "How long the oldest change has been waiting for its call. The settle delay is normal.", names: ["oldest pending"], format: seconds},
  ],

  sample: (s, rate) => [
    [rate("bridge.records{change}"), rate("bridge.signals")],
    [s.oldest_uncommitted_seconds],
  ],
};

// The fleet's calls a second, and this worker's part; what is set until the first
// answer of the budget.
const limit = (s) => s.metrics.gauges["budget.limit"] ?? s.budget_rps;
const share = (s) => s.metrics.gauges["budget.leased"] ?? 0;
const whole = (seconds) => age(Math.max(1, Math.round(seconds))).replace(".0", "").replaceAll(" ", "\u00a0");

export const worker = {
  name: "worker",

  notices(s) {
    const notices = [], {waits_until: waits, paused_until: pause, unanswered_since: unanswered} = s.share ?? {};
    if (s.breaker.open) notices.push(["bad", `Upstream is out (${s.breaker.cause}) since ${clock(s.breaker.since)}: one probe every few seconds, the backlog waits in Temporal and nobody is parked.`]);
    // Only the first of these is so: what an answer said that is too old explains nothing.
    const wait = waits ? since(s.process.now, waits) : 0;
    if (unanswered) notices.push(["bad", `No answer from the budget for ${whole(since(unanswered, s.process.now))}: calls have stopped until there is one.`]);
    else if (wait > 0) notices.push(["warn", `The budget is new and grants its first calls in ${age(wait)}: shares of one before it may still be in use.`]);
    else if (pause) notices.push(["warn", `Upstream asked for no calls until ${clock(pause)} (Retry-After).`]);
    else if (limit(s) === 0 && !waits && !s.breaker.open && !s.share?.breaker?.open) notices.push(["warn", "The budget is 0: calls are paused until somebody runs worker budget set."]);
    if (s.parked?.error) notices.push(["warn", `Parked accounts could not be counted: ${s.parked.error}`]);
    // The breaker has said more about upstream than its dependency does.
    return [...notices, ...surroundings({...s, dependencies: (s.dependencies ?? []).filter((d) => d.name !== "upstream" || !s.breaker.open)})];
  },

  tiles(s) {
    const changes = count(s, "sync.changes"), calls = count(s, "sync.calls");
    const staleness = s.metrics.timings["sync.staleness"];
    const parked = s.parked ?? {accounts: 0};
    return [
      {label: "Changes covered", key: "metrics.counts.sync.changes", value: number(changes), note: "since this process started"},
      {label: "Upstream calls", key: "metrics.counts.sync.calls", value: number(calls), note: `${number(count(s, "sync.skipped"))} syncs needed none`},
      {label: "Calls saved", key: "saved", value: percent(saved(changes, calls)), note: "1 − calls ÷ changes"},
      {label: "Staleness", key: "staleness", value: staleness ? age(staleness.p50_seconds) : "–", note: staleness ? `half below; 99 % below ${age(staleness.p99_seconds)}` : "from change to row"},
      {label: "Parked accounts", key: "parked.accounts", value: parked.read_at ? number(parked.accounts) : "–", level: parked.accounts > 0 ? "bad" : "",
        note: parked.read_at ? `of the pipeline, read ${whole(since(parked.read_at, s.process.now))} ago` : "not counted yet"},
      {label: "Upstream", key: "breaker.open", value: s.breaker.open ? "out" : calls > 0 ? "answers" : "–", level: s.breaker.open ? "bad" : calls > 0 ? "good" : "", note: calls === 0 ? "not called yet" : `${number(count(s, "sync.outcomes{failed}"))} syncs failed, ${number(count(s, "upstream.throttled"))} throttled`},
    ];
  },

  bounds: {title: "Call budget now", hint: "In calls a second. Workers share the fleet's budget by need. When upstream asks for fewer calls it shrinks, and then recovers."},

  meters(s, rate) {
    const fleet = limit(s), granted = share(s);
    return [
      {label: "Granted to all workers", key: "share.leased", value: s.share?.leased ?? 0, limit: fleet, calm: true},
      {label: "Granted to this worker", key: "metrics.gauges.budget.leased", value: granted, limit: fleet, calm: true},
      {label: "Used by this worker", key: "budget_used", value: Math.round(10 * (rate("budget.used") ?? 0)) / 10, limit: granted, calm: true},
    ];
  },

  charts: [
    {title: "Changes and calls", hint: "The gap is what coalescing saves.", names: ["changes", "calls"], format: perSecond},
    {title: "Saved share", hint: "1 − calls ÷ changes. The last minute moves with the traffic: bursts save, single changes do not.", names: ["since the start", "last minute"], format: (v, axis) => axis ? `${100 * v} %` : percent(v), top: 1},
    {title: "Staleness", hint: "From an account's first change to its row; the latest 512 syncs.", names: ["99 % below", "half below"], format: seconds},
    {title: "Call budget", hint: "Calls a second: what this worker makes and may make, and what the whole fleet may.", names: ["used", "granted", "fleet"], format: perSecond},
  ],

  sample(s, rate, lately) {
    const timing = s.metrics.timings["sync.staleness"];
    return [
      [rate("sync.changes"), rate("sync.calls")],
      [
        count(s, "sync.changes") > 0 ? saved(count(s, "sync.changes"), count(s, "sync.calls")) : null,
        lately("sync.changes") > 0 ? saved(lately("sync.changes"), lately("sync.calls")) : null,
      ],
      [timing?.p99_seconds ?? null, timing?.p50_seconds ?? null],
      [rate("budget.used"), share(s), limit(s)],
    ];
  },
};
