// What viem expects of a node, asked of relays: hashes, receipts, error names, batches and fees.
import assert from "node:assert/strict";
import { createPublicClient, createWalletClient, defineChain, http, keccak256 } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";

const urls = process.env.RELAYS.split(",");
const chain = defineChain({ id: 31337, name: "test", nativeCurrency: { name: "Ether", symbol: "ETH", decimals: 18 },
  rpcUrls: { default: { http: urls } } });
const account = privateKeyToAccount(process.env.SECRET);
// A failure is not tried again: the first answer is what is looked at.
const transport = (url) => http(url, { batch: true, retryCount: 0 });
const node = createPublicClient({ chain, transport: transport(urls[0]), pollingInterval: 50 });
const wallets = urls.map((url) => createWalletClient({ account, chain, transport: transport(url) }));
const to = "0x7777777777777777777777777777777777777777";
const fails = (promise, name) => assert.rejects(promise, (error) => {
  assert(error.walk((cause) => cause.name === name), `${name}: ${error.name} ${error.message}`);
  return true;
});

// Fees, as viem asks for them before it signs.
const fees = await node.estimateFeesPerGas();
assert(fees.maxFeePerGas > 0n);
assert((await node.getFeeHistory({ blockCount: 1, rewardPercentiles: [50] })).baseFeePerGas.length > 0);

// Signed with its own nonces and sent to all relays at once, without waiting: a batch each.
const count = () => node.getTransactionCount({ address: account.address, blockTag: "pending" });
const first = await count();
const plain = { to, value: 1n, gas: 21000n, maxFeePerGas: 2n * fees.maxFeePerGas, maxPriorityFeePerGas: fees.maxPriorityFeePerGas };
const signed = await Promise.all([...Array(30).keys()].map((at) =>
  account.signTransaction({ ...plain, chainId: 31337, type: "eip1559", nonce: first + at })));
const hashes = await Promise.all(signed.map((serializedTransaction, at) =>
  wallets[at % wallets.length].sendRawTransaction({ serializedTransaction })));
assert.deepEqual(hashes, signed.map((raw) => keccak256(raw)));
for (const hash of hashes) {
  assert.equal((await node.waitForTransactionReceipt({ hash, timeout: 30_000 })).status, "success");
}
assert.equal(await count(), first + 30);

// The whole of what most programs do.
const hash = await wallets[0].sendTransaction({ to, value: 1n });
assert.equal((await node.waitForTransactionReceipt({ hash, timeout: 30_000 })).status, "success");

// Errors that programs act on.
await fails(wallets[0].sendTransaction({ ...plain, nonce: first }), "NonceTooLowError");
await fails(wallets[0].sendTransaction({ ...plain, nonce: first + 99 }), "NonceTooHighError");
const poor = createWalletClient({ account: privateKeyToAccount(generatePrivateKey()), chain, transport: transport(urls[0]) });
await fails(poor.sendTransaction({ ...plain, nonce: 0 }), "InsufficientFundsError");
await fails(node.request({ method: "admin_peers" }), "MethodNotFoundRpcError");
// Several processes that ask for a count and send with it; here, several wallets with one key.
const reserving = urls.map((url) => createWalletClient({ account, chain, transport: transport(`${url}/?nonces=reserve`) }));
const next = await count();
const paid = await Promise.all([...Array(12).keys()].map((at) => reserving[at % urls.length].sendTransaction({ to, value: 100n + BigInt(at) })));
assert.equal(new Set(paid).size, 12);
assert.equal(await count(), next + 12);
console.log("viem: all as expected");
