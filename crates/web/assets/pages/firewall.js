// Firewall: how full it is, what it refuses, what its rules decided, whose connections they are, what its sets hold.

import { html } from "../vendor/htm-preact.js";
import { useAnswer } from "../api.js";
import { age, bitRate, bytes, count, packetRate, words } from "../format.js";
import { Answer, Empty, Waiting } from "../parts/notice.js";
import { Plot } from "../parts/plot.js";
import { Selection } from "../parts/selection.js";
import { Stat } from "../parts/stat.js";
import { Counters, Table } from "../parts/table.js";
import { SPAN_S } from "./overview.js";

/** The counters of refused packets. */
const REFUSED = ["denied", "not_asked", "invalid", "limited", "host_limit", "table_full"];

const zones = (names) => names.join(", ") || "any";

const RULE_COLUMNS = [
  { id: "rule", head: "Rule" },
  { id: "action", head: "Action" },
  { id: "from", head: "From", cell: ({ from }) => zones(from) },
  { id: "to", head: "To", cell: ({ to }) => zones(to) },
  { id: "state", head: "State", cell: ({ state }) => state.join(", ") },
  { id: "packets", head: "Packets", num: true, cell: ({ packets }) => count(packets) },
  { id: "bytes", head: "Bytes", num: true, cell: ({ bytes: number }) => bytes(number) },
  { id: "packets_per_s", head: "Packet rate", num: true, cell: ({ packets_per_s: rate }) => packetRate(rate) },
  { id: "bits_per_s", head: "Rate", num: true, cell: ({ bits_per_s: rate }) => bitRate(rate) },
];

const STATE_COLUMNS = [
  { id: "protocol", head: "Protocol" },
  { id: "source", head: "Source", mono: true },
  { id: "source_vrf", head: "In VRF", hint: "The VRF of the source" },
  { id: "destination", head: "Destination", mono: true },
  { id: "destination_vrf", head: "In VRF", hint: "The VRF of the destination" },
  { id: "from", head: "From" },
  { id: "to", head: "To" },
  { id: "state", head: "State" },
  { id: "rule", head: "Rule", hint: "The rule that admitted it" },
  { id: "age_s", head: "Age", num: true, cell: ({ age_s: seconds }) => age(seconds) },
  { id: "idle_s", head: "Idle", num: true, cell: ({ idle_s: seconds }) => age(seconds) },
  { id: "remaining_s", head: "Ends in", num: true, cell: ({ remaining_s: seconds }) => age(seconds) },
];

const FIELDS = [
  ["source", "Source", "10.1.0.23"],
  ["destination", "Destination", "192.0.2.77"],
  ["destination_port", "Port", "443"],
  ["vrf", "VRF", "main"],
  ["from", "From zone", "lan"],
  ["to", "To zone", "wan"],
  ["protocol", "Protocol", "tcp"],
];

const SET_COLUMNS = [
  { id: "set", head: "Set" },
  { id: "addresses", head: "Addresses", num: true, cell: ({ addresses }) => count(addresses) },
  { id: "ports", head: "Ports", num: true, cell: ({ ports }) => count(ports) },
  { id: "age_s", head: "Read", num: true, cell: ({ age_s: seconds }) => `${age(seconds)} ago` },
  { id: "added", head: "Added", num: true, cell: ({ added }) => count(added), hint: "By the last reload" },
  { id: "removed", head: "Removed", num: true, cell: ({ removed }) => count(removed), hint: "By the last reload" },
  { id: "file", head: "File", mono: true },
];

export function Firewall({ live, place }) {
  const sets = useAnswer("firewall/sets");
  const [view, rules] = [live.reports.firewall?.item, live.reports["firewall-rules"]?.items];
  if (live.absent.firewall) {
    return html`<h1>Firewall</h1><${Empty}
      title="This router has no firewall">A section <code>[firewall]</code> makes it track connections (docs/firewall.md).<//>`;
  }
  const history = live.history("firewall");
  const refused = REFUSED.map((name) => ({ label: words(name), values: history.column(name) }));
  return html`
    <div class="head"><h1>Firewall</h1><p>which connections may begin, and which did</p></div>
    ${view ? html`<${Fill} view=${view} />` : html`<${Waiting} />`}
    <div class="two">
      <${Plot} title="Connections" unit="count" span_s=${SPAN_S} times=${history.times}
        series=${[{ label: "connections", values: history.column("connections") }]} height=${180} />
      <${Plot} title="Refused by reason" unit="pps" span_s=${SPAN_S} times=${history.times} series=${refused}
        height=${180} />
    </div>
    <section class="card">${
      rules
        ? html`<${Table} caption="Rules" note="in their order; packets of connections that a rule admitted, or that it refused"
          columns=${RULE_COLUMNS} rows=${rules} keyOf=${({ rule }) => rule} />`
        : html`<${Waiting} />`
    }</section>
    <${Selection} key=${JSON.stringify(place.query)} path="firewall/states" query=${place.query} fields=${FIELDS}
      caption="Connections" none="The first packet between two zones that a rule or the policy admits makes one."
      columns=${STATE_COLUMNS} sort="idle_s"
      keyOf=${(state) => `${state.protocol} ${state.source} ${state.source_vrf} ${state.destination} ${state.destination_vrf}`} />
    <div class="two">
      ${view && html`<section class="card"><${Counters} counters=${view.counters} /></section>`}
      <section class="card"><${Answer} answer=${sets} show=${({
        items,
      }) => html`<${Table} caption="Sets" columns=${SET_COLUMNS} rows=${items} keyOf=${({ set }) => set} sort="set"
        empty=${html`<${Empty} title="No sets">A section <code>[sets.NAME]</code> names addresses and ports for rules (docs/firewall.md).<//>`} />`} /></section>
    </div>`;
}

function Fill({ view: { counters, states_max: most } }) {
  const { states_active: alive } = counters;
  const refused = REFUSED.reduce((sum, name) => sum + (counters[name] ?? 0), 0);
  return html`<div class="stats">
    <${Stat} label="Connections" value=${count(alive)} note=${`of ${count(most)}`} part=${alive / most}
      bad=${alive >= most * 0.9} />
    <${Stat} label="Begun" value=${count(counters.states_created)} note="since the start" />
    <${Stat} label="Refused" value=${count(refused)} note="packets, since the start" />
  </div>`;
}
