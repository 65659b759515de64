// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Base} from "./Base.sol";

struct Node {
    address txSender;
    address signer;
    string ipAddress;
    string storageUrl;
    int32 partyId;
    string mpcIdentity;
    bytes caCert;
    string storagePrefix;
}

struct Thresholds {
    uint256 publicDecryption;
    uint256 userDecryption;
    uint256 keyGeneration;
    uint256 mpc;
}

struct Measurement {
    bytes pcr0;
    bytes pcr1;
    bytes pcr2;
}

/// ProtocolConfig says which nodes decrypt and how many of them must agree.
contract ProtocolConfig is Base {
    event NewKmsContext(
        uint256 indexed contextId,
        uint256 indexed previousContextId,
        Node[] nodes,
        Thresholds thresholds,
        string softwareVersion,
        Measurement[] measurements
    );

    error InvalidKmsContext(uint256 contextId);

    struct Anchor {
        uint256 number;
        bytes32 parent;
    }

    uint256 public currentContext = uint256(7) << 248;
    uint256 public currentEpoch = uint256(8) << 248;
    mapping(uint256 contextId => uint256) private userThresholds;
    mapping(uint256 contextId => Anchor) private anchors;

    /// Begins a new context with nodes that store their keys under the given URLs.
    function newContext(string[] calldata storageUrls, string[] calldata storagePrefixes, uint256 userThreshold) external onlyAdmin {
        uint256 previous = currentContext;
        currentContext++;
        currentEpoch++;
        userThresholds[currentContext] = userThreshold;
        anchors[currentContext] = Anchor(block.number, blockhash(block.number - 1));
        Node[] memory nodes = new Node[](storageUrls.length);
        for (uint256 i = 0; i < nodes.length; i++) {
            nodes[i].txSender = address(uint160(i + 1));
            nodes[i].signer = address(uint160(i + 1));
            nodes[i].storageUrl = storageUrls[i];
            nodes[i].partyId = int32(int256(i + 1));
            nodes[i].storagePrefix = storagePrefixes[i];
        }
        emit NewKmsContext(
            currentContext, previous, nodes, Thresholds(userThreshold, userThreshold, userThreshold, userThreshold), "1", new Measurement[](1)
        );
    }

    function setUserThreshold(uint256 contextId, uint256 userThreshold) external onlyAdmin {
        userThresholds[contextId] = userThreshold;
        if (anchors[contextId].number == 0) anchors[contextId] = Anchor(block.number, blockhash(block.number - 1));
    }

    function getUserDecryptionThresholdForContext(uint256 contextId) external view returns (uint256) {
        known(contextId);
        return userThresholds[contextId];
    }

    function getCurrentKmsContextAndEpoch() external view returns (uint256, uint256) {
        return (currentContext, currentEpoch);
    }

    /// The block that announced the context, and the hash of the block before it: a contract does not know its own.
    function getKmsContextAnchor(uint256 contextId) external view returns (uint256, bytes32) {
        known(contextId);
        return (anchors[contextId].number, anchors[contextId].parent);
    }

    function known(uint256 contextId) private view {
        if (anchors[contextId].number == 0) revert InvalidKmsContext(contextId);
    }
}
