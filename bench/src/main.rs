//! x
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Instant;
use tenure::Tenure;
fn main() {
    let rt = tokio::runtime::Builder::new_current_thread().build().unwrap();
    rt.block_on(async {
        let t = Tenure::connect("memory:").await.unwrap();
        let names: Vec<String> = (0..1024).map(|i| format!("wallet:{i}")).collect();
        for round in 0..3 {
            let n = 4_000_000;
            let s = Instant::now();
            for i in 0..n {
                let h = t.mutex(&names[i & 1023]).acquire().await.unwrap();
                let _ = h.release().await.unwrap();
            }
            eprintln!("{round} tenure {:?}", s.elapsed() / n as u32);
            let s = Instant::now();
            let map: Vec<StdMutex<hashbrown::HashMap<String, Arc<tokio::sync::Mutex<()>>, foldhash::fast::RandomState>>> = (0..64).map(|_| Default::default()).collect();
            use std::hash::BuildHasher;
            let hs = foldhash::fast::RandomState::default();
            for i in 0..n {
                let name = &names[i & 1023];
                let shard = &map[hs.hash_one(name) as usize % 64];
                let m = shard.lock().unwrap().entry_ref(name.as_str()).or_default().clone();
                let g = m.lock_owned().await;
                drop(g);
            }
            eprintln!("{round} tokio  {:?}", s.elapsed() / n as u32);
            let s = Instant::now();
            let w = tenure::engine::SystemWorld;
            use tenure::engine::World;
            for _ in 0..n { std::hint::black_box(w.now()); }
            eprintln!("clock {:?}", s.elapsed() / n as u32);
            let s = Instant::now();
            for _ in 0..n { std::hint::black_box(w.mint().unwrap()); }
            eprintln!("mint {:?}", s.elapsed() / n as u32);
        }
    });
}
