//! Health checks of gateways: does a host answer echo requests that leave by way of a gateway?
//!
//! ```text
//!               answer                    `fail` requests in a row without an answer
//!   WAITING ------------> PASSED ------------------------------------------------> FAILED
//!      |                    ^                                                        |  ^
//!      |                    +------------------ `pass` answers in a row -------------+  |
//!      +--------------------- `fail` requests in a row without an answer ---------------+
//! ```
//!
//! A request leaves every `every_ns`, whether or not the gateway's MAC address is known; its answer counts if it
//! comes before the next request. So a gateway fails at most `fail + 1` intervals after its last answer. Each request
//! carries a number that only this router knows, so a stranger cannot answer for the gateway.
//!
//! Time is an argument. After each call the caller polls outputs until there are none.

use crate::icmp::Echo;
use std::collections::VecDeque;
use std::net::IpAddr;
use thalweg_base::mix64;

/// What is checked, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckConfig {
    /// The gateway's port.
    pub port: u16,
    pub gateway: IpAddr,
    /// Who must answer: the gateway, or a host behind it.
    pub target: IpAddr,
    /// Time between requests.
    pub every_ns: u64,
    /// Requests in a row without an answer after which the check fails.
    pub fail: u8,
    /// Answers in a row after which it passes again.
    pub pass: u8,
}

impl CheckConfig {
    fn is_about(&self, other: &Self) -> bool {
        (self.port, self.gateway, self.target) == (other.port, other.gateway, other.target)
    }
}

thalweg_base::words! {
    /// The state of a check.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum CheckState {
        /// Nothing is known yet; the gateway is used.
        Waiting => "waiting",
        Passed => "passed",
        Failed => "failed",
    }
}

/// An action for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckOutput {
    /// Send an echo request to the target by way of the gateway.
    Send { check: CheckConfig, echo: Echo },
    /// The check began to fail, passes again, or is gone after it had failed.
    Changed { check: CheckConfig, has_failed: bool },
}

/// A check for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckView {
    pub check: CheckConfig,
    pub state: CheckState,
    pub requests: u64,
    pub answers: u64,
    /// How often it began to fail.
    pub failures: u64,
    /// Round-trip time of the last answer.
    pub rtt_ns: Option<u64>,
}

#[derive(Clone, Debug)]
struct Check {
    view: CheckView,
    secret: u64,
    sequence: u16,
    /// Whether the last request waits for its answer.
    is_open: bool,
    sent_ns: u64,
    next_ns: u64,
    /// In a row.
    unanswered: u8,
    answered: u8,
}

impl Check {
    fn new(check: CheckConfig, secret: u64, now_ns: u64) -> Self {
        let state = CheckState::Waiting;
        Self {
            view: CheckView { check, state, requests: 0, answers: 0, failures: 0, rtt_ns: None },
            secret,
            sequence: 0,
            is_open: false,
            sent_ns: 0,
            next_ns: now_ns,
            unanswered: 0,
            answered: 0,
        }
    }

    fn echo(&self) -> Echo {
        let token = mix64(self.secret ^ u64::from(self.sequence)).to_be_bytes();
        let [high, low, ..] = self.secret.to_be_bytes();
        Echo { identifier: u16::from_be_bytes([high, low]), sequence: self.sequence, token }
    }

    /// Judges the last request, and begins the next one. Returns whether the check begins to fail.
    fn next_request(&mut self, now_ns: u64) -> bool {
        let check = self.view.check;
        if self.is_open {
            (self.unanswered, self.answered) = (self.unanswered.saturating_add(1), 0);
        }
        self.sequence = self.sequence.wrapping_add(1);
        (self.is_open, self.sent_ns) = (true, now_ns);
        self.next_ns = now_ns.saturating_add(check.every_ns.max(1));
        self.view.requests += 1;
        let fails = self.unanswered >= check.fail.max(1) && self.view.state != CheckState::Failed;
        if fails {
            self.view.state = CheckState::Failed;
            self.view.failures += 1;
        }
        fails
    }

