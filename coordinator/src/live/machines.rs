//! GPUs, hosts and the engine as they were recorded last, and what of it belongs to which second.
//!
//! Records carry their agent's clock. They are placed by the offset that the same agent recorded last; one that never
//! recorded any is not placed on the time line. It must never add up GPUs that the engine does not use.

use std::collections::BTreeMap;

use common::ids::{AgentName, Nanos};
use common::telemetry::{ClockSample, EngineSample, GpuInfo, GpuSample, HostSample, PowerSample, Record};
use serde::Serialize;

use super::agents::Agents;
use super::seconds::{GpuKey, Seconds};
use crate::telemetry::on_coordinator;

/// GPUs that are shown: those of 32 hosts with 8 each.
const MOST_GPUS: usize = 256;
/// Characters of a GPU's name.
const LONGEST_NAME: usize = 64;
/// Agents whose records are placed: as many as have a row.
const MOST_HOSTS: usize = super::agents::MOST_AGENTS;

/// A GPU as it was seen last. What was not recorded is none.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct GpuNow {
    /// The agent that reads it.
    pub agent: String,
    /// The driver's number for it.
    pub index: u32,
    /// Its product name.
    pub name: String,
    /// The engine uses it; none where nobody knows.
    pub used_by_engine: Option<bool>,
    /// Watts, as its sensor says.
    pub power_watts: Option<f64>,
    /// The power limit that holds, watts.
    pub limit_watts: Option<f64>,
    /// Bytes in use.
    pub memory_used_bytes: Option<u64>,
    /// Bytes in all.
    pub memory_total_bytes: Option<u64>,
    /// Percent.
    pub utilisation_percent: Option<u32>,
    /// Degrees Celsius.
    pub temperature_c: Option<u32>,
}

/// The engine by its own metrics, as they were read last.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct EngineNow {
    /// Requests that are worked on.
    pub running: Option<f64>,
    /// Requests that wait.
    pub waiting: Option<f64>,
    /// Share of the KV cache in use, 0 to 1.
    pub kv_cache_share: Option<f64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct HostBefore {
    clock: Option<ClockSample>,
    sample: Option<HostSample>,
}

/// All of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Machines {
    gpus: BTreeMap<GpuKey, GpuNow>,
    energy: BTreeMap<GpuKey, PowerSample>,
    hosts: BTreeMap<String, HostBefore>,
    /// None where it was never scraped.
    pub engine: Option<EngineNow>,
}

impl Machines {
    /// GPUs by agent and position.
    pub(super) fn gpus(&self) -> impl Iterator<Item = &GpuNow> {
        self.gpus.values()
    }

    /// Takes a record of an agent; `start` is the live view's, on the coordinator's clock. Gives what a person should
    /// be warned of.
    pub(super) fn record(
        &mut self,
        agent: &AgentName,
        record: &Record,
        start: Nanos,
        (seconds, agents): (&mut Seconds, &mut Agents),
    ) -> Option<String> {
        if self.hosts.len() >= MOST_HOSTS && !self.hosts.contains_key(agent.as_str()) {
            return None;
        }
        let host = self.hosts.entry(agent.to_string()).or_default();
        let placed = record.at().zip(host.clock.as_ref()).map(|(at, clock)| on_coordinator(at, clock));
        let at = placed.filter(|at| *at >= start).map(|at| at - start);
        match record {
            Record::Clock(clock) => {
                host.clock = Some(*clock);
                if let Some(row) = agents.row(agent) {
                    row.clock_bound_seconds = Some(clock.bound_ns as f64 / 1e9);
                }
            }
            Record::Host(sample) => {
                let before = host.sample.replace(*sample);
                if let (Some(before), Some(row)) = (before, agents.row(agent)) {
                    row.cpu_cores = cores(&before, sample).or(row.cpu_cores);
                    row.host_cpu_share = busy(&before, sample).or(row.host_cpu_share);
                }
            }
            Record::Inventory(gpus) => self.inventory(agent, gpus),
            Record::Power(sample) => self.power(agent, sample, at, seconds),
            Record::Gpu(sample) => self.gpu(agent, sample, at, seconds),
            Record::Engine(sample) => self.engine(sample, at, seconds),
            Record::Event(event) if !event.kind.is_absence() => {
                use common::telemetry::EventKind::{Back, Metrics, Running};
                let harmless = matches!(event.kind, Running | Back | Metrics);
                return (!harmless)
                    .then(|| format!("agent {agent}: {}: {}", event.kind.name(), event.message));
            }
            Record::Event(_) | Record::Processes(_) => {}
        }
        None
    }

