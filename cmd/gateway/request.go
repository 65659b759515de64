package main

import (
	"errors"
	"os"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"dongate/jsonrpc"
	"dongate/workflow"
)

// envURL names the gateway's client endpoint where --url does not.
const envURL = "DONGATE_URL"

// maxInputBytes bounds --input; gateways take 1 MB unless they are configured
// otherwise.
const maxInputBytes = 64 << 20

// selectorFlags name a workflow, by its id or by owner, name and tag.
type selectorFlags struct{ id, owner, name, tag string }

func (s *selectorFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.id, "workflow-id", "", "the workflow's id: 1 to 64 hex `digits`, with or without 0x")
	f.StringVar(&s.owner, "owner", "", "the workflow owner's `address`, together with --name and --tag")
	f.StringVar(&s.name, "name", "", "the workflow's `name`, in clear")
	f.StringVar(&s.tag, "tag", "", "the workflow's `tag`")
}

// reference is what a request says about the workflow. Hex may be in any case
// here, as it is usually pasted; the protocol wants it in lower case.
func (s *selectorFlags) reference(cmd *cobra.Command) (workflow.Reference, error) {
	r := workflow.Reference{ID: strings.ToLower(s.id), Owner: strings.ToLower(s.owner), Name: s.name, Tag: s.tag}
	switch {
	case r == workflow.Reference{}:
		return r, usage(cmd, errors.New("which workflow? give --workflow-id, or --owner, --name and --tag"))
	case !r.HasID() && !r.Complete():
		return r, usage(cmd, errors.New("without --workflow-id a workflow needs all of --owner, --name and --tag"))
	}
	return r, nil
}

// requestFlags describe one trigger.
type requestFlags struct {
	workflow  selectorFlags
	input, id string
}

func (r *requestFlags) add(cmd *cobra.Command) {
	r.workflow.add(cmd)
	cmd.Flags().StringVar(&r.input, "input", "{}", "the `input`: a JSON object or array, @FILE for a file's content, - for standard input")
	cmd.Flags().StringVar(&r.id, "id", "", "the request `id`, 1 to 200 bytes without / (default: a random UUID)")
}

// request builds the request and applies every rule that the gateway would.
func (r *requestFlags) request(w *world, cmd *cobra.Command) (*jsonrpc.Request, workflow.Reference, error) {
	ref, err := r.workflow.reference(cmd)
	if err != nil {
		return nil, ref, err
	}
	input, err := r.readInput(w, cmd)
	if err != nil {
		return nil, ref, err
	}
	if err := jsonrpc.CheckExactNumbers(input); err != nil {
		return nil, ref, usage(cmd, err)
	}
	params, err := json.Marshal(requestParams{Input: input, Workflow: requestWorkflow(ref)})
	if err != nil {
		return nil, ref, usage(cmd, err)
	}
	decoded, err := workflow.DecodeTriggerParams(params)
	if err != nil {
		return nil, ref, usage(cmd, err)
	}
	req := &jsonrpc.Request{ID: r.id, Method: methodExecute, Params: params}
	if req.ID == "" {
		req.ID = uuid.NewString()
	}
	if err := req.Validate(); err != nil {
		return nil, ref, usage(cmd, err)
	}
	return req, decoded.Workflow, nil
}

// requestParams are the params of a trigger (protocol §2).
type requestParams struct {
	Input    jsontext.Value  `json:"input"`
	Workflow requestWorkflow `json:"workflow"`
}

type requestWorkflow struct {
	ID    string `json:"workflowID,omitzero"`
	Owner string `json:"workflowOwner,omitzero"`
	Name  string `json:"workflowName,omitzero"`
	Tag   string `json:"workflowTag,omitzero"`
}

// methodExecute is the method of a trigger (protocol §2).
const methodExecute = "workflows.execute"

// readInput returns the input as compact JSON, its numbers digit by digit as they
// were written.
func (r *requestFlags) readInput(w *world, cmd *cobra.Command) (jsontext.Value, error) {
	data, name := []byte(r.input), "--input"
	var err error
	switch path, isFile := strings.CutPrefix(r.input, "@"); {
	case r.input == "-":
		name = "standard input"
		data, err = readBounded(w.stdin, name, maxInputBytes)
	case isFile:
		name = path
		var f *os.File
		if f, err = os.Open(path); err != nil {
			return nil, fail(exitLocal, "%w", err)
		}
		defer f.Close()
		data, err = readBounded(f, name, maxInputBytes)
	}
	if err != nil {
		return nil, err
	}
	value := jsontext.Value(data)
	if err := value.Compact(); err != nil {
		return nil, usage(cmd, errors.New(name+" is not JSON: "+err.Error()))
	}
	return value, nil
}
