// The pages: one row each gives menu, address, key and what the page follows.

import { Bgp } from "./pages/bgp.js";
import { Captures } from "./pages/captures.js";
import { Configuration } from "./pages/configuration.js";
import { Failover } from "./pages/failover.js";
import { Firewall } from "./pages/firewall.js";
import { Flows } from "./pages/flows.js";
import { Laboratory } from "./pages/laboratory.js";
import { Nat } from "./pages/nat.js";
import { Overview } from "./pages/overview.js";
import { Ports } from "./pages/ports.js";
import { Qos } from "./pages/qos.js";
import { Route } from "./pages/route.js";
import { Trace } from "./pages/trace.js";

export const GROUPS = ["Router", "Routing", "Traffic", "System"];

export const PAGES = [
  { id: "overview", name: "Overview", key: "o", group: "Router", topics: [], Page: Overview },
  { id: "ports", name: "Ports", key: "p", group: "Router", topics: [], Page: Ports },
  { id: "qos", name: "QoS", key: "q", group: "Router", topics: ["queues"], Page: Qos },
  { id: "nat", name: "NAT", key: "n", group: "Router", topics: ["nat"], Page: Nat },
  { id: "firewall", name: "Firewall", key: "w", group: "Router", topics: ["firewall", "firewall-rules"], Page: Firewall },
  { id: "bgp", name: "BGP", key: "b", group: "Routing", topics: ["bgp", "rib", "rpki"], Page: Bgp },
  { id: "failover", name: "Failover", key: "v", group: "Routing", topics: ["checks", "vrrp", "standby", "forwarding"], Page: Failover },
  { id: "route", name: "Route", key: "r", group: "Routing", topics: [], Page: Route },
  { id: "trace", name: "Trace a packet", key: "t", group: "Routing", topics: [], Page: Trace },
  { id: "flows", name: "Flows", key: "f", group: "Traffic", topics: ["flows"], Page: Flows },
  { id: "captures", name: "Captures", key: "c", group: "Traffic", topics: [], Page: Captures },
  { id: "laboratory", name: "Laboratory", key: "l", group: "System", topics: [], Page: Laboratory },
  { id: "configuration", name: "Configuration", key: "s", group: "System", topics: [], Page: Configuration },
];
