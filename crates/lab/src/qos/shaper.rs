//! The shapers under test: Thalweg's egress queues, and Linux's queueing disciplines behind the kernel's
//! forwarding.
//!
//! | discipline | what it is |
//! |---|---|
//! | `htb` | hierarchical token buckets, a class for voice with the first priority, one for bulk; both may borrow all |
//! | `htb+fq_codel` | one bucket, behind it fair queues by flow with CoDel (RFC 8290): no classes |
//! | `tbf+prio` | one token bucket, behind it strict priority |
//! | `tbf` | one token bucket and one queue, without priority |
//!
//! If the kernel lacks a discipline, it is left out, and the report has the message of `tc`.

use super::{CLASS_PORTS, CLASSES, OVERHEAD_BYTES, Options};
use crate::forwarding::ForwardingError;
use crate::forwarding::subject::linux::{self, forward};
use crate::forwarding::subject::thalweg::{PORTS, Thalweg};
use crate::forwarding::subject::{Label, Subject, Task, has_program};
use crate::forwarding::topology::{ROUTER_PORTS, Topology};
use crate::stats::Summary;
use serde::Serialize;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use thalweg_node::control::{Line, PacketRequest, QueueView};

/// A router with a shaped port.
pub trait Shaper {
    fn subject(&mut self) -> &mut dyn Subject;

    /// How long packets of each class have waited so far; `None` if the router does not report it.
    fn queue_times(&self) -> Result<Option<[QueueTimes; 2]>, ForwardingError>;
}

/// Quantiles of the time that packets waited in a queue, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct QueueTimes {
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
}

impl QueueTimes {
    /// The median of each quantile; `None` without any.
    pub fn median_of(times: &[Self]) -> Option<Self> {
        let median = |value: fn(&Self) -> f64| {
            Summary::of(&times.iter().map(value).collect::<Vec<_>>()).map(|summary| summary.median)
        };
        Some(Self {
            p50_us: median(|t| t.p50_us)?,
            p99_us: median(|t| t.p99_us)?,
            p999_us: median(|t| t.p999_us)?,
        })
    }
}

/// Thalweg with its queues.
#[derive(Debug)]
pub struct ThalwegShaper(Thalweg);

impl ThalwegShaper {
    /// Runs `program`, with its files in `folder`.
    pub fn new(program: &Path, driver: &str, model: &str, folder: &Path, options: &Options) -> Self {
        Self(Thalweg::new(program, driver, model, folder).with(&configuration(options)))
    }
}

/// What is added to Thalweg's usual configuration.
fn configuration(options: &Options) -> String {
    format!(
        "\n[[qos.classes]]\nname = \"{}\"\nstrict = 0\nmatch = [{{ protocol = \"udp\", destination_ports = {} }}]\n\n\
         [[qos.egress]]\nport = \"{}\"\nrate = \"{} bit/s\"\noverhead = {OVERHEAD_BYTES}\n",
        CLASSES[0], CLASS_PORTS[0], PORTS[1], options.rate_bits as u64
    )
}

impl Shaper for ThalwegShaper {
    fn subject(&mut self) -> &mut dyn Subject {
        &mut self.0
    }

    fn queue_times(&self) -> Result<Option<[QueueTimes; 2]>, ForwardingError> {
        let socket = self.0.socket();
        let failed =
            |source| ForwardingError::System { what: format!("asking {}", socket.display()), source };
        let views = queues(&socket).map_err(failed)?;
        // Bulk has no class of its own.
        let of =
            |class: &str| views.iter().find(|view| view.port == PORTS[1] && view.class == class).map(times);
        Ok(of(CLASSES[0]).zip(of("default")).map(|(voice, bulk)| [voice, bulk]))
    }
}

fn times(view: &QueueView) -> QueueTimes {
    QueueTimes { p50_us: view.sojourn_p50_us, p99_us: view.sojourn_p99_us, p999_us: view.sojourn_p999_us }
}

/// The queues of a running router.
fn queues(socket: &Path) -> io::Result<Vec<QueueView>> {
    let mut stream = UnixStream::connect(socket)?;
    let question = serde_json::to_string(&PacketRequest::Queues)?;
    stream.write_all(format!("{question}\n").as_bytes())?;
    let mut views = Vec::new();
    for line in BufReader::new(stream).lines() {
        match serde_json::from_str(&line?)? {
            Line::Item(item) => views.push(serde_json::from_value(item)?),
            Line::Done { .. } => return Ok(views),
            Line::Error { text, .. } => return Err(io::Error::other(text)),
        }
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}

thalweg_base::words! {
    /// A queueing discipline of the kernel.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Discipline {
        /// Token buckets, one per class.
        Htb => "htb",
        /// One bucket, fair queues by flow.
        HtbFqCodel => "htb+fq_codel",
        /// One bucket, strict priority.
        TbfPrio => "tbf+prio",
        /// One bucket, one queue.
        Tbf => "tbf",
    }
}

