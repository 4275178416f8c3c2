//! `bench replica`: messages and bytes of replicas at the rank that has the most, for up to 24,576 simulated ranks.
//! Times over MPI come from the example `replica_bench` of `treering-mpi`: `make bench-replica` runs both.

use super::Options;
use crate::output;
use serde::Serialize;
use serde_json::json;
use treering::{ReplicaCount, ReplicaOperation, ReplicaScale, ReplicaSettings, Result};

/// Nodes of 48 ranks, as in the paper.
const NODE: u32 = 48;
const RANKS: [u32; 6] = [48, 192, 768, 3_072, 12_288, 24_576];
/// 16 MiB of every rank in blocks of 64 bytes.
const BLOCKS: u64 = (16 << 20) / 64;

/// The counts of an operation on so many ranks.
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
    if json {
        return output::json(
            &json!({ "node_ranks": NODE, "bytes_per_rank": BLOCKS * 64, "counts": rows }),
        );
    }
    show(&rows);
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

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
