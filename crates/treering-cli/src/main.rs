mod bench { pub mod limits; pub mod pattern; }
use bench::*; use bench::pattern::*; use treering::*;
fn main(){ 
 let mb: usize = std::env::args().nth(1).unwrap().parse().unwrap();
 let chunks: Vec<u64> = std::env::args().nth(2).unwrap().split(',').map(|x|x.parse().unwrap()).collect();
 let dir=tempfile::tempdir_in("/work/scratch").unwrap();
 for (touch,name) in Touch::ALL { for &c in &chunks {
 let mut p=Pattern::new(mb<<20,touch);
 let bytes: Vec<u8> = p.table.iter().flat_map(|x|x.to_le_bytes()).collect();
 let read=limits::memory_read(&bytes); let copy=limits::memory_copy(&bytes); drop(bytes);
 let n=p.table.len()*4;
 let o=Options::directory(dir.path(), &format!("{name}{c}")).chunk(ChunkSize::new(c).unwrap()).encoding(Encoding::Raw).staging(2<<30).record(4<<30);
 let mut run=Run::open(o).unwrap();
 let mut best=f64::MAX; let mut all=vec![];
 for s in 0..21 { if s>0 {p.step();} let sv=run.checkpoint(s,&[Variable::new("t",&p.table)]).unwrap(); sv.durable().unwrap(); let b=sv.blocked().as_secs_f64(); if s>0 {best=best.min(b); all.push(b)} else {print!("first {:.2}x copy ",b/copy)} }
 run.finish().unwrap();
 all.sort_by(f64::total_cmp);
 let lib=Library::open(dir.path()).unwrap(); let (cs,_)=lib.checkpoints(&format!("{name}{c}")).unwrap();
 let st:u64=cs[1..].iter().map(|c|c.stored_bytes).sum();
 println!("{name} {c}: read {:.1} GB/s blocked best {:.1} GB/s = {:.2} of read, median {:.2}; ratio {:.0}", n as f64/read/1e9, n as f64/best/1e9, read/best, read/all[10], (20*n) as f64/st as f64);
 }}
}
