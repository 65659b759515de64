package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"dongate/internal/console"
	"dongate/relayer/fhevm"
	relayerstore "dongate/relayer/store"
)

// jobQuery says which requests a list holds.
type jobQuery struct {
	kinds  []fhevm.Kind
	states []fhevm.State
	older  time.Duration     // in their state
	after  *relayerstore.Job // the last one of the list before; nil: from the beginning
	limit  int
}

// listPage is how many rows are read at a time: each may hold a megabyte.
const listPage = 50

// run returns up to limit requests, and whether there are more.
func (q *jobQuery) run(ctx context.Context, s *relayerstore.Store, now time.Time) (jobs []relayerstore.Job, more bool, err error) {
	past := q.after == nil
	for _, k := range fhevm.Kinds {
		after := int64(0)
		if !past {
			if k != q.after.Kind {
				continue
			}
			past, after = true, q.after.ID
		}
		if !slices.Contains(q.kinds, k) {
			continue
		}
		var streams []*jobStream
		for _, state := range q.states {
			streams = append(streams, &jobStream{store: s, kind: k, state: state, after: after, before: now.Add(-q.older)})
		}
		for {
			j, err := oldest(ctx, streams)
			if err != nil {
				return nil, false, err
			}
			if j == nil {
				break
			}
			if len(jobs) == q.limit {
				return jobs, true, nil
			}
			jobs = append(jobs, *j)
		}
	}
	return jobs, false, nil
}

// jobStream is the requests of a kind and state, oldest first.
type jobStream struct {
	store  *relayerstore.Store
	kind   fhevm.Kind
	state  fhevm.State
	after  int64
	before time.Time // they are in their state since then or earlier
	page   []relayerstore.Job
	end    bool // nothing is left to be read
}

// oldest takes the oldest request of some streams; nil: there is none.
func oldest(ctx context.Context, streams []*jobStream) (*relayerstore.Job, error) {
	var first *jobStream
	for _, s := range streams {
		if err := s.fill(ctx); err != nil {
			return nil, err
		}
		if len(s.page) > 0 && (first == nil || s.page[0].ID < first.page[0].ID) {
			first = s
		}
	}
	if first == nil {
		return nil, nil
	}
	j := first.page[0]
	first.page = first.page[1:]
	return &j, nil
}

func (s *jobStream) fill(ctx context.Context) error {
	for len(s.page) == 0 && !s.end {
		page, err := s.store.List(ctx, s.kind, s.state, s.after, listPage)
		if err != nil {
			return err
		}
		s.end = len(page) < listPage
		for _, j := range page {
			s.after = j.ID
			if !j.StateSince.After(s.before) {
				j.Request, j.Result = nil, nil
				s.page = append(s.page, j)
			}
		}
	}
	return nil
}

// jobReport is a request in lists.
type jobReport struct {
	JobID     string        `json:"jobId"`
	Kind      fhevm.Kind    `json:"kind"`
	Variant   string        `json:"variant,omitzero"` // of user_decrypt
	State     fhevm.State   `json:"state"`
	Since     time.Time     `json:"since"`
	Created   time.Time     `json:"created"`
	Cause     string        `json:"cause,omitzero"`
	Reason    string        `json:"reason,omitzero"`
	ageAtList time.Duration // how long it has been in its state
}

func newJobReport(j relayerstore.Job, now time.Time) jobReport {
	return jobReport{JobID: j.ExtJobID, Kind: j.Kind, Variant: j.ReqType, State: j.State, Since: j.StateSince.UTC(), Created: j.Created.UTC(),
		Cause: j.ErrCode, Reason: j.ErrReason, ageAtList: now.Sub(j.StateSince)}
}

// jobList is the output of relayer list.
type jobList struct {
	Paused bool        `json:"paused"`
	Jobs   []jobReport `json:"jobs"`
	Next   *string     `json:"next"` // for --after; null: that was all
}

func newJobList(jobs []relayerstore.Job, more, paused bool) jobList {
	out := jobList{Paused: paused, Jobs: []jobReport{}}
	now := time.Now()
	for _, j := range jobs {
		out.Jobs = append(out.Jobs, newJobReport(j, now))
	}
	if more {
		out.Next = &out.Jobs[len(out.Jobs)-1].JobID
	}
	return out
}

