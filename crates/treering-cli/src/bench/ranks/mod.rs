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
    let bar = output::progress("simulating ranks");
    let scales = scale::run()?;
    bar.set_message("restarting");
    let readers = restart::readers(options)?;
    let boxes = restart::boxes(options)?;
    bar.set_message("packing");
    let sizes = sizes::run(options)?;
    bar.set_message("writing to a slow store");
    let ends = transfer::run(options)?;
    bar.finish_and_clear();
    if json {
        return output::json(&json!({
            "simulated": scales, "restart": readers, "boxes": boxes, "packs": sizes, "ends": ends,
        }));
    }
    scale::show(&scales);
    restart::show(&readers, &boxes);
    sizes::show(&sizes);
    transfer::show(&ends, options);
    Ok(())
}
