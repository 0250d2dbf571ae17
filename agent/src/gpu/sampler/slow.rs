//! Opens the source, reads everything but energy and power, and looks for GPUs that were lost.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::ids::Nanos;
use common::telemetry::Record;

use super::super::engine;
use super::super::pace::Ticks;
use super::super::{Batch, GpuSource, Signals, SourceError};
use super::{Config, Shared, cuda, fast, faults, lock, state};

/// Between two looks at processes and memory errors.
const SECOND: Nanos = Nanos::from_secs(1);

/// Between two looks at what somebody would have to change.
const SELDOM: Nanos = Nanos::from_secs(10);

/// Opens the source, however often that takes, and reads until the end.
pub(super) fn run(shared: &Arc<Shared>, config: Config) {
    let mut source = config.source;
    let mut told = None;
    while let Err(error) = open(shared, &mut *source) {
        if told.as_ref() != Some(&error) {
            shared.tell(None, error.kind(), error.to_string());
            told = Some(error);
        }
        if shared.threads.until(&*shared.clock, shared.now() + config.retry) {
            return;
        }
        // What it answers is asked for in the next turn.
        shared.beats.opening(Some(shared.now()));
        let _ = source.reopen();
    }
    let (interval, looking, fast) = (config.interval, config.looking, source.another());
    shared.spawn("gpu-fast", move |shared| fast::run(shared, fast, interval, looking));
    let waiting = source.another();
    shared.spawn("gpu-faults", move |shared| faults::run(shared, waiting));
    read(shared, source, config.slow);
}

/// Takes the first inventory in; an error when nothing can be read of any GPU.
fn open(shared: &Shared, source: &mut dyn GpuSource) -> Result<(), SourceError> {
    shared.beats.opening(Some(shared.now()));
    let found = source.inventory();
    shared.beats.opening(None);
    shared.openings.fetch_add(1, Ordering::Relaxed);
    let found = found?;
    shared.know(&found);
    if let Some(error) = state(&found) {
        return Err(error);
    }
    for (gpu, error) in &found.trouble {
        if let SourceError::Lost(_) = error {
            let mut events = Vec::new();
            lock(&shared.fleet).lose(shared.now(), *gpu, error, &mut events);
            shared.tell_all(events);
        } else {
            shared.tell(Some(*gpu), error.kind(), error.to_string());
        }
    }
    Ok(())
}

fn read(shared: &Arc<Shared>, mut source: Box<dyn GpuSource>, every: Nanos) {
    let mut batch = Batch::default();
    let mut ticks = Ticks::new(shared.now(), every);
    let (mut second, mut seldom) = (Nanos::ZERO, Nanos::ZERO);
    while !shared.threads.until(&*shared.clock, ticks.next(shared.now())) {
        let now = shared.now();
        shared.beats.slow(now);
        if lock(&shared.fleet).due(now) {
            look(shared, &mut *source);
        }
        let mut wanted = Signals::MOVING;
        if now >= seldom {
            wanted = wanted.and(Signals::LIMITS);
            seldom = now + SELDOM;
        }
        let also = now >= second;
        if also {
            wanted = wanted.and(Signals::ECC);
            second = now + SECOND;
        }
        let lost = lock(&shared.fleet).lost();
        batch.clear();
        if source.slow(lost, wanted, &mut batch).is_ok() {
            let heard = batch.samples.iter().map(|sample| sample.gpu);
            let mut events = Vec::new();
            let now = shared.now();
            lock(&shared.fleet).answers(now, heard, batch.asked, &batch.failures, &mut events);
            shared.tell_all(events);
            shared.queue.push(batch.samples.drain(..).map(Record::Gpu));
        }
        if also {
            processes(shared, &mut *source);
        }
    }
}

/// Who is on the GPUs, and whose they are.
fn processes(shared: &Arc<Shared>, source: &mut dyn GpuSource) {
    let lost = lock(&shared.fleet).lost();
    let mut batch = Batch::default();
    if source.processes(lost, &mut batch).is_err() {
        return;
    }
    let now = shared.now();
    let mut events = Vec::new();
    let heard = batch.samples.iter().map(|sample| sample.gpu);
    lock(&shared.fleet).answers(now, heard, batch.asked, &batch.failures, &mut events);
    let mut users = lock(&shared.users);
    if users.must_ask(now, &batch.samples) {
        users.engine(now, (shared.engine)());
    }
    events.extend(users.see(&mut batch.samples, engine::name));
    let used: Vec<Option<bool>> =
        (0..=u8::MAX).take(lock(&shared.inventory).len()).map(|gpu| users.used(gpu)).collect();
    let ask_cuda = users.must_ask_cuda();
    drop(users);
    shared.amend(|gpu, info| info.used_by_engine = used.get(usize::from(gpu)).copied().flatten());
    shared.tell_all(events);
    shared.queue.push(batch.samples.into_iter().map(Record::Processes));
    if let Some(engine) = ask_cuda {
        shared.spawn("gpu-cuda", move |shared| cuda::ask(shared, engine));
    }
}

/// Opens the library again for GPUs that were lost, and asks whether they answer.
fn look(shared: &Shared, source: &mut dyn GpuSource) {
    let lost = {
        let mut fleet = lock(&shared.fleet);
        fleet.tried(shared.now());
        fleet.lost()
    };
    // Their loss was told; that they are not back needs no word.
    let Ok(found) = source.reopen().and_then(|()| source.inventory()) else { return };
    let mut batch = Batch::default();
    if source.power(lost.others(), &mut batch).is_err() {
        return;
    }
    let troubled = |gpu: u8| found.trouble.iter().any(|(other, _)| *other == gpu);
    let mut events = Vec::new();
    let now = shared.now();
    let back: Vec<u8> = (0..=u8::MAX)
        .take(found.gpus.len())
        .filter(|&gpu| lost.has(gpu) && !troubled(gpu))
        .filter(|&gpu| batch.failures.iter().all(|failure| failure.gpu != gpu || !gone(&failure.error)))
        .collect();
    if !back.is_empty() || found.gpus.len() > lock(&shared.inventory).len() {
        shared.know(&found);
    }
    for gpu in back {
        lock(&shared.fleet).back(now, gpu, &mut events);
    }
    shared.tell_all(events);
}

fn gone(error: &SourceError) -> bool {
    matches!(error, SourceError::Lost(_) | SourceError::Unknown(_))
}
