// Failover: gateways whose checks fail, virtual routers, the standby, and routes that a saved table brought.

import { html } from "../vendor/htm-preact.js";
import { count, counted, micros, words } from "../format.js";
import { Empty, Waiting } from "../parts/notice.js";
import { Stat } from "../parts/stat.js";
import { State } from "../parts/state.js";
import { Counters, Table } from "../parts/table.js";

const CHECK_KINDS = { passed: "good", failed: "bad" };
const ROUTER_KINDS = { active: "good", backup: "good" };
/** States of the standby in which the other router could take over, and in which somebody should look after it. */
const [STANDBY_GOOD, STANDBY_BAD] = [
  ["covered", "ready"],
  ["alone", "different", "other-vrfs", "conflict"],
];

const CHECK_COLUMNS = [
  { id: "gateway", head: "Gateway", mono: true },
  { id: "port", head: "Port" },
  { id: "target", head: "Who must answer", mono: true },
  {
    id: "state",
    head: "State",
    cell: ({ state }) => html`<${State} kind=${CHECK_KINDS[state] ?? "idle"}>${state}<//>`,
  },
  { id: "rtt_us", head: "Round trip", num: true, cell: ({ rtt_us: time }) => (time === null ? "–" : micros(time)) },
  { id: "failures", head: "Failed", num: true, cell: ({ failures }) => count(failures), hint: "Times it began to fail" },
  { id: "requests", head: "Requests", num: true, cell: ({ requests }) => count(requests) },
  { id: "answers", head: "Answers", num: true, cell: ({ answers }) => count(answers), hint: "Those that came in time" },
];

/** Who is Active, as this router knows it. */
function active({ state, active: other, active_priority: priority }) {
  if (state === "active") return "this router";
  return other === null ? null : `${other}${priority === null ? "" : ` (priority ${priority})`}`;
}

const addresses = (router) => router.addresses.join(", ");
const ignored = (router) => Object.values(router.ignored).reduce((sum, number) => sum + number, 0);

const ROUTER_COLUMNS = [
  { id: "port", head: "Port" },
  { id: "id", head: "ID", num: true },
  { id: "addresses", head: "Addresses", mono: true, wrap: true, value: addresses, cell: addresses },
  {
    id: "state",
    head: "State",
    cell: ({ state }) => html`<${State} kind=${ROUTER_KINDS[state] ?? "idle"}>${state}<//>`,
  },
  { id: "priority", head: "Priority", num: true },
  { id: "active", head: "Active router", mono: true, value: active, cell: active },
  {
    id: "became_active",
    head: "Became Active",
    num: true,
    cell: (router) => count(router.became_active),
    hint: "Times this router did",
  },
  { id: "sent", head: "Sent", num: true, cell: ({ sent }) => count(sent), hint: "Advertisements" },
  {
    id: "received",
    head: "Received",
    num: true,
    cell: ({ received }) => count(received),
    hint: "Valid advertisements of others",
  },
  {
    id: "ignored",
    head: "Ignored",
    num: true,
    value: ignored,
    cell: (router) =>
      Object.entries(router.ignored)
        .filter(([, number]) => number > 0)
        .map(([reason, number]) => `${count(number)} ${words(reason)}`)
        .join(", ") || "0",
  },
];

const COPY_COLUMNS = [
  { id: "what", head: "Table" },
  { id: "here", head: "Here", num: true, cell: ({ here }) => count(here) },
  { id: "there", head: "At the other router", num: true, cell: ({ there }) => count(there) },
];

function Standby({ view }) {
  const kind = STANDBY_BAD.includes(view.state) ? "bad" : STANDBY_GOOD.includes(view.state) ? "good" : "idle";
  const rows = [
    { what: "NAT sessions", here: view.sessions, there: view.peer_sessions },
    { what: "Firewall states", here: view.states, there: view.peer_states },
  ];
  return html`<div class="two">
    <section class="card">
      <header><h2>Standby</h2><${State} kind=${kind}>${view.state}<//></header>
      <p>${view.means}${view.behind > 0 && html`; ${counted(view.behind, "part")} on the way`}</p>
      ${!view.same_rules && html`<p><${State} kind="warn">The firewall's rules differ: copied states are judged again<//></p>`}
      <${Table} caption="State on both routers" columns=${COPY_COLUMNS} rows=${rows} keyOf=${({ what }) => what} />
    </section>
    <section class="card"><${Counters} counters=${view.counters} /></section>
  </div>`;
}

/** What the forwarding table does when a next hop or the process fails. */
function Routes({ view }) {
  const { prefixes, protected_prefixes: second, saved_prefixes: saved } = view;
  const all = prefixes.ipv4 + prefixes.ipv6;
  return html`<div class="stats">
    <${Stat} label="BGP routes in use" value=${count(all)} note="in the forwarding table" />
    <${Stat} label="With a second next hop" value=${count(second)} note="used at once when the first is dead"
      part=${all === 0 ? 0 : second / all} />
    <${Stat} label="From the saved table" value=${count(saved)}
      note=${saved === 0 ? "none waits for BGP to repeat it" : "they go at End-of-RIB unless BGP repeats them"} />
  </div>`;
}

/** A list of a topic: the list, why there is none, or that it is on its way. */
function Part({ live, topic, show }) {
  const items = live.reports[topic]?.items;
  if (live.absent[topic]) return html`<${Empty} title="This router forwards no packets">${live.absent[topic]}<//>`;
  return items ? show(items) : html`<${Waiting} />`;
}

export function Failover({ live }) {
  const forwarding = live.reports.forwarding?.item;
  return html`
    <div class="head"><h1>Failover</h1><p>what is used when a gateway, a link or a router fails</p></div>
    ${forwarding && html`<${Routes} view=${forwarding} />`}
    ${live.absent.forwarding && html`<${Empty} title="No routes of BGP are in use">With BGP and ports the forwarding table has a second next hop for each prefix, and <code>save_fib</code> of <code>[bgp]</code> keeps it over a restart (docs/bgp.md).<//>`}
    <section class="card"><${Part} live=${live} topic="checks" show=${(items) => html`<${Table}
      caption="Health checks of gateways" columns=${CHECK_COLUMNS} rows=${items}
      keyOf=${({ port, gateway }) => `${port} ${gateway}`} sort="gateway"
      empty=${html`<${Empty} title="No gateway has a health check"><code>check</code> of a route in <code>[[routes]]</code> gives it one (docs/failover.md).<//>`} />`} /></section>
    <section class="card"><${Part} live=${live} topic="vrrp" show=${(items) => html`<${Table}
      caption="Virtual routers" note="VRRP" columns=${ROUTER_COLUMNS} rows=${items}
      keyOf=${({ port, id, addresses }) => `${port} ${id} ${addresses[0]}`} sort="port"
      empty=${html`<${Empty} title="No virtual router">A section <code>[[vrrp]]</code> shares an address with another router (docs/failover.md).<//>`} />`} /></section>
    <${Part} live=${live} topic="standby" show=${([view]) =>
      view
        ? html`<${Standby} view=${view} />`
        : html`<section class="card"><h2>Standby</h2><${Empty} title="No standby">A section <code>[standby]</code> copies NAT's sessions and the firewall's states to another router (docs/failover.md).<//></section>`} />`;
}