    fn inventory(&mut self, agent: &AgentName, gpus: &[GpuInfo]) {
        self.gpus.retain(|(name, _), _| name != agent.as_str());
        for (position, info) in (0u8..).zip(gpus) {
            if self.gpus.len() >= MOST_GPUS {
                return;
            }
            let gpu = GpuNow {
                agent: agent.to_string(),
                index: info.index,
                name: info.name.chars().take(LONGEST_NAME).collect(),
                used_by_engine: info.used_by_engine,
                limit_watts: info.limit_enforced_mw.map(watts),
                memory_total_bytes: info.memory_total_bytes,
                ..GpuNow::default()
            };
            self.gpus.insert((agent.to_string(), position), gpu);
        }
    }

    fn power(&mut self, agent: &AgentName, sample: &PowerSample, at: Option<Nanos>, seconds: &mut Seconds) {
        let key = (agent.to_string(), sample.gpu);
        let Some(gpu) = self.gpus.get_mut(&key) else { return };
        let before = self.energy.insert(key.clone(), *sample);
        let counted = || before.and_then(|before| drawn(&before, sample));
        let Some(power) = sample.average_mw.or(sample.instant_mw).map(watts).or_else(counted) else { return };
        gpu.power_watts = Some(power);
        if let Some(second) = at.filter(|_| gpu.used_by_engine != Some(false)).and_then(|at| seconds.at(at)) {
            second.power.entry(key).or_default().add(power);
        }
    }

    fn gpu(&mut self, agent: &AgentName, sample: &GpuSample, at: Option<Nanos>, seconds: &mut Seconds) {
        let key = (agent.to_string(), sample.gpu);
        let Some(gpu) = self.gpus.get_mut(&key) else { return };
        gpu.memory_used_bytes = sample.memory_used_bytes.or(gpu.memory_used_bytes);
        gpu.utilisation_percent = sample.utilisation_percent.or(gpu.utilisation_percent);
        gpu.temperature_c = sample.temperature_c.or(gpu.temperature_c);
        gpu.limit_watts = sample.limit_enforced_mw.map(watts).or(gpu.limit_watts);
        let used = sample.memory_used_bytes.filter(|_| gpu.used_by_engine != Some(false));
        if let Some((bytes, second)) = used.zip(at.and_then(|at| seconds.at(at))) {
            second.memory.insert(key, bytes as f64);
        }
    }

    fn engine(&mut self, sample: &EngineSample, at: Option<Nanos>, seconds: &mut Seconds) {
        let (running, waiting, kv_cache_share) = (sample.running, sample.waiting, sample.kv_cache_usage);
        self.engine = Some(EngineNow { running, waiting, kv_cache_share });
        if let Some(second) = at.and_then(|at| seconds.at(at)) {
            for (mean, value) in second.engine.iter_mut().zip([running, waiting, kv_cache_share]) {
                value.iter().for_each(|v| mean.add(*v));
            }
        }
    }
}

fn watts(milliwatts: u32) -> f64 {
    f64::from(milliwatts) / 1e3
}

/// Mean power between two looks at one energy counter, watts.
fn drawn(before: &PowerSample, now: &PowerSample) -> Option<f64> {
    let seconds = now.at.since(before.at).as_secs_f64();
    let millijoules = now.energy_mj?.checked_sub(before.energy_mj?)?;
    (seconds > 0.0 && before.epoch == now.epoch).then(|| millijoules as f64 / 1e3 / seconds)
}

/// Cores that the agent's process kept busy between two looks.
fn cores(before: &HostSample, now: &HostSample) -> Option<f64> {
    let seconds = now.at.since(before.at).as_secs_f64();
    let used = now.agent_cpu_seconds? - before.agent_cpu_seconds?;
    (seconds > 0.0 && used >= 0.0).then(|| used / seconds)
}

