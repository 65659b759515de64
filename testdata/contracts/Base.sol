// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// What the contracts share: one administrator and an emergency brake, with the errors of the usual libraries.
abstract contract Base {
    address public immutable admin;
    bool public paused;

    error EnforcedPause();
    error OnlyAdmin(address caller);

    constructor() {
        admin = msg.sender;
    }

    modifier onlyAdmin() {
        if (msg.sender != admin) revert OnlyAdmin(msg.sender);
        _;
    }

    modifier whenNotPaused() {
        if (paused) revert EnforcedPause();
        _;
    }

    function setPaused(bool on) external onlyAdmin {
        paused = on;
    }
}

interface IPayment {
    function collect(address payer) external;
}

interface IERC1271 {
    function isValidSignature(bytes32 hash, bytes calldata signature) external view returns (bytes4);
}

/// The record of accepted requests, from which a test judges that none was sent twice, and a driver what to answer.
abstract contract Accepting is Base {
    struct Accepted {
        uint256 id;
        /// Hash of the call without signature and validity: equal for two requests that ask for the same.
        bytes32 content;
        bytes4 selector;
        address sender;
        uint64 number; // the block's
        bytes extraData;
    }

    IPayment public immutable payment;
    Accepted[] private accepted;
    /// How often each content was accepted.
    mapping(bytes32 content => uint256) public times;
    /// Which shares answered each request: bit i is share i. A public decryption or a proof has bit 0 alone.
    mapping(uint256 id => uint256) public answered;

    constructor(IPayment payment_) {
        payment = payment_;
    }

    function total() external view returns (uint256) {
        return accepted.length;
    }

    /// At most n of the accepted requests, beginning with number `from`, and which shares answered each.
    function page(uint256 from, uint256 n) external view returns (Accepted[] memory list, uint256[] memory answers) {
        if (from > accepted.length) from = accepted.length;
        if (n > accepted.length - from) n = accepted.length - from;
        list = new Accepted[](n);
        answers = new uint256[](n);
        for (uint256 i = 0; i < n; i++) {
            list[i] = accepted[from + i];
            answers[i] = answered[list[i].id];
        }
    }

    function accept(uint256 id, bytes32 content, bytes memory extraData) internal {
        payment.collect(msg.sender);
        accepted.push(Accepted(id, content, msg.sig, msg.sender, uint64(block.number), extraData));
        times[content]++;
    }

    function addressesHash(address[] memory list) internal pure returns (bytes32) {
        bytes32[] memory padded = new bytes32[](list.length);
        for (uint256 i = 0; i < list.length; i++) padded[i] = bytes32(uint256(uint160(list[i])));
        return keccak256(abi.encodePacked(padded));
    }
}
