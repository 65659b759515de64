package token

import "errors"

// Errors of the stores, for errors.Is.
var (
	// ErrUnknownTransaction: no such transaction is stored.
	ErrUnknownTransaction = errors.New("token: unknown transaction")
	// ErrAlreadyFinal: the transaction has ended otherwise.
	ErrAlreadyFinal = errors.New("token: the transaction is final")
	// ErrStatus: not a status that a transaction can be given.
	ErrStatus = errors.New("token: bad transaction status")
	// ErrTokenRequestDoesNotExist: a record belongs to a request that is not stored.
	ErrTokenRequestDoesNotExist = errors.New("token: token request does not exist")
	// ErrRequestMismatch: a request of this transaction with other bytes is stored.
	ErrRequestMismatch = errors.New("token: another request of this transaction is stored")

	// ErrTokenDoesNotExist: a token that must exist is not stored.
	ErrTokenDoesNotExist = errors.New("token: token does not exist")
	// ErrTokenSpent: the token is stored as spent.
	ErrTokenSpent = errors.New("token: token is spent")
	// ErrTokenAlreadyLocked: a transaction holds the token, be it the same.
	ErrTokenAlreadyLocked = errors.New("token: token is already locked")
	// ErrNoOwner: a token of ours that no wallet owns.
	ErrNoOwner = errors.New("token: an owned token needs a wallet")

	// ErrAmountMissing: no amount was given.
	ErrAmountMissing = errors.New("token: amount missing")
	// ErrAmountNegative: the amount is below zero where that means nothing.
	ErrAmountNegative = errors.New("token: amount is negative")
	// ErrAmountOutOfRange: the amount, or the number without its sign, has more than MaxAmountBits.
	ErrAmountOutOfRange = errors.New("token: amount out of range")
	// ErrQuantity: the ledger's text of a quantity is not its amount.
	ErrQuantity = errors.New("token: the quantity is not the amount")

	// ErrEmptyIdentity: an identity without bytes. All of them would be one.
	ErrEmptyIdentity = errors.New("token: empty identity")
	// ErrEmptyArgument: a name, key or value that must not be empty is.
	ErrEmptyArgument = errors.New("token: empty argument")
	// ErrIntegrity: what is stored does not fit the key it is stored under.
	ErrIntegrity = errors.New("token: stored data does not fit its key")
	// ErrOtherDatabase: a transaction of one database cannot be joined by a store of another.
	ErrOtherDatabase = errors.New("token: the transaction is of another database")
)
