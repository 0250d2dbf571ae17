//! What the report page and the live page have in common: the chart library, embedded.

pub mod assets;
