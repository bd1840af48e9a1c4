//! The probe's configurations: the shapes of ffProbe's table, and other ways to spread its work.
//!
//! ```text
//! serial                       one thread
//! 2R+1W                        a farm: readers R, workers W, a ring from each to each
//! 2R>1W                        a chain, as ffProbe has it: packets of all readers pass all workers
//! 2x(1R+1W), 2x1R+1W           two pipelines of it
//! 2xserial                     two pipelines of one thread each
//! run-to-completion:2          another model and its workers; also pipeline:W, tokens:W
//! ...@pinned, ...@small        threads stay on cores; no huge pages for the flow cache
//! ...@names                    first payloads are searched for names
//! ...@sflow:1000               one packet in so many is sampled for a collector of sFlow
//! ...@queens:6                 synthetic work for each packet
//! ```
//!
//! What ffProbe's authors published of a shape is a [`Published`]: other hardware, live capture, the year 2011.
//! Only *ratios* are compared with it, and every table names its source.

use crate::stages::one_in;
use crate::unexpected::Unexpected;
use serde::Serialize;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use thalweg_dataplane::queens::Boards;

/// What was published of ffProbe in one shape.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Published {
    /// Million packets per second.
    pub mpps: f64,
    /// Memory, megabytes.
    pub memory_mb: f64,
}

/// The source of [`Published`] figures, and the hardware.
pub const PUBLISHED_IN: &str = "M. Danelutto, L. Deri, D. De Sensi, \"Network Monitoring on Multi cores with Algorithmic \
                                Skeletons\", PARCO 2011: two Xeon E5520 of 2.27 GHz (16 hardware threads), 10 Gbit/s \
                                Intel network cards, PF_RING";
/// The published sequential figures.
pub const PUBLISHED_SERIAL: Published = Published { mpps: 3.76, memory_mb: 50.0 };

/// Pipelines, readers, workers, and what was published.
const PUBLISHED_SHAPES: [((usize, usize, usize), Published); 7] = [
    ((1, 1, 1), Published { mpps: 6.45, memory_mb: 94.0 }),
    ((1, 1, 2), Published { mpps: 8.42, memory_mb: 78.0 }),
    ((2, 1, 1), Published { mpps: 10.150, memory_mb: 64.0 }),
    ((2, 1, 2), Published { mpps: 10.143, memory_mb: 64.0 }),
    ((1, 2, 1), Published { mpps: 5.54, memory_mb: 115.0 }),
    ((1, 2, 2), Published { mpps: 9.13, memory_mb: 150.0 }),
    ((1, 2, 3), Published { mpps: 10.033, memory_mb: 150.0 }),
];

/// The most threads of one kind.
const THREADS_MAX: usize = 64;
const MODELS: [&str; 3] = ["run-to-completion", "pipeline", "tokens"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Threads {
    Serial,
    /// A farm, or a chain.
    Split {
        chain: bool,
        readers: usize,
        workers: usize,
    },
    /// A model by its place in [`MODELS`].
    Other {
        model: usize,
        workers: usize,
    },
}

/// How the probe spreads its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Configuration {
    pipelines: usize,
    threads: Threads,
    pinned: bool,
    small_pages: bool,
    names: bool,
    sflow: Option<NonZeroU32>,
    work: Option<Boards>,
}

impl Configuration {
    /// One thread: the reference.
    pub const SERIAL: Configuration = Configuration {
        pipelines: 1,
        threads: Threads::Serial,
        pinned: false,
        small_pages: false,
        names: false,
        sflow: None,
        work: None,
    };

    /// ffProbe's table, the models, and the effects of pinning and small pages.
    pub fn table() -> Vec<Configuration> {
        const NAMES: [&str; 19] = [
            "serial",
            "1R+1W",
            "1R+2W",
            "2x(1R+1W)",
            "2x(1R+2W)",
            "2R+1W",
            "2R+2W",
            "2R+3W",
            "1R>1W",
            "1R>2W",
            "2R>2W",
            "2xserial",
            "run-to-completion:1",
            "run-to-completion:2",
            "pipeline:2",
            "tokens:2",
            "serial@small",
            "1R+1W@pinned",
            "2x(1R+1W)@pinned",
        ];
        NAMES.iter().filter_map(|name| name.parse().ok()).collect()
    }

    /// The configurations that are run with all kinds of traffic.
    pub fn few() -> Vec<Configuration> {
        ["serial", "serial@small", "1R+1W", "2x(1R+1W)"].iter().filter_map(|name| name.parse().ok()).collect()
    }

    /// The same with synthetic work for each packet.
    pub fn with_work(self, work: Option<Boards>) -> Configuration {
        Configuration { work, ..self }
    }

    /// One packet in so many is sampled for sFlow; `None` without.
    pub fn sflow(&self) -> Option<NonZeroU32> {
        self.sflow
    }

    /// The same without samples for sFlow.
    pub fn without_sflow(self) -> Configuration {
        Configuration { sflow: None, ..self }
    }

