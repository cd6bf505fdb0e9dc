// What ethers expects of a node, asked of relays: hashes, receipts, error codes, batches and fees.
import assert from "node:assert/strict";
import { JsonRpcProvider, Wallet, keccak256 } from "ethers";

const relays = process.env.RELAYS.split(",").map((url) => new JsonRpcProvider(url));
const [relay] = relays;
const wallet = new Wallet(process.env.SECRET, relay);
const to = "0x7777777777777777777777777777777777777777";
const fails = (promise, check) => assert.rejects(promise, (error) => (check(error), true));
const code = (expected) => (error) => assert.equal(error.code, expected, error.message);

// Fees, as ethers asks for them before it signs.
const fees = await relay.getFeeData();
assert(fees.gasPrice > 0n && fees.maxFeePerGas > 0n && fees.maxPriorityFeePerGas > 0n);

// Signed with its own nonces and sent to all relays at once, without waiting: a batch each.
const first = await wallet.getNonce();
const plain = { to, value: 1, gasLimit: 21000, maxFeePerGas: 2n * fees.maxFeePerGas,
  maxPriorityFeePerGas: fees.maxPriorityFeePerGas, chainId: (await relay.getNetwork()).chainId, type: 2 };
const signed = await Promise.all([...Array(30).keys()].map((at) => wallet.signTransaction({ ...plain, nonce: first + at })));
const sent = await Promise.all(signed.map((raw, at) => relays[at % relays.length].broadcastTransaction(raw)));
sent.forEach((transaction, at) => assert.equal(transaction.hash, keccak256(signed[at])));
const receipts = await Promise.all(sent.map((transaction) => transaction.wait(1, 30_000)));
assert(receipts.every((receipt) => receipt.status === 1));
assert.equal(await wallet.getNonce(), first + 30);

// The whole of what most programs do.
const paid = await (await wallet.sendTransaction({ to, value: 1 })).wait(1, 30_000);
assert.equal(paid.status, 1);

// Errors that programs act on.
await fails(wallet.sendTransaction({ ...plain, nonce: first }), code("NONCE_EXPIRED"));
const { address } = Wallet.createRandom();
const poor = new Wallet(keccak256(address), relay);
await fails(poor.sendTransaction({ ...plain, nonce: 0 }), code("INSUFFICIENT_FUNDS"));
await fails(relay.send("admin_peers", []), code("UNSUPPORTED_OPERATION"));
await fails(wallet.sendTransaction({ ...plain, nonce: first + 99 }), (error) => {
  assert.equal(error.error.data.reason, "nonce_gap");
  assert.equal(Number(error.error.data.expected_nonce), first + 31);
});

// A batch in which one call fails: the others have their answers.
const mixed = await Promise.allSettled([relay.getBlockNumber(), relay.send("admin_peers", []), relay.getBalance(to)]);
assert.deepEqual(mixed.map((one) => one.status), ["fulfilled", "rejected", "fulfilled"]);
// Several processes that ask for a count and send with it; here, several wallets with one key.
const reserving = relays.map((_, at) => new JsonRpcProvider(`${process.env.RELAYS.split(",")[at]}/?nonces=reserve`, undefined, { cacheTimeout: -1 }));
const next = await wallet.getNonce();
const payments = [...Array(12).keys()].map((at) => wallet.connect(reserving[at % reserving.length]).sendTransaction({ to, value: 100 + at }));
const nonces = (await Promise.all(payments)).map((transaction) => transaction.nonce);
assert.deepEqual(nonces.sort((a, b) => a - b), [...Array(12).keys()].map((at) => next + at));
console.log("ethers: all as expected");
