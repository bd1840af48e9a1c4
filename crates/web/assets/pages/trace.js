// Trace a packet: what every stage would do with it, and why. Nothing is sent and nothing changes.

import { html, useEffect, useState } from "../vendor/htm-preact.js";
import { useAnswer } from "../api.js";
import { link, setQuery } from "../location.js";
import { Answer, Empty } from "../parts/notice.js";
import { State } from "../parts/state.js";

const PROTOCOLS = ["udp", "tcp", "icmp", "protocol 47", "protocol 50"];

/** The packet in the notation of `thalweg trace packet`. */
export function packet({
  port,
  from,
  to,
  protocol = "udp",
  source_port: source,
  destination_port: destination,
  options,
}) {
  if (!port || !from || !to) return "";
  const hasPorts = protocol === "udp" || protocol === "tcp";
  const ports = hasPorts && destination ? `${source ? `${source} -> ` : ""}${destination}` : "";
  return [port, "ip", from, "->", to, hasPorts && !ports ? `${protocol} 53` : protocol, ports, options]
    .filter(Boolean)
    .join(" ");
}

function Step({ step }) {
  const stops = /^(drop|too large|no route|discard)/.test(step.verdict);
  return html`<li class=${stops ? "stop" : null}><strong>${step.stage}</strong><span>${stops ? html`<${State}
    kind="bad">${step.verdict}<//>` : step.verdict}</span><span>${step.why}</span></li>`;
}

function Fate({ view }) {
  return html`<section class="card">
    <header><h2>What happens to it</h2></header>
    <p class="mono break">${view.packet}</p>
    <ol class="steps">${view.steps.map((step) => html`<${Step} step=${step} />`)}</ol>
    <p class="break"><${State} kind=${view.reason ? "bad" : "good"}><strong>${view.outcome}</strong><//>: ${view.summary}</p>
    ${view.reason && html`<p class="quiet">Reason <span class="mono">${view.reason}</span>: <a
      href=${link("captures", [], { reason: view.reason })}>capture such packets</a></p>`}
  </section>`;
}

const FIELDS = [
  ["from", "Source", "10.1.0.10"],
  ["to", "Destination", "192.0.2.1"],
];

export function Trace({ live, place }) {
  const ports = live.reports.ports?.items ?? [];
  const [typed, setTyped] = useState(place.query);
  useEffect(() => setTyped(place.query), [JSON.stringify(place.query)]);
  const asked = packet(place.query);
  const answer = useAnswer(asked ? "trace" : null, { packet: asked });
  const change = (name) => (event) => setTyped({ ...typed, [name]: event.target.value });
  const port = typed.port ?? ports[0]?.name ?? "";
  const protocol = typed.protocol ?? "udp";
  const hasPorts = protocol === "udp" || protocol === "tcp";
  const submit = (event) => {
    event.preventDefault();
    setQuery({
      ...typed,
      port,
      protocol,
      destination_port: hasPorts ? (typed.destination_port ?? "53") : "",
      source_port: hasPorts ? typed.source_port : "",
    });
  };
  const text = ([name, label, example]) =>
    html`<label class="field"><span>${label}</span><input name=${name} required value=${typed[name] ?? ""}
      placeholder=${example} autocapitalize="off" spellcheck=${false} onInput=${change(name)} /></label>`;
  return html`
    <div class="head"><h1>Trace a packet</h1>
      <p>what every stage would do with it; nothing is sent and nothing changes</p></div>
    <form class="card" onSubmit=${submit}>
      <div class="fields">
        <label class="field"><span>Comes in on</span><select name="port" value=${port}
          onChange=${change("port")}>${ports.map(({ name }) => html`<option
          value=${name}>${name}</option>`)}</select></label>
        ${FIELDS.map(text)}
        <label class="field"><span>Protocol</span><select name="protocol" value=${protocol}
          onChange=${change("protocol")}>${PROTOCOLS.map((each) => html`<option
          value=${each}>${each}</option>`)}</select></label>
        ${
          hasPorts &&
          html`
          <label class="field"><span>To ${protocol.toUpperCase()} port</span><input name="destination_port"
            inputmode="numeric" value=${typed.destination_port ?? "53"} onInput=${change("destination_port")} /></label>
          <label class="field"><span>From port</span><input name="source_port" inputmode="numeric" placeholder="49152"
            value=${typed.source_port ?? ""} onInput=${change("source_port")} /></label>`
        }
        <label class="field"><span>Options</span><input name="options" placeholder="ttl 64 dscp ef length 1500 df"
          value=${typed.options ?? ""} onInput=${change("options")} /></label>
      </div>
      <div class="actions"><button class="button main">Trace</button></div>
    </form>
    ${
      asked
        ? html`<${Answer} answer=${answer} what="Asking the stages" show=${(view) => html`<${Fate} view=${view} />`} />`
        : html`<${Empty} title="Describe a packet">The answer goes through the stages in order: filters, class, NAT, route, neighbor, MTU, queue.<//>`
    }`;
}
