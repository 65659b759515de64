// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Accepting, IPayment} from "./Base.sol";

/// InputVerification takes requests for the proof of an input as the network's contract does and lets anybody answer them.
contract InputVerification is Accepting {
    event VerifyProofRequest(
        uint256 indexed zkProofId,
        uint256 indexed contractChainId,
        address contractAddress,
        address userAddress,
        bytes ciphertextWithZKProof,
        bytes extraData
    );
    event VerifyProofResponse(uint256 indexed zkProofId, bytes32[] handles, bytes[] signatures);
    event RejectProofResponse(uint256 indexed zkProofId);

    error HostChainNotRegistered(uint256 chainId);
    error EmptyCiphertext();

    uint256 public lastProofId;
    mapping(uint256 chainId => bool) public registered;

    constructor(IPayment payment_) Accepting(payment_) {
        registered[block.chainid] = true;
    }

    function setRegistered(uint256 chainId, bool on) external onlyAdmin {
        registered[chainId] = on;
    }

    function verifyProofRequest(
        uint256 contractChainId,
        address contractAddress,
        address userAddress,
        bytes calldata ciphertextWithZKProof,
        bytes calldata extraData
    ) external whenNotPaused {
        if (!registered[contractChainId]) revert HostChainNotRegistered(contractChainId);
        if (ciphertextWithZKProof.length == 0) revert EmptyCiphertext();
        uint256 id = ++lastProofId;
        accept(id, keccak256(abi.encode(msg.sig, contractChainId, contractAddress, userAddress, ciphertextWithZKProof, extraData)), extraData);
        emit VerifyProofRequest(id, contractChainId, contractAddress, userAddress, ciphertextWithZKProof, extraData);
    }

    function verifyProofResponse(uint256 id, bytes32[] calldata handles, bytes[] calldata signatures) external {
        answered[id] |= 1;
        emit VerifyProofResponse(id, handles, signatures);
    }

    function rejectProofResponse(uint256 id) external {
        answered[id] |= 1;
        emit RejectProofResponse(id);
    }
}
