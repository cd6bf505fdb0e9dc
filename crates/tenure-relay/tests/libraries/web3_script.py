"""What web3.py expects of a node, asked of relays: hashes, receipts, errors, batches and fees."""

import os
import secrets
from concurrent.futures import ThreadPoolExecutor

from eth_account import Account
from web3 import Web3
from web3.exceptions import Web3RPCError

RELAYS = [Web3(Web3.HTTPProvider(url)) for url in os.environ["RELAYS"].split(",")]
RELAY = RELAYS[0]
WALLET = Account.from_key(os.environ["SECRET"])
TO = "0x7777777777777777777777777777777777777777"


def fails(code, reason, action):
    try:
        answer = action()
    except Web3RPCError as error:
        said = error.rpc_response["error"]
        assert said["code"] == code, said
        assert said["data"]["reason"] == reason, said
        return said
    raise AssertionError(f"it worked: {answer!r}")


# Fees, as programs ask for them before they sign.
tip = RELAY.eth.max_priority_fee
fee = 2 * RELAY.eth.get_block("latest")["baseFeePerGas"] + tip
assert RELAY.eth.gas_price > 0 and fee > 0
assert RELAY.eth.fee_history(1, "latest", [50])["baseFeePerGas"]


def sign(nonce, wallet=WALLET):
    fields = {"to": TO, "value": 1, "gas": 21000, "maxFeePerGas": 2 * fee, "maxPriorityFeePerGas": tip}
    return wallet.sign_transaction({**fields, "type": 2, "chainId": 31337, "nonce": nonce})


# One after the other, at all relays in turn.
first = RELAY.eth.get_transaction_count(WALLET.address, "pending")
signed = [sign(first + at) for at in range(30)]
hashes = [RELAYS[at % len(RELAYS)].eth.send_raw_transaction(one.raw_transaction) for at, one in enumerate(signed)]
assert hashes == [one.hash for one in signed]
for hash in hashes:
    assert RELAY.eth.wait_for_transaction_receipt(hash, timeout=30, poll_latency=0.05)["status"] == 1
assert RELAY.eth.get_transaction_count(WALLET.address, "pending") == first + 30

# A batch: web3.py puts no transactions into one.
with RELAY.batch_requests() as batch:
    batch.add(RELAY.eth.get_balance(TO))
    batch.add(RELAY.eth.get_transaction_count(WALLET.address, "pending"))
    batch.add(RELAY.eth.get_block("latest"))
    balance, count, block = batch.execute()
assert balance >= 30 and count == first + 30 and block["number"] > 0

# Errors that programs act on.
low = fails(-32000, "nonce_too_low", lambda: RELAY.eth.send_raw_transaction(
    WALLET.sign_transaction({"to": TO, "value": 2, "gas": 21000, "gasPrice": 2 * fee, "nonce": first, "chainId": 31337}).raw_transaction))
assert "nonce too low" in low["message"]
gap = fails(-32000, "nonce_gap", lambda: RELAY.eth.send_raw_transaction(sign(first + 99).raw_transaction))
assert int(gap["data"]["expected_nonce"], 16) == first + 30
poor = Account.from_key(secrets.token_bytes(32))
fails(-32000, "no_account", lambda: RELAY.eth.send_raw_transaction(sign(0, poor).raw_transaction))


# Several processes that ask for a count and send with it; here, several threads with one key.
def pay(at):
    relay = Web3(Web3.HTTPProvider(os.environ["RELAYS"].split(",")[at % len(RELAYS)] + "/?nonces=reserve"))
    nonces = []
    for _ in range(3):
        nonce = relay.eth.get_transaction_count(WALLET.address, "pending")
        relay.eth.send_raw_transaction(sign(nonce).raw_transaction)
        nonces.append(nonce)
    return nonces


next_nonce = RELAY.eth.get_transaction_count(WALLET.address, "pending")
with ThreadPoolExecutor(4) as threads:
    given = sorted(nonce for nonces in threads.map(pay, range(4)) for nonce in nonces)
assert given == list(range(next_nonce, next_nonce + 12)), given
print("web3.py: all as expected")
