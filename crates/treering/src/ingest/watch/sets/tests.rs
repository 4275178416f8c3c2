//! Sets with a clock that is made up.

use super::*;
use proptest::prelude::*;

const SETTLE: Duration = Duration::from_secs(2);
const GRACE: Duration = Duration::from_secs(1000);

fn at(seconds: u64) -> Moment {
    Duration::from_secs(seconds)
}

fn stamp(version: u64) -> FileStamp {
    FileStamp { size: 10, modified: version, inode: 1 }
}

fn sets(files: Option<usize>) -> Sets {
    Sets::new(SetRule { files, settle: SETTLE, grace: GRACE }, None)
}

fn names(set: &FileSet) -> String {
    set.files.keys().map(String::as_str).collect()
}

/// Files that are found at one moment; each letter is a name.
fn find(sets: &mut Sets, step: u64, letters: &str, version: u64, now: Moment) {
    for name in letters.chars() {
        sets.seen(step, &name.to_string(), stamp(version), FileSign::Found, now);
    }
}

fn take(sets: &mut Sets, now: Moment) -> Option<(u64, String)> {
    let set = sets.complete(now)?;
    sets.taken(&set, now);
    Some((set.step, names(&set)))
}

#[test]
fn a_file_is_finished_when_it_is_closed_and_rests() {
    let mut sets = sets(None);
    sets.seen(1, "a", stamp(1), FileSign::Found, at(0));
    assert_eq!(sets.wake(at(0)), Some(at(2)));
    assert_eq!(sets.complete(at(1)), None);
    // It changed without a sign, as on a network's file system.
    sets.seen(1, "a", stamp(2), FileSign::Found, at(1));
    assert_eq!(sets.complete(at(2)), None);
    sets.seen(1, "a", stamp(3), FileSign::Written, at(2));
    assert_eq!((sets.complete(at(99)), sets.wake(at(99))), (None, None));
    sets.seen(1, "a", stamp(3), FileSign::Found, at(99));
    assert_eq!(sets.complete(at(200)), None, "seeing an open file does not close it");
    sets.seen(1, "a", stamp(3), FileSign::Finished, at(200));
    assert_eq!((sets.complete(at(201)), sets.wake(at(201))), (None, Some(at(202))));
    assert_eq!(take(&mut sets, at(202)), Some((1, "a".into())));
    assert_eq!((sets.complete(at(300)), sets.wake(at(300))), (None, None));
    assert!(sets.seen(1, "a", stamp(3), FileSign::Finished, at(300)), "it is known");
}

#[test]
fn a_set_has_as_many_files_as_told() {
    let mut sets = sets(Some(3));
    find(&mut sets, 7, "ab", 1, at(0));
    assert_eq!(sets.complete(at(99)), None);
    find(&mut sets, 7, "c", 1, at(99));
    assert_eq!(sets.complete(at(100)), None);
    assert_eq!(take(&mut sets, at(101)), Some((7, "abc".into())));
}

#[test]
fn a_smaller_set_waits_for_one_like_it() {
    let mut sets = sets(None);
    find(&mut sets, 1, "abc", 1, at(0));
    assert_eq!(take(&mut sets, at(2)), Some((1, "abc".into())));
    find(&mut sets, 2, "ab", 1, at(3));
    assert_eq!(sets.complete(at(99)), None);
    // The program was killed within step 2 and went on: that set stays, and is told once.
    find(&mut sets, 3, "abc", 1, at(100));
    let set = sets.complete(at(102)).unwrap();
    assert_eq!(sets.taken(&set, at(102)), [ShortSet { step: 2, files: 2, expected: 3 }]);
    assert_eq!(sets.complete(at(103)), None);
    // From step 4 on it writes fewer files.
    find(&mut sets, 4, "a", 1, at(110));
    assert_eq!(sets.complete(at(119)), None);
    find(&mut sets, 5, "a", 1, at(120));
    assert_eq!(sets.complete(at(121)), None);
    assert_eq!(take(&mut sets, at(122)), Some((4, "a".into())));
    assert_eq!(take(&mut sets, at(122)), Some((2, "ab".into())), "it is large enough now");
    assert_eq!(take(&mut sets, at(122)), None);
}

