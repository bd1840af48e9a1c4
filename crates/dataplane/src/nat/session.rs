//! One session: the mapping of an inside endpoint to a public one, and its state.
//!
//! Mapping is endpoint-independent (RFC 4787 REQ-1), so one session serves all traffic of its inside endpoint, and
//! for TCP it may carry several connections at once. For that reason its states, those of RFC 7857 section 2.1 (the
//! machine of RFC 6146 section 3.5.2.2), have some changes:
//!
//! ```text
//!   SYN out -> SynSent ------SYN in-----+              FIN out -> FinOut --FIN in--+
//!   else    -> PickedUp --anything in---+-> Established                            +-> Closing
//!   (SYN in -> SynReceived) --SYN out---+              FIN in  -> FinIn --FIN out--+
//!
//!   RST, proven           -> Aborted --SYN out--> SynSent
//!                                    --else out-> PickedUp
//!   RST in, not proven, in an open state -> Reset --any packet out but RST--> Established
//!   SYN out in Closing -> SynSent;  SYN in in Closing -> SynReceived
//! ```
//!
//! - A RST is proven if the inside host has sent it, or if it names exactly the number that the inside host
//!   expects, as RFC 5961 section 3.2 requires: the one that the host last acknowledged; in an answer to its SYN,
//!   the SYN's number plus one (RFC 9293 section 3.10.7.3). Such a connection is over, and its session is removed
//!   within seconds. Any other RST from outside may be forged, so the four minutes of RFC 7857 section 2.2 apply.
//!   An attacker who cannot see the connection has to guess 32 bits to end an idle one early. If a session may
//!   carry several connections, no RST proves that all of them are over.
//! - After a reset only the inside host's own packets reopen the session. (The RFC accepts any packet, but then
//!   data in flight would keep a dead session for two hours.)
//! - The inside host keeps a closing session alive, because another connection from the same endpoint may still use
//!   it. (The RFC lets it expire.)
//!
//! Memory: one cache line per session, 64 bytes.

use super::config::{Filtering, NatProtocol, NatTimeouts};
use super::endpoint::{End, Inside, endpoint_key, vrf_part};
use crate::vrf::VRFS_MAX;
use std::hint::select_unpredictable;
use std::net::{Ipv4Addr, SocketAddrV4};
use thalweg_wire::tcp;

/// The state of a session. The order is that of the timeout table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SessionState {
    /// UDP has no states.
    Udp = 0,
    /// ICMP echo has no states.
    Icmp = 1,
    /// TCP: the inside host has sent SYN.
    SynSent = 2,
    /// TCP: the first packet seen was not a SYN.
    PickedUp = 3,
    /// TCP: an outside host has sent SYN to a session that had closed.
    SynReceived = 4,
    /// TCP: packets have gone both ways.
    Established = 5,
    /// TCP: the inside host has sent FIN.
    FinOut = 6,
    /// TCP: the outside host has sent FIN.
    FinIn = 7,
    /// TCP: both have sent FIN.
    Closing = 8,
    /// TCP: a possibly forged RST from outside reached an open connection.
    Reset = 9,
    /// A port forward: never expires.
    Forward = 10,
    /// TCP: the connection was certainly refused or reset.
    Aborted = 11,
}

impl SessionState {
    pub(crate) const COUNT: usize = 12;

    const ALL: [SessionState; Self::COUNT] = {
        use SessionState::*;
        [
            Udp,
            Icmp,
            SynSent,
            PickedUp,
            SynReceived,
            Established,
            FinOut,
            FinIn,
            Closing,
            Reset,
            Forward,
            Aborted,
        ]
    };

    /// The state machine by state, direction and flags (FIN, SYN, RST): the packet path looks up what branches
    /// would mispredict. RST alone changes nothing here: see [`after_reset`](Self::after_reset).
    const AFTER: [[[SessionState; 8]; 2]; Self::COUNT] = {
        let mut table = [[[SessionState::Udp; 8]; 2]; Self::COUNT];
        let mut n = 0;
        while n < Self::COUNT * 16 {
            let (state, end, flags) = (n / 16, n / 8 % 2, n % 8);
            table[state][end][flags] = Self::ALL[state].step(end == 0, TcpFlags(flags as u8));
            n += 1;
        }
        table
    };

    /// Its number in messages to other routers.
    pub(crate) fn number(self) -> u8 {
        self as u8
    }

    /// The state with this number.
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Whether a session of this protocol, no port forward, may be in it.
    pub(crate) fn is_of(self, protocol: NatProtocol) -> bool {
        match self {
            Self::Udp => protocol == NatProtocol::Udp,
            Self::Icmp => protocol == NatProtocol::Icmp,
            Self::Forward => false,
            _ => protocol == NatProtocol::Tcp,
        }
    }

