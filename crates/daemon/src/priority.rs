//! The priority and the cores that forwarding threads get on this machine. Of a priority that is lower than configured,
//! `check` says what is missing, and `run` warns; without its cores no router starts.

use std::{fs, io};

use thalweg_config::WorkersConfig;
use thalweg_exec::{Priority, core_is_usable};

/// The most of a core that a real-time thread uses, in percent: see `thalweg_exec::Rank`.
const BUDGET_PERCENT: i64 = 85;

/// The permitted priority, and how to get the configured one.
pub fn here(wanted: Priority) -> (Priority, Option<String>) {
    let (allowed, why) = wanted.allowed();
    let refused = why.filter(|_| allowed != wanted).map(|why| {
        let right = match wanted {
            Priority::RealTime => "LimitRTPRIO=1",
            Priority::Nice | Priority::Normal => "LimitNICE=-10",
        };
        format!(
            "forwarding threads run with priority {allowed} instead of {wanted} ({why}): packets wait for a core on a busy \
             machine. Give the router CAP_SYS_NICE or, under systemd, {right}; or set priority = \"{allowed}\" in [workers]"
        )
    });
    let throttled = || {
        let number = |name: &str| -> Option<i64> {
            fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?.trim().parse().ok()
        };
        throttles(number("sched_rt_runtime_us")?, number("sched_rt_period_us")?)
    };
    let remark = refused.or_else(|| (allowed == Priority::RealTime).then(throttled).flatten());
    (allowed, remark)
}

/// A configured core that cannot be used, why, and what to do.
#[derive(Debug, thiserror::Error)]
#[error(
    "[workers] cores: no thread can be bound to core {core} ({error}): choose one that this machine has and this process may \
     use (`lscpu --extended`; of a container or systemd unit, its cpuset)"
)]
pub struct UnusableCore {
    core: usize,
    error: io::Error,
}

/// Whether threads can be bound to the configured cores.
pub fn cores(workers: &WorkersConfig) -> Result<(), UnusableCore> {
    let mut cores = workers.cores.iter().flatten();
    cores.try_for_each(|&core| core_is_usable(core).map_err(|error| UnusableCore { core, error }))
}

/// A warning if the kernel's limit for real-time threads is too low; -1 is no limit.
fn throttles(runtime_us: i64, period_us: i64) -> Option<String> {
    let enough_us = period_us.saturating_mul(BUDGET_PERCENT) / 100;
    (runtime_us >= 0 && runtime_us < enough_us).then(|| {
        format!(
            "kernel.sched_rt_runtime_us = {runtime_us}: on a busy core the kernel stops forwarding threads for the rest of each \
             {period_us} µs. Set it to {enough_us} or more"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_that_is_not_there_is_said() {
        let workers = WorkersConfig { cores: Some(vec![1023]), ..WorkersConfig::default() };
        let why = cores(&workers).expect_err("this machine has 1024 cores?").to_string();
        assert!(why.contains("core 1023") && why.contains("lscpu"), "{why}");
        assert!(cores(&WorkersConfig::default()).is_ok());
    }

    #[test]
    fn a_kernel_limit_below_the_budget_is_said() {
        assert_eq!((throttles(950_000, 1_000_000), throttles(-1, 1_000_000)), (None, None));
        let said = throttles(500_000, 1_000_000).expect("a remark");
        assert!(said.contains("sched_rt_runtime_us = 500000") && said.contains("850000 or more"), "{said}");
    }
}
