package fhevm

import (
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
)

// Every body byte for byte: members that are absent are omitted, never null.
func TestReplies(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 5, 4, 3, 2, 1, 987_654_321, time.FixedZone("", 3600))
	job := Job{ID: "j", UpdatedAt: at, QueuePosition: 0, TxQueueSize: 7}
	in := func(s State, c Cause, reason string) Job {
		j := job
		j.State, j.Cause, j.Reason = s, c, reason
		return j
	}
	for name, c := range map[string]struct {
		got        Reply
		status     int
		retryAfter int
		body       string
	}{
		"accepted":         {Accepted("r", "j", 3), 202, 3, `{"status":"queued","requestId":"r","result":{"jobId":"j"}}`},
		"queued":           {Pending("r", in(StateQueued, "", ""), 8), 202, 8, `{"status":"queued","requestId":"r","state":"queued","updatedAt":"2026-05-04T02:02:01.987Z","queuePosition":0,"txQueueSize":7}`},
		"in flight":        {Pending("r", in(StateTxInFlight, "", ""), 8), 202, 8, `{"status":"queued","requestId":"r","state":"tx_in_flight","updatedAt":"2026-05-04T02:02:01.987Z","queuePosition":0,"txQueueSize":7}`},
		"receipt":          {Pending("r", in(StateReceiptReceived, "", ""), 4), 202, 4, `{"status":"queued","requestId":"r","state":"receipt_received","updatedAt":"2026-05-04T02:02:01.987Z"}`},
		"waits for shares": {Pending("r", in(StateCompleted, "", ""), 5), 202, 5, `{"status":"queued","requestId":"r","state":"completed","updatedAt":"2026-05-04T02:02:01.987Z"}`},

		"proof":                  {Succeeded("r", ProofResult{true, [][32]byte{{1, 31: 2}}, [][]byte{{3, 4}}}), 200, 0, `{"status":"succeeded","requestId":"r","result":{"accepted":true,"extraData":"0x00","handles":["0x01` + strings.Repeat("00", 30) + `02"],"signatures":["0x0304"]}}`},
		"no proof":               {Succeeded("r", ProofResult{}), 200, 0, `{"status":"succeeded","requestId":"r","result":{"accepted":false,"extraData":"0x00"}}`},
		"public":                 {Succeeded("r", PublicResult{[]byte{1}, [][]byte{{2}, {3}}, []byte{0}}), 200, 0, `{"status":"succeeded","requestId":"r","result":{"decryptedValue":"01","signatures":["02","03"],"extraData":"0x00"}}`},
		"public, nothing signed": {Succeeded("r", PublicResult{}), 200, 0, `{"status":"succeeded","requestId":"r","result":{"decryptedValue":"","signatures":[],"extraData":"0x"}}`},
		"user":                   {Succeeded("r", UserResult{{[]byte{1}, []byte{2}, []byte{3}}, {}}), 200, 0, `{"status":"succeeded","requestId":"r","result":{"result":[{"payload":"01","signature":"02","extraData":"0x03"},{"payload":"","signature":"","extraData":"0x"}]}}`},
		"no user":                {Succeeded("r", UserResult(nil)), 200, 0, `{"status":"succeeded","requestId":"r","result":{"result":[]}}`},

		"malformed id":   {Failed("r", ErrJobIDMalformed(), false, 0), 400, 0, `{"status":"failed","requestId":"r","error":{"label":"validation_failed","message":"Validation failed for 1 field in the request: job_id","details":[{"field":"job_id","issue":"Must be a UUID"}]}}`},
		"unknown id":     {Failed("r", ErrJobNotFound(), true, 0), 404, 0, `{"status":"failed","requestId":"r","error":{"label":"not_found","message":"Request not found"}}`},
		"full":           {Failed("r", ErrOverloaded(), false, 4), 429, 4, `{"status":"failed","requestId":"r","error":{"label":"rate_limited","message":"Server is experiencing high processing load: relayer is currently processing too many requests"}}`},
		"too large":      {Failed("r", ErrBodyTooLarge(), false, 0), 413, 0, `{"status":"failed","requestId":"r","error":{"label":"request_error","message":"Request body is larger than 1048576 bytes"}}`},
		"too large, SDK": {Failed("r", ErrBodyTooLarge(), true, 0), 400, 0, `{"status":"failed","requestId":"r","error":{"label":"request_error","message":"Request body is larger than 1048576 bytes"}}`},
		"method":         {Failed("r", ErrMethodNotAllowed(), false, 0), 405, 0, `{"status":"failed","requestId":"r","error":{"label":"request_error","message":"Method not allowed"}}`},
		"method, SDK":    {Failed("r", ErrMethodNotAllowed(), true, 0), 400, 0, `{"status":"failed","requestId":"r","error":{"label":"request_error","message":"Method not allowed"}}`},
		"internal":       {Failed("r", ErrInternal(""), false, 0), 500, 0, `{"status":"failed","requestId":"r","error":{"label":"internal_server_error","message":"Internal server error"}}`},
		"database":       {Failed("r", ErrDatabase(), false, 0), 500, 0, `{"status":"failed","requestId":"r","error":{"label":"internal_server_error","message":"Database error"}}`},
		"unreadable":     {Failed("r", ErrBodyUnreadable(), false, 0), 400, 0, `{"status":"failed","requestId":"r","error":{"label":"request_error","message":"Failed to read request body"}}`},

		"not ready":          {JobFailed("r", in(StateTimedOut, CauseReadinessTimedOut, ReasonNotReady), false), 504, 0, `{"status":"failed","requestId":"r","jobId":"j","state":"timed_out","error":{"label":"readiness_check_timed_out","message":"Ciphertext not ready for decryption on the gateway chain"}}`},
		"not ready, SDK":     {JobFailed("r", in(StateTimedOut, CauseReadinessTimedOut, ReasonNotReady), true), 503, 0, `{"status":"failed","requestId":"r","jobId":"j","state":"timed_out","error":{"label":"readiness_check_timed_out","message":"Ciphertext not ready for decryption on the gateway chain"}}`},
		"no response":        {JobFailed("r", in(StateTimedOut, CauseResponseTimedOut, ReasonNoResponse), false), 504, 0, `{"status":"failed","requestId":"r","jobId":"j","state":"timed_out","error":{"label":"response_timed_out","message":"Gateway chain did not respond within the expected timeframe"}}`},
		"no reason":          {JobFailed("r", in(StateTimedOut, "", ""), false), 504, 0, `{"status":"failed","requestId":"r","jobId":"j","state":"timed_out","error":{"label":"response_timed_out","message":"Request timed out (reason not available)"}}`},
		"refused":            {JobFailed("r", in(StateFailure, CauseReverted, "why"), true), 400, 0, `{"status":"failed","requestId":"r","jobId":"j","state":"failure","error":{"label":"request_error","message":"why"}}`},
		"refused, no reason": {JobFailed("r", in(StateFailure, "", ""), false), 400, 0, `{"status":"failed","requestId":"r","jobId":"j","state":"failure","error":{"label":"request_error","message":"Request failed (reason not available)"}}`},
		"signature":          {JobFailed("r", in(StateFailure, CauseInvalidSignature, "x"), false), 400, 0, `{"status":"failed","requestId":"r","jobId":"j","state":"failure","error":{"label":"validation_failed","message":"Validation failed for 1 field(s)","details":[{"field":"signature","issue":"Signature is invalid"}]}}`},
		"paused":             {JobFailed("r", in(StateFailure, CauseProtocolPaused, "x"), true), 503, 0, `{"status":"failed","requestId":"r","jobId":"j","state":"failure","error":{"label":"protocol_paused","message":"The protocol is paused"}}`},
		"acl":                {JobFailed("r", in(StateFailure, CauseNotAllowedOnHostACL, "Not allowed on host ACL: x"), false), 400, 0, `{"status":"failed","requestId":"r","jobId":"j","state":"failure","error":{"label":"not_allowed_on_host_acl","message":"Not allowed on host ACL: x"}}`},
		"acl down":           {JobFailed("r", in(StateFailure, CauseHostACLFailed, "Host ACL check failed: x"), false), 500, 0, `{"status":"failed","requestId":"r","error":{"label":"host_acl_failed","message":"Host ACL check failed: x"}}`},
		"acl down, SDK":      {JobFailed("r", in(StateFailure, CauseHostACLFailed, "Host ACL check failed: x"), true), 500, 0, `{"status":"failed","requestId":"r","error":{"label":"internal_server_error","message":"Host ACL check failed: x"}}`},
		"live":               {JobFailed("r", in(StateQueued, "", ""), false), 500, 0, `{"status":"failed","requestId":"r","error":{"label":"internal_server_error","message":"Internal server error"}}`},
		"unknown state":      {JobFailed("r", in("x", "", ""), false), 500, 0, `{"status":"failed","requestId":"r","error":{"label":"internal_server_error","message":"Internal server error"}}`},
	} {
		require.Equal(t, c.status, c.got.Status, name)
		require.Equal(t, c.retryAfter, c.got.RetryAfter, name)
		require.Equal(t, c.body, string(c.got.Body), name)
	}
}

// A stored reason may hold anything; the body stays JSON and short.
func TestReplyHostileReason(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"\xff\x00\"\\\u2028", strings.Repeat("\xc3\xa9", 1<<16), strings.Repeat("\xff", 5000)} {
		r := JobFailed("r", Job{ID: "j", State: StateFailure, Reason: reason}, false)
		require.True(t, jsontext.Value(r.Body).IsValid(), "%q", r.Body)
		require.Less(t, len(r.Body), 8000)
	}
}
