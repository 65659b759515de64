// Package guard holds the token stores to the bounds of package storage: what one call may store, and how many rows a page may have. The
// stores check them themselves; these tests walk through every method of every store, so that none that is added can forget to.
package guard

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/storage/storagetest"
	"dongate/token"
	"dongate/token/auditdb"
	"dongate/token/endorserdb"
	"dongate/token/identitydb"
	"dongate/token/keystore"
	"dongate/token/tokendb"
	"dongate/token/tokenlock"
	"dongate/token/ttxdb"
	"dongate/token/walletdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const prefix = "n__c__s__"

// unguarded are places for bytes that nothing is stored from, each with the reason.
var unguarded = []string{
	"tokendb.Store.HasTokenForIdentity 0", // looks something up
	"tokendb.Store.PublicParamsByHash 0",  // looks something up
	// One that cannot have been stored is not there, and does not fail the batch.
	"identitydb.Store.GetExistingSignerInfo 0",
	"identitydb.StoreService.GetExistingSignerInfo 0",
}

// notStored are fields of records that are read together with them but not stored with them.
var notStored = []string{"TransactionRecord.ApplicationMetadata", "TransactionRecord.PublicMetadata"}

// stores returns every store of a TMS. Those that have a Begin are walked with their transactions.
func stores(t *testing.T) []any {
	db := storagetest.Open(t, storage.Config{Driver: storage.DriverMemory})
	require.NoError(t, db.Migrate(t.Context(), token.Tables(prefix)))
	keys, err := keystore.New(db, prefix, keystore.Options{Sealing: keystore.Plain()})
	require.NoError(t, err)
	identities := identitydb.New(db, prefix)
	all := []any{
		tokendb.New(db, prefix, tokendb.Options{}), tokenlock.New(db, prefix), ttxdb.New(db, prefix, ttxdb.Options{}), auditdb.New(db, prefix, auditdb.Options{}),
		endorserdb.New(db, prefix, endorserdb.Options{}), identities, identitydb.NewStoreService(identities), walletdb.New(db, prefix, walletdb.Options{}), keys,
	}
	t.Cleanup(func() {
		for _, s := range all {
			require.NoError(t, s.(interface{ Close() error }).Close())
		}
	})
	return all
}

// Nothing larger than storage.MaxPayload is stored, wherever in a method's arguments it is.
func TestPayloads(t *testing.T) {
	t.Parallel()
	places := 0
	walk(t, func(t *testing.T, name string, call func(make func(reflect.Type) reflect.Value) error) {
		for i := 0; ; i++ {
			b := &builder{target: i}
			err := call(b.build)
			if b.places <= i {
				break // there is no such place
			}
			places++
			if at := fmt.Sprint(name, " ", i); slices.Contains(unguarded, at) {
				require.NotErrorIs(t, err, storage.ErrPayloadSize, "%s is guarded after all", at)
			} else {
				require.ErrorIs(t, err, storage.ErrPayloadSize, "%s: %s", at, b.at)
			}
		}
	})
	require.Greater(t, places, 60, "the walk finds what there is")
}

// No page is larger than storage.MaxPage or without a bound.
func TestPages(t *testing.T) {
	t.Parallel()
	pages := 0
	for _, page := range []query.Pagination{{}, query.OffsetPage(0, storage.MaxPage+1), query.KeysetPage(0, storage.MaxPage+1)} {
		walk(t, func(t *testing.T, name string, call func(make func(reflect.Type) reflect.Value) error) {
			found := false
			err := call(func(kind reflect.Type) reflect.Value {
				if kind == reflect.TypeFor[query.Pagination]() {
					found = true
					return reflect.ValueOf(page)
				}
				return (&builder{target: -1}).build(kind)
			})
			if found {
				pages++
				require.ErrorIs(t, err, query.ErrPage, name)
			}
		})
	}
	require.GreaterOrEqual(t, pages, 3*3, "the walk finds what there is")
	require.Equal(t, storage.MaxPage, query.MaxPageSize)
}

