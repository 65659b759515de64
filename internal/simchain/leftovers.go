package simchain

// Leftovers returns the functions in which goroutines of go-ethereum stay for a while after a chain is closed: what a leak check
// has to ignore.
func Leftovers() []string {
	return []string{
		"github.com/syndtr/goleveldb/leveldb.(*DB).mpoolDrain",
		"github.com/ethereum/go-ethereum/core.(*txSenderCacher).cache",
	}
}
