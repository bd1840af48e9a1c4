//! The queues of each port: the configuration's settings, and defaults derived from the port.
//!
//! Three defaults depend on the speed of a port, and a number that is right for ten gigabits is wrong for ten
//! megabits. They are therefore times:
//!
//! | default | time | why |
//! |---|---|---|
//! | burst | 1 ms at the rate, at least two full frames | a thread that sleeps for a bucket wakes up to a millisecond late; less would cost rate, more would fill the next queue down the line instead |
//! | limit of a weighted class | 250 ms, at least 16 full frames, at most 4 MiB | a round trip of the longest paths; CoDel keeps the wait far below |
//! | limit of a strict class | 20 ms, at least 16 full frames, at most 1 MiB | in a telephone call, what waits longer comes too late to be heard |
//!
//! The rate is the class's own bound if it has one, else the port's. Without either, the limits are the largest:
//! such a queue fills only while the port takes nothing.

use thalweg_dataplane::egress::{BURST_BYTES_MAX, EgressClass, EgressConfig};
use thalweg_dataplane::schedule::Service;

use thalweg_config::{Class, PortEgress, PortIndex, RouterConfig};

const BURST_NS: u64 = 1_000_000;
const LIMIT_WEIGHTED_NS: u64 = 250_000_000;
const LIMIT_STRICT_NS: u64 = 20_000_000;
const LIMIT_WEIGHTED_BYTES_MAX: u64 = 4 << 20;
const LIMIT_STRICT_BYTES_MAX: u64 = 1 << 20;
/// The fewest frames that a burst and a queue must hold.
const BURST_FRAMES_MIN: u64 = 2;
const LIMIT_FRAMES_MIN: u64 = 16;
/// Ethernet header and one VLAN tag, which the MTU does not include.
const FRAME_HEADER_BYTES: u64 = 18;

/// Whether a port has queues. A port that is not shaped, has no class with a bound of its own and no
/// `[[qos.egress]]` passes every frame to its driver at once: the driver's ring is its queue.
pub fn has_queues(config: &RouterConfig, port: PortIndex) -> bool {
    config.qos.egress.iter().any(|egress| egress.port == port)
        || config.qos.classes.iter().any(|class| class.queue.rate_bps.is_some())
}

/// The queues of a port. A port outside the configuration gets the defaults.
pub fn egress_config(config: &RouterConfig, port: PortIndex) -> EgressConfig {
    let said = config.qos.egress.iter().find(|egress| egress.port == port);
    let unshaped = PortEgress::unshaped(port);
    let egress = said.unwrap_or(&unshaped);
    let mtu = config.ports.get(usize::from(port)).map_or(1500, |port| port.mtu);
    let frame = u64::from(mtu) + FRAME_HEADER_BYTES + u64::from(egress.overhead_bytes);
    let classes = config.qos.classes.iter().enumerate().map(|(index, class)| {
        let here = egress.class_rates.iter().find(|(place, _)| usize::from(*place) == index);
        let own_bps = here.map(|(_, rate)| *rate).or(class.queue.rate_bps);
        egress_class(class, own_bps, egress.rate_bps, frame)
    });
    EgressConfig {
        rate_bps: egress.rate_bps,
        burst_bytes: burst(egress.burst_bytes, egress.rate_bps, frame),
        overhead_bytes: egress.overhead_bytes,
        strict_share_percent: egress.strict_share_percent,
        default_class: config.qos.default_class,
        classes: classes.collect(),
    }
}

fn egress_class(class: &Class, own_bps: Option<u64>, port_bps: Option<u64>, frame: u64) -> EgressClass {
    let queue = &class.queue;
    let felt_bps = match (own_bps, port_bps) {
        (Some(own), Some(port)) => Some(own.min(port)),
        (own, port) => own.or(port),
    };
    let (time_ns, most) = match class.service {
        Service::Strict(_) => (LIMIT_STRICT_NS, LIMIT_STRICT_BYTES_MAX),
        Service::Weight(_) => (LIMIT_WEIGHTED_NS, LIMIT_WEIGHTED_BYTES_MAX),
    };
    // Sixteen frames of 64 KiB are 1 MiB, so the lower bound is never above the upper.
    let limit =
        felt_bps.map_or(most, |bps| bytes_in(bps, time_ns).clamp(LIMIT_FRAMES_MIN * frame.min(65_536), most));
    let frame_us = felt_bps.map_or(0, |bps| (frame * 8 * 1_000_000) / bps.max(1));
    EgressClass {
        name: class.name.clone(),
        service: class.service,
        rate_bps: own_bps,
        burst_bytes: burst(queue.burst_bytes, own_bps, frame),
        limit_packets: queue.limit_packets,
        limit_bytes: queue.limit_bytes.unwrap_or(limit as u32),
        aqm: queue.codel.map(|codel| codel.on(frame_us)),
    }
}

/// The configured burst, or one millisecond's bytes; 0 without a rate.
fn burst(said: Option<u32>, rate_bps: Option<u64>, frame: u64) -> u32 {
    let Some(bps) = rate_bps else { return 0 };
    let most = u64::from(BURST_BYTES_MAX);
    said.unwrap_or(bytes_in(bps, BURST_NS).clamp(BURST_FRAMES_MIN * frame, most) as u32)
}

