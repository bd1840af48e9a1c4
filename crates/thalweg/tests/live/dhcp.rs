//! DHCP's real programs in a namespace: dnsmasq serves, dhclient asks.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::site::{Process, Site, has};

/// Puts the address and the default route on the interface. The system's script would change the machine's resolver.
const SCRIPT: &str = "#!/bin/sh
case $reason in
BOUND|RENEW|REBIND|REBOOT)
    length=$(echo $new_subnet_mask | awk -F. '{n=0;for(i=1;i<=4;i++){v=$i;while(v>0){n+=v%2;v=int(v/2)}}print n}')
    ip addr replace $new_ip_address/$length dev $interface
    ip route replace default via ${new_routers%% *} dev $interface ;;
RELEASE|EXPIRE|STOP|FAIL)
    ip addr del $old_ip_address dev $interface 2>/dev/null || ip addr flush dev $interface scope global ;;
esac
exit 0
";

/// Whether both programs are installed; says loudly if not.
pub(crate) fn is_here() -> bool {
    has("dnsmasq") && has("dhclient")
}

/// A server; options name its interfaces and ranges.
pub(crate) fn serve(site: &Site, namespace: &str, options: &[&str]) -> Process {
    let leases = site.file(&format!("{namespace}.leases")).display().to_string();
    let [leases, pid] = [format!("--dhcp-leasefile={leases}"), format!("--pid-file={leases}.pid")];
    let fixed =
        ["--no-daemon", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--user=root", &leases, &pid];
    site.start(namespace, "dnsmasq", &[&fixed, options].concat())
}

/// The arguments of a client.
fn client(site: &Site, namespace: &str, interface: &str) -> Vec<String> {
    let script = site.file("dhclient-script");
    fs::write(&script, SCRIPT).expect("the folder is writable");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("it may run");
    let of = |what: &str| site.file(&format!("{interface}{namespace}.{what}")).display().to_string();
    let (leases, pid, script) = (of("dhclient"), of("dhpid"), script.display().to_string());
    ["-sf", &script, "-lf", &leases, "-pf", &pid, "-cf", "/dev/null", interface].map(str::to_owned).into()
}

/// Starts a client, which keeps its address as long as it runs.
pub(crate) fn ask(site: &Site, namespace: &str, interface: &str) -> Process {
    let arguments = client(site, namespace, interface);
    let all: Vec<&str> = ["-d"].into_iter().chain(arguments.iter().map(String::as_str)).collect();
    site.start(namespace, "dhclient", &all)
}

/// Gives a client's address back.
pub(crate) fn release(site: &Site, namespace: &str, interface: &str) {
    let arguments = client(site, namespace, interface);
    let all: Vec<&str> = ["-r"].into_iter().chain(arguments.iter().map(String::as_str)).collect();
    site.said(namespace, "dhclient", &all);
}