    /// Returns whether the check passes again.
    fn take_answer(&mut self, now_ns: u64) -> bool {
        (self.is_open, self.unanswered) = (false, 0);
        self.answered = self.answered.saturating_add(1);
        self.view.answers += 1;
        self.view.rtt_ns = Some(now_ns.saturating_sub(self.sent_ns));
        let has_failed = self.view.state == CheckState::Failed;
        if !has_failed || self.answered >= self.view.check.pass {
            self.view.state = CheckState::Passed;
        }
        has_failed && self.view.state == CheckState::Passed
    }
}

/// All checks of a router.
#[derive(Clone, Debug)]
pub struct GatewayChecks {
    checks: Vec<Check>,
    outputs: VecDeque<CheckOutput>,
    seed: u64,
    /// Checks begun so far, so that each has its own secret.
    begun: u64,
}

impl GatewayChecks {
    /// No checks. The seed must be unknown to others.
    pub fn new(seed: u64) -> Self {
        Self { checks: Vec::new(), outputs: VecDeque::new(), seed, begun: 0 }
    }

    /// Replaces the checks. Those of the same gateway and target keep their state.
    pub fn set(&mut self, configs: &[CheckConfig], now_ns: u64) {
        let mut before = std::mem::take(&mut self.checks);
        for config in configs {
            let known = before.iter().position(|check| check.view.check.is_about(config));
            let check = match known.map(|place| before.swap_remove(place)) {
                Some(mut check) => {
                    check.view.check = *config;
                    check.next_ns = check.next_ns.min(now_ns.saturating_add(config.every_ns));
                    check
                }
                None => {
                    self.begun += 1;
                    Check::new(*config, mix64(self.seed ^ mix64(self.begun)), now_ns)
                }
            };
            self.checks.push(check);
        }
        let gone = before.iter().filter(|check| check.view.state == CheckState::Failed);
        let gone = gone.map(|check| CheckOutput::Changed { check: check.view.check, has_failed: false });
        // Before anything else: a gateway may have got another target.
        self.outputs.extend(gone);
    }

    /// The next output.
    pub fn poll_output(&mut self) -> Option<CheckOutput> {
        self.outputs.pop_front()
    }

    /// When to call [`handle_timer`](Self::handle_timer) next.
    pub fn next_deadline(&self) -> Option<u64> {
        self.checks.iter().map(|check| check.next_ns).min()
    }

    /// Sends the requests that are due, and finds the gateways that have not answered.
    pub fn handle_timer(&mut self, now_ns: u64) {
        for each in self.checks.iter_mut().filter(|check| check.next_ns <= now_ns) {
            let check = each.view.check;
            if each.next_request(now_ns) {
                self.outputs.push_back(CheckOutput::Changed { check, has_failed: true });
            }
            self.outputs.push_back(CheckOutput::Send { check, echo: each.echo() });
        }
    }

    /// Takes an IP packet for the router. Returns whether it answers the last request of a check.
    pub fn handle_packet(&mut self, packet: &[u8], now_ns: u64) -> bool {
        if self.checks.is_empty() {
            return false;
        }
        let Some((source, echo)) = Echo::of_reply(packet) else { return false };
        let answers = |each: &&mut Check| each.view.check.target == source && each.echo() == echo;
        let Some(each) = self.checks.iter_mut().find(answers) else { return false };
        if each.is_open && each.take_answer(now_ns) {
            let check = each.view.check;
            self.outputs.push_back(CheckOutput::Changed { check, has_failed: false });
        }
        true
    }

    /// All checks, in order of the configuration.
    pub fn view(&self) -> impl Iterator<Item = CheckView> + '_ {
        self.checks.iter().map(|check| check.view)
    }
}

#[cfg(test)]
mod tests;