impl Discipline {
    /// The arguments of `tc`, one line per call.
    fn commands(self, options: &Options) -> Vec<String> {
        let dev = format!("dev {}", ROUTER_PORTS[1]);
        let rate = options.rate_bits as u64;
        // Thalweg's default: a millisecond's bytes, at least two full frames.
        let burst = (rate / 8000).max(2 * 1538);
        let class = |parent: &str, id: &str, own: u64, prio: u8| {
            format!(
                "class add {dev} parent {parent} classid {id} htb rate {own}bit ceil {rate}bit burst {burst} cburst \
                 {burst} overhead {OVERHEAD_BYTES} quantum 1514 prio {prio}"
            )
        };
        let voice = |parent: &str, id: &str| {
            format!(
                "filter add {dev} parent {parent} protocol ip prio 1 u32 match ip dport {} 0xffff flowid {id}",
                CLASS_PORTS[0]
            )
        };
        // A quarter of a second of full frames, like Thalweg's bulk queue.
        let limit = (rate / 4 / 8 / 1538).max(16);
        let tbf = format!(
            "qdisc add {dev} root handle 1: tbf rate {rate}bit burst {burst} limit {} overhead {OVERHEAD_BYTES}",
            limit * 1514
        );
        match self {
            Discipline::Htb => vec![
                format!("qdisc add {dev} root handle 1: htb default 20"),
                class("1:", "1:1", rate, 0),
                class("1:1", "1:10", rate / 2, 0),
                class("1:1", "1:20", rate / 2, 1),
                format!("qdisc add {dev} parent 1:10 pfifo limit 1000"),
                format!("qdisc add {dev} parent 1:20 pfifo limit {limit}"),
                voice("1:", "1:10"),
            ],
            Discipline::HtbFqCodel => vec![
                format!("qdisc add {dev} root handle 1: htb default 1"),
                class("1:", "1:1", rate, 0),
                format!("qdisc add {dev} parent 1:1 fq_codel"),
            ],
            Discipline::TbfPrio => vec![
                tbf,
                format!(
                    "qdisc add {dev} parent 1: handle 2: prio bands 3 priomap 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1"
                ),
                voice("2:", "2:1"),
            ],
            Discipline::Tbf => vec![tbf],
        }
    }
}

/// The kernel's forwarding with a discipline at the port.
#[derive(Debug)]
pub struct KernelShaper {
    label: Label,
    discipline: Discipline,
    options: Options,
}

impl KernelShaper {
    /// The kernel with this discipline at the egress port.
    pub fn new(discipline: Discipline, options: &Options) -> Self {
        Self { label: Label::new(linux::NAME, discipline.name(), ""), discipline, options: options.clone() }
    }
}

impl Shaper for KernelShaper {
    fn subject(&mut self) -> &mut dyn Subject {
        self
    }

    fn queue_times(&self) -> Result<Option<[QueueTimes; 2]>, ForwardingError> {
        Ok(None)
    }
}

impl Subject for KernelShaper {
    fn label(&self) -> &Label {
        &self.label
    }

    fn refuses(&self, _: &Task<'_>) -> Option<String> {
        (!has_program("tc")).then(|| "tc is not here (package iproute2)".to_owned())
    }

    fn set_up(&mut self, topology: &Topology, task: &Task<'_>) -> Result<(), ForwardingError> {
        forward(topology, task.table)?;
        for command in self.discipline.commands(&self.options) {
            let mut words = vec!["tc"];
            words.extend(command.split_whitespace());
            topology.router.exec(&words)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_discipline_gets_the_rate_and_what_a_line_takes() {
        let options = Options { rate_bits: 50e6, ..Options::default() };
        for discipline in Discipline::ALL {
            let all = discipline.commands(&options).join("\n");
            assert!(all.contains("rate 50000000bit") && all.contains("overhead 24"), "{all}");
            let tells_apart = matches!(discipline, Discipline::Htb | Discipline::TbfPrio);
            assert_eq!(all.contains("dport 5004"), tells_apart, "{all}");
        }
        let own = configuration(&options);
        assert!(
            own.contains("rate = \"50000000 bit/s\"") && own.contains("destination_ports = 5004"),
            "{own}"
        );
    }

    #[test]
    fn waits_of_rounds_become_medians() {
        let of = |us| QueueTimes { p50_us: us, p99_us: us * 2.0, p999_us: us * 3.0 };
        assert_eq!(QueueTimes::median_of(&[of(1.0), of(9.0), of(2.0)]), Some(of(2.0)));
        assert_eq!(QueueTimes::median_of(&[]), None);
    }
}