/// The last set of a program that was killed is not silently left where it is.
#[test]
fn a_smaller_set_is_reported_after_the_grace_time() {
    for told in [None, Some(3)] {
        let mut sets = sets(told);
        find(&mut sets, 1, "abc", 1, at(0));
        assert_eq!(take(&mut sets, at(2)), Some((1, "abc".into())));
        find(&mut sets, 2, "a", 1, at(10));
        find(&mut sets, 2, "b", 1, at(20));
        assert_eq!((sets.short(at(1021)), sets.wake(at(1021))), (vec![], Some(at(1022))));
        let short = ShortSet { step: 2, files: 2, expected: 3 };
        assert_eq!(sets.short(at(1022)), [short]);
        // Once.
        assert_eq!((sets.short(at(9999)), sets.wake(at(9999))), (vec![], None));
        find(&mut sets, 3, "abc", 1, at(10_000));
        let set = sets.complete(at(10_002)).unwrap();
        assert_eq!(sets.taken(&set, at(10_002)), []);
        // A file that somebody has open is not at rest, however long that takes.
        find(&mut sets, 4, "a", 1, at(20_000));
        sets.seen(4, "b", stamp(1), FileSign::Written, at(20_000));
        assert_eq!(sets.short(at(90_000)), []);
        // The rest comes: it is a set like any other, and nothing is reported.
        sets.seen(4, "b", stamp(2), FileSign::Finished, at(90_000));
        find(&mut sets, 4, "c", 1, at(90_001));
        assert_eq!(sets.short(at(99_000)), []);
        assert_eq!(take(&mut sets, at(99_000)), Some((4, "abc".into())));
    }
}

#[test]
fn a_step_is_rewritten_as_a_whole() {
    for told in [None, Some(3)] {
        let mut sets = sets(told);
        find(&mut sets, 1, "abc", 1, at(0));
        assert_eq!(take(&mut sets, at(2)), Some((1, "abc".into())));
        find(&mut sets, 1, "ab", 2, at(3));
        assert_eq!(sets.complete(at(99)), None, "c is of the old set");
        // Removing and writing it anew is the same.
        sets.gone(1, "c");
        assert_eq!(sets.complete(at(99)), None);
        find(&mut sets, 1, "c", 2, at(100));
        assert_eq!(take(&mut sets, at(102)), Some((1, "abc".into())));
    }
}

#[test]
fn late_files_join_those_that_were_taken() {
    let mut sets = sets(None);
    find(&mut sets, 1, "ab", 1, at(0));
    assert_eq!(take(&mut sets, at(2)), Some((1, "ab".into())));
    find(&mut sets, 1, "c", 1, at(5));
    assert_eq!(take(&mut sets, at(7)), Some((1, "abc".into())));
    // But not if those are gone.
    sets.gone(1, "a");
    find(&mut sets, 1, "d", 1, at(8));
    find(&mut sets, 2, "d", 1, at(8));
    assert_eq!(sets.complete(at(10)), None);
}

#[test]
fn files_that_come_when_the_others_are_gone_are_reported() {
    let mut sets = sets(None);
    find(&mut sets, 1, "ab", 1, at(0));
    assert_eq!(take(&mut sets, at(2)), Some((1, "ab".into())));
    find(&mut sets, 1, "c", 1, at(3));
    // They can still be joined.
    assert_eq!(sets.stranded(at(9)), []);
    sets.gone(1, "a");
    assert_eq!(sets.stranded(at(4)), [], "it is not at rest");
    assert_eq!((sets.complete(at(9)), sets.stranded(at(9))), (None, vec![(1, 1)]));
    assert_eq!(sets.stranded(at(10)), [], "once");
    // The same after everything of the step was removed.
    sets.begin(7, [("a".to_string(), 10, 1, true)]);
    find(&mut sets, 7, "b", 1, at(20));
    assert_eq!(sets.stranded(at(22)), [(7, 1)]);
}

#[test]
fn what_the_run_holds_is_known() {
    let mut sets = sets(Some(2));
    let old = [("a".to_string(), 10, 1, false), ("z".to_string(), 10, 1, false)];
    let new = [("a".to_string(), 10, 2, true), ("b".to_string(), 10, 2, true)];
    sets.begin(1, old.into_iter().chain(new));
    assert!(sets.seen(1, "a", stamp(2), FileSign::Found, at(0)));
    assert!(sets.seen(1, "z", stamp(1), FileSign::Found, at(0)), "an older set held it");
    assert!(!sets.seen(1, "b", stamp(3), FileSign::Found, at(0)));
    assert_eq!(sets.complete(at(9)), None);
    sets.mistaken(1, "a", stamp(2), at(9));
    assert_eq!(take(&mut sets, at(11)), Some((1, "ab".into())));
}

#[test]
fn a_refused_set_waits_until_it_changes() {
    let mut sets = sets(Some(1));
    find(&mut sets, 1, "a", 1, at(0));
    sets.refuse(1);
    find(&mut sets, 1, "a", 1, at(5));
    assert_eq!(sets.complete(at(9)), None);
    find(&mut sets, 1, "a", 2, at(10));
    assert_eq!(take(&mut sets, at(12)), Some((1, "a".into())));
}

