//! Compiles the shim with the MPI's own compiler wrapper, and links what the wrapper links.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=MPICC");
    println!("cargo:rerun-if-changed=src/shim.c");
    let mpicc = std::env::var("MPICC").unwrap_or_else(|_| "mpicc".to_string());
    let shown = Command::new(&mpicc).arg("-show").output();
    let shown = match shown {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).into_owned()
        }
        _ => {
            println!(
                "cargo:error=cannot run the MPI compiler {mpicc:?}; put mpicc on the PATH, or name it in MPICC"
            );
            std::process::exit(1);
        }
    };
    let mut build = cc::Build::new();
    build.file("src/shim.c").warnings(true);
    for flag in shown.split_whitespace() {
        match flag.split_at(flag.len().min(2)) {
            ("-I", folder) => drop(build.include(folder)),
            ("-L", folder) => {
                println!("cargo:rustc-link-search=native={folder}");
                // Programs find the library that they were built with.
                println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
                println!("cargo:rpath={folder}");
            }
            ("-l", library) => println!("cargo:rustc-link-lib={library}"),
            _ => {}
        }
    }
    build.compile("treering_mpi_shim");
}
