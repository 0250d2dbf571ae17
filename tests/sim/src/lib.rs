//! A whole fleet in one process and in virtual time: the coordinator and the agents as they are, on a network, disks and
//! clocks that are simulated, with faults that a seed decides.
//!
//! `make sim SEEDS=10000` runs seeds and says what was done and what did not hold; a seed that fails is repeated with
//! `sim --from SEED --seeds 1 --story`. Nothing here decides what is right: that is `judge`'s, from what really happened
//! (`ledger`), which nobody in the fleet can know.
//!
//! - `hosts` is what runs, `engine` and `outside` what it meets, `clock` the time that it sees.
//! - `faults` is what is done, `world` does it.

pub mod clock;
pub mod engine;
pub mod faults;
pub mod hosts;
pub mod judge;
pub mod ledger;
pub mod outside;
pub mod plan;
pub mod table;
pub mod world;
