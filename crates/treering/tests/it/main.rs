//! The behaviour of the library as a whole, through its public face: one binary, so that the library is
//! linked once.

mod arrays;
mod behaviour;
mod bounded;
mod codecs;
mod compact;
mod compare;
mod contents;
mod damage;
mod differences;
mod full_disk;
mod golden;
mod groups;
mod ingest;
mod laws;
mod levels;
mod lineage_model;
mod load;
mod mishaps;
mod model;
mod pack_size;
mod paper_tree;
mod parsers;
mod power_cut;
mod rank_compare;
mod rank_tools;
mod ranks;
mod rooms;
mod rounded;
mod shared_work;
mod source;
mod store_calls;
mod store_suite;
mod tiers;
mod writers;
