//! Why a port cannot be opened, and what to do about it.

use std::io;

/// Why a port was not opened or its interface not changed. Its text also says what to do, if anything can be done.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The interface does not exist here.
    #[error("{interface}: no such interface; `ip link` lists those of this network namespace")]
    NoSuchInterface {
        /// Its name.
        interface: String,
    },
    /// No interface can have this name.
    #[error("{interface:?} is not an interface name: expected 1 to 15 bytes without blanks and slashes")]
    BadName {
        /// The name.
        interface: String,
    },
    /// The interface carries neither Ethernet frames nor IP packets.
    #[error(
        "{interface} carries neither Ethernet frames nor IP packets (hardware type {hardware}), so it cannot be a port"
    )]
    NoPackets {
        interface: String,
        /// An `ARPHRD_*` number.
        hardware: u16,
    },
    /// Another user has a resource that only one can have.
    #[error("{interface}: {holder}; {remedy}")]
    Occupied {
        interface: String,
        /// What uses it, with its owner as far as that is known.
        holder: String,
        remedy: &'static str,
    },
    /// An option has an impossible value.
    #[error("{interface}: {why}")]
    BadOption {
        interface: String,
        /// The value, and what was expected.
        why: String,
    },
    /// The driver is not part of this program.
    #[error("{interface}: this program was built without driver {driver}; {remedy}")]
    NotBuiltIn {
        /// The interface's or device's name.
        interface: String,
        driver: &'static str,
        remedy: &'static str,
    },
    /// DPDK failed to do what the port needs.
    #[error("{interface}: DPDK does not {what}: {said}")]
    Dpdk {
        interface: String,
        /// The request, a verb phrase.
        what: &'static str,
        said: String,
    },
    /// The kernel failed to do what the port needs.
    #[error(
        "{interface}: {call}: {source}{}",
        remedy(call, .source.raw_os_error()).map(|what| format!("; {what}")).unwrap_or_default()
    )]
    Call {
        interface: String,
        /// The system call: `socket(AF_PACKET)`, `setsockopt(PACKET_RX_RING)`.
        call: &'static str,
        source: io::Error,
    },
}

impl LiveError {
    pub(super) fn call<'a>(interface: &'a str, call: &'static str) -> impl FnOnce(io::Error) -> Self + 'a {
        move |source| match source.raw_os_error() {
            Some(libc::ENODEV | libc::ENXIO) => Self::NoSuchInterface { interface: interface.to_owned() },
            _ => Self::Call { interface: interface.to_owned(), call, source },
        }
    }

    /// The kernel's error number, if the kernel was asked.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Call { source, .. } => source.raw_os_error(),
            Self::NoSuchInterface { .. } => Some(libc::ENODEV),
            Self::BadName { .. }
            | Self::NoPackets { .. }
            | Self::Occupied { .. }
            | Self::BadOption { .. }
            | Self::NotBuiltIn { .. }
            | Self::Dpdk { .. } => None,
        }
    }
}

