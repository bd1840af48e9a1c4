// What the router reports every second: one event stream for the page, and the history that plots show.
//
// The stream carries counters. Rates are differences of two reports, made here once for all pages, so a history
// goes on while the reader looks at another page.

import { useEffect, useState } from "./vendor/htm-preact.js";
import { address, get } from "./api.js";

/** Seconds of history. */
export const HISTORY_S = 600;
/** Reports farther apart than this leave a gap in a line. */
const GAP_S = 3.5;
/** Seconds between attempts to reach a server that is away, at first and at most. */
const [RETRY_S, RETRY_MAX_S] = [2, 30];

/** Columns of numbers, a row a report, the oldest first. */
export class History {
  times = [];
  columns = new Map();

  push(time, values) {
    const last = this.times.at(-1);
    if (last !== undefined && time - last > GAP_S) this.row(last + 1, {});
    this.row(time, values);
    const old = this.times.findIndex((each) => each >= time - HISTORY_S);
    if (old > 0) {
      this.times.splice(0, old);
      for (const column of this.columns.values()) column.splice(0, old);
    }
  }

  row(time, values) {
    this.times.push(time);
    for (const name of Object.keys(values)) {
      if (!this.columns.has(name)) this.columns.set(name, Array(this.times.length - 1).fill(null));
    }
    for (const [name, column] of this.columns) column.push(values[name] ?? null);
  }

  column(name) {
    return this.columns.get(name) ?? Array(this.times.length).fill(null);
  }

  last(name) {
    return this.columns.get(name)?.at(-1) ?? null;
  }
}

/** The counters of a report whose growth is plotted, and its plain values, by name of column. */
const COLUMNS = {
  ports: ({ items }) => ({
    counters: Object.fromEntries(
      items.flatMap((port) => [
        [`${port.name} bits in`, port.received_bytes * 8],
        [`${port.name} bits out`, port.sent_bytes * 8],
        [`${port.name} packets in`, port.received],
        [`${port.name} packets out`, port.sent],
      ]),
    ),
  }),
  counters: ({ item }) => ({
    counters: {
      received: item.received,
      sent: item.sent,
      ...Object.fromEntries(Object.entries(item.dropped).map(([reason, number]) => [`drop ${reason}`, number])),
      ...Object.fromEntries(item.workers.map((worker) => [`cpu ${worker.name}`, worker.cpu_ms / 10])),
    },
  }),
  queues: ({ items }) => ({
    counters: Object.fromEntries(
      items.flatMap((queue) => [
        [`${queue.port} ${queue.class} bits`, queue.sent_bytes * 8],
        [`${queue.port} ${queue.class} drops`, queue.dropped_full + queue.dropped_managed],
      ]),
    ),
    values: Object.fromEntries(items.map((queue) => [`${queue.port} ${queue.class} waiting`, queue.waiting])),
  }),
  status: ({ item }) => ({ values: { memory: item.memory_bytes, "nat sessions": item.nat?.sessions } }),
  firewall: ({ item }) => ({ counters: item.counters, values: { connections: item.counters.states_active } }),
  flows: ({ item }) => ({ counters: { created: item.flows_created }, values: { cached: item.flows } }),
};

/** Values of a report as rates against the one before. A counter that shrank belongs to a new process. */
function rates(before, now, seconds) {
  const rate = ([name, number]) => [name, number >= before[name] ? (number - before[name]) / seconds : null];
  return Object.fromEntries(Object.entries(now).map(rate));
}

class Live {
  topics = "";
  source = null;
  /** The latest report of each topic; why a topic is absent; histories; the router's absence in words. */
  reports = {};
  absent = {};
  histories = {};
  gone = null;
  connection = { kind: "trying", words: "connecting" };
  counters = {};
  listeners = new Set();
  paused = false;
  retry_s = RETRY_S;
  timer = null;
  drawing = null;

  history(topic) {
    return (this.histories[topic] ??= new History());
  }

  watch(topics) {
    const wanted = topics.join(",");
    if (wanted === this.topics && this.source) return;
    this.topics = wanted;
    // A page that follows something else has nothing to show yet.
    this.paused = false;
    this.connect();
  }

  pause(paused) {
    this.paused = paused;
    this.changed();
  }

  connect() {
    clearInterval(this.timer);
    this.source?.close();
    const source = new EventSource(address("events", { topics: this.topics }));
    this.source = source;
    source.onopen = () => {
      this.retry_s = RETRY_S;
      this.connection = { kind: "open", words: "live" };
      this.changed();
    };
    source.onerror = () => source === this.source && this.lost();
    for (const topic of this.topics.split(",")) {
      source.addEventListener(topic, (event) => this.report(topic, JSON.parse(event.data)));
    }
    source.addEventListener("absent", (event) => {
      const { topic, detail } = JSON.parse(event.data);
      this.absent[topic] = detail;
      delete this.reports[topic];
      this.changed();
    });
    source.addEventListener("gone", (event) => {
      this.gone = JSON.parse(event.data).detail;
      this.changed();
    });
  }

  /** Says when the next attempt is, and makes it. The browser's own attempts say nothing. */
  lost() {
    this.source.close();
    clearInterval(this.timer);
    let left = this.retry_s;
    this.retry_s = Math.min(RETRY_MAX_S, this.retry_s * 2);
    const say = () => {
      this.connection = { kind: "lost", words: `connection lost, trying again in ${left} s` };
      this.changed();
    };
    say();
    this.timer = setInterval(() => {
      left -= 1;
      if (left > 0) return say();
      // A stream does not say why it ended; a question does, if a token is wanted.
      get("status").catch(() => {});
      return this.connect();
    }, 1000);
  }

  report(topic, data) {
    this.gone = null;
    delete this.absent[topic];
    this.reports[topic] = data;
    const time = Date.parse(data.time) / 1000;
    const { counters = {}, values = {} } = COLUMNS[topic]?.(data) ?? {};
    const before = this.counters[topic];
    this.counters[topic] = { time, counters };
    const grown = before && time > before.time ? rates(before.counters, counters, time - before.time) : {};
    if (COLUMNS[topic] && (before === undefined || time > before.time))
      this.history(topic).push(time, { ...grown, ...values });
    this.changed();
  }

  /** Several reports that arrive together are drawn once. */
  changed() {
    this.drawing ??= setTimeout(() => {
      this.drawing = null;
      for (const listener of this.listeners) listener();
    }, 40);
  }
}

const live = new Live();

// A browser keeps pages that one may come back to, and their connections, of which it has six for a server.
window.addEventListener("pagehide", () => {
  clearInterval(live.timer);
  live.source?.close();
});
window.addEventListener("pageshow", ({ persisted }) => persisted && live.connect());

/** The live state, for these topics; drawn again at each report unless the reader paused. */
export function useLive(topics) {
  const [, draw] = useState(0);
  useEffect(() => {
    let paused = false;
    const listener = () => {
      if (!live.paused || !paused) draw((n) => n + 1);
      paused = live.paused;
    };
    live.listeners.add(listener);
    return () => live.listeners.delete(listener);
  }, []);
  useEffect(() => live.watch(topics), [topics.join(",")]);
  return live;
}
