//! Whose a port is: before an engine is started nobody may have it, and afterwards nobody may keep it.
//!
//! Whether a port is free is found out by binding to it, as the engine will. Who has it is read in `/proc`: a listening
//! socket's number, and the process that holds a descriptor of it. A process of another user shows no descriptors; then
//! there is no more than the number to tell.

use std::fmt;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};

use super::scrub::Scrub;

/// Who listens on a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// A process that may be looked at from here.
    Process {
        /// Its number.
        pid: i32,
        /// Its command line, without the values of secret options.
        command: String,
    },
    /// Somebody: a process of another user or container, or one that has bound the port and does not listen yet.
    Unknown,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { pid, command } => write!(f, "process {pid} ({command})"),
            Self::Unknown => {
                f.write_str("a process that cannot be seen from here (another user's, or in a container)")
            }
        }
    }
}

/// What was found out about a port.
pub(super) enum Port {
    Free,
    Taken(Owner),
}

/// Whether all of `addresses` can be bound.
pub(super) fn look(addresses: &[SocketAddr]) -> io::Result<Port> {
    for address in addresses {
        match TcpListener::bind(address) {
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => return Ok(Port::Taken(owner(address.port()))),
            // "localhost" often has an address of a family that the host does not use.
            Err(e) if addresses.len() > 1 && e.kind() == io::ErrorKind::AddrNotAvailable => {}
            Err(e) => return Err(e),
        }
    }
    Ok(Port::Free)
}

/// The process of this host that serves `url`; none when that is another host, or nobody who may be looked at. It asks
/// the resolver and walks through `/proc`: not for a thread that others wait for.
#[must_use]
pub fn listener(url: &common::plan::BaseUrl) -> Option<i32> {
    use std::net::ToSocketAddrs;
    let mut addresses = (url.host(), url.port()).to_socket_addrs().ok()?;
    // An address of this host is one that can be bound: for datagrams and at any port, so that the engine's stays free.
    if !addresses.any(|address| UdpSocket::bind((address.ip(), 0)).is_ok()) {
        return None;
    }
    match owner(url.port()) {
        Owner::Process { pid, .. } => Some(pid),
        Owner::Unknown => None,
    }
}

fn owner(port: u16) -> Owner {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let sockets: Vec<u64> = tables.iter().flat_map(|table| listeners(table, port)).collect();
    match sockets.iter().find_map(|&socket| holder(socket)) {
        Some(pid) => Owner::Process { pid, command: command_line(pid) },
        None => Owner::Unknown,
    }
}

/// Numbers of the sockets that listen on `port`, of a table as in `/proc/net/tcp`.
fn listeners(table: &str, port: u16) -> impl Iterator<Item = u64> + '_ {
    const LISTEN: &str = "0A";
    table.lines().skip(1).filter_map(move |line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (_, local_port) = fields.get(1)?.rsplit_once(':')?;
        let listens = *fields.get(3)? == LISTEN && u16::from_str_radix(local_port, 16).ok()? == port;
        if listens { fields.get(9)?.parse().ok() } else { None }
    })
}

/// The first process that holds a socket: of a server and its workers mostly the server.
fn holder(socket: u64) -> Option<i32> {
    let wanted = format!("socket:[{socket}]");
    let entries = fs::read_dir("/proc").ok()?;
    let mut pids: Vec<i32> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    pids.into_iter().find(|pid| {
        let held = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        held.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|link| link.as_os_str() == wanted.as_str())
    })
}

fn command_line(pid: i32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<String> = bytes
        .split(|&b| b == 0)
        .filter(|w| !w.is_empty())
        .map(|w| String::from_utf8_lossy(w).into_owned())
        .collect();
    let mut scrub = Scrub::default();
    scrub.hide_options(&words);
    let shown: String =
        scrub.command(&words).join(" ").chars().filter(|c| !c.is_control()).take(200).collect();
    if shown.is_empty() { "its command line is not to be seen".into() } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 111 1 0 100 0 0 10 0
   1: 0100007F:1F40 0100007F:C001 01 00000000:00000000 00:00000000 00000000     0        0 222 1 0 20 4 30 10 -1
   2: 00000000:1F41 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 333 1 0 100 0 0 10 0
";

    #[test]
    fn only_a_listener_of_that_port_counts() {
        assert_eq!(listeners(TABLE, 8000).collect::<Vec<_>>(), [111]);
        assert_eq!(listeners(TABLE, 8001).collect::<Vec<_>>(), [333]);
        assert_eq!(listeners(TABLE, 8002).count(), 0);
    }

    #[test]
    fn a_port_is_taken_while_it_is_listened_on_and_free_afterwards() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let Port::Taken(Owner::Process { pid, command }) = look(&[address]).unwrap() else {
            panic!("this process listens on {address}");
        };
        assert_eq!(pid, std::process::id().cast_signed());
        assert!(!command.is_empty());
        drop(listener);
        assert!(matches!(look(&[address]).unwrap(), Port::Free));
    }

    #[test]
    fn an_address_of_another_host_is_an_error() {
        // An address for documentation: no host has it.
        assert!(look(&["192.0.2.1:8000".parse().unwrap()]).is_err());
    }
}
