// Route: for an address, where a packet to it really goes, and why that path and no other.

import { html, useEffect, useState } from "../vendor/htm-preact.js";
import { useAnswer } from "../api.js";
import { age, counted } from "../format.js";
import { go, link, setQuery } from "../location.js";
import { Answer, Empty, Fault } from "../parts/notice.js";
import { State } from "../parts/state.js";
import { Table } from "../parts/table.js";

/** The table of ports that have none of their own. */
const MAIN = "main";
const EXAMPLES = ["192.0.2.1", "198.51.100.0/24", "2001:db8::1"];

function Hop({ hop }) {
  const kind = hop.state === "reachable" || hop.state === "static" ? "good" : hop.state ? "warn" : "idle";
  return html`<div class="hop">
    <span class="small quiet">next hop</span>
    ${hop.neighbor ? html`<span class="mono">${hop.neighbor}</span>` : "the network itself"}
    <span class="small">${hop.mac ? html`<span
      class="mono">${hop.mac}</span> ` : "MAC address unknown "}${hop.state && html`<${State}
      kind=${kind}>${hop.state}<//>`}</span>
  </div>`;
}

/** The forwarding table's answer, as the way of a packet. */
function Way({ view }) {
  const forwards = view.action === "forward";
  const hops = view.next_hops.length
    ? view.next_hops
    : view.neighbor || view.port
      ? [{ neighbor: view.neighbor, port: view.port ?? "?", mac: null, state: null }]
      : [];
  const words = forwards
    ? "is forwarded"
    : view.action === "no route"
      ? "has no route: it is dropped"
      : `is not forwarded: ${view.action}`;
  return html`<section class="card">
    <header><h2>Where a packet goes</h2><a class="small"
      href=${link("trace", [], { to: view.destination.split("/")[0] })}>trace a packet to it</a></header>
    <p><${State} kind=${forwards ? "good" : "warn"}>A packet to ${view.destination} ${words}<//></p>
    <ol class="path">
      <li><div class="hop"><span class="small quiet">destination</span><span
        class="mono">${view.destination}</span></div></li>
      <li><div class="hop"><span class="small quiet">longest match</span>${view.prefix ? html`<span
        class="mono">${view.prefix}</span>` : "none"}
        ${view.source && html`<span class="small">${view.source}</span>`}
        ${view.vrf && view.vrf !== MAIN && html`<span class="small">VRF ${view.vrf}</span>`}</div></li>
      ${hops.length === 1 && html`<li><${Hop} hop=${hops[0]} /></li><li><div class="hop end"><span
        class="small quiet">port</span><a href=${link("ports", [hops[0].port])}>${hops[0].port}</a></div></li>`}
    </ol>
    ${hops.length > 1 && html`<${Hops} hops=${hops} />`}
  </section>`;
}

const HOP_COLUMNS = [
  { id: "neighbor", head: "Next hop", mono: true },
  { id: "port", head: "Port", cell: ({ port }) => html`<a href=${link("ports", [port])}>${port}</a>` },
  { id: "mac", head: "MAC address", mono: true },
  { id: "state", head: "State" },
];

const Hops = ({ hops }) =>
  html`<${Table} caption="Next hops" note="a flow uses one of them" columns=${HOP_COLUMNS} rows=${hops}
    keyOf=${(hop) => `${hop.port} ${hop.neighbor}`} />`;

function Path({ route }) {
  const from =
    route.neighbor === "local" ? "this router" : html`<a href=${link("bgp", [route.neighbor])}>${route.neighbor}</a>`;
  const facts = [
    ["next hop", route.next_hop],
    ["local preference", route.local_pref],
    ["MED", route.med],
    ["weight", route.weight || null],
    ["origin", route.origin],
    ["path ID", route.path_id || null],
    ["age", age(route.age_s)],
  ].filter(([, value]) => value !== null);
  return html`<li class=${route.best ? "route best" : "route"}>
    <p>${route.best ? html`<${State} kind="good"><strong>best</strong><//>` : html`<${State}
      kind="idle">not best<//>`} from ${from}${!route.best && route.why && html`<span
      class="break">: ${route.why}</span>`}
      ${route.validity === "invalid" && html` <${State} kind="bad">RPKI: invalid<//>`}
      ${route.stale && html` <${State} kind="warn">stale: kept over a restart<//>`}${route.discard && html` <${State}
        kind="warn">packets are discarded<//>`}</p>
    <p class="break">AS path <span class="mono">${route.as_path || "empty"}</span></p>
    <p class="quiet small break">${facts.map(([name, value]) => `${name} ${value}`).join(" · ")}</p>
    ${route.communities.length > 0 && html`<p class="tags"
      aria-label="Communities">${route.communities.map((each) => html`<span class="tag">${each}</span>`)}</p>`}
  </li>`;
}

const VALIDITY = { valid: "good", "not-found": "idle", invalid: "bad" };

const VRP_COLUMNS = [
  { id: "prefix", head: "VRP", mono: true },
  { id: "max_length", head: "Max length" },
  { id: "as", head: "AS" },
  { id: "matches", head: "Matches", cell: ({ matches }) => (matches ? "yes" : "no") },
];

/** What the RPKI says of the best path's origin, and the VRPs that say so. */
function Validation({ route }) {
  const origin = route.as_path.match(/(?:^| )(\d+)$/)?.[1];
  const answer = useAnswer(`bgp/rpki/${route.prefix}`, origin ? { origin_as: Number(origin) } : {});
  return html`<section class="card"><header><h2>Validation</h2><span class="quiet small">of the origin, by the RPKI</span></header>
    <p><${State} kind=${VALIDITY[route.validity] ?? "idle"}>${route.prefix}${origin && html` of AS ${origin}`} is ${route.validity}<//></p>
    <${Answer} answer=${answer} what="Looking for VRPs" show=${({ vrps }) =>
      vrps.length
        ? html`<${Table} caption="VRPs" note="that cover it" columns=${VRP_COLUMNS} rows=${vrps}
          keyOf=${(vrp) => `${vrp.prefix} ${vrp.max_length} ${vrp.as}`} />`
        : html`<p class="quiet">No VRP covers it.</p>`} /></section>`;
}

function Why({ routes }) {
  if (routes.length === 0)
    return html`<${Empty} title="BGP has no route to it">No neighbor announced a prefix that covers it, or import rejected them all.<//>`;
  const order = [...routes].sort((a, b) => Number(b.best) - Number(a.best));
  return html`<section class="card"><header><h2>Why this path</h2><span
    class="quiet small">${counted(routes.length, "path")} to <span
    class="mono">${routes[0].prefix}</span> in BGP</span></header>
    <ul class="routes">${order.map((route) => html`<${Path} route=${route} />`)}</ul></section>
    ${order[0].validity && html`<${Validation} route=${order[0]} />`}`;
}

