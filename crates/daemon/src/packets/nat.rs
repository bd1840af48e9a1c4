//! Answers about NAT: slices of the session table, for as long as the client reads.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use thalweg_config::RoutingConfig;
use thalweg_dataplane::nat::{BareInfo, BlockInfo, EndedBy, PoolInfo, SessionInfo};
use thalweg_node::control::{
    Answer, AnswerError, Emit, NatBlockView, NatClear, NatCleared, NatCountersView, NatPoolView,
    NatSessionFilter, NatSessionView, to_json,
};
use thalweg_node::forwarding::vrf_named;
use thalweg_node::plan::NatStage;

use super::slices::{in_slices, protocol_name, protocol_named};

pub(super) fn counters(nat: &NatStage, sessions_max: u64) -> NatCountersView {
    let counters = nat.counters().rows().map(|(name, value)| (name.to_owned(), value)).collect();
    let pools = nat.pools().into_iter().map(pool_view).collect();
    NatCountersView { sessions_max, counters, pools }
}

fn pool_view(pool: PoolInfo) -> NatPoolView {
    let [tcp, udp, icmp] = pool.used;
    let PoolInfo { name, addresses, ports, blocks, blocks_used, refused, .. } = pool;
    NatPoolView { name, addresses: addresses as u64, ports, tcp, udp, icmp, blocks, blocks_used, refused }
}

/// The names of VRFs, by number.
pub(super) struct Vrfs<'c>(pub(super) &'c RoutingConfig);

impl Vrfs<'_> {
    pub(super) fn name(&self, vrf: u16) -> String {
        self.0.vrf_name(vrf).to_owned()
    }

    /// The number of a VRF that is asked for.
    pub(super) fn number(&self, name: Option<&str>) -> Result<Option<u16>, AnswerError> {
        name.map(|name| vrf_named(self.0.vrf_names(), name)).transpose()
    }
}

