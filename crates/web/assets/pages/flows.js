// Flows: the largest, over time, and how they go from one key to the next.

import { html, useEffect, useState } from "../vendor/htm-preact.js";
import { useAnswer } from "../api.js";
import { otherFilter, otherKey, withTest } from "../filter.js";
import { bytes, count, counted, format, share } from "../format.js";
import { setQuery } from "../location.js";
import { Answer, Empty } from "../parts/notice.js";
import { Plot } from "../parts/plot.js";
import { Sankey } from "../parts/sankey.js";
import { Stat } from "../parts/stat.js";
import { Table } from "../parts/table.js";
import { Active, Alarms } from "./flows_alarms.js";
import { Controls, FOLLOW_S, question } from "./flows_question.js";

const UNITS = {
  bytes: { total: bytes, rate: "bps", factor: 8 },
  packets: { total: count, rate: "pps", factor: 1 },
  flows: { total: count, rate: "count", factor: 1 },
};

const field = (key) => key.replaceAll("-", "_");
const named = (value) => (value === null || value === undefined ? "unknown" : String(value));

function Top({ answer, keys, by, filter }) {
  const add = (key, value) => {
    const next = withTest(filter, key, value);
    return next
      ? html`<button class="button plain mono" title=${`Only ${key} ${value}`}
        onClick=${() => setQuery({ ...current(), filter: next })}>${named(value)}</button>`
      : named(value);
  };
  const amount = (row) => row[by];
  const columns = [
    ...keys.map((key) => ({ id: field(key), head: key, cell: (row) => add(key, row[field(key)]) })),
    { id: "bytes", head: "Bytes", num: true, cell: (row) => bytes(row.bytes) },
    { id: "packets", head: "Packets", num: true, cell: (row) => count(row.packets) },
    { id: "flows", head: "Records", num: true, cell: (row) => count(row.flows) },
    {
      id: "share",
      head: "Share",
      num: true,
      value: amount,
      cell: (row) => html`${share(amount(row), answer.total[by])}
      <span class="share" aria-hidden="true"><span
        style=${{ width: `${(100 * amount(row)) / Math.max(1, answer.total[by])}%` }}></span></span>`,
    },
  ];
  return html`<section class="card"><${Table} caption=${`Top ${keys.join(", ")}`}
    note=${`${count(answer.keys)} different`} columns=${columns} rows=${answer.rows} sort=${`-${by}`}
    keyOf=${(row) => keys.map((key) => row[field(key)]).join(" ")} /></section>`;
}

/** The parameters in force, for links that change one of them. */
const current = () => Object.fromEntries(new URLSearchParams(window.location.hash.split("?")[1] ?? ""));

/** A graph's answer as lines. Steps that are not complete would look like a fall: they are left out. */
function lines(answer, keys, by, below, hues) {
  const { factor } = UNITS[by];
  const per = by === "flows" ? 1 : answer.step_s;
  const partial = new Set(answer.incomplete_steps);
  return answer.series.map(({ key, steps }) => {
    const label = key ? keys.map((each) => named(key[field(each)])).join(", ") : "others";
    if (!hues.has(label)) hues.set(label, hues.size);
    const values = steps.map((sums, at) => (partial.has(at) && steps.length > 2 ? null : (sums[by] * factor) / per));
    return { label, values, below, hue: hues.get(label) };
  });
}

function Graph({ asked, query, stacked, both, round }) {
  const { by, key, n, filter, span } = asked;
  const there = useAnswer("flows/graph", { key, by, n, filter, ...span }, round);
  const back = useAnswer(
    both ? "flows/graph" : null,
    { key: otherKey(key), by, n, filter: otherFilter(filter), ...span },
    round,
  );
  const zoom = (from, to) =>
    setQuery({ ...query, from: String(Math.floor(from)), to: String(Math.ceil(to)), last: "" });
  const show = (answer) => {
    const length = answer.series[0]?.steps.length ?? 0;
    if (length === 0) return html`<${Nothing} filter=${filter} />`;
    const begin = Date.parse(answer.from) / 1000;
    const times = Array.from({ length }, (_, at) => begin + at * answer.step_s);
    const hues = new Map();
    const drawn = lines(answer, key.split(",").filter(Boolean), by, false, hues);
    // The other direction has steps of its own: they are put on ours, by their time.
    const other =
      both && back.value?.series.length
        ? lines(back.value, otherKey(key).split(",").filter(Boolean), by, true, hues)
        : [];
    const shift = other.length ? Math.round((begin - Date.parse(back.value.from) / 1000) / answer.step_s) : 0;
    const placed = other.map((line) => ({
      ...line,
      label: `${line.label} (back)`,
      values: times.map((_, at) => line.values[at + shift] ?? null),
    }));
    return html`<${Plot} title=${`${by} by ${key}, over time`}
      note=${`a point each ${counted(answer.step_s, "second")}; drag to zoom`} unit=${UNITS[by].rate} stacked=${stacked}
      times=${times} series=${[...drawn, ...placed]} onZoom=${zoom} height=${320} />`;
  };
  return html`<${Answer} answer=${there} what="Reading records" show=${show} />`;
}

function Nothing({ filter }) {
  return html`<${Empty} title="No records">${filter ? "No record of this time matches the filter." : "No record of this time. Flows are stored when they end or after their active timeout; choose a longer time."}<//>`;
}

