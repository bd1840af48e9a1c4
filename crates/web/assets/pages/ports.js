// Ports: their links, drivers, rates and counters; the neighbors on a link; the workers that serve them.

import { html } from "../vendor/htm-preact.js";
import { useAnswer } from "../api.js";
import { bitRate, count, packetRate } from "../format.js";
import { link } from "../location.js";
import { Answer, Empty, Fault, Waiting } from "../parts/notice.js";
import { Problem } from "../api.js";
import { Plot } from "../parts/plot.js";
import { Facts } from "../parts/stat.js";
import { State, UpDown } from "../parts/state.js";
import { Table } from "../parts/table.js";
import { SPAN_S, bothWays } from "./overview.js";

const COLUMNS = [
  { id: "name", head: "Port", cell: ({ name }) => html`<a href=${link("ports", [name])}>${name}</a>` },
  { id: "up", head: "Link", value: ({ up }) => Number(up), cell: ({ up }) => html`<${UpDown} up=${up} />` },
  {
    id: "bits_in",
    head: "Received",
    num: true,
    value: ({ rates }) => rates?.bits_received_per_s,
    cell: ({ rates }) => bitRate(rates?.bits_received_per_s),
  },
  {
    id: "packets_in",
    head: "Packets in",
    num: true,
    value: ({ rates }) => rates?.packets_received_per_s,
    cell: ({ rates }) => packetRate(rates?.packets_received_per_s),
  },
  {
    id: "bits_out",
    head: "Sent",
    num: true,
    value: ({ rates }) => rates?.bits_sent_per_s,
    cell: ({ rates }) => bitRate(rates?.bits_sent_per_s),
  },
  {
    id: "packets_out",
    head: "Packets out",
    num: true,
    value: ({ rates }) => rates?.packets_sent_per_s,
    cell: ({ rates }) => packetRate(rates?.packets_sent_per_s),
  },
  {
    id: "missed",
    head: "Missed",
    num: true,
    cell: ({ missed }) => count(missed),
    hint: "Frames lost because they came faster than the router took them",
  },
  {
    id: "failed",
    head: "Failed",
    num: true,
    cell: ({ failed }) => count(failed),
    hint: "Frames that the interface refused",
  },
  { id: "queued", head: "Waiting", num: true, cell: ({ queued }) => count(queued), hint: "Frames in its queues" },
  { id: "interface", head: "Interface", mono: true },
  { id: "mode", head: "Driver" },
];

function Detail({ port, live }) {
  const history = live.history("ports");
  const rows = [
    ["Interface", html`<span class="mono">${port.interface}</span>`],
    ["MAC address", html`<span class="mono">${port.mac}</span>`],
    ["MTU", `${count(port.mtu)} bytes`],
    ["Driver", port.mode],
    ["Why not better", port.why_not_better],
    ["Received", `${count(port.received)} frames, ${count(port.received_bytes)} bytes`],
    ["Sent", `${count(port.sent)} frames, ${count(port.sent_bytes)} bytes`],
    ["Missed", `${count(port.missed)} frames: they came faster than the router took them`],
    ["Foreign", `${count(port.foreign)} frames to other MAC addresses`],
    ["Failed", `${count(port.failed)} frames that the interface refused`],
    ["Offloaded", port.offloaded > 0 ? `${count(port.offloaded)} frames that the kernel forwarded by itself` : null],
    ["MSS lowered", port.mss_lowered > 0 ? `in ${count(port.mss_lowered)} SYNs` : null],
  ];
  const queues = port.queues.map((queue, number) => ({ number, ...queue }));
  const columns = [
    { id: "number", head: "Queue", num: true },
    { id: "received", head: "Frames", num: true, cell: ({ received }) => count(received) },
    { id: "received_bytes", head: "Bytes", num: true, cell: ({ received_bytes: bytes }) => count(bytes) },
    { id: "missed", head: "Missed", num: true, cell: ({ missed }) => count(missed) },
  ];
  return html`
    <${Plot} title=${`Throughput of ${port.name}`} note="received above zero, sent below" unit="bps" span_s=${SPAN_S}
      times=${history.times} series=${bothWays(history, [port.name], "bits")} />
    <div class="two">
      <section class="card"><header><h2>${port.name}</h2><${UpDown} up=${port.up} /></header><${Facts}
        rows=${rows} /></section>
      ${queues.length > 0 && html`<section class="card"><${Table} caption="Receive queues" columns=${columns}
        rows=${queues} keyOf=${({ number }) => number} /></section>`}
    </div>`;
}

const NEIGHBOR_COLUMNS = [
  { id: "address", head: "Address", mono: true },
  { id: "port", head: "Port" },
  { id: "mac", head: "MAC address", mono: true },
  {
    id: "state",
    head: "State",
    cell: ({ state }) =>
      html`<${State} kind=${state === "reachable" || state === "static" ? "good" : state === "stale" ? "idle" : "warn"}>${state}<//>`,
  },
  { id: "source", head: "From" },
  { id: "waiting", head: "Packets waiting", num: true, cell: ({ waiting }) => count(waiting) },
];

const WORKER_COLUMNS = [
  { id: "name", head: "Thread" },
  { id: "packets", head: "Packets", num: true, cell: ({ packets }) => count(packets) },
  {
    id: "busy",
    head: "Processor",
    num: true,
    cell: ({ busy }) => (busy === null ? "–" : `${busy.toFixed(0)}%`),
    hint: "Processor time of the last second, the kernel's part included",
  },
  { id: "cores", head: "Cores" },
  { id: "scheduling", head: "Priority" },
];

export function Ports({ live, place }) {
  const neighbors = useAnswer("arp");
  const ports = live.reports.ports?.items;
  if (live.absent.ports)
    return html`<h1>Ports</h1><${Empty} title="This router forwards no packets">${live.absent.ports}<//>`;
  if (!ports) return html`<h1>Ports</h1><${Waiting} />`;
  const [wanted] = place.rest;
  const chosen = wanted === undefined ? ports[0] : ports.find(({ name }) => name === wanted);
  const history = live.history("counters");
  const workers = (live.reports.counters?.item.workers ?? []).map((worker) => ({
    ...worker,
    busy: history.last(`cpu ${worker.name}`),
  }));
  const missing = new Problem({ title: "No such port", detail: `No port is called ${wanted}.` });
  return html`
    <div class="head"><h1>Ports</h1>
      <p>rates over the last five seconds; bits count from the Ethernet header on</p></div>
    <section class="card"><${Table} caption="All ports" columns=${COLUMNS} rows=${ports} keyOf=${({ name }) => name}
      row=${({ name }) => (name === chosen?.name ? "chosen" : null)}
      empty=${html`<${Empty} title="No port has an interface">Give a port an <code>interface</code> in the configuration.<//>`} /></section>
    <div class="stack" key=${wanted}>${chosen ? html`<${Detail} port=${chosen} live=${live} />` : wanted !== undefined && html`<${Fault}
      problem=${missing} />`}</div>
    <section class="card"><${Answer} answer=${neighbors} show=${({
      items,
    }) => html`<${Table} caption="Neighbors on the links" note="ARP and Neighbor Discovery"
      columns=${NEIGHBOR_COLUMNS} rows=${items} keyOf=${({ port, address }) => `${port} ${address}`} sort="address"
      empty=${html`<${Empty} title="No neighbor is known">One appears with the first packet to a connected network.<//>`} />`} /></section>
    ${workers.length > 0 && html`<section class="card"><${Table} caption="Threads of the execution model"
      columns=${WORKER_COLUMNS} rows=${workers} keyOf=${({ name }) => name} /></section>`}`;
}