/// Share of the host's CPU time that was used between two looks.
fn busy(before: &HostSample, now: &HostSample) -> Option<f64> {
    let total = now.cpu_total_seconds? - before.cpu_total_seconds?;
    let used = now.cpu_busy_seconds? - before.cpu_busy_seconds?;
    (total > 0.0 && used >= 0.0).then(|| (used / total).min(1.0))
}

#[cfg(test)]
mod tests {
    use common::telemetry::{Event, EventKind};

    use super::*;

    struct Bench {
        machines: Machines,
        seconds: Seconds,
        agents: Agents,
        agent: AgentName,
    }

    impl Bench {
        fn new() -> Self {
            let agent: AgentName = "a".parse().unwrap();
            let (machines, seconds, agents) = Default::default();
            let mut bench = Self { machines, seconds, agents, agent };
            bench.says(Record::Clock(ClockSample {
                at: Nanos(0),
                offset_ns: 5_000_000_000,
                bound_ns: 2_000,
            }));
            let gpu = |used_by_engine| GpuInfo { used_by_engine, ..GpuInfo::default() };
            bench.says(Record::Inventory(vec![gpu(Some(true)), gpu(None), gpu(Some(false))]));
            bench
        }

        /// The live view began at the coordinator's second 5, which is the agent's second 0.
        fn says(&mut self, record: Record) -> Option<String> {
            let Self { machines, seconds, agents, agent } = self;
            machines.record(agent, &record, Nanos::from_secs(5), (seconds, agents))
        }
    }

    #[test]
    fn the_power_of_the_engines_gpus_is_placed_by_the_agents_clock() {
        let mut bench = Bench::new();
        for (gpu, milliwatts) in [(0, 300_000), (0, 500_000), (1, 100_000), (2, 700_000)] {
            let at = Nanos::from_millis(900);
            bench.says(Record::Power(PowerSample {
                gpu,
                at,
                average_mw: Some(milliwatts),
                ..Default::default()
            }));
        }
        let (_, second) = bench.seconds.close(Nanos::from_secs(9)).unwrap();
        let sum: f64 = second.power.values().filter_map(|m| m.get()).sum();
        assert_eq!(sum, 500.0, "a mean of one, and another that may be the engine's");
        assert_eq!(bench.machines.gpus().nth(2).unwrap().power_watts, Some(700.0));
    }

    #[test]
    fn without_a_power_sensor_the_energy_counter_says_it() {
        let mut bench = Bench::new();
        for (millis, energy) in [(0, 1_000), (500, 101_000), (1_000, 50)] {
            let (at, energy_mj) = (Nanos::from_millis(millis), Some(energy));
            bench.says(Record::Power(PowerSample { at, energy_mj, ..Default::default() }));
        }
        assert_eq!(bench.machines.gpus().next().unwrap().power_watts, Some(200.0), "and not of a step back");
    }

    #[test]
    fn cores_are_the_rise_of_the_agents_cpu_time() {
        let mut bench = Bench::new();
        for (second, cpu) in [(1, 10.0), (3, 11.0)] {
            let at = Nanos::from_secs(second);
            bench.says(Record::Host(HostSample { at, agent_cpu_seconds: Some(cpu), ..Default::default() }));
        }
        let row = bench.agents.rows().next().unwrap();
        assert_eq!((row.cpu_cores, row.host_cpu_share), (Some(0.5), None));
        assert_eq!(row.clock_bound_seconds, Some(2e-6));
    }

    #[test]
    fn what_harms_is_told_and_what_is_absent_is_not() {
        let mut bench = Bench::new();
        let event =
            |kind| Record::Event(Event { at: Nanos(0), gpu: None, kind, code: None, message: "m".into() });
        assert_eq!(bench.says(event(EventKind::Xid)).as_deref(), Some("agent a: xid: m"));
        assert_eq!(bench.says(event(EventKind::SourceAbsent)), None);
        assert_eq!(bench.says(event(EventKind::Running)), None);
    }
}
