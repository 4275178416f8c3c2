//! The ranks that share a pack, behind their programs: members hand their stages to the leader, which tells them what has
//! become of the checkpoint.
//!
//! The processes of a node talk through sockets ([`io::Post`](crate::io::Post)), never through the program's
//! communicator: only the program's thread may use that. A member hands over one stage at a time and keeps nothing once
//! the leader has told it that the checkpoint is published. The law: a checkpoint of a group is published with the stage of
//! every member, or fails for all of them. A process that dies is noticed by its socket; of a rank that is killed as a
//! thread the program's thread hears, and it breaks the team up. Where ranks survive each other, the first member is the
//! leader's deputy: it gets the pack, before that is written, and finishes it if the leader is gone ([`ImagePut`]).
//!
//! [`ImagePut`]: super::image::ImagePut

use super::aggregator::{Aggregator, Hander};
use super::image::EntrustedPack;
use super::seats::GroupSeat;
use super::stage::MemberStage;
use crate::array::{Rank, Sequence};
use crate::comm::{Wire, garbled, wire};
use crate::error::{Error, ErrorKind, Result};
use crate::format::Branch;
use crate::io::{Post, PostOffice};
use crate::points::reach;
use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// The stack of a thread that waits for letters.
const STACK: usize = 256 << 10;

enum TeamLetter {
    /// A member names itself.
    Hello { rank: u32 },
    /// A stage comes along, whose head lies there.
    Staged { sequence: u64, head: u64 },
    /// A member, or the leader, could not do its part.
    Failed { sequence: u64, code: u8, what: String },
    /// The pack of the group comes along; this is the section that is published with it.
    Entrusted { sequence: u64, section: Vec<u8> },
    /// The leader has published the section. The frames of the member's part begin at this position of the pack, if they
    /// lie there as they were.
    Published { sequence: u64, at: Option<u64> },
}

wire! {
    enum TeamLetter {
        0 Hello { rank },
        1 Staged { sequence, head },
        2 Failed { sequence, code, what },
        3 Entrusted { sequence, section },
        4 Published { sequence, at },
    }
}

impl TeamLetter {
    fn failed(sequence: Sequence, error: &Error) -> TeamLetter {
        let (code, what) = (error.kind().code(), error.to_string());
        TeamLetter::Failed { sequence: sequence.0, code, what }
    }

    fn send(&self, post: &Post, memory: Option<&File>) -> Result<()> {
        post.send(&self.to_letter(), memory)
    }
}

fn reported(code: u8, what: String) -> Error {
    Error::new(ErrorKind::from_code(code).unwrap_or(ErrorKind::Io), what)
}

/// The part of a rank in its group.
pub(crate) enum Team {
    /// The rank has its pack for itself.
    Alone,
    Leader(Leader),
    Member(Member),
    /// The rank hands everything to an aggregator.
    Hander(Hander),
    /// The rank is the aggregator.
    Aggregator(Box<Aggregator>),
}

/// Ends all waiting for other ranks of the group.
#[derive(Clone, Default)]
pub(crate) struct TeamBreaker(Arc<Vec<Post>>);

impl TeamBreaker {
    pub(crate) fn break_up(&self) {
        self.0.iter().for_each(Post::close);
    }
}

/// A team whose members have been told where to meet.
pub(crate) enum TeamMeeting {
    Leads(PostOffice),
    Joins(Post),
    Hands(Hander),
    Alone,
}

impl TeamMeeting {
    /// Opens the office of a leader.
    pub(crate) fn lead(random: [u64; 6]) -> Result<TeamMeeting> {
        PostOffice::open(random).map(TeamMeeting::Leads)
    }

    /// Goes to the leader's office.
    pub(crate) fn join(rank: Rank, address: &[u8]) -> Result<TeamMeeting> {
        let post = Post::connect(address)?;
        TeamLetter::Hello { rank: rank.0 }.send(&post, None)?;
        Ok(TeamMeeting::Joins(post))
    }

