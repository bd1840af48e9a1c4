// NAT: how full it is, whose sessions they are, who owns which block of ports.

import { html, useState } from "../vendor/htm-preact.js";
import { useAnswer } from "../api.js";
import { age, count, words } from "../format.js";
import { setQuery } from "../location.js";
import { Answer, Empty } from "../parts/notice.js";
import { Plot } from "../parts/plot.js";
import { Stat } from "../parts/stat.js";
import { Table } from "../parts/table.js";
import { SPAN_S } from "./overview.js";

/** Sessions asked for at once: a browser is no place for a million. */
const LIMIT = 500;

const SESSION_COLUMNS = [
  { id: "protocol", head: "Protocol" },
  { id: "inside", head: "Inside", mono: true },
  { id: "public", head: "Public", mono: true },
  { id: "remote", head: "First went to", mono: true },
  { id: "state", head: "State" },
  { id: "idle_s", head: "Idle", num: true, cell: ({ idle_s: seconds }) => age(seconds) },
  {
    id: "remaining_s",
    head: "Ends in",
    num: true,
    cell: ({ remaining_s: seconds }) => (seconds === null ? "never" : age(seconds)),
  },
  { id: "packets_out", head: "Packets out", num: true, cell: ({ packets_out: packets }) => count(packets) },
  { id: "packets_in", head: "Packets in", num: true, cell: ({ packets_in: packets }) => count(packets) },
];

const BLOCK_COLUMNS = [
  { id: "inside", head: "Subscriber", mono: true },
  { id: "public", head: "Public", mono: true },
  { id: "first", head: "Ports", num: true, cell: ({ first, last }) => `${first} to ${last}` },
  { id: "tcp", head: "TCP", num: true, cell: ({ tcp }) => count(tcp) },
  { id: "udp", head: "UDP", num: true, cell: ({ udp }) => count(udp) },
  { id: "icmp", head: "ICMP", num: true, cell: ({ icmp }) => count(icmp) },
];

const FIELDS = [
  ["inside", "Inside host", "10.1.0.23"],
  ["public", "Public address", "198.51.100.1"],
  ["port", "Public port", "40000"],
  ["protocol", "Protocol", "tcp"],
];

function Sessions({ query }) {
  const [typed, setTyped] = useState(query);
  const sessions = useAnswer("nat/sessions", { ...query, limit: LIMIT });
  const submit = (event) => {
    event.preventDefault();
    setQuery(typed);
  };
  const field = ([name, label, example]) => html`<label class="field"><span>${label}</span>
    <input name=${name} value=${typed[name] ?? ""} placeholder=${example}
      onInput=${(event) => setTyped({ ...typed, [name]: event.target.value.trim() })} /></label>`;
  const isAll = Object.values(query).every((value) => !value);
  return html`<section class="card">
    <form class="fields" onSubmit=${submit} aria-label="Select sessions">${FIELDS.map(field)}
      <div class="actions"><button class="button main">Select</button>
        ${
          !isAll &&
          html`<button type="button" class="button" onClick=${() => {
            setTyped({});
            setQuery({});
          }}>All</button>`
        }
        <button type="button" class="button" onClick=${sessions.reload}>Ask again</button></div>
    </form>
    <${Answer} answer=${sessions} show=${({
      items,
      cursor,
    }) => html`<${Table} caption="Sessions"
      note=${cursor || items.length === LIMIT ? `the first ${LIMIT}: select more narrowly for others` : null}
      columns=${SESSION_COLUMNS} rows=${items} keyOf=${(session) => `${session.protocol} ${session.inside} ${session.public}`} sort="-packets_out"
      empty=${html`<${Empty} title="No session">${isAll ? "The first packet from inside makes one." : "None matches the selection."}<//>`} />`} />
  </section>`;
}

function Counters({ view }) {
  const rows = Object.entries(view.counters).map(([name, value]) => ({ name: words(name), value }));
  const columns = [
    { id: "name", head: "Counter" },
    { id: "value", head: "Value", num: true, cell: ({ value }) => count(value) },
  ];
  return html`<section class="card"><${Table} caption="Counters" note="since the start" columns=${columns} rows=${rows}
    keyOf=${({ name }) => name} /></section>`;
}

export function Nat({ live, place }) {
  const [counters, blocks] = [useAnswer("nat/counters"), useAnswer("nat/blocks", { limit: LIMIT })];
  const nat = live.reports.status?.item.nat;
  const history = live.history("status");
  if (counters.problem?.isAbsent) {
    return html`<h1>NAT</h1><${Empty}
      title="This router translates nothing">A section <code>[nat]</code> with <code>outside</code> and <code>inside</code> makes it translate (docs/nat.md).<//>`;
  }
  const view = live.reports.nat?.item ?? counters.value;
  return html`
    <div class="head"><h1>NAT</h1></div>
    ${
      nat &&
      html`<div class="stats">
      <${Stat} label="Sessions" value=${count(nat.sessions)} note=${`of ${count(nat.sessions_max)}`}
        part=${nat.sessions / nat.sessions_max} />
      <${Stat} label="Free" value=${count(nat.sessions_max - nat.sessions)} note="sessions that still fit"
        bad=${nat.sessions >= nat.sessions_max * 0.9} />
    </div>`
    }
    <${Plot} title="Sessions" unit="count" span_s=${SPAN_S} times=${history.times}
      series=${[{ label: "sessions", values: history.column("nat sessions") }]} height=${180} />
    <${Sessions} key=${JSON.stringify(place.query)} query=${place.query} />
    <div class="two">
      ${view && html`<${Counters} view=${view} />`}
      <section class="card"><${Answer} answer=${blocks} show=${({
        items,
      }) => html`<${Table} caption="Blocks of public ports" columns=${BLOCK_COLUMNS} rows=${items}
        keyOf=${(block) => `${block.public} ${block.first}`} sort="inside"
        empty=${html`<${Empty} title="No blocks">Deterministic NAT gives each subscriber blocks of ports (docs/nat.md).<//>`} />`} /></section>
    </div>`;
}
