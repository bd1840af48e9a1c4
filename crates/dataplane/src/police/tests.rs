use super::*;
use crate::ingress::Ingress;
use crate::test_support::*;
use proptest::prelude::*;

fn config(marker: Marker) -> PolicerConfig {
    PolicerConfig { marker, color_aware: true, yellow: ColorAction::Pass, red: ColorAction::Drop }
}

/// The markers in the RFCs' terms, in exact fractions of a byte (nanoseconds times bits), one event at a time: the
/// slow reference.
struct Reference {
    marker: Marker,
    c: i128,
    e: i128,
    at: u64,
}

impl Reference {
    fn caps(&self) -> (i128, i128) {
        let unit = |b: u64| i128::from(b) * 8_000_000_000;
        match self.marker {
            Marker::SingleRate { cbs_bytes, ebs_bytes, .. } => (unit(cbs_bytes), unit(ebs_bytes)),
            Marker::TwoRate { cbs_bytes, pbs_bytes, .. } => (unit(cbs_bytes), unit(pbs_bytes)),
        }
    }

    fn mark(&mut self, now: u64, bytes: u32, incoming: Color) -> Color {
        let dt = i128::from(now - self.at);
        self.at = now;
        let (cap_c, cap_e) = self.caps();
        let need = i128::from(bytes) * 8_000_000_000;
        match self.marker {
            Marker::SingleRate { cir_bps, .. } => {
                let tokens = i128::from(cir_bps) * dt;
                let to_c = tokens.min(cap_c - self.c);
                self.c += to_c;
                self.e = (self.e + tokens - to_c).min(cap_e);
                if incoming == Color::Green && self.c - need >= 0 {
                    self.c -= need;
                    Color::Green
                } else if incoming != Color::Red && self.e - need >= 0 {
                    self.e -= need;
                    Color::Yellow
                } else {
                    Color::Red
                }
            }
            Marker::TwoRate { cir_bps, pir_bps, .. } => {
                self.c = (self.c + i128::from(cir_bps) * dt).min(cap_c);
                self.e = (self.e + i128::from(pir_bps) * dt).min(cap_e);
                if incoming == Color::Red || self.e - need < 0 {
                    Color::Red
                } else if incoming == Color::Yellow || self.c - need < 0 {
                    self.e -= need;
                    Color::Yellow
                } else {
                    self.e -= need;
                    self.c -= need;
                    Color::Green
                }
            }
        }
    }
}

fn markers() -> impl Strategy<Value = Marker> {
    let rate = 0u64..2_000_000_000;
    let burst = 0u64..20_000;
    prop_oneof![
        (rate.clone(), burst.clone(), burst.clone())
            .prop_map(|(cir_bps, cbs_bytes, ebs_bytes)| Marker::SingleRate { cir_bps, cbs_bytes, ebs_bytes }),
        (rate.clone(), burst.clone(), rate, burst).prop_map(|(cir_bps, cbs_bytes, more, pbs_bytes)| {
            Marker::TwoRate { cir_bps, cbs_bytes, pir_bps: cir_bps + more, pbs_bytes }
        }),
    ]
}

proptest! {
    #[test]
    fn marks_as_the_rfcs_do(marker in markers(), events in proptest::collection::vec((0u64..100_000, 20u32..1600, 0u8..3), 1..200)) {
        let mut policer = Policer::new(config(marker));
        let mut reference = Reference { marker, c: 0, e: 0, at: 0 };
        (reference.c, reference.e) = reference.caps();
        policer.fill(0);
        let mut now = 0;
        for (gap, bytes, color) in events {
            now += gap;
            let incoming = [Color::Green, Color::Yellow, Color::Red][usize::from(color)];
            prop_assert_eq!(policer.mark(now, bytes, incoming), reference.mark(now, bytes, incoming));
        }
    }
}

#[test]
fn a_gap_of_years_saturates() {
    let marker = Marker::TwoRate { cir_bps: u64::MAX, cbs_bytes: 2000, pir_bps: u64::MAX, pbs_bytes: 3000 };
    let mut policer = Policer::new(config(marker));
    let colors = |p: &mut Policer, now| [0, 1, 2].map(|_| p.mark(now, 1500, Color::Green));
    let full = [Color::Green, Color::Yellow, Color::Red];
    assert_eq!(colors(&mut policer, 5), full);
    assert_eq!(colors(&mut policer, u64::MAX), full);
    assert_eq!(policer.counts(), ColorCounts { green: 2, yellow: 2, red: 2 });
}

#[test]
fn drop_precedence_is_the_incoming_color() {
    assert_eq!(color_of_dscp(10), Color::Green); // AF11
    assert_eq!(color_of_dscp(12), Color::Yellow); // AF12
    assert_eq!(color_of_dscp(14), Color::Red); // AF13
    assert_eq!(color_of_dscp(38), Color::Red); // AF43
    assert_eq!(color_of_dscp(46), Color::Green); // EF
    assert_eq!(color_of_dscp(0), Color::Green);
}

#[test]
fn remarking_keeps_ecn_and_checksum() {
    let marker = Marker::SingleRate { cir_bps: 0, cbs_bytes: 0, ebs_bytes: 100 };
    let mut class = config(marker);
    class.yellow = ColorAction::Remark(12);
    let mut police = Police::new(&[Some(class)]);
    let ip = with_ipv4_field(udp4([10, 0, 0, 1], [192, 0, 2, 1], 1, 2, b"x"), 1, &[46 << 2 | 3]);
    let mut v6 = udp6([0x20; 16], [0x21; 16], 1, 2, b"x");
    v6[1] = 0x30;
    let mut chunk = chunk(vec![Frame::raw(ip.clone()), Frame::raw(v6), Frame::raw(ip)]);
    let ingress = Ingress { drop_martians: true, ..Default::default() };
    ingress.process(&mut chunk.batch(0));
    chunk.packets_mut().iter_mut().for_each(|p| p.class = 0);
    police.process(&mut chunk);
    assert_eq!(chunk.frame(0)[1], 12 << 2 | 3);
    assert_eq!(thalweg_wire::checksum::fold(thalweg_wire::checksum::sum(&chunk.frame(0)[..20], 0)), 0xffff);
    assert_eq!(chunk.frame(1)[0..2], [0x63, 0x30], "code point 12, ECN 3");
    assert_eq!(chunk.packets()[2].drop_reason(), Some(DropReason::Policed));
    assert_eq!(police.counts()[0], Some(ColorCounts { green: 0, yellow: 2, red: 1 }));
}
