//! `cargo bench -p scale --bench fleet`, or a part of it: `-- wire`, `-- crowd`. See there.

use scale::child::be_coordinator_if_wanted;
use scale::{crowd, wire};

fn main() -> anyhow::Result<()> {
    if be_coordinator_if_wanted()? {
        return Ok(());
    }
    // Cargo adds an option of its own.
    let asked: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wanted = |part: &str| asked.is_empty() || asked.iter().any(|word| word == part);
    if wanted("wire") {
        wire::measure()?;
    }
    if wanted("crowd") {
        crowd::measure()?;
    }
    Ok(())
}
