//! What is done to a fleet, drawn from the seed: what, to whom, and when by what the coordinator is doing then.

use common::seed::{Seed, Stream};

use crate::ledger::{Doing, Excuse};

/// Something that is done.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// An agent's process ends; with `power`, its host does, and the disk loses what was not synced. It is back later.
    KillAgent {
        /// Which.
        agent: usize,
        /// The host, too.
        power: bool,
        /// Until it is back.
        down_ms: u64,
    },
    /// After so many changes more an agent's disk takes nothing, as at the moment at which the power goes; then it goes.
    FuseAgent {
        /// Which.
        agent: usize,
        /// So many.
        changes: u64,
        /// Until it is back.
        down_ms: u64,
    },
    /// The coordinator's process or host ends; with `index`, its index is lost, too.
    KillCoordinator {
        /// The host, too.
        power: bool,
        /// Its index is lost.
        index: bool,
        /// Until it is back.
        down_ms: u64,
    },
    /// As [`Fault::FuseAgent`].
    FuseCoordinator {
        /// So many.
        changes: u64,
        /// Until it is back.
        down_ms: u64,
    },
    /// Nothing passes between an agent and the coordinator for a while. What was on its way comes then, or never.
    Cut {
        /// Which.
        agent: usize,
        /// For so long.
        lasts_ms: u64,
        /// What was on its way never comes.
        drops: bool,
    },
    /// A link that takes long; then nothing of what the agent says arrives any more, or nothing passes at all.
    SlowThenCut {
        /// Which.
        agent: usize,
        /// So long.
        latency_ms: u64,
        /// Before it is cut.
        slow_ms: u64,
        /// While it is cut.
        cut_ms: u64,
        /// Only what the agent says is lost.
        one_way: bool,
    },
    /// The coordinator's disk takes very long, and meanwhile a connection breaks: what is on its way is sent again.
    SlowStoreAndCut {
        /// Which.
        agent: usize,
        /// For each group of traces.
        each_ms: u64,
        /// For so long.
        lasts_ms: u64,
    },
    /// A link that takes long for a while.
    SlowLink {
        /// Which.
        agent: usize,
        /// So long.
        latency_ms: u64,
        /// For so long.
        lasts_ms: u64,
    },
    /// The coordinator's disk takes long for a while.
    SlowStore {
        /// For each group of traces.
        each_ms: u64,
        /// For so long.
        lasts_ms: u64,
    },
    /// A disk is full for a while.
    FullSpool {
        /// Which.
        agent: usize,
        /// For so long.
        lasts_ms: u64,
    },
    /// The same of the coordinator.
    FullStore {
        /// For so long.
        lasts_ms: u64,
    },
    /// A wall clock jumps.
    StepWall {
        /// 0 is the coordinator's.
        host: usize,
        /// Forward, or back.
        by_s: i64,
    },
}

impl Fault {
    /// A name for the table.
    pub fn name(&self) -> &'static str {
        match self {
            Self::KillAgent { power: false, .. } => "kill -9 of an agent",
            Self::KillAgent { power: true, .. } => "power loss of an agent's host",
            Self::FuseAgent { .. } => "power loss of an agent's host between two writes",
            Self::KillCoordinator { power: false, index: false, .. } => "kill -9 of the coordinator",
            Self::KillCoordinator { power: true, index: false, .. } => "power loss of the coordinator's host",
            Self::KillCoordinator { index: true, .. } => "kill -9 of the coordinator, index lost",
            Self::FuseCoordinator { .. } => "power loss of the coordinator's host between two writes",
            Self::Cut { lasts_ms, .. } if *lasts_ms < 15_000 => "cut link, shorter than the lease",
            Self::Cut { .. } => "cut link, longer than the lease",
            Self::SlowThenCut { .. } => "slow link, then cut",
            Self::SlowLink { .. } => "slow link",
            Self::SlowStoreAndCut { .. } => "slow disk of the coordinator, and a broken connection",
            Self::SlowStore { .. } => "slow disk of the coordinator",
            Self::FullSpool { .. } => "full disk of an agent",
            Self::FullStore { .. } => "full disk of the coordinator",
            Self::StepWall { .. } => "wall clock steps",
        }
    }

    /// What may follow from it, and for how long after it was done: milliseconds. Of a disk that burns only when it does.
    pub fn excuses(&self) -> Vec<(Excuse, u64)> {
        match *self {
            Self::KillAgent { down_ms, .. } => vec![(Excuse::Lost, down_ms)],
            Self::KillCoordinator { down_ms, .. } => vec![(Excuse::Lost, down_ms), (Excuse::Late, down_ms)],
            // A connection that is dead is noticed, and made anew, within nine seconds.
            Self::Cut { lasts_ms, .. } if lasts_ms < 5_000 => Vec::new(),
            Self::Cut { lasts_ms, .. } => vec![(Excuse::Lost, lasts_ms)],
            Self::SlowThenCut { slow_ms, cut_ms, .. } => vec![(Excuse::Lost, slow_ms + cut_ms)],
            Self::SlowLink { lasts_ms, .. } => vec![(Excuse::Lost, lasts_ms)],
            Self::SlowStore { each_ms, lasts_ms } => vec![(Excuse::Late, lasts_ms + each_ms)],
            Self::SlowStoreAndCut { each_ms, lasts_ms, .. } => vec![(Excuse::Late, lasts_ms + each_ms)],
            Self::FullSpool { lasts_ms, .. } => vec![(Excuse::Lossy, lasts_ms)],
            Self::FullStore { lasts_ms } => vec![(Excuse::Late, lasts_ms)],
            Self::FuseAgent { .. } | Self::FuseCoordinator { .. } | Self::StepWall { .. } => Vec::new(),
        }
    }

    /// Whether what follows from it follows for everybody.
    pub fn is_of_all(&self) -> bool {
        self.agent().is_none() || matches!(self, Self::SlowStoreAndCut { .. })
    }

    /// The agent that it happens to.
    pub fn agent(&self) -> Option<usize> {
        match self {
            Self::KillAgent { agent, .. }
            | Self::FuseAgent { agent, .. }
            | Self::Cut { agent, .. }
            | Self::SlowThenCut { agent, .. }
            | Self::SlowLink { agent, .. }
            | Self::SlowStoreAndCut { agent, .. }
            | Self::FullSpool { agent, .. } => Some(*agent),
            _ => None,
        }
    }
}

