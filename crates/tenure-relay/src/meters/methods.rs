//! The methods that are counted by name. Clients can make up any; the rest is `other`.

/// The methods whose counters exist from the start.
pub(super) const STARTED: [&str; 4] =
    ["eth_sendRawTransaction", "eth_getTransactionCount", "eth_call", OTHER];

const OTHER: &str = "other";

/// The methods that wallets and libraries use, in alphabetical order.
const KNOWN: [&str; 49] = [
    "debug_traceTransaction",
    "eth_accounts",
    "eth_blobBaseFee",
    "eth_blockNumber",
    "eth_call",
    "eth_chainId",
    "eth_createAccessList",
    "eth_estimateGas",
    "eth_feeHistory",
    "eth_gasPrice",
    "eth_getBalance",
    "eth_getBlockByHash",
    "eth_getBlockByNumber",
    "eth_getBlockReceipts",
    "eth_getBlockTransactionCountByHash",
    "eth_getBlockTransactionCountByNumber",
    "eth_getCode",
    "eth_getFilterChanges",
    "eth_getFilterLogs",
    "eth_getLogs",
    "eth_getProof",
    "eth_getStorageAt",
    "eth_getTransactionByBlockHashAndIndex",
    "eth_getTransactionByBlockNumberAndIndex",
    "eth_getTransactionByHash",
    "eth_getTransactionCount",
    "eth_getTransactionReceipt",
    "eth_maxPriorityFeePerGas",
    "eth_newBlockFilter",
    "eth_newFilter",
    "eth_newPendingTransactionFilter",
    "eth_sendRawTransaction",
    "eth_sendTransaction",
    "eth_simulateV1",
    "eth_subscribe",
    "eth_syncing",
    "eth_uninstallFilter",
    "eth_unsubscribe",
    "net_listening",
    "net_peerCount",
    "net_version",
    "tenure_getNonces",
    "tenure_releaseNonce",
    "tenure_reserveNonce",
    "tenure_sendingNonce",
    "txpool_content",
    "txpool_status",
    "web3_clientVersion",
    "web3_sha3",
];

/// The method as a label.
pub(super) fn known(method: &str) -> &'static str {
    KNOWN.binary_search(&method).map_or(OTHER, |at| KNOWN[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_is_found_by_its_name_and_all_others_are_one() {
        assert!(KNOWN.is_sorted());
        for method in KNOWN {
            assert_eq!(known(method), method);
        }
        assert_eq!(known("eth_callMany"), OTHER);
        assert_eq!(known(""), OTHER);
    }
}
