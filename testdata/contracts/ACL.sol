// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Base} from "./Base.sol";

/// ACL is the host chain's list of who may decrypt what.
contract ACL is Base {
    /// 1 yes, 2 no, 0 as everythingAllowed says; each permission is the hash of what it is for.
    mapping(bytes32 permission => uint8) private permissions;
    bool public everythingAllowed;
    /// Whether every view reverts.
    bool public viewsFail;

    constructor(bool everythingAllowed_) {
        everythingAllowed = everythingAllowed_;
    }

    function setEverythingAllowed(bool on) external onlyAdmin {
        everythingAllowed = on;
    }

    function setViewsFail(bool on) external onlyAdmin {
        viewsFail = on;
    }

    function setAllowed(bytes32 handle, address account, bool on) external onlyAdmin {
        permissions[keccak256(abi.encode(handle, account))] = on ? 1 : 2;
    }

    function setAllowedForDecryption(bytes32[] calldata handles, bool on) external onlyAdmin {
        for (uint256 i = 0; i < handles.length; i++) permissions[handles[i]] = on ? 1 : 2;
    }

    function setDelegated(address delegator, address delegate, address contractAddress, bytes32 handle, bool on) external onlyAdmin {
        permissions[keccak256(abi.encode(delegator, delegate, contractAddress, handle))] = on ? 1 : 2;
    }

    function isAllowed(bytes32 handle, address account) external view returns (bool) {
        return allowed(keccak256(abi.encode(handle, account)));
    }

    function isAllowedForDecryption(bytes32 handle) external view returns (bool) {
        return allowed(handle);
    }

    function isHandleDelegatedForUserDecryption(address delegator, address delegate, address contractAddress, bytes32 handle)
        external
        view
        returns (bool)
    {
        return allowed(keccak256(abi.encode(delegator, delegate, contractAddress, handle)));
    }

    function multicall(bytes[] calldata data) external returns (bytes[] memory results) {
        results = new bytes[](data.length);
        for (uint256 i = 0; i < data.length; i++) {
            (bool ok, bytes memory result) = address(this).delegatecall(data[i]);
            if (!ok) {
                assembly ("memory-safe") {
                    revert(add(result, 0x20), mload(result))
                }
            }
            results[i] = result;
        }
    }

    function allowed(bytes32 permission) private view returns (bool) {
        require(!viewsFail, "views fail");
        uint8 p = permissions[permission];
        return p == 1 || (p == 0 && everythingAllowed);
    }
}
