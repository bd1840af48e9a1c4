// A number with its name, and a list of facts.

import { html } from "../vendor/htm-preact.js";

/** `value` may be `1.24 Gbit/s`: the unit is set smaller. `part` (0 to 1) draws a meter. */
export function Stat({ label, value, note, part, bad }) {
  const [number, unit] = String(value).split(/ (.*)/);
  return html`<dl class=${bad ? "stat bad" : "stat"}>
    <dt>${label}</dt>
    <dd>${number}${unit && html` <small>${unit}</small>`}
      ${part !== undefined && html`<div class="meter"><span
        style=${{ width: `${Math.min(1, part) * 100}%` }}></span></div>`}
      ${note && html`<div class="note">${note}</div>`}
    </dd>
  </dl>`;
}

/** Names and values; a row without a value is left out. */
export function Facts({ rows }) {
  const given = rows.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return html`<dl class="facts">${given.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`;
}
