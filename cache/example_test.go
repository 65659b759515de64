package cache_test

import (
	"context"
	"fmt"
	"time"

	"dongate/cache"
)

// Two nodes ask for the same thing in turn. The first fetches and asks to keep it; the second is content with what is up to a minute old.
func Example() {
	c := cache.New[string](cache.Config{TTL: 10 * time.Minute, MaxBytes: 256 << 20})

	h := cache.NewHasher()
	h.String("don-1")
	h.String("0x00000000000000000000000000000000000000aa") // the owner, so that nobody else gets what it fetched
	h.String("GET")
	h.String("https://api.example.com/price")
	key := h.Sum()

	call := cache.Call[string]{
		Key: key, Owner: "0x00000000000000000000000000000000000000aa", MaxAge: time.Minute, Store: true, Timeout: 5 * time.Second,
		Fetch: func(context.Context) (v string, size int64, cacheable bool, err error) {
			fmt.Println("fetching")
			return "1999.50", 7, true, nil
		},
	}
	for range 2 {
		v, hit, err := c.Do(context.Background(), call)
		fmt.Println(v, hit, err)
	}
	fmt.Printf("%d hit, %d miss\n", c.Stats().Hits, c.Stats().Misses)
	// Output:
	// fetching
	// 1999.50 false <nil>
	// 1999.50 true <nil>
	// 1 hit, 1 miss
}