    /// Begins to work, when every member has come to its leader's office.
    pub(crate) fn begin(self, seat: &GroupSeat, survives: bool) -> Result<(Team, TeamBreaker)> {
        match self {
            TeamMeeting::Alone => Ok((Team::Alone, TeamBreaker::default())),
            TeamMeeting::Joins(post) => {
                let breaker = TeamBreaker(Arc::new(vec![post.again()?]));
                Ok((Team::Member(Member { post }), breaker))
            }
            TeamMeeting::Hands(hander) => {
                let breaker = TeamBreaker(Arc::new(vec![hander.post()?]));
                Ok((Team::Hander(hander), breaker))
            }
            TeamMeeting::Leads(office) => {
                let mut posts = Vec::new();
                for _ in 1..seat.members.len() {
                    posts.push(office.accept()?);
                }
                let again = posts.iter().map(Post::again).collect::<Result<_>>()?;
                let leader = Leader::start(posts, &seat.members[1..], survives)?;
                Ok((Team::Leader(leader), TeamBreaker(Arc::new(again))))
            }
        }
    }
}

/// A member's end.
pub(crate) struct Member {
    post: Post,
}

/// The fate of a stage.
pub(super) enum StageEnd {
    /// It is published. Where its frames begin in the pack, if they lie there as they were.
    Published(Option<u64>),
    /// The leader is gone, and has left its pack to this rank.
    Left(Box<EntrustedPack>),
}

impl Member {
    /// Hands a stage over and waits until it is published.
    pub(super) fn publish(&self, sequence: Sequence, stage: &File, head: u64) -> Result<StageEnd> {
        TeamLetter::Staged { sequence: sequence.0, head }
            .send(&self.post, Some(stage))
            .map_err(|_| leader_is_gone())?;
        reach("stage-handed-over");
        let mut entrusted = None;
        loop {
            let Some(letter) = self.post.receive()? else {
                let left = entrusted.map(|pack| StageEnd::Left(Box::new(pack)));
                return left.ok_or_else(leader_is_gone);
            };
            match TeamLetter::from_letter(&letter.bytes)? {
                TeamLetter::Published { sequence: of, at } if of == sequence.0 => {
                    return Ok(StageEnd::Published(at));
                }
                TeamLetter::Entrusted { sequence: of, section } if of == sequence.0 => {
                    let section = Branch::parse(&section)?;
                    let pack = letter.memory.map(|image| EntrustedPack { image, section });
                    entrusted = pack.filter(|pack| pack.section.part.sequence == sequence);
                }
                TeamLetter::Failed { sequence: of, code, what } if of == sequence.0 => {
                    return Err(reported(code, what));
                }
                // The fate of an earlier checkpoint that this rank gave up.
                _ => {}
            }
        }
    }

    /// Tells the leader that there is no stage.
    pub(super) fn fail(&self, sequence: Sequence, error: &Error) {
        // A leader that is gone needs no letter.
        let _ = TeamLetter::failed(sequence, error).send(&self.post, None);
    }
}

fn leader_is_gone() -> Error {
    Error::new(ErrorKind::Dead, "the rank that writes the pack of this group is gone")
}

enum StageEvent {
    Staged(Sequence, File, u64),
    Failed(Sequence, Error),
    Gone,
}

/// The leader's end.
pub(crate) struct Leader {
    members: Vec<Rank>,
    posts: HashMap<Rank, Post>,
    events: Receiver<(Rank, StageEvent)>,
    /// A member that will never hand over anything again.
    gone: Option<Rank>,
    /// Where the parts of members begin in the newest pack.
    places: HashMap<Rank, u64>,
    /// The member that finishes a pack if this rank dies.
    deputy: Option<Rank>,
}

impl Leader {
    fn start(posts: Vec<Post>, members: &[Rank], survives: bool) -> Result<Leader> {
        let (sender, events) = channel();
        let mut by_rank = HashMap::new();
        let mut gone = None;
        for post in posts {
            let hello = post.receive()?.map(|letter| TeamLetter::from_letter(&letter.bytes));
            let Some(Ok(TeamLetter::Hello { rank })) = hello else {
                // It died right after it had connected; its number is among those that are missing.
                continue;
            };
            let (post_of_thread, sender) = (post.again()?, sender.clone());
            let thread = std::thread::Builder::new().name("treering-stages".into());
            let read = move || receive_all(Rank(rank), &post_of_thread, &sender);
            let started = thread.stack_size(STACK).spawn(read);
            started.map_err(|e| Error::io("cannot start the threads of a run", e))?;
            by_rank.insert(Rank(rank), post);
        }
        for member in members {
            if !by_rank.contains_key(member) {
                gone = Some(*member);
            }
        }
        let (members, places) = (members.to_vec(), HashMap::new());
        let deputy = members.first().copied().filter(|_| survives);
        Ok(Leader { members, posts: by_rank, events, gone, places, deputy })
    }