pub(super) fn sessions(
    (nat, vrfs): (&NatStage, &Vrfs<'_>),
    now_ns: u64,
    filter: &NatSessionFilter,
    emit: Emit<'_>,
) -> Answer {
    let wanted = match Wanted::new(filter.protocol.as_deref(), vrfs.number(filter.vrf.as_deref())) {
        Ok(wanted) => wanted,
        Err(unknown) => return Ok(Err(unknown)),
    };
    let inside = (filter.inside, None);
    let wanted = Wanted { inside, public: (filter.public, filter.port), ..wanted };
    let limit = filter.limit.unwrap_or(usize::MAX);
    let mut handed_out = 0;
    let answered = in_slices(
        Some(limit),
        |from, into| nat.sessions(from, now_ns, |session| wanted.admits(session), into),
        |session| {
            handed_out += 1;
            emit(to_json(&session_view(&session, vrfs)))
        },
    )?;
    let mut bare = Vec::new();
    nat.bare_sessions(now_ns, |session| wanted.admits_bare(session), &mut bare);
    bare.iter().take(limit - handed_out).try_for_each(|session| emit(to_json(&bare_view(session, vrfs))))?;
    Ok(answered)
}

/// Ends sessions. Like a list, it locks one shard at a time for some tens of microseconds.
pub(super) fn clear(
    (nat, vrfs): (&NatStage, &Vrfs<'_>),
    now_ns: u64,
    which: &NatClear,
) -> Result<NatCleared, AnswerError> {
    let wanted = Wanted {
        inside: (which.inside, which.inside_port),
        public: (which.public, which.port),
        remote: (which.remote, which.remote_port),
        ..Wanted::new(which.protocol.as_deref(), vrfs.number(which.vrf.as_deref()))?
    };
    let admits = |session: &SessionInfo| wanted.admits(session);
    let ended = nat.end_sessions(now_ns, EndedBy::Request, admits, |bare| wanted.admits_bare(bare));
    Ok(NatCleared { ended })
}

/// The conditions on a session.
#[derive(Clone, Copy, Default)]
struct Wanted {
    protocol: Option<u8>,
    vrf: Option<u16>,
    inside: (Option<IpAddr>, Option<u16>),
    public: (Option<Ipv4Addr>, Option<u16>),
    remote: (Option<Ipv4Addr>, Option<u16>),
}

impl Wanted {
    /// Sessions of one protocol and one VRF, or of any.
    fn new(protocol: Option<&str>, vrf: Result<Option<u16>, AnswerError>) -> Result<Self, AnswerError> {
        let (protocol, vrf) = (protocol.map(protocol_named).transpose()?, vrf?);
        Ok(Self { protocol, vrf, ..Self::default() })
    }

    fn admits(&self, session: &SessionInfo) -> bool {
        self.is_of(session.protocol.number(), session.vrf)
            && is_at(self.inside, session.inside.ip(), session.inside.port())
            && is_at(self.public, *session.public.ip(), session.public.port())
            && match session.remote {
                Some(remote) => is_at(self.remote, *remote.ip(), remote.port()),
                None => self.remote == (None, None),
            }
    }

    /// A condition on ports excludes protocols without ports.
    fn admits_bare(&self, session: &BareInfo) -> bool {
        self.is_of(session.protocol, session.vrf)
            && [self.inside.1, self.public.1, self.remote.1].iter().all(Option::is_none)
            && is_at(self.inside, session.inside.into(), 0)
            && is_at(self.public, session.public, 0)
            && is_at(self.remote, session.peer, 0)
    }

    fn is_of(&self, protocol: u8, vrf: u16) -> bool {
        self.protocol.is_none_or(|wanted| wanted == protocol) && self.vrf.is_none_or(|wanted| wanted == vrf)
    }
}

fn is_at<A: PartialEq>((address, port): (Option<A>, Option<u16>), of: A, port_of: u16) -> bool {
    address.is_none_or(|address| address == of) && port.is_none_or(|port| port == port_of)
}

pub(super) fn blocks(
    (nat, vrfs): (&NatStage, &Vrfs<'_>),
    filter: &NatSessionFilter,
    emit: Emit<'_>,
) -> Answer {
    let vrf = match vrfs.number(filter.vrf.as_deref()) {
        Ok(vrf) => vrf,
        Err(unknown) => return Ok(Err(unknown)),
    };
    let keep = |block: &BlockInfo| {
        vrf.is_none_or(|vrf| block.vrf == vrf)
            && filter.inside.is_none_or(|address| block.inside == address)
            && filter.public.is_none_or(|address| block.public == address)
            && filter.port.is_none_or(|port| block.ports.contains(&port))
    };
    in_slices(
        filter.limit,
        |from, into| nat.blocks(from, keep, into),
        |block| emit(to_json(&block_view(&block, vrfs))),
    )
}

fn bare_view(session: &BareInfo, vrfs: &Vrfs<'_>) -> NatSessionView {
    NatSessionView {
        protocol: protocol_name(session.protocol),
        inside: SocketAddr::new(session.inside.into(), session.call.map_or(0, |call| call.0)),
        vrf: vrfs.name(session.vrf),
        public: SocketAddrV4::new(session.public, session.call.map_or(0, |call| call.1)),
        remote: Some(SocketAddrV4::new(session.peer, 0)),
        state: "open".to_owned(),
        idle_s: session.idle_s,
        remaining_s: Some(session.remaining_s),
        packets_out: session.packets_out,
        packets_in: session.packets_in,
    }
}

fn session_view(session: &SessionInfo, vrfs: &Vrfs<'_>) -> NatSessionView {
    NatSessionView {
        protocol: session.protocol.name().to_owned(),
        inside: session.inside,
        vrf: vrfs.name(session.vrf),
        public: session.public,
        remote: session.remote,
        state: session.state.name().to_owned(),
        idle_s: session.idle_s,
        remaining_s: session.remaining_s,
        packets_out: session.packets_out,
        packets_in: session.packets_in,
    }
}

fn block_view(block: &BlockInfo, vrfs: &Vrfs<'_>) -> NatBlockView {
    let [tcp, udp, icmp] = block.sessions;
    NatBlockView {
        inside: block.inside,
        vrf: vrfs.name(block.vrf),
        public: block.public,
        first: *block.ports.start(),
        last: *block.ports.end(),
        tcp,
        udp,
        icmp,
    }
}
