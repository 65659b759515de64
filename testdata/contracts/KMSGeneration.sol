// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Base} from "./Base.sol";

struct Digest {
    uint8 kind;
    bytes digest;
}

/// KMSGeneration says which key and which common reference string are in use.
contract KMSGeneration is Base {
    error KeyNotGenerated(uint256 keyId);
    error CrsNotGenerated(uint256 crsId);

    uint256 private key = (uint256(4) << 248) + 1;
    uint256 private crs = (uint256(5) << 248) + 1;

    function setActive(uint256 keyId, uint256 crsId) external onlyAdmin {
        key = keyId;
        crs = crsId;
    }

    function getActiveKeyId() external view returns (uint256) {
        return key;
    }

    function getActiveCrsId() external view returns (uint256) {
        return crs;
    }

    function getKeyMaterials(uint256 keyId) external view returns (string[] memory urls, Digest[] memory digests) {
        if (keyId != key) revert KeyNotGenerated(keyId);
        return (new string[](1), new Digest[](1));
    }

    function getCrsMaterials(uint256 crsId) external view returns (string[] memory urls, bytes memory digest) {
        if (crsId != crs) revert CrsNotGenerated(crsId);
        return (new string[](1), "");
    }
}
