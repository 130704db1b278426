//! The core of Frames2Py: events in, immutable frames out, live.
//!
//! Data flows one way: recordings are decoded into records ([`codec`]), records are copied into private blocks
//! ([`event`]), a kernel accumulates them ([`kernels`]), and an engine ([`engine`]) publishes frames that any
//! number of threads read ([`publish`]). The crate is usable without Python; the feature `python` adds the
//! extension module `frames2py._core`.

pub mod accumulator;
pub mod codec;
pub mod convert;
pub mod engine;
pub mod error;
pub mod event;
pub mod exclusive;
pub mod geometry;
pub mod kernels;
pub mod play;
pub mod publish;
pub mod signal;

#[cfg(feature = "python")]
mod py;