/// What an operator can do about an error of the kernel.
fn remedy(call: &str, errno: Option<i32>) -> Option<&'static str> {
    Some(match errno? {
        // Opening it takes no capability, only the device's permissions.
        libc::EACCES if call.contains("/dev/net/tun") => {
            "this user may not open that device: `chmod 0666` or a udev rule changes it, and no capability is needed for it"
        }
        libc::EPERM if call.contains("/dev/net/tun") => {
            "this container or service may not use that device: allow it (--device, DeviceAllow=)"
        }
        libc::EPERM | libc::EACCES if call.starts_with("TUN") || call.starts_with("SIOCS") => {
            "needs CAP_NET_ADMIN"
        }
        libc::EPERM | libc::EACCES if call.starts_with("bpf(") || call.contains("XDP") => {
            "needs CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_IPC_LOCK"
        }
        libc::EPERM | libc::EACCES => "needs CAP_NET_RAW",
        libc::ENOENT if call.contains("/dev/net/tun") => {
            "this kernel has no TUN/TAP, or its device is missing here"
        }
        libc::EAFNOSUPPORT if call.contains("XDP") => "this kernel has no AF_XDP; use driver af_packet",
        libc::EAFNOSUPPORT => "this kernel has no AF_PACKET",
        libc::ENOMEM => "not enough memory: a smaller ring needs less (`thalweg probe --ring`)",
        libc::ENOBUFS => "not enough memory for sockets",
        libc::EMFILE | libc::ENFILE => "no file descriptor is left: raise the limit (ulimit -n)",
        libc::EBUSY if call.starts_with("TUN") => {
            "another program is attached to it; stop that program, or choose another name"
        }
        libc::EBUSY if call == "bind(AF_XDP)" => "another program has an AF_XDP socket on the queue",
        libc::ERANGE => "the MTU is too large for the driver's XDP: lower it, or use driver af_packet",
        libc::EOPNOTSUPP if call == "bind(AF_XDP)" => "its driver has no zero-copy",
        libc::EOPNOTSUPP if call == "bpf(LINK_CREATE)" => "its driver takes no XDP program",
        libc::EBUSY => "it is in use",
        libc::EINVAL if call.starts_with("TUNSETIFF") => "an interface of that name exists and is no TAP",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(call: &'static str, errno: i32) -> String {
        LiveError::call("eth7", call)(io::Error::from_raw_os_error(errno)).to_string()
    }

    #[test]
    fn names_interface_call_and_remedy() {
        let text = said("socket(AF_PACKET)", libc::EPERM);
        assert!(text.starts_with("eth7: socket(AF_PACKET): ") && text.contains("CAP_NET_RAW"), "{text}");
        assert!(said("TUNSETIFF", libc::EPERM).contains("CAP_NET_ADMIN"));
        let device = said("/dev/net/tun", libc::EACCES);
        assert!(
            device.contains("device") && !device.contains("root") && !device.contains("CAP_"),
            "{device}"
        );
        assert!(said("TUNSETIFF", libc::EBUSY).contains("another program"));
        assert!(said("setsockopt(PACKET_RX_RING)", libc::ENOMEM).contains("a smaller ring"));
        assert!(said("bind", libc::ENODEV).contains("no such interface"));
    }

    /// The call and its error decide which advice is given, and one that nobody foresaw has none.
    #[test]
    fn each_error_has_its_own_remedy() {
        for (call, errno, advice) in [
            ("/dev/net/tun", libc::EACCES, "chmod 0666"),
            ("/dev/net/tun", libc::EPERM, "DeviceAllow="),
            ("/dev/net/tun", libc::ENOENT, "no TUN/TAP"),
            ("SIOCSIFMTU", libc::EPERM, "needs CAP_NET_ADMIN"),
            ("bpf(PROG_LOAD)", libc::EPERM, "CAP_BPF and CAP_IPC_LOCK"),
            ("socket(AF_XDP)", libc::EACCES, "CAP_BPF and CAP_IPC_LOCK"),
            ("socket(AF_PACKET)", libc::EACCES, "needs CAP_NET_RAW"),
            ("socket(AF_XDP)", libc::EAFNOSUPPORT, "use driver af_packet"),
            ("socket(AF_PACKET)", libc::EAFNOSUPPORT, "no AF_PACKET"),
            ("mmap", libc::ENOBUFS, "memory for sockets"),
            ("socket(AF_PACKET)", libc::EMFILE, "ulimit -n"),
            ("socket(AF_PACKET)", libc::ENFILE, "ulimit -n"),
            ("bind(AF_XDP)", libc::EBUSY, "an AF_XDP socket on the queue"),
            ("bpf(LINK_CREATE)", libc::EBUSY, "it is in use"),
            ("bpf(LINK_CREATE)", libc::ERANGE, "lower it, or use driver af_packet"),
            ("bind(AF_XDP)", libc::EOPNOTSUPP, "no zero-copy"),
            ("bpf(LINK_CREATE)", libc::EOPNOTSUPP, "takes no XDP program"),
            ("TUNSETIFF", libc::EINVAL, "no TAP"),
        ] {
            let text = said(call, errno);
            assert!(text.starts_with(&format!("eth7: {call}: ")) && text.contains(advice), "{text}");
        }
        assert_eq!(remedy("socket(AF_PACKET)", Some(libc::EXDEV)), None);
        assert_eq!(remedy("bpf(LINK_CREATE)", None), None);
    }
}
