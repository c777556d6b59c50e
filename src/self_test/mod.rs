//! Proving limits, image and fabric before the job starts.
//!
//! A check judges facts, or what a process of its own tried on a device; it never
//! changes anything. What comes out is a [`report::Report`], the same for people, for
//! programs and for `compare`.

pub mod check;
mod evidence;
pub mod judge;
pub mod kinds;
pub mod quick;
pub mod report;
