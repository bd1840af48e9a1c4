//! How the threads of our router get a core, and whether they poll before they sleep.

use crate::unexpected::Unexpected;
use std::str::FromStr;
use thalweg_exec::Priority;

/// The name of what the configuration's defaults say.
const USUAL: &str = "usual";
/// The longest polling that a configuration may ask for, in microseconds.
const POLL_US_MAX: u32 = 1000;

/// A schedule of worker threads, as on the command line: `usual`, PRIORITY or PRIORITY-pollUS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    pub name: String,
    /// The section of the configuration; empty for the usual one.
    pub workers: String,
}

impl FromStr for Schedule {
    type Err = Unexpected;

    fn from_str(text: &str) -> Result<Self, Unexpected> {
        let name = text.to_owned();
        if text == USUAL {
            return Ok(Self { name, workers: String::new() });
        }
        let (priority, poll_us) = text.split_once("-poll").unwrap_or((text, "0"));
        let is_known = Priority::ALL.iter().any(|known| known.name() == priority);
        match poll_us.parse::<u32>() {
            Ok(poll_us) if is_known && poll_us <= POLL_US_MAX => {
                let workers = format!("\n[workers]\npriority = \"{priority}\"\nbusy_poll_us = {poll_us}\n");
                Ok(Self { name, workers })
            }
            _ => Err(Unexpected::new(
                text,
                format!(
                    "usual, normal, nice or realtime, the latter three also with polling of at most {POLL_US_MAX} us: nice-poll50"
                ),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_have_names() {
        let of = |text: &str| text.parse::<Schedule>().map(|schedule| schedule.workers);
        assert_eq!(of("usual"), Ok(String::new()));
        assert_eq!(of("nice"), Ok("\n[workers]\npriority = \"nice\"\nbusy_poll_us = 0\n".to_owned()));
        assert!(of("realtime-poll50").is_ok_and(|workers| workers.ends_with("busy_poll_us = 50\n")));
        for wrong in ["", "fast", "nice-poll", "nice-poll1001", "nice-poll5us", "usual-poll5"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
