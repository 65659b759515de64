package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/rogpeppe/go-internal/testscript"

	"dongate/auth/sqlclaims"
	"dongate/relayer/fhevm"
	relayerstore "dongate/relayer/store"
	"dongate/storage"
)

// scriptJobs fills the database file of a script with requests, each an hour in its state:
//
//	10000000-… input_proof     failure, the cause in hostile words
//	20000000-… public_decrypt  timed_out
//	30000000-… user_decrypt    receipt_received with two transactions and a share
//	40000000-… user_decrypt    queued
//	50000000-… input_proof     processing
func scriptJobs(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 1, "jobs FILE")
	ts.Check(makeJobs(context.Background(), ts.MkAbs(args[0])))
}

func makeJobs(ctx context.Context, file string) (err error) {
	db, err := storage.Open(ctx, storage.Config{Driver: storage.DriverSQLite, DSN: file})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := db.Migrate(ctx, sqlclaims.Domain, relayerstore.Domain); err != nil {
		return err
	}
	now := time.Now().Add(-time.Hour)
	s := relayerstore.New(db, relayerstore.Options{Now: func() time.Time { return now }})
	var failed error
	do := func(ok bool, err error) {
		if err == nil && !ok {
			err = errors.New("a row did not move")
		}
		failed = errors.Join(failed, err)
	}
	insert := func(k fhevm.Kind, n byte, reqType string) relayerstore.Job {
		id := fmt.Sprintf("%d0000000-0000-4000-8000-000000000000", n)
		_, ok, err := s.Insert(ctx, relayerstore.NewJob{Kind: k, ExtJobID: id, IntJobID: [32]byte{n}, Request: []byte("{}"), ReqType: reqType})
		do(ok, err)
		j, err := s.Job(ctx, k, id)
		do(true, err)
		return j
	}
	epoch, err := s.NextEpoch(ctx)
	do(true, err)
	own := func(j relayerstore.Job) relayerstore.Owner {
		_, err := s.Claim(ctx, j.Kind, epoch, 10)
		do(true, err)
		return relayerstore.Owner{Kind: j.Kind, ID: j.ID, Epoch: epoch}
	}

	proof := insert(fhevm.KindInputProof, 1, "")
	do(s.Fail(ctx, own(proof), fhevm.StateProcessing, relayerstore.Cause{Code: string(fhevm.CauseReverted), Reason: "it said \x1b[31mno"}))
	public := insert(fhevm.KindPublicDecrypt, 2, "")
	do(s.NotReady(ctx, own(public), relayerstore.Cause{Code: string(fhevm.CauseReadinessTimedOut), Reason: "not ready in time"}))
	user := insert(fhevm.KindUserDecrypt, 3, "unified")
	owner := own(user)
	do(s.Ready(ctx, owner))
	attempt := relayerstore.Attempt{Signer: common.Address{1}, Nonce: 7, FeeCap: storage.Uint64Amount(100), TipCap: storage.Uint64Amount(10), Hash: [32]byte{0xaa}, Raw: []byte{2}}
	do(s.BeginSend(ctx, owner, attempt))
	attempt.FeeCap, attempt.TipCap, attempt.Hash = storage.Uint64Amount(113), storage.Uint64Amount(12), [32]byte{0xbb}
	do(s.AddAttempt(ctx, owner, attempt))
	block := relayerstore.Block{Number: 42, Hash: [32]byte{0xcc}}
	_, err = s.Mined(ctx, attempt.Hash, block, false)
	do(true, err)
	ok, _, err := s.Receipt(ctx, user.Kind, user.ID, attempt.Hash, block, [32]byte{31: 9})
	do(ok, err)
	_, err = s.AddShare(ctx, relayerstore.Share{Reference: [32]byte{31: 9}, Index: 4, Share: "00", Signature: "00", TxHash: "0xdd"}, relayerstore.Event{BlockHash: [32]byte{0xcc}}, 9)
	do(true, err)
	insert(fhevm.KindUserDecrypt, 4, "user_decrypt")
	insert(fhevm.KindInputProof, 5, "")
	return failed
}
