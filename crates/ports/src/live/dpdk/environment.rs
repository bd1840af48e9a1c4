//! DPDK's environment (EAL): its memory, its buses, and its only start in a process.

use parking_lot::{Mutex, MutexGuard};
use std::ffi::CString;
use std::thread;
use std::{fs, io};

use super::DpdkOptions;
use super::shim::{self, Runs};
use crate::live::LiveError;

/// The name in errors that concern no single device.
const ENVIRONMENT: &str = "DPDK";

/// Bytes of a frame buffer besides the frame: DPDK's headers and headroom.
const MBUF_OVERHEAD: u64 = 512;

/// Memory for DPDK itself and for rings, in MiB.
const MEMORY_BASE_MIB: u64 = 64;

/// The size of a frame buffer for packets of Ethernet's usual length.
const ROOM_MIN: u32 = 2048;

/// An Ethernet header, two tags, and the frame check sequence.
const FRAME_OVERHEAD: u32 = 14 + 8 + 4;

/// The largest piece of a frame: the length of a piece and its headroom have 16 bits.
const ROOM_MAX: u32 = u16::MAX as u32 - 128;

/// Whether DPDK runs in this process, in which it can be started once.
enum State {
    NotYet,
    Runs { arguments: Vec<String>, runs: Runs },
    Failed { why: String },
}

static STATE: Mutex<State> = Mutex::new(State::NotYet);

fn state() -> MutexGuard<'static, State> {
    STATE.lock()
}

/// Starts DPDK in this process for these devices, with `arguments` for its environment (EAL); if they are empty,
/// suitable ones are chosen. Does nothing if DPDK runs with the same arguments.
///
/// # Errors
///
/// DPDK does not start, runs with other arguments, or has failed to start before.
pub fn start(arguments: &[String], devices: &[DpdkOptions]) -> Result<(), LiveError> {
    let Some(first) = devices.first() else { return Ok(()) };
    let arguments = if arguments.is_empty() { arguments_for(devices) } else { arguments.to_vec() };
    let failed = |said: String| LiveError::Dpdk { interface: first.name().to_owned(), what: "start", said };
    let mut state = state();
    match &*state {
        State::Runs { arguments: before, .. } if *before == arguments => return Ok(()),
        State::Runs { arguments: before, .. } => {
            return Err(failed(format!(
                "it runs in this process with other arguments ({}, wanted are {}), and can be started only once",
                before.join(" "),
                arguments.join(" ")
            )));
        }
        State::Failed { why } => return Err(failed(why.clone())),
        State::NotYet => {}
    }
    match started(&arguments) {
        Ok(runs) => {
            *state = State::Runs { arguments, runs };
            Ok(())
        }
        Err(why) => {
            let why = format!(
                "{why} (arguments: {}); it cannot start again in this process: restart the router",
                arguments.join(" ")
            );
            *state = State::Failed { why: why.clone() };
            Err(failed(why))
        }
    }
}

/// DPDK's log output since the last call, as far as it was kept.
pub fn said() -> String {
    shim::said()
}

/// The proof that DPDK runs.
pub(super) fn running(options: &DpdkOptions) -> Result<Runs, LiveError> {
    let said = match &*state() {
        State::Runs { runs, .. } => return Ok(*runs),
        State::Failed { why } => why.clone(),
        State::NotYet => "it was not started".to_owned(),
    };
    Err(LiveError::Dpdk { interface: options.name().to_owned(), what: "start", said })
}

/// Starts DPDK on a short-lived thread, because DPDK pins the first thread to a core.
fn started(arguments: &[String]) -> io::Result<Runs> {
    let program = std::iter::once("thalweg");
    let all = program.chain(arguments.iter().map(String::as_str)).map(CString::new);
    let all =
        all.collect::<Result<Vec<_>, _>>().map_err(|_| io::Error::other("an argument contains a zero"))?;
    let thread = thread::Builder::new().name(ENVIRONMENT.to_owned()).spawn(|| shim::start(all))?;
    let result = thread.join().map_err(|_| io::Error::other("its thread panicked"))?;
    result.map_err(|error| io::Error::other(with_what_was_said(&error.to_string())))
}

