// The page's address: `#/bgp/transit-1?group=2`. The server knows `/` alone, so everything is behind the `#`.

import { useEffect, useState } from "./vendor/htm-preact.js";

export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const parts = path
    .split("/")
    .filter(Boolean)
    .map((part) => {
      try {
        return decodeURIComponent(part);
      } catch {
        return part;
      }
    });
  return { page: parts[0] ?? "overview", rest: parts.slice(1), query: Object.fromEntries(new URLSearchParams(query)) };
}

export function link(page, rest = [], query = {}) {
  const given = Object.entries(query).filter(
    ([, value]) => value !== null && value !== undefined && value !== "" && value !== false,
  );
  const path = [page, ...rest].map(encodeURIComponent).join("/");
  return `#/${path}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
}

export function go(page, rest, query) {
  window.location.hash = link(page, rest, query);
}

/** Changes the parameters of the page. */
export function setQuery(query) {
  const { page, rest } = parse(window.location.hash);
  window.location.hash = link(page, rest, query);
}

export function useLocation() {
  const [hash, setHash] = useState(window.location.hash);
  useEffect(() => {
    const changed = () => setHash(window.location.hash);
    window.addEventListener("hashchange", changed);
    return () => window.removeEventListener("hashchange", changed);
  }, []);
  return parse(hash);
}
