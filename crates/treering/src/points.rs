//! Named points of opening, saving, committing, pruning and going on, at which tests let a rank die.
//!
//! Without the feature `testing` a point is nothing. With it, the thread of a rank can have a hook that hears of every
//! point that this rank reaches; threads that work for it inherit the hook ([`inherited`]). And a process whose
//! environment has `TREERING_KILL_AT=POINT[:RANK[:HIT]]` kills itself with SIGKILL at the hit (from 0 on) of that
//! point, if its launcher says that it has that rank. A test holds the table complete.

/// Every point, and what has just happened there.
#[cfg(any(test, feature = "testing"))]
pub const POINTS: [(&str, &str); 29] = [
    ("opening-committed", "An opener has used up its number; its opening is not announced yet."),
    ("opening-announced", "Writers before this one are fenced."),
    ("leftovers-removed", "Unfinished files of earlier writers are gone."),
    ("ticket-handed-out", "All ranks know of the opening."),
    ("seated", "The groups of ranks are formed."),
    ("decided", "The ranks have agreed on a checkpoint; nothing is captured yet."),
    ("captured", "The state of this rank is copied."),
    ("pack-begun", "A leader is about to write the pack of its group."),
    ("stage-handed-over", "The leader of a group has this rank's stage."),
    ("stages-collected", "A leader has the stages of all members."),
    ("pack-entrusted", "A deputy has the pack of its group; the store may not have it yet."),
    ("pack-durable", "The pack of a group is durable; its section is not there yet."),
    (
        "section-published",
        "A section is durable; whether others are missing was not looked at yet.",
    ),
    ("branch-published", "A branch is durable; the sections below it are still there."),
    ("manifest-committed", "A checkpoint exists; its sections are still there."),
    ("sections-removed", "Nothing but the checkpoint is left."),
    ("entries-removed", "Prune has removed manifests; their packs are still there."),
    ("packs-removed", "Prune has removed packs."),
    ("crew-formed", "All processes have agreed on who sits where."),
    ("crew-revoked", "A death is known; nobody uses the communicator of all any more."),
    ("crew-shrunk", "The processes that live have a communicator."),
    ("crew-opened", "The crew has the run."),
    ("crew-restored", "The arrays of this rank are filled."),
    ("crew-resumed", "The crew is about to go on."),
    ("replicas-kept", "A state is in the memory of ranks, as far as this rank knows."),
    ("replicas-loaded", "This rank has its share of a state from the memory of ranks."),
    ("replicas-restored", "The arrays of all ranks are filled from memory."),
    ("replicas-remade", "Lost replicas are made again."),
    (
        "going-on",
        "The survivors have agreed on the number of their opening, and nobody has made it.",
    ),
];

/// This rank is at a point.
#[inline(always)]
pub(crate) fn reach(point: &'static str) {
    #[cfg(any(test, feature = "testing"))]
    hooks::reach(point);
    #[cfg(not(any(test, feature = "testing")))]
    let _ = point;
}

/// The work of a thread of this rank.
pub(crate) fn inherited<T>(work: impl FnOnce() -> T + Send) -> impl FnOnce() -> T + Send {
    #[cfg(any(test, feature = "testing"))]
    let hook = hooks::own();
    move || {
        #[cfg(any(test, feature = "testing"))]
        hooks::set(hook);
        work()
    }
}

#[cfg(any(test, feature = "testing"))]
pub use hooks::{PointHook, set as set_point_hook};

#[cfg(any(test, feature = "testing"))]
mod hooks {
    use std::cell::RefCell;
    use std::sync::atomic::{AtomicI64, Ordering};
    use std::sync::{Arc, LazyLock};

    /// Hears of every point that a rank reaches.
    pub type PointHook = Arc<dyn Fn(&'static str) + Send + Sync>;

    thread_local! {
        static HOOK: RefCell<Option<PointHook>> = const { RefCell::new(None) };
    }

    /// The hook of this thread, and of all threads that will work for it.
    pub fn set(hook: Option<PointHook>) {
        HOOK.with(|own| *own.borrow_mut() = hook);
    }

    pub(super) fn own() -> Option<PointHook> {
        HOOK.with(|own| own.borrow().clone())
    }

    pub(super) fn reach(point: &'static str) {
        if let Some(hook) = own() {
            hook(point);
        }
        if let Some(fate) = FATE.as_ref().filter(|fate| fate.point == point)
            && fate.left.fetch_sub(1, Ordering::SeqCst) == 0
        {
            let own = rustix::process::getpid();
            let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
        }
    }

    /// The point at which this process dies, and the hits of it that it survives.
    struct Fate {
        point: String,
        left: AtomicI64,
    }

    static FATE: LazyLock<Option<Fate>> = LazyLock::new(|| {
        let text = std::env::var("TREERING_KILL_AT").ok()?;
        let mut words = text.split(':');
        let point = words.next()?.to_string();
        let (rank, hit) = (words.next(), words.next());
        let launchers = ["OMPI_COMM_WORLD_RANK", "PMI_RANK"];
        let own = launchers.iter().find_map(|name| std::env::var(name).ok());
        let concerned = rank.is_none_or(|rank| own.as_deref().unwrap_or("0") == rank);
        let left = AtomicI64::new(hit.and_then(|hit| hit.parse().ok()).unwrap_or(0));
        concerned.then_some(Fate { point, left })
    });
}
