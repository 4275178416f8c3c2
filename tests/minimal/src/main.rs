//! Saves a state, and a second run of the same program restores it: what treering does without its default features.

use treering::{Error, Options, Run, Variable, VariableMut};

/// A rod that is heated for some steps, from the newest checkpoint on; the step that it began with.
fn heat(store: &std::path::Path, steps: u64) -> Result<u64, Error> {
    let mut heat = vec![0.0f64; 1000];
    let mut run = Run::open(Options::directory(store, "rod").keep(2, None))?;
    let restored = run.restore(&mut [VariableMut::new("heat", &mut heat)])?;
    let first = restored.map_or(0, |restored| restored.step + 1);
    assert_eq!(heat.iter().sum::<f64>(), first as f64);
    for step in first..first + steps {
        heat[step as usize] += 1.0; // the simulation
        run.checkpoint(step, &[Variable::new("heat", &heat)])?;
    }
    run.finish()?;
    Ok(first)
}

fn main() -> Result<(), Error> {
    let store = std::env::temp_dir().join(format!("treering-minimal-{}", std::process::id()));
    let begun = [heat(&store, 5)?, heat(&store, 5)?];
    let removed = std::fs::remove_dir_all(&store);
    assert_eq!(begun, [0, 5]);
    assert!(removed.is_ok());
    println!("a program without tools saves and restores");
    Ok(())
}
