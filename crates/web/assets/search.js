// One field that leads everywhere: an address to its route, a name to its neighbor or port, a word to its page.

import { html, useState } from "./vendor/htm-preact.js";
import { get } from "./api.js";
import { link } from "./location.js";
import { Combo } from "./parts/combo.js";
import { PAGES } from "./pages.js";

/** Whether a text may be an address or a prefix; the router decides. */
export const isAddress = (text) => /^(\d{1,3}(\.\d{1,3}){3}|[0-9a-f]*:[0-9a-f:.]*)(\/\d{1,3})?$/i.test(text);

function suggestions(text, ports, neighbors) {
  const wanted = text.trim().toLowerCase();
  const has = (...names) => names.some((name) => name?.toLowerCase().includes(wanted));
  const found = [];
  if (isAddress(wanted)) found.push({ text: wanted, note: "its route", to: link("route", [wanted]) });
  if (wanted) {
    found.push(
      ...neighbors
        .filter((each) => has(each.name, each.address, `as${each.as}`, each.description))
        .map((each) => ({
          text: each.name,
          note: `BGP, AS ${each.as}`,
          to: link("bgp", [each.name]),
        })),
      ...ports
        .filter((each) => has(each.name, each.interface, each.mac))
        .map((each) => ({ text: each.name, note: "port", to: link("ports", [each.name]) })),
    );
  }
  found.push(
    ...PAGES.filter(({ name }) => has(name)).map(({ id, name, key }) => ({
      text: name,
      note: `g ${key}`,
      to: link(id),
    })),
  );
  return found;
}

export function Search({ inputRef, live }) {
  const [text, setText] = useState("");
  const [neighbors, setNeighbors] = useState([]);
  const known = live.reports.bgp?.items ?? neighbors;
  const focus = () =>
    get("bgp/neighbors").then(
      ({ items }) => setNeighbors(items),
      () => {},
    );
  const choose = ({ to }) => {
    setText("");
    window.location.hash = to;
    inputRef.current?.blur();
  };
  const suggest = (typed) => suggestions(typed, live.reports.ports?.items ?? [], known);
  const enter = (typed) => {
    const [first] = typed.trim() ? suggest(typed) : [];
    if (first) choose(first);
  };
  return html`<div class="search" role="search" onFocusCapture=${focus}>
    <${Combo} id="search" label="Search" placeholder="Address, neighbor, port or page" value=${text}
      inputRef=${inputRef}
      suggest=${suggest} onInput=${setText} onChoose=${choose} onEnter=${enter}><kbd aria-hidden="true">/</kbd><//>
  </div>`;
}
