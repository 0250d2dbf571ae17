//! Telemetry of a run: a file for each agent process, beside the segments.
//!
//! Frames are appended byte for byte as they came. Nothing that is measured depends on them, so they are written at once
//! and synced when the run is closed: a coordinator that is killed loses none that it has acknowledged, a host that goes
//! down may lose what its kernel had not written. It must never hold up a trace.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use common::disk::{Disk, DiskFile};
use common::ids::{AgentName, Incarnation, Seq};
use common::telemetry::series::{self, FILE_MAGIC, Frames};

use super::error::{At, StoreError};
use super::run::RunStore;
use super::series::AgentSeries;

/// The folder within the run's. Instants of two boots of the coordinator's host stand on two axes: what is recorded after
/// the first restart is in a folder of its own, and so on.
fn folder(run_dir: &Path, boot: usize) -> PathBuf {
    match boot {
        0 => run_dir.join("telemetry"),
        n => run_dir.join(format!("telemetry-{n}")),
    }
}

/// Takes telemetry. Clones share it.
#[derive(Clone)]
pub struct TelemetrySink(Arc<Mutex<Files>>);

struct Files {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    open: BTreeMap<(AgentName, Incarnation), Open>,
}

struct Open {
    path: PathBuf,
    file: Box<dyn DiskFile>,
    /// Records below it are kept.
    next: Seq,
    /// Something was passed over, and that was said.
    refused: bool,
}

impl TelemetrySink {
    pub(super) fn new(disk: Arc<dyn Disk>, folder: PathBuf) -> Result<Self, StoreError> {
        disk.create_dir_all(&folder).at(&folder)?;
        Ok(Self(Arc::new(Mutex::new(Files { disk, folder, open: BTreeMap::new() }))))
    }

    /// Keeps frames of one agent process; what is kept already is passed over, and so is what is no frame of it. Says
    /// below which number records are kept.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn append(
        &self,
        agent: &AgentName,
        incarnation: Incarnation,
        frames: &[Vec<u8>],
    ) -> Result<Seq, StoreError> {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = files.of(agent, incarnation)?.append(agent, incarnation, frames);
        if kept.is_err() {
            // Part of a frame may stand at the end: opening it again cuts that off.
            files.open.remove(&(agent.clone(), incarnation));
        }
        kept
    }

    /// Everything is on the disk. Some of it may have been before.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn sync(&self) -> Result<(), StoreError> {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        files.open.values_mut().try_for_each(|open| open.file.sync().at(&open.path))
    }
}

impl Open {
    fn append(
        &mut self,
        agent: &AgentName,
        incarnation: Incarnation,
        frames: &[Vec<u8>],
    ) -> Result<Seq, StoreError> {
        for bytes in frames {
            let refused = match series::decode(bytes) {
                Ok((frame, len))
                    if frame.agent == *agent && frame.incarnation == incarnation && len == bytes.len() =>
                {
                    if frame.first_seq >= self.next {
                        self.file.append(bytes).at(&self.path)?;
                        self.next = frame.next_seq();
                    }
                    continue;
                }
                Ok(_) => "not of its sender".to_owned(),
                Err(e) => e.to_string(),
            };
            if !std::mem::replace(&mut self.refused, true) {
                tracing::warn!(%agent, "telemetry that cannot be used is passed over: {refused}");
            }
        }
        Ok(self.next)
    }
}

impl Files {
    fn of(&mut self, agent: &AgentName, incarnation: Incarnation) -> Result<&mut Open, StoreError> {
        match self.open.entry((agent.clone(), incarnation)) {
            Entry::Occupied(open) => Ok(open.into_mut()),
            Entry::Vacant(place) => {
                let path = self.folder.join(format!("{agent}-{:016x}.tel", incarnation.0));
                Ok(place.insert(Open::at(&*self.disk, path)?))
            }
        }
    }
}

impl Open {
    /// Opens a file to go on with it.
    fn at(disk: &dyn Disk, path: PathBuf) -> Result<Self, StoreError> {
        let mut file = disk.open(&path).at(&path)?;
        let mut next = Seq(0);
        if file.len().at(&path)? > 0 {
            let bytes = disk.read(&path).at(&path)?;
            let mut good = 0;
            if let Ok(mut frames) = Frames::new(&bytes) {
                frames.by_ref().for_each(|(_, frame)| next = frame.next_seq());
                good = frames.good_len();
            }
            // A torn tail is cut, so that what comes next can be read.
            file.truncate(good).at(&path)?;
        }
        if file.len().at(&path)? == 0 {
            file.append(FILE_MAGIC).at(&path)?;
        }
        Ok(Self { path, file, next, refused: false })
    }
}

impl RunStore {
    /// Where the run's telemetry goes.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn telemetry(&self) -> Result<TelemetrySink, StoreError> {
        self.telemetry_of(0)
    }

    /// The same after so many restarts of this host.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn telemetry_of(&self, boot: usize) -> Result<TelemetrySink, StoreError> {
        TelemetrySink::new(self.disk(), folder(self.dir(), boot))
    }

    /// What was recorded beside the traces; empty when nothing was.
    ///
    /// # Errors
    /// When a file cannot be read. One that is damaged is read up to there.
    pub fn telemetry_series(&self) -> Result<Vec<AgentSeries>, StoreError> {
        self.telemetry_series_of(0)
    }

    /// The same after so many restarts of this host.
    ///
    /// # Errors
    /// When a file cannot be read. One that is damaged is read up to there.
    pub fn telemetry_series_of(&self, boot: usize) -> Result<Vec<AgentSeries>, StoreError> {
        let (disk, folder) = (self.disk(), folder(self.dir(), boot));
        let mut paths = match disk.list(&folder) {
            Ok(paths) => paths,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(e).at(&folder),
        };
        paths.retain(|path| path.extension().is_some_and(|e| e == "tel"));
        let files = paths.iter().map(|path| disk.read(path).at(path)).collect::<Result<Vec<_>, _>>()?;
        Ok(AgentSeries::of(files))
    }
}
