//! Programs find the MPI library that they were built with.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if let Ok(folder) = std::env::var("DEP_TREERING_MPI_RPATH") {
        println!("cargo:rustc-link-arg-bins=-Wl,-rpath,{folder}");
    }
}
