package fhevm

import (
	"net/http"
	"strings"
)

// KeyMaterial says where a public key or common reference string can be fetched.
type KeyMaterial struct {
	ID   [32]byte
	URLs []string
}

// MaterialKind is the folder of a kind of key material.
type MaterialKind string

// The kinds of key material.
const (
	MaterialPublicKey MaterialKind = "PublicKey"
	MaterialCRS       MaterialKind = "CRS"
)

// MaterialURL returns where a node stores key material: storage URL, prefix, kind and id, joined by single slashes (relayer
// reference §1.9).
func MaterialURL(storageURL, storagePrefix string, k MaterialKind, id [32]byte) string {
	return strings.TrimRight(storageURL, "/") + "/" + storagePrefix + "/" + string(k) + "/" + prefixed(id[:])[2:]
}

// KeyURLs answers GET /v2/keyurl: 200. The one CRS is that of 2048 bits.
func KeyURLs(key, crs KeyMaterial) Reply {
	type material struct {
		DataID string   `json:"dataId"`
		URLs   []string `json:"urls"`
	}
	type keyInfo struct {
		Key material `json:"fhePublicKey"`
	}
	of := func(m KeyMaterial) material { return material{prefixed(m.ID[:]), m.URLs} }
	var body struct {
		Status   string `json:"status"`
		Response struct {
			Keys []keyInfo `json:"fheKeyInfo"`
			CRS  struct {
				Bits2048 material `json:"2048"`
			} `json:"crs"`
		} `json:"response"`
	}
	body.Status = statusSucceeded
	body.Response.Keys = []keyInfo{{of(key)}}
	body.Response.CRS.Bits2048 = of(crs)
	return Reply{http.StatusOK, 0, marshal(body)}
}
