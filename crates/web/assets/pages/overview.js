// Overview: is all well, how much passes, what is dropped and why.

import { html } from "../vendor/htm-preact.js";
import { useAnswer } from "../api.js";
import { age, bitRate, bytes, count, packetRate } from "../format.js";
import { link } from "../location.js";
import { Empty, Waiting } from "../parts/notice.js";
import { Plot } from "../parts/plot.js";
import { Stat } from "../parts/stat.js";
import { State } from "../parts/state.js";
import { Table } from "../parts/table.js";

/** Seconds that live plots show. */
export const SPAN_S = 300;
/** Reasons that the plot of drops has lines for. */
const REASONS = 8;

/** The page that helps with a problem, by the first words of its sentence. */
const HELP = [
  [/^neighbor (\S+)/, (name) => link("bgp", [name])],
  [/^port (\S+)/, (name) => link("ports", [name])],
  [/^(?:gateway|standby)/, () => link("failover")],
  [/^NAT/, () => link("nat")],
  [/^(?:the )?firewall/, () => link("firewall")],
  [/^(?:flow records|samples|alarms?\b)/, () => link("flows")],
  [/^the last reload/, () => link("configuration")],
  [/next hop|\broutes?\b/, () => link("bgp")],
];

function Problem({ text }) {
  const [pattern, page] = HELP.find(([each]) => each.test(text)) ?? [];
  return html`<li><${State} kind="bad"><span class="hidden">problem: </span><//><span>${text}</span>
    ${page && html`<a href=${page(pattern.exec(text)[1])}>look</a>`}</li>`;
}

/** Sums of the ports' rates; `null` before the router has any. */
export function total(ports, field) {
  const known = ports.filter((port) => port.rates);
  return known.length ? known.reduce((sum, port) => sum + port.rates[field], 0) : null;
}

/** Lines of a port in both directions: what it received above zero, what it sent below. */
export function bothWays(history, names, what) {
  const line = (direction, word, below) => (name, hue) => ({
    label: `${name} ${word}`,
    values: history.column(`${name} ${what} ${direction}`),
    below,
    hue,
  });
  return [...names.map(line("in", "received", false)), ...names.map(line("out", "sent", true))];
}

/** The process in one line. */
function about({ version, uptime_s: up, config, config_age_s: loaded, memory_bytes: now, memory_peak_bytes: peak, threads }) {
  const memory = `${bytes(now)} of memory, at most ${bytes(peak)} so far`;
  return `thalweg ${version}, up for ${age(up)} with ${count(threads)} threads; ${memory}; ${config}, loaded ${age(loaded)} ago`;
}

function Stats({ status, ports, dropping }) {
  const [received, sent] = [total(ports, "bits_received_per_s"), total(ports, "bits_sent_per_s")];
  const packets = total(ports, "packets_received_per_s");
  const { nat, bgp_neighbors: neighbors, installed } = status;
  return html`<div class="stats">
    <${Stat} label="Received" value=${bitRate(received)} note=${packetRate(packets)} />
    <${Stat} label="Sent" value=${bitRate(sent)} note=${packetRate(total(ports, "packets_sent_per_s"))} />
    <${Stat} label="Dropped" value=${packetRate(dropping)} note="all reasons, the last second" />
    ${status.ports && html`<${Stat} label="Ports" value=${`${status.ports.up} up`} note=${`${status.ports.down} down`}
      bad=${status.ports.down > 0} />`}
    ${neighbors && html`<${Stat} label="BGP neighbors" value=${`${neighbors.up} up`} note=${`${neighbors.down} down`}
      bad=${neighbors.down > 0} />`}
    ${installed && html`<${Stat} label="BGP routes" value=${count(installed.ipv4 + installed.ipv6)}
      note=${`${count(installed.ipv4)} IPv4, ${count(installed.ipv6)} IPv6`} />`}
    ${nat && html`<${Stat} label="NAT sessions" value=${count(nat.sessions)} note=${`of ${count(nat.sessions_max)}`}
      part=${nat.sessions / nat.sessions_max} />`}
  </div>`;
}

function Reasons({ rows, name, empty }) {
  const columns = [
    { id: "reason", head: "Reason", mono: true },
    { id: "packets", head: "Packets", num: true, cell: (row) => count(row.packets) },
    { id: "rate", head: "Now", num: true, cell: (row) => (row.rate === null ? "–" : packetRate(row.rate)) },
    { id: "meaning", head: "What it means", wrap: true },
  ];
  return html`<section class="card"><${Table} caption=${name} note="since the start" columns=${columns} rows=${rows}
    keyOf=${(row) => row.reason} sort="-packets" empty=${empty} /></section>`;
}

export function Overview({ live }) {
  const meanings = useAnswer("drop-reasons").value?.items ?? [];
  const status = live.reports.status?.item;
  const [ports, counters] = [live.reports.ports?.items ?? [], live.reports.counters?.item];
  if (!status) return html`<h1>Overview</h1><${Waiting} />`;
  const history = live.history("counters");
  const dropped = Object.entries(counters?.dropped ?? {})
    .map(([reason, packets]) => ({
      reason,
      packets,
      rate: history.last(`drop ${reason}`),
      meaning: meanings.find(({ name }) => name === reason)?.meaning ?? "",
    }))
    .filter(({ packets }) => packets > 0)
    .sort((a, b) => b.packets - a.packets);
  const drawn = dropped
    .slice(0, REASONS)
    .map(({ reason }) => ({ label: reason, values: history.column(`drop ${reason}`) }));
  const dropping = dropped.some(({ rate }) => rate !== null)
    ? dropped.reduce((sum, { rate }) => sum + rate, 0)
    : counters
      ? 0
      : null;
  const traffic = live.history("ports");
  return html`
    <div class="head"><h1>Overview</h1><p class="break">${about(status)}</p></div>
    ${
      status.problems.length
        ? html`<ul class="problems" aria-label="Problems">${status.problems.map((text) => html`<${Problem}
          text=${text} />`)}</ul>`
        : html`<p class="well"><${State} kind="good">Nothing is wrong<//></p>`
    }
    <${Stats} status=${status} ports=${ports} dropping=${dropping} />
    ${
      ports.length > 0
        ? html`<${Plot} title="Throughput by port" note="received above zero, sent below" unit="bps" stacked
          span_s=${SPAN_S}
          times=${traffic.times} series=${bothWays(
            traffic,
            ports.map(({ name }) => name),
            "bits",
          )} height=${260} />`
        : html`<${Empty} title="This router forwards no packets">Give a port an <code>interface</code> in its configuration.<//>`
    }
    ${drawn.length > 0 && html`<${Plot} title="Drops by reason" unit="pps" stacked span_s=${SPAN_S}
      times=${history.times} series=${drawn} height=${180} />`}
    ${counters && html`<${Reasons} name="Dropped packets" rows=${dropped} empty=${html`<${Empty}
      title="Nothing was dropped">Every packet went somewhere.<//>`} />`}`;
}
