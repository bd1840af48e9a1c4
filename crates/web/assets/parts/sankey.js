// A Sankey diagram: how amounts flow from the values of one key to those of the next.

import { html, useEffect, useMemo, useRef, useState } from "../vendor/htm-preact.js";

/** The least width; a node's width; the height that a node has on average, and the gap to the next. */
const [WIDTH_MIN, NODE, ROW, GAP] = [640, 12, 34, 16];

/** Nodes and links of rows with several keys: each row links its neighboring values. */
export function graph(rows, keys, amount) {
  const nodes = new Map();
  const links = new Map();
  for (const row of rows) {
    const path = keys.map((key, level) => {
      const name = String(row[key] ?? "unknown");
      const id = `${level}\u0000${name}`;
      if (!nodes.has(id)) nodes.set(id, { id, name, level });
      return id;
    });
    for (let level = 1; level < path.length; level += 1) {
      const [source, target] = [path[level - 1], path[level]];
      const id = `${source}\u0001${target}`;
      if (!links.has(id)) links.set(id, { source, target, value: 0 });
      links.get(id).value += amount(row);
    }
  }
  return { nodes: [...nodes.values()], links: [...links.values()].filter((link) => link.value > 0) };
}

/** The middle line of a link, as `d3.linkHorizontal` draws it. */
function curve({ source, target, y0, y1 }) {
  const middle = (source.x1 + target.x0) / 2;
  return `M${source.x1},${y0}C${middle},${y0} ${middle},${y1} ${target.x0},${y1}`;
}

export function Sankey({ label, rows, keys, amount, show }) {
  const frame = useRef(null);
  const [width, setWidth] = useState(WIDTH_MIN);
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.max(WIDTH_MIN, Math.round(entry.contentRect.width))));
    watch.observe(frame.current);
    return () => watch.disconnect();
  }, []);
  const drawn = useMemo(() => {
    const { nodes, links } = graph(rows, keys, amount);
    const used = new Set(links.flatMap((link) => [link.source, link.target]));
    const rest = nodes.filter((node) => used.has(node.id));
    if (rest.length === 0) return null;
    const most = Math.max(...keys.map((_, level) => rest.filter((node) => node.level === level).length));
    const height = Math.max(160, most * ROW);
    const layout = d3
      .sankey()
      .nodeId((node) => node.id)
      .nodeAlign((node) => node.level)
      .nodeWidth(NODE)
      .nodePadding(GAP)
      .extent([
        [1, 20],
        [width - 1, height],
      ]);
    return { height, ...layout({ nodes: rest, links }) };
  }, [rows, keys.join(), width]);
  if (!drawn) return html`<div ref=${frame}></div>`;
  const color = (node) => `var(--series-${(node.index % 8) + 1})`;
  const last = keys.length - 1;
  const text = (
    node,
  ) => html`<text x=${node.level === last ? node.x0 - 6 : node.x1 + 6} y=${(node.y0 + node.y1) / 2} dy="0.35em"
      text-anchor=${node.level === last ? "end" : "start"}>${node.name.length > 30 ? `${node.name.slice(0, 29)}…` : node.name}</text>`;
  const heading = (
    key,
    level,
  ) => html`<text class="quiet" y="10" x=${level === last ? width : (width / Math.max(1, last)) * level}
      text-anchor=${level === last ? "end" : level === 0 ? "start" : "middle"}>${key.replaceAll("_", " ")}</text>`;
  return html`<div class="scroll" ref=${frame}><svg class="sankey" viewBox=${`0 0 ${width} ${drawn.height + 4}`} role="img"
    aria-label=${label}>
    ${keys.map(heading)}
    ${drawn.links.map(
      (link) => html`<path d=${curve(link)} stroke=${color(link.source)} stroke-width=${Math.max(1, link.width)}>
      <title>${`${link.source.name} → ${link.target.name}: ${show(link.value)}`}</title></path>`,
    )}
    ${drawn.nodes.map(
      (
        node,
      ) => html`<rect x=${node.x0} y=${node.y0} width=${NODE} height=${Math.max(1, node.y1 - node.y0)}
        fill=${color(node)}>
      <title>${`${node.name}: ${show(node.value)}`}</title></rect>`,
    )}
    ${drawn.nodes.map(text)}
  </svg></div>`;
}
