//! Which GPUs the engine uses, and who else is on them.
//!
//! Joules per token are the engine's GPUs' joules, so it must be known which those are, and that nobody else heated
//! them. What decides is who has memory on a GPU, compared with the engine's process tree; never a number in
//! `CUDA_VISIBLE_DEVICES`, because CUDA counts GPUs in an order of its own.
//!
//! In a container the driver tells process ids of the host, which mean nothing here: then nothing is said of foreigners,
//! and the GPUs are those that CUDA shows the engine ([`Users::told`]). It must never call a process foreign that may be
//! the engine's. Guarded by the tests below and by `tests/gpu/foreign.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;

use common::ids::Nanos;
use common::telemetry::{Event, EventKind, GpuProcesses};

use super::Gpus;

/// The engine's processes now, the one that began it first; none when it is not known who the engine is.
pub type EngineProcesses = Arc<dyn Fn() -> Option<Vec<u32>> + Send + Sync>;

/// How long an answer is good for that explains everything: walking all of `/proc` costs something.
const FRESH: Nanos = Nanos::from_secs(10);

/// Who uses which GPU.
#[derive(Debug, Default)]
pub struct Users {
    /// The driver's process ids are those of this process's `/proc`.
    same_numbers: bool,
    /// The engine's, when last asked.
    engine: Option<BTreeSet<u32>>,
    asked: Option<Nanos>,
    /// The process that began the engine, and the one for which CUDA was asked.
    root: Option<u32>,
    cuda_asked: Option<u32>,
    gpus: Vec<Use>,
    told: Option<Gpus>,
}

#[derive(Debug, Default, Clone)]
struct Use {
    by_engine: Option<bool>,
    foreign: BTreeSet<u32>,
    /// Foreigners that an event has told of.
    told: BTreeSet<u32>,
}

impl Users {
    /// Nothing known yet. `same_numbers`: see [`same_numbers`].
    #[must_use]
    pub fn new(same_numbers: bool) -> Self {
        Self { same_numbers, ..Self::default() }
    }

    /// Whether the engine's processes must be asked for again to explain these.
    #[must_use]
    pub fn must_ask(&self, now: Nanos, processes: &[GpuProcesses]) -> bool {
        let explained = |pid: &u32| {
            let foreign = self.gpus.iter().any(|gpu| gpu.foreign.contains(pid));
            foreign || self.engine.as_ref().is_some_and(|engine| engine.contains(pid))
        };
        let fresh = self.asked.is_some_and(|asked| now - asked < FRESH);
        !fresh || !processes.iter().flat_map(|gpu| &gpu.processes).all(|(pid, _)| explained(pid))
    }

    /// The engine's processes, asked for after those of the GPUs: one that began meanwhile is among them.
    pub fn engine(&mut self, now: Nanos, pids: Option<Vec<u32>>) {
        self.asked = Some(now);
        self.root = pids.as_ref().and_then(|pids| pids.first().copied());
        // An engine without a process is none; what it used stays known until there is another.
        let pids: Option<BTreeSet<u32>> = pids.map(BTreeSet::from_iter).filter(|pids| !pids.is_empty());
        if let (Some(before), Some(pids)) = (&self.engine, &pids)
            && before.is_disjoint(pids)
        {
            self.gpus.iter_mut().for_each(|gpu| gpu.by_engine = None);
        }
        self.engine = pids.or_else(|| self.engine.take().map(|_| BTreeSet::new()));
    }

    /// The process that began the engine, when CUDA must be asked which GPUs it shows it: once for each engine, and only
    /// where processes cannot be compared.
    pub fn must_ask_cuda(&mut self) -> Option<u32> {
        let root = self.root.filter(|root| !self.same_numbers && self.cuda_asked != Some(*root))?;
        self.cuda_asked = Some(root);
        Some(root)
    }

    /// Everything that is known of an engine is of another one.
    pub fn forget(&mut self) {
        *self = Self::new(self.same_numbers);
    }

    /// The GPUs that CUDA shows the engine, for where processes cannot be compared; none when it does not say.
    pub fn told(&mut self, gpus: Option<Gpus>) {
        self.told = gpus;
    }