    /// Waits for the stages of all members, in the order of ranks.
    pub(super) fn collect(&mut self, sequence: Sequence) -> Result<Vec<MemberStage>> {
        let mut stages: HashMap<Rank, MemberStage> = HashMap::new();
        self.places.clear();
        while stages.len() < self.members.len() {
            if let Some(rank) = self.gone {
                let what = format!("rank {rank}, which shares this pack, is gone");
                return Err(Error::new(ErrorKind::Lost, what));
            }
            let Ok((rank, event)) = self.events.recv() else {
                self.gone = self.members.first().copied();
                continue;
            };
            match event {
                StageEvent::Gone => self.gone = Some(rank),
                StageEvent::Failed(of, error) if of == sequence => {
                    return Err(error.at(format!("rank {rank}")));
                }
                StageEvent::Staged(of, file, head) if of == sequence => {
                    let stage = MemberStage::open(file, head);
                    let stage = stage.map_err(|error| error.at(format!("rank {rank}")))?;
                    if (stage.head.sequence, stage.head.rank) != (sequence, rank) {
                        return Err(garbled().at(format!("rank {rank}")));
                    }
                    stages.insert(rank, stage);
                }
                // Of a checkpoint that has failed already.
                _ => {}
            }
        }
        reach("stages-collected");
        Ok(self.members.iter().filter_map(|rank| stages.remove(rank)).collect())
    }

    /// Whether there is somebody to leave a pack to.
    pub(super) fn has_deputy(&self) -> bool {
        self.deputy.is_some()
    }

    /// Leaves a pack and its section to the deputy. If that is not there, or not in time, nothing is worse than without.
    pub(super) fn entrust(&self, image: &File, section: &Branch) {
        let (sequence, section) = (section.part.sequence.0, section.write());
        if let Some(post) = self.deputy.and_then(|deputy| self.posts.get(&deputy)) {
            let _ = TeamLetter::Entrusted { sequence, section }.send(post, Some(image));
        }
        reach("pack-entrusted");
    }

    /// Notes where the part of a member begins in the pack that is being joined.
    pub(super) fn places(&mut self, rank: Rank, at: Option<u64>) {
        self.places.extend(at.map(|at| (rank, at)));
    }

    /// Tells the members what has become of a checkpoint.
    pub(super) fn tell(&self, sequence: Sequence, outcome: std::result::Result<(), &Error>) {
        for (rank, post) in &self.posts {
            let letter = match outcome {
                Ok(()) => {
                    let at = self.places.get(rank).copied();
                    TeamLetter::Published { sequence: sequence.0, at }
                }
                Err(error) => TeamLetter::failed(sequence, error),
            };
            // Members that are gone hear nothing.
            let _ = letter.send(post, None);
        }
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        // The threads that wait for letters end with their connections.
        self.posts.values().for_each(Post::close);
    }
}

/// Passes on everything that a member sends.
fn receive_all(rank: Rank, post: &Post, events: &Sender<(Rank, StageEvent)>) {
    loop {
        let letter = post.receive();
        let event = match letter {
            Ok(Some(letter)) => match (TeamLetter::from_letter(&letter.bytes), letter.memory) {
                (Ok(TeamLetter::Staged { sequence, head }), Some(memory)) => {
                    StageEvent::Staged(Sequence(sequence), memory, head)
                }
                (Ok(TeamLetter::Failed { sequence, code, what }), _) => {
                    StageEvent::Failed(Sequence(sequence), reported(code, what))
                }
                _ => StageEvent::Gone,
            },
            Ok(None) | Err(_) => StageEvent::Gone,
        };
        let last = matches!(event, StageEvent::Gone);
        if events.send((rank, event)).is_err() || last {
            return;
        }
    }
}
