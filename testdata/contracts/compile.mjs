// Compiles every contract beside this file and writes its ABI and bytecode to contracts.json. What it writes depends on this
// file, the sources and the pinned compiler alone; their hash is written too, so that a test notices what was not compiled again.
import { createHash } from 'node:crypto';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import solc from 'solc';

const here = dirname(fileURLToPath(import.meta.url));
const sources = {};
for (const file of readdirSync(here).filter((f) => f.endsWith('.sol')).sort()) {
  sources[file] = { content: readFileSync(join(here, file), 'utf8') };
}
const input = {
  language: 'Solidity',
  sources,
  settings: {
    evmVersion: 'prague',
    viaIR: true,
    optimizer: { enabled: true, runs: 200 },
    metadata: { bytecodeHash: 'none', appendCBOR: false },
    outputSelection: { '*': { '*': ['abi', 'evm.bytecode.object'] } },
  },
};
const output = JSON.parse(solc.compile(JSON.stringify(input)));
const messages = output.errors ?? [];
for (const m of messages) console.error(m.formattedMessage);
if (messages.some((m) => m.severity === 'error')) process.exit(1);

const hash = createHash('sha256');
for (const file of [...Object.keys(sources), 'compile.mjs', 'package.json'].sort()) {
  hash.update(`${file}\0`).update(readFileSync(join(here, file))).update('\0');
}

const contracts = {};
for (const file of Object.keys(output.contracts).sort()) {
  for (const [name, c] of Object.entries(output.contracts[file]).sort(([a], [b]) => (a < b ? -1 : 1))) {
    if (c.evm.bytecode.object !== '') contracts[name] = { abi: c.abi, bytecode: c.evm.bytecode.object };
  }
}
const lines = Object.keys(contracts)
  .sort()
  .map((name) => `  ${JSON.stringify(name)}: {\n    "abi": ${JSON.stringify(contracts[name].abi)},\n    "bytecode": "${contracts[name].bytecode}"\n  }`);
writeFileSync(join(here, 'contracts.json'), `{\n  "compiler": ${JSON.stringify(solc.version())},\n  "sources": "${hash.digest('hex')}",\n  "contracts": {\n${lines.join(',\n')}\n  }\n}\n`);
