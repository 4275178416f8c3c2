//! `bench replica`: messages and bytes of replicas at the rank that has the most, for up to 24,576 simulated ranks, and
//! both ways to place copies that are made again after deaths: time of a lookup, balance, messages and loss. Times over MPI come from the example `replica_bench` of `treering-mpi`: `make bench-replica` runs both.

use super::Options;
use crate::output;
use serde::Serialize;
use serde_json::json;
use std::time::Instant;
use treering::{
    Probing, RemakeFigures, RemakeScale, ReplicaCount, ReplicaOperation, ReplicaScale,
    ReplicaSettings, Result,
};

/// Nodes of 48 ranks, as in the paper.
const NODE: u32 = 48;
const RANKS: [u32; 6] = [48, 192, 768, 3_072, 12_288, 24_576];
/// 16 MiB of every rank in blocks of 64 bytes.
const BLOCKS: u64 = (16 << 20) / 64;

/// The counts of an operation on this many ranks.
#[derive(Serialize)]
struct Row {
    ranks: u32,
    copies: u32,
    range_kib: u64,
    permuted: bool,
    operation: &'static str,
    messages_sent: u64,
    messages_received: u64,
    bytes_sent: u64,
    bytes_received: u64,
}

/// The figures of one way to place copies that are made again.
#[derive(Serialize)]
struct RemakeRow {
    distribution: &'static str,
    ranks: u32,
    copies: u32,
    rounds: u32,
    deaths: u32,
    lookup_ns: f64,
    probes: f64,
    imbalance: f64,
    transfers: u64,
    messages: u64,
    most_messages: u64,
    lost: u64,
    lost_without_remaking: u64,
}

/// Deaths one at a time, and more of them at once than there are copies.
const REMAKES: [RemakeScale; 3] = [remakes(192, 64, 1), remakes(768, 64, 4), remakes(768, 16, 48)];

const fn remakes(ranks: u32, rounds: u32, deaths_per_round: u32) -> RemakeScale {
    let (per_node, copies, ranges_per_rank, seed) = (1, 4, 64, 1);
    RemakeScale { ranks, per_node, copies, ranges_per_rank, rounds, deaths_per_round, seed }
}

pub fn run(_options: &Options, json: bool) -> Result<()> {
    let mut rows = Vec::new();
    for ranks in RANKS {
        rows.extend(count(ranks, 4, 256, true)?);
    }
    let most = RANKS[RANKS.len() - 1];
    for (copies, range_kib, permuted) in [
        (4, 256, false),
        (4, 64, true),
        (4, 1024, true),
        (1, 256, true),
        (2, 256, true),
        (3, 256, true),
    ] {
        rows.extend(count(most, copies, range_kib, permuted)?);
    }
    let mut remakes = Vec::new();
    for scale in REMAKES {
        remakes.extend(compare(scale)?);
    }
    if json {
        return output::json(&json!({
            "node_ranks": NODE,
            "bytes_per_rank": BLOCKS * 64,
            "counts": rows,
            "remakes": remakes,
        }));
    }
    show(&rows);
    show_remakes(&remakes);
    Ok(())
}

/// Both distributions of the paper's appendix under the same deaths.
fn compare(scale: RemakeScale) -> Result<[RemakeRow; 2]> {
    let start = Instant::now();
    let row = |(probing, distribution)| {
        let figures: RemakeFigures = scale.figures(probing, || start.elapsed())?;
        Ok(RemakeRow {
            distribution,
            ranks: scale.ranks,
            copies: scale.copies,
            rounds: scale.rounds,
            deaths: figures.deaths,
            lookup_ns: figures.lookup.as_secs_f64() * 1e9,
            probes: figures.probes,
            imbalance: figures.imbalance(),
            transfers: figures.transfers,
            messages: figures.messages,
            most_messages: figures.most_messages,
            lost: figures.lost,
            lost_without_remaking: figures.lost_without_remaking,
        })
    };
    let [first, second] =
        [(Probing::DoubleHashing, "double hashing"), (Probing::Permutation, "permutation")];
    Ok([row(first)?, row(second)?])
}

