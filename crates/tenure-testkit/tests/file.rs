//! The file engine against the suite.

use std::sync::Arc;

use tenure::engines::file::File;
use tenure_testkit::conformance;
use tenure_testkit::runtime::RealRuntime;
use tenure_testkit::servers::Folder;

/// Every client of a case opens the file for itself, as a process of its own would.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_conforms_with_a_client_for_each() {
    let _alone = crate::ALONE.lock().await;
    let folder = Folder::in_memory("file").unwrap();
    let path = folder.path().join("locks.db");
    conformance::check(Arc::new(RealRuntime::here()), move || Arc::new(File::open(&path).unwrap()))
        .await;
}
