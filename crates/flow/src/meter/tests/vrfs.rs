//! The same packets in two VRFs.

use super::*;

/// Ports 0 and 1 are of one VRF, 2 of another; further ports count as the first's.
const VRFS: [u16; 3] = [0, 0, 7];

fn run(options: &MeterOptions, grouping: Grouping) -> Run {
    Run { vrfs: VRFS.to_vec(), ..Run::new(options, grouping) }
}

/// The packets of each record by VRF, and of its way back.
fn counted(run: &Run) -> Vec<(Option<u32>, u64, Option<u64>)> {
    let row = |record: &FlowRecord| {
        let back = record.reverse.map(|reverse| reverse.packets);
        (record.details.ingress_vrf, record.counters.packets, back)
    };
    let mut rows: Vec<_> = run.records.iter().map(row).collect();
    rows.sort_unstable();
    rows
}

#[test]
fn two_tenants_with_the_same_addresses_are_two_flows_whatever_the_key() {
    let every = KeyFields::default();
    for (key, biflow) in [(every, false), (every, true), (KeyFields { ingress: false, ..every }, false)] {
        for grouping in [Grouping::Whole, Grouping::Groups { count: 3, with_index: true }, Grouping::Split(2)]
        {
            for (client, server) in [(CLIENT, SERVER), ("[2001:db8::1]:4000", "[2001:db8::2]:80")] {
                let options = MeterOptions { key, biflow, ..options() };
                let (there, back) = (tcp(client, server, 16, 0), tcp(server, client, 16, 0));
                let at = |ingress: u16, sample: &Sample| Sample { ingress, ..*sample };
                let mut run = run(&options, grouping);
                run.observe(&[at(0, &there), at(2, &there), at(2, &there), at(1, &back), at(2, &back)]);
                run.observe(&[at(9, &there), at(2, &there)]);
                run.flush();
                let expected = match (biflow, key.ingress) {
                    (true, _) => vec![(Some(0), 2, Some(1)), (Some(7), 3, Some(1))],
                    (false, true) => {
                        [(0, 1), (0, 1), (0, 1), (7, 1), (7, 3)].map(|(vrf, n)| (Some(vrf), n, None)).to_vec()
                    }
                    (false, false) => {
                        [(0, 1), (0, 2), (7, 1), (7, 3)].map(|(vrf, n)| (Some(vrf), n, None)).to_vec()
                    }
                };
                assert_eq!(counted(&run), expected, "{key:?} {grouping:?}");
            }
        }
    }
}

#[test]
fn a_fragment_does_not_get_the_ports_of_another_vrfs_datagram() {
    for (client, server) in [(CLIENT, SERVER), ("[2001:db8::1]:4000", "[2001:db8::2]:80")] {
        let part = |ingress: u16, later: bool| Sample {
            fragment: Some((1, later)),
            payload: 64,
            ingress,
            ..tcp(client, server, 0, 0)
        };
        let mut run = run(&options(), Grouping::Whole);
        run.observe(&[part(0, false), part(2, true), part(1, true)]);
        run.flush();
        let totals = run.meter.totals();
        assert_eq!((totals.fragments_matched, totals.fragments_unmatched), (1, 1));
        let strange = run.records.iter().find(|record| record.details.ingress_vrf == Some(7));
        assert_eq!(strange.map(|record| (record.key.src_port, record.counters.packets)), Some((0, 1)));
    }
}

#[test]
fn a_router_with_one_table_tells_no_vrf() {
    let mut run = Run::new(&options(), Grouping::Whole);
    run.observe(&[tcp(CLIENT, SERVER, 16, 0)]);
    run.flush();
    assert_eq!(counted(&run), [(None, 1, None)]);
}
