// BGP: neighbors and what is wrong with them, one neighbor in full, update groups, the size of the tables.

import { html, useRef, useState } from "../vendor/htm-preact.js";
import { post, useAnswer } from "../api.js";
import { age, bytes, count, counted, words } from "../format.js";
import { link } from "../location.js";
import { Answer, Empty, Fault, Waiting } from "../parts/notice.js";
import { Facts, Stat } from "../parts/stat.js";
import { Session, State } from "../parts/state.js";
import { Table } from "../parts/table.js";
import { Rpki } from "./bgp_rpki.js";

const COLUMNS = [
  { id: "name", head: "Neighbor", cell: ({ name }) => html`<a href=${link("bgp", [name])}>${name}</a>` },
  { id: "state", head: "State", cell: ({ state }) => html`<${Session} state=${state} />` },
  { id: "as", head: "AS", num: true, value: (row) => Number(row.as) || row.as },
  { id: "address", head: "Address", mono: true },
  { id: "uptime_s", head: "Up for", num: true, cell: ({ uptime_s: seconds }) => age(seconds) },
  { id: "accepted", head: "Routes", num: true, cell: ({ accepted }) => count(accepted), hint: "Accepted by import" },
  {
    id: "rejected",
    head: "Rejected",
    num: true,
    value: rejected,
    cell: (row) => count(rejected(row)),
    hint: "Announcements that import rejected",
  },
  { id: "updates_received", head: "UPDATEs in", num: true, cell: ({ updates_received: updates }) => count(updates) },
  { id: "flaps", head: "Went down", num: true, cell: ({ flaps }) => count(flaps) },
  { id: "description", head: "Description", wrap: true, cell: ({ description }) => description ?? "" },
  { id: "last_error", head: "Last error", wrap: true, cell: ({ last_error: error }) => error ?? "" },
];

function rejected({ counters }) {
  return counters?.announced_rejected ?? null;
}

const GROUP_COLUMNS = [
  { id: "group", head: "Group", num: true },
  { id: "members", head: "Members", num: true },
  { id: "view", head: "What they share", wrap: true },
  {
    id: "messages",
    head: "UPDATEs",
    num: true,
    cell: ({ messages }) => count(messages),
    hint: "Encoded once for all members",
  },
  { id: "changes", head: "Changes", num: true, cell: ({ changes }) => count(changes) },
  { id: "log_bytes", head: "Not yet taken", num: true, cell: ({ log_bytes: size }) => bytes(size) },
  {
    id: "lagging",
    head: "Fell behind",
    num: true,
    cell: ({ lagging }) => count(lagging),
    hint: "Times a member fell behind and was sent the difference",
  },
];

/** What can be done to a session, with the question before it. */
const ACTIONS = [
  { act: "refresh", name: "Refresh", ask: "Ask it to send its routes again? The session stays up." },
  {
    act: "reset",
    name: "Reset",
    text: true,
    danger: true,
    ask: "End the session and begin it again? Its routes go until it is back.",
  },
  { act: "shutdown", name: "Shut down", text: true, danger: true, ask: "End the session until it is started again?" },
  { act: "start", name: "Start", ask: "Start the session?" },
];