/// A fault and its moment: so long after the coordinator is doing this for the first time.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// What it waits for.
    pub doing: Doing,
    /// And then.
    pub after_ms: u64,
    /// What is done.
    pub fault: Fault,
}

/// So many agents, and what is done.
pub fn draw(seed: Seed) -> (usize, Vec<Planned>) {
    let mut random = seed.stream("faults");
    let agents = 3 + random.below(3) as usize;
    let count = 1 + random.below(4);
    let mut faults: Vec<Planned> = (0..count).map(|_| planned(&mut random, agents)).collect();
    // Nothing is collected unless a coordinator was lost.
    if faults.iter().any(|planned| planned.doing == Doing::Collecting) {
        let fault = Fault::KillCoordinator { power: random.below(2) > 0, index: false, down_ms: 2_000 };
        faults.push(Planned { doing: Doing::Running, after_ms: random.below(20_000), fault });
    }
    (agents, faults)
}

fn planned(random: &mut Stream, agents: usize) -> Planned {
    let fault = fault(random, agents);
    let (doing, most_ms) = match random.below(10) {
        // It takes half a trial until somebody is taken for lost.
        _ if matches!(fault, Fault::SlowThenCut { .. }) => (Doing::Running, 6_000),
        // What is on its way for long has to be there.
        _ if matches!(fault, Fault::SlowStoreAndCut { .. }) => (Doing::Running, 12_000),
        0 => (Doing::Joining, 800),
        1 => (Doing::Preparing, 1_500),
        2 => (Doing::Armed, 1_500),
        3 => (Doing::Closing, 2_500),
        4 => (Doing::Collecting, 400),
        _ => (Doing::Running, 60_000),
    };
    Planned { doing, after_ms: random.below(most_ms), fault }
}

/// Longer than any run.
pub const NEVER_MS: u64 = 100_000_000;

fn fault(random: &mut Stream, agents: usize) -> Fault {
    let agent = random.below(agents as u64) as usize;
    // One agent in three to five may stay away.
    let stays_away = agent == 0 && random.below(2) == 0;
    let down_ms = if stays_away { NEVER_MS } else { 200 + random.below(25_000) };
    match random.below(18) {
        0 | 1 => Fault::KillAgent { agent, power: false, down_ms },
        2 => Fault::KillAgent { agent, power: true, down_ms },
        3 => Fault::FuseAgent { agent, changes: random.below(40), down_ms },
        4 => Fault::KillCoordinator { power: false, index: false, down_ms: 200 + random.below(30_000) },
        5 => Fault::KillCoordinator { power: true, index: false, down_ms: 200 + random.below(25_000) },
        6 => Fault::KillCoordinator {
            power: random.below(2) > 0,
            index: true,
            down_ms: 200 + random.below(25_000),
        },
        7 | 8 => Fault::FuseCoordinator { changes: random.below(60), down_ms: 200 + random.below(25_000) },
        9 => Fault::Cut { agent, lasts_ms: 500 + random.below(13_000), drops: random.below(3) == 0 },
        10 => Fault::Cut { agent, lasts_ms: 16_000 + random.below(25_000), drops: random.below(3) == 0 },
        11 | 16 => Fault::SlowThenCut {
            agent,
            latency_ms: 1_800 + random.below(1_100),
            slow_ms: 4_000 + random.below(5_000),
            cut_ms: 16_000 + random.below(20_000),
            one_way: random.below(4) > 0,
        },
        12 => Fault::SlowLink {
            agent,
            latency_ms: 200 + random.below(2_500),
            lasts_ms: 1_000 + random.below(30_000),
        },
        13 => Fault::SlowStore { each_ms: 50 + random.below(4_000), lasts_ms: 2_000 + random.below(30_000) },
        15 => Fault::SlowStoreAndCut {
            agent,
            each_ms: 20_000 + random.below(20_000),
            lasts_ms: 20_000 + random.below(20_000),
        },
        14 if random.below(2) == 0 => Fault::FullSpool { agent, lasts_ms: 500 + random.below(20_000) },
        14 => Fault::FullStore { lasts_ms: 500 + random.below(20_000) },
        _ => Fault::StepWall {
            host: random.below(agents as u64 + 1) as usize,
            by_s: random.below(400_000) as i64 - 200_000,
        },
    }
}
