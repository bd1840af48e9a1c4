//! Types of `[flows]`.

use std::net::IpAddr;
use std::path::PathBuf;

use thalweg_dataplane::nat::NatLogging;
use thalweg_flow::alarm::WebhookTarget;
use thalweg_flow::{MeterOptions, PacketSampling};

/// Flow metering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowsConfig {
    /// How flows are keyed, timed and sampled. The router sets shards and seeds.
    pub meter: MeterOptions,
    /// Addresses of collectors: `ipfix://192.0.2.9:4739`; those of `sflow://` get samples, the others records.
    pub collectors: Vec<String>,
    /// Each record goes to one collector; otherwise to all.
    pub balance: bool,
    /// The observation domain of the first collector; the others have the following numbers.
    pub observation_domain: u32,
    /// The router's name in records; by default that of the host.
    pub exporter: Option<String>,
    /// Send datagrams together and let the kernel segment them.
    pub gso: bool,
    /// Where records wait for collectors with a connection.
    pub spool: Option<SpoolConfig>,
    pub tls: CollectorTls,
    /// The folder of the dataset for records.
    pub store: Option<PathBuf>,
    pub keep: KeepConfig,
    /// The dataset is also an Iceberg table.
    pub iceberg: bool,
    /// Where complete hours of the dataset go: a bucket of S3.
    pub archive: Option<String>,
    /// The topic that all records of the store go to.
    pub feed: Option<String>,
    /// MMDB databases: country and AS by address.
    pub mmdb: Vec<PathBuf>,
    /// A list of names of networks.
    pub networks: Option<PathBuf>,
    pub alarm_webhook: Option<WebhookTarget>,
    /// Which NAT events collectors receive, if any.
    pub nat_events: Option<NatLogging>,
    /// What collectors of sFlow get.
    pub sflow: PacketSampling,
    /// How often they get the counters of interfaces; 0 is never.
    pub sflow_counters_s: u32,
    /// The address by which they know the router.
    pub sflow_agent: Option<IpAddr>,
}

impl FlowsConfig {
    /// How packets are sampled, if there is a collector for samples.
    pub fn packet_sampling(&self) -> Option<PacketSampling> {
        self.collectors.iter().any(|address| gets_samples(address)).then_some(self.sflow)
    }
}

/// Whether a collector gets samples of packets, and no records.
pub(crate) fn gets_samples(address: &str) -> bool {
    address.starts_with("sflow://")
}

impl Default for FlowsConfig {
    fn default() -> Self {
        Self {
            meter: MeterOptions { fates: true, ..MeterOptions::default() },
            collectors: Vec::new(),
            balance: false,
            observation_domain: 1,
            exporter: None,
            gso: true,
            spool: None,
            tls: CollectorTls::default(),
            store: None,
            keep: KeepConfig::default(),
            iceberg: false,
            archive: None,
            feed: None,
            mmdb: Vec::new(),
            networks: None,
            alarm_webhook: None,
            nat_events: None,
            sflow: PacketSampling::default(),
            sflow_counters_s: 30,
            sflow_agent: None,
        }
    }
}

/// A queue on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolConfig {
    pub folder: PathBuf,
    pub bytes: u64,
}

/// Files for collectors with TLS, in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectorTls {
    pub authorities: Option<PathBuf>,
    /// Our own certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// How long a dataset keeps records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeepConfig {
    /// Hours that ended this many seconds ago are removed.
    pub age_s: Option<u64>,
    /// The oldest records are removed until all files have at most this many bytes.
    pub bytes: Option<u64>,
    /// Bytes of the file system to keep free; `None` for the store's default.
    pub free: Option<u64>,
    /// Sums by minutes are kept for this many seconds; `None` makes none.
    pub minutes_s: Option<u64>,
    /// Sums by hours likewise.
    pub hours_s: Option<u64>,
    /// Hours that ended this many seconds ago are removed in the archive.
    pub archive_s: Option<u64>,
}
