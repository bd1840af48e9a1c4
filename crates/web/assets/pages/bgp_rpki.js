// RPKI: where VRPs come from, and what they make of the routes.

import { html } from "../vendor/htm-preact.js";
import { age, count } from "../format.js";
import { Empty } from "../parts/notice.js";
import { Stat } from "../parts/stat.js";
import { State } from "../parts/state.js";
import { Table } from "../parts/table.js";

const KINDS = { synced: "good", loaded: "good", down: "bad", unreadable: "bad" };

const both = ({ ipv4, ipv6 }) => ipv4 + ipv6;

const COLUMNS = [
  { id: "source", head: "Source", mono: true, wrap: true },
  { id: "state", head: "State", cell: ({ state }) => html`<${State} kind=${KINDS[state] ?? "warn"}>${state}<//>` },
  { id: "used", head: "In force", value: ({ used }) => Number(used), cell: ({ used }) => (used ? "yes" : "no") },
  { id: "vrps", head: "VRPs", num: true, value: ({ vrps }) => both(vrps), cell: ({ vrps }) => count(both(vrps)) },
  {
    id: "age_s",
    head: "Confirmed",
    num: true,
    cell: ({ age_s: seconds }) => (seconds === null ? "–" : `${age(seconds)} ago`),
  },
  { id: "expires_in_s", head: "Expires in", num: true, cell: ({ expires_in_s: seconds }) => age(seconds) },
  { id: "serial", head: "Serial", num: true, hint: "Of the last update of a cache" },
  { id: "last_error", head: "Last error", wrap: true, cell: ({ last_error: error }) => error ?? "" },
];

export function Rpki({ live }) {
  if (live.absent.rpki)
    return html`<section class="card"><h2>RPKI</h2><${Empty}
      title="The origins of routes are not validated">A section <code>[[bgp.rpki_source]]</code> names a cache or a file of VRPs (docs/rpki.md).<//></section>`;
  const view = live.reports.rpki?.item;
  if (!view) return null;
  return html`
    <div class="stats">
      <${Stat} label="VRPs in force" value=${count(both(view.vrps))} note=${`${count(view.vrps.ipv4)} IPv4, ${count(view.vrps.ipv6)} IPv6`}
        bad=${both(view.vrps) === 0} />
      <${Stat} label="Valid paths" value=${count(both(view.valid_paths))} />
      <${Stat} label="Not found" value=${count(both(view.not_found_paths))} note="no VRP covers them" />
      <${Stat} label="Invalid paths" value=${count(both(view.invalid_paths))} note="that import let in" />
      <${Stat} label="Judged again" value=${count(view.revalidated)} note="because VRPs changed" />
    </div>
    <section class="card"><${Table} caption="Sources of VRPs" note="the first one with VRPs is in force"
      columns=${COLUMNS} rows=${view.sources} keyOf=${({ source }) => source} /></section>`;
}
