// The frame of the console: navigation, search, keys, sign-in, and the page that the address names.

import { html, render, useEffect, useErrorBoundary, useRef, useState } from "./vendor/htm-preact.js";
import { Problem, get, signOut, whenNoToken } from "./api.js";
import { useLive } from "./live.js";
import { link, useLocation } from "./location.js";
import { Fault } from "./parts/notice.js";
import { State } from "./parts/state.js";
import { ThemeSwitch } from "./parts/theme.js";
import { Search } from "./search.js";
import { SignIn } from "./signin.js";
import { GROUPS, PAGES } from "./pages.js";

/** What every page follows: the head shows it, and histories go on while another page is open. */
const TOPICS = ["status", "ports", "counters"];
/** Milliseconds between `g` and the key of a page. */
const JUMP_MS = 1500;
/** The kind of problem that the event stream names when the router is away. */
const GONE = "urn:thalweg:problem:no-router";

function useKeys(search, setHelp) {
  const jump = useRef(0);
  useEffect(() => {
    const press = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, textarea, select, dialog"))
        return;
      const page = Date.now() - jump.current < JUMP_MS && PAGES.find(({ key }) => key === event.key);
      jump.current = event.key === "g" ? Date.now() : 0;
      if (page) window.location.hash = link(page.id);
      else if (event.key === "/") search.current?.focus();
      else if (event.key === "?") setHelp(true);
      else return;
      event.preventDefault();
    };
    window.addEventListener("keydown", press);
    return () => window.removeEventListener("keydown", press);
  }, []);
}

function Keys({ close }) {
  const dialog = useRef(null);
  useEffect(() => dialog.current.showModal(), []);
  const rows = [["/", "search"], ["?", "this list"], ...PAGES.map(({ key, name }) => [`g ${key}`, name])];
  return html`<dialog ref=${dialog} onClose=${close} aria-labelledby="keys"><div>
    <h2 id="keys">Keys</h2>
    <dl class="facts">${rows.map(([keys, name]) => html`<dt>${keys.split(" ").map((key) => html`<kbd>${key}</kbd> `)}</dt>
      <dd>${name}</dd>`)}</dl>
    <div class="actions"><button class="button" onClick=${() => dialog.current.close()}>Close</button></div>
  </div></dialog>`;
}

function Side({ page }) {
  const [open, setOpen] = useState(false);
  useEffect(() => setOpen(false), [page]);
  const entry = ({ id, name }) =>
    html`<li><a href=${link(id)} aria-current=${id === page ? "page" : null}>${name}</a></li>`;
  return html`<div class=${open ? "side open" : "side"}>
    <a class="brand" href=${link("overview")}><img src="/assets/icon.svg" alt="" />Thalweg</a>
    <button class="button menu" aria-expanded=${String(open)} aria-controls="pages"
      onClick=${() => setOpen(!open)}>Menu</button>
    <nav id="pages" aria-label="Pages">${GROUPS.map((group) => html`<h2>${group}</h2>
      <ul>${PAGES.filter((each) => each.group === group).map(entry)}</ul>`)}</nav>
  </div>`;
}

function Connection({ live }) {
  const kind =
    live.connection.kind === "open"
      ? live.gone
        ? "bad"
        : live.paused
          ? "idle"
          : "good"
      : live.connection.kind === "lost"
        ? "bad"
        : "idle";
  const words =
    live.connection.kind === "open"
      ? live.gone
        ? "the router does not answer"
        : live.paused
          ? "paused"
          : "live"
      : live.connection.words;
  return html`<span role="status"><${State} kind=${kind}>${words}<//></span>
    <button class="button plain" aria-pressed=${String(live.paused)}
      onClick=${() => live.pause(!live.paused)}>${live.paused ? "Resume" : "Pause"}</button>`;
}

function Health({ live }) {
  const status = live.reports.status?.item;
  if (!status || live.gone) return null;
  const problems = status.problems.length;
  return html`<a href=${link("overview")}><${State}
    kind=${problems ? "bad" : "good"}>${problems ? `${problems} ${problems === 1 ? "problem" : "problems"}` : "all is well"}<//></a>`;
}

/** Shows a page; one that fails says so, and the frame stays. */
function Page({ page, ...rest }) {
  const [error, forget] = useErrorBoundary();
  const shown = useRef(page);
  if (error && shown.current !== page) forget();
  shown.current = page;
  if (error)
    return html`<${Fault} problem=${new Problem({ title: "This page failed", detail: String(error) })}
      retry=${forget} />`;
  return html`<${page.Page} ...${rest} />`;
}

function Console() {
  const place = useLocation();
  const page = PAGES.find(({ id }) => id === place.page);
  const [session, setSession] = useState(null);
  const [help, setHelp] = useState(false);
  const [search, main] = [useRef(null), useRef(null)];
  useEffect(() => {
    whenNoToken(() => setSession({ may: null, name: null }));
    get("session").then(setSession, () => setSession({ may: "read", name: null }));
  }, []);
  useKeys(search, setHelp);
  useEffect(() => {
    document.title = page ? `${page.name} · Thalweg` : "Thalweg";
    window.scrollTo(0, 0);
  }, [place.page]);
  if (session === null) return null;
  if (session.may === null) return html`<${SignIn} done=${setSession} />`;
  return html`<${Frame} ...${{ place, page, session, setSession, search, main, help, setHelp }} />`;
}

function Frame({ place, page, session, setSession, search, main, help, setHelp }) {
  const live = useLive([...new Set([...TOPICS, ...(page?.topics ?? [])])]);
  const out = () => signOut().then(setSession, () => setSession({ may: null, name: null }));
  const missing = new Problem({
    title: "No such page",
    detail: `There is no page "${place.page}": choose one from the menu.`,
  });
  return html`
    <a class="skip" href="#main" onClick=${(event) => {
      event.preventDefault();
      main.current.focus();
    }}>Skip to the page</a>
    <div class="shell">
      <${Side} page=${place.page} />
      <div>
        <header class="bar">
          <${Search} inputRef=${search} live=${live} />
          <div class="right">
            <${Health} live=${live} />
            <${Connection} live=${live} />
            <${ThemeSwitch} />
            ${session.may === "read" && html`<span class="quiet small">read only</span>`}
            ${session.name && html`<button class="button plain" onClick=${out}>Sign out ${session.name}</button>`}
          </div>
        </header>
        ${live.gone && html`<div class="gone"><${Fault}
          problem=${new Problem({ type: GONE, title: "The router does not answer", detail: live.gone })} /></div>`}
        <main id="main" ref=${main} tabindex="-1">
          ${page ? html`<${Page} page=${page} live=${live} place=${place}
            mayOperate=${session.may === "operate"} />` : html`<${Fault} problem=${missing} />`}
        </main>
      </div>
    </div>
    ${help && html`<${Keys} close=${() => setHelp(false)} />`}`;
}

render(html`<${Console} />`, document.getElementById("app"));
