// Package contracts holds the compiled test contracts: what the network's contracts do as far as a relayer can see, and knobs
// for tests. The sources are the .sol files beside it; `make contracts` compiles them again with the pinned compiler.
package contracts

import _ "embed"

// JSON is {"compiler", "sources", "contracts": {name: {"abi", "bytecode"}}}: the compiler's version, the hash of what was compiled, and
// for each contract the creation code in hex.
//
//go:embed contracts.json
var JSON []byte