    /// The name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            SessionState::Udp | SessionState::Icmp => "open",
            SessionState::SynSent => "syn-sent",
            SessionState::PickedUp => "picked-up",
            SessionState::SynReceived => "syn-received",
            SessionState::Established => "established",
            SessionState::FinOut => "fin-out",
            SessionState::FinIn => "fin-in",
            SessionState::Closing => "closing",
            SessionState::Reset => "reset",
            SessionState::Forward => "forward",
            SessionState::Aborted => "aborted",
        }
    }

    /// Lifetimes by state.
    pub(crate) fn timeouts(t: &NatTimeouts) -> [u32; Self::COUNT] {
        let (open, brief) = (t.tcp_established_s, t.tcp_transitory_s);
        let aborted = t.tcp_aborted_s.min(brief);
        [t.udp_s, t.icmp_s, brief, brief, brief, open, open, open, brief, brief, u32::MAX, aborted]
    }

    /// Whether a TCP connection was requested and nobody has answered yet.
    pub(crate) fn is_half_open(self) -> bool {
        matches!(self, SessionState::SynSent | SessionState::PickedUp | SessionState::SynReceived)
    }

    /// The state of a session just created by its first packet, from inside.
    pub(crate) fn initial(protocol: NatProtocol, flags: TcpFlags) -> Self {
        match protocol {
            NatProtocol::Udp => SessionState::Udp,
            NatProtocol::Icmp => SessionState::Icmp,
            NatProtocol::Tcp if flags.has(tcp::SYN) => SessionState::SynSent,
            NatProtocol::Tcp => SessionState::PickedUp,
        }
    }

    /// The state after a packet; only TCP sessions look at its flags.
    #[inline(always)]
    pub(crate) fn after(self, end: End, flags: TcpFlags) -> Self {
        Self::AFTER[self as usize][end as usize][usize::from(flags.0 & 7)]
    }

    const fn step(self, outbound: bool, flags: TcpFlags) -> Self {
        use SessionState::*;
        let syn = flags.has(tcp::SYN);
        let fin = flags.has(tcp::FIN);
        match self {
            _ if flags.has(tcp::RST) => self,
            Udp | Icmp | Forward => self,
            Aborted if outbound && syn => SynSent,
            Aborted if outbound => PickedUp,
            Aborted => self,
            SynSent if !outbound && syn => Established,
            SynReceived if outbound && syn => Established,
            PickedUp if !outbound => Established.step(outbound, flags),
            SynSent | SynReceived | PickedUp => self,
            Established if fin && outbound => FinOut,
            Established if fin => FinIn,
            FinOut if fin && !outbound => Closing,
            FinIn if fin && outbound => Closing,
            Established | FinOut | FinIn => self,
            Closing if syn && outbound => SynSent,
            Closing if syn => SynReceived,
            Closing => self,
            Reset if outbound && syn => SynSent,
            Reset if outbound => Established,
            Reset => self,
        }
    }

    /// The state after a RST in either direction. A proven one ends the connection; another might be forged.
    pub(crate) fn after_reset(self, is_proven: bool) -> Self {
        use SessionState::*;
        match self {
            Udp | Icmp | Forward => self,
            _ if is_proven => Aborted,
            Established | FinOut | FinIn => Reset,
            _ => self,
        }
    }

    /// Whether there may already be a connection when a SYN comes, so that the SYN begins another one.
    pub(crate) fn has_connection(self) -> bool {
        use SessionState::*;
        matches!(self, PickedUp | Established | FinOut | FinIn | Reset)
    }

    /// By state, whether a packet from outside refreshes a session; `open` decides for UDP and ICMP.
    pub(crate) fn refreshed_from_outside(open: bool) -> [bool; Self::COUNT] {
        Self::ALL.map(|state| match state {
            SessionState::Udp | SessionState::Icmp => open,
            SessionState::Established | SessionState::FinOut | SessionState::FinIn => true,
            _ => false,
        })
    }
}

/// The flags byte of a TCP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TcpFlags(pub(crate) u8);

impl TcpFlags {
    /// The assumed flags of a segment whose flags are not at hand: a plain acknowledgment.
    pub(crate) const ACK_ONLY: TcpFlags = TcpFlags(tcp::ACK);

    pub(crate) const fn has(self, mask: u8) -> bool {
        self.0 & mask != 0
    }
}

/// The use of a record of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Life {
    /// No session.
    None = 0,
    /// A session.
    Alone = 1,
    /// A session on a public port where the router has flows of its own (see [`super::own`]).
    Shared = 2,
    /// A session that may carry several TCP connections.
    Several = 3,
}

impl Life {
    /// Whether there is a session that owns all traffic on its public port.
    #[inline(always)]
    pub(crate) fn is_of_nat_alone(self) -> bool {
        self as u8 & 1 != 0
    }
}

