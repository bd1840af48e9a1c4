//! The router on live interfaces with real programs around it: hosts in namespaces, joined to the router by
//! veths. The tests need root, and say loudly when they are skipped without it.

#![cfg(target_os = "linux")]

mod attention;
mod border;
mod calls;
mod capture;
mod check;
mod clients;
mod clock;
mod dead_ways;
mod dhcp;
mod disk;
mod dpdk;
mod drivers;
mod edge;
mod families;
mod faults;
mod firewall;
mod flood;
mod flows;
mod gateway_checks;
mod helpers;
mod home;
mod hostile;
mod hosts;
mod interface_kinds;
mod kernel_sync;
mod mirror;
mod nat;
mod nat_access;
mod nat_events;
mod office;
mod offload;
mod packets;
mod programs;
mod questions;
mod queues;
mod reload;
mod rights;
mod saved_fib;
mod sflow;
mod site;
mod soak;
mod ssh;
mod standby;
mod tap;
mod two_providers;
mod vlan;
mod vrf;
mod vrrp;
mod wire;
