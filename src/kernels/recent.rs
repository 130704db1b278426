//! What changed since the last few publications of a kernel whose frame is a copy of its state: frames that come back are
//! brought up to date, not copied anew.

use crate::publish::{Memory, Touched};
use bytemuck::Pod;
use std::cell::Cell;
use std::collections::VecDeque;

/// Publications that a frame may be behind. With one on the board, one ready to be filled and one that a reader just left,
/// frames come back after two or three.
const BEHIND: usize = 4;

/// Where more than this fraction of the pixels changed, copying all is faster.
const PIXELS_PER_CHANGE: usize = 6;

/// The pixels that changed between publications.
#[derive(Default)]
pub struct Recent {
    /// The last publication.
    number: u64,
    /// Since then; `None` before the first, when nobody needs to know.
    current: Option<Touched>,
    /// Between the ones before, the latest first.
    before: VecDeque<Touched>,
}

impl Recent {
    /// Takes note of changes.
    #[inline]
    pub fn add(&mut self, pixels: &[u32]) {
        if let Some(current) = &mut self.current {
            current.add(pixels);
        }
    }

    /// Everything changed.
    pub fn forget(&mut self) {
        self.current = None;
        self.before.clear();
    }

    /// Makes `frame`, whatever it is, a copy of `state`.
    pub fn publish<T: Pod>(&mut self, state: &[T], frame: &mut Memory) {
        let behind = frame.publication().and_then(|number| usize::try_from(self.number - number).ok());
        self.update(state, frame.as_mut_slice::<T>(), behind);
        self.number += 1;
        frame.set_publication(self.number);
        self.next(state.len());
    }

    fn update<T: Pod>(&self, state: &[T], out: &mut [T], behind: Option<usize>) {
        let changes = behind.and_then(|behind| self.since(behind));
        let few = changes.filter(|changes| {
            changes.clone().map(Touched::count).sum::<usize>() <= state.len() / PIXELS_PER_CHANGE
        });
        let Some(changes) = few else { return out.copy_from_slice(state) };
        let out = Cell::from_mut(out).as_slice_of_cells();
        for touched in changes {
            touched.for_each(
                |pixel| out[pixel].set(state[pixel]),
                |stretch| {
                    let copy = out[stretch.clone()].iter().zip(&state[stretch]);
                    copy.for_each(|(out, &value)| out.set(value));
                },
            );
        }
    }

    /// What changed since the publication so many before the last.
    fn since(&self, behind: usize) -> Option<impl Iterator<Item = &Touched> + Clone> {
        let current = self.current.as_ref().filter(|_| behind <= self.before.len())?;
        Some(std::iter::once(current).chain(self.before.iter().take(behind)))
    }

    /// From here on is after the next publication.
    fn next(&mut self, pixels: usize) {
        let oldest = if self.before.len() == BEHIND { self.before.pop_back() } else { None };
        // Without memory for it, frames are copied whole.
        let next = oldest.or_else(|| Touched::new(pixels).ok());
        let Some(mut next) = next else { return self.forget() };
        next.clear();
        if let Some(current) = self.current.replace(next) {
            self.before.push_front(current);
        }
    }
}