/// A session's memory layout: one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Session {
    /// Last second of its life.
    pub(crate) expires_s: u32,
    /// Inside and public address, indexed by the [`End`] by which packets are matched.
    pub(crate) addresses: [u32; 2],
    /// Inside and public port, indexed likewise.
    pub(crate) ports: [u16; 2],
    /// Index of the public address.
    pub(crate) public_index: u8,
    pub(crate) kind: Kind,
    pub(crate) state: SessionState,
    pub(crate) life: Life,
    /// TCP: the sequence number that proves a RST from outside.
    pub(crate) awaited: u32,
    /// Packets from inside and from outside; they wrap.
    pub(crate) packets: [u32; 2],
    /// Bloom filter of the remote hosts sent to; with endpoint-independent filtering, the first remote endpoint, and
    /// last the firewall's state of a connection.
    pub(crate) remotes: [u64; 4],
}

const _: () = assert!(size_of::<Session>() == 64);

/// The protocol of a session, and the VRF of its inside host, in one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind(u8);

const _: () = assert!(VRFS_MAX <= 1 << 6);

impl Kind {
    pub(crate) const fn new(protocol: NatProtocol, vrf: u8) -> Self {
        let code = match protocol {
            NatProtocol::Tcp => 0,
            NatProtocol::Udp => 1,
            NatProtocol::Icmp => 2,
        };
        Self(vrf << 2 | code)
    }

    #[inline(always)]
    fn protocol(self) -> NatProtocol {
        NatProtocol::from_code(self.0 & 3)
    }

    #[inline(always)]
    fn vrf(self) -> u8 {
        self.0 >> 2
    }
}

impl Filtering {
    /// Whether who may use a session depends on where it has sent to.
    #[inline(always)]
    pub(crate) fn asks_for_sender(self) -> bool {
        self != Filtering::EndpointIndependent
    }

    /// What a session remembers of a destination, before it is hashed: the address, or with it the port. The identifier
    /// of an ICMP echo is no port of the other host.
    pub(crate) fn remembered(self, protocol: u8, address: u32, port: u16) -> u64 {
        let by_port = self == Filtering::AddressAndPortDependent && protocol != NatProtocol::Icmp.number();
        if by_port { remote_word(address, port) } else { address.into() }
    }
}

/// A remote endpoint, as a word that is no address.
pub(crate) fn remote_word(address: u32, port: u16) -> u64 {
    1 << 48 | u64::from(port) << 32 | u64::from(address)
}

impl Session {
    /// A record without a session.
    pub(crate) const EMPTY: Session = Session {
        expires_s: 0,
        addresses: [0; 2],
        ports: [0; 2],
        public_index: 0,
        kind: Kind::new(NatProtocol::Tcp, 0),
        state: SessionState::Udp,
        life: Life::None,
        awaited: 0,
        packets: [0; 2],
        remotes: [0; 4],
    };

    #[inline(always)]
    pub(crate) fn is_live(&self) -> bool {
        self.life != Life::None
    }

    /// The inside endpoint and the public one.
    pub(crate) fn ends(&self) -> [(u32, u16); 2] {
        [0, 1].map(|end| (self.addresses[end], self.ports[end]))
    }

    /// The look-up key, as one word: the inside endpoint for a packet's source, the public one for a destination.
    #[inline(always)]
    pub(crate) fn key(&self, end: End) -> u64 {
        let (address, port) = (self.addresses[end as usize], self.ports[end as usize]);
        endpoint_key(end, self.protocol().number(), address, port) | vrf_part(end, self.vrf())
    }

    #[inline(always)]
    pub(crate) fn protocol(&self) -> NatProtocol {
        self.kind.protocol()
    }

    /// The VRF of the inside host.
    #[inline(always)]
    pub(crate) fn vrf(&self) -> u8 {
        self.kind.vrf()
    }

    /// The inside host.
    pub(crate) fn inside(&self) -> Inside {
        Inside { vrf: self.vrf(), address: self.addresses[0] }
    }

    /// Records the destination of the first packet, unless a filter needs the space.
    #[cold]
    pub(crate) fn set_remote(&mut self, filtering: Filtering, address: u32, port: u16) {
        if !filtering.asks_for_sender() {
            self.remotes[0] = remote_word(address, port);
        }
    }

    /// Destination of the first packet, if [`set_remote`](Self::set_remote) was called.
    pub(crate) fn remote(&self) -> Option<SocketAddrV4> {
        let word = self.remotes[0];
        (word != 0).then(|| SocketAddrV4::new(Ipv4Addr::from(word as u32), (word >> 32) as u16))
    }

