// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// Wallet1271 is a user that is a contract: it accepts its owner's signatures and hashes that were approved before.
contract Wallet1271 {
    /// How it answers: 0 as it should, 1 reverts, 2 burns all gas, 3 returns something else, 4 returns nothing.
    uint8 public mode;
    address public immutable owner;
    mapping(bytes32 hash => bool) public approved;

    constructor(address owner_) {
        owner = owner_;
    }

    function setMode(uint8 mode_) external {
        mode = mode_;
    }

    function approveHash(bytes32 hash) external {
        approved[hash] = true;
    }

    function isValidSignature(bytes32 hash, bytes calldata signature) external view returns (bytes4) {
        if (mode == 1) revert("no");
        if (mode == 2) while (true) {}
        if (mode == 3) return 0xffffffff;
        if (mode == 4) {
            assembly {
                return(0, 0)
            }
        }
        bool ok = signature.length == 0 && approved[hash];
        if (signature.length == 65) {
            ok = ecrecover(hash, uint8(signature[64]), bytes32(signature[:32]), bytes32(signature[32:64])) == owner;
        }
        return ok ? this.isValidSignature.selector : bytes4(0xffffffff);
    }
}