    /// The synthetic work; `None` without.
    pub fn work(&self) -> Option<Boards> {
        self.work
    }

    /// Pipelines, each with its own capture queue.
    pub fn pipelines(&self) -> usize {
        self.pipelines
    }

    /// Reader threads of each pipeline; 0 if workers read.
    pub fn readers(&self) -> usize {
        match self.threads {
            Threads::Split { readers, .. } => readers,
            _ => 0,
        }
    }

    /// Worker threads of each pipeline.
    pub fn workers(&self) -> usize {
        match self.threads {
            Threads::Serial => 1,
            Threads::Split { workers, .. } | Threads::Other { workers, .. } => workers,
        }
    }

    /// Threads that parse or count, as ffProbe counts them: without those that read files or send records.
    pub fn threads(&self) -> usize {
        self.pipelines * (self.readers() + self.workers())
    }

    /// The model's name.
    pub fn model(&self) -> &'static str {
        match self.threads {
            Threads::Serial => "serial",
            Threads::Split { chain: false, .. } => "farm",
            Threads::Split { chain: true, .. } => "chain",
            Threads::Other { model, .. } => MODELS[model],
        }
    }

    /// The configurations for coarser work: one thread, and the farm and ffProbe's chain with two workers, so that there is
    /// somebody to share it with.
    pub fn grained() -> Vec<Configuration> {
        ["serial", "2x(1R+1W)", "2x(1R>1W)"].iter().filter_map(|name| name.parse().ok()).collect()
    }

    /// What was published of ffProbe in this shape.
    pub fn published(&self) -> Option<Published> {
        if self.small_pages || self.names || self.pinned || self.sflow.is_some() || self.work.is_some() {
            return None;
        }
        match self.threads {
            Threads::Serial if self.pipelines == 1 => Some(PUBLISHED_SERIAL),
            Threads::Split { readers, workers, .. } => PUBLISHED_SHAPES
                .iter()
                .find(|(shape, _)| *shape == (self.pipelines, readers, workers))
                .map(|(_, published)| *published),
            _ => None,
        }
    }

    /// The arguments of `thalweg probe` on a machine with this many cores.
    pub fn arguments(&self, cores: usize) -> Vec<String> {
        let mut words = vec!["--model".to_owned(), self.model().to_owned()];
        let mut say = |option: &str, value: String| words.extend([option.to_owned(), value]);
        if self.threads != Threads::Serial {
            say("--workers", self.workers().to_string());
        }
        if self.readers() > 0 {
            say("--readers", self.readers().to_string());
        }
        if self.pipelines > 1 {
            say("--pipelines", self.pipelines.to_string());
        }
        if self.pinned {
            say("--pin", format!("0-{}", cores.max(1) - 1));
        }
        if self.small_pages {
            words.push("--small-pages".to_owned());
        }
        if self.names {
            words.extend(["--names", "tls,quic,http,dns"].map(str::to_owned));
        }
        if let Some(one_in) = self.sflow {
            words.extend(["--sflow-sampling".to_owned(), one_in.to_string()]);
        }
        if let Some(work) = self.work {
            words.extend(["--work".to_owned(), format!("queens:{work}")]);
        }
        words
    }
}

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (several, one) = (self.pipelines > 1, self.pipelines == 1);
        if several {
            write!(f, "{}x", self.pipelines)?;
        }
        match self.threads {
            Threads::Serial => f.write_str("serial")?,
            Threads::Split { chain, readers, workers } => {
                let shape = format!("{readers}R{}{workers}W", if chain { '>' } else { '+' });
                if one { f.write_str(&shape)? } else { write!(f, "({shape})")? }
            }
            Threads::Other { model, workers } => write!(f, "{}:{workers}", MODELS[model])?,
        }
        f.write_str(if self.pinned { "@pinned" } else { "" })?;
        f.write_str(if self.small_pages { "@small" } else { "" })?;
        f.write_str(if self.names { "@names" } else { "" })?;
        self.sflow.map_or(Ok(()), |one_in| write!(f, "@sflow:{one_in}"))?;
        self.work.map_or(Ok(()), |work| write!(f, "@queens:{work}"))
    }
}

impl FromStr for Configuration {
    type Err = Unexpected;