    /// Says of each process whose it is. `name` is a process's, none when there is no such process.
    pub fn see(
        &mut self,
        processes: &mut [GpuProcesses],
        name: impl Fn(u32) -> Option<String>,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        let none = BTreeSet::new();
        let engine = self.engine.as_ref().unwrap_or(&none);
        let listed = || processes.iter().flat_map(|gpu| &gpu.processes);
        // Until the engine has memory somewhere, what is taken for it may be a proxy in front of it: then the engine's own
        // processes would be called foreign. In a container it is the sign that numbers mean something.
        let somewhere = self.gpus.iter().any(|gpu| gpu.by_engine == Some(true))
            || listed().any(|(pid, _)| engine.contains(pid));
        let known = !engine.is_empty() && somewhere;
        for gpu in processes {
            let place = usize::from(gpu.gpu);
            if self.gpus.len() <= place {
                self.gpus.resize(place + 1, Use::default());
            }
            let used = &mut self.gpus[place];
            if !known {
                gpu.foreign = None;
                continue;
            }
            let (own, others): (Vec<u32>, Vec<u32>) =
                gpu.processes.iter().map(|(pid, _)| *pid).partition(|pid| engine.contains(pid));
            used.by_engine = Some(used.by_engine == Some(true) || !own.is_empty());
            let is_foreign = |pid: &u32| match name(*pid) {
                // It has ended meanwhile; in a container it cannot be seen.
                None => !self.same_numbers,
                // Its clients are there with names of their own.
                Some(name) => !name.starts_with("nvidia-cuda-mps"),
            };
            used.foreign = others.into_iter().filter(is_foreign).collect();
            gpu.foreign = Some(used.foreign.iter().copied().collect());
            if used.by_engine == Some(true) && used.foreign != used.told {
                used.told = used.foreign.clone();
                events.push(told(gpu, &used.foreign, &name));
            }
        }
        events
    }

    /// Whether the engine uses a GPU; none when that cannot be known.
    #[must_use]
    pub fn used(&self, gpu: u8) -> Option<bool> {
        let by_processes = self.gpus.get(usize::from(gpu)).and_then(|gpu| gpu.by_engine);
        by_processes.or_else(|| self.told.map(|told| told.has(gpu)))
    }
}

fn told(gpu: &GpuProcesses, foreign: &BTreeSet<u32>, name: impl Fn(u32) -> Option<String>) -> Event {
    let message = if foreign.is_empty() {
        "only the engine is on its GPU now".to_owned()
    } else {
        let one = |&pid: &u32| name(pid).map_or_else(|| pid.to_string(), |name| format!("{pid} ({name})"));
        let all: Vec<String> = foreign.iter().map(one).collect();
        format!(
            "not the engine's, and on its GPU: {}; energy and memory are of all of them, so end them or choose another GPU",
            all.join(", ")
        )
    };
    Event { at: gpu.at, gpu: Some(gpu.gpu), kind: EventKind::ForeignProcess, code: None, message }
}

/// The number of the first process namespace: the kernel's own constant.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// Whether the driver's process ids can be compared with those of `/proc` here: not from inside a container.
#[must_use]
pub fn same_numbers() -> bool {
    std::fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.as_os_str() == FIRST_NAMESPACE)
}

