//! The chart library uPlot, as it stands in its registry package (`build.rs`).

/// The library; it defines `uPlot`.
pub const UPLOT_JS: &str = include_str!(concat!(env!("OUT_DIR"), "/uPlot.iife.min.js"));
/// Its style sheet.
pub const UPLOT_CSS: &str = include_str!(concat!(env!("OUT_DIR"), "/uPlot.min.css"));
/// Its licence, which goes wherever it goes.
pub const UPLOT_LICENSE: &str = include_str!(concat!(env!("OUT_DIR"), "/LICENSE"));
