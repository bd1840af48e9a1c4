//! Which of the means of a router in user space brings what: each changed alone.
//!
//! The white paper (seed document 002) names what makes forwarding in user space fast: polling instead of interrupts,
//! huge pages, no copies, binding threads to cores, batches. It measures all of them together. Here a router is
//! measured beside itself with one of them changed, in the same rounds ([`super::experiment`]); what can be seen of
//! the change stands beside the result ([`super::subject::seen`]).

use super::subject::thalweg::Thalweg;
use std::path::Path;

/// What is changed.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// Asking ports again before sleeping, for up to 100 µs.
    Polling,
    /// No large pages for tables and packets.
    HugePages,
    /// AF_XDP: one more copy by the kernel, and none (flows stay in the kernel). AF_PACKET has no other way.
    Copies,
    /// Workers bound to a core.
    Affinity,
    /// Batches of one packet and of 16, instead of up to 256.
    Batch,
}

/// A router that differs from the usual one in one thing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Change {
    /// In a few words.
    name: String,
    /// What its driver's name has in addition.
    driver: &'static str,
    /// In its section on workers.
    workers: String,
    without_large_pages: bool,
}

impl Means {
    /// How a router of this driver is changed; on a machine whose last core is `core`.
    fn changes(self, driver: &str, core: usize) -> Vec<Change> {
        let workers = |name: &str, workers: String| Change { name: name.to_owned(), workers, ..Change::default() };
        let by_driver = |name: &str, driver| Change { name: name.to_owned(), driver, ..Change::default() };
        match self {
            Self::Polling => vec![workers("busy polling", "busy_poll_us = 100".to_owned())],
            Self::HugePages => vec![Change {
                name: "no large pages".to_owned(),
                without_large_pages: true,
                ..Change::default()
            }],
            Self::Copies if driver == "af_xdp" => {
                vec![by_driver("one copy more", "+generic"), by_driver("no copy", "+offload")]
            }
            Self::Copies => Vec::new(),
            Self::Affinity => vec![workers(&format!("on core {core}"), format!("cores = [{core}]"))],
            Self::Batch => [1, 16]
                .map(|most| workers(&format!("batches of {most}"), format!("batch_packets = {most}")))
                .to_vec(),
        }
    }
}

/// A router with one driver as it is, and changed by each of the means; on a machine whose last core is `core`.
pub fn routers(program: &Path, driver: &str, model: &str, means: &[Means], core: usize, folder: &Path) -> Vec<Thalweg> {
    let usual = Thalweg::new(program, driver, model, folder);
    let changes = means.iter().flat_map(|means| means.changes(driver, core));
    let changed = changes.map(|change| {
        let driver = format!("{driver}{}", change.driver);
        let router = Thalweg::new(program, &driver, model, folder).changed(&change.name);
        let router = match change.workers.as_str() {
            "" => router,
            workers => router.with(&format!("\n[workers]\n{workers}\n")),
        };
        if change.without_large_pages { router.without_large_pages() } else { router }
    });
    std::iter::once(usual).chain(changed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forwarding::subject::Subject;
    use clap::ValueEnum;

    #[test]
    fn each_means_is_changed_alone_and_known_by_its_name() {
        let all = Means::value_variants();
        let names = |driver: &str| -> Vec<String> {
            let routers = routers(Path::new("/bin/false"), driver, "run-to-completion", all, 1, Path::new("/tmp"));
            routers.iter().map(|router| router.label().to_string()).collect()
        };
        assert_eq!(
            names("af_packet"),
            [
                "thalweg af_packet run-to-completion",
                "thalweg af_packet run-to-completion, busy polling",
                "thalweg af_packet run-to-completion, no large pages",
                "thalweg af_packet run-to-completion, on core 1",
                "thalweg af_packet run-to-completion, batches of 1",
                "thalweg af_packet run-to-completion, batches of 16",
            ]
        );
        let xdp = names("af_xdp");
        assert!(xdp.contains(&"thalweg af_xdp+generic run-to-completion, one copy more".to_owned()), "{xdp:?}");
        assert_eq!(xdp.len(), 8);
    }
}
