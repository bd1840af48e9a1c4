// The theme: the system's or the reader's, and its colors for drawings on a canvas, which know no variables.

import { html, useEffect, useState } from "../vendor/htm-preact.js";

const CHOICES = ["system", "light", "dark"];
const system = window.matchMedia("(prefers-color-scheme: dark)");

/** A number that changes when colors do. */
export function useTheme() {
  const [version, setVersion] = useState(0);
  useEffect(() => {
    const changed = () => setVersion((n) => n + 1);
    system.addEventListener("change", changed);
    window.addEventListener("theme", changed);
    return () => {
      system.removeEventListener("change", changed);
      window.removeEventListener("theme", changed);
    };
  }, []);
  return version;
}

/** The present value of a color variable. */
export function color(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

/** The same color, `part` opaque. */
export const faded = (rgb, part) => rgb.replace(/^rgb\((.*)\)$/, `rgba($1, ${part})`);

export function ThemeSwitch() {
  const [choice, setChoice] = useState(document.documentElement.dataset.theme ?? "system");
  const next = CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length];
  const press = () => {
    if (next === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    try {
      localStorage.setItem("theme", next);
    } catch {
      // Without storage the choice lasts as long as the page.
    }
    setChoice(next);
    window.dispatchEvent(new Event("theme"));
  };
  return html`<button class="button plain" onClick=${press} title=${`Change to ${next}`}>Theme: ${choice}</button>`;
}
