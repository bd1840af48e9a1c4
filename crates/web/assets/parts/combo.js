// A text field that completes what is typed (ARIA's combobox with a list).

import { html, useRef, useState } from "../vendor/htm-preact.js";

const SHOWN = 12;

/**
 * `suggest(text)`: `[{text, note?, value?}]`; `onChoose(suggestion)` takes one; `onEnter(text)` takes the text as it is.
 * `children`: what stands inside the field, such as the key that leads to it.
 */
export function Combo({ id, label, value, placeholder, suggest, onInput, onChoose, onEnter, inputRef, children }) {
  const [open, setOpen] = useState(false);
  const [at, setAt] = useState(-1);
  const own = useRef(null);
  const input = inputRef ?? own;
  const list = open ? suggest(value).slice(0, SHOWN) : [];
  const choose = (suggestion) => {
    setAt(-1);
    input.current?.focus();
    onChoose(suggestion);
  };
  const key = (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      setOpen(true);
      const step = event.key === "ArrowDown" ? 1 : -1;
      setAt(list.length ? (at + step + list.length + (at < 0 && step < 0 ? 1 : 0)) % list.length : -1);
    } else if (event.key === "Escape") {
      setOpen(false);
      setAt(-1);
    } else if (event.key === "Enter") {
      event.preventDefault();
      setOpen(false);
      if (list[at]) choose(list[at]);
      else onEnter?.(value);
    } else if (event.key === "Tab" && list[at]) {
      event.preventDefault();
      choose(list[at]);
    }
  };
  const option = (
    suggestion,
    index,
  ) => html`<li role="option" id=${`${id}-${index}`} aria-selected=${String(index === at)}
      onMouseDown=${(event) => {
        event.preventDefault();
        choose(suggestion);
      }}>
    ${suggestion.text}${suggestion.note && html`<span>${suggestion.note}</span>`}
  </li>`;
  return html`<div class="combo">
    <input id=${id} ref=${input} role="combobox" aria-label=${label} aria-expanded=${String(list.length > 0)}
      aria-controls=${`${id}-list`}
      aria-autocomplete="list" aria-activedescendant=${at >= 0 ? `${id}-${at}` : null} autocomplete="off" autocapitalize="off" spellcheck=${false}
      value=${value} placeholder=${placeholder} onKeyDown=${key} onFocus=${() => setOpen(true)} onBlur=${() => setOpen(false)}
      onInput=${(event) => {
        setOpen(true);
        setAt(-1);
        onInput(event.target.value);
      }} />
    ${children}
    <ul id=${`${id}-list`} role="listbox" aria-label=${`${label}: suggestions`}
      hidden=${list.length === 0}>${list.map(option)}</ul>
  </div>`;
}
