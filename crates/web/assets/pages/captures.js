// Captures: packets as they pass a point, as a pcapng file with the fate of each.

import { html, useRef, useState } from "../vendor/htm-preact.js";
import { Problem, address, useAnswer } from "../api.js";
import { bytes } from "../format.js";
import { Empty, Fault } from "../parts/notice.js";
import { State } from "../parts/state.js";

/** Points of the packet path (docs/capture.md); the router names its own if one of these is not in its plan. */
const POINTS = ["arrived", "ingress", "arrival", "order", "nat", "route", "egress", "to-host", "sent", "dropped"];
const SECONDS_MAX = 60;

/** The command that does the same. */
function command({ point, port, reason, filter, count, seconds, snaplen }) {
  const quoted = (text) => (/^[\w./:-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
  const options = [
    ["port", port],
    ["reason", reason],
    ["filter", filter],
    ["count", count],
    ["seconds", seconds],
    ["snaplen", snaplen],
  ];
  return [
    "thalweg capture",
    point,
    ...options.filter(([, value]) => value).map(([name, value]) => `--${name} ${quoted(value)}`),
    "-o packets.pcapng",
  ]
    .filter(Boolean)
    .join(" ");
}

/** Reads a capture while it runs. `onBytes` hears how much came; what came before a stop is kept. */
async function record(query, signal, onBytes) {
  const response = await fetch(address("capture", query), { signal });
  if (!response.ok)
    throw new Problem(await response.json().catch(() => ({ title: response.statusText, status: response.status })));
  const [chunks, reader] = [[], response.body.getReader()];
  let size = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      chunks.push(value);
      size += value.length;
      onBytes(size);
    }
  } catch (error) {
    if (error.name !== "AbortError") throw error;
  }
  return new Blob(chunks, { type: "application/octet-stream" });
}

function Running({ size, stop }) {
  return html`<p role="status"><${State} kind="idle">capturing: ${bytes(size)} so far<//> <button type="button"
    class="button" onClick=${stop}>Stop</button></p>`;
}

export function Captures({ live, place, mayOperate }) {
  const [asked, setAsked] = useState({
    point: place.query.reason ? "dropped" : "arrived",
    reason: place.query.reason ?? "",
    seconds: "10",
  });
  const [state, setState] = useState({});
  const abort = useRef(null);
  const reasons = useAnswer("drop-reasons").value?.items ?? [];
  const ports = live.reports.ports?.items ?? [];
  const change = (name) => (event) => setAsked({ ...asked, [name]: event.target.value });
  const submit = (event) => {
    event.preventDefault();
    abort.current = new AbortController();
    setState({ running: true, size: 0 });
    record(asked, abort.current.signal, (size) => setState({ running: true, size })).then(
      (blob) => setState({ size: blob.size, file: URL.createObjectURL(blob) }),
      (problem) => setState(abort.current.signal.aborted ? {} : { problem }),
    );
  };
  const select = (
    name,
    label,
    options,
    any,
  ) => html`<label class="field"><span>${label}</span><select name=${name} value=${asked[name] ?? ""}
    onChange=${change(name)}>
    ${any && html`<option value="">${any}</option>`}${options.map((each) => html`<option
      value=${each}>${each}</option>`)}</select></label>`;
  const number = (name, label, most, example) =>
    html`<label class="field"><span>${label}</span><input name=${name} type="number" min="1" max=${most}
      placeholder=${example} value=${asked[name] ?? ""} onInput=${change(name)} /></label>`;
  const meaning = reasons.find(({ name }) => name === asked.reason)?.meaning;
  if (live.absent.ports)
    return html`<h1>Captures</h1><${Empty} title="This router forwards no packets">${live.absent.ports}<//>`;
  return html`
    <div class="head"><h1>Captures</h1>
      <p>packets as they pass a point, for Wireshark; a comment gives the fate of each</p></div>
    <form class="card" onSubmit=${submit}>
      <div class="fields">
        ${select("point", "Point", POINTS)}
        ${select(
          "port",
          "Port",
          ports.map(({ name }) => name),
          "all ports",
        )}
        ${select(
          "reason",
          "Reason",
          reasons.map(({ name }) => name),
          "any fate",
        )}
        <label class="field grow"><span>Filter</span><input name="filter" value=${asked.filter ?? ""}
          placeholder="src 10.0.0.0/8 udp dport 53" autocapitalize="off" spellcheck=${false}
          onInput=${change("filter")} /></label>
        ${number("seconds", "Seconds", SECONDS_MAX, "10")}
        ${number("count", "At most packets", 100000, "100000")}
        ${number("snaplen", "Bytes of each", 65535, "all")}
      </div>
      ${meaning && html`<p class="quiet small">${asked.reason}: ${meaning}</p>`}
      <div class="actions"><button class="button main" disabled=${!mayOperate || state.running}>Capture</button></div>
      ${!mayOperate && html`<p class="quiet">Captures show what people send: they need a token that may operate.</p>`}
      ${state.running && html`<${Running} size=${state.size} stop=${() => abort.current.abort()} />`}
      ${state.file && html`<p role="status"><${State} kind="good">${bytes(state.size)} captured<//> <a class="button"
        href=${state.file} download="packets.pcapng">Save packets.pcapng</a></p>`}
      ${state.problem && html`<${Fault} problem=${state.problem} />`}
    </form>
    <section class="card"><header><h2>The same in a terminal</h2></header><p
      class="mono break">${command(asked)}</p></section>`;
}
