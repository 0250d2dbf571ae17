//! What the report page and the live page have in common: the chart library and the style, embedded.

pub mod assets;

/// Palette and plain elements, light and dark (`data-theme` of the root element).
pub const STYLE: &str = include_str!("style.css");