    /// The record of the firewall's state of one of its connections, plus one; 0 if none is known. It is not
    /// told when the state ends: the firewall checks whose state it is.
    #[inline(always)]
    pub(crate) fn state_of(&self, filtering: Filtering) -> u32 {
        let named = u32::try_from(self.remotes[3]).unwrap_or(0);
        select_unpredictable(filtering.asks_for_sender(), 0, named)
    }

    /// Names a state, unless a filter needs the space.
    pub(crate) fn name_state(&mut self, filtering: Filtering, state: u32) {
        if !filtering.asks_for_sender() {
            self.remotes[3] = state.into();
        }
    }

    /// Adds a remote host, given by its hash, to the filter.
    #[inline(always)]
    pub(crate) fn admit(&mut self, hash: u64) {
        for (word, bits) in (0u32..).zip(&mut self.remotes) {
            *bits |= 1 << ((hash >> (6 * word)) & 63);
        }
    }

    /// Whether a remote host may have been added; never false for one that was.
    #[inline(always)]
    pub(crate) fn admits(&self, hash: u64) -> bool {
        (0u32..).zip(&self.remotes).all(|(word, bits)| bits >> ((hash >> (6 * word)) & 63) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SessionState::*;

    const SYN: TcpFlags = TcpFlags(2);
    const SYN_ACK: TcpFlags = TcpFlags(18);
    const ACK: TcpFlags = TcpFlags(tcp::ACK);
    const FIN: TcpFlags = TcpFlags(17);
    const RST: TcpFlags = TcpFlags(4);

    fn play(packets: &[(bool, TcpFlags)]) -> SessionState {
        let mut state = SessionState::initial(NatProtocol::Tcp, packets[0].1);
        for &(outbound, flags) in &packets[1..] {
            let end = if outbound { End::Source } else { End::Destination };
            state = state.after(end, flags);
        }
        state
    }

    #[test]
    fn rfc7857_2_1_tcp_states() {
        let (out, back) = (true, false);
        let open = [(out, SYN), (back, SYN_ACK), (out, ACK)];
        assert_eq!(play(&open[..1]), SynSent);
        assert_eq!(play(&open), Established);
        assert_eq!(play(&[(out, SYN), (back, ACK)]), SynSent, "no state for a stranger's stray segment");
        assert_eq!(play(&[(out, SYN), (back, SYN), (out, SYN_ACK)]), Established, "simultaneous open");
        assert_eq!(play(&[(out, ACK), (back, ACK)]), Established, "picked up in mid-stream");
        let after = |more: &[(bool, TcpFlags)]| play(&[&open[..], more].concat());
        assert_eq!(after(&[(out, FIN), (back, ACK)]), FinOut);
        assert_eq!(after(&[(back, FIN), (out, ACK)]), FinIn);
        assert_eq!(after(&[(back, FIN), (out, FIN), (back, ACK)]), Closing);
        assert_eq!(after(&[(out, FIN), (back, FIN), (out, SYN), (back, SYN_ACK)]), Established);
        // A RST by itself changes nothing; whether it is proven does.
        assert_eq!(after(&[(back, RST), (back, ACK)]), Established);
        let then = |state: SessionState, more: &[(bool, TcpFlags)]| {
            more.iter().fold(state, |state, &(outbound, flags)| {
                state.after(if outbound { End::Source } else { End::Destination }, flags)
            })
        };
        for open in [Established, FinOut, FinIn] {
            assert_eq!((open.after_reset(false), open.after_reset(true)), (Reset, Aborted));
        }
        assert_eq!(then(Reset, &[(back, ACK)]), Reset);
        assert_eq!(then(Reset, &[(out, ACK)]), Established, "a forged reset does no harm");
        assert_eq!((SynSent.after_reset(false), SynSent.after_reset(true)), (SynSent, Aborted), "refused");
        assert_eq!(then(Aborted, &[(back, ACK)]), Aborted);
        assert_eq!(then(Aborted, &[(out, SYN), (back, SYN_ACK)]), Established, "asked again");
        assert_eq!(then(Aborted, &[(out, ACK), (back, ACK)]), Established, "another connection");
        assert_eq!((Forward.after_reset(true), Udp.after_reset(true)), (Forward, Udp));
    }

    #[test]
    fn the_filter_admits_whom_it_was_told_of() {
        let mut session = Session::EMPTY;
        let hashes: Vec<u64> = (0..40u64).map(thalweg_base::mix64).collect();
        assert!(!session.admits(hashes[0]));
        for &hash in &hashes {
            session.admit(hash);
        }
        assert!(hashes.iter().all(|&h| session.admits(h)));
        // (1 - (63/64)^40)^4 is 4.8 %.
        let strangers = (1000..11_000u64).filter(|&n| session.admits(thalweg_base::mix64(n))).count();
        assert!((200..900).contains(&strangers), "{strangers}");
    }
}
