//! How fast routes are installed in the kernel, removed and scanned. Needs root: it runs itself again in its own
//! network namespace.
//!
//! ```text
//! cargo bench -p thalweg-ports --bench kernel --profile quick -- [ROUTES]
//! ```

#[cfg(target_os = "linux")]
mod linux {
    use std::process::Command;
    use std::time::Instant;

    use thalweg_base::{IpPrefix, Prefix};
    use thalweg_ports::kernel::{KernelOptions, KernelRoute, KernelRoutes, RouteChange, RouteTarget};

    const INSIDE: &str = "THALWEG_BENCH_NAMESPACE";

    /// A prefix of 24 bits (IPv4) or 48 bits (IPv6); successive numbers are far apart.
    fn prefix(number: u32, v6: bool) -> IpPrefix {
        let jumping = number.wrapping_mul(0x9e37_79b1) >> 8;
        let made = if v6 {
            Prefix::new((0x2001_u128 << 112) + (u128::from(jumping) << 80), 48).map(IpPrefix::V6)
        } else {
            Prefix::new(0x1000_0000 + (jumping << 8), 24).map(IpPrefix::V4)
        };
        made.expect("24 and 48 are valid prefix lengths")
    }

    fn ip(arguments: &str) -> bool {
        let status = Command::new("ip").args(arguments.split_whitespace()).status();
        status.is_ok_and(|status| status.success())
    }

    pub(super) fn main() {
        let routes = std::env::args().skip(1).find_map(|each| each.parse().ok()).unwrap_or(500_000);
        if std::env::var_os(INSIDE).is_some() {
            return measure(routes);
        }
        let name = format!("thalweg-bench-{}", std::process::id());
        if !ip(&format!("netns add {name}")) {
            return println!("needs root");
        }
        let program = std::env::current_exe().expect("the path of this program");
        let mut inside = Command::new("ip");
        inside.args(["netns", "exec", &name]).arg(program).arg(routes.to_string()).env(INSIDE, "1");
        let status = inside.status();
        ip(&format!("netns delete {name}"));
        assert!(status.is_ok_and(|status| status.success()), "failed inside the namespace");
    }

    fn measure(routes: u32) {
        assert!(ip("link set lo up") && ip("link add v0 type veth peer name v1"));
        assert!(ip("link set v0 up") && ip("link set v1 up"));
        assert!(ip("address add 198.18.0.1/24 dev v0") && ip("address add 2001:db8::1/64 dev v0 nodad"));
        let mut kernel = KernelRoutes::open(KernelOptions::default()).expect("netlink");
        let interface = kernel_interface();
        for v6 in [false, true] {
            let family = if v6 { "IPv6" } else { "IPv4" };
            let gateway = if v6 { "2001:db8::2" } else { "198.18.0.2" }.parse().expect("an address");
            let gateway = RouteTarget::Gateway { address: gateway, interface: Some(interface) };
            let wanted: Vec<_> =
                (0..routes).map(|n| KernelRoute { prefix: prefix(n, v6), target: gateway }).collect();
            let changes: Vec<_> = wanted.iter().map(|route| RouteChange::Replace(*route)).collect();
            let label = |step: &str| format!("{family} {step}");
            timed(&label("install"), routes, || {
                assert_eq!(kernel.apply(&changes).expect("installed").failed, 0);
            });
            timed(&label("replace"), routes, || {
                assert_eq!(kernel.apply(&changes).expect("replaced").failed, 0);
            });
            timed(&label("scan, clean"), routes, || {
                assert!(kernel.repair(wanted.iter().copied()).expect("scanned").is_clean());
            });
            timed(&label("remove all"), routes, || {
                assert_eq!(kernel.remove_all().expect("removed").deleted, u64::from(routes));
            });
        }
    }

    fn kernel_interface() -> u32 {
        let view = thalweg_ports::kernel::NetworkView::read(116).expect("a view");
        view.links.iter().find(|link| &*link.name == "v0").expect("v0").index
    }

    fn timed(what: &str, routes: u32, work: impl FnOnce()) {
        let begun = Instant::now();
        work();
        let seconds = begun.elapsed().as_secs_f64();
        println!("{what:<28} {routes} in {seconds:.2} s: {:.0} k/s", f64::from(routes) / seconds / 1e3);
    }
}

fn main() {
    #[cfg(target_os = "linux")]
    linux::main();
}
