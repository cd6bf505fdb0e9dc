//! x
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tenure::Tenure;
use tenure::engine::*;
type Map = hashbrown::HashMap<String, Arc<tokio::sync::Mutex<()>>, foldhash::fast::RandomState>;
fn main() {
    let n = std::env::var("N").map_or(2_000_000usize, |n| n.parse().unwrap());
    let names: Vec<String> = (0..1024).map(|i| format!("wallet:{i}")).collect();
    let t = |what: &str, f: &mut dyn FnMut(usize)| {
        for _ in 0..2 {
            let s = Instant::now();
            for i in 0..n {
                f(i)
            }
            eprintln!("{what} {:?}", s.elapsed() / n as u32);
        }
    };
    let e = tenure::engines::memory::Memory::new();
    let w = SystemWorld;
    t("mint", &mut |_| {
        std::hint::black_box(w.mint().unwrap());
    });
    let ids: Vec<ClaimId> = (0..1024).map(|_| w.mint().unwrap()).collect();
    let cs: Vec<Claim> =
        (0..1024).map(|i| Claim::new(Name::new(Space::Lock, &names[i]).unwrap(), ids[i])).collect();
    t("engine claim+leave", &mut |i| {
        let c = &cs[i & 1023];
        let s = e.claim(c);
        std::hint::black_box(&s);
        e.leave_soon(Leave::new(c.name.clone(), c.id), Ack::from_fn(|_| ()));
    });
    let rt = tokio::runtime::Builder::new_current_thread().build().unwrap();
    rt.block_on(async {
        let t = Tenure::connect("memory:").await.unwrap();
        let map: Vec<Mutex<Map>> = (0..64).map(|_| Default::default()).collect();
        let hs = foldhash::fast::RandomState::default();
        for round in 0..3 {
            let s = Instant::now();
            for i in 0..n {
                let h = t.mutex(&names[i & 1023]).acquire().await.unwrap();
                let _ = h.release().await.unwrap();
            }
            eprintln!("{round} tenure {:?}", s.elapsed() / n as u32);
            let s = Instant::now();
            for i in 0..n {
                let h = t.mutex(&names[i & 1023]).acquire().await.unwrap();
                drop(h);
            }
            eprintln!("{round} tenure drop {:?}", s.elapsed() / n as u32);
            let s = Instant::now();
            for i in 0..n {
                let name = &names[i & 1023];
                let shard = &map[hs.hash_one(name) as usize % 64];
                let m = shard.lock().unwrap().entry_ref(name.as_str()).or_default().clone();
                let g = m.lock_owned().await;
                drop(g);
                let mut shard = shard.lock().unwrap();
                if let hashbrown::hash_map::EntryRef::Occupied(e) = shard.entry_ref(name.as_str()) {
                    if Arc::strong_count(e.get()) == 1 {
                        e.remove();
                    }
                }
            }
            eprintln!("{round} tokio vanishing  {:?}", s.elapsed() / n as u32);
        }
    });
}
