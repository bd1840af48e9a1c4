// Questions to the router (docs/api.md). An answer is a view, or a `Problem` (RFC 9457) is thrown.

import { useCallback, useEffect, useState } from "./vendor/htm-preact.js";

const BASE = "/api/v1/";

export class Problem extends Error {
  constructor({ type = "", title = "Error", status = 0, detail = "" }, retryAfter = null) {
    super(detail || title);
    this.kind = type.replace("urn:thalweg:problem:", "");
    Object.assign(this, { title, status, retryAfter });
  }

  /** This router is not configured for what was asked. */
  get isAbsent() {
    return this.kind === "absent";
  }
}

/** Problems that pass by themselves, and seconds until an answer is asked for again. */
const PASSING = ["no-router", "unreachable", "busy", "too-many"];
const AGAIN_S = 5;

/** Called when the server wants a token. */
let onNoToken = () => {};
export function whenNoToken(callback) {
  onNoToken = callback;
}

/** The address of a question. Parameters without a value are left out. */
export function address(path, query = {}) {
  const given = Object.entries(query).filter(
    ([, value]) => value !== null && value !== undefined && value !== "" && value !== false,
  );
  const parameters = new URLSearchParams(given.map(([key, value]) => [key, value === true ? "1" : value]));
  return BASE + path + (given.length ? `?${parameters}` : "");
}

async function ask(url, options) {
  let response;
  try {
    response = await fetch(url, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem({ type: "unreachable", title: "No answer", detail: "the server does not answer" });
  }
  if (response.ok) return response.json();
  let problem = { title: response.statusText, status: response.status };
  try {
    problem = await response.json();
  } catch {
    // Not a problem document: what the status line says has to do.
  }
  const retry = Number(response.headers.get("Retry-After"));
  const thrown = new Problem(problem, retry || null);
  if (thrown.kind === "no-token") onNoToken();
  throw thrown;
}

export const get = (path, query, signal) => ask(address(path, query), { signal });

export const post = (path, body = {}) =>
  ask(address(path), { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

export const signOut = () => ask(address("session"), { method: "DELETE" });

/**
 * The answer to a question, asked again when the question or `round` changes, when `reload` is called, and after
 * problems that pass. `path` may be null: nothing is asked yet. The former answer stays until the next one is there.
 */
export function useAnswer(path, query, round = 0) {
  const url = path === null ? null : address(path, query);
  const [own, setOwn] = useState(0);
  const reload = useCallback(() => setOwn((n) => n + 1), []);
  const [state, setState] = useState({ url: null, value: null, problem: null });
  useEffect(() => {
    if (url === null) return undefined;
    const abort = new AbortController();
    ask(url, { signal: abort.signal }).then(
      (value) => abort.signal.aborted || setState({ url, value, problem: null }),
      (problem) => abort.signal.aborted || setState({ url, value: null, problem }),
    );
    return () => abort.abort();
  }, [url, own, round]);
  const { value, problem } = state.url === url ? state : { value: null, problem: null };
  useEffect(() => {
    if (!PASSING.includes(problem?.kind)) return undefined;
    const timer = setTimeout(reload, (problem.retryAfter ?? AGAIN_S) * 1000);
    return () => clearTimeout(timer);
  }, [problem]);
  return { value, problem, reload };
}