func (l jobList) print(w *world, asJSON bool) error {
	if asJSON {
		return w.printJSON(l)
	}
	if l.Paused {
		fmt.Fprintln(w.stderr, "paused: no further request is sent until 'gateway relayer resume'")
	}
	t := console.NewTable(w.stdout)
	for _, j := range l.Jobs {
		cells := []string{j.JobID, string(j.Kind), string(j.State), "for " + age(j.ageAtList)}
		if j.Cause != "" {
			cells = append(cells, printable(j.Cause))
		}
		t.Row(cells...)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if l.Next != nil {
		fmt.Fprintf(w.stderr, "there are more: --after %s\n", *l.Next)
	}
	return nil
}

// jobDetails is the output of relayer show.
type jobDetails struct {
	jobReport
	Content     string          `json:"content"`              // hash of what is asked for (int_job_id)
	Reference   *string         `json:"reference"`            // the gateway contract's id, decimal; null before the receipt
	Transaction string          `json:"transaction,omitzero"` // that made the request
	Response    string          `json:"response,omitzero"`    // that brought the answer
	Accepted    *bool           `json:"accepted,omitzero"`    // of an input proof
	Threshold   int64           `json:"threshold,omitzero"`   // of a completed user decryption
	OwnerEpoch  int64           `json:"ownerEpoch"`           // of the dispatcher that has it; 0: none yet
	Attempts    []attemptReport `json:"attempts"`             // oldest first
	Shares      []shareReport   `json:"shares,omitzero"`      // of a user decryption
}

type attemptReport struct {
	Nonce   int64     `json:"nonce"`
	Cancels bool      `json:"cancels"`
	FeeCap  string    `json:"feeCap"` // wei per gas
	TipCap  string    `json:"tipCap"` // wei per gas
	Hash    string    `json:"hash"`
	Result  string    `json:"result"`
	Block   *int64    `json:"block"` // null: not mined
	Created time.Time `json:"created"`
}

type shareReport struct {
	Index       int64  `json:"index"`
	Transaction string `json:"transaction"`
}

func newJobDetails(j relayerstore.Job, attempts []relayerstore.Attempt, shares []relayerstore.Share) jobDetails {
	d := jobDetails{jobReport: newJobReport(j, time.Now()), Content: hexOf(j.IntJobID[:]), Transaction: j.TxHash, Response: j.ResponseHash,
		Accepted: j.Accepted, Threshold: j.Threshold, OwnerEpoch: j.OwnerEpoch, Attempts: []attemptReport{}}
	if j.Reference != nil {
		ref := fhevm.Reference(*j.Reference).String()
		d.Reference = &ref
	}
	for _, a := range attempts {
		r := attemptReport{Nonce: a.Nonce, Cancels: a.Cancels, FeeCap: a.FeeCap.String(), TipCap: a.TipCap.String(), Hash: hexOf(a.Hash[:]),
			Result: string(a.Result), Created: a.Created.UTC()}
		if a.Result == relayerstore.Mined || a.Result == relayerstore.Reverted {
			r.Block = &a.Block.Number
		}
		d.Attempts = append(d.Attempts, r)
	}
	for _, s := range shares {
		d.Shares = append(d.Shares, shareReport{s.Index, s.TxHash})
	}
	return d
}

func (d jobDetails) print(w *world, asJSON bool, now time.Time) error {
	if asJSON {
		return w.printJSON(d)
	}
	t := console.NewTable(w.stdout)
	kind := string(d.Kind)
	if d.Variant != "" {
		kind += " (" + d.Variant + ")"
	}
	t.Row("job", d.JobID)
	t.Row("kind", kind)
	t.Row("state", fmt.Sprintf("%s since %s, for %s", d.State, when(d.Since), age(now.Sub(d.Since))))
	t.Row("created", when(d.Created))
	t.Row("content", d.Content)
	known := func(name, value string) {
		if value != "" {
			t.Row(name, printable(value))
		}
	}
	if d.Reference != nil {
		t.Row("reference", *d.Reference)
	}
	known("transaction", d.Transaction)
	known("response", d.Response)
	if d.Accepted != nil {
		t.Row("accepted", strconv.FormatBool(*d.Accepted))
	}
	if d.Kind == fhevm.KindUserDecrypt {
		shares := strconv.Itoa(len(d.Shares))
		if d.Threshold > 0 {
			shares += fmt.Sprintf(", complete with %d", d.Threshold)
		}
		t.Row("shares", shares)
	}
	known("cause", d.Cause)
	known("reason", d.Reason)
	if err := t.Flush(); err != nil {
		return err
	}
	if len(d.Attempts) == 0 {
		_, err := fmt.Fprintln(w.stdout, "no transaction was signed")
		return err
	}
	fmt.Fprintln(w.stdout, console.Count(len(d.Attempts), "transaction")+":")
	for _, a := range d.Attempts {
		result := a.Result
		if a.Block != nil {
			result += fmt.Sprintf(" in block %d", *a.Block)
		}
		if a.Cancels {
			result += ", cancels"
		}
		t.Row("  nonce "+strconv.FormatInt(a.Nonce, 10), "fee "+a.FeeCap, "tip "+a.TipCap, a.Hash, when(a.Created), result)
	}
	return t.Flush()
}

func hexOf(b []byte) string { return "0x" + hex.EncodeToString(b) }

func when(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// age is how long ago something was: in whole seconds, and from an hour on in whole minutes.
func age(d time.Duration) string {
	if d < time.Hour {
		return max(d, 0).Truncate(time.Second).String()
	}
	return strings.TrimSuffix(d.Truncate(time.Minute).String(), "0s")
}

// printable quotes text that holds anything that a terminal would act on: reasons are contracts' and nodes' words.
func printable(s string) string {
	for _, r := range s {
		if !strconv.IsPrint(r) {
			return strconv.Quote(s)
		}
	}
	return s
}
