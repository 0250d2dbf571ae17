//! The network: a switch, and a host for each part of the fleet, joined by virtual cables.
//!
//! Each host is a network namespace with one address; the worker itself stands at the switch and reaches all of them.
//! Where a link is to be slow or treacherous, see `link`.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::process::Command;

use crate::stage::run;

/// How many agents there are, each on a host of its own.
pub const AGENTS: usize = 4;

/// A host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Host {
    /// Of the coordinator.
    Coordinator,
    /// Of the engine.
    Engine,
    /// Of an agent, counted from 1.
    Agent(usize),
}

impl Host {
    /// Its name, which is that of its agent, too.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Coordinator => "coordinator".into(),
            Self::Engine => "engine".into(),
            Self::Agent(n) => format!("agent-{n}"),
        }
    }

    fn ip(self) -> Ipv4Addr {
        let last = match self {
            Self::Coordinator => 2,
            Self::Engine => 3,
            Self::Agent(n) => 10 + n as u8,
        };
        Ipv4Addr::new(10, 77, 0, last)
    }

    /// A port of it.
    #[must_use]
    pub fn at(self, port: u16) -> SocketAddr {
        SocketAddrV4::new(self.ip(), port).into()
    }

    /// A program that is to be started on it.
    #[must_use]
    pub fn command(self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name()]).arg(program);
        command
    }

    /// Pulls its cable.
    pub fn cut(self) {
        run("ip", &["link", "set", &self.cable(), "down"]);
    }

    /// Plugs it in again.
    pub fn mend(self) {
        run("ip", &["link", "set", &self.cable(), "up"]);
    }

    /// Leaves it these local ports.
    pub fn ports(self, range: &str) {
        let setting = format!("net.ipv4.ip_local_port_range={range}");
        run("ip", &["netns", "exec", &self.name(), "sysctl", "-qw", &setting]);
    }

    fn cable(self) -> String {
        format!("to-{}", self.name())
    }
}

/// The local ports of a host that has enough.
pub const MANY_PORTS: &str = "32768 60999";

/// The worker's own address, at the switch.
pub const HUB: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

/// Every host.
pub fn hosts() -> impl Iterator<Item = Host> {
    [Host::Coordinator, Host::Engine].into_iter().chain((1..=AGENTS).map(Host::Agent))
}

/// Makes it.
pub fn lay() {
    run("ip", &["link", "set", "lo", "up"]);
    run("ip", &["link", "add", "switch", "type", "bridge"]);
    run("ip", &["addr", "add", &format!("{HUB}/24"), "dev", "switch"]);
    run("ip", &["link", "set", "switch", "up"]);
    for host in hosts() {
        let (name, cable, address) = (host.name(), host.cable(), format!("{}/24", host.ip()));
        run("ip", &["netns", "add", &name]);
        run("ip", &["link", "add", &cable, "type", "veth", "peer", "name", "eth0", "netns", &name]);
        run("ip", &["link", "set", &cable, "master", "switch", "up"]);
        run("ip", &["-n", &name, "addr", "add", &address, "dev", "eth0"]);
        run("ip", &["-n", &name, "link", "set", "eth0", "up"]);
        run("ip", &["-n", &name, "link", "set", "lo", "up"]);
    }
}
