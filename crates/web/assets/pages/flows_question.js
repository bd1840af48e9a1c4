// The question that the page of flows asks: view, keys, measure, time, filter. All of it is in the page's address.

import { html, useEffect, useState } from "../vendor/htm-preact.js";
import { complete } from "../filter.js";
import { clock } from "../format.js";
import { setQuery } from "../location.js";
import { Combo } from "../parts/combo.js";

const VIEWS = [
  ["top", "Top"],
  ["graph", "Over time"],
  ["sankey", "Sankey"],
];
const KEYS = { top: "src", graph: "app", sankey: "src,app,dst" };
const METRICS = ["bytes", "packets", "flows"];
const SPANS = [
  ["5m", "5 minutes"],
  ["15m", "15 minutes"],
  ["1h", "hour"],
  ["6h", "6 hours"],
  ["1d", "day"],
  ["7d", "week"],
];
const COUNTS = [5, 10, 20, 50];
/** Seconds between questions while the reader follows. */
export const FOLLOW_S = 10;

/** The question that the address and its defaults make. */
export function question(query) {
  const view = VIEWS.some(([id]) => id === query.view) ? query.view : "top";
  const by = METRICS.includes(query.by) ? query.by : "bytes";
  const span = query.from ? { from: query.from, to: query.to } : { last: query.last ?? "1h" };
  return { view, by, key: query.key ?? KEYS[view], n: Number(query.n) || 10, filter: query.filter ?? "", span };
}

function Choices({ label, options, value, choose }) {
  const button = ([id, name]) =>
    html`<button type="button" aria-pressed=${String(id === value)} onClick=${() => choose(id)}>${name}</button>`;
  return html`<span class="choices" role="group" aria-label=${label}>${options.map(button)}</span>`;
}

/** Selects one to three keys. */
function KeyFields({ keys, known, change }) {
  const select = (at) => html`<label class="field"><span>${at === 0 ? "Group by" : "and by"}</span>
    <select value=${keys[at] ?? ""}
      onChange=${(event) => change(Object.assign([...keys], { [at]: event.target.value }).filter(Boolean))}>
      ${at > 0 && html`<option value="">nothing else</option>`}${known.map((key) => html`<option
        value=${key}>${key}</option>`)}
    </select></label>`;
  return [0, 1, 2].filter((at) => at <= keys.length).map(select);
}

export function Controls({ asked, query, words, seen, follow, setFollow, reload }) {
  const [filter, setFilter] = useState(asked.filter);
  useEffect(() => setFilter(asked.filter), [asked.filter]);
  const change = (next) => setQuery({ ...query, ...next });
  const keys = asked.key.split(",").filter(Boolean);
  const zoomed =
    asked.span.from &&
    html`<div class="field"><span>Time</span><button class="button"
      onClick=${() => change({ from: "", to: "" })}>${clock(asked.span.from)} to ${clock(asked.span.to)}: zoom out</button></div>`;
  return html`<section class="card" aria-label="Question">
    <div class="actions">
      <${Choices} label="View" options=${VIEWS} value=${asked.view} choose=${(view) => change({ view, key: "" })} />
      <${Choices} label="Measured in" options=${METRICS.map((each) => [each, each === "flows" ? "records" : each])}
        value=${asked.by} choose=${(by) => change({ by })} />
    </div>
    <div class="fields">
      <${KeyFields} keys=${keys} known=${words?.keys ?? keys} change=${(next) => change({ key: next.join(",") })} />
      <label class="field"><span>How many</span><select value=${asked.n}
        onChange=${(event) => change({ n: event.target.value })}>${COUNTS.map((n) => html`<option
        value=${n}>${n}</option>`)}</select></label>
      ${
        zoomed ||
        html`<label class="field"><span>The last</span><select value=${asked.span.last}
          onChange=${(event) => change({ last: event.target.value })}>
        ${SPANS.map(([id, name]) => html`<option value=${id}>${name}</option>`)}</select></label>`
      }
      <div class="field grow"><span>Filter</span><${Combo} id="filter" label="Filter" value=${filter}
        placeholder="src net 10.0.0.0/8 and proto tcp" onInput=${setFilter}
        suggest=${(text) => complete(text, words, seen)} onChoose=${({ value }) => setFilter(value)}
          onEnter=${(text) => change({ filter: text.trim() })} /></div>
      <div class="actions"><button class="button main"
        onClick=${() => (filter.trim() === asked.filter ? reload() : change({ filter: filter.trim() }))}>Ask</button></div>
    </div>
    <div class="fields">
      <label class="check"><input type="checkbox" checked=${follow}
        onChange=${() => setFollow(!follow)} />ask again every ${FOLLOW_S} s</label>
      ${
        asked.view === "graph" &&
        html`
        <label class="check"><input type="checkbox" checked=${query.lines !== "1"}
          onChange=${() => change({ lines: query.lines === "1" ? "" : "1" })} />stacked</label>
        <label class="check"><input type="checkbox" checked=${query.back === "1"}
          onChange=${() => change({ back: query.back === "1" ? "" : "1" })} />other direction below zero</label>`
      }
    </div>
  </section>`;
}
