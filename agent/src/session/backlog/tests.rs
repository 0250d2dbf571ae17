//! Deliveries to a coordinator that answers as told, over a real connection.

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

use common::clock::ManualClock;
use common::disk::SimDisk;
use common::fleet::HostFacts;
use common::ids::{AgentName, ArrivalIndex, Incarnation, Nanos};
use common::trace::segment::{Block, BlockOrigin};
use common::trace::{Failure, FailureKind, Trace, Unsent};
use proto::v1::telemetry_server::{Telemetry, TelemetryServer};
use proto::v1::{FatesReply, RecordAck, RecordBatch};
use tokio_stream::Stream;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response};

use super::*;
use crate::spool::held;
use crate::spool::{Spool, SpoolWriter};

/// What the coordinator does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::session) enum Mood {
    /// Takes what follows its mark.
    Honest,
    /// Takes nothing: its disk is full.
    Full,
    /// Knows nothing of the run.
    OtherRun,
    /// Says that it wants the same again.
    Stuck,
    /// Ends the stream after so many batches.
    Breaks(usize),
}

#[derive(Clone)]
pub(in crate::session) struct Coordinator {
    pub(in crate::session) mood: Mood,
    pub(in crate::session) stored: Arc<Mutex<BTreeMap<u64, Vec<u64>>>>,
}

impl Coordinator {
    fn take(&self, batch: &TraceBatch) -> trace_ack::Kind {
        let mut stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        let stored = stored.entry(batch.incarnation).or_default();
        for block in &batch.blocks {
            let block = Block::decode(block).unwrap();
            assert_eq!(
                (block.header().agent.as_str(), block.header().incarnation.0),
                ("a", batch.incarnation)
            );
            if block.header().first_seq.0 != stored.len() as u64 {
                return trace_ack::Kind::ResumeFrom(stored.len() as u64);
            }
            stored.extend(block.facts().unwrap().iter().map(|f| f.index.0));
        }
        trace_ack::Kind::UpTo(stored.len() as u64)
    }
}

#[tonic::async_trait]
impl Telemetry for Coordinator {
    type UploadStream = Pin<Box<dyn Stream<Item = Result<TraceAck, Status>> + Send>>;

