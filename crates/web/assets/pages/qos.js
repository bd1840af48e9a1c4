// QoS: queues of classes at egress ports, policers, access lists.

import { html } from "../vendor/htm-preact.js";
import { useAnswer } from "../api.js";
import { bitRate, count, micros, share } from "../format.js";
import { go } from "../location.js";
import { Answer, Empty, Waiting } from "../parts/notice.js";
import { Plot } from "../parts/plot.js";
import { Table } from "../parts/table.js";
import { SPAN_S } from "./overview.js";

const QUEUE_COLUMNS = [
  { id: "port", head: "Port" },
  { id: "class", head: "Class" },
  {
    id: "rate",
    head: "Rate",
    num: true,
    value: ({ rates }) => rates?.bits_per_s,
    cell: ({ rates }) => bitRate(rates?.bits_per_s),
  },
  { id: "sent", head: "Sent", num: true, cell: ({ sent }) => count(sent) },
  { id: "waiting", head: "Waiting", num: true, cell: ({ waiting }) => count(waiting) },
  {
    id: "dropped_full",
    head: "Full",
    num: true,
    cell: ({ dropped_full: dropped }) => count(dropped),
    hint: "Dropped because the queue was full",
  },
  {
    id: "dropped_managed",
    head: "Managed",
    num: true,
    cell: ({ dropped_managed: dropped }) => count(dropped),
    hint: "Dropped by active queue management (CoDel)",
  },
  { id: "marked", head: "Marked", num: true, cell: ({ marked }) => count(marked), hint: "ECN marks instead of drops" },
  { id: "sojourn_p50_us", head: "Median wait", num: true, cell: (queue) => micros(queue.sojourn_p50_us) },
  {
    id: "sojourn_p99_us",
    head: "99%",
    num: true,
    cell: (queue) => micros(queue.sojourn_p99_us),
    hint: "99% waited at most this long",
  },
  {
    id: "sojourn_p999_us",
    head: "99.9%",
    num: true,
    cell: (queue) => micros(queue.sojourn_p999_us),
    hint: "99.9% waited at most this long",
  },
];

const POLICER_COLUMNS = [
  { id: "class", head: "Class" },
  { id: "committed_bps", head: "Committed", num: true, cell: ({ committed_bps: rate }) => bitRate(rate) },
  { id: "peak_bps", head: "Peak", num: true, cell: ({ peak_bps: rate }) => bitRate(rate) },
  { id: "green", head: "Green", num: true, cell: ({ green }) => count(green) },
  { id: "yellow", head: "Yellow", num: true, cell: ({ yellow }) => count(yellow) },
  { id: "red", head: "Red", num: true, cell: ({ red }) => count(red) },
  {
    id: "part",
    head: "Red of all",
    num: true,
    value: red,
    cell: (row) => share(row.red, row.green + row.yellow + row.red),
  },
  {
    id: "red_action",
    head: "Red packets are",
    cell: ({ red_action: action }) => (action === "drop" ? "dropped" : "remarked"),
  },
];

function red(row) {
  return row.red / Math.max(1, row.green + row.yellow + row.red);
}

const ACL_COLUMNS = [
  { id: "list", head: "List" },
  { id: "rule", head: "Rule" },
  { id: "action", head: "Action" },
  { id: "packets", head: "Packets", num: true, cell: ({ packets }) => count(packets) },
  { id: "bytes", head: "Bytes", num: true, cell: ({ bytes }) => count(bytes) },
  { id: "ports", head: "Where", cell: where },
];

function where({ ports_in: incoming, ports_out: outgoing }) {
  const parts = [incoming.length && `into ${incoming.join(", ")}`, outgoing.length && `out of ${outgoing.join(", ")}`];
  return parts.filter(Boolean).join("; ") || "nowhere";
}

function Queues({ live, place }) {
  const queues = live.reports.queues?.items;
  if (live.absent.queues) return html`<${Empty} title="No queues">${live.absent.queues}<//>`;
  if (!queues) return html`<${Waiting} />`;
  if (queues.length === 0) {
    return html`<${Empty} title="No port has a queue of its own">A section <code>[[qos.egress]]</code> with a port and a rate makes one (docs/qos.md).<//>`;
  }
  const ports = [...new Set(queues.map(({ port }) => port))];
  const port = ports.includes(place.rest[0]) ? place.rest[0] : ports[0];
  const history = live.history("queues");
  const lines = (what) =>
    queues
      .filter((queue) => queue.port === port)
      .map((queue) => ({ label: queue.class, values: history.column(`${port} ${queue.class} ${what}`) }));
  const choose = (name) =>
    html`<button type="button" aria-pressed=${String(name === port)}
      onClick=${() => go("qos", [name])}>${name}</button>`;
  return html`
    ${ports.length > 1 && html`<div><span class="choices" role="group"
      aria-label="Port">${ports.map(choose)}</span></div>`}
    <${Plot} title=${`Output of ${port} by class`} unit="bps" stacked span_s=${SPAN_S} times=${history.times}
      series=${lines("bits")} />
    <div class="two">
      <${Plot} title=${`Packets waiting at ${port}`} unit="count" span_s=${SPAN_S} times=${history.times}
        series=${lines("waiting")} height=${170} />
      <${Plot} title=${`Drops at ${port}`} unit="pps" span_s=${SPAN_S} times=${history.times} series=${lines("drops")}
        height=${170} />
    </div>
    <section class="card"><${Table} caption="Queues" note="rates over the last five seconds; waits since the start"
      columns=${QUEUE_COLUMNS} rows=${queues} keyOf=${(queue) => `${queue.port} ${queue.class}`} /></section>`;
}

export function Qos({ live, place }) {
  const [policers, lists] = [useAnswer("policers"), useAnswer("acl")];
  return html`
    <div class="head"><h1>QoS</h1><p>what waits, what is shaped, what is refused</p></div>
    <${Queues} live=${live} place=${place} />
    <section class="card"><${Answer} answer=${policers} show=${({
      items,
    }) => html`<${Table} caption="Policers" columns=${POLICER_COLUMNS} rows=${items} keyOf=${(row) => row.class}
      empty=${html`<${Empty} title="No class has a policer">Give a class a <code>policer</code> in <code>[[qos.classes]]</code>.<//>`} />`} /></section>
    <section class="card"><${Answer} answer=${lists} show=${({
      items,
    }) => html`<${Table} caption="Access lists" columns=${ACL_COLUMNS} rows=${items}
      keyOf=${(row) => `${row.list} ${row.rule}`}
      empty=${html`<${Empty} title="No access lists">Write one as <code>[[acl]]</code>, and name it in a port's <code>acl_in</code> (docs/acl.md).<//>`} />`} /></section>`;
}
