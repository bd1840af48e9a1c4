// What went wrong, and what is not there yet, in words that say what to do.

import { html } from "../vendor/htm-preact.js";
import { State } from "./state.js";

const ADVICE = {
  "no-router": "The router is not running, or its control socket is somewhere else. This page tries again by itself.",
  unreachable: "Is `thalweg web` running? This page tries again by itself.",
  "too-many": "Too many questions in a short time: wait a moment.",
  busy: "The server is busy: wait a moment.",
  forbidden: "Your token may read, but not do this. Sign in with one that may operate.",
};

export function Fault({ problem, retry }) {
  if (problem.isAbsent) return html`<${Empty} title="Not configured">${problem.message}<//>`;
  return html`<div class="notice bad" role="alert">
    <p><${State} kind="bad"><strong>${problem.title}</strong><//></p>
    <p>${problem.message}</p>
    ${ADVICE[problem.kind] && html`<p class="quiet">${ADVICE[problem.kind]}</p>`}
    ${retry && html`<p><button class="button" onClick=${retry}>Try again</button></p>`}
  </div>`;
}

export function Empty({ title, children }) {
  return html`<div class="empty"><strong>${title}</strong>${children}</div>`;
}

/** An answer on its way: the page keeps its shape, and says so to those who do not see it. */
export const Waiting = ({ what = "Asking the router" }) => html`<p class="quiet" role="status">${what} …</p>`;

/** The answer of `useAnswer`: its fault, that it is on its way, or `show(value)`. */
export function Answer({ answer, what, show }) {
  if (answer.problem) return html`<${Fault} problem=${answer.problem} retry=${answer.reload} />`;
  if (answer.value === null) return html`<${Waiting} what=${what} />`;
  return show(answer.value);
}
