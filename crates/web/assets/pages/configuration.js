// Configuration: what is in force, what a reload of the file would change, and findings in a text before it is a file.

import { html, useRef, useState } from "../vendor/htm-preact.js";
import { post, useAnswer } from "../api.js";
import { age, counted } from "../format.js";
import { Answer, Fault } from "../parts/notice.js";
import { Facts } from "../parts/stat.js";
import { State } from "../parts/state.js";

/** A line of TOML: comments and sections stand out. */
function line(text) {
  if (/^\s*\[/.test(text)) return html`<span class="section">${text}</span>`;
  const [, code, comment] = /^((?:[^#"']|"(?:[^"\\]|\\.)*"|'[^']*')*)(#.*)?$/.exec(text) ?? [null, text, ""];
  return html`${code}${comment && html`<span class="comment">${comment}</span>`}`;
}

function Code({ text }) {
  const lines = text.replace(/\n$/, "").split("\n");
  return html`<div class="code" role="region" aria-label="Configuration in force" tabindex="0">
    ${lines.map((each, at) => html`<div>${line(each)}${"\n"}</div>`)}</div>`;
}

function Changes({ changes, none }) {
  if (changes.length === 0) return html`<p class="quiet">${none}</p>`;
  return html`<ul class="changes">${changes.map((each) => html`<li class="break">${each}</li>`)}</ul>`;
}

/** What a reload would change, and the reload. */
function Reload({ mayOperate, done, refusal }) {
  const compared = useAnswer("config/compare");
  const [outcome, setOutcome] = useState(null);
  const dialog = useRef(null);
  const submit = (event) => {
    event.preventDefault();
    dialog.current.close();
    post("config/reload").then(
      (value) => {
        setOutcome({ changes: value.changes });
        compared.reload();
        done();
      },
      (problem) => setOutcome({ problem }),
    );
  };
  const refused = compared.problem?.kind === "refused";
  return html`<section class="card">
    <header><h2>What a reload would change</h2><button class="button"
      onClick=${compared.reload}>Compare again</button></header>
    ${
      refusal &&
      html`<div class="notice warn"><p><${State} kind="warn"><strong>The last reload was refused</strong><//></p><pre
        class="break">${refusal}</pre></div>`
    }
    ${
      refused
        ? html`<div class="notice bad"><p><${State} kind="bad"><strong>The file would be refused</strong><//></p><pre
          class="break">${compared.problem.message}</pre></div>`
        : html`<${Answer} answer=${compared} what="Comparing" show=${({ changes }) => html`<${Changes}
          changes=${changes} none="Nothing: the file is what is in force." />`} />`
    }
    ${mayOperate && !refused && html`<div class="actions"><button class="button main"
      onClick=${() => dialog.current.showModal()}>Reload</button></div>`}
    ${outcome?.changes && html`<p role="status"><${State} kind="good">Reloaded<//></p><${Changes}
      changes=${outcome.changes} none="Nothing changed." />`}
    ${outcome?.problem && html`<${Fault} problem=${outcome.problem} />`}
    <dialog ref=${dialog} aria-labelledby="reload"><form onSubmit=${submit}>
      <h2 id="reload">Reload the configuration?</h2>
        <p>The router reads its file again and applies the difference; packets are not lost (docs/reload.md).</p>
      <div class="actions"><button class="button main">Reload</button><button type="button" class="button"
        onClick=${() => dialog.current.close()}>Leave it</button></div>
    </form></dialog>
  </section>`;
}

function Finding({ finding }) {
  const mark = `${" ".repeat(Math.max(0, finding.column - 1))}${"^".repeat(Math.max(1, finding.length))}`;
  return html`<li class="finding">
    <p><${State} kind=${finding.severity === "error" ? "bad" : "warn"}><strong>${finding.severity}</strong><//> <span
      class="break">${finding.message}</span>
      ${finding.line > 0 && html` <span class="quiet">line ${finding.line}, column ${finding.column}</span>`}</p>
    ${finding.text && html`<pre>${finding.text}${"\n"}${mark} ${finding.expected}</pre>`}
    ${finding.help && html`<p class="quiet">${finding.help}</p>`}
  </li>`;
}

/** Checks a text as `thalweg check` checks a file. */
function Check({ text }) {
  const [typed, setTyped] = useState(text);
  const [outcome, setOutcome] = useState(null);
  const submit = (event) => {
    event.preventDefault();
    post("config/check", { text: typed }).then(
      (value) => setOutcome({ value }),
      (problem) => setOutcome({ problem }),
    );
  };
  const value = outcome?.value;
  return html`<section class="card"><header><h2>Check a new configuration</h2><span
    class="quiet small">nothing is applied or written</span></header>
    <form onSubmit=${submit}>
      <label><span class="hidden">Configuration to check</span>
        <textarea rows="14" spellcheck=${false} value=${typed} onInput=${(event) => {
          setTyped(event.target.value);
          setOutcome(null);
        }}></textarea></label>
      <div class="actions"><button class="button main">Check</button></div>
    </form>
    ${value && html`<p role="status">${value.ok ? html`<${State}
      kind="good">It can be used${value.findings.length ? `; ${counted(value.findings.length, "warning")}` : ""}<//>` : html`<${State}
      kind="bad">It cannot be used<//>`}</p>`}
    ${value && value.findings.length > 0 && html`<ul class="routes">${value.findings.map((finding) => html`<${Finding}
      finding=${finding} />`)}</ul>`}
    ${outcome?.problem && html`<${Fault} problem=${outcome.problem} />`}
  </section>`;
}

function InForce({ view }) {
  const differs = view.file_differs;
  const state =
    differs === false
      ? html`<${State} kind="good">the file is what is in force<//>`
      : differs
        ? html`<${State} kind="warn">the file has changed since: reload to use it<//>`
        : html`<${State} kind="bad">the file cannot be read<//>`;
  return html`<section class="card"><header><h2>In force</h2><span
    class="quiet small">passwords are masked</span></header>
    <${Facts} rows=${[
      ["File", html`<span class="mono">${view.path}</span>`],
      ["Loaded", `${age(view.age_s)} ago`],
      ["State", state],
    ]} />
    <${Code} text=${view.text} /></section>`;
}

export function Configuration({ live, mayOperate }) {
  const config = useAnswer("config");
  return html`
    <div class="head"><h1>Configuration</h1><p>the file stays the truth: this page changes nothing in it</p></div>
    <${Answer} answer=${config} show=${(view) => html`
      <${Reload} mayOperate=${mayOperate} done=${config.reload} refusal=${live.reports.status?.item.reload_refused} />
      <${InForce} view=${view} />
      ${mayOperate ? html`<${Check} text=${view.text} />` : html`<p
        class="quiet">A token that may operate can check a new configuration here; <code>thalweg check FILE</code> does it in a terminal.</p>`}`} />`;
}