fn count(ranks: u32, copies: u32, range_kib: u64, permuted: bool) -> Result<Vec<Row>> {
    let settings = ReplicaSettings {
        range_blocks: (range_kib << 10) / 64,
        seed: permuted.then_some(0),
        ..ReplicaSettings::default()
    };
    let scale = ReplicaScale { ranks, per_node: NODE, copies, blocks: BLOCKS, settings };
    let row = |counted: ReplicaCount| Row {
        ranks,
        copies,
        range_kib,
        permuted,
        operation: name(counted.operation),
        messages_sent: counted.messages_sent,
        messages_received: counted.messages_received,
        bytes_sent: counted.bytes_sent,
        bytes_received: counted.bytes_received,
    };
    ReplicaOperation::ALL.into_iter().map(|operation| scale.count(operation).map(row)).collect()
}

fn name(operation: ReplicaOperation) -> &'static str {
    match operation {
        ReplicaOperation::Submit => "submit",
        ReplicaOperation::LoadHundredth => "load 1 % of the data",
        ReplicaOperation::LoadOneByAll => "load one rank's data, by all",
        ReplicaOperation::LoadOneByOne => "load one rank's data, by one",
        ReplicaOperation::LoadAll => "load all data",
    }
}

fn show(rows: &[Row]) {
    output::line(format!(
        "Messages and bytes at the rank that has the most; {} of every rank, nodes of {NODE} ranks.",
        output::bytes(BLOCKS * 64)
    ));
    let cells = |row: &Row| {
        vec![
            row.operation.to_string(),
            row.ranks.to_string(),
            row.copies.to_string(),
            format!("{} KiB", row.range_kib),
            if row.permuted { "on" } else { "off" }.to_string(),
            row.messages_sent.to_string(),
            row.messages_received.to_string(),
            output::bytes(row.bytes_sent),
            output::bytes(row.bytes_received),
        ]
    };
    let header = [
        "",
        "ranks",
        "copies",
        "ranges",
        "permutation",
        "messages sent",
        "received",
        "bytes sent",
        "received",
    ];
    output::line(output::table(&header, &[0], rows.iter().map(cells)));
}

fn show_remakes(rows: &[RemakeRow]) {
    output::line("\nCopies made again after every round of deaths, 64 ranges per rank:");
    let cells = |row: &RemakeRow| {
        vec![
            row.distribution.to_string(),
            row.ranks.to_string(),
            row.copies.to_string(),
            format!("{} in {} rounds", row.deaths, row.rounds),
            format!("{:.0} ns", row.lookup_ns),
            format!("{:.2}", row.probes),
            format!("{:.3}", row.imbalance),
            row.transfers.to_string(),
            row.messages.to_string(),
            row.most_messages.to_string(),
            row.lost.to_string(),
            row.lost_without_remaking.to_string(),
        ]
    };
    let header = [
        "",
        "ranks",
        "copies",
        "deaths",
        "lookup",
        "ranks looked at",
        "fullest / mean",
        "copies made",
        "messages",
        "most of a rank",
        "ranges lost",
        "without remaking",
    ];
    output::line(output::table(&header, &[0, 3], rows.iter().map(cells)));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Deaths one at a time lose nothing; with many more deaths at once than copies, both ways lose data.
    #[test]
    fn both_distributions_are_compared_under_the_same_deaths() {
        for (scale, loses) in [(remakes(96, 24, 1), false), (remakes(96, 4, 24), true)] {
            let [hashed, permuted] = compare(scale).unwrap();
            assert_eq!(hashed.deaths, permuted.deaths);
            assert_eq!(hashed.lost_without_remaking, permuted.lost_without_remaking);
            for row in [hashed, permuted] {
                assert_eq!(row.lost > 0, loses, "{} lost", row.lost);
                assert!(row.lost <= row.lost_without_remaking && row.imbalance < 1.6);
                assert!(row.messages <= row.transfers && row.lookup_ns > 0.0);
            }
        }
    }

    #[test]
    fn permutation_spreads_the_data_of_one_rank_over_many_senders() {
        let row = |permuted| count(768, 4, 256, permuted).unwrap().remove(3);
        let (on, off) = (row(true), row(false));
        assert_eq!((on.operation, off.operation), ("load one rank's data, by one", on.operation));
        // 64 ranges from as many senders, or all of them from a few.
        assert!(on.bytes_sent * 4 < off.bytes_sent, "{} and {}", on.bytes_sent, off.bytes_sent);
        assert!(on.messages_sent > off.messages_sent);
    }
}
