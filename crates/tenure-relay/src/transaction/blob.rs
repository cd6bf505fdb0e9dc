//! Transactions with blobs are sent with the blobs; the chain only has their hashes.
//!
//! The node verifies the proofs: that takes milliseconds per blob, and a trusted setup.

use alloy_consensus::transaction::RlpEcdsaDecodableTx;
use alloy_consensus::{TxEip4844, TxEip4844WithSidecar};
use alloy_eips::eip7594::{BlobTransactionSidecarVariant, CELLS_PER_EXT_BLOB};
use alloy_primitives::Signature;

use super::{Kind, undecodable};
use crate::refusal::Refusal;

/// The sidecar, with a proof per blob (EIP-4844) or per cell (EIP-7594).
type WithSidecar = TxEip4844WithSidecar<BlobTransactionSidecarVariant>;

/// Decodes, and checks that the sidecar belongs to the transaction.
pub(super) fn open(raw: &[u8]) -> Result<(WithSidecar, Signature), Refusal> {
    let opened = super::open::<WithSidecar>(Kind::Blob, raw).map_err(|refusal| {
        let mut bare = raw.get(1..).unwrap_or_default();
        match TxEip4844::rlp_decode_with_signature(&mut bare) {
            Ok(_) => undecodable("missing sidecar in blob transaction"),
            Err(_) => refusal,
        }
    })?;
    check(&opened.0)?;
    Ok(opened)
}

fn check(transaction: &WithSidecar) -> Result<(), Refusal> {
    let (hashes, sidecar) = (&transaction.tx.blob_versioned_hashes, &transaction.sidecar);
    if hashes.is_empty() {
        return Err(undecodable("blobless blob transaction"));
    }
    let proofs = match sidecar {
        BlobTransactionSidecarVariant::Eip4844(sidecar) => sidecar.proofs.len(),
        // All proofs of a blob, or it does not count.
        BlobTransactionSidecarVariant::Eip7594(sidecar) => {
            let cells = sidecar.cell_proofs.len();
            if cells.is_multiple_of(CELLS_PER_EXT_BLOB) { cells / CELLS_PER_EXT_BLOB } else { 0 }
        }
    };
    let counts = [sidecar.blobs().len(), sidecar.commitments().len(), proofs];
    if counts.iter().any(|count| *count != hashes.len()) {
        let [blobs, commitments, proofs] = counts;
        return Err(undecodable(format!(
            "invalid sidecar: {} blob hashes, {blobs} blobs, {commitments} commitments, proofs for \
             {proofs}",
            hashes.len()
        )));
    }
    if !sidecar.versioned_hashes().eq(hashes.iter().copied()) {
        return Err(undecodable("invalid sidecar: a commitment does not match its blob hash"));
    }
    Ok(())
}
