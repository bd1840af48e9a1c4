//! Who listens on a TCP port: a process that was started for it, or another program.
//!
//! A connection does not tell who accepts it. But the kernel's table of a network namespace has the inode of each
//! listening socket, and a process's folder in `/proc` those of its open descriptors.
//!
//! Missing: a process that has left its parent, as daemons do that go to the background, counts as another program.

use std::collections::HashMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::SocketAddrV4;
use std::path::Path;

use thalweg_wire::ip_protocol;

use super::sockets::row;

/// Who listens at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listener {
    /// Nobody, so far.
    Nobody,
    /// The process, or one that descends from it.
    Own,
    Other,
    /// Somebody; the process hides its descriptors from us, as programs with file capabilities do.
    Hidden,
}

impl Listener {
    /// Who listens at an address, in the network namespace of a process.
    ///
    /// # Errors
    ///
    /// Fails if `/proc` cannot be read, or the process is gone.
    pub fn at(address: SocketAddrV4, process: u32) -> io::Result<Self> {
        let inodes = listeners(address, process)?;
        if inodes.is_empty() {
            return Ok(Self::Nobody);
        }
        let (mut own, mut some_hide) = (Vec::new(), false);
        for process in with_descendants(process)? {
            match sockets_of(process) {
                Ok(sockets) => own.extend(sockets),
                // Others have just ended.
                Err(error) => some_hide |= error.kind() == ErrorKind::PermissionDenied,
            }
        }
        // One that shares the port with the process would get some of its connections.
        Ok(match inodes.iter().all(|inode| own.contains(inode)) {
            true => Self::Own,
            false if some_hide => Self::Hidden,
            false => Self::Other,
        })
    }
}

/// The inodes of the sockets that accept connections to an address.
fn listeners(address: SocketAddrV4, process: u32) -> io::Result<Vec<u64>> {
    let mut inodes = Vec::new();
    for table in ["tcp", "tcp6"] {
        let text = match fs::read_to_string(format!("/proc/{process}/net/{table}")) {
            Ok(text) => text,
            // A kernel without IPv6.
            Err(error) if table == "tcp6" && error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        inodes.extend(text.lines().filter_map(|line| {
            let socket = row(ip_protocol::TCP, line).filter(|socket| socket.remote.is_none())?;
            let is_there = socket.local.is_none_or(|local| local == *address.ip());
            let inode = line.split_ascii_whitespace().nth(9)?.parse::<u64>().ok();
            inode.filter(|_| is_there && socket.port == address.port())
        }));
    }
    Ok(inodes)
}

/// A process, and all that it started, their children included.
fn with_descendants(process: u32) -> io::Result<Vec<u32>> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(parent) = parent_of(&entry.path()) {
            children.entry(parent).or_default().push(number);
        }
    }
    let mut all = vec![process];
    let mut at = 0;
    while let Some(parent) = all.get(at) {
        all.extend(children.remove(parent).unwrap_or_default());
        at += 1;
    }
    Ok(all)
}

/// The parent of a process, given its folder; `None` if it has ended.
fn parent_of(process: &Path) -> Option<u32> {
    let text = fs::read_to_string(process.join("stat")).ok()?;
    // The name before it may have spaces and parentheses of its own.
    let (_, fields) = text.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The inodes of a process's sockets.
fn sockets_of(process: u32) -> io::Result<Vec<u64>> {
    let mut inodes = Vec::new();
    for entry in fs::read_dir(format!("/proc/{process}/fd"))? {
        // One that was just closed has no target.
        let Ok(target) = fs::read_link(entry?.path()) else { continue };
        let inode = target.to_str().and_then(|text| text.strip_prefix("socket:[")?.strip_suffix(']'));
        inodes.extend(inode.and_then(|inode| inode.parse::<u64>().ok()));
    }
    Ok(inodes)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::process::{Command, Stdio};

    use super::*;

    fn v4(address: SocketAddr) -> SocketAddrV4 {
        match address {
            SocketAddr::V4(address) => address,
            SocketAddr::V6(_) => panic!("{address}"),
        }
    }

    #[test]
    fn a_process_owns_what_it_opened() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = v4(listener.local_addr().unwrap());
        let me = std::process::id();
        let beside = SocketAddrV4::new([127, 0, 0, 2].into(), address.port());
        assert_eq!(Listener::at(address, me).unwrap(), Listener::Own);
        assert_eq!(Listener::at(beside, me).unwrap(), Listener::Nobody, "another address");
        // A connection's own port is no listener.
        let client = TcpStream::connect(address).unwrap();
        assert_eq!(Listener::at(v4(client.local_addr().unwrap()), me).unwrap(), Listener::Nobody);

        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        assert_eq!(Listener::at(address, child.id()).unwrap(), Listener::Other);
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
        assert!(Listener::at(address, child.id()).is_err(), "it is gone");
    }

    #[test]
    fn all_addresses_are_this_one_too() {
        for everywhere in ["0.0.0.0:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(everywhere) else { continue };
            let address = SocketAddrV4::new([127, 0, 0, 1].into(), listener.local_addr().unwrap().port());
            assert_eq!(Listener::at(address, std::process::id()).unwrap(), Listener::Own, "{everywhere}");
        }
    }

    /// A shell that has closed its own copy: only the program that it started listens.
    #[test]
    fn a_descendant_may_be_the_one() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = v4(listener.local_addr().unwrap());
        let mut child = Command::new("sh")
            .args(["-c", "exec 3<&0 </dev/null; tail -f /dev/null & exec 3<&-; echo $!; wait"])
            .stdin(Stdio::from(OwnedFd::from(listener)))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        // `tail` ends when nobody reads what it says.
        let mut said = BufReader::new(child.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        let who = Listener::at(address, child.id());
        let other = Listener::at(address, std::process::id());
        let ended = Command::new("sh").args(["-c", &format!("kill {line}")]).status();
        assert!(ended.is_ok_and(|status| status.success()) && child.wait().is_ok());
        assert_eq!(who.unwrap(), Listener::Own);
        assert_eq!(other.unwrap(), Listener::Own, "this process started them");
    }
}