function Answered({ asked, answer }) {
  const keys = asked.key.split(",").filter(Boolean);
  const unit = UNITS[asked.by];
  const show = (value) => {
    if (value.total.flows === 0) return html`<${Nothing} filter=${asked.filter} />`;
    const amount = (row) => row[asked.by];
    return html`
      <div class="stats">
        <${Stat} label="Bytes" value=${bytes(value.total.bytes)} />
        <${Stat} label="Packets" value=${format("count", value.total.packets)} />
        <${Stat} label="Records" value=${count(value.total.flows)}
          note=${`${count(value.scanned.cached_records)} of them still in the cache`} />
      </div>
      ${
        asked.view === "sankey" &&
        (keys.length > 1
          ? html`<section class="card"><header><h2>${`${asked.by} from ${keys[0]} to ${keys.at(-1)}`}</h2></header>
            <${Sankey} label=${`Sankey diagram of ${keys.join(", ")}; its numbers are in the table below`}
              rows=${value.rows} keys=${keys.map(field)} amount=${amount} show=${unit.total} /></section>`
          : html`<${Empty} title="A Sankey diagram needs two keys">Choose a second one above.<//>`)
      }
      <${Top} answer=${value} keys=${keys} by=${asked.by} filter=${asked.filter} />`;
  };
  return html`<${Answer} answer=${answer} what="Reading records" show=${show} />`;
}

export function Flows({ live, place }) {
  const asked = question(place.query);
  const words = useAnswer("flows/words").value;
  const [follow, setFollow] = useState(false);
  const [round, setRound] = useState(0);
  const { key, by, n, filter, span } = asked;
  const isGraph = asked.view === "graph";
  const answer = useAnswer(
    isGraph ? null : "flows/top",
    { key, by, n: asked.view === "sankey" ? Math.max(n, 20) : n, filter, ...span },
    round,
  );
  const ask = () => setRound((n) => n + 1);
  useEffect(() => {
    if (!follow) return undefined;
    const timer = setInterval(ask, FOLLOW_S * 1000);
    return () => clearInterval(timer);
  }, [follow]);
  const cache = live.reports.flows?.item;
  if (live.absent.flows && answer.problem?.isAbsent) {
    return html`<h1>Flows</h1><${Empty}
      title="This router keeps no flow records">A section <code>[flows]</code> with a <code>store</code> folder makes it keep them (docs/flows.md).<//>`;
  }
  const seen = (test) => [
    ...new Set(
      (answer.value?.rows ?? [])
        .map((row) => row[field(test)])
        .filter((value) => value !== null && value !== undefined),
    ),
  ];
  return html`
    <div class="head"><h1>Flows</h1>${cache && html`<p>${count(cache.flows)} in the cache; ${count(cache.records_lost)} records lost</p>`}</div>
    ${cache?.alarms.active.length > 0 && html`<section class="card"><${Active} alarms=${cache.alarms} /></section>`}
    <${Controls} asked=${asked} query=${place.query} words=${words} seen=${seen} follow=${follow} setFollow=${setFollow}
      reload=${ask} />
    <div class="stack">${
      isGraph
        ? html`<${Graph} round=${round} asked=${asked} query=${place.query} stacked=${place.query.lines !== "1"}
          both=${place.query.back === "1"} />`
        : html`<${Answered} asked=${asked} answer=${answer} />`
    }</div>
    ${cache && html`<${Alarms} alarms=${cache.alarms} /><${Outlets} cache=${cache} />`}`;
}

const OUTLET_COLUMNS = [
  { id: "to", head: "Records go to", mono: true },
  { id: "records", head: "Arrived", num: true, cell: ({ records }) => count(records) },
  { id: "waiting", head: "On their way", num: true, cell: ({ waiting }) => count(waiting) },
  {
    id: "lost",
    head: "Lost",
    num: true,
    value: ({ lost }) => Object.values(lost).reduce((a, b) => a + b, 0),
    cell: ({ lost }) =>
      Object.entries(lost)
        .map(([reason, n]) => `${count(n)} ${reason}`)
        .join(", ") || "0",
  },
  { id: "error", head: "Error", wrap: true, cell: ({ error }) => error ?? "" },
];

const COLLECTOR_COLUMNS = [
  { id: "to", head: "Samples go to", mono: true },
  { id: "records", head: "Of packets", num: true, cell: ({ records }) => count(records) },
  { id: "counter_samples", head: "Of counters", num: true, cell: (row) => count(row.counter_samples) },
  { id: "interfaces_uncounted", head: "Ports not counted", num: true, cell: (row) => count(row.interfaces_uncounted) },
  ...OUTLET_COLUMNS.filter(({ id }) => id === "lost" || id === "error"),
];

const Outlets = ({ cache }) => {
  const collectors = cache.outlets.filter(({ sflow }) => sflow);
  const others = cache.outlets.filter(({ sflow }) => !sflow);
  const samples = html`<section class="card"><${Table} caption="Collectors of sFlow" columns=${COLLECTOR_COLUMNS}
    rows=${collectors} keyOf=${({ to }) => to} /></section>`;
  const records = html`<section class="card"><${Table} caption="Collectors and datasets" columns=${OUTLET_COLUMNS}
    rows=${others} keyOf=${({ to }) => to}
    empty=${html`<${Empty} title="Records go nowhere">Name a <code>store</code> or collectors in <code>[flows]</code>.<//>`} /></section>`;
  return html`${collectors.length > 0 && samples}${(others.length > 0 || collectors.length === 0) && records}`;
};
