// A plot over time: a labeled axis always, one direction above zero and the other below, a table behind it.
//
// A live plot has a fixed width in seconds and slides; it never squeezes what it has into its frame.

import { html, useEffect, useMemo, useRef, useState } from "../vendor/htm-preact.js";
import { clock, format, formatTick, zone } from "../format.js";
import { Table } from "./table.js";
import { color, faded, useTheme } from "./theme.js";

/** Lines differ by their dashes too. */
const DASHES = [[], [7, 3], [2, 3], [9, 3, 2, 3], [5, 5], [1, 4], [12, 4], [4, 2, 1, 2]];
/** Rows of the table behind a plot: the latest. */
const ROWS = 120;

/**
 * The columns that are drawn. Stacked, a line is the sum of the series before it on its side of zero, and `bands` are
 * the pairs of lines between which a series is filled. Hidden series are drawn nowhere and add nothing.
 */
export function arrange(times, series, hidden, stacked) {
  const sums = { above: times.map(() => 0), below: times.map(() => 0) };
  const latest = {};
  const bands = [];
  const columns = series.map(({ label, values, below }, index) => {
    if (hidden.has(label)) return times.map(() => null);
    const sign = below ? -1 : 1;
    if (!stacked) return values.map((value) => (value === null ? null : sign * value));
    const side = below ? "below" : "above";
    if (latest[side] !== undefined) bands.push({ series: [index + 1, latest[side]], dir: below ? 1 : -1 });
    latest[side] = index + 1;
    return values.map((value, at) => (value === null ? null : (sums[side][at] += sign * value)));
  });
  // A history goes on growing; what is drawn does not.
  return { data: [times.slice(), ...columns], bands };
}

function options({ size, unit, series, stacked, bands, hidden, onZoom, range, hover }) {
  const [line, quiet] = [color("--line"), color("--quiet")];
  const font = `11.5px ${getComputedStyle(document.body).fontFamily}`;
  const axis = {
    stroke: quiet,
    font,
    labelFont: font,
    grid: { stroke: line, width: 1 },
    ticks: { stroke: line, width: 1, size: 5 },
  };
  const drawn = series.map(({ label, below, hue }, number) => {
    const index = hue ?? number;
    const stroke = color(`--series-${(index % 8) + 1}`);
    const fill = stacked ? faded(stroke, 0.62) : series.length <= 2 ? faded(stroke, below ? 0.08 : 0.14) : undefined;
    return {
      label,
      stroke,
      fill,
      width: stacked ? 0 : 1.5,
      dash: stacked ? undefined : DASHES[index % DASHES.length],
      show: !hidden.has(label),
      points: { show: false },
    };
  });
  return {
    ...size,
    legend: { show: false },
    cursor: {
      y: false,
      drag: { x: Boolean(onZoom), y: false, setScale: false },
      sync: { key: "time" },
      points: { size: 6 },
    },
    scales: {
      x: { time: true, range: () => range.current },
      y: {
        range: (_, low, high) => (low === high && !high ? [0, 1] : [Math.min(0, low * 1.08), Math.max(0, high * 1.08)]),
      },
    },
    axes: [
      {
        ...axis,
        label: `time, ${zone()}`,
        labelSize: 18,
        size: 30,
        space: 70,
        values: (_, splits, axisIndex, space, step) => splits.map((at) => clock(at, step)),
      },
      { ...axis, size: 82, space: 34, values: (_, splits) => splits.map((value) => formatTick(unit, Math.abs(value))) },
    ],
    series: [{}, ...drawn],
    bands,
    hooks: {
      setCursor: [(plot) => hover(plot.cursor.idx ?? null)],
      setSelect: [
        (plot) => {
          const [from, to] = [plot.select.left, plot.select.left + plot.select.width].map((x) => plot.posToVal(x, "x"));
          if (plot.select.width > 4) onZoom?.(from, to);
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        },
      ],
    },
  };
}