#[test]
fn after_trouble_a_set_waits_longer_every_time_and_others_go_on() {
    let mut sets = sets(Some(1));
    find(&mut sets, 1, "a", 1, at(0));
    for (pause, now) in [(1, 2), (2, 3), (4, 10), (8, 20), (16, 30), (32, 60), (60, 100), (60, 200)]
    {
        assert_eq!(sets.complete(at(now)).unwrap().step, 1);
        assert_eq!(sets.later(1, at(now)), Duration::from_secs(pause));
        assert_eq!((sets.complete(at(now)), sets.wake(at(now))), (None, Some(at(now + pause))));
    }
    find(&mut sets, 2, "a", 1, at(201));
    assert_eq!(take(&mut sets, at(203)), Some((2, "a".into())));
    find(&mut sets, 1, "a", 2, at(210));
    assert_eq!(take(&mut sets, at(212)), Some((1, "a".into())), "a change ends the pause");
}

#[test]
fn missed_signs_open_what_may_be_closed() {
    let mut sets = sets(Some(1));
    sets.seen(1, "a", stamp(1), FileSign::Written, at(0));
    sets.missed(at(5));
    assert_eq!(sets.complete(at(6)), None);
    assert_eq!(take(&mut sets, at(7)), Some((1, "a".into())));
}

#[test]
fn a_second_name_of_a_whole_file_is_never_closed() {
    let mut sets = sets(Some(1));
    sets.seen(1, "a", stamp(1), FileSign::Made, at(0));
    sets.seen(1, "a", stamp(1), FileSign::Found, at(1));
    assert_eq!((sets.complete(at(9)), sets.wake(at(9))), (None, None));
    sets.listed(at(10));
    assert_eq!(take(&mut sets, at(12)), Some((1, "a".into())));
    let empty = FileStamp { size: 0, ..stamp(1) };
    sets.seen(2, "a", empty, FileSign::Made, at(20));
    sets.listed(at(50));
    assert_eq!(sets.complete(at(99)), None, "somebody is about to write it");
    sets.seen(2, "a", stamp(2), FileSign::Written, at(100));
    sets.listed(at(130));
    assert_eq!(sets.complete(at(199)), None);
    sets.seen(2, "a", stamp(2), FileSign::Finished, at(200));
    assert_eq!(take(&mut sets, at(202)), Some((2, "a".into())));
}

#[derive(Clone, Debug)]
enum Act {
    Write(u64, usize, FileSign),
    Remove(u64, usize),
    Wait(u64),
    Take,
    Missed,
}

fn act() -> impl Strategy<Value = Act> {
    let signs = vec![FileSign::Found, FileSign::Made, FileSign::Written, FileSign::Finished];
    let sign = proptest::sample::select(signs);
    prop_oneof![
        6 => (0u64..3, 0usize..4, sign).prop_map(|(step, file, sign)| Act::Write(step, file, sign)),
        1 => (0u64..3, 0usize..4).prop_map(|(step, file)| Act::Remove(step, file)),
        4 => (0u64..3000).prop_map(Act::Wait),
        4 => Just(Act::Take),
        1 => Just(Act::Missed),
    ]
}

/// The files that are really there, and those that were taken.
#[derive(Default)]
struct World {
    now: Moment,
    next: u64,
    /// FileStamp, when it last changed or was closed, and whether it is open.
    files: BTreeMap<(u64, String), (FileStamp, Moment, bool)>,
    /// Every set that was taken, by step.
    taken: BTreeMap<u64, Vec<BTreeMap<String, FileStamp>>>,
}

impl World {
    fn write(&mut self, sets: &mut Sets, step: u64, name: String, sign: FileSign) {
        if !sets.knows(step) {
            let all = self.taken.get(&step).into_iter().flatten().rev().enumerate();
            sets.begin(
                step,
                all.flat_map(|(age, set)| {
                    set.iter().map(move |(name, s)| (name.clone(), s.size, s.modified, age == 0))
                }),
            );
        }
        self.next += 1;
        let stamp = stamp(self.next);
        let known = sets.seen(step, &name, stamp, sign, self.now);
        assert!(!known);
        let open = match sign {
            FileSign::Found => self
                .files
                .get(&(step, name.clone()))
                .is_some_and(|(s, _, open)| *open && !self.is_taken(step, &name, *s)),
            sign => sign != FileSign::Finished,
        };
        self.files.insert((step, name), (stamp, self.now, open));
    }

    fn is_taken(&self, step: u64, name: &str, stamp: FileStamp) -> bool {
        let all = self.taken.get(&step).into_iter().flatten();
        all.into_iter().any(|set| set.get(name) == Some(&stamp))
    }

