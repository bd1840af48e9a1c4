// Laboratory: how to measure this router's ways to use the cores. Reports are files that a browser opens by themselves.

import { html } from "../vendor/htm-preact.js";
import { Empty } from "../parts/notice.js";
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

export function Laboratory() {
  const rows = EXPERIMENTS.map(([command, what]) => ({ command, what }));
  return html`
    <div class="head"><h1>Laboratory</h1><p>compares ways to use the cores</p></div>
    <${Empty} title="Reports are files">Each experiment writes a folder with <code>report.html</code>, one file without anything from elsewhere, and <code>results.json</code>. Open the report in a browser.<//>
    <section class="card"><${Table} caption="Experiments"
      note="run them in a terminal, on a machine that does nothing else" columns=${COLUMNS} rows=${rows}
      keyOf=${({ command }) => command} /></section>`;
}
