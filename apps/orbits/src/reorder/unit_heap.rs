//! A priority queue whose keys change by one at a time (the unit heap of Gorder).
//!
//! Vertices of equal key form a doubly linked list, one list per key. A change by one moves
//! a vertex to the next list; the largest key in use is found by stepping down from the
//! last known one. A change takes constant time, and steps down are paid by steps up.

const NONE: u32 = u32::MAX;

pub(super) struct UnitHeap {
    /// The first vertex of each key's list.
    first: Vec<u32>,
    items: Vec<Item>,
    /// No key in use is larger.
    top: usize,
}

#[derive(Clone)]
struct Item {
    key: u32,
    before: u32,
    after: u32,
    queued: bool,
}

impl UnitHeap {
    /// All vertices with key 0; of these, the smallest leaves first.
    pub fn new(vertices: u32) -> Self {
        let items = (0..vertices).map(|v| Item {
            key: 0,
            before: v.checked_sub(1).unwrap_or(NONE),
            after: if v + 1 < vertices { v + 1 } else { NONE },
            queued: true,
        });
        Self { first: vec![if vertices > 0 { 0 } else { NONE }], items: items.collect(), top: 0 }
    }

    /// Raises the key of a vertex that is still queued by one.
    pub fn raise(&mut self, v: u32) {
        if self.items[v as usize].queued {
            self.unlink(v);
            self.link(v, self.items[v as usize].key + 1);
        }
    }

    /// Lowers the key of a vertex that is still queued by one; it was raised before.
    pub fn lower(&mut self, v: u32) {
        if self.items[v as usize].queued {
            self.unlink(v);
            self.link(v, self.items[v as usize].key - 1);
        }
    }

    /// Takes a vertex out of the queue.
    pub fn remove(&mut self, v: u32) {
        self.unlink(v);
        self.items[v as usize].queued = false;
    }

    /// Takes out a vertex of the largest key, of these the one that changed last.
    pub fn pop(&mut self) -> Option<u32> {
        while self.first[self.top] == NONE {
            self.top = self.top.checked_sub(1)?;
        }
        let v = self.first[self.top];
        self.remove(v);
        Some(v)
    }

    fn link(&mut self, v: u32, key: u32) {
        let list = key as usize;
        if list >= self.first.len() {
            self.first.resize(list + 1, NONE);
        }
        let after = std::mem::replace(&mut self.first[list], v);
        let item = &mut self.items[v as usize];
        (item.key, item.before, item.after) = (key, NONE, after);
        if after != NONE {
            self.items[after as usize].before = v;
        }
        self.top = self.top.max(list);
    }

    fn unlink(&mut self, v: u32) {
        let Item { key, before, after, .. } = self.items[v as usize];
        match before {
            NONE => self.first[key as usize] = after,
            _ => self.items[before as usize].after = after,
        }
        if after != NONE {
            self.items[after as usize].before = before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_key_leaves_first() {
        let mut heap = UnitHeap::new(5);
        for v in [3, 1, 3, 3, 4, 1] {
            heap.raise(v);
        }
        heap.lower(3);
        heap.lower(3);
        heap.remove(0);
        heap.raise(0);
        let order: Vec<u32> = std::iter::from_fn(|| heap.pop()).collect();
        assert_eq!(order, [1, 3, 4, 2]);
    }

    #[test]
    fn an_empty_heap_gives_nothing() {
        assert_eq!(UnitHeap::new(0).pop(), None);
    }
}
