// A list of the router's that may be long: a form that selects from it, kept in the page's address, and a table.

import { html, useState } from "../vendor/htm-preact.js";
import { useAnswer } from "../api.js";
import { setQuery } from "../location.js";
import { Answer, Empty } from "./notice.js";
import { Table } from "./table.js";

/** Rows asked for at once: a browser is no place for a million. */
const LIMIT = 500;

/** `path`: the question. `fields`: `[parameter, label, example]`. `none`: what an empty list means without a selection. */
export function Selection({ path, query, fields, caption, none, ...table }) {
  const [typed, setTyped] = useState(query);
  const answer = useAnswer(path, { ...query, limit: LIMIT });
  const submit = (event) => {
    event.preventDefault();
    setQuery(typed);
  };
  const field = ([name, label, example]) => html`<label class="field"><span>${label}</span>
    <input name=${name} value=${typed[name] ?? ""} placeholder=${example}
      onInput=${(event) => setTyped({ ...typed, [name]: event.target.value.trim() })} /></label>`;
  const isAll = Object.values(query).every((value) => !value);
  return html`<section class="card">
    <form class="fields" onSubmit=${submit} aria-label=${`Select ${caption.toLowerCase()}`}>${fields.map(field)}
      <div class="actions"><button class="button main">Select</button>
        ${
          !isAll &&
          html`<button type="button" class="button" onClick=${() => {
            setTyped({});
            setQuery({});
          }}>All</button>`
        }
        <button type="button" class="button" onClick=${answer.reload}>Ask again</button></div>
    </form>
    <${Answer} answer=${answer} show=${({
      items,
      cursor,
    }) => html`<${Table} caption=${caption} rows=${items} ...${table}
      note=${cursor || items.length === LIMIT ? `the first ${LIMIT}: select more narrowly for others` : null}
      empty=${html`<${Empty} title=${`No ${caption.toLowerCase()}`}>${isAll ? none : "None matches the selection."}<//>`} />`} />
  </section>`;
}
