// Runs the network's SDK, as it is published, against the relayer. Cases come as JSON on stdin, outcomes go as JSON to stdout.
//
// What is not the relayer is replaced: the public key and CRS, which nothing here encrypts with, and the host chain, which
// allows everything. Timers run 200 times as fast: the SDK waits for whole seconds.
const realTimeout = globalThis.setTimeout;
// Those of whole seconds, that is: fetch counts its own time-outs in ticks of half a second, and would give up on a busy machine.
globalThis.setTimeout = (f, ms, ...args) => realTimeout(f, ms >= 1000 && ms % 1000 === 0 ? ms / 200 : ms, ...args);

const dist = new URL('./node_modules/@zama-fhe/relayer-sdk/lib/', import.meta.url);
const inner = await import(new URL('internal.js', dist)); // createRelayerFhevm is exported here alone
const sdk = await import('@zama-fhe/relayer-sdk/node');

const chainId = 11155111n;
const [contract, user, delegate, other] = ['0x1111111111111111111111111111111111111111', '0x2222222222222222222222222222222222222222',
  '0x3333333333333333333333333333333333333333', '0x4444444444444444444444444444444444444444'];
const { BrowserProvider } = await import('ethers');
const ethersProvider = new BrowserProvider({
  request: async ({ method }) => (method === 'eth_chainId' ? '0xaa36a7' : method === 'eth_call' ? '0x' + '1'.padStart(64, '0') : Promise.reject(new Error(method))),
}, Number(chainId), { staticNetwork: true });

const hostChain = {
  chainId, ethersProvider, aclContractAddress: other, kmsSigners: [user], kmsSignerThreshold: 1, coprocessorSigners: [user], coprocessorSignerThreshold: 1,
  verifyingContractAddressInputVerification: other, verifyingContractAddressDecryption: other, gatewayChainId: 54321n,
};
const keyURLs = {};
for (const lib of [inner, sdk]) {
  lib.FhevmHostChainConfig.fromUserConfig = () => ({ loadFromChain: async () => hostChain });
  lib.TFHEPkeParams.fetch = async (urls) => { keyURLs[urls.publicKeyUrl.srcUrl] = urls; return {}; };
}

const hex = (n, digits) => n.toString(16).padStart(digits, '0');
// The case's number, the chain's id, the type euint32.
const handle = (n, chain = chainId) => '0x' + hex(n, 8) + '00'.repeat(18) + hex(chain, 16) + '0400';

const payloads = {
  inputProof: (c) => ({ contractAddress: contract, userAddress: user, ciphertextWithInputVerification: hex(c.n, 8), contractChainId: '0xaa36a7', extraData: '0x00' }),
  publicDecrypt: (c) => ({ ciphertextHandles: [handle(c.n, c.chain ?? chainId)], extraData: '0x00' }),
  userDecrypt: (c) => ({
    handleContractPairs: [{ handle: handle(c.n, c.chain ?? chainId), contractAddress: contract }], requestValidity: { startTimestamp: '1700000000', durationDays: '10' },
    contractsChainId: '11155111', contractAddresses: [contract], userAddress: user, signature: 'ab'.repeat(65), publicKey: '0707', extraData: '0x00',
  }),
  delegatedUserDecrypt: (c) => ({
    handleContractPairs: [{ handle: handle(c.n, c.chain ?? chainId), contractAddress: contract }], contractsChainId: '11155111', contractAddresses: [contract],
    delegatorAddress: user, delegateAddress: delegate, startTimestamp: '1700000000', durationDays: '10', signature: 'ab'.repeat(65), publicKey: '0707', extraData: '0x00',
  }),
};

async function run(c) {
  const progress = [];
  const options = { ...(c.auth && { auth: c.auth }), onProgress: (p) => progress.push(p.type) };
  try {
    let result;
    if (c.instance) {
      // The SDK makes the payload and then looks into the answer, which no key of a node has signed.
      const instance = await sdk.createInstance({ relayerUrl: c.url, auth: c.auth });
      const keys = instance.generateKeypair();
      const now = Math.floor(Date.now() / 1000);
      const pair = [{ handle: handle(c.n), contractAddress: contract }];
      const signature = '0x' + 'ab'.repeat(65);
      result = await {
        publicDecrypt: () => instance.publicDecrypt([handle(c.n)], options),
        userDecrypt: () => instance.userDecrypt(pair, keys.privateKey, keys.publicKey, signature, [contract], user, now, 10, options),
        delegatedUserDecrypt: () => instance.delegatedUserDecrypt(pair, keys.privateKey, keys.publicKey, signature, [contract], user, delegate, now, 10, options),
      }[c.operation]();
    } else {
      const { relayerProvider } = await inner.createRelayerFhevm({ relayerUrl: c.url, defaultRelayerVersion: 2, auth: c.keyAuth ?? c.auth });
      const payload = { ...payloads[c.operation](c), ...c.change };
      for (const name of c.without ?? []) delete payload[name];
      if (c.padding) payload.padding = 'x'.repeat(c.padding);
      const fetch = 'fetchPost' + c.operation[0].toUpperCase() + c.operation.slice(1);
      result = await relayerProvider[fetch](payload, options);
    }
    return { name: c.name, result, progress };
  } catch (e) {
    await new Promise((resolve) => realTimeout(resolve, 0)); // progress is told later
    return { name: c.name, error: e.name, message: e.message, status: e.status ?? e.cause?.status, label: e.relayerApiError?.label, details: e.relayerApiError?.details, progress };
  }
}

let input = '';
for await (const chunk of process.stdin) input += chunk;
const outcomes = await Promise.all(JSON.parse(input).map(run));
console.log(JSON.stringify({ version: JSON.parse((await import('node:fs')).readFileSync(new URL('../package.json', dist))).version, keyURLs, outcomes }));
process.exit(0);