/// What a process is called.
#[must_use]
pub fn name(pid: u32) -> Option<String> {
    Some(std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(gpu: u8, pids: &[u32]) -> GpuProcesses {
        GpuProcesses {
            gpu,
            processes: pids.iter().map(|&pid| (pid, None)).collect(),
            ..GpuProcesses::default()
        }
    }

    fn see(users: &mut Users, mut processes: Vec<GpuProcesses>) -> (Vec<Option<Vec<u32>>>, usize) {
        let name = |pid: u32| {
            (pid < 900).then(|| if pid == 88 { "nvidia-cuda-mps-server" } else { "python" }.to_owned())
        };
        let events = users.see(&mut processes, name);
        (processes.into_iter().map(|gpu| gpu.foreign).collect(), events.len())
    }

    #[test]
    fn foreigners_are_told_once_for_each_change_and_only_on_the_engine_s_gpus() {
        let mut users = Users::new(true);
        users.engine(Nanos(0), Some(vec![10, 11]));
        let (foreign, events) = see(&mut users, vec![gpu(0, &[11]), gpu(1, &[50])]);
        assert_eq!((foreign, events), (vec![Some(vec![]), Some(vec![50])], 0));
        assert_eq!((users.used(0), users.used(1)), (Some(true), Some(false)));
        assert_eq!(see(&mut users, vec![gpu(0, &[11, 50, 51])]), (vec![Some(vec![50, 51])], 1));
        assert_eq!(see(&mut users, vec![gpu(0, &[11, 50, 51])]).1, 0);
        assert_eq!(see(&mut users, vec![gpu(0, &[11, 51])]).1, 1);
        assert_eq!(see(&mut users, vec![gpu(0, &[11])]).1, 1);
        assert_eq!(
            see(&mut users, vec![gpu(0, &[11, 88, 999])]),
            (vec![Some(vec![])], 0),
            "MPS, and one that has ended"
        );
    }

    #[test]
    fn without_an_engine_nobody_is_foreign() {
        let mut users = Users::new(true);
        assert_eq!(see(&mut users, vec![gpu(0, &[50])]), (vec![None], 0));
        users.engine(Nanos(0), None);
        assert_eq!((see(&mut users, vec![gpu(0, &[50])]), users.used(0)), ((vec![None], 0), None));
        users.engine(Nanos(0), Some(vec![50]));
        see(&mut users, vec![gpu(0, &[50])]);
        users.engine(Nanos(0), Some(vec![]));
        assert_eq!(see(&mut users, vec![gpu(0, &[60])]), (vec![None], 0));
        assert_eq!(users.used(0), Some(true), "it has ended, and this was its GPU");
        users.engine(Nanos(0), Some(vec![70]));
        see(&mut users, vec![gpu(0, &[])]);
        users.engine(Nanos(0), Some(vec![80]));
        see(&mut users, vec![gpu(0, &[])]);
        assert_eq!(users.used(0), None, "another engine, which is nowhere yet");
    }

    #[test]
    fn what_is_on_no_gpu_may_be_a_proxy_and_rules_nothing_out() {
        let mut users = Users::new(true);
        users.engine(Nanos(0), Some(vec![10]));
        assert_eq!(see(&mut users, vec![gpu(0, &[50]), gpu(1, &[])]), (vec![None, None], 0));
        assert_eq!((users.used(0), users.used(1)), (None, None));
        // It was starting.
        assert_eq!(see(&mut users, vec![gpu(0, &[50]), gpu(1, &[10])]).0, [Some(vec![50]), Some(vec![])]);
        assert_eq!((users.used(0), users.used(1)), (Some(false), Some(true)));
        users.forget();
        assert_eq!((users.used(0), users.used(1)), (None, None));
    }

    #[test]
    fn in_a_container_a_number_proves_something_only_once_one_matches() {
        let mut users = Users::new(false);
        users.engine(Nanos(0), Some(vec![10]));
        users.told(Some(Gpus::NONE.others()));
        assert_eq!(see(&mut users, vec![gpu(0, &[40_010])]), (vec![None], 0));
        assert_eq!(users.used(0), Some(true), "as CUDA shows it");
        assert_eq!(
            see(&mut users, vec![gpu(0, &[10]), gpu(1, &[40_011])]).0,
            [Some(vec![]), Some(vec![40_011])]
        );
    }

    #[test]
    fn all_of_proc_is_walked_only_for_somebody_new() {
        let mut users = Users::new(true);
        let seen = [gpu(0, &[10, 50])];
        assert!(users.must_ask(Nanos(0), &seen));
        users.engine(Nanos(0), Some(vec![10]));
        see(&mut users, seen.to_vec());
        assert!(!users.must_ask(Nanos::from_secs(1), &seen));
        assert!(users.must_ask(Nanos::from_secs(1), &[gpu(0, &[10, 50, 51])]));
        assert!(users.must_ask(FRESH, &seen));
    }
}