function Actions({ name }) {
  const [action, setAction] = useState(null);
  const [text, setText] = useState("");
  const [outcome, setOutcome] = useState(null);
  const dialog = useRef(null);
  const open = (each) => {
    setAction(each);
    setOutcome(null);
    dialog.current.showModal();
  };
  const submit = (event) => {
    event.preventDefault();
    const body = action.text && text ? { text } : {};
    post(`bgp/neighbors/${encodeURIComponent(name)}/${action.act}`, body)
      .then(
        () => setOutcome({ done: action.name }),
        (problem) => setOutcome({ problem }),
      )
      .finally(() => dialog.current.close());
  };
  const button = (each) =>
    html`<button class=${each.danger ? "button danger" : "button"} onClick=${() => open(each)}>${each.name}</button>`;
  return html`
    <div class="actions">${ACTIONS.map(button)}</div>
    ${outcome?.done && html`<p role="status"><${State} kind="good">${outcome.done}: done<//></p>`}
    ${outcome?.problem && html`<${Fault} problem=${outcome.problem} />`}
    <dialog ref=${dialog} aria-labelledby="act">${action && html`<form onSubmit=${submit}>
      <h2 id="act">${action.name} ${name}</h2><p>${action.ask}</p>
      ${
        action.text &&
        html`<label class="field grow"><span>Message to the other end's operators (RFC 9003)</span>
        <input value=${text} maxlength="128" onInput=${(event) => setText(event.target.value)} /></label>`
      }
      <div class="actions"><button class=${action.danger ? "button danger" : "button main"}>${action.name}</button>
        <button type="button" class="button" onClick=${() => dialog.current.close()}>Leave it</button></div>
    </form>`}</dialog>`;
}

/** The capabilities that both ends have, in words. */
function capabilities(view) {
  const families = ({ ipv4, ipv6 }) => [ipv4 && "IPv4", ipv6 && "IPv6"].filter(Boolean).join(" and ");
  const [receive, send] = [families(view.add_path_receive), families(view.add_path_send)];
  return (
    [
      view.four_octet_as && "four-byte AS numbers",
      view.extended_messages && "extended messages",
      view.route_refresh && "route refresh",
      view.enhanced_refresh && "enhanced route refresh",
      view.graceful_restart && "graceful restart",
      receive && `add-path from it (${receive})`,
      send && `add-path to it (${send})`,
    ]
      .filter(Boolean)
      .join(", ") || "none"
  );
}

function counterRows(counters) {
  return Object.entries(counters ?? {}).flatMap(([name, value]) =>
    value !== null && typeof value === "object"
      ? Object.entries(value).map(([part, number]) => ({ name: `${words(name)}: ${words(part)}`, value: number }))
      : [{ name: words(name), value }],
  );
}

/** Messages by type, in both directions. */
function messages({ received_by_type: received, sent_by_type: sent }) {
  return Object.keys(received).map((type) => ({ type: type.toUpperCase().replace("_", "-"), received: received[type], sent: sent[type] }));
}

const MESSAGE_COLUMNS = [
  { id: "type", head: "Messages" },
  { id: "received", head: "Received", num: true, cell: ({ received }) => count(received) },
  { id: "sent", head: "Sent", num: true, cell: ({ sent }) => count(sent) },
];

const COUNTER_COLUMNS = [
  { id: "name", head: "Counter" },
  {
    id: "value",
    head: "Value",
    num: true,
    cell: ({ value }) => (typeof value === "number" ? count(value) : (value ?? "–")),
  },
];

/** The most rejected routes on a page; the API has all. */
const REJECTED_MAX = 200;

const REJECTED_COLUMNS = [
  { id: "prefix", head: "Prefix", mono: true },
  { id: "rule", head: "Rejected by", wrap: true, value: (row) => row.rule ?? row.why ?? "" },
  { id: "as_path", head: "AS path", mono: true, wrap: true },
  {
    id: "communities",
    head: "Communities",
    mono: true,
    wrap: true,
    value: ({ communities }) => communities.join(" "),
    hint: "Also those that rules added before they rejected the route",
  },
];

/** What import rejects of a neighbor whose routes are kept. */
function Rejected({ name }) {
  const answer = useAnswer(`bgp/routes?neighbor=${encodeURIComponent(name)}&rejected=1&limit=${REJECTED_MAX}`);
  return html`<${Answer} answer=${answer} show=${({ items }) => html`<${Table} caption="Rejected routes"
    note=${items.length < REJECTED_MAX ? "as the neighbor sent them" : `the first ${REJECTED_MAX}`}
    columns=${REJECTED_COLUMNS} rows=${items} keyOf=${({ prefix, path_id: path }) => `${prefix} ${path}`}
    empty=${html`<${Empty} title="Import rejects nothing"><//>`} />`} />`;
}

function Neighbor({ view, mayOperate }) {
  const { negotiated } = view;
  const timers =
    negotiated &&
    (negotiated.hold_time_s === 0
      ? "none (hold time 0)"
      : `hold ${negotiated.hold_time_s} s, keepalive ${Math.floor(negotiated.hold_time_s / 3)} s`);
  const rows = [
    ["State", html`<${Session} state=${view.state} />`],
    ["Up for", view.uptime_s === null ? null : age(view.uptime_s)],
    ["Down for", view.down_s === null ? null : age(view.down_s)],
    ["Address", html`<span class="mono">${view.address}</span>`],
    ["AS", view.as],
    ["Description", view.description],
    ["Went down", counted(view.flaps, "time")],
    ["Last error", view.last_error ?? "none"],
    ["Routes accepted", `${count(view.accepted_by_family.ipv4)} IPv4, ${count(view.accepted_by_family.ipv6)} IPv6`],
    ...(view.rejected_by_family
      ? [["Routes rejected", `${count(view.rejected_by_family.ipv4)} IPv4, ${count(view.rejected_by_family.ipv6)} IPv6`]]
      : []),
    ...(view.sent_by_family
      ? [["Routes sent", `${count(view.sent_by_family.ipv4)} IPv4, ${count(view.sent_by_family.ipv6)} IPv6`]]
      : []),
    ["Received", `${counted(view.messages_received, "message")}, ${count(view.updates_received)} of them UPDATEs`],
    ["Sent", `${counted(view.messages_sent, "message")}, ${bytes(view.bytes_sent)}`],
  ];
  const agreed = negotiated && [
    ["Its router ID", html`<span class="mono">${negotiated.router_id}</span>`],
    ["Timers", timers],
    ["Families", negotiated.families.join(", ") || "none"],
    ["Capabilities", capabilities(negotiated)],
  ];
  return html`
    <div class="two">
      <section class="card"><header><h2>Session</h2></header><${Facts} rows=${rows} />${mayOperate && html`<${Actions}
        name=${view.name} />`}</section>
      <section class="card"><header><h2>Agreed with it</h2></header>${agreed ? html`<${Facts}
        rows=${agreed} />` : html`<p class="quiet">Nothing yet: the session is not up.</p>`}</section>
      <section class="card"><${Table} caption="Messages" columns=${MESSAGE_COLUMNS} rows=${messages(view)}
        keyOf=${({ type }) => type} /></section>
      <section class="card"><${Table} caption="Counters" columns=${COUNTER_COLUMNS} rows=${counterRows(view.counters)}
      keyOf=${({ name }) => name} /></section>
    </div>
    ${view.kept_by_family && html`<section class="card"><${Rejected} name=${view.name} /></section>`}`;
}

function One({ name, live, mayOperate }) {
  const answer = useAnswer(`bgp/neighbors/${encodeURIComponent(name)}`);
  const view = live.reports.bgp?.items.find((each) => each.name === name || each.address === name) ?? answer.value;
  return html`
    <div class="head"><h1 class="break">${name}</h1><p><a href=${link("bgp")}>all neighbors</a></p></div>
    ${view ? html`<${Neighbor} view=${view} mayOperate=${mayOperate} />` : html`<${Answer} answer=${answer}
      show=${() => null} />`}`;
}

function Restart({ restart }) {
  return html`<div class="notice warn"><p><strong>This router is restarting (RFC 4724)</strong></p>
    ${restart.deferred.length > 0 && html`<p>No ${restart.deferred.join(" and ")} routes are selected before End-of-RIB from ${restart.awaited.join(", ")}, ${restart.remaining_s} s at most.</p>`}
    ${restart.selecting.length > 0 && html`<p>${restart.selecting.join(" and ")} routes are being selected.</p>`}</div>`;
}

export function Bgp({ live, place, mayOperate }) {
  const [groups, memory] = [useAnswer("bgp/update-groups"), useAnswer("bgp/memory")];
  const [name] = place.rest;
  if (name !== undefined) return html`<${One} key=${name} name=${name} live=${live} mayOperate=${mayOperate} />`;
  if (live.absent.bgp)
    return html`<h1>BGP</h1><${Empty}
      title="This router does not speak BGP">A section <code>[bgp]</code> with an <code>as</code> and neighbors makes it speak (docs/bgp.md).<//>`;
  const [neighbors, rib] = [live.reports.bgp?.items, live.reports.rib?.item];
  if (!neighbors) return html`<h1>BGP</h1><${Waiting} />`;
  const up = neighbors.filter(({ state }) => state === "Established").length;
  return html`
    <div class="head"><h1>BGP</h1>${rib && html`<p>AS ${rib.local_as}, router ID ${rib.router_id}; scheduling ${rib.scheduling}, ${counted(rib.shards, "shard")}</p>`}</div>
    ${rib?.restart && html`<${Restart} restart=${rib.restart} />`}
    <div class="stats">
      <${Stat} label="Neighbors" value=${`${up} up`} note=${`${neighbors.length - up} down`}
        bad=${up < neighbors.length} />
      ${
        rib &&
        html`<${Stat} label="IPv4 prefixes" value=${count(rib.prefixes.ipv4)} note=${counted(rib.paths.ipv4, "path")} />
        <${Stat} label="IPv6 prefixes" value=${count(rib.prefixes.ipv6)} note=${counted(rib.paths.ipv6, "path")} />
        <${Stat} label="Attribute sets" value=${count(rib.attribute_sets)} note="each kept once" />
        <${Stat} label="Refused" value=${count(rib.unknown_refused)} note="connections from unknown addresses" />`
      }
      ${memory.value && html`<${Stat} label="Tables" value=${bytes(memory.value.rib + memory.value.received + memory.value.attributes)}
        note=${`${bytes(memory.value.update_groups)} on their way to neighbors`} />`}
    </div>
    <section class="card"><${Table} caption="Neighbors" columns=${COLUMNS} rows=${neighbors}
      keyOf=${(each) => each.name} sort="name" row=${({ state }) => (state === "Established" ? null : "dim")}
      empty=${html`<${Empty} title="No neighbor is configured">Add <code>[[bgp.neighbor]]</code> with an address and an AS.<//>`} /></section>
    <section class="card"><${Answer} answer=${groups} show=${({
      items,
    }) => html`<${Table} caption="Update groups" note="neighbors that receive the same UPDATEs" columns=${GROUP_COLUMNS}
      rows=${items} keyOf=${({ group }) => group}
      empty=${html`<${Empty} title="No update group">The first session that comes up makes one.<//>`} />`} /></section>
    <${Rpki} live=${live} />`;
}