    fn take(&mut self, sets: &mut Sets, files: Option<usize>) -> bool {
        let Some(set) = sets.complete(self.now) else {
            return false;
        };
        assert!(set.files.len() >= files.unwrap_or(1), "{set:?}");
        let (mut old, mut rewritten) = (0, 0);
        for (name, stamp) in &set.files {
            let (there, since, open) = self.files[&(set.step, name.clone())];
            assert_eq!(there, *stamp, "{set:?} has a file as it was");
            if self.is_taken(set.step, name, *stamp) {
                old += 1;
                continue;
            }
            assert!(!open && self.now >= since + SETTLE, "{set:?} has a file that is not finished");
            let all = self.taken.get(&set.step).into_iter().flatten();
            rewritten += usize::from(all.into_iter().any(|set| set.contains_key(name)));
        }
        assert!(old == 0 || rewritten == 0, "{set:?} mixes old files and new ones");
        assert!(old < set.files.len(), "{set:?} was taken before");
        sets.taken(&set, self.now);
        self.taken.entry(set.step).or_default().push(set.files);
        true
    }
}

proptest! {
    /// Whatever programs do: no set has an unfinished file or too few, none is taken twice, old and
    /// new files are not mixed; and when the programs rest, nothing that is enough is left.
    #[test]
    fn sets_keep_their_law(
        acts in proptest::collection::vec(act(), 0..80),
        files in proptest::option::of(1usize..4),
    ) {
        let (mut sets, mut world) = (sets(files), World::default());
        for act in acts {
            match act {
                Act::Write(step, file, sign) => {
                    world.write(&mut sets, step, file.to_string(), sign);
                }
                Act::Remove(step, file) => {
                    world.files.remove(&(step, file.to_string()));
                    sets.gone(step, &file.to_string());
                }
                Act::Wait(milliseconds) => world.now += Duration::from_millis(milliseconds),
                Act::Take => drop(world.take(&mut sets, files)),
                Act::Missed => {
                    sets.missed(world.now);
                    for (_, since, open) in world.files.values_mut() {
                        (*since, *open) = (world.now, false);
                    }
                }
            }
        }
        sets.missed(world.now);
        world.files.values_mut().for_each(|(_, _, open)| *open = false);
        world.now += SETTLE;
        while world.take(&mut sets, files) {}
        for step in 0..3 {
            let own = world.files.iter().filter(|((of, _), _)| *of == step);
            let left = own.filter(|((_, name), (stamp, ..))| !world.is_taken(step, name, *stamp));
            prop_assert!(left.count() < files.unwrap_or(usize::MAX));
        }
    }
}

#[test]
fn held_files_are_looked_at_when_they_close_and_after_growing_pauses() {
    let ms = Duration::from_millis;
    let mut sets = sets(Some(2));
    find(&mut sets, 1, "ab", 1, at(0));
    assert!(sets.complete(at(2)).is_some());
    assert!(!sets.hold(1, &["a"], at(2)), "it is too early to report");
    assert_eq!((sets.complete(at(2)), sets.wake(at(2))), (None, Some(at(2) + ms(100))));
    let again = at(2) + ms(100);
    assert!(sets.complete(again).is_some());
    assert!(!sets.hold(1, &["a"], again));
    assert_eq!(sets.wake(again), Some(again + ms(200)));
    // The pause grows, up to 30 seconds, and the wait is reported once.
    let (mut now, mut reports) = (again, 0);
    for _ in 0..20 {
        now = sets.wake(now).unwrap();
        assert!(sets.complete(now).is_some());
        reports += u32::from(sets.hold(1, &["a"], now));
    }
    assert_eq!((reports, sets.wake(now)), (1, Some(now + at(30))));
    // Closing ends the pause at once; the settle time begins anew.
    sets.seen(1, "a", stamp(1), FileSign::Finished, now + at(1));
    assert_eq!(sets.complete(now + at(2)), None);
    assert_eq!(take(&mut sets, now + at(3)), Some((1, "ab".into())));
}

#[test]
fn held_files_that_are_written_again_wait_for_their_closing() {
    let mut sets = sets(Some(1));
    find(&mut sets, 1, "a", 1, at(0));
    sets.hold(1, &["a"], at(2));
    sets.seen(1, "a", stamp(2), FileSign::Written, at(3));
    assert_eq!((sets.complete(at(99)), sets.wake(at(99))), (None, None));
    sets.seen(1, "a", stamp(3), FileSign::Finished, at(99));
    assert_eq!(take(&mut sets, at(101)), Some((1, "a".into())));
    // Others are not held up.
    find(&mut sets, 2, "a", 1, at(200));
    find(&mut sets, 3, "a", 1, at(200));
    assert_eq!(sets.complete(at(202)).unwrap().step, 2);
    sets.hold(2, &["a"], at(202));
    assert_eq!(take(&mut sets, at(202)), Some((3, "a".into())));
}
