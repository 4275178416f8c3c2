//! The ranks find out, together, which of them have packs of a checkpoint on their nodes.

use super::ranks::RankSide;
use crate::array::{GroupId, Rank, Sequence};
use crate::comm::{Wire, wire};
use crate::error::Result;
use crate::format::{Group, Manifest, Names, PackName, WriterId};
use crate::log::FullManifest;
use crate::restore::{NearGroup, NodeView, near_readers};
use crate::save::Tiers;
use std::collections::BTreeMap;

/// Report of a rank on its node.
struct NodeReport {
    node: String,
    group: u32,
    /// The packs in its store (opening, random number, number, group), from one rank of the node.
    packs: Vec<(u64, u64, u64, u32)>,
}

wire! { struct NodeReport { node, group, packs } }

/// The reader of each group of a checkpoint, if that is not whoever wants it; collective. `in_place`: the groups are
/// those of the checkpoint.
pub(super) fn readers_near(
    ranks: &RankSide,
    tiers: &Tiers,
    manifest: &Manifest,
    group: GroupId,
    in_place: bool,
) -> Result<Option<Vec<Rank>>> {
    let comm = ranks.comm();
    // A node that cannot be listed serves nothing; the shared store has everything.
    let packs = match ranks.lists_node() {
        true => packs_on(tiers, manifest).unwrap_or_default(),
        false => Vec::new(),
    };
    let report = NodeReport { node: comm.node().to_string(), group: group.0, packs };
    let reports = comm.gather(Rank(0), &report.to_letter())?;
    let mut table = Vec::new();
    if comm.rank() == Rank(0) {
        let reports: Option<Vec<NodeReport>> =
            reports.iter().map(|report| NodeReport::from_letter(report).ok()).collect();
        let full = FullManifest::read(tiers.last.as_ref(), manifest.clone());
        // Objects that cannot be read are reported by the ranks that load them.
        if let (Some(reports), Ok(full)) = (reports, full) {
            let readers = plan(reports, full.groups(), &manifest.run, comm.size(), in_place);
            let readers = readers.unwrap_or_default();
            table = readers.iter().flat_map(|rank| rank.0.to_le_bytes()).collect();
        }
    }
    comm.broadcast(Rank(0), &mut table)?;
    let word = |b: &[u8]| Rank(u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    let readers: Vec<Rank> = table.chunks_exact(4).map(word).collect();
    Ok((!readers.is_empty()).then_some(readers))
}

/// The packs of a run that a node holds, from the epoch of a checkpoint on.
fn packs_on(tiers: &Tiers, manifest: &Manifest) -> Result<Vec<(u64, u64, u64, u32)>> {
    let mut all = Vec::new();
    for tier in &tiers.near {
        let items = tier.list(&Names::new(&manifest.run).packs())?;
        let packs = items.iter().filter_map(|item| Names::parse_pack(&item.name));
        let packs = packs.filter(|pack| pack.attempt >= manifest.epoch.sequence.0);
        let told = packs.map(|p| (p.writer.opening.0, p.writer.nonce, p.attempt, p.group.0));
        all.extend(told);
    }
    Ok(all)
}

fn plan(
    reports: Vec<NodeReport>,
    groups: &[Group],
    run: &str,
    ranks: u32,
    in_place: bool,
) -> Option<Vec<Rank>> {
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    let mut nodes: Vec<NodeView> = Vec::new();
    let mut seats: BTreeMap<u32, usize> = BTreeMap::new();
    for (rank, report) in (0..).map(Rank).zip(reports) {
        let number = *numbers.entry(report.node).or_insert(nodes.len());
        if number == nodes.len() {
            nodes.push(NodeView::default());
        }
        nodes[number].ranks.push(rank);
        seats.insert(report.group, number);
        let packs = report.packs.into_iter().map(|(opening, nonce, attempt, group)| PackName {
            writer: WriterId { opening: Sequence(opening), nonce },
            attempt,
            group: GroupId(group),
        });
        nodes[number].packs.extend(packs);
    }
    let near = |(number, group): (u32, &Group)| NearGroup {
        packs: group.names(GroupId(number)).map(|(of, pack)| (of == run).then_some(pack)).collect(),
        size: group.seal.size,
        seat: seats.get(&number).copied().filter(|_| in_place),
    };
    let groups: Vec<NearGroup> = (0..).zip(groups).map(near).collect();
    near_readers(&groups, &nodes, ranks)
}
