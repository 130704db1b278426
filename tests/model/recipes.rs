//! Frames that are made by their first reader.

use super::{Arc, AtomicBool, Count, Ordering, StdOrdering, Word};
use frames2py::publish::{Lazy, Pool, Writer};
use std::convert::Infallible;

/// A publication: the number that its frame is to hold, and the frame.
pub struct Recipe {
    number: Word,
    frame: Lazy<Word>,
    /// Somebody was shown the frame.
    exposed: AtomicBool,
    /// The same, without a need to be seen in time.
    was_exposed: Count,
}

pub type Publications = Pool<Recipe, ()>;

/// One run of a model.
#[derive(Default)]
pub struct Recipes {
    made: Count,
}

impl Recipes {
    pub fn new() -> (std::sync::Arc<Self>, Arc<Publications>, Writer<Recipe, ()>) {
        let (pool, writer) = Pool::new(3);
        (std::sync::Arc::default(), pool, writer)
    }

    /// Publishes how frame `sequence` is made, in what the slot was left with.
    pub fn publish(&self, writer: &mut Writer<Recipe, ()>, sequence: u64) {
        let (claim, left) = writer.claim().unwrap();
        let mut recipe = left.unwrap_or_else(|| Recipe {
            number: Word::new(),
            frame: Lazy::default(),
            exposed: AtomicBool::new(false),
            was_exposed: Count::new(0),
        });
        let exposed = recipe.exposed.load(Ordering::Relaxed);
        assert_eq!(exposed, recipe.was_exposed.load(StdOrdering::Relaxed) > 0, "not told of foreign hands");
        recipe.exposed.store(false, Ordering::Relaxed);
        recipe.was_exposed.store(0, StdOrdering::Relaxed);
        recipe.frame.unmake();
        recipe.number.set(sequence);
        let published = writer.publish(claim, recipe);
        assert_eq!(published.sequence, sequence);
        published.retired.reap(writer.pool());
    }

    /// Looks at the latest frame, after making it if nobody has, and says which it was.
    pub fn visit(&self, pool: &Arc<Publications>) -> u64 {
        let Some(visit) = pool.read() else { return 0 };
        let recipe = visit.content();
        let frame = recipe.frame.get_or_make(|spare| {
            self.made.fetch_add(1, StdOrdering::Relaxed);
            let frame = spare.unwrap_or_else(Word::new);
            frame.set(recipe.number.get());
            Ok::<_, Infallible>(frame)
        });
        let Ok(frame) = frame;
        assert_eq!(frame.get(), visit.sequence(), "another frame, or half of one");
        recipe.exposed.store(true, Ordering::Relaxed);
        recipe.was_exposed.fetch_add(1, StdOrdering::Relaxed);
        visit.sequence()
    }

    /// How often a frame was made.
    pub fn made(&self) -> usize {
        self.made.load(StdOrdering::Relaxed)
    }
}
