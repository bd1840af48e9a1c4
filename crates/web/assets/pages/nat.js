// NAT: how full it is, whose sessions they are, who owns which block of ports.

import { html } from "../vendor/htm-preact.js";
import { useAnswer } from "../api.js";
import { age, count } from "../format.js";
import { Answer, Empty } from "../parts/notice.js";
import { Plot } from "../parts/plot.js";
import { Selection } from "../parts/selection.js";
import { Stat } from "../parts/stat.js";
import { Counters, Table } from "../parts/table.js";
import { SPAN_S } from "./overview.js";

const SESSION_COLUMNS = [
  { id: "protocol", head: "Protocol" },
  { id: "inside", head: "Inside", mono: true },
  { id: "vrf", head: "VRF" },
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
  { id: "vrf", head: "VRF" },
  { id: "public", head: "Public", mono: true },
  { id: "first", head: "Ports", num: true, cell: ({ first, last }) => `${first} to ${last}` },
  { id: "tcp", head: "TCP", num: true, cell: ({ tcp }) => count(tcp) },
  { id: "udp", head: "UDP", num: true, cell: ({ udp }) => count(udp) },
  { id: "icmp", head: "ICMP", num: true, cell: ({ icmp }) => count(icmp) },
];

const FIELDS = [
  ["inside", "Inside host", "10.1.0.23"],
  ["vrf", "VRF", "main"],
  ["public", "Public address", "198.51.100.1"],
  ["port", "Public port", "40000"],
  ["protocol", "Protocol", "tcp"],
];

export function Nat({ live, place }) {
  const [counters, blocks] = [useAnswer("nat/counters"), useAnswer("nat/blocks", { limit: 500 })];
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
    <${Selection} key=${JSON.stringify(place.query)} path="nat/sessions" query=${place.query} fields=${FIELDS}
      caption="Sessions" none="The first packet from inside makes one." columns=${SESSION_COLUMNS} sort="-packets_out"
      keyOf=${(session) => `${session.protocol} ${session.vrf} ${session.inside} ${session.public}`} />
    <div class="two">
      ${view && html`<section class="card"><${Counters} counters=${view.counters} /></section>`}
      <section class="card"><${Answer} answer=${blocks} show=${({
        items,
      }) => html`<${Table} caption="Blocks of public ports" columns=${BLOCK_COLUMNS} rows=${items}
        keyOf=${(block) => `${block.vrf} ${block.public} ${block.first}`} sort="inside"
        empty=${html`<${Empty} title="No blocks">Deterministic NAT gives each subscriber blocks of ports (docs/nat.md).<//>`} />`} /></section>
    </div>`;
}