/// An error with the last lines that DPDK logged about it.
pub(super) fn with_what_was_said(error: &str) -> String {
    let said = shim::said();
    // DPDK also logs what it found, which explains nothing.
    let lines: Vec<&str> = said
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.contains("Detected") && !line.contains("Selected IOVA"))
        .collect();
    match lines.len() {
        0 => error.to_owned(),
        count => format!("{error}; DPDK says: {}", lines[count.saturating_sub(LINES_SHOWN)..].join(" / ")),
    }
}

const LINES_SHOWN: usize = 3;

/// The largest packet, and the size of a frame buffer that holds it in one piece.
pub(super) fn frame_sizes(options: &DpdkOptions) -> (u16, u16) {
    let mtu = u32::from(options.mtu).min(ROOM_MAX - FRAME_OVERHEAD);
    let room = (mtu + FRAME_OVERHEAD).next_multiple_of(64).clamp(ROOM_MIN, ROOM_MAX);
    (mtu as u16, room as u16)
}

/// Arguments that suit the devices.
fn arguments_for(devices: &[DpdkOptions]) -> Vec<String> {
    let mut arguments = vec!["--no-telemetry".to_owned(), "-l".to_owned(), first_core().to_string()];
    let cards: Vec<_> = devices.iter().filter(|device| is_pci(device.name())).collect();
    if cards.is_empty() {
        let memory = memory_mib(devices).to_string();
        arguments.extend(["--no-pci", "--no-huge", "--no-shconf", "-m", &memory].map(str::to_owned));
    } else {
        arguments.push("--in-memory".to_owned());
        for card in cards {
            arguments.extend(["-a".to_owned(), card.device.clone()]);
        }
    }
    arguments
}

/// Whether the name is an address on the PCI bus: `0000:03:00.0`.
fn is_pci(name: &str) -> bool {
    name.contains(':')
}

/// Memory for all frames of all devices, in MiB.
fn memory_mib(devices: &[DpdkOptions]) -> u64 {
    let bytes = |device: &DpdkOptions| {
        2 * u64::from(device.mbufs) * (u64::from(frame_sizes(device).1) + MBUF_OVERHEAD)
    };
    // A quarter more, for space lost between pieces.
    let all: u64 = devices.iter().map(bytes).sum();
    MEMORY_BASE_MIB + (all + all / 4).div_ceil(1 << 20)
}

/// A core that this process may use. DPDK wants one named, but runs no work of ours there.
fn first_core() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let digits = |text: &str| text.trim().chars().take_while(char::is_ascii_digit).collect::<String>();
    list.and_then(|list| digits(list).parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_devices_want_neither_hugepages_nor_buses() {
        let devices =
            [DpdkOptions::new("net_null0"), DpdkOptions { mtu: 9000, ..DpdkOptions::new("net_null1") }];
        let arguments = arguments_for(&devices);
        for wanted in ["--no-pci", "--no-huge", "--no-shconf", "--no-telemetry"] {
            assert!(arguments.iter().any(|argument| argument == wanted), "{arguments:?}");
        }
        // 8192 frames of 2,560 bytes and as many of 9,536, a quarter more, and DPDK's own memory.
        assert_eq!(memory_mib(&devices), 64 + (8192 * (2560 + 9536) * 5 / 4_u64).div_ceil(1 << 20));
        assert_eq!(arguments.last(), Some(&memory_mib(&devices).to_string()));
    }

    #[test]
    fn of_the_pci_bus_only_what_is_named_is_touched() {
        let devices = [DpdkOptions::new("0000:03:00.0,queues=2"), DpdkOptions::new("net_null0")];
        let arguments = arguments_for(&devices);
        assert!(arguments.windows(2).any(|pair| pair == ["-a", "0000:03:00.0,queues=2"]), "{arguments:?}");
        assert!(
            !arguments.iter().any(|argument| argument.starts_with("--no-") && argument != "--no-telemetry")
        );
    }

    #[test]
    fn a_frame_has_room_for_the_longest_packet_and_not_more_than_a_piece_may_have() {
        let of = |mtu| frame_sizes(&DpdkOptions { mtu, ..DpdkOptions::new("net_null0") });
        assert_eq!((of(68), of(1500), of(9000)), ((68, 2048), (1500, 2048), (9000, 9088)));
        assert_eq!(of(u16::MAX), (u16::MAX - 128 - 26, u16::MAX - 128));
    }
}