    fn from_str(text: &str) -> Result<Self, Unexpected> {
        let expected = || {
            let expected = format!(
                "a shape such as serial, 1R+2W, 1R>2W, 2x(1R+1W), 2xserial, run-to-completion:2, pipeline:2 or tokens:2, with at \
                 most {THREADS_MAX} threads of a kind, and behind it @pinned, @small, @names, @sflow:1000 or @queens:6 if wanted"
            );
            Unexpected::new(text, expected)
        };
        let mut parts = text.split('@');
        let shape = parts.next().unwrap_or_default();
        let mut read = Self::SERIAL;
        for word in parts {
            match word {
                "pinned" => read.pinned = true,
                "small" => read.small_pages = true,
                "names" => read.names = true,
                _ if word.starts_with("sflow:") => {
                    read.sflow = Some(word.strip_prefix("sflow:").and_then(one_in).ok_or_else(expected)?);
                }
                _ => {
                    let boards = word.strip_prefix("queens:").and_then(|boards| boards.parse().ok());
                    read.work = Some(boards.ok_or_else(expected)?);
                }
            }
        }
        let (pipelines, one) =
            shape.split_once('x').filter(|(n, _)| count(n).is_some()).unwrap_or(("1", shape));
        read.pipelines = count(pipelines).ok_or_else(expected)?;
        let one = one.strip_prefix('(').and_then(|one| one.strip_suffix(')')).unwrap_or(one);
        read.threads = threads(one).ok_or_else(expected)?;
        Ok(read)
    }
}

fn count(digits: &str) -> Option<usize> {
    digits.parse().ok().filter(|count| (1..=THREADS_MAX).contains(count))
}

fn threads(text: &str) -> Option<Threads> {
    if text == "serial" {
        return Some(Threads::Serial);
    }
    if let Some((model, workers)) = text.split_once(':') {
        let model = MODELS.iter().position(|name| *name == model)?;
        return Some(Threads::Other { model, workers: count(workers)? });
    }
    let (readers, workers) = text.split_once(['+', '>'])?;
    let readers = count(readers.strip_suffix(['R', 'r'])?)?;
    let workers = count(workers.strip_suffix(['W', 'w'])?)?;
    Some(Threads::Split { chain: text.contains('>'), readers, workers })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        assert_eq!(Configuration::table().len(), 19);
        let worked = ["serial@queens:6", "2x(1R>1W)@pinned@small@names@sflow:100@queens:4-8"];
        let worked = worked.map(|text| text.parse::<Configuration>().expect(text));
        assert_eq!(worked[0].arguments(2)[2..], ["--work", "queens:6"]);
        assert_eq!((worked[0].published(), worked[0].with_work(None)), (None, Configuration::SERIAL));
        for configuration in Configuration::table().into_iter().chain(Configuration::few()).chain(worked) {
            assert_eq!(configuration.to_string().parse(), Ok(configuration));
        }
        let same = ["2x(1R+2W)", "2x1r+2w"].map(|text| text.parse::<Configuration>());
        assert_eq!(same[0], same[1]);
        let wrong = [
            "",
            "1R",
            "1R+0W",
            "0x1R+1W",
            "65R+1W",
            "1R+1W@fast",
            "serial@sflow",
            "serial@sflow:0",
            "serial@sflow:100000001",
            "farm:2",
            "tokens",
            "xserial",
            "2x",
            "(1R+1W",
        ];
        for text in wrong {
            let error = text.parse::<Configuration>().unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")) && error.contains("2x(1R+1W)"), "{error}");
        }
    }

    #[test]
    fn shapes_have_the_threads_and_figures_of_the_paper() {
        let of = |text: &str| {
            let c: Configuration = text.parse().unwrap();
            (c.threads(), c.published().map(|p| (p.mpps, p.memory_mb)))
        };
        // Its table: schema, threads, Mpps, memory.
        assert_eq!(of("serial"), (1, Some((3.76, 50.0))));
        assert_eq!(of("1R+1W"), (2, Some((6.45, 94.0))));
        assert_eq!(of("1R+2W"), (3, Some((8.42, 78.0))));
        assert_eq!(of("2x(1R+1W)"), (4, Some((10.150, 64.0))));
        assert_eq!(of("2x(1R+2W)"), (6, Some((10.143, 64.0))));
        assert_eq!(of("2R+1W"), (3, Some((5.54, 115.0))));
        assert_eq!(of("2R+2W"), (4, Some((9.13, 150.0))));
        assert_eq!(of("2R+3W"), (5, Some((10.033, 150.0))));
        assert_eq!(of("2R>2W"), (4, Some((9.13, 150.0))), "the topology that was published");
        assert_eq!(of("2xserial"), (2, None));
        assert_eq!(of("serial@small"), (1, None));
        assert_eq!(of("serial@sflow:1000"), (1, None));
        assert_eq!(of("tokens:4"), (4, None));
    }

    #[test]
    fn the_probe_is_told_in_its_own_words() {
        let words = |text: &str| text.parse::<Configuration>().unwrap().arguments(2).join(" ");
        assert_eq!(words("serial@small"), "--model serial --small-pages");
        assert_eq!(words("serial@sflow:100"), "--model serial --sflow-sampling 100");
        assert_eq!(words("serial@names"), "--model serial --names tls,quic,http,dns");
        assert_eq!(words("2x(1R+2W)@pinned"), "--model farm --workers 2 --readers 1 --pipelines 2 --pin 0-1");
        assert_eq!(words("1R>2W"), "--model chain --workers 2 --readers 1");
        assert_eq!(words("2xserial"), "--model serial --pipelines 2");
        assert_eq!(words("tokens:3"), "--model tokens --workers 3");
    }
}
