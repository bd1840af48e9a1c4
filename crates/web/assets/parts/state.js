// A state as shape, color and word. The shape alone says it too.

import { html } from "../vendor/htm-preact.js";

const SHAPES = {
  good: () =>
    html`<circle cx="8" cy="8" r="7" fill="currentColor" /><path d="M4.6 8.3l2.3 2.3 4.5-4.9" fill="none"
      stroke="var(--surface)" stroke-width="1.8" />`,
  warn: () =>
    html`<path d="M8 1.2L15.4 14.4H.6z" fill="currentColor" /><path d="M8 5.8v4.2M8 11.4v1.4" stroke="var(--surface)"
      stroke-width="1.6" />`,
  bad: () =>
    html`<rect x="1" y="1" width="14" height="14" rx="3" fill="currentColor" /><path d="M5 5l6 6M11 5l-6 6"
      stroke="var(--surface)" stroke-width="1.8" />`,
  idle: () =>
    html`<circle cx="8" cy="8" r="6" fill="none" stroke="currentColor" stroke-width="2" stroke-dasharray="3 2.3" />`,
};

export function State({ kind, children }) {
  return html`<span class=${`state ${kind}`}><svg viewBox="0 0 16 16"
    aria-hidden="true">${SHAPES[kind]()}</svg>${children}</span>`;
}

export const UpDown = ({ up }) => (up ? html`<${State} kind="good">up<//>` : html`<${State} kind="bad">down<//>`);

/** The state of a BGP session. */
export function Session({ state }) {
  const kind = state === "Established" ? "good" : state === "Idle" ? "bad" : "warn";
  return html`<${State} kind=${kind}>${state}<//>`;
}