// walk visits every method of every store and of its transactions that takes a context and returns an error, or lists something.
func walk(t *testing.T, visit func(t *testing.T, name string, call func(make func(reflect.Type) reflect.Value) error)) {
	for _, s := range stores(t) {
		store := reflect.ValueOf(s)
		receivers := []func() (reflect.Value, func()){func() (reflect.Value, func()) { return store, func() {} }}
		if begin := store.MethodByName("Begin"); begin.IsValid() {
			receivers = append(receivers, func() (reflect.Value, func()) {
				out := begin.Call([]reflect.Value{reflect.ValueOf(t.Context())})
				require.True(t, out[1].IsNil())
				return out[0], func() { out[0].MethodByName("Rollback").Call(nil) }
			})
		}
		for _, receiver := range receivers {
			example, end := receiver()
			end()
			kind := example.Type()
			for i := range kind.NumMethod() {
				method := kind.Method(i)
				in := method.Type
				if in.NumIn() < 2 || in.In(1) != reflect.TypeFor[context.Context]() || in.NumOut() == 0 || method.Name == "Begin" {
					continue
				}
				visit(t, kind.Elem().String()+"."+method.Name, func(make func(reflect.Type) reflect.Value) error {
					args := []reflect.Value{reflect.ValueOf(t.Context())}
					for i := 2; i < in.NumIn(); i++ {
						if in.In(i).Kind() == reflect.Func { // a callback or the body of a transaction: no data
							return nil
						}
						args = append(args, make(in.In(i)))
					}
					on, end := receiver()
					defer end()
					call := on.Method(method.Index).Call
					if in.IsVariadic() {
						call = on.Method(method.Index).CallSlice
					}
					return failure(call(args))
				})
			}
		}
	}
}

// failure is the error among the results, or in the listing that they are.
func failure(results []reflect.Value) error {
	for _, r := range results {
		if err, ok := r.Interface().(error); ok {
			return err
		}
		if r.Kind() == reflect.Func && r.Type().CanSeq2() {
			for _, err := range r.Seq2() {
				if err, ok := err.Interface().(error); ok {
					return err
				}
			}
		}
	}
	return nil
}

var large = make([]byte, storage.MaxPayload+1)

// builder makes arguments in which everything has a value. The target-th place for bytes has too many.
type builder struct {
	target int
	places int
	at     string // the place
	path   string
}

func (b *builder) build(kind reflect.Type) reflect.Value {
	v := reflect.New(kind).Elem()
	switch kind {
	case reflect.TypeFor[*big.Int]():
		return reflect.ValueOf(big.NewInt(1))
	case reflect.TypeFor[time.Time]():
		return reflect.ValueOf(time.Unix(1, 0))
	case reflect.TypeFor[query.Pagination]():
		return reflect.ValueOf(query.OffsetPage(0, 10))
	case reflect.TypeFor[token.Tx]():
		return v
	}
	switch kind.Kind() {
	case reflect.String:
		v.SetString("1") // a number too, where one is expected
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint64:
		v.SetUint(1)
	case reflect.Pointer:
		v.Set(reflect.New(kind.Elem()))
		v.Elem().Set(b.build(kind.Elem()))
	case reflect.Slice:
		if kind.Elem().Kind() == reflect.Uint8 {
			v.SetBytes(b.bytes())
			break
		}
		v.Set(reflect.Append(v, b.build(kind.Elem())))
	case reflect.Map:
		v.Set(reflect.MakeMap(kind))
		v.SetMapIndex(b.build(kind.Key()), b.build(kind.Elem()))
	case reflect.Struct:
		path := b.path
		for i := range kind.NumField() {
			field := kind.Name() + "." + kind.Field(i).Name
			switch {
			case !kind.Field(i).IsExported() || slices.Contains(notStored, field):
			case kind.Field(i).Name == "Ephemeral": // the store refuses those, whatever they hold
			default:
				b.path = path + " " + field
				v.Field(i).Set(b.build(kind.Field(i).Type))
			}
		}
		b.path = path
	}
	return v
}

func (b *builder) bytes() []byte {
	b.places++
	if b.places-1 == b.target {
		b.at = b.path
		return large
	}
	return []byte{1}
}

// The bounds are what they are documented to be.
func TestBounds(t *testing.T) {
	t.Parallel()
	require.Equal(t, 4<<20, storage.MaxPayload)
	require.Equal(t, 1000, storage.MaxPage)
	require.NoError(t, storage.CheckPayload("value", large[1:]))
	require.True(t, errors.Is(storage.CheckPayload("value", large), storage.ErrPayloadSize))
}
