// Laboratory: reports of measurements, and how to make them. A report is a page of its own, in a sandbox.

import { html } from "../vendor/htm-preact.js";
import { address, useAnswer } from "../api.js";
import { bytes } from "../format.js";
import { Answer, Empty } from "../parts/notice.js";
import { Table } from "../parts/table.js";

const EXPERIMENTS = [
  ["lab all", "the papers' claims, with a verdict on each"],
  ["lab models", "execution models and workers, on one trace"],
  ["lab predict", "the models on more cores than the machine has"],
  ["lab stages", "cycles a packet, by stage"],
  ["lab lpm", "look-up structures on a full table"],
  ["lab bgp", "BGP's schedulings under load"],
  ["lab forwarding", "throughput and loss (RFC 2544); needs root"],
  ["lab nat", "sessions, rates and loss of NAT (RFC 9693); needs root"],
  ["lab qos", "queues and shapers; needs root"],
  ["lab network", "a thousand ASes with real sessions, on virtual time"],
];

const COLUMNS = [
  { id: "command", head: "Command", cell: ({ command }) => html`<span class="mono">thalweg ${command}</span>` },
  { id: "what", head: "What it measures", wrap: true },
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
  const rows = EXPERIMENTS.map(([command, what]) => ({ command, what }));
  return html`
    <div class="head"><h1>Laboratory</h1><p>compares ways to use the cores</p></div>
    <${Answer} answer=${reports} what="Looking for reports" show=${({ items }) => html`
      <section class="card"><${Table} caption="Reports" columns=${REPORTS} rows=${items} sort="-written"
        keyOf=${({ name }) => name} empty=${NONE} /></section>`} />
    <section class="card"><${Table} caption="Experiments"
      note="run them in a terminal, on a machine that does nothing else" columns=${COLUMNS} rows=${rows}
      keyOf=${({ command }) => command} /></section>`;
}
