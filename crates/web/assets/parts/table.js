// A table that sorts by its columns and scrolls inside its own frame.

import { html, useState } from "../vendor/htm-preact.js";
import { count, words } from "../format.js";

/** Rows shown before the reader asks for all. */
const SHOWN = 100;

function compare(a, b) {
  // Rows without a value come last in either direction.
  if (a === null || a === undefined || b === null || b === undefined) return 0;
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

function sorted(rows, column, descending) {
  if (!column) return rows;
  const value = column.value ?? ((row) => row[column.id]);
  const known = rows.filter((row) => (value(row) ?? null) !== null);
  const unknown = rows.filter((row) => (value(row) ?? null) === null);
  known.sort((a, b) => (descending ? -1 : 1) * compare(value(a), value(b)));
  return [...known, ...unknown];
}

/**
 * `columns`: `{id, head, cell?, value?, num?, wrap?, hint?}`; `cell` makes what is shown, `value` what is sorted by.
 * `sort`: the first order, `id` or `-id`. `row`: classes of a row. `empty`: shown instead of no rows.
 */
export function Table({ caption, note, columns, rows, keyOf, sort = "", row, empty }) {
  const [order, setOrder] = useState(sort);
  const [all, setAll] = useState(false);
  if (rows.length === 0 && empty) return html`<div>${caption && html`<h2>${caption}</h2>`}${empty}</div>`;
  const descending = order.startsWith("-");
  const by = order.replace("-", "");
  const inOrder = sorted(
    rows,
    columns.find((column) => column.id === by),
    descending,
  );
  const shown = all ? inOrder : inOrder.slice(0, SHOWN);
  const press = ({ id, num }) => setOrder(by === id ? (descending ? id : `-${id}`) : num ? `-${id}` : id);
  const head = (column) => {
    const direction = by === column.id ? (descending ? "descending" : "ascending") : "none";
    return html`<th scope="col" class=${column.num ? "num" : ""} aria-sort=${direction} title=${column.hint}>
      <button type="button" onClick=${() => press(column)}>${column.head}</button>
    </th>`;
  };
  const cell = (column, each) => {
    const content = column.cell ? column.cell(each) : each[column.id];
    const classes = `${column.num ? "num" : ""} ${column.wrap ? "wrap" : ""} ${column.mono ? "mono" : ""}`.trim();
    return html`<td class=${classes || null}>${content ?? "–"}</td>`;
  };
  return html`<div>
    <div class="scroll" role="region" aria-label=${caption} tabindex="0">
      <table>
        <caption>${caption}${note && html`<span class="quiet">${note}</span>`}</caption>
        <thead><tr>${columns.map(head)}</tr></thead>
        <tbody>${shown.map((each, at) => html`<tr key=${keyOf ? keyOf(each) : at}
          class=${row?.(each)}>${columns.map((column) => cell(column, each))}</tr>`)}</tbody>
      </table>
    </div>
    ${shown.length < rows.length && html`<p><button class="button"
      onClick=${() => setAll(true)}>Show all ${count(rows.length)}</button></p>`}
  </div>`;
}

/** Counters by name. */
export function Counters({ counters }) {
  const rows = Object.entries(counters).map(([name, value]) => ({ name: words(name), value }));
  const columns = [
    { id: "name", head: "Counter" },
    { id: "value", head: "Value", num: true, cell: ({ value }) => count(value) },
  ];
  return html`<${Table} caption="Counters" note="since the start" columns=${columns} rows=${rows}
    keyOf=${({ name }) => name} />`;
}
