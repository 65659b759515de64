package fhevm

import (
	"fmt"
	"strings"
)

// ACLCheck is one question to a host chain's ACL contract: a call that returns true where the handle may be decrypted.
type ACLCheck struct {
	ChainID  uint64 // the handle's host chain
	Handle   Handle
	Name     string // the function asked, for messages
	Calldata []byte
}

// ACLChecks returns nil: an input proof decrypts nothing.
func (*InputProof) ACLChecks() []ACLCheck { return nil }

// ACLChecks asks whether everybody may decrypt each handle.
func (r *PublicDecrypt) ACLChecks() []ACLCheck {
	out := make([]ACLCheck, len(r.CiphertextHandles))
	for i, h := range r.CiphertextHandles {
		out[i] = ACLCheck{h.ChainID(), h, "isAllowedForDecryption", FuncAllowedForPublic.calldata(h)}
	}
	return out
}

// ACLChecks asks for each handle whether user and contract are allowed.
func (r *UserDecrypt) ACLChecks() []ACLCheck {
	out := make([]ACLCheck, 0, 2*len(r.Pairs))
	for _, p := range r.Pairs {
		out = append(out,
			ACLCheck{p.Handle.ChainID(), p.Handle, "isAllowed(user)", FuncAllowed.calldata(p.Handle, r.UserAddress)},
			ACLCheck{p.Handle.ChainID(), p.Handle, "isAllowed(contract)", FuncAllowed.calldata(p.Handle, p.Contract)})
	}
	return out
}

// ACLChecks asks for each handle whether the delegator delegated it.
func (r *DelegatedUserDecrypt) ACLChecks() []ACLCheck {
	out := make([]ACLCheck, len(r.Pairs))
	for i, p := range r.Pairs {
		out[i] = ACLCheck{p.Handle.ChainID(), p.Handle, FuncDelegatedFor.name(), FuncDelegatedFor.calldata(r.DelegatorAddress, r.DelegateAddress, p.Contract, p.Handle)}
	}
	return out
}

// ACLChecks asks for each handle whether the user is allowed, or where somebody else owns it, whether the owner delegated it.
func (r *UnifiedUserDecrypt) ACLChecks() []ACLCheck {
	out := make([]ACLCheck, len(r.Entries))
	for i, e := range r.Entries {
		out[i] = ACLCheck{e.Handle.ChainID(), e.Handle, "isAllowed(user)", FuncAllowed.calldata(e.Handle, r.UserAddress)}
		if e.Owner != r.UserAddress {
			out[i].Name, out[i].Calldata = FuncDelegatedFor.name(), FuncDelegatedFor.calldata(e.Owner, r.UserAddress, e.Contract, e.Handle)
		}
	}
	return out
}

func (f *Function) name() string { name, _, _ := strings.Cut(f.signature, "("); return name }

// maxDenied bounds how many refused checks a reason lists.
const maxDenied = 5

// ReasonDenied returns the reason to store for checks that were answered with false (relayer reference §6.4).
func ReasonDenied(denied []ACLCheck) string {
	handles := make(map[Handle]struct{}, len(denied))
	var list []string
	for i, c := range denied {
		handles[c.Handle] = struct{}{}
		if i < maxDenied {
			list = append(list, fmt.Sprintf("handle=%s check=%s", c.Handle, c.Name))
		}
	}
	if len(denied) > maxDenied {
		list = append(list, "…")
	}
	return fmt.Sprintf("Not allowed on host ACL: ACL check failed for %d handle(s): %s", len(handles), strings.Join(list, ", "))
}

// ReasonACLFailed returns the reason to store where a host chain did not answer. detail must hold no URL.
func ReasonACLFailed(detail string) string {
	return "Host ACL check failed: " + bounded(detail, maxReason)
}
