// Package token has what the stores of a token network's node have in common: their tables, the words for what is in them, and the
// transactions that they share. It holds no data itself.
//
// A token management system (TMS) has one set of tables, whose names begin with [TMS.Prefix]. Its stores are packages of their own. Each
// has a Store, which alone builds SQL for its tables, where needed a StoreService, which adds caches, listeners and checks of the same
// domain, and services above them that combine StoreServices. No tier skips another.
//
//	ttxdb       transactions as their owner sees them: requests, txs, movements, tx_ends, findings
//	auditdb     the same as an auditor sees them: the tables with aud_, and eid_leases
//	endorserdb  what an endorser validated: req_vals
//	tokendb     tokens, who owns them, certifications, cleanup marks, public parameters
//	tokenlock   which transaction is about to spend a token: tkn_locks, tkn_consumers
//	identitydb  configurations of identities, what is known of them, their signers: id_cfgs, id_info, id_signers
//	walletdb    which wallet an identity belongs to: wallets
//	keystore    private keys: key_store
//	lease       who leads a background service until when: leases
//	selector    picks and locks tokens of a wallet for a payment; no tables
//	recovery    asks the ledger about transactions that stayed pending; no tables
//
// Stores of one TMS may share a database or have one each, with two exceptions: tokendb and tokenlock share one, since what can be spent
// is what is not locked, and so do identitydb and walletdb. Tokens and the status of their transaction are written together only where
// tokendb and ttxdb share a database, see [Tx].
package token
