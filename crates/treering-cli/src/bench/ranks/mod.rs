//! `bench ranks`: what a checkpoint of many ranks costs its store, how much a restart reads, how large shared packs are,
//! and the five configurations of mcrEngine's evaluation on a slow store.

mod counting;
mod restart;
mod scale;
mod sizes;
mod transfer;

use super::Options;
use crate::output;
use serde_json::json;
use treering::Result;

pub fn run(options: &Options, json: bool) -> Result<()> {
    // Parts take minutes, so each is shown when it is done.
    let text = !json;
    let scales = scale::run()?;
    text.then(|| scale::show(&scales));
    let readers = restart::readers(options)?;
    let boxes = restart::boxes(options)?;
    text.then(|| restart::show(&readers, &boxes));
    let sizes = sizes::run(options)?;
    text.then(|| sizes::show(&sizes));
    let ends = transfer::run(options)?;
    if text {
        transfer::show(&ends, options);
        return Ok(());
    }
    output::json(&json!({
        "simulated": scales, "restart": readers, "boxes": boxes, "packs": sizes, "ends": ends,
    }))
}
