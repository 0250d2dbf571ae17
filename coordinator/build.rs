//! Hands the chart library's files to the crate, which embeds them in its pages. They come from a registry package that
//! `make setup-build` fetches (`.ci/web_assets.sh`), and are no part of the repository.

use std::env;
use std::fs;
use std::path::PathBuf;

const FOLDER: &str = "../.web-assets/uplot-1.6.32";
const FILES: [&str; 3] = ["uPlot.iife.min.js", "uPlot.min.css", "LICENSE"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    for name in FILES {
        let file = PathBuf::from(FOLDER).join(name);
        println!("cargo::rerun-if-changed={}", file.display());
        if let Err(e) = fs::copy(&file, out.join(name)) {
            println!(
                "cargo::error={}: {e}; run `make setup-build` once: it fetches the chart library",
                file.display()
            );
        }
    }
}
