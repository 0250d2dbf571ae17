//! Writes the inputs that the checks begin with into `seeds/TARGET/`. Files that are there stay: what a fuzzer once
//! found is kept beside them and checked by the property tests, too.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let targets = [common::fuzz::TARGETS, proto::fuzz::TARGETS, agent::fuzz::TARGETS, coordinator::fuzz::TARGETS];
    for target in targets.into_iter().flatten() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target.name);
        std::fs::create_dir_all(&folder)?;
        for (number, bytes) in (target.valid)().iter().enumerate() {
            std::fs::write(folder.join(format!("valid-{number}")), bytes)?;
        }
        println!("{}", target.name);
    }
    Ok(())
}
