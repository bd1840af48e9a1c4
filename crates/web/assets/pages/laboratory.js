// Laboratory: reports of measurements, and how to make them. A report is a page of its own, in a sandbox.

import { html } from "../vendor/htm-preact.js";
import { address, useAnswer } from "../api.js";
import { bytes } from "../format.js";
import { Answer, Empty } from "../parts/notice.js";
import { Table } from "../parts/table.js";

/** Names and first lines of help, as `thalweg lab --help` has them: a test compares the two. */
const EXPERIMENTS = [
  ["all", "Run all experiments that the papers' claims need, and judge each claim"],
  ["models", "Compare execution models on one input: throughput, speed-up, residence time"],
  ["predict", "Predict execution models on more cores than this machine has"],
  ["divide", "Measure a farm with feedback: matrix product, quicksort, Fibonacci, compared with FastFlow"],
  ["lpm", "Compare longest-prefix-match structures: lookups, memory, build time, concurrent updates"],
  ["bgp", "Compare schedulings of the BGP daemon: speed-up, time by function, traffic mixes"],
  ["forwarding", "Measure routers in network namespaces by RFC 2544: throughput, latency, loss (needs root)"],
  ["stages", "Measure cycles per packet by stage, without interfaces"],
  ["nat", "Measure NAT by RFC 9693, in memory and live (live parts need root)"],
  ["qos", "Measure voice calls on an overloaded port, against the kernel's qdiscs (needs root)"],
  ["bulk", "Measure bulk TCP through NAT with pings beside it, against the kernel (needs root)"],
  ["latency", "Measure latency by load and schedule, against the kernel and what the machine adds (needs root)"],
  ["failover", "Measure what is lost when links, gateways, sessions or the process fail, against BIRD (needs root)"],
  ["network", "Simulate networks of BGP routers, or compute the routes of the whole Internet"],
  ["convergence", "Reproduce published results on BGP convergence: cliques, policies, damping, MRAI, surges, growth"],
  ["seeds", "Run random networks and routers with faults, and check invariants"],
  ["probe", "Measure the flow probe: ffProbe's table, many flows, floods, other probes on the same file"],
];

const COLUMNS = [
  { id: "name", head: "Command", cell: ({ name }) => html`<span class="mono">thalweg lab ${name}</span>` },
  { id: "what", head: "What it does", wrap: true },
];

/** A link to a report or its numbers, which opens beside the console. */
const page = (path, text) => html`<a href=${address(`reports/${path}`)} target="_blank" rel="noopener">${text}</a>`;

const REPORTS = [
  { id: "name", head: "Report", cell: ({ name }) => page(encodeURIComponent(name), name) },
  { id: "written", head: "Written" },
  { id: "bytes", head: "Size", num: true, cell: (report) => bytes(report.bytes) },
  {
    id: "results",
    head: "Numbers",
    cell: ({ name, results }) => (results ? page(`${encodeURIComponent(name)}/results`, "results.json") : "–"),
  },
];

const NONE = html`<${Empty} title="No reports">Each experiment writes a folder with <code>report.html</code> and <code>results.json</code>: put it into the folder that <code>reports</code> in <code>[web]</code> names.<//>`;

export function Laboratory() {
  const reports = useAnswer("reports");
  const rows = EXPERIMENTS.map(([name, what]) => ({ name, what }));
  return html`
    <div class="head"><h1>Laboratory</h1><p>compares ways to use the cores</p></div>
    <${Answer} answer=${reports} what="Looking for reports" show=${({ items }) => html`
      <section class="card"><${Table} caption="Reports" columns=${REPORTS} rows=${items} sort="-written"
        keyOf=${({ name }) => name} empty=${NONE} /></section>`} />
    <section class="card"><${Table} caption="Experiments"
      note="run them in a terminal, on a machine that does nothing else" columns=${COLUMNS} rows=${rows}
      keyOf=${({ name }) => name} /></section>`;
}
