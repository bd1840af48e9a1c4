//! What each technique of a router in user space brings: each changed alone.
//!
//! The white paper (seed document 002) names what makes forwarding in user space fast: polling instead of interrupts,
//! huge pages, no copies, threads bound to cores, batches. It measures all of them together. Here our router is measured
//! beside itself with one of them changed, in the same rounds ([`super::experiment`], which also compares the two).
//! [`super::subject::seen`] reads back whether the change took effect.

use super::subject::seen::Sign;
use super::subject::thalweg::{Change, Thalweg};
use std::path::Path;

/// The technique to change.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Technique {
    /// Workers poll ports for up to 1 ms before they sleep.
    Polling,
    /// Tables and packets in pages of 4 KiB.
    HugePages,
    /// AF_XDP: one more copy by the kernel, and none (flows stay in the kernel). AF_PACKET has no other way.
    Copies,
    /// Workers bound to a core.
    Affinity,
    /// Batches of one packet and of 16 at most, instead of 256.
    Batch,
}

impl Technique {
    /// The changes to a router with this driver, on a machine whose last core is `core`.
    fn changes(self, driver: &str, core: usize) -> Vec<Change> {
        let change = |name: String, sign| Change {
            name,
            mode: "",
            workers: String::new(),
            no_huge_pages: false,
            sign,
        };
        let workers = |name: &str, workers: String, sign| Change { workers, ..change(name.to_owned(), sign) };
        let mode = |name: &str, mode, sign| Change { mode, ..change(name.to_owned(), Sign::Mode(sign)) };
        match self {
            Self::Polling => vec![workers("busy polling", "busy_poll_us = 1000".to_owned(), Sign::Polls)],
            Self::HugePages => {
                let usual = change("no huge pages".to_owned(), Sign::NoHugePages);
                vec![Change { no_huge_pages: true, ..usual }]
            }
            Self::Copies if driver == "af_xdp" => {
                vec![mode("one copy more", "+generic", "generic"), mode("no copy", "+offload", "offload")]
            }
            Self::Copies => Vec::new(),
            Self::Affinity => {
                let on = format!("on core {core}");
                vec![workers(&on, format!("cores = [{core}]"), Sign::Core(core))]
            }
            Self::Batch => [1, 16]
                .map(|most| {
                    let name = format!("batches of {most}");
                    workers(&name, format!("batch_packets = {most}"), Sign::PacketsPerChunk(most))
                })
                .to_vec(),
        }
    }
}

/// A router with one driver as it is, and once for each change; on a machine whose last core is `core`.
pub fn routers(
    program: &Path,
    driver: &str,
    model: &str,
    techniques: &[Technique],
    core: usize,
    folder: &Path,
) -> Vec<Thalweg> {
    let usual = || Thalweg::new(program, driver, model, folder);
    let changes = techniques.iter().flat_map(|technique| technique.changes(driver, core));
    std::iter::once(usual()).chain(changes.map(|change| usual().changed(change))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forwarding::subject::Subject;
    use clap::ValueEnum;
    use std::collections::HashSet;

    #[test]
    fn each_technique_is_changed_alone_and_has_a_sign() {
        let all = Technique::value_variants();
        let of = |driver: &str| {
            routers(Path::new("/bin/false"), driver, "run-to-completion", all, 1, Path::new("/tmp"))
        };
        let names: Vec<String> = of("af_packet").iter().map(|router| router.label().to_string()).collect();
        assert_eq!(
            names,
            [
                "thalweg af_packet run-to-completion",
                "thalweg af_packet run-to-completion, busy polling",
                "thalweg af_packet run-to-completion, no huge pages",
                "thalweg af_packet run-to-completion, on core 1",
                "thalweg af_packet run-to-completion, batches of 1",
                "thalweg af_packet run-to-completion, batches of 16",
            ]
        );
        let xdp = of("af_xdp");
        assert_eq!(xdp.len(), 8);
        assert!(xdp[1..].iter().all(|router| router.sign().is_some()) && xdp[0].sign().is_none());
        assert!(
            xdp.iter().all(|router| router.label().unchanged() == *xdp[0].label()),
            "one unchanged router"
        );
        let sockets: HashSet<_> = xdp.iter().map(Thalweg::socket).collect();
        assert_eq!(sockets.len(), 8, "each has its own folder");
        for technique in all {
            for change in technique.changes("af_xdp", 1) {
                let differences = [!change.mode.is_empty(), !change.workers.is_empty(), change.no_huge_pages];
                assert_eq!(differences.iter().filter(|it| **it).count(), 1, "{change:?}");
                assert!(change.workers.lines().count() <= 1, "{change:?}");
            }
        }
    }
}
