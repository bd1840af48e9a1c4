//! OpenSSH's server and client, with keys of their own. They change no file of the system: the server has a user and a
//! folder for its unprivileged half in mounts of its own.

use std::fs;

use crate::site::{Host, Process, Site, has};

/// Whether the programs are installed; says loudly if not.
pub(crate) fn is_here() -> bool {
    ["sshd", "ssh", "ssh-keygen"].iter().all(|program| has(program))
}

/// Starts a server on all addresses of a namespace.
pub(crate) fn serve(site: &Site, namespace: &str) -> Process {
    let path = |name: &str| site.file(name).display().to_string();
    for key in ["ssh-host", "ssh-client"] {
        site.said(namespace, "ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-C", "", "-f", &path(key)]);
    }
    let host_key = fs::read_to_string(site.file("ssh-host.pub")).expect("the server's key");
    let config = format!(
        "HostKey {}\nAuthorizedKeysFile {}\nAuthenticationMethods publickey\nUsePAM no\nStrictModes no\nPidFile none\n",
        path("ssh-host"),
        path("ssh-client.pub")
    );
    let users = "operator:*:0:0::/:/bin/sh\nsshd:*:65534:65534::/:/usr/sbin/nologin\n";
    for (name, text) in
        [("sshd-config", config), ("ssh-known", format!("* {host_key}")), ("passwd", users.to_owned())]
    {
        fs::write(site.file(name), text).expect("the folder is writable");
    }
    // `ip netns exec` gives it mounts that nobody else sees.
    let script = "set -e; mount -t tmpfs none /run; mkdir -m 755 /run/sshd; mount --bind \"$0\" /etc/passwd\n\
                  exec \"$(command -v sshd)\" -D -e -f \"$1\"";
    site.start(namespace, "sh", &["-c", script, &path("passwd"), &path("sshd-config")])
}

/// Logs in by key; the addresses of the connection's two ends as the server sees them.
pub(crate) fn login(site: &Site, from: Host, to: &str, wait_s: u8) -> Option<[String; 2]> {
    let path = |name: &str| site.file(name).display().to_string();
    let options = [
        "BatchMode=yes".to_owned(),
        "IdentitiesOnly=yes".to_owned(),
        "StrictHostKeyChecking=yes".to_owned(),
        "GlobalKnownHostsFile=/dev/null".to_owned(),
        format!("UserKnownHostsFile={}", path("ssh-known")),
        format!("ConnectTimeout={wait_s}"),
    ];
    let (key, user) = (path("ssh-client"), format!("operator@{to}"));
    let mut arguments = vec!["-F", "none", "-i", &key];
    arguments.extend(options.iter().flat_map(|option| ["-o", option]));
    arguments.extend([&*user, "echo $SSH_CONNECTION"]);
    let output = site.output(&site.namespace(from), "ssh", &arguments);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let ends: Vec<&str> = said.split_whitespace().collect();
    match (output.status.success(), &ends[..]) {
        (true, [client, _, server, _]) => Some([client, server].map(|&end| end.to_owned())),
        _ => None,
    }
}
