//! Frames that are made by their first reader.

use super::{Arc, Count, GONE, StdMutex, StdOrdering, Word};
use frames2py::error::Result;
use frames2py::publish::{Frame, Lazy, Lease, Pool, Recipe as FrameRecipe, Shelf, Writer};
use std::any::Any;
use std::convert::Infallible;

/// A publication: the number that its frame is to hold, and the frame.
pub struct Recipe {
    number: Word,
    frame: Lazy<Word>,
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
        let mut recipe = left.unwrap_or_else(|| Recipe { number: Word::new(), frame: Lazy::default() });
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
        visit.sequence()
    }

    /// How often a frame was made.
    pub fn made(&self) -> usize {
        self.made.load(StdOrdering::Relaxed)
    }
}

/// The memory of frames as checkers see it: a word for each piece of memory, which holds the word's number.
#[derive(Default)]
struct Memories(StdMutex<Vec<std::sync::Arc<Word>>>);

impl Memories {
    /// The word of a frame's memory, new if that is.
    fn of_new(&self, frame: &mut [u8]) -> std::sync::Arc<Word> {
        if u64::from_ne_bytes(frame[..8].try_into().unwrap()) == 0 {
            let mut words = self.0.lock().unwrap();
            words.push(std::sync::Arc::new(Word::new()));
            frame[..8].copy_from_slice(&(words.len() as u64).to_ne_bytes());
        }
        self.of(frame)
    }

    fn of(&self, frame: &[u8]) -> std::sync::Arc<Word> {
        let number = u64::from_ne_bytes(frame[..8].try_into().unwrap());
        self.0.lock().unwrap()[number as usize - 1].clone()
    }
}

/// How a frame is made that holds a number.
struct Number {
    content: Word,
    memories: std::sync::Arc<Memories>,
    /// How often it was made for this content.
    made: Count,
}

impl FrameRecipe for Number {
    fn make(&self, out: &mut [u8]) -> Result<()> {
        assert_eq!(self.made.fetch_add(1, StdOrdering::Relaxed), 0, "a frame was made twice");
        self.memories.of_new(out).set(self.content.get());
        Ok(())
    }

    fn empty(&mut self) {
        self.content.set(GONE);
        self.made.store(0, StdOrdering::Relaxed);
    }
}

pub type Frames = Pool<Frame, ()>;

/// One run of a model in which publications that show the same share a frame. What each shows is given by a list.
pub struct Sharing {
    memories: std::sync::Arc<Memories>,
    shows: Vec<u64>,
}

/// What the one writer has.
pub struct SharingWriter {
    writer: Writer<Frame, ()>,
    shelf: Shelf,
    published: usize,
}

impl Sharing {
    pub fn new(keep: usize, shows: &[u64]) -> (std::sync::Arc<Self>, Arc<Frames>, SharingWriter) {
        let (pool, writer) = Pool::new(keep);
        let writer = SharingWriter { writer, shelf: Shelf::new(keep, Some(8), false), published: 0 };
        let this = Self { memories: std::sync::Arc::default(), shows: shows.to_vec() };
        (std::sync::Arc::new(this), pool, writer)
    }

    pub fn publish(&self, writer: &mut SharingWriter) {
        let SharingWriter { writer, shelf, published } = writer;
        let (claim, left) = writer.claim().unwrap();
        let new = || {
            let memories = self.memories.clone();
            Ok(Box::new(Number { content: Word::new(), memories, made: Count::new(0) }) as _)
        };
        let mut frame = shelf.frame(left, new).unwrap();
        let shows = self.shows[*published];
        let still = shelf.last_recipe().is_some_and(|last| {
            let last: &dyn Any = last;
            last.downcast_ref::<Number>().unwrap().content.get() == shows
        });
        if still {
            frame = shelf.again(frame);
        } else {
            let recipe: &mut dyn Any = frame.recipe_mut().unwrap();
            recipe.downcast_mut::<Number>().unwrap().content.set(shows);
        }
        shelf.publishes(&frame);
        *published += 1;
        let put_up = writer.publish(claim, frame);
        assert_eq!(put_up.sequence, *published as u64);
        put_up.retired.reap(writer.pool());
    }

    fn check(&self, frame: &Frame, sequence: u64) {
        let word = self.memories.of(frame.memory().unwrap().bytes());
        assert_eq!(word.get(), self.shows[sequence as usize - 1], "another frame, or half of one");
    }

    /// Looks at the latest frame, after making it if nobody has, and says which it was.
    pub fn visit(&self, pool: &Arc<Frames>) -> u64 {
        pool.read().map_or(0, |visit| {
            self.check(visit.content(), visit.sequence());
            visit.sequence()
        })
    }

    /// Holds on to the latest publication.
    pub fn lease(&self, pool: &Arc<Frames>) -> Option<(u64, Lease<Frame, ()>)> {
        pool.read().map(|visit| (visit.sequence(), visit.lease(pool)))
    }

    /// Looks at a frame that is held, then lets go of it.
    pub fn look(&self, (sequence, lease): (u64, Lease<Frame, ()>)) {
        self.check(&lease, sequence);
    }

    /// To be called when all other threads are gone. `most` is how many frames may have memory. All of it must come back.
    pub fn end(&self, pool: Arc<Frames>, writer: SharingWriter, most: usize) {
        let SharingWriter { writer, shelf, .. } = writer;
        let count = shelf.count().clone();
        assert!(count.load(StdOrdering::Relaxed) <= most, "memory was not used again");
        drop((writer, shelf, pool));
        assert_eq!(count.load(StdOrdering::Relaxed), 0, "a frame was never given up");
    }
}
