// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Base, IPayment} from "./Base.sol";

/// FeeToken is what requests are paid with: a token with the errors of the usual library.
contract FeeToken is Base {
    event Transfer(address indexed from, address indexed to, uint256 value);
    event Approval(address indexed owner, address indexed spender, uint256 value);

    error ERC20InsufficientBalance(address sender, uint256 balance, uint256 needed);
    error ERC20InsufficientAllowance(address spender, uint256 allowance, uint256 needed);

    string public constant name = "Fee";
    string public constant symbol = "FEE";
    uint8 public constant decimals = 18;
    uint256 public totalSupply;
    mapping(address owner => uint256) public balanceOf;
    mapping(address owner => mapping(address spender => uint256)) public allowance;

    /// Sets a balance from nothing.
    function setBalance(address owner, uint256 value) external onlyAdmin {
        totalSupply = totalSupply - balanceOf[owner] + value;
        balanceOf[owner] = value;
        emit Transfer(address(0), owner, value);
    }

    /// Approves in the owner's name.
    function setAllowance(address owner, address spender, uint256 value) external onlyAdmin {
        allowance[owner][spender] = value;
        emit Approval(owner, spender, value);
    }

    function approve(address spender, uint256 value) external returns (bool) {
        allowance[msg.sender][spender] = value;
        emit Approval(msg.sender, spender, value);
        return true;
    }

    function transfer(address to, uint256 value) external returns (bool) {
        move(msg.sender, to, value);
        return true;
    }

    function transferFrom(address from, address to, uint256 value) external returns (bool) {
        uint256 left = allowance[from][msg.sender];
        if (left != type(uint256).max) {
            if (left < value) revert ERC20InsufficientAllowance(msg.sender, left, value);
            allowance[from][msg.sender] = left - value;
        }
        move(from, to, value);
        return true;
    }

    function move(address from, address to, uint256 value) private {
        if (balanceOf[from] < value) revert ERC20InsufficientBalance(from, balanceOf[from], value);
        balanceOf[from] -= value;
        balanceOf[to] += value;
        emit Transfer(from, to, value);
    }
}

/// Payment takes the fee of each request; it is the spender that a relayer allows.
contract Payment is Base, IPayment {
    FeeToken public immutable token;
    uint256 public fee;

    constructor(FeeToken token_, uint256 fee_) {
        token = token_;
        fee = fee_;
    }

    function setFee(uint256 value) external onlyAdmin {
        fee = value;
    }

    function collect(address payer) external {
        if (fee != 0) token.transferFrom(payer, address(this), fee);
    }
}
