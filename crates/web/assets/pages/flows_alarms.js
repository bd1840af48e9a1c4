// Alarms about flows: what is too much now, what was of late, and the hosts that neighbors are asked to discard.

import { html } from "../vendor/htm-preact.js";
import { count, counted, words } from "../format.js";
import { Empty } from "../parts/notice.js";
import { State } from "../parts/state.js";
import { Table } from "../parts/table.js";

/** Events on the page; the API has the latest 1,000. */
const EVENTS_MAX = 100;

const ACTIVE_COLUMNS = [
  { id: "rule", head: "Rule", cell: ({ rule }) => html`<${State} kind="bad">${rule}<//>` },
  { id: "of", head: "What", mono: true, wrap: true, cell: ({ key, of: value }) => `${key} ${value}` },
  { id: "peak", head: "At most", num: true, cell: ({ peak }) => count(peak) },
  { id: "measure", head: "Measure" },
  { id: "since", head: "Since", mono: true },
];

const EVENT_COLUMNS = [
  { id: "at", head: "Time", mono: true },
  {
    id: "event",
    head: "Event",
    cell: ({ event }) => html`<${State} kind=${event === "raised" ? "bad" : "good"}>${event}<//>`,
  },
  { id: "rule", head: "Rule" },
  { id: "of", head: "What", mono: true, wrap: true, cell: ({ key, of: value }) => `${key} ${value}` },
  { id: "value", head: "Value", num: true, cell: ({ value }) => count(value) },
  { id: "threshold", head: "Above", num: true, cell: ({ threshold }) => count(threshold) },
  { id: "measure", head: "Measure" },
];

const RULE_COLUMNS = [
  { id: "rule", head: "Rule" },
  { id: "active", head: "Active", num: true, cell: ({ active }) => count(active) },
  { id: "raised", head: "Raised", num: true, cell: ({ raised }) => count(raised) },
  { id: "ended", head: "Ended", num: true, cell: ({ ended }) => count(ended) },
];

const BLACKHOLE_COLUMNS = [
  { id: "prefix", head: "Host", mono: true },
  { id: "rule", head: "Rule" },
  { id: "until", head: "Until", mono: true },
];

/** What is too much now. */
export const Active = ({ alarms }) => html`<${Table} caption="Active alarms" columns=${ACTIVE_COLUMNS}
  rows=${alarms.active} keyOf=${({ rule, of: value }) => `${rule} ${value}`} sort="-since" />`;

/** What alarms could not see or tell; nothing if there is nothing. */
function Missed({ counters, webhook }) {
  const missed = Object.entries(counters).filter(([, number]) => number > 0);
  const lost = webhook ? webhook.given_up + webhook.dropped : 0;
  return html`
    ${missed.length > 0 && html`<p><${State} kind="warn">Missed: ${missed.map(([name, number]) => `${count(number)} ${words(name)}`).join(", ")}<//></p>`}
    ${webhook && html`<p>The web server accepted ${counted(webhook.accepted, "event")}; ${count(lost)} did not reach it${webhook.error ? `: ${webhook.error}` : ""}.</p>`}`;
}

export function Alarms({ alarms }) {
  const { events, rules, counters, webhook, blackholes = [] } = alarms;
  if (rules.length === 0) {
    return html`<section class="card"><h2>Alarms</h2><${Empty}
      title="No rule for alarms">A section <code>[[alarms]]</code> says what is too much (docs/alarms.md).<//></section>`;
  }
  const latest = events.slice(-EVENTS_MAX).reverse();
  return html`
    <div class="two">
      <section class="card"><${Table} caption="Alarms by rule" note="since the start" columns=${RULE_COLUMNS} rows=${rules}
        keyOf=${({ rule }) => rule} /><${Missed} counters=${counters} webhook=${webhook} /></section>
      <section class="card"><${Table} caption="Blackholes" note="hosts announced with the community BLACKHOLE"
        columns=${BLACKHOLE_COLUMNS} rows=${blackholes} keyOf=${({ prefix }) => prefix} sort="prefix"
        empty=${html`<${Empty} title="No host is a blackhole"><code>blackhole</code> of a rule has neighbors discard what floods a host.<//>`} /></section>
    </div>
    <section class="card"><${Table} caption="Latest alarms" note=${latest.length < events.length ? `the latest ${EVENTS_MAX}` : null}
      columns=${EVENT_COLUMNS} rows=${latest} keyOf=${({ at, rule, of: value, event }) => `${at} ${rule} ${value} ${event}`}
      empty=${html`<${Empty} title="No alarm yet">None was raised since the start.<//>`} /></section>`;
}
