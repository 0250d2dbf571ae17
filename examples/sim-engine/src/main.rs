//! The `sim-engine` binary: reads the command line, listens, serves until it is told to stop.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use sim_engine::{Options, Tls};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    let options = Options::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into()),
        )
        .init();
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sim-engine: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> anyhow::Result<()> {
    // One worker: the engine shares a small machine with the load generator that measures it.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let config = options.config();
    let tls = match (&options.tls_cert, &options.tls_key) {
        (Some(cert), Some(key)) => Some(Tls::read(cert, key, options.tls_client_ca.as_deref())?),
        _ => None,
    };
    let scheme = if tls.is_some() { "https" } else { "http" };
    let listen = options.listen.clone();
    let served = runtime.block_on(async move {
        let listener =
            TcpListener::bind(&listen).await.with_context(|| format!("cannot listen on {listen}"))?;
        let address = listener.local_addr()?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        // A reader that is gone does not need the line.
        let mut stdout = std::io::stdout();
        let _ =
            writeln!(stdout, "sim-engine listening on {scheme}://{address}").and_then(|()| stdout.flush());
        let stop = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        // On the worker, where the requests are.
        tokio::spawn(sim_engine::serve_tls(listener, tls, config, stop)).await??;
        Ok(())
    });
    runtime.shutdown_background();
    served
}