    async fn upload(
        &self,
        request: Request<Streaming<TraceBatch>>,
    ) -> Result<Response<Self::UploadStream>, Status> {
        let (mut batches, coordinator) = (request.into_inner(), self.clone());
        let (acks, answers) = mpsc::channel(1);
        tokio::spawn(async move {
            let mut number = 0;
            while let Ok(Some(batch)) = batches.message().await {
                let kind = match coordinator.mood {
                    Mood::OtherRun => {
                        let _ = acks.send(Err(Status::failed_precondition("this run takes no traces"))).await;
                        return;
                    }
                    Mood::Breaks(after) if number == after => return,
                    Mood::Full if number > 0 => trace_ack::Kind::Refused("no space".to_owned()),
                    Mood::Stuck => trace_ack::Kind::ResumeFrom(0),
                    _ => coordinator.take(&batch),
                };
                number += 1;
                let _ = acks.send(Ok(TraceAck { kind: Some(kind) })).await;
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }

    async fn record(&self, _: Request<RecordBatch>) -> Result<Response<RecordAck>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn fates(&self, request: Request<FatesRequest>) -> Result<Response<FatesReply>, Status> {
        let (_, trials): (RunId, Vec<(TrialId, Epoch)>) = request.into_inner().try_into()?;
        let fate =
            |(trial, _): (TrialId, Epoch)| if trial.0 == 0 { TrialFate::Sealed } else { TrialFate::Open };
        Ok(Response::new(trials.into_iter().map(fate).collect::<Vec<_>>().into()))
    }
}

async fn serve(mood: Mood) -> (Courier, Coordinator) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let coordinator = Coordinator { mood, stored: Arc::default() };
    let server = tonic::transport::Server::builder().add_service(TelemetryServer::new(coordinator.clone()));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    (Courier::over(join::without_pass(&address).await), coordinator)
}

fn trace(index: u64) -> Trace {
    let unsent = Unsent {
        index: ArrivalIndex(index),
        scheduled: Nanos(index),
        row: 0,
        requested_tokens: 1,
        prompt_tokens: None,
    };
    Trace::unsent(unsent, Failure::new(FailureKind::Reset, "x"), Nanos(index + 1))
}

pub(in crate::session) const DIR: &str = "/spool/a";

/// Segments of these trials, with so many traces each, numbered on; indexes are the numbers.
pub(in crate::session) async fn left(disk: &SimDisk, trials: &[(u32, u64)], first: u64) -> Backlog {
    let (run, agent): (RunId, AgentName) = ("r".parse().unwrap(), "a".parse().unwrap());
    let mut next = first;
    for &(trial, traces) in trials {
        let origin = BlockOrigin {
            agent: agent.clone(),
            incarnation: Incarnation(7),
            trial: TrialId(trial),
            epoch: Epoch(trial + 1),
        };
        let spool = Spool::create(disk, Path::new(DIR), &run, origin, Seq(next)).unwrap();
        let clock = Arc::new(ManualClock::default());
        let mut writer = SpoolWriter::start(spool, clock, || panic!("nothing is lost")).unwrap();
        assert!((next..next + traces).all(|i| writer.push(trace(i))));
        next = writer.finish().await.next_seq.0;
    }
    held::backlogs(disk, Path::new(DIR), &agent, &run).unwrap().pop().unwrap()
}

#[tokio::test]
async fn everything_of_several_trials_is_delivered_once() {
    let disk = SimDisk::default();
    let backlog = left(&disk, &[(0, 130), (1, 3)], 0).await;
    let (courier, coordinator) = serve(Mood::Honest).await;
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let delivered = deliver(&backlog, Arc::clone(&disk), &courier).await.unwrap();
    assert_eq!(delivered, Delivered { sent: 133, had: 0 });
    // Again, when nobody knows whether it was delivered: nothing is sent twice.
    let delivered = deliver(&backlog, disk, &courier).await.unwrap();
    assert_eq!(delivered, Delivered { sent: 0, had: 133 });
    let stored = coordinator.stored.lock().unwrap().clone();
    assert_eq!(stored[&7], (0..133).collect::<Vec<_>>());
    let trials = [(TrialId(0), Epoch(1)), (TrialId(1), Epoch(2))];
    assert_eq!(courier.fates(&backlog.run, &trials).await.unwrap(), [TrialFate::Sealed, TrialFate::Open]);
}

#[tokio::test]
async fn a_broken_delivery_goes_on_where_it_stood() {
    let disk = SimDisk::default();
    let backlog = left(&disk, &[(0, 70), (1, 70)], 0).await;
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let (courier, coordinator) = serve(Mood::Breaks(2)).await;
    let broken = deliver(&backlog, Arc::clone(&disk), &courier).await.unwrap_err();
    assert!(matches!(broken, Undelivered::Unreachable(_)), "{broken}");
    let there = coordinator.stored.lock().unwrap()[&7].len() as u64;
    assert!(there > 0 && there < 140);
    let (courier, whole) = serve(Mood::Honest).await;
    *whole.stored.lock().unwrap() = coordinator.stored.lock().unwrap().clone();
    let delivered = deliver(&backlog, disk, &courier).await.unwrap();
    assert_eq!(delivered, Delivered { sent: 140 - there, had: there });
}

#[tokio::test]
async fn what_cannot_be_delivered_is_said_and_ends() {
    let disk = SimDisk::default();
    // Numbers 0 to 4 were of a trial that is sealed and gone.
    let backlog = left(&disk, &[(1, 3)], 5).await;
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let mut said = BTreeMap::new();
    for mood in [Mood::Honest, Mood::OtherRun, Mood::Full, Mood::Stuck] {
        let (courier, coordinator) = serve(mood).await;
        if mood == Mood::Full || mood == Mood::Stuck {
            coordinator.stored.lock().unwrap().insert(7, (0..5).collect());
        }
        let error = deliver(&backlog, Arc::clone(&disk), &courier).await.unwrap_err();
        said.insert(format!("{mood:?}"), error.to_string());
    }
    assert_eq!(
        said["Honest"],
        "the coordinator asks for trace 0, and the first one held is 5: those between are lost"
    );
    assert_eq!(said["OtherRun"], "the coordinator does not take it: this run takes no traces");
    assert_eq!(said["Full"], "the coordinator cannot take it now: no space");
    assert!(said["Stuck"].starts_with("the coordinator asks for trace 0"), "{}", said["Stuck"]);
    let whole = left(&SimDisk::default(), &[(0, 3)], 0).await;
    assert_eq!(whole.traces(), 3);
    let introduction = Introduction {
        version: "1".into(),
        name: "a".parse().unwrap(),
        incarnation: Incarnation(1),
        host: HostFacts::default(),
        observer: true,
        engine: None,
        gpu: false,
        calibration: None,
    };
    let joined = async |join: &str| {
        let dial = Dial { join: join.into(), tls: None, token: None };
        Courier::join(&dial, &introduction, &ManualClock::default()).await.err().unwrap()
    };
    assert!(matches!(joined("127.0.0.1:1").await, Undelivered::Unreachable(_)));
    assert!(matches!(joined("x").await, Undelivered::Unusable(_)));
}

#[tokio::test]
async fn an_answer_without_progress_ends_the_delivery() {
    let disk = SimDisk::default();
    let backlog = left(&disk, &[(0, 3)], 0).await;
    let (courier, _) = serve(Mood::Stuck).await;
    let error = deliver(&backlog, Arc::new(disk), &courier).await.unwrap_err();
    assert!(matches!(error, Undelivered::Confused(_)), "{error}");
}