fn bytes_in(bps: u64, time_ns: u64) -> u64 {
    let bytes = u128::from(bps) * u128::from(time_ns) / 8_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use thalweg_dataplane::egress::Aqm;

    const PORTS: &str = r#"
[ports.wan]
mac = "02:00:00:00:00:01"
addresses = ["203.0.113.2/30"]
[ports.lan]
mac = "02:00:00:00:00:02"
addresses = ["192.168.1.1/24"]
mtu = 9000
"#;

    fn read(text: &str) -> RouterConfig {
        match RouterConfig::from_text("test.toml", &format!("{PORTS}{text}"), Path::new("")) {
            Ok(config) => config,
            Err(errors) => panic!("{errors}"),
        }
    }

    fn plan(text: &str, port: PortIndex) -> EgressConfig {
        egress_config(&read(text), port)
    }

    #[test]
    fn a_port_of_which_nothing_is_said_is_unshaped_and_managed() {
        assert!(!has_queues(&read(""), 0));
        let plan = plan("", 0);
        assert_eq!((plan.rate_bps, plan.overhead_bytes, plan.strict_share_percent), (None, 24, 90));
        let [class] = &plan.classes[..] else { panic!("one class: {plan:?}") };
        assert_eq!((class.name.as_str(), class.rate_bps, class.burst_bytes), ("default", None, 0));
        assert_eq!((class.limit_packets, class.limit_bytes), (4096, 4 << 20));
        assert_eq!(class.aqm, Some(Aqm::default()));
    }

    #[test]
    fn bursts_and_limits_follow_the_rate() {
        let text = r#"
[[qos.classes]]
name = "voice"
strict = 0
match = [{ dscp = "ef" }]
[[qos.egress]]
port = "wan"
rate = "100 Mbit/s"
class_rates = { voice = "2 Mbit/s" }
[[qos.egress]]
port = "lan"
rate = "1 Mbit/s"
"#;
        assert!(has_queues(&read(text), 0) && has_queues(&read(text), 1));
        let wan = plan(text, 0);
        assert_eq!((wan.rate_bps, wan.burst_bytes), (Some(100_000_000), 12_500));
        let [voice, default] = &wan.classes[..] else { panic!("two classes: {wan:?}") };
        // Two frames of 1542 bytes; 16 frames, as 20 ms of 2 Mbit/s are less.
        assert_eq!((voice.rate_bps, voice.burst_bytes), (Some(2_000_000), 3_084));
        assert_eq!((voice.limit_bytes, voice.aqm), (24_672, None));
        assert_eq!((default.rate_bps, default.limit_bytes), (None, 3_125_000));
        assert_eq!(default.aqm, Some(Aqm::default()));
        assert_eq!(wan.default_class, 1);
        // A frame of 9042 bytes takes 72 ms here; two of them are the target, and four the interval.
        let lan = plan(text, 1);
        assert_eq!(lan.burst_bytes, 18_084);
        assert_eq!(lan.classes[1].aqm, Some(Aqm { target_us: 144_672, interval_ms: 290, ecn: true }));
        assert_eq!((lan.classes[0].rate_bps, lan.classes[0].limit_bytes), (None, 144_672));
    }

    #[test]
    fn what_is_said_is_taken() {
        let text = r#"
[[qos.classes]]
name = "bulk"
weight = 7
match = [{ dscp = "le" }]
[qos.classes.queue]
rate = "10 Mbit/s"
burst = 3000
limit = "64 KiB"
limit_packets = 50
target_us = 2000
interval_ms = 30
ecn = false
[[qos.classes]]
name = "default"
[qos.classes.queue]
aqm = "none"
[[qos.egress]]
port = "lan"
rate = "1 Gbit/s"
burst = "100 KiB"
overhead = 38
strict_share_percent = 100
"#;
        let lan = plan(text, 1);
        assert_eq!((lan.burst_bytes, lan.overhead_bytes, lan.strict_share_percent), (102_400, 38, 100));
        let bulk = EgressClass {
            name: "bulk".to_owned(),
            service: Service::Weight(7),
            rate_bps: Some(10_000_000),
            burst_bytes: 3000,
            limit_packets: 50,
            limit_bytes: 65_536,
            aqm: Some(Aqm { target_us: 2000, interval_ms: 30, ecn: false }),
        };
        assert_eq!(lan.classes[0], bulk);
        assert_eq!(lan.classes[1].aqm, None);
        assert_eq!(plan(text, 0).classes[0], bulk);
        // A class with a bound needs a queue at every port.
        assert!(has_queues(&read(text), 0));
    }

    #[test]
    fn no_rate_overflows() {
        for rate in [1u64, 1 << 50] {
            let text = format!("[[qos.egress]]\nport = \"lan\"\nrate = {rate}\n");
            let plan = plan(&text, 1);
            assert!(plan.burst_bytes >= 18_000 && plan.classes[0].limit_bytes >= 16 * 9_000);
            let aqm = plan.classes[0].aqm.expect("managed by default");
            assert!(aqm.target_us < aqm.interval_ms * 1_000 && aqm.interval_ms <= 4_000, "{aqm:?}");
        }
    }
}
