// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Base, Accepting, IPayment, IERC1271} from "./Base.sol";

struct HandleContract {
    bytes32 handle;
    address contractAddress;
}

struct HandleOwner {
    bytes32 handle;
    address contractAddress;
    address ownerAddress;
}

struct Validity {
    uint256 start;
    uint256 duration; // days or seconds
}

struct Contracts {
    uint256 chainId;
    address[] addresses;
}

struct Delegation {
    address delegator;
    address delegate;
}

struct Material {
    bytes32 handle;
    uint256 keyId;
    bytes32 digest;
    address[] coprocessors;
}

struct Unified {
    address userAddress;
    bytes publicKey;
    address[] allowedContracts;
    Validity validity;
    bytes signature;
    bytes extraData;
}

/// Decryption takes requests as the network's contract does and lets anybody answer them, so that a test can answer wrongly.
contract Decryption is Accepting {
    event PublicDecryptionRequest(uint256 indexed id, Material[] materials, bytes extraData);
    event PublicDecryptionRequest(uint256 indexed id, bytes32[] handles, bytes extraData);
    event UserDecryptionRequest(uint256 indexed id, Material[] materials, address userAddress, bytes publicKey, bytes extraData);
    event UserDecryptionRequest(uint256 indexed id, Material[] materials, HandleOwner[] handles, Unified request);
    event UserDecryptionRequest(uint256 indexed id, bytes32[] handles, address userAddress, bytes publicKey, bytes extraData);
    event UserDecryptionRequest(uint256 indexed id, HandleOwner[] handles, Unified request);
    event PublicDecryptionResponse(uint256 indexed id, bytes result, bytes[] signatures, bytes extraData);
    event UserDecryptionResponse(uint256 indexed id, uint256 indexShare, bytes share, bytes signature, bytes extraData);
    event UserDecryptionResponseThresholdReached(uint256 indexed id);

    error EmptyCtHandles();
    error EmptyContractAddresses();
    error ContractAddressesMaxLengthExceeded(uint256 max, uint256 actual);
    error MaxDurationDaysExceeded(uint256 max, uint256 actual);
    error InvalidNullDuration();
    error StartTimestampInFuture(uint256 current, uint256 start);
    error UserDecryptionRequestExpired(uint256 current, uint256 end);
    error UserAddressInContractAddresses(address userAddress, address[] addresses);
    error ContractNotInContractAddresses(address contractAddress, address[] addresses);
    error DifferentChainIds(uint256 expected, uint256 actual);
    error UnsupportedFHEType(uint8 fheType);
    error MaxDecryptionRequestBitSizeExceeded(uint256 max, uint256 actual);
    error CiphertextMaterialNotFound(bytes32 handle);
    error InvalidUserSignature(bytes signature);
    error ECDSAInvalidSignature();
    error ECDSAInvalidSignatureLength(uint256 length);
    error ECDSAInvalidSignatureS(bytes32 s);

    uint256 private constant MAX_CONTRACTS = 10;
    uint256 private constant MAX_DAYS = 365;
    uint256 private constant MAX_BITS = 2048;
    uint256 private constant LOW_S = 0x7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0;

    bytes32 private constant DOMAIN = keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)");
    bytes32 private constant DIRECT =
        keccak256("UserDecryptRequestVerification(bytes publicKey,address[] contractAddresses,uint256 startTimestamp,uint256 durationDays,bytes extraData)");
    bytes32 private constant DELEGATED =
        keccak256("DelegatedUserDecryptRequestVerification(bytes publicKey,address[] contractAddresses,address delegatorAddress,uint256 startTimestamp,uint256 durationDays,bytes extraData)");
    bytes32 private constant UNIFIED =
        keccak256("UserDecryptRequestVerification(address userAddress,bytes publicKey,address[] allowedContracts,uint256 startTimestamp,uint256 durationSeconds,bytes extraData)");

    /// The high byte of an id says what was asked for.
    uint256 public lastPublicId = uint256(1) << 248;
    uint256 public lastUserId = uint256(2) << 248;

    /// Shares after which the threshold event is emitted, once per request.
    uint256 public threshold;
    mapping(uint256 id => uint256) public distinctShares;

    /// Whether a ciphertext is there: 1 it is, 2 it is not, 0 as everyHandleReady says.
    mapping(bytes32 handle => uint8) public readiness;
    bool public everyHandleReady;
    /// Whether the readiness views revert.
    bool public viewsFail;

    constructor(IPayment payment_, uint256 threshold_, bool everyHandleReady_) Accepting(payment_) {
        threshold = threshold_;
        everyHandleReady = everyHandleReady_;
    }

    // What the administrator of a test sets.

    function setThreshold(uint256 n) external onlyAdmin {
        threshold = n;
    }

    function setReady(bytes32[] calldata handles, bool ready) external onlyAdmin {
        for (uint256 i = 0; i < handles.length; i++) readiness[handles[i]] = ready ? 1 : 2;
    }

    function setEveryHandleReady(bool on) external onlyAdmin {
        everyHandleReady = on;
    }

    function setViewsFail(bool on) external onlyAdmin {
        viewsFail = on;
    }

    // Views.

    function isReady(bytes32 handle) public view returns (bool) {
        uint8 r = readiness[handle];
        return r == 1 || (r == 0 && everyHandleReady);
    }

    function isPublicDecryptionReady(bytes32[] calldata handles, bytes calldata) external view returns (bool) {
        require(!viewsFail, "views fail");
        for (uint256 i = 0; i < handles.length; i++) if (!isReady(handles[i])) return false;
        return true;
    }

    function isUserDecryptionReady(HandleContract[] calldata pairs, bytes calldata) external view returns (bool) {
        require(!viewsFail, "views fail");
        for (uint256 i = 0; i < pairs.length; i++) if (!isReady(pairs[i].handle)) return false;
        return true;
    }

    // Requests.

    function publicDecryptionRequest(bytes32[] calldata handles, bytes calldata extraData) external whenNotPaused {
        Material[] memory materials = checkHandles(handles);
        uint256 id = ++lastPublicId;
        accept(id, keccak256(abi.encode(msg.sig, handles, extraData)), extraData);
        emit PublicDecryptionRequest(id, materials, extraData);
        emit PublicDecryptionRequest(id, handles, extraData);
    }

    function userDecryptionRequest(
        HandleContract[] calldata pairs,
        Validity calldata validity,
        Contracts calldata contractsInfo,
        address userAddress,
        bytes calldata publicKey,
        bytes calldata signature,
        bytes calldata extraData
    ) external whenNotPaused {
        bytes32[] memory handles = checkPairs(pairs, validity, contractsInfo, userAddress);
        bytes32 message = keccak256(
            abi.encode(DIRECT, keccak256(publicKey), addressesHash(contractsInfo.addresses), validity.start, validity.duration, keccak256(extraData))
        );
        checkSignature(typed(contractsInfo.chainId, message), userAddress, signature, false);
        Material[] memory materials = checkHandles(handles);
        uint256 id = ++lastUserId;
        accept(id, keccak256(abi.encode(msg.sig, pairs, contractsInfo, userAddress, publicKey, extraData)), extraData);
        emit UserDecryptionRequest(id, materials, userAddress, publicKey, extraData);
        emit UserDecryptionRequest(id, handles, userAddress, publicKey, extraData);
    }

    function delegatedUserDecryptionRequest(
        HandleContract[] calldata pairs,
        Validity calldata validity,
        Delegation calldata accounts,
        Contracts calldata contractsInfo,
        bytes calldata publicKey,
        bytes calldata signature,
        bytes calldata extraData
    ) external whenNotPaused {
        bytes32[] memory handles = checkPairs(pairs, validity, contractsInfo, accounts.delegator);
        bytes32 message = keccak256(
            abi.encode(
                DELEGATED,
                keccak256(publicKey),
                addressesHash(contractsInfo.addresses),
                accounts.delegator,
                validity.start,
                validity.duration,
                keccak256(extraData)
            )
        );
        checkSignature(typed(contractsInfo.chainId, message), accounts.delegate, signature, false);
        Material[] memory materials = checkHandles(handles);
        uint256 id = ++lastUserId;
        accept(id, keccak256(abi.encode(msg.sig, pairs, accounts, contractsInfo, publicKey, extraData)), extraData);
        emit UserDecryptionRequest(id, materials, accounts.delegate, publicKey, extraData);
        emit UserDecryptionRequest(id, handles, accounts.delegate, publicKey, extraData);
    }

    function userDecryptionRequest(
        HandleOwner[] calldata owned,
        address userAddress,
        bytes calldata publicKey,
        address[] calldata allowedContracts,
        Validity calldata validity,
        bytes calldata signature,
        bytes calldata extraData
    ) external whenNotPaused {
        Unified memory request = Unified(userAddress, publicKey, allowedContracts, validity, signature, extraData);
        Material[] memory materials = checkUnified(owned, request);
        uint256 id = ++lastUserId;
        accept(id, keccak256(abi.encode(msg.sig, owned, userAddress, publicKey, allowedContracts, extraData)), extraData);
        emit UserDecryptionRequest(id, materials, owned, request);
        emit UserDecryptionRequest(id, owned, request);
    }

    // Answers. Nothing is checked: the relayer must cope with answers that are early, late, repeated or to somebody else's request.

    function publicDecryptionResponse(uint256 id, bytes calldata result, bytes[] calldata signatures, bytes calldata extraData) external {
        answered[id] |= 1;
        emit PublicDecryptionResponse(id, result, signatures, extraData);
    }

    function userDecryptionResponse(uint256 id, uint256 indexShare, bytes calldata share, bytes calldata signature, bytes calldata extraData) external {
        emit UserDecryptionResponse(id, indexShare, share, signature, extraData);
        uint256 bit = uint256(1) << (indexShare & 0xff);
        if (answered[id] & bit != 0) return;
        answered[id] |= bit;
        if (++distinctShares[id] == threshold) emit UserDecryptionResponseThresholdReached(id);
    }

    // Rules.

    function checkPairs(HandleContract[] calldata pairs, Validity calldata validity, Contracts calldata contractsInfo, address notAmong)
        private
        view
        returns (bytes32[] memory handles)
    {
        if (contractsInfo.addresses.length == 0) revert EmptyContractAddresses();
        checkContracts(contractsInfo.addresses);
        if (validity.duration > MAX_DAYS) revert MaxDurationDaysExceeded(MAX_DAYS, validity.duration);
        checkWindow(validity.start, validity.duration * 1 days);
        if (contains(contractsInfo.addresses, notAmong)) revert UserAddressInContractAddresses(notAmong, contractsInfo.addresses);
        handles = new bytes32[](pairs.length);
        for (uint256 i = 0; i < pairs.length; i++) {
            handles[i] = pairs[i].handle;
            if (!contains(contractsInfo.addresses, pairs[i].contractAddress)) {
                revert ContractNotInContractAddresses(pairs[i].contractAddress, contractsInfo.addresses);
            }
            if (chainOf(handles[i]) != contractsInfo.chainId) revert DifferentChainIds(contractsInfo.chainId, chainOf(handles[i]));
        }
    }

    function checkUnified(HandleOwner[] calldata owned, Unified memory request) private view returns (Material[] memory materials) {
        if (owned.length == 0) revert EmptyCtHandles();
        checkContracts(request.allowedContracts);
        if (request.validity.duration > MAX_DAYS * 1 days) revert MaxDurationDaysExceeded(MAX_DAYS, request.validity.duration / 1 days);
        checkWindow(request.validity.start, request.validity.duration);
        bytes32[] memory handles = new bytes32[](owned.length);
        uint256 chain = chainOf(owned[0].handle);
        for (uint256 i = 0; i < owned.length; i++) {
            handles[i] = owned[i].handle;
            if (chainOf(handles[i]) != chain) revert DifferentChainIds(chain, chainOf(handles[i]));
            if (request.allowedContracts.length != 0 && !contains(request.allowedContracts, owned[i].contractAddress)) {
                revert ContractNotInContractAddresses(owned[i].contractAddress, request.allowedContracts);
            }
        }
        bytes32 message = keccak256(
            abi.encode(
                UNIFIED,
                request.userAddress,
                keccak256(request.publicKey),
                addressesHash(request.allowedContracts),
                request.validity.start,
                request.validity.duration,
                keccak256(request.extraData)
            )
        );
        checkSignature(typed(chain, message), request.userAddress, request.signature, true);
        return checkHandles(handles);
    }

    function checkContracts(address[] memory list) private pure {
        if (list.length > MAX_CONTRACTS) revert ContractAddressesMaxLengthExceeded(MAX_CONTRACTS, list.length);
    }

    function checkWindow(uint256 start, uint256 duration) private view {
        if (duration == 0) revert InvalidNullDuration();
        if (start > block.timestamp) revert StartTimestampInFuture(block.timestamp, start);
        if (start + duration < block.timestamp) revert UserDecryptionRequestExpired(block.timestamp, start + duration);
    }

    function checkHandles(bytes32[] memory handles) private view returns (Material[] memory materials) {
        if (handles.length == 0) revert EmptyCtHandles();
        materials = new Material[](handles.length);
        uint256 bits;
        for (uint256 i = 0; i < handles.length; i++) {
            bits += bitsOf(uint8(handles[i][30]));
            if (!isReady(handles[i])) revert CiphertextMaterialNotFound(handles[i]);
            materials[i] = Material(handles[i], 1, keccak256(abi.encode(handles[i])), new address[](1));
        }
        if (bits > MAX_BITS) revert MaxDecryptionRequestBitSizeExceeded(MAX_BITS, bits);
    }

    /// The host chain of a handle: bytes 22 to 30.
    function chainOf(bytes32 handle) private pure returns (uint256) {
        return uint64(uint256(handle) >> 16);
    }

    /// Byte 30 of a handle is the type of what is encrypted.
    function bitsOf(uint8 fheType) private pure returns (uint256) {
        if (fheType == 0) return 2;
        if (fheType >= 2 && fheType <= 6) return uint256(1) << (fheType + 1);
        if (fheType == 7) return 160;
        if (fheType == 8) return 256;
        revert UnsupportedFHEType(fheType);
    }

    function contains(address[] memory list, address wanted) private pure returns (bool) {
        for (uint256 i = 0; i < list.length; i++) if (list[i] == wanted) return true;
        return false;
    }

    function typed(uint256 chainId, bytes32 message) private view returns (bytes32) {
        bytes32 domain = keccak256(abi.encode(DOMAIN, keccak256("Decryption"), keccak256("1"), chainId, address(this)));
        return keccak256(abi.encodePacked(hex"1901", domain, message));
    }

    /// A contract is asked only where the request's form knows contracts as users.
    function checkSignature(bytes32 hash, address signer, bytes memory signature, bool contracts) private view {
        if (contracts && signer.code.length != 0) {
            (bool ok, bytes memory answer) = signer.staticcall(abi.encodeCall(IERC1271.isValidSignature, (hash, signature)));
            if (!ok || answer.length < 32 || bytes4(answer) != IERC1271.isValidSignature.selector) revert InvalidUserSignature(signature);
            return;
        }
        if (signature.length != 65) revert ECDSAInvalidSignatureLength(signature.length);
        bytes32 r;
        bytes32 s;
        uint8 v;
        assembly ("memory-safe") {
            r := mload(add(signature, 0x20))
            s := mload(add(signature, 0x40))
            v := byte(0, mload(add(signature, 0x60)))
        }
        if (uint256(s) > LOW_S) revert ECDSAInvalidSignatureS(s);
        address recovered = ecrecover(hash, v, r, s);
        if (recovered == address(0)) revert ECDSAInvalidSignature();
        if (recovered != signer) revert InvalidUserSignature(signature);
    }
}