function Found({ destination, vrf }) {
  const encoded = destination.split("/").map(encodeURIComponent).join("/");
  const forwarding = useAnswer(`fib/${encoded}`, vrf ? { vrf } : {});
  // BGP's routes are those of the main table.
  const usesBgp = !vrf || forwarding.value?.vrf === MAIN;
  const bgp = useAnswer(usesBgp ? `bgp/routes/${encoded}` : null, { why: 1 });
  return html`<div class="stack">
    <${Answer} answer=${forwarding} what="Looking in the forwarding table" show=${(view) => html`<${Way}
      view=${view} />`} />
    ${
      !usesBgp || (bgp.problem && forwarding.problem?.message === bgp.problem.message)
        ? null
        : bgp.problem?.isAbsent
          ? html`<p class="quiet">This router does not speak BGP: its routes are the connected, configured and imported ones.</p>`
          : bgp.problem
            ? html`<${Fault} problem=${bgp.problem} retry=${bgp.reload} />`
            : html`<${Answer} answer=${bgp} what="Looking in BGP's table" show=${({ items }) => html`<${Why}
              routes=${items} />`} />`
    }</div>`;
}

export function Route({ place }) {
  const destination = place.rest.join("/");
  const [typed, setTyped] = useState(destination);
  const { vrf = "" } = place.query;
  const vrfs = useAnswer("vrfs").value?.items ?? [];
  useEffect(() => setTyped(destination), [destination]);
  const submit = (event) => {
    event.preventDefault();
    if (typed.trim()) go("route", typed.trim().split("/"), { vrf });
  };
  return html`
    <div class="head"><h1>Route</h1><p>where a packet to an address goes, and why</p></div>
    <form class="fields" onSubmit=${submit}>
      <label class="field grow"><span>Address or prefix</span>
        <input name="destination" value=${typed} placeholder="192.0.2.1 or 2001:db8::/32" autocapitalize="off"
          spellcheck=${false} onInput=${(event) => setTyped(event.target.value)} /></label>
      ${
        vrfs.length > 1 &&
        html`<label class="field"><span>VRF</span><select name="vrf" value=${vrf || MAIN}
          onChange=${({ target }) => setQuery({ vrf: target.value === MAIN ? "" : target.value })}>${vrfs.map(
            ({ name }) => html`<option value=${name}>${name}</option>`,
          )}</select></label>`
      }
      <button class="button main">Look up</button>
    </form>
    ${
      destination
        ? html`<${Found} key=${`${destination} ${vrf}`} destination=${destination} vrf=${vrf} />`
        : html`<${Empty} title="Type an address">For example ${EXAMPLES.map((each, at) => html`${at > 0 && ", "}<a
          href=${link("route", each.split("/"))}>${each}</a>`)}.<//>`
    }`;
}
