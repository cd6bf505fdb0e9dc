//! The memory engine against the suite.

use std::sync::Arc;

use tenure::engines::memory::Memory;
use tenure_testkit::conformance;
use tenure_testkit::runtime::RealRuntime;
use tenure_testkit::sim::OUTSIDE;

#[test]
fn memory_conforms_on_virtual_time() {
    let failed = conformance::check_on_virtual_time(usize::MAX, |sim| {
        Arc::new(Memory::in_world(sim.process(OUTSIDE).world(), 0))
    });
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn memory_that_hands_over_conforms_on_virtual_time() {
    let failed = conformance::check_on_virtual_time(usize::MAX, |sim| {
        Arc::new(Memory::in_world(sim.process(OUTSIDE).world(), 0).handing_over())
    });
    assert!(failed.is_empty(), "{failed:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_conforms_on_real_time() {
    let _alone = crate::ALONE.lock().await;
    let engine = Arc::new(Memory::new());
    conformance::check(Arc::new(RealRuntime::here()), move || engine.clone()).await;
}
