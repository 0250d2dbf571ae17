//! The page's files, embedded: nothing is loaded from elsewhere.

use crate::page::STYLE;
use crate::page::assets::{UPLOT_CSS, UPLOT_JS, UPLOT_LICENSE};

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";

/// A file with its type.
pub(super) fn find(path: &str) -> Option<(&'static str, &'static str)> {
    Some(match path {
        "/" => (HTML, include_str!("assets/live.html")),
        "/style.css" => (CSS, STYLE),
        "/live.css" => (CSS, include_str!("assets/live.css")),
        "/live.js" => (JS, include_str!("assets/live.js")),
        "/charts.js" => (JS, include_str!("assets/charts.js")),
        "/icon.svg" => ("image/svg+xml", include_str!("assets/icon.svg")),
        "/uplot.js" => (JS, UPLOT_JS),
        "/uplot.css" => (CSS, UPLOT_CSS),
        "/uplot-license.txt" => ("text/plain; charset=utf-8", UPLOT_LICENSE),
        _ => return None,
    })
}