function Swatch({ index, stacked }) {
  const stroke = `var(--series-${(index % 8) + 1})`;
  return html`<svg viewBox="0 0 18 10" aria-hidden="true">${
    stacked
      ? html`<rect width="18" height="10" rx="2" fill=${stroke} />`
      : html`<path d="M0 5h18" stroke=${stroke} stroke-width="2.5"
        stroke-dasharray=${DASHES[index % DASHES.length].join(" ")} />`
  }</svg>`;
}

/**
 * `series`: `[{label, values, below?, hue?}]`, values by `times` (seconds since the epoch), not negative, `null` where
 * unknown; `hue`: the number of its color, if not its place.
 * `span_s`: a live plot shows the last so many seconds; without it, all times. `onZoom(from, to)`: the reader drags.
 */
export function Plot({ title, note, actions, unit, times, series, stacked = false, span_s, onZoom, height = 220 }) {
  const theme = useTheme();
  const [hidden, setHidden] = useState(new Set());
  const [at, setAt] = useState(null);
  const [open, setOpen] = useState(false);
  const [frame, plot, range] = [useRef(null), useRef(null), useRef([0, 1])];
  const end = times.at(-1) ?? Date.now() / 1000;
  range.current = span_s ? [end - span_s, end] : [times[0] ?? end - 1, end];
  const arranged = arrange(times, series, hidden, stacked);
  const names = series.map(({ label, below }) => `${label}${below ? "-" : "+"}`).join("\n");
  const shape = useMemo(() => ({}), [names, stacked, unit, theme, [...hidden].join("\n"), Boolean(onZoom)]);
  useEffect(() => {
    const size = { width: frame.current.clientWidth, height };
    const made = new uPlot(
      options({ size, unit, series, stacked, bands: arranged.bands, hidden, onZoom, range, hover: setAt }),
      arranged.data,
      frame.current,
    );
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: frame.current.clientWidth, height }));
    watch.observe(frame.current);
    return () => {
      watch.disconnect();
      made.destroy();
    };
  }, [shape]);
  useEffect(() => plot.current.setData(arranged.data), [shape, end, times.length, series[0]?.values]);
  const toggle = (label) => {
    const next = new Set(hidden);
    if (!next.delete(label)) next.add(label);
    setHidden(next);
  };
  const index = at ?? times.findLastIndex((_, each) => series.some(({ values }) => values[each] !== null));
  const legend = (
    { label, values, hue },
    number,
  ) => html`<li><button aria-pressed=${String(!hidden.has(label))} onClick=${() => toggle(label)} title="Show or hide">
    <${Swatch} index=${hue ?? number} stacked=${stacked} /><span class="name">${label}</span>
      <b>${format(unit, values[index])}</b></button></li>`;
  return html`<section class="card plot">
    <header><h2>${title}</h2>${note && html`<span class="quiet small">${note}</span>`}${actions}</header>
    <div class="canvas" ref=${frame} role="img"
      aria-label=${`${title}: plot; its numbers are in the table below it`}></div>
    <ul class="legend"><li class="when">${index >= 0 && times.length ? clock(times[index]) : "no point yet"}</li>${series.map(legend)}</ul>
    <details onToggle=${(event) => setOpen(event.target.open)}><summary>Numbers as a table</summary>
      ${open && html`<${Behind} title=${title} unit=${unit} times=${times} series=${series} />`}
    </details>
  </section>`;
}

function Behind({ title, unit, times, series }) {
  const step = times.length > 1 ? times[1] - times[0] : 1;
  const rows = times
    .map((time, at) => ({ time, at }))
    .slice(-ROWS)
    .reverse();
  const value =
    (number) =>
    ({ at }) =>
      series[number].values[at];
  const columns = series.map(({ label }, number) => ({
    id: label,
    head: label,
    num: true,
    value: value(number),
    cell: (row) => format(unit, value(number)(row)),
  }));
  return html`<${Table} caption=${`${title}: the latest numbers`} rows=${rows} keyOf=${({ time }) => time}
    columns=${[{ id: "time", head: "Time", cell: ({ time }) => clock(time, step) }, ...columns]} />`;
}
